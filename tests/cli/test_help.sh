#!/bin/sh
# Help and version of `sandwich` and of the benchmark: status 0 and the same parts for every
# verb, and every option that the sources define is named.
set -u
. tests/support/tap.sh

# Names of the option rows in some sources, as flags.
flags() {
    sed -n -e 's/.*OPT_ROW([A-Z0-9]*, \([a-z_0-9]*\),.*/\1/p' \
        -e 's/.*OPT_ROW_AS("\([a-z_0-9]*\)".*/\1/p' "$@" |
        sort -u | tr _ - | grep -v '^help$'
}

complete() { # words of the verb, then the flags that its help must name
    words=$1
    shift
    # shellcheck disable=SC2086
    "$sandwich" $words --help >"$dir/help" 2>"$dir/err" || return 1
    [ ! -s "$dir/err" ] || return 1
    [ $# -ge 1 ] || return 1
    for part in "^Usage: sandwich $words" '^Options:' '^Examples:' '^Exit status:'; do
        grep -q "$part" "$dir/help" || { echo "no $part"; return 1; }
    done
    [ "$(sed -n '/^Examples:/,/^Exit/p' "$dir/help" | grep -c '^  sandwich')" -ge 2 ] || return 1
    for flag in "$@"; do
        grep -q -E -e "--(\[no-\])?$flag( |\$)" "$dir/help" || { echo "no --$flag"; return 1; }
    done
    awk 'length > 90 { print "too long: " $0; bad = 1 } END { exit bad }' "$dir/help"
}

model=engine/cli/model.c
check "run --help" complete run $(flags engine/serve/opts.c engine/cli/run.c engine/cpu/cpu.h)
check "plan --help" complete plan $(flags engine/plan/tree_search.c engine/cli/plan.c)
check "tune --help" complete tune $(flags engine/tune/tune.c engine/cli/tune.c engine/cpu/cpu.h |
    sed 's/^budget-s$/budget/')
sed -n '/make_table\[\]/,/^};/p' $model >"$dir/make.c"
sed -n '/inspect_table\[\]/,/^};/p' $model >"$dir/inspect.c"
check "model make --help" complete "model make" $(flags "$dir/make.c")
check "model inspect --help" complete "model inspect" $(flags "$dir/inspect.c")
check "model --help" complete model help
check "model --help lists make and inspect" sh -c "$sandwich model --help | grep -c '^  make \|^  inspect ' | grep -q 2"
check "an argument too many" refuses 2 'unexpected argument "x"' "$sandwich" run x
check "an argument too few" refuses 2 'an argument is missing' "$sandwich" model inspect
for word in --help -h help; do
    check "sandwich $word" sh -c "$sandwich $word | grep -q '^Usage: sandwich VERB'"
done
for part in '^sandwich [0-9a-z]' '^commit: [0-9a-f]' '^compiler: ' '^instruction sets: '; do
    check "--version: $part" sh -c "$sandwich --version | grep -q '$part'"
done
check "--version is of the lowered set" sh -c \
    "SANDWICH_ISA=ref $sandwich --version | grep -q '^instruction sets: ref\$'"
check "make help names every target" sh -c 'for t in deps test lint bench experiment figures list clean; do
    make -s help | grep -q "^make $t " || exit 1; done'
finish
