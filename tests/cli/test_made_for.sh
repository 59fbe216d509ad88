#!/bin/sh
# Files that are made for a model name it: a plan that was searched for another one, and a predictor
# that was trained with the answers of another one, are used with a warning, and give the same ids.
# Regression: only shapes were compared, so that nothing told them apart.
set -u
. tests/support/tap.sh

for seed in 1 2; do
    "$sandwich" model make --arch tiny --type f32 --seed $seed --out "$dir/$seed.gguf" 2>"$dir/err"
done
# A search for a simulated machine names the model; its CPUs are those of one thread here.
plan_of() {
    "$sandwich" plan --machine kunpeng920x4 --model "$1" --method one_plan --out "$dir/far.json" >"$dir/out" 2>&1 &&
        "$sandwich" plan --threads 1 --out "$2" >"$dir/out" 2>&1 &&
        python3 - "$dir/far.json" "$2" <<'P'
import json, sys
far, near = (json.load(open(p)) for p in sys.argv[1:])
assert len(far["model"]) == 16 and "model" not in near, near
near["model"] = far["model"]
json.dump(near, open(sys.argv[2], "w"))
P
}
run() {
    "$sandwich" run --model "$1" --no-pin -n 8 --ignore-eos --prompt-ids 1,2,3 --ids $2 >"$dir/ids" 2>"$dir/err"
}
warns() {
    grep -q "$1: expected a file made for .*\.gguf (model [0-9a-f]\{16\}), found one for model [0-9a-f]\{16\}" "$dir/err"
}

check "a plan names its model" plan_of "$dir/1.gguf" "$dir/plan.json"
check "and keeps the name when it is written again" sh -c "'$sandwich' plan --show '$dir/plan.json' \
    --out '$dir/again.json' >/dev/null && grep -q '\"model\"' '$dir/again.json'"
check "no name without a model's file" sh -c "'$sandwich' plan --machine kunpeng920x4 --model llama-160m \
    --method one_plan --out '$dir/none.json' >/dev/null 2>&1 && ! grep -q '\"model\":' '$dir/none.json'"
check "its model" run "$dir/1.gguf" "--plan $dir/plan.json"
check "is not warned of" sh -c "! grep -q 'made for' '$dir/err'"
run "$dir/2.gguf" ""
cp "$dir/ids" "$dir/want"
check "another model of the same shape" run "$dir/2.gguf" "--plan $dir/plan.json"
check "is warned of" warns plan.json
check "and gives its own ids" cmp "$dir/ids" "$dir/want"
python3 -c 'import json, sys
plan = json.load(open(sys.argv[1]))
del plan["model"]
json.dump(plan, open(sys.argv[2], "w"))' "$dir/plan.json" "$dir/old.json"
check "an older plan is taken" run "$dir/2.gguf" "--plan $dir/old.json"
check "without a warning" sh -c "! grep -q 'made for' '$dir/err'"
sed 's/"model": *"[0-9a-f]*/&0/' "$dir/plan.json" >"$dir/long.json"
check "a name that is too long" refuses 1 'model: expected at most 16 bytes, found 17' \
    "$sandwich" run --model "$dir/2.gguf" --prompt-ids 1 --plan "$dir/long.json"

awk 'BEGIN { printf "["; for (i = 0; i < 40; i++)
    printf "%s{\"instruction\": \"name thing %d\", \"output\": \"word\"}", i ? "," : "", i; print "]" }' >"$dir/alpaca.json"
check "a predictor of generated answers names its model" sh -c "'$sandwich' predictor train --data '$dir/alpaca.json' \
    --format alpaca --generate '$dir/1.gguf' --max-new 4 --out '$dir/p.json' >/dev/null 2>&1 &&
    grep -q '\"model\"' '$dir/p.json'"
check "its model" run "$dir/1.gguf" "--kv-predict learned --kv-predict-file $dir/p.json"
check "is not warned of" sh -c "! grep -q 'made for' '$dir/err'"
check "another model" run "$dir/2.gguf" "--kv-predict learned --kv-predict-file $dir/p.json"
check "is warned of" warns p.json

finish
