#!/bin/sh
# `sandwich model quantize` as a user meets it: every type is written, inspected and run, and
# gives the ids of its own weights kept as f32.
set -u
. tests/support/tap.sh
plain=$dir/plain.gguf
check "make" "$sandwich" model make --arch tiny-quant --type f32 --out "$plain"
run() { # model, options... : 12 ids
    model=$1
    shift
    "$sandwich" run --no-pin --model "$model" -n 12 --ignore-eos --prompt-ids 1,2,3 --ids "$@"
}
same_ids() { # model, options...: the ids of the weights as f32
    run "$1" --weight-type f32 >"$dir/want" && run "$@" >"$dir/got" && diff "$dir/want" "$dir/got"
}
types=$("$sandwich" model quantize --help | sed -n '/^  --type/,/Default:/ { /One of:/,/[.]$/ s/One of:\|[,.]//gp }' |
    tr '\n' ' ')
check "the help lists the types" sh -c "echo '$types' | grep -q 'q8_0.*q4_0.*q4_1.*q5_0.*q5_1.*w4c.*w8c.*q3_k.*iq4_nl.*mxfp4'"
for type in $types; do
    model=$dir/$type.gguf
    stored=$(echo "$type" | sed 's/^w4b.*/q4_1/; s/^w8.*/q8_0/')
    check "quantize to $type" "$sandwich" model quantize "$plain" --type $type --out "$model"
    check "inspect names $stored" sh -c "$sandwich model inspect $model |
        grep -q 'blk.0.attn_q.weight .* $stored '"
    check "run $type" same_ids "$model"
    check "run $type in plain C" same_ids "$model" --isa ref
    check "make --type $type" "$sandwich" model make --arch tiny-quant --type $type \
        --out "$dir/made.gguf"
    run "$dir/made.gguf" >"$dir/ids" 2>/dev/null
    run "$model" >"$dir/got" 2>/dev/null
    check "the made $type is the quantised one" diff "$dir/ids" "$dir/got"
done
bytes() { wc -c <"$1"; }
check "4 bits and a scale take less than a sixth of f32" \
    [ $((6 * $(bytes "$dir/q4_0.gguf"))) -lt "$(bytes "$plain")" ]
check "twice is refused" refuses 1 'quantising twice' "$sandwich" model quantize \
    "$dir/q4_0.gguf" --out "$dir/x.gguf"
check "another type is refused" refuses 2 'type' "$sandwich" model quantize "$plain" \
    --type q4_9 --out "$dir/x.gguf"
check "--out is needed" refuses 2 '--out is needed' "$sandwich" model quantize "$plain"
head -c 100000 "$dir/q4_0.gguf" >"$dir/cut.gguf"
check "a truncated model is refused in one line" refuses 1 'cut.gguf: tensor' \
    "$sandwich" run --model "$dir/cut.gguf" --prompt x
finish
