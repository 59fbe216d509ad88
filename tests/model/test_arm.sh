#!/bin/sh
# Whole models on an emulated aarch64: greedy ids with f32 weights and with 4-bit weights times 8-bit
# activations, by the instructions that each of three processors has. It shows that results are
# right and says nothing about speed.
set -u
. tests/support/tap.sh
cc=${ARM_CC:-aarch64-linux-gnu-gcc}
emulate=${ARM_RUN:-qemu-aarch64-static}
out=$build/arm
answer=tests/golden/models/tiny.json

skip_all() { # why
    skip "aarch64 models" "$1"
    finish
}
[ -z "${SANDWICH_ISA:-}" ] ||
    skip_all "SANDWICH_ISA masks this machine's instruction sets, not those of the emulated one"
for tool in "$cc" "$emulate"; do
    command -v "$tool" >/dev/null 2>&1 || skip_all "$tool is not installed (make deps)"
done

# The numbers of a list in a file of one line, with this between them.
list() { # key, separator
    sed "s/.*\"$1\":\[\([^]]*\)\].*/\1/; s/,/$2/g" "$answer"
}
greedy() { # processor, model, precision, number of ids
    "$emulate" -cpu "$1" "$out/greedy" "$2" "$3" "$4" "$prompt" >"$dir/$1"
}
field() { # processor, first word
    sed -n "s/^$2 //p" "$dir/$1"
}
same() { # a, b
    [ -n "$1" ] && [ "$1" = "$2" ] || { printf 'expected %s\nfound    %s\n' "$2" "$1" && false; }
}

mkdir -p "$out"
# kernels/test_arm.sh builds in the same folder.
check "aarch64: the engine is built" flock "$out/lock" make -s -j"$(nproc)" -f tests/kernels/arm.mk CC="$cc" OUT="$out" "$out/greedy"
[ $failed = 0 ] || finish
prompt=$(list prompt_ids ,)
"$sandwich" model make --arch tiny --type f32 --out "$dir/f32" >"$dir/log" 2>&1
for cpu in cortex-a57 neoverse-n1 max; do
    check "f32 on $cpu runs (emulated)" greedy "$cpu" "$dir/f32" exact 24
    check "f32 on $cpu: golden ids" same "$(field "$cpu" ids)" "$(list greedy_ids " ")"
done
prompt=1,599,17,400,33,250,8,90,311,64,5,128
for type in q4_0 w4c; do
    "$sandwich" model make --arch tiny-quant --type $type --out "$dir/$type" >"$dir/log" 2>&1
    for precision in exact a8; do
        SANDWICH_ISA=ref "$sandwich" run --model "$dir/$type" --precision $precision --prompt-ids "$prompt" \
            -n 12 --ids --ignore-eos >"$dir/$precision" 2>"$dir/log"
    done
    # Without a product of bytes, a8 computes in f32.
    for on in cortex-a57:neon:exact neoverse-n1:neondot-a8:a8 max:neoni8mm-a8:a8; do
        cpu=${on%%:*}
        by=${on#*:}
        check "$type, a8 on $cpu runs (emulated)" greedy "$cpu" "$dir/$type" a8 12
        check "$type, a8 on $cpu multiplies by ${by%:*}" grep -q "gemm_q4_[01]=${by%:*} " "$dir/$cpu"
        check "$type, a8 on $cpu: the ids of plain C here" same "$(field "$cpu" ids)" "$(cat "$dir/${by#*:}")"
    done
    check "$type, a8: logits have the same bits by sdot and smmla" \
        same "$(field max logits)" "$(field neoverse-n1 logits)"
done
finish
