#!/bin/sh
# A study, a search and the programs' own verbs on a stack of 256 KiB, as some containers give.
# Regression: studies overflowed a stack of 256 KiB.
set -u
. tests/support/tap.sh
if [ -n "${SAN:-}" ]; then
    skip "a stack of 256 KiB" "a sanitizer's frames are not those that run"
    finish
fi
ulimit -s 256 || { skip "a stack of 256 KiB" "this shell cannot limit its stack"; finish; }
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" >/dev/null || exit 1
check "sandwich run" "$sandwich" run --no-pin --model "$dir/tiny.gguf" --prompt-ids 1,2 --ids -n 4
check "ranks as processes" "$sandwich" run --no-pin --model "$dir/tiny.gguf" --ranks 2 \
    --rank-mode processes --prompt-ids 1,2 --ids -n 4
check "a plan for a simulated machine" sh -c "$sandwich plan --machine kunpeng920x4 \
    --model llama-160m --out $dir/plan.json >/dev/null"
check "testbed describes it" sh -c "$build/testbed describe $dir/plan.json >/dev/null"
for name in topo_hidden_truth topo_atlas fig08_policies; do
    check "the study $name" "$build/testbed" run "$name" --smoke --quiet --out "$dir/$name"
done
finish
