#!/bin/sh
# The study topk_tuned on a `sandwich` that is a script: the numbers are those of the plan, a k
# beyond the configurations that exist is skipped, and what it asks for is what a user would.
set -u
. tests/support/tap.sh
dir=$(realpath "$dir")
cp "$build/testbed" "$dir"
cat >"$dir/sandwich" <<'SH'
#!/bin/sh
echo "$@" >>calls
while [ $# -gt 0 ]; do
    case $1 in
    --top-k) k=$2 ;;
    --out) out=$2 ;;
    --cache) [ ! -e "$2" ] || exit 9; touch "$2" ;;
    esac
    shift
done
phase='{"ranks": ["0"]}'
try() { echo "{\"name\": \"$1\", \"tuned\": $2, \"seconds\": $3, \"lo_s\": $4, \"hi_s\": $5, \"n_measurements\": 6}"; }
tries=$(try "1 x 2" false 0.44 0.43 0.45),$(try "1 x 2" true 0.42 0.41 0.43)
chosen=1
if [ "$k" -gt 1 ]; then
    tries=$tries,$(try "2 x 1" false 0.41 0.40 0.42),$(try "2 x 1" true 0.40 0.39 0.405)
    chosen=3
fi
echo "{\"version\": 2, \"prefill\": $phase, \"decode\": $phase, \"tried\": {\"chosen\": $chosen,
    \"why\": \"the fastest\", \"configurations\": [$tries]}}" >"$out"
[ -e failing ] && exit 3
exit 0
SH
chmod +x "$dir/sandwich"
cat >"$dir/job.json" <<'JSON'
{"about": "top k", "study": {"name": "topk_tuned", "model": "m.gguf", "dir": "plans", "k": [1, 2, 4, 8], "budget_s": 30,
 "lengths": "l.csv", "precision": "exact"}}
JSON
cd "$dir" || exit 1
./testbed run ./job.json --quiet --out out >text 2>err
check "it runs; what does not exist is skipped, not failed" [ $? = 0 ]
./testbed export out/*.h5 --format json-full >record.json 2>err
check "the numbers are those of the plans" /usr/bin/python3 -c "
import json
cells = json.load(open('record.json'))['cells']
assert [c['attributes']['state'] for c in cells] == ['done', 'done', 'done', 'skipped'], cells
assert 'only 2 configurations exist' in cells[3]['attributes']['error']
v = [{k: m['value'] for k, m in c['summary'].items()} for c in cells[:3]]
assert [x['n_configs'] for x in v] == [1, 2, 2]
assert v[0]['request_s'] == v[0]['first_s'] == 0.42 and v[0]['gain_frac'] == 0
assert abs(v[0]['tuning_gain_frac'] - (0.44 / 0.42 - 1)) < 1e-12
assert v[1]['request_s'] == 0.40 and v[1]['first_s'] == 0.42
assert abs(v[1]['gain_frac'] - 0.05) < 1e-12
assert abs(v[1]['gain_lo_frac'] - (0.41 / 0.405 - 1)) < 1e-12
assert all(x['spent_s'] > 0 for x in v)"
check "as a user would ask, k times the time" grep -q -x \
    'plan --tune --model m.gguf --top-k 2 --budget 60s --batch 1 --precision exact --cache [^ ]*.schedules --out [^ ]* --lengths l.csv' calls
check "one run for each k that may exist" [ "$(wc -l <calls)" = 3 ]
check "from nothing each time" ./testbed run ./job.json --quiet --fresh --out again
touch failing
./testbed run ./job.json --quiet --fresh --out failed >text 2>err
check "a plan that cannot be made fails the cell" [ $? = 3 ]
check "with the command" grep -q 'sandwich plan --tune --model m.gguf --top-k 1: exited with status 3' text err
finish
