#!/bin/sh
# sandwich kernel: each of its actions.
set -u
. tests/support/tap.sh
ref=engine/kernels/ref

raises() {
    run_quietly "$sandwich" kernel raise $ref/rope_ref.c --set vI=8
    [ "$got" = 0 ] && grep -q '^param vI = 8$' "$dir/out" && grep -q 'for i: int in par(0, half, vector=vI, unroll=uI):' "$dir/out" &&
        cp "$dir/out" "$dir/rope.ir"
}
check "the high level of a kernel, with a parameter" raises

prints() {
    run_quietly "$sandwich" kernel print "$dir/rope.ir"
    [ "$got" = 0 ] && cmp "$dir/out" "$dir/rope.ir"
}
check "what was printed is read and printed again" prints

lowers() {
    run_quietly "$sandwich" kernel lower "$dir/rope.ir" --set uI=2
    [ "$got" = 0 ] && grep -q '^void ir_kernel(float \*x' "$dir/out" && grep -q 'f32x8 a = ir_load_f32x8' "$dir/out"
}
check "C with vectors" lowers

runs() {
    run_quietly "$sandwich" kernel run "$dir/rope.ir" --cache "$dir/kept" --problems 20
    [ "$got" = 0 ] && grep -q 'the bits of kernels/ref/' "$dir/out" && grep -q '^ref .* us ' "$dir/out"
}
tunes() {
    "$sandwich" kernel raise $ref/gemm_f32_ref.c --set uM=2,uN=1,vN=8,uK=2 >"$dir/gemm.ir" || return 1
    run_quietly "$sandwich" tune --shapes 64x64 --rows 1,3 --rounds 1 --threads 1 --trials 2 --budget 1 \
        --cache "$dir/schedules.json" --kernel "$dir/gemm.ir"
    [ "$got" = 0 ] && grep -q 'matrix 64x64 ir-' "$dir/out" && grep -q '"ir-' "$dir/schedules.json"
}
if command -v "${CC:-cc}" >/dev/null; then
    check "compiled, compared and timed" runs
    check "tuned as one more variant" tunes
    # Regression: the code of a file ran in the program itself, which it crashed or kept for ever.
    sed 's/y\[i\]/y[i + 1000000000]/' $ref/add_ref.c >"$dir/wild.c"
    sed 's/n; i++/n; i += 0/' $ref/add_ref.c >"$dir/endless.c"
    for kind in wild endless; do
        check "$kind: no end of the program" refuses 1 "ir-.*: the process .* ended with .*: the kernel reads or writes out of bounds, or does not end" \
            "$sandwich" kernel run "$dir/$kind.c" --cache "$dir/kept" --problems 1
    done
    "$sandwich" kernel print $ref/gemm_f32_ref.c >"$dir/gemm.c"
    sed 's/t->c + i/t->c + 1000000000 + i/' "$dir/gemm.c" >"$dir/wild_product.c"
    sed 's/p += 1/p += 0/' "$dir/gemm.c" >"$dir/endless_product.c"
    for kind in wild endless; do
        check "$kind: not tuned" refuses 1 "ir-.*: the process .* ended with .*: the kernel reads or writes out of bounds, or does not end" \
            "$sandwich" tune --shapes 64x64 --cache "$dir/none.json" --kernel "$dir/${kind}_product.c"
    done
    says_what_running_means() {
        "$sandwich" kernel --help | tr -s ' \n' ' ' | grep -q 'with your rights: its indices are not checked. Run only files that you trust'
    }
    check "the help says what running means" says_what_running_means
    check "RoPE is not tuned" refuses 2 'rope, which is not a matrix product' "$sandwich" tune --shapes 64x64 \
        --cache "$dir/none.json" --kernel "$dir/rope.ir"
fi
check "no compiler" refuses 1 'no C compiler "none-such"' env CC=none-such "$sandwich" kernel run "$dir/rope.ir" --cache "$dir/kept2"
check "no such parameter" refuses 1 'no parameter "uX": expected one of vI uI fma' "$sandwich" kernel set "$dir/rope.ir" --set uX=1
check "no number" refuses 2 'expected an integer, found "x"' "$sandwich" kernel set "$dir/rope.ir" --set vI=x
check "no such action" refuses 2 'expected print, raise, set, lower or run' "$sandwich" kernel lift "$dir/rope.ir"
printf 'static void f(int n)\n{\n    g(n);\n}\n' >"$dir/bad.c"
check "a line that is not in the subset" refuses 1 "bad.c:3: g() is no function" "$sandwich" kernel print "$dir/bad.c"
finish
