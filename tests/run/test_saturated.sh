#!/bin/sh
# A rate above the capacity of a scripted system, through the program: the cell is marked or ends early,
# and a search for the goodput takes it as failed. Delays of the script are lower bounds, so a busy
# machine can only lower the capacity: the rate that must not be marked is a fiftieth of it.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
python=${PYTHON:-/usr/bin/python3}
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1

cat >queue.json <<'JSON'
{"about": "a queue", "system": {"adapter": "scripted", "slots": 1, "ttft_ms": 2},
 "dataset": {"n": 5, "max_prompt_tok": 8, "max_output_tok": 1},
 "load": {"process": "poisson", "rate_rps": 2000, "n_requests": 400, "warmup_requests": 5,
          "lateness_warn_ms": 1e6},
 "slo": {"ttft_ms": 60000}, "search": {"max_rps": 2000, "trial_s": 0.5, "seeds": 1}}
JSON
run() { # folder, options...
    to=$1
    shift
    "$testbed" run ./queue.json --out "$to" "$@" >out 2>err || return 1
    "$testbed" export "$(ls "$to"/*.h5)" --format json --out "$to.json"
}
cell() { # folder, a condition on its one cell c, with its warnings' codes in w
    "$python" -c "
import json, sys
c = json.load(open('$1.json'))['cells'][-1]
a, s, w = c['attributes'], c['summary'], c['attributes'].get('warned', '').split()
n = s['n_requests']['value']
assert $2, (w, n, {k: v for k, v in a.items() if k.startswith('saturation')})"
}

check "a rate above the capacity, ended" run ended --set load.saturation=end \
    --set load.n_requests=3000
check "is marked" cell ended "'saturated' in w and a['saturation.ended'] and a['saturation.n_not_sent'] > 0"
check "only what was sent is in it" cell ended "n + 5 + a['saturation.n_not_sent'] == 3005 and n >= 16"
check "what was in flight is canceled" cell ended "(
    s['n_timeout']['value'] <= a['saturation.n_in_system'] + 2 and
    s['n_timeout']['value'] + s['n_completed']['value'] == n)"
check "nothing counts as rejected" cell ended "s['n_rejected']['value'] == 0"
check "its rate is the one that was offered" cell ended "1000 < s['offered_rate_rps']['value'] < 4000"
check "growth and bound are stated" cell ended "a['saturation.growth'] > a['saturation.bound'] > 0"
check "the terminal says so" grep -q 'saturated, found after [0-9]* requests .* were not sent' err
check "the record has no fault" "$testbed" verify ended/*.h5

check "the same, marked only" run marked
check "has all requests" cell marked "'saturated' in w and n == 400 and not a['saturation.ended']"
check "without a fault" "$testbed" verify marked/*.h5
check "the same, not looked at" run off --set load.saturation=off
check "is not marked" cell off "'saturated' not in w and n == 400 and 'saturation.by' not in a"
check "a closed loop" run closed --set load.process=closed --set load.rate_rps=0 \
    --set load.n_requests=100 --set load.saturation=end
check "is not marked" cell closed "'saturated' not in w and n == 100"
check "a rate far below the capacity" run below --set load.saturation=end --set load.rate_rps=10 \
    --set load.n_requests=40 --set system.ttft_ms=1
check "is neither marked nor ended" cell below "'saturated' not in w and n == 40 and 'saturation.by' not in a"
check "conversations" run turns --set load.saturation=end --set dataset.turns=conversation
check "end, too" cell turns "'saturated' in w and a['saturation.ended']"

# Every objective is met, however long the queue: only saturation says that a rate is too high.
search_opts="--set search.goodput=true --set load.rate_rps=100 --set load.warmup_requests=0"
# shellcheck disable=SC2086
check "a search that does not look" run high $search_opts --set load.saturation=off --set search.verify=1
check "ends at its limit" cell high "s['goodput_rps']['value'] == 2000 and 'search_at_limit' in w"
# shellcheck disable=SC2086
check "a search that ends saturated trials" run low $search_opts --set load.saturation=end
check "takes them as failed" cell low "s['goodput_rps']['value'] < 1500 and 'search_at_limit' not in w"
check "and its record has no fault" "$testbed" verify low/*.h5
last=$(ls low/*.h5)
if "$python" -c 'import h5py' 2>/dev/null; then
    check "a trial that is said to have kept up" "$python" -c "
import h5py
f = h5py.File('$last', 'r+')
d = [c['series/trial_ended_early'] for c in f['cells'].values() if 'series/trial_ended_early' in c][0]
d[list(d[:]).index(1)] = 0"
    check "is a fault" sh -c "'$testbed' verify '$last' | grep -q 'series/trial_ended_early'"
else
    skip "a trial that is said to have kept up" "$python has no h5py"
fi

check "another word is refused" refuses 2 'load: saturation: expected one of off|mark|end' "$testbed" run ./queue.json --set load.saturation=stop
check "and described" sh -c "'$testbed' describe keys saturation | grep -q load.saturation"
finish
