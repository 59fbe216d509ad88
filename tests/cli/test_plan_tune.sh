#!/bin/sh
# `sandwich plan --tune` as a user meets it: search, tune, replay, one file that needs nothing
# else; an interrupt and the command again; what it refuses.
set -u
. tests/support/tap.sh
same_output() { # expected file, command...
    want=$1
    shift
    "$@" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; return 1; }
    diff "$want" "$dir/out"
}

check "make" "$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf"
plan="$sandwich plan --model $dir/tiny.gguf --cache $dir/schedules.json"
check "no plan to write" refuses 2 '--tune needs --out' $plan --tune
check "a time that is none" refuses 2 'such as 90s, 10m or 1h' $plan --tune --budget 10x \
    --out "$dir/x.json"
check "a machine that is not here" refuses 2 'leave out --machine' $plan --tune \
    --machine kunpeng920x4 --out "$dir/x.json"
check "no model" refuses 2 '--tune needs --model' "$sandwich" plan --tune --out "$dir/x.json"
check "a plan that would replace the model" refuses 2 'tiny.gguf' $plan --tune \
    --out "$dir/tiny.gguf"

method="--method one_plan"
[ "$(nproc)" -gt 1 ] && method="--method even_split --ranks 2"
$plan --tune $method --budget 2s --out "$dir/plan.json" >"$dir/text" 2>"$dir/err"
check "a tuned plan" [ $? = 0 ]
check "it says what was tried, and why this" sh -c "grep -q 'tried on the trace' $dir/text &&
    grep -q 'both phases; tuned schedules' $dir/text && grep -q '  why: ' $dir/text"
check "and where the time went" grep -q -E 'search [0-9]+ s, tuning [0-9]+ s, replay' "$dir/err"
check "nothing is left unfinished" [ ! -e "$dir/plan.json.unfinished" ]
run="$sandwich run --model $dir/tiny.gguf -n 12 --ignore-eos --prompt-ids 1,2,3,4,5 --ids"
for mode in "" --deterministic; do
    $run $mode >"$dir/ids" 2>"$dir/err"
    check "the same ids${mode:+, }$mode" same_output "$dir/ids" $run $mode \
        --plan "$dir/plan.json"
    check "with its schedules, tuned or not${mode:+, }$mode" same_output "$dir/ids" $run $mode \
        --plan "$dir/plan.json" --schedules "$dir/schedules.json"
done
check "the schedules are those of what its ranks compute" sh -c "$run --json \
    --plan $dir/plan.json --schedules $dir/schedules.json 2>/dev/null | python3 -c '
import json, sys
s = json.load(sys.stdin)[\"engine\"][\"schedules\"]
assert s[\"n_tuned\"] > 0, s'"
check "written again, the same" sh -c "$sandwich plan --show $dir/plan.json \
    --out $dir/again.json >/dev/null && cmp $dir/plan.json $dir/again.json"

# Interrupted when the first part is finished; the budget is far longer than that.
"$sandwich" plan --model "$dir/tiny.gguf" --cache "$dir/more.json" --tune --method one_plan \
    --budget 10m --out "$dir/long.json" >"$dir/out" 2>"$dir/err" &
pid=$!
i=0
while [ ! -s "$dir/long.json.unfinished" ] && [ $i -lt 600 ]; do
    sleep 0.05
    i=$((i + 1))
done
kill -INT $pid
wait $pid
status=$?
check "an interrupt: status 130, or it was done before" [ $status = 130 -o -e "$dir/long.json" ]
if [ $status = 130 ]; then
    check "an interrupt says how to go on" grep -q 'the same command continues' "$dir/err"
    check "and it goes on there" sh -c "$sandwich plan --model $dir/tiny.gguf \
        --cache $dir/more.json --tune --method one_plan --budget 1s --out $dir/long.json \
        2>$dir/err >$dir/out && grep -q 'an earlier run had finished' $dir/err"
fi
finish
