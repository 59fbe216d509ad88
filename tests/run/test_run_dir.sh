#!/bin/sh
# Where a run is kept: one that differs from its experiment's file never replaces the record, the
# latest.json or the figure of one that does not, and is resumed in the folder it was begun in.
# Regression: `--smoke` and `--set` replaced the real `latest.json` and figure; a dry run of `make
# experiment` drew a figure.
# Regression: a results folder that cannot be written was found after models were made and the
# machine card was measured.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1

cat >small.json <<'JSON'
{"about": "a small job", "system": {"adapter": "scripted"}, "smoke": {"load": {"n_requests": 2}},
 "dataset": {"n": 5, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 5, "lateness_warn_ms": 1e6},
 "headline": [{"name": "t", "metric": "p50_ttft_ms", "better": "lower"}]}
JSON
# A figure that anybody can draw: which record it was made from.
mkdir paper-figs
cat >paper-figs/small.py <<'PY'
import os, sys
out = sys.argv[2] if len(sys.argv) > 2 else "paper-figs/out"
os.makedirs(out, exist_ok=True)
open(out + "/small.svg", "w").write(sys.argv[1])
PY
run() {
    "$testbed" run ./small.json --quiet --draw "$@" >out 2>&1
}

check "a dry run" run --dry-run
check "a dry run leaves nothing" [ ! -e results ] && [ ! -e paper-figs/out ]
check "the experiment itself" run
check "its figure" grep -q '^results/small/[^/]*\.h5$' paper-figs/out/small.svg
cp results/small/latest.json paper-figs/out/small.svg .
for words in '--smoke' '--set load.n_requests=4' '--smoke --set load.n_requests=3' \
    '--set load.n_requests=3' '--tag mine' '--smoke --tag other' '--out elsewhere'; do
    # shellcheck disable=SC2086
    check "$words" run $words
    figure=$(sed -n 's/\.h5$//p' out | tail -n 1 | xargs dirname)/small.svg
    check "$words: its figure is next to its record" grep -q "^${figure%small.svg}" "$figure"
    check "$words: the real record stays" cmp latest.json results/small/latest.json
    check "$words: the real figure stays" cmp small.svg paper-figs/out/small.svg
done
check "each has its folder" [ "$(ls -d results/small/*/ | wc -l)" = 6 ]
check "with its own latest.json" ls results/small/smoke/latest.json results/small/mine/latest.json \
    results/small/other/latest.json elsewhere/latest.json
check "the same command, the same folder" run --set load.n_requests=4
check "and no other" [ "$(ls -d results/small/*/ | wc -l)" = 6 ]

"$testbed" run ./small.json --quiet --set repeats=2 --set system.ttft_ms=300 >out 2>&1 &
until grep -q '"cell"' results/small/set-*/small.journal 2>err; do
    kill -0 $! 2>err || break
done
kill -9 $!
wait $! 2>err
check "an interrupted one is resumed" sh -c \
    "'$testbed' run ./small.json --set repeats=2 --set system.ttft_ms=300 2>&1 | grep -q '1 of 2 cells are finished'"

# A list on the command line is a sweep, whose figure is drawn without asking.
sweep() {
    "$testbed" run ./small.json --quiet --set 'system.ttft_ms=[1,2]' "$@" >out 2>&1
}
rm -rf paper-figs/out
check "a sweep" sweep
check "its headlines" sh -c "grep -q '^t ttft_ms=1: ' out && grep -q '^t ttft_ms=2: ' out"
figure=$(sed -n 's/\.h5$//p' out | tail -n 1 | xargs dirname)/small.svg
check "its figure is drawn next to its record" grep -q "^${figure%small.svg}" "$figure"
mv paper-figs/small.py paper-figs/sweep.py
rm "$figure"
check "without a script of its own" env SANDWICH_HOME="$dir" "$testbed" run ./small.json --quiet \
    --set 'system.ttft_ms=[1,2]'
check "it is drawn by sweep.py" [ -s "$figure" ]
echo 'raise SystemExit("broken")' >paper-figs/sweep.py
check "a figure that cannot be drawn is no failure of the sweep" env SANDWICH_HOME="$dir" \
    "$testbed" run ./small.json --quiet --set 'system.ttft_ms=[1,2]'
check "but is reported" sh -c "SANDWICH_HOME='$dir' '$testbed' run ./small.json --quiet \
    --set 'system.ttft_ms=[1,2]' 2>&1 | grep -q 'no figure is drawn'"
rm paper-figs/sweep.py

# What a run measures first is the machine card; a folder that cannot be written is found before.
cat >measured.json <<'JSON'
{"about": "a study that wants the machine card", "study": {"name": "mnn_operators", "model": "none.gguf"},
 "smoke": {"about": "the same"}}
JSON
: >taken
check "a results folder that cannot be made" refuses 3 'taken/in: cannot make the folder' \
    "$testbed" run ./measured.json --out taken/in
check "one that is a file" refuses 3 'taken: expected a folder, found a file' \
    "$testbed" run ./measured.json --out taken
check "no machine card was measured" [ ! -e results/machine ]

for words in '--tag ../up' '--tag .' '--tag a/b' "--tag ''" '--tag a --out b'; do
    check "$words is refused" sh -c "'$testbed' run ./small.json $words >out 2>&1; [ \$? = 2 ]"
done
check "a figure without its script is an error" refuses 3 small.py "$testbed" run ./small.json --draw
finish
