#!/bin/sh
# Help and version of `sandwich`: status 0 and the same parts for every
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

model=engine/cli/verb/model.c
check "run --help" complete run $(flags engine/serve/opts.c engine/cli/verb/run.c engine/cli/sampling.h engine/cli/offload.h engine/cpu/cpu.h)
check "chat --help" complete chat $(flags engine/serve/opts.c engine/cli/verb/chat.c engine/cli/sampling.h)
check "profile --help" complete profile $(flags engine/cli/verb/profile.c engine/cpu/cpu.h)
check "serve --help" complete serve $(flags engine/serve/opts.c engine/http/opts.c engine/roles/opts.c)
check "bench --help" complete bench $(flags engine/cli/verb/bench.c engine/cpu/cpu.h)
check "plan --help" complete plan $(flags engine/plan/tree_search.c engine/cli/verb/plan.c)
check "tune --help" complete tune $(flags engine/tune/tune.c engine/cli/verb/tune.c engine/cpu/cpu.h |
    sed 's/^budget-s$/budget/')
sed -n '/make_table\[\]/,/^};/p' $model >"$dir/make.c"
sed -n '/inspect_table\[\]/,/^};/p' $model >"$dir/inspect.c"
sed -n '/quantize_table\[\]/,/^};/p' $model >"$dir/quantize.c"
sed -n '/support_table\[\]/,/^};/p' $model >"$dir/support.c"
check "model explain-support --help" complete "model explain-support" $(flags "$dir/support.c")
check "model make --help" complete "model make" $(flags "$dir/make.c")
check "model inspect --help" complete "model inspect" $(flags "$dir/inspect.c")
sed -n '/data_rows\[\]/,/^};/p; /train_rows\[\]/,/^};/p' engine/cli/verb/predictor.c >"$dir/train.c"
sed -n '/data_rows\[\]/,/^};/p; /eval_rows\[\]/,/^};/p' engine/cli/verb/predictor.c >"$dir/eval.c"
check "predictor train --help" complete "predictor train" $(flags "$dir/train.c")
check "predictor eval --help" complete "predictor eval" $(flags "$dir/eval.c")
check "predictor --help" complete predictor help
check "model --help" complete model help
check "model quantize --help" complete "model quantize" $(flags "$dir/quantize.c")
check "model --help lists its commands" sh -c \
    "$sandwich model --help | grep -c '^  make \|^  quantize \|^  inspect \|^  explain-s' |
    grep -q 4"
lists() { # command whose help must have these words in one list
    words=$1
    shift
    "$@" | tr -d '\n' | tr -s ' ' | grep -q -F "One of: $words." || { "$@"; return 1; }
}
policies=$(ls engine/sched/policy/*.c | sed 's|.*/||; s|\.c$||' | paste -s -d, - | sed 's/,/, /g')
check "run --help lists the policies" lists "$policies" "$sandwich" run --help
searches=$(ls engine/tune/policy/*.c | sed 's|.*/||; s|\.c$||' | paste -s -d, - | sed 's/,/, /g')
check "tune --help lists the policies" lists "$searches" "$sandwich" tune --help
machines=$(ls engine/simulate/machines/*.json | sed 's|.*/||; s|\.json$||' | paste -s -d, - |
    sed 's/,/, /g')
methods=$(ls engine/plan/method/*.c | sed 's|.*/||; s|\.c$||' | paste -s -d, - | sed 's/,/, /g')
check "plan --help lists the methods" lists "$methods" "$sandwich" plan --help
check "plan --help lists the machines" lists "$machines" "$sandwich" plan --help
check "model make --help lists the architectures" sh -c \
    "$sandwich model make --help | grep -q 'One of: llama-160m, llama-68m'"
check "a wrong policy" refuses 1 "known: $policies" "$sandwich" run --policy x --prompt x \
    --model x
check "a wrong search" refuses 1 "known: $searches" "$sandwich" tune --policy x --model x
check "a wrong machine" refuses 1 "known: $machines" "$sandwich" plan --machine x --model tiny
check "a wrong architecture" refuses 1 'known: llama-160m' \
    "$sandwich" model make --arch x --out "$dir/x"
check "an argument too many" refuses 2 'unexpected argument "z"' "$sandwich" run x y z
check "an argument too few" refuses 2 'an argument is missing' "$sandwich" model inspect
for word in --help -h help; do
    check "sandwich $word" sh -c "$sandwich $word | grep -q '^Usage: sandwich VERB'"
done
version=$(sed 's/[.]/[.]/g' VERSION) # as a pattern
for program in "$sandwich" "$build/testbed"; do
    name=${program##*/}
    for part in "^$name $version ([0-9a-z, ]*)\$" '^commit: [0-9a-z]' '^compiler: ' '^instruction sets: '; do
        check "$name --version: $part" sh -c "$program --version | grep -q '$part'"
    done
done
check "--version is of the lowered set" sh -c \
    "SANDWICH_ISA=ref $sandwich --version | grep -q '^instruction sets: ref\$'"
check "make help names every target" sh -c 'make -s help >"$1"
    for t in deps test lint experiment report artifact figures list clean; do grep -q "^make $t " "$1" || exit 1; done' sh "$dir/targets"
finish
