#!/bin/sh
# Figures from the published records are those whose hashes come with them, byte for byte; `make docs`
# renews the hashes. Each passes paper-figs/lib/lint.py. What `make figures` counts, and what it does with one that fails.
# Regression: the first figure that failed ended make figures, and each loaded matplotlib again.
set -u
. tests/support/tap.sh
dir=$(realpath "$dir")
python=${PYTHON:-/usr/bin/python3}
hashes=results/published/figures.sha256
if [ -n "${SANDWICH_ISA:-}" ] || ! "$python" -c 'import matplotlib, h5py' 2>/dev/null; then
    skip "figures from published records" "$python has no matplotlib or h5py, or another ISA is asked for"
    finish
fi

stems=$(for d in results/published/*/*/; do basename "$d"; done | sort -u)
check "all that have a published record are drawn" sh -c \
    'sh tests/support/figures.sh "$1/out" >"$1/hashes"' sh "$dir"
check "each has a hash" [ "$(sed -n 's|.*  paper-figs/out/\(.*\)\.svg$|\1|p' $hashes)" = "$stems" ]
drawn_by() { sed -n 's/^# \(matplotlib .*\)/\1/p' "$1"; }
if [ "$(drawn_by "$dir/hashes")" = "$(drawn_by $hashes)" ]; then
    check "they are the same bytes; after a record was published, make docs renews the hashes" \
        diff $hashes "$dir/hashes"
    check "each can be read: no text on text or bars, no bar cut off, at most four lines of footer" \
        sh -c 'cat "$1" && [ ! -s "$1" ]' sh "$dir/out/faults"
    check "those that documents show are among them" sh tests/support/gallery.sh "$dir/out" --check
else
    skip "those that documents show" "drawn by another version, see below"
    skip "each can be read" "drawn by another version, see below"
    skip "they are the same bytes" "here is $(drawn_by "$dir/hashes"), the hashes are of $(drawn_by $hashes)"
fi
# With any version: each names the commit and the day of its record.
cat >"$dir/names.py" <<'PY'
import glob, json, os, sys
newest = {}
for path in glob.glob("results/published/*/*/latest.json"):
    with open(path) as f:
        run = json.load(f)["run"]
    stem = path.split(os.sep)[-2]
    newest[stem] = max(newest.get(stem, ("",)), (run["utc"], run["commit"]))
wrong = 0
for stem, (utc, commit) in newest.items():
    with open(os.path.join(sys.argv[1], stem + ".svg")) as f:
        text = f.read()
    if "commit " + commit[:10] not in text or utc[:10] not in text:
        wrong += 1
        print(stem + ": expected commit %s of %s in it" % (commit[:10], utc[:10]))
sys.exit(not newest or wrong > 0)
PY
check "each names the commit and the day of its record" "$python" "$dir/names.py" "$dir/out"
first=$(echo "$stems" | head -n 1)
sed 's/commit /change /' "$dir/out/$first.svg" >"$dir/other.svg" && mv "$dir/other.svg" "$dir/out/$first.svg"
check "one that does not is found" sh -c '! "$1" "$2/names.py" "$2/out" >"$2/said" &&
    grep -q "^$3: expected commit" "$2/said"' sh "$python" "$dir" "$first"

# Scripts of their own: one with a record, one whose record is published, one that fails, one without.
top=$PWD
mkdir -p "$dir/few/paper-figs" "$dir/few/results/mine"
cp -r paper-figs/lib "$dir/few/paper-figs/"
cd "$dir/few" || exit 1
for s in mine theirs broken none; do
    cat >paper-figs/$s.py <<PY
from lib import read, style
result = read.latest("$s")
if "$s" == "broken":
    raise SystemExit("what is wrong")
fig, axes = style.panels(1)
style.save(fig, result, "$s", "a title")
PY
done
"$python" "$top/tests/figs/make_result.py" results/mine/a.h5 mnn_tile || exit 1
echo '{"file": "a.h5"}' >results/mine/latest.json
for s in theirs broken; do
    mkdir -p results/published/m/$s
    xz -c results/mine/a.h5 >results/published/m/$s/a.h5.xz
    cp results/mine/latest.json results/published/m/$s
done
draw() { # status, words
    want=$1
    shift
    FIGURES=out "$python" paper-figs/lib/draw.py "$@" >said 2>&1
    got=$?
    cat said
    [ "$got" = "$want" ]
}
check "one that fails" draw 1 --formats svg
check "is named, with what it says" sh -c 'grep -q -x "what is wrong" said && grep -q -x "1 figure failed: broken" said'
check "the others are drawn" [ "$(echo out/*)" = "out/mine.svg out/theirs.svg" ]
check "by where their records are from" \
    grep -q -x '2 figures drawn: 1 from your own records, 1 from published ones; 1 without a record' said
check "what has no record is named" grep -q ' make experiment NAME=... makes one: none$' said
check "what the others print is not shown" [ "$(grep -c out/ said)" = 0 ]
check "on a terminal how many of them are drawn is" sh -c 'FIGURES=out script -qec "$0 paper-figs/lib/draw.py --formats svg" /dev/null | grep -q "3 of 3 figures"' "$python"
check "one figure, in all formats" draw 0 mine
check "is drawn alone" sh -c '[ "$(echo out/mine.*)" = "out/mine.pdf out/mine.png out/mine.svg" ] &&
    grep -q "^1 figure drawn: 1 from your own" said'
check "a name that is not there" draw 1 nothing
check "is named" grep -q '^nothing: expected the name of a figure' said
check "a format that is not there" draw 1 --formats gif
check "is named, with those there are" grep -q '^--formats: expected some of svg,png,pdf, found "gif"' said
cd "$top" || exit 1
finish
