#!/bin/sh
# `testbed publish`: what is refused and why, what replaces what, and who reads it.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
figures=$(realpath paper-figs)
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
coverage=$(realpath results/coverage.json)
cd "$dir" || exit 1
mkdir -p experiments results paper-figs
export SANDWICH_HOME=$dir
cat >experiments/a_job.json <<'JSON'
{"about": "a job", "system": {"adapter": "scripted"}, "cost": {"minutes": 1}, "evidence": "measured_small",
 "dataset": {"n": 3, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 3},
 "headline": [{"name": "n", "metric": "n_completed"}]}
JSON
cp "$coverage" results
cat >claims.json <<'JSON'
{"claims": [{"name": "all_complete", "paper": "Sandwich", "section": "1", "text": "all requests complete",
             "experiment": "a_job", "here": "three", "reproduced": "n = 3",
             "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}]}]}
JSON
head() { # Python that changes the head h of every record and of latest.json
    python3 - "$1" results/a_job/*.json <<'PY'
import json, sys
for path in sys.argv[2:]:
    h = json.load(open(path))
    exec(sys.argv[1])
    json.dump(h, open(path, "w"))
PY
}
check "a record" "$testbed" run a_job --quiet
head 'h["run"]["dirty"] = 0; h["warnings"] = {}; h["cpu"] = {"family": "26", "model": "2"}
h["run"]["cpu_model"] = "AMD (R) EPYC"; h["run"]["n_cpus"] = 2'
cp -r results/a_job good
refused() { # what the head says, why
    head "$1"
    check "refused: $2" sh -c '"$1" publish a_job >out; [ $? = 4 ] && grep -q "not published: $2" out &&
        [ ! -e results/published ]' sh "$testbed" "$2"
    cp good/* results/a_job
}
refused 'h["run"]["smoke"] = 1' "a smoke run"
refused 'h["run"]["dirty"] = 1' "made with local changes"
refused 'h["run"]["swept"] = "load.rate_rps"' "other settings than the experiment's: load.rate_rps"
refused 'h["cells"] = {"done": 1, "failed": 2}' "2 cells failed"
refused 'h["cells"] = {"skipped": 2}' "no cell is done"
refused 'h["warnings"] = {"noisy_machine": {"n_cells": 1, "observed": 0.5, "threshold": 0.1, "text": "x"}}' \
    "something else used the machine: noisy_machine in 1 of 1 cell"
# Regression: the folder of a published record was where its own name said, whatever was there.
refused 'h["run"]["experiment"] = "../../../elsewhere"' "experiment: expected a name, found"
# Regression: a figure was drawn from a file of that name in the folder, whatever folder the head named.
python=${PYTHON:-/usr/bin/python3}
leads_out() {
    head 'h["file"] = "../other/x.h5"'
    (PYTHONPATH=$figures "$python" -c 'from lib import read; read.latest("a_job")') >out 2>&1
    status=$?
    cp good/* results/a_job
    cat out
    [ $status != 0 ] && grep -q "expected the name of a record in this folder, found '../other/x.h5'" out
}
if "$python" -c 'import matplotlib, h5py' 2>log; then
    check "a head names a record of its own folder" leads_out
else
    skip "a head names a record of its own folder" "$python has no matplotlib or h5py"
fi
check "a file that is no record is refused" refuses 2 'no_such' "$testbed" publish no_such
to=results/published/amd-r-epyc-family-26-model-2-2-cpus/a_job
check "published" "$testbed" publish
check "as in results/" sh -c 'xz -dc "$1"/*.h5.xz | cmp - results/a_job/*.h5 && cmp results/a_job/latest.json "$1"/latest.json &&
    [ "$(ls "$1" | wc -l)" = 3 ]' sh $to
check "a local record comes first" sh -c '"$1" check --claims claims.json all_complete >out &&
    grep -q "^all_complete *undecided: no interval" out && ! grep -q "published" out' sh "$testbed"
mv results/a_job mine
check "a published one is judged, and named" sh -c '"$1" check --claims claims.json all_complete >out &&
    grep -q "^all_complete *undecided: no interval, from a published record" out &&
    grep -q "published with the program" out' sh "$testbed"
check "the report shows it" sh -c '"$1" report --no-draw --claims claims.json --out page && grep -q a_job page/report.md' sh "$testbed"
mv mine results/a_job
# The next one is of another second.
python3 - results/a_job <<'PY'
import json, os, sys
d = sys.argv[1]
h = json.load(open(d + "/latest.json"))
old, new = h["file"], "20990101T000000Z-0123456.h5"
h["file"], h["utc"], h["run"]["utc"] = new, "2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
os.rename(d + "/" + old, d + "/" + new)
os.remove(d + "/" + old[:-3] + ".json")
for name in "latest.json", new[:-3] + ".json":
    json.dump(h, open(d + "/" + name, "w"))
PY
check "a newer one takes its place" sh -c '"$1" publish a_job && [ "$(ls "$2" | wc -l)" = 3 ] &&
    [ -e "$2"/20990101T000000Z-0123456.h5.xz ]' sh "$testbed" $to
compared() { # status, the line of a_job, totals
    "$testbed" compare --published >out
    [ $? = "$1" ] && grep -q -x "  a_job  *$2" out && grep -q "^$3 of another machine, 0 not published, 0 without" out ||
        { cat out; return 1; }
}
check "it is the same as its copy" compared 0 'same  *1  *0  *' '1 same, 0 differ, 0'
sed 's/"n": 3/"n": 4/; s/"n_requests": 3/"n_requests": 4/' experiments/a_job.json >four && mv four experiments/a_job.json
check "a run of another job, on this machine" "$testbed" run a_job --quiet
check "has another number, of another kind of machine" compared 0 \
    'other machine  *0  *1  n: 4 here, 3 published on amd-r-epyc-family-26-model-2-2-cpus.*' '0 same, 0 differ, 1'
head 'h["cpu"] = {"family": "26", "model": "2"}; h["run"]["cpu_model"] = "AMD (R) EPYC"; h["run"]["n_cpus"] = 2'
check "of the same kind it differs" compared 4 'differs  *0  *1  n: 4 here, 3 published.*' '0 same, 1 differs, 0'
check "not by more than a wide margin" "$testbed" compare --published a_job --margin 30%
mkdir -p results/published/z/a_job
sed 's/"utc": "20/"utc": "21/' results/a_job/latest.json >results/published/z/a_job/latest.json
check "the record of the same kind of machine is compared, not the newest" compared 4 \
    'differs  *0  *1  n: 4 here, 3 published.*' '0 same, 1 differs, 0'
rm -r results/published/z
check "a name that is not there" refuses 2 'no_such' "$testbed" compare --published no_such
check "settings are for jobs" refuses 2 'published compares records as they are' \
    "$testbed" compare --published --a system.ttft_ms=1
check "only published records are judged if asked" sh -c '"$1" check --claims claims.json --published >out &&
    grep -q "^all_complete *undecided: no interval, from a published record" out' sh "$testbed"
check "and none is made" refuses 2 'expected one of the two' "$testbed" check --claims claims.json --published --run
cp -r results/a_job mine
echo '{' >results/a_job/latest.json
check "a damaged head is named" sh -c '"$1" compare --published >out; [ $? = 3 ] && grep -q "^  a_job *cannot be read: .*latest.json" out' sh "$testbed"
rm -r results/a_job
check "one without a record of one's own is counted" sh -c '"$1" compare --published >out &&
    grep -q ", 0 not published, 1 without" out' sh "$testbed"
mv mine results/a_job
mv results/published elsewhere
check "so is one that is not published" sh -c '"$1" compare --published >out &&
    grep -q -x "  a_job *not published" out && grep -q ", 1 not published, 0 without" out' sh "$testbed"
mv elsewhere results/published
echo "text" >results/published/figures.sha256
check "a file in the folder of machines is none" sh -c '"$1" check --claims claims.json --published >out' sh "$testbed"
if /usr/bin/python3 -c 'import matplotlib, h5py' 2>/dev/null; then
    rm -r results/a_job
    mkdir -p results/published/other/quickstart
    check "a figure finds the newest published record" sh -c 'cp "$2"/*.h5.xz "$2"/latest.json results/published/other/quickstart &&
        PYTHONPATH="$1" /usr/bin/python3 -c "from lib import read; r = read.latest(\"quickstart\"); print(r.path, len(r.cells))" >out &&
        grep -q "drawn from a published one" out && grep -q "other/quickstart/.*h5.xz 1" out' sh "$figures" $to
else
    skip "a figure finds the newest published record" "/usr/bin/python3 has no matplotlib or h5py"
fi
finish
