#!/bin/sh
# The list of operators of a step as a user meets it: printed, run as it is, changed, and what is
# said of lists that cannot be run.
set -u
. tests/support/tap.sh
model=$dir/tiny.gguf
ids="$sandwich run --model $model --prompt-ids 1,5,9 -n 8 --ids --threads 1"

"$sandwich" model make --arch tiny --type f32 --out "$model" >/dev/null 2>"$dir/log" || cat "$dir/log"
check "a model's list is printed" sh -c "$sandwich model inspect --operators $model >$dir/ops &&
    grep -qx embed $dir/ops && grep -qx '0 attention' $dir/ops && grep -qx lm_head $dir/ops"
check "the same list gives the same ids" sh -c "$ids >$dir/own 2>/dev/null &&
    $ids --operators $dir/ops >$dir/listed 2>/dev/null && [ -s $dir/own ] && cmp $dir/own $dir/listed"
grep -v ' mlp$' "$dir/ops" >"$dir/no-mlp"
check "a list without MLPs gives others" sh -c "$ids --operators $dir/no-mlp >$dir/less 2>/dev/null &&
    [ -s $dir/less ] && ! cmp -s $dir/own $dir/less"
check "also by ranks that are processes" sh -c "$ids --operators $dir/no-mlp --threads 2 --ranks 2 \
    --rank-mode processes >$dir/ranks 2>/dev/null && cmp $dir/less $dir/ranks"
check "what ran is described" sh -c "$sandwich run --model $model --prompt-ids 1,5 -n 2 --json \
    --operators $dir/no-mlp 2>/dev/null | python3 -c '
import json, sys
o = json.load(sys.stdin)[\"engine\"][\"operators\"]
assert o[\"file\"].endswith(\"no-mlp\") and o[\"n\"] == len(open(o[\"file\"]).readlines()), o
'"
sed 's/^0 attention$/0 atention/' "$dir/ops" >"$dir/typo"
check "a name that is none" refuses 1 'typo: line [0-9]*' $ids --operators "$dir/typo"
grep -v '^0 attention$' "$dir/ops" >"$dir/gap"
check "an operator whose input is missing" refuses 2 'gap: ' $ids --operators "$dir/gap"
check "no such list" refuses 1 'none: ' $ids --operators "$dir/none"
finish
