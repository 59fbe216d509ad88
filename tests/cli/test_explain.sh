#!/bin/sh
# `sandwich explain`: each product of a model with its kernel and the others, and the instructions of
# a program, counted exactly where they are known.
set -u
. tests/support/tap.sh
model=$dir/tiny.gguf
"$sandwich" model make --arch tiny --type bf16 --out "$model" >/dev/null 2>"$dir/log" || cat "$dir/log"

check "each matrix and number of rows has its kernel" sh -c \
    "$sandwich explain --model $model --rows 1,7 --rounds 3 --threads 1 --json >$dir/j.json 2>/dev/null && python3 -c '
import json, sys
j = json.load(open(sys.argv[1]))
at = {(p[\"matrix\"], p[\"rows\"]) for p in j[\"products\"]}
assert len(at) == len(j[\"products\"]) and {r for _, r in at} == {1, 7}, at
assert {\"qkv\", \"o\", \"gate_up\", \"down\", \"head\"} <= {m for m, _ in at}, at
for p in j[\"products\"]:
    assert p[\"gflops\"] > 0 and p[\"variant\"] and p[\"schedule\"], p
    assert p[\"share_of_bound\"] is None or 0 < p[\"share_of_bound\"] <= 1, p
    assert p[\"variant\"] not in [o[\"variant\"] for o in p[\"others\"]], p
    assert all(o[\"of_chosen\"] > 0 for o in p[\"others\"]), p
' $dir/j.json"
check "as a table" sh -c "$sandwich explain --model $model --rows 1 --rounds 3 2>/dev/null | grep -q '^| qkv  *|     1 | '"
check "plain C is what a processor without vectors takes" sh -c \
    "$sandwich explain --model $model --rows 1 --rounds 3 --isa ref 2>/dev/null | grep -q '^| qkv  *|     1 | ref '"

if [ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null; then
    cat >"$dir/known.c" <<'C'
void multiply(void)
{
    __asm__("vfmadd231ps %ymm0, %ymm1, %ymm2\n vfmadd213ss %xmm0, %xmm1, %xmm2\n"
            "vpdpbusd %zmm0, %zmm1, %zmm2\n vpmaddubsw %xmm0, %xmm1, %xmm2\n vaddps %ymm0, %ymm1, %ymm2");
}
void multiply_more(void)
{
    __asm__("vfmadd231ps %ymm0, %ymm1, %ymm2\n vfnmadd132ps %zmm0, %zmm1, %zmm2\n vfmadd231ps %ymm0, %ymm1, %ymm2\n"
            "tdpbssd %tmm0, %tmm1, %tmm2");
}
C
    ${CC:-gcc} -c -O1 -o "$dir/known.o" "$dir/known.c" 2>"$dir/log" || cat "$dir/log"
    check "known instructions are counted" sh -c "$sandwich explain --library $dir/known.o --json >$dir/c.json && python3 -c '
import json, sys
c = json.load(open(sys.argv[1]))[\"classes\"]
got = {k: (v[\"n\"], v[\"register_bits\"], v[\"most_in\"]) for k, v in c.items() if v[\"n\"]}
assert got == {\"f32 fma\": (5, 512, \"multiply_more\"), \"int8 dot\": (1, 512, \"multiply\"),
               \"int8 pairs\": (1, 128, \"multiply\"), \"int8 tile\": (1, 8192, \"multiply_more\")}, got
' $dir/c.json"
    check "what is missing is said" sh -c "$sandwich explain --library $dir/known.o | grep -q '^no bf16 dot inside'"
else
    skip "known instructions are counted" "no objdump, or not this processor's instructions"
    skip "what is missing is said" "no objdump, or not this processor's instructions"
fi
check "no program" refuses 1 'README.md: ' "$sandwich" explain --library README.md
check "no file" refuses 1 'none: cannot open' "$sandwich" explain --library "$dir/none"
check "neither" refuses 2 'expected either --model or --library' "$sandwich" explain
check "both" refuses 2 'expected either --model or --library' "$sandwich" explain --model "$model" --library README.md
check "rows that are none" refuses 2 'rows: expected numbers in' "$sandwich" explain --model "$model" --rows 1,x
finish
