#!/bin/sh
# `testbed predict` and `run --prediction`: a run is scored by what was stated before its first cell, and by
# nothing that came later; an interrupted run keeps it.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
export SANDWICH_HOME="$dir/home"
mkdir -p "$SANDWICH_HOME"
cp -r datasets "$SANDWICH_HOME"
cd "$dir" || exit 1
put() { # machine, experiment, a, b
    mkdir -p "$SANDWICH_HOME/results/published/$1/$2"
    cat >"$SANDWICH_HOME/results/published/$1/$2/latest.json" <<JSON
{"file": "x.h5", "evidence": "measured", "run": {"utc": "2026-01-01"}, "headline": {
 "n_1": {"value": $3, "unit": ""}, "n_2": {"value": $4, "unit": ""}}}
JSON
}
for e in job e1 e2 e3 e4 e5; do
    put host-a $e 1 2
    put host-b $e 1 2.02
done
cat >job.json <<'JSON'
{"about": "two cells", "system": {"adapter": "scripted", "ttft_ms": [1, 2]}, "evidence": "measured",
 "dataset": {"n": 1, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 1, "lateness_warn_ms": 1e6},
 "headline": [{"name": "n_{ttft_ms}", "metric": "n_completed", "better": "higher", "each": ["ttft_ms"]},
  {"name": "other", "metric": "n_completed", "better": "higher", "where": {"ttft_ms": 1}}]}
JSON
not_taken() { # text, command...: it exits with 3, and its last line has the text
    text=$1
    shift
    run_quietly "$@"
    [ "$got" = 3 ] && tail -n1 err | grep -q -- "$text"
}
check "a prediction is written" "$testbed" predict ./job.json --predictor records --out p.json
check "it has the hash that is printed" sh -c "grep -q \"\$(sed 's/.*sha256 //' '$dir/log')\" p.json"
check "each headline has intervals or a reason" sh -c \
    "grep -c '\"95\"' p.json | grep -qx 2 && grep -q 'no published record has such a headline' p.json"
check "the run is scored, and says so" sh -c "'$testbed' run ./job.json --prediction p.json |
    grep 'prediction: of 2 headlines 1 inside 95 %, 1 inside 80 %, 1 inside 50 %'"
check "the head has the score and the hash" sh -c \
    'grep -q "\"prediction_n\": 2" results/job/latest.json &&
     grep -q "$(sed -n "s/.*\"sha256\": \(.*\)/\1/p" p.json)" results/job/latest.json'
check "the record is sound" "$testbed" verify results/job/*.h5
check "its page has the score" sh -c \
    "'$testbed' export results/job/*.h5 --format json-full | grep -q prediction_inside_95"
check "--history counts it once" sh -c \
    "mkdir -p '$SANDWICH_HOME/experiments' && cp job.json '$SANDWICH_HOME/experiments' &&
     '$testbed' predict --history | grep 'prospective: 1 records, 2 headlines'"
rm -r results
sed 's/"n_hosts": [0-9]/"n_hosts": 9/' p.json >changed.json
check "one that was changed is refused" not_taken "it was changed after it was made" \
    "$testbed" run ./job.json --prediction changed.json
check "other settings are refused" not_taken "job_sha256: expected that of this run" \
    "$testbed" run ./job.json --set load.n_requests=2 --prediction p.json
check "no file" not_taken "none.json" "$testbed" run ./job.json --prediction none.json

# A run that is interrupted after its first cell.
rm -rf results
start() { # folder, options: the journal of a run whose first cell is done
    rm -rf "$1"
    mkdir "$1"
    folder=$1
    shift
    "$testbed" run ./job.json --out "$folder" --quiet "$@" >/dev/null 2>&1 &
    running=$!
    while ! grep -q '"cell"' "$folder"/job.journal 2>/dev/null && kill -0 $running 2>/dev/null; do sleep 0.01; done
    kill -9 $running 2>/dev/null
    wait $running 2>/dev/null
    [ -e "$folder/job.journal" ]
}
sed -i 's/"ttft_ms": \[1, 2\]/"ttft_ms": [1, 3000]/; s/"max_output_tok": 3/"max_output_tok": 4/' job.json
"$testbed" predict ./job.json --out before.json >/dev/null 2>&1
check "interrupted with a prediction" start with --prediction before.json
sleep 1.1
"$testbed" predict ./job.json --out late.json >/dev/null 2>&1
check "one that was made after the first cell is refused" not_taken "sha256: expected that of this run" \
    "$testbed" run ./job.json --out with --prediction late.json
check "the run goes on with its own, and is scored" sh -c \
    "'$testbed' run ./job.json --out with | grep 'prediction: of '"
check "interrupted without one" start without
check "one from before, given too late, is refused" not_taken "given before the first cell" \
    "$testbed" run ./job.json --out without --prediction before.json
sleep 1.1
"$testbed" predict ./job.json --out late.json >/dev/null 2>&1
check "a late one is refused" not_taken "utc: expected a time before the run began" \
    "$testbed" run ./job.json --out without --prediction late.json
check "from the beginning it is not late" "$testbed" run ./job.json --out without --prediction late.json --fresh
check "without a name" refuses 2 "expected either the name of an experiment or" "$testbed" predict
check "an unknown predictor" refuses 2 'no predictor "root".*roof' "$testbed" predict ./job.json --predictor root
finish
