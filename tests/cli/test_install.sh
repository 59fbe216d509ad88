#!/bin/sh
# The programs find what they come with from any working directory: in a checkout, in an install
# prefix whose path has a space, and below $SANDWICH_HOME.
set -u
. tests/support/tap.sh
unset SANDWICH_HOME
top=$(pwd)
case $build in /*) ;; *) build=$top/$build dir=$top/$dir ;; esac
prefix="$dir/a prefix"
mkdir "$dir/elsewhere"

finds_its_files() { # folder of the programs
    "$1/testbed" list >out && grep -q '^quickstart ' out || return 1
    "$1/testbed" run mnn_roofline --smoke --quiet >out || return 1
    "$1/testbed" run fig06_cross_sections --smoke --quiet >out || return 1
    "$1/testbed" run quickstart --smoke --dry-run >out || return 1
    "$1/sandwich" plan --machine xeon6230x2 --model tiny --out plan.json >out && [ -s plan.json ]
}
draws() { # folder of the programs
    record=$(find "$dir/elsewhere/results" -name 'fig06*.h5' -o -path '*fig06*' -name '*.h5' | head -n 1)
    "$1/testbed" draw fig06_cross_sections --record "$record" --out figures &&
        [ -s figures/fig06_cross_sections.svg ]
}
install_it() {
    BUILD=$build PREFIX="$prefix" VERSION=test sh tests/support/install.sh
}

check "install into a prefix" install_it
cd "$dir/elsewhere" || exit 1
check "from a build folder" finds_its_files "$build"
rm -rf results
check "from an install prefix" finds_its_files "$prefix/bin"
check "figures are drawn in the working directory" draws "$prefix/bin"
check "nothing is written into the prefix" test -z \
    "$(find "$prefix" -newer out -type f ! -name '*.pyc')"
if command -v help2man >/dev/null; then
    for page in sandwich sandwich-run sandwich-model-make testbed testbed-run testbed-draw; do
        check "man $page" grep -q '^\.SH OPTIONS' "$prefix/share/man/man1/$page.1"
    done
    check "a page has one line of what it is for" grep -q '^sandwich-run \\- [A-Z]' \
        "$prefix/share/man/man1/sandwich-run.1"
else
    skip "man pages" "help2man is not installed"
fi
check "published records come with it" sh -c '"$1" check --published >out; grep -q "reproduced in shape" out && \
    ! grep -q " 0 reproduced, 0 reproduced in shape" out' sh "$prefix/bin/testbed"
check "and their figures" sh -c '"$1" draw fig03a_core_removal --out published >out && [ -s published/fig03a_core_removal.svg ]' \
    sh "$prefix/bin/testbed"
example() { # the engine as a library, as an installed copy offers it
    export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
    # shellcheck disable=SC2046
    eval cc -Wall -Wextra -Werror -o example "$top/tests/api/example.c" \
        $(pkg-config --cflags --libs sandwich) || return 1
    "$build/sandwich" model make --arch tiny --type f32 --out tiny.gguf >out &&
        ./example tiny.gguf "one" "two" >out && [ "$(wc -l <out)" -ge 2 ] && grep -q '^one|.' out &&
        ! ./example missing.gguf a b 2>err && grep -q '^example: .*missing.gguf' err
}
check "a program of its own links the engine" example
check "and sees no other names" sh -c '! nm -g --defined-only "$1" | grep -v " sandwich_" | grep " [A-Z] "' \
    sh "$prefix/lib/libsandwich.a"
complete_bash() { # WORD...: what bash offers after these words
    bash -c '. "$1"; shift; COMP_WORDS=("$@" ""); COMP_CWORD=$(($# )); _sandwich "$1" ""
        printf "%s\n" "${COMPREPLY[@]}"' bash "$prefix/share/bash-completion/completions/sandwich" "$@"
}
offers() { # WORD WORDS...: whether it is among what is offered after the words
    word=$1
    shift
    complete_bash "$@" >offered
    grep -qxF -e "$word" offered
}
check "a verb is completed" offers serve "$prefix/bin/sandwich"
check "so is a command of a verb" offers quantize "$prefix/bin/sandwich" model
check "an option of a command" offers --arch "$prefix/bin/sandwich" model make --type bf16
check "an experiment" offers quickstart "$prefix/bin/testbed" run
check "and nothing of another verb" sh -c '! grep -qx -e --arch offered' 
mkdir -p home/experiments
sed 's/"about": "/"about": "Of the other home. /' "$top/experiments/quickstart.json" \
    >home/experiments/quickstart.json
other_home() { SANDWICH_HOME=home "$build/testbed" list >out && grep -q 'Of the other home' out; }
check "SANDWICH_HOME comes first" other_home
cd "$top" || exit 1
finish
