#!/bin/sh
# The machine card as a user meets it: written by `testbed machine`, read by `sandwich run`. One
# that is broken, edited or of another machine is refused where it was asked for, and otherwise
# measured again or left out with a warning.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
sandwich=$(realpath "$sandwich")
dir=$(realpath "$dir")
trap 'rm -rf "$dir"' EXIT

edit() { # card, Python statements on the card `d`, as a new file
    python3 - "$1" "$dir/edited.json" "$2" <<'EOF'
import json, sys
d = json.load(open(sys.argv[1]))
exec(sys.argv[3])
json.dump(d, open(sys.argv[2], "w"))
EOF
}
run_plain_c() { (export SANDWICH_ISA=ref && run "$@"); }
refuses_edited() { # text in the error, Python statements
    edit "$card" "$2" && refuses 1 "$1" run --machine-card "$dir/edited.json"
}

cd "$dir" || exit 1
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" >"$dir/log" 2>&1
run() { # more options
    "$sandwich" run --no-pin --model "$dir/tiny.gguf" -n 12 --ignore-eos --prompt hello "$@"
}
run >"$dir/out" 2>"$dir/err"
check "without a card the bounds are unknown" \
    grep -q 'bandwidth unknown: run testbed machine' "$dir/err"
check "an absent card is refused" refuses 1 'none.json' run --machine-card "$dir/none.json"
mkdir -p results/machine # with a broken card, also of the instruction sets that a mask leaves
for level in "" ${SANDWICH_ISA:+"-$SANDWICH_ISA"}; do
    echo '{"format": "x"}' >"results/machine/$(hostname | sed 's/[^A-Za-z0-9.-]/_/g')$level.json"
done
"$testbed" machine --accept-noise >"$dir/machine" 2>&1
card=$dir/$(ls -t results/machine/*.json | head -n 1)
check "a broken card is measured again with a warning" grep -q 'format: expected .*; measuring again' "$dir/machine"
check "the card is printed" grep -q '^read_gbps' "$dir/machine"
for given in "" "$card"; do
    run ${given:+--machine-card "$given"} >"$dir/out" 2>"$dir/err"
    check "share of the machine's bounds: $given" grep -qE "(% of measured|the machine card's) [0-9.]* GB/s" "$dir/err"
    check "share of the machine's peak: $given" grep -q '% of measured [0-9]*$' "$dir/err"
done
"$sandwich" bench -m "$dir/tiny.gguf" -p 16 -n 4 -r 2 -o json >"$dir/json" 2>"$dir/err"
check "bench: shares of the bounds" python3 -c "
import json
rows = json.load(open('$dir/json'))
assert [r['bound'] for r in rows] == ['peak_gflops', 'read_gbps']
assert all(r['bound_value'] > 0 and (r['bound_frac'] is None or 0 < r['bound_frac'] <= 1.02) for r in rows)"
check "an edited value" refuses_edited 'changed after' 'd["values"][-1]["why"] = "x"'
check "a value outside its interval" refuses_edited 'lo <= estimate' \
    '[r.update(estimate=900.0) for r in d["values"] if r["name"] == "read_gbps"]'
check "a negative value" refuses_edited 'lo <= estimate' \
    '[r.update(estimate=-1.0) for r in d["values"] if r["name"] == "read_gbps"]'
check "another version" refuses_edited 'version' 'd["version"] = 99'
check "no values" refuses_edited 'values' 'd["values"] = 3'
: >"$dir/edited.json"
check "no card" refuses 1 'edited.json' run --machine-card "$dir/edited.json"
head -c 200 "$card" >"$dir/cut.json"
check "a broken card" refuses 1 'cut.json' run --machine-card "$dir/cut.json"
name="of other instruction sets"
if [ "${SANDWICH_ISA-}" = ref ]; then
    skip "$name" "nothing can be hidden from plain C"
else
    check "$name" refuses 1 'isa ".*, here it is "ref"' \
        run_plain_c --machine-card "$card"
fi

edit "$card" 'd["values"][0]["why"] = "x"'
cp "$dir/edited.json" "$card"
run >"$dir/out" 2>"$dir/err"
left_out() {
    grep -q 'changed after it was measured' "$dir/err" && grep -q 'bandwidth unknown' "$dir/err"
}
check "the standard card is left out with a warning" left_out
check "noise is accepted for the quick card only" refuses 2 'not for --full' \
    "$testbed" machine --full --accept-noise
finish
