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
    check "a page has one line of what it is for" grep -q '^sandwich run \\- [A-Z]' \
        "$prefix/share/man/man1/sandwich-run.1"
else
    skip "man pages" "help2man is not installed"
fi
mkdir -p home/experiments
sed 's/"about": "/"about": "Of the other home. /' "$top/experiments/quickstart.json" \
    >home/experiments/quickstart.json
other_home() { SANDWICH_HOME=home "$build/testbed" list >out && grep -q 'Of the other home' out; }
check "SANDWICH_HOME comes first" other_home
cd "$top" || exit 1
finish
