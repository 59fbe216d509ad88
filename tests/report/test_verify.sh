#!/bin/sh
# `testbed verify` on records that were made: those that come with the program, of earlier versions, of
# every kind of request; and what check, report and publish do with one that has a fault.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
testbed=$(realpath "$build/testbed")
found() { # status, text, records...
    want=$1
    text=$2
    shift 2
    "$testbed" verify "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    cat "$dir/out" "$dir/err"
    [ "$got" = "$want" ] && cat "$dir/out" "$dir/err" | grep -q -- "$text"
}
for record in results/published/*/*/*.h5.xz; do
    check "$record" found 0 ': no fault in' "$record"
done
for record in tests/golden/records/*/*.h5; do
    check "$record" found 0 'of a version that wrote no hashes' "$record"
done
check "what must hold is printed" sh -c '"$1" verify --rules | grep -q "^  bounds "' sh "$testbed"
check "a name is needed" refuses 2 'expected FILE.h5' "$testbed" verify
check "a record that is not there" refuses 3 'none.h5' "$testbed" verify "$dir/none.h5"
head -c 5000 "$record" >"$dir/cut.h5"
check "a cut one" refuses 3 'cut.h5' "$testbed" verify "$dir/cut.h5"
xz -c "$record" | head -c 3000 >"$dir/cut.h5.xz"
check "a cut packed one" refuses 3 'cut.h5.xz' "$testbed" verify "$dir/cut.h5.xz"
cp "$record" "$dir/plain.h5.xz"
check "one that is not packed" refuses 3 'expected a whole xz file' "$testbed" verify "$dir/plain.h5.xz"
xz -c "$record" >"$dir/whole.h5.xz"
check "a packed one is exported as the file in it" sh -c '"$1" export "$2" --format json >"$4" && [ -s "$4" ] &&
    "$1" export "$3" --format json | cmp - "$4"' sh "$testbed" "$record" "$dir/whole.h5.xz" "$dir/export"
check "a cut packed one is not" refuses 3 'cut.h5.xz' "$testbed" export "$dir/cut.h5.xz"

dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
coverage=$(realpath results/coverage.json)
cd "$dir" || exit 1
mkdir -p experiments results
export SANDWICH_HOME=$dir
cp "$coverage" results
cat >experiments/a_job.json <<'JSON'
{"about": "a job", "system": {"adapter": "scripted", "ttft_ms": 8, "itl_ms": 2}, "cost": {"minutes": 1},
 "evidence": "measured_small", "dataset": {"n": 90, "max_prompt_tok": 16, "max_output_tok": 6},
 "load": {"n_requests": 40, "warmup_requests": 3, "lateness_warn_ms": 1e6}, "slo": {"ttft_ms": 12, "tpot_ms": 2.5},
 "headline": [{"name": "n", "metric": "n_completed"}]}
JSON
cat >claims.json <<'JSON'
{"claims": [{"name": "all_complete", "paper": "Sandwich", "section": "1", "text": "all requests complete",
             "experiment": "a_job", "here": "forty", "reproduced": "n = 40",
             "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}]}]}
JSON
kind() { # what, settings: one run without a fault
    what=$1
    shift
    check "$what" "$testbed" run a_job --quiet --out "$what" "$@"
    check "$what: no fault" sh -c '"$1" verify "$2"/*.h5 | grep -q "no fault in [0-9]* cells and [1-9][0-9]* requests$"' sh "$testbed" "$what"
}
kind closed --set load.concurrency=3
kind open --set load.process=poisson --set load.rate_rps=100
kind overload --set load.process=constant --set load.rate_rps=400 --set load.max_requests_outstanding=6 --set system.slots=1
kind faults --set system.fail_request=20 --set system.short_request=30 --set system.hang_request=35 --set load.timeout_s=0.3
kind conversations --set dataset.turns=conversation --set load.concurrency=4
kind goodput --set load.process=poisson --set load.rate_rps=50 --set search.goodput=true --set search.seeds=1 \
    --set search.trial_s=0.2 --set search.max_rps=300
if ! "$python" -c 'import h5py' 2>/dev/null; then
    skip "records that are changed" "$python has no h5py"
    finish
fi
change() { # record, dataset, its new first element
    "$python" -c 'import h5py, sys
d = h5py.File(sys.argv[1], "r+")[sys.argv[2]]
d[() if d.shape == () else 0] = float(sys.argv[3])' "$@"
}
last=$(ls goodput/*.h5)
search=$("$python" -c 'import h5py, sys; c = h5py.File(sys.argv[1])["cells"]; print([n for n in c if "goodput_rps" in c[n]["summary"]][0])' "$last")
check "a goodput is changed" change "$last" "cells/$search/summary/goodput_rps" 999
check "and found" found 4 "/cells/$search/summary/goodput_rps: expected [0-9.]* by its trials, found 999" "$last"
check "a trial's share is changed" change "$last" "cells/$search/series/trial_slo_attainment_frac" 0.123
check "and found" found 4 "series/trial_slo_attainment_frac\[0\]: expected [0-9.]* by its trials, found 0.123" "$last"

check "a record" "$testbed" run a_job --quiet
mkdir -p results/published/other/a_job
change_packed() { # a published record of another machine, changed
    cp results/a_job/*.json results/published/other/a_job && cp results/a_job/*.h5 packed.h5 &&
        change packed.h5 cells/0000/summary/n_completed 41 &&
        xz -c packed.h5 >"results/published/other/a_job/$(basename results/a_job/*.h5).xz" && mv results/a_job mine
}
check "a published one is changed" change_packed
judged() { "$testbed" check --claims claims.json all_complete >out 2>&1; cat out; grep -q "$1" out; }
check "and not judged" judged '^all_complete *not testable here'
check "for a reason" judged 'the record has a fault: .*h5.xz: /cells/0000/summary/n_completed'
rm -r results/published && mv mine results/a_job
check "a record" judged '^all_complete *undecided: no interval'
check "is changed" change results/a_job/*.h5 cells/0000/summary/n_completed 41
check "has a fault" found 4 'h5: /cells/0000/summary/n_completed: expected 40 by the raw columns, found 41' results/a_job/*.h5
check "is not judged" judged '^all_complete *not testable here'
check "for this reason" judged 'the record has a fault: .*n_completed: expected 40'
check "is not published" sh -c '"$1" publish a_job >out; [ $? = 4 ] && grep -q "not published: the record has a fault" out' sh "$testbed"
check "is on the page without numbers" sh -c '"$1" report --no-draw --claims claims.json --out page >out 2>&1;
    grep -q "n/a (the record has a fault" page/report.md' sh "$testbed"
finish
