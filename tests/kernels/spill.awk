# Reads objdump -d and judges every micro-kernel tile_<rows>x<panels>: in its innermost loop,
# the backward jump's span with the most multiply-adds and no other loop inside, each sum must
# be fed once a step (so the multiply-adds are a multiple of rows x vectors of the columns, or
# with one more for each of these vectors, which makes weights of codes; SMMLA has a sum for two
# rows of two columns)
# and no vector may go to or come from the stack (that would be a spill).
#   cols   columns in a vector; a panel has 16. 0: no micro-kernels; every innermost loop with
#          multiply-adds and without calls, of every function, is judged by its spills alone
#   limit  vector registers of the instruction set: sums alone may not exceed it
# Prints "<kernel> <multiply-adds in the loop> <stack accesses in the loop>", then the total.
function judge(    i, j, lo, fma, smmla, spill, calls, inner, best, best_spill, pairs, sums, vectors) {
    best = pairs = 0
    for (i = 0; i < n; i++) {
        if (target[i] == "" || !(target[i] in at) || at[target[i]] > i)
            continue
        lo = at[target[i]]
        inner = 1
        fma = smmla = spill = calls = 0
        for (j = lo; j <= i; j++) {
            if (j < i && target[j] != "" && target[j] in at && at[target[j]] <= j && at[target[j]] >= lo)
                inner = 0
            if (text[j] ~ /^(\{vex\} *)?(vfmadd|vdpbf16|vpdpbusd|vpmaddubsw|fmla|sdot)/)
                fma++
            if (text[j] ~ /^smmla/)
                smmla++
            if (text[j] ~ stack && text[j] ~ vector)
                spill++
            if (text[j] ~ /^(call|bl )/)
                calls++
        }
        if (!cols && inner && fma && !calls) {
            kernels++
            if (spill) {
                bad++
                printf "%s: %d multiply-adds and %d vectors to or from the stack in a loop\n", name, fma, spill
            }
        } else if (inner && fma > best) {
            best = fma
            best_spill = spill
        } else if (inner && smmla > pairs && !best) {
            pairs = smmla
            best_spill = spill
        }
    }
    if (!cols)
        return
    split(name, mn, "x")
    vectors = int((mn[2] * 16 + cols - 1) / cols)
    sums = mn[1] * vectors
    kernels++
    if (!best && pairs && pairs % (8 * int((mn[1] + 1) / 2)) == 0 && !best_spill)
        return
    if (best == 0 || (best % sums && best % (sums + vectors)) || best_spill || sums > limit) {
        bad++
        printf "tile_%s: %d multiply-adds for %d sums, %d vectors to or from the stack\n", name, best, sums, best_spill
    }
}
BEGIN {
    stack = "\\(%[er]sp[,)]|\\[sp"
    vector = "%[xyz]mm|[^a-z][qvds][0-9]"
}
/^[0-9a-f]+ <.*>:$/ {
    if (name != "")
        judge()
    name = ""
    n = 0
    delete at
    delete text
    delete target
    if (!cols)
        name = substr($2, 2, length($2) - 3)
    else if (match($2, /<tile_[0-9]+x[0-9]+/))
        name = substr($2, 7, RLENGTH - 6)
    next
}
name != "" && /^ *[0-9a-f]+:\t/ {
    address = $1
    sub(":", "", address)
    at[address] = n
    text[n] = $0
    sub(/^ *[0-9a-f]+:\t/, "", text[n])
    target[n] = ""
    if (text[n] ~ /^(j|b\.|b |cb|tb)/ && match(text[n], /[0-9a-f]+ </))
        target[n] = substr(text[n], RSTART, RLENGTH - 2)
    # A realigned stack is reached by the frame pointer as well.
    if (text[n] ~ /^mov +%rsp,%rbp/)
        stack = "\\(%[er][sb]p[,)]|\\[sp"
    n++
}
END {
    if (name != "")
        judge()
    printf "%d %s, %d bad\n", kernels, cols ? "kernels" : "loops", bad
    exit kernels == 0 || bad > 0
}
