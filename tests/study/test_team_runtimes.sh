#!/bin/sh
# The study team_runtimes on a `sandwich` that is a script: each setting has its kind and its
# environment, numbers are those that the script prints, and a failing or odd answer is named.
set -u
. tests/support/tap.sh
dir=$(realpath "$dir")
cp "$build/testbed" "$dir"
cat >"$dir/sandwich" <<'SH'
#!/bin/sh
echo "${OMP_WAIT_POLICY:-none} $*" >>calls
case $* in *"--team openmp"*) x=2 ;; *) x=4 ;; esac
[ "${OMP_WAIT_POLICY:-}" != active ] || x=3
[ ! -e failing ] || exit 3
[ ! -e odd ] || { echo "[]"; exit 0; }
case $* in
*--ops*) echo "[{\"rate\": $x}, {\"rate\": $((2 * x))}]" ;;
*) echo "[{\"estimate_ts\": $((100 * x))}, {\"estimate_ts\": $((10 * x))}]" ;;
esac
SH
chmod +x "$dir/sandwich"
cat >"$dir/job.json" <<'JSON'
{"about": "threads", "study": {"name": "team_runtimes", "model": "m.gguf", "threads": 2, "rounds": 3, "busy": 1,
 "n_prompt_tok": 8, "n_output_tok": 4}}
JSON
cd "$dir" || exit 1
unset OMP_WAIT_POLICY
check "it runs" ./testbed run ./job.json --quiet --out out
check "each setting is asked for by its kind, alone and with a model" sh -c \
    "grep -q '^none bench -o json --team pthread -t 2 -m m.gguf -p 8 -n 4 ' calls &&
    grep -q '^active bench -o json --team openmp -t 2 --ops ' calls && grep -q '^passive .* openmp ' calls &&
    [ \$(grep -c '^none .* openmp .*--ops' calls) = 4 ]" # 3 rounds and one that warms up
./testbed export out/*.h5 --format json-full >record.json 2>err
check "numbers" python3 -c '
import json
text = open("record.json").read()
def find(o, key):
    if isinstance(o, dict):
        if key in o and not isinstance(o[key], (dict, list)):
            return o[key]
        if key in o and isinstance(o[key], dict) and "value" in o[key]:
            return o[key]["value"]
        o = list(o.values())
    if isinstance(o, list):
        for x in o:
            found = find(x, key)
            if found is not None:
                return found
for key, want in {"dispatch_us_pthread": 1 / 4, "barrier_us_openmp": 1 / 4, "prefill_tok_s_openmp_active": 300,
                  "decode_tok_s_openmp_passive": 20, "dispatch_openmp_over_pthread": 2,
                  "decode_openmp_over_pthread": 0.5, "prefill_openmp_over_pthread": 0.5,
                  "best_decode_openmp_over_pthread": 0.75}.items():
    got = find(json.loads(text), key)
    assert got is not None and abs(got / want - 1) < 1e-9, (key, got, want)
'
touch odd
check "an answer without numbers leaves the cell without them" sh -c \
    "./testbed run ./job.json --fresh --out odd_out 2>&1 | grep -q 'a trial gave no number\|n/a'"
rm odd
touch failing
./testbed run ./job.json --fresh --quiet --out failed >text 2>&1
check "a bench that fails is named with its status" grep -q 'sandwich bench --team .*: exited with status 3' text
finish
