#!/bin/sh
# The recipes of CONTRIBUTING.md, followed word for word in a copy of this tree: what they add is built,
# passes lint and the tests that a new plug-in meets, and nothing else is edited.
# Regression: the figure of the recipe failed tests/figs, a new experiment had to claim something of a
# paper and to have a published record, and a metric needed a second definition in its test.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
if [ -n "${SAN:-}" ]; then
    skip "recipes" "nothing of them depends on a sanitizer, and the copy would be built again"
    finish
fi
dir=$(realpath "$dir")
tree=$dir/tree
mkdir -p "$tree/build"
{ git ls-files -co --exclude-standard 2>/dev/null || find . -type f ! -path './build*'; } |
    while read -r f; do [ -f "$f" ] && echo "$f"; done | tar -c -T - | tar -x -C "$tree"
for part in obj gen libsandwich.a libtestbed.a lint.clean; do
    [ ! -e "$build/$part" ] || cp -a "$build/$part" "$tree/build"
done
cd "$tree" || exit 1

check "each recipe can be followed" sh -c 'awk -f tests/recipes/extract.awk CONTRIBUTING.md >made && cat made'
# "# a router (1 file)", then the files.
awk '/^# / { if (NR > 1) print found, title; title = $0; found = 0; split("", seen); next }
    !seen[$0]++ { found++ }
    END { print found, title }' made >counts
while read -r found title; do
    n_stated=$(echo "$title" | sed 's/.*(\([0-9]*\) file.*/\1/')
    check "${title#??}: no other file is edited" [ "$found" = "$n_stated" ]
done <counts
check "there are six" [ "$(wc -l <counts)" = 6 ]

programs="experiments/test_shipped metrics/test_definitions metrics/test_metrics cluster/test_invariants
    kv/test_alloc kv/test_pool serve/test_kv_alloc kernels/test_elementwise kernels/test_table format/test_family"
# shellcheck disable=SC2086
check "they are built" make BUILD=build SAN= MODULE= build/sandwich build/testbed $(printf 'build/tests/%s ' $programs)
check "lint" env BUILD=build sh tests/lint/lint.sh
for p in $programs; do
    check "$p" env BUILD=build "build/tests/$p"
done
check "the pages of the published records are as before" env BUILD=build sh tests/support/docs.sh --check
lists() { # word, command
    word=$1
    shift
    "$@" 2>&1 | grep -q -w -- "$word"
}
check "the metric is listed" lists rejected_frac build/testbed describe metrics
check "the allocator is listed" lists first build/sandwich serve --help
if "$python" -c 'import matplotlib, h5py' 2>/dev/null; then
    mkdir figures
    check "the figure draws made-up numbers and none" "$python" tests/figs/draw_all.py figures 0 mine
    check "the experiment runs and draws" build/testbed run mine --smoke --quiet --fresh --draw
    check "one headline for each rate" \
        lists ttft_p50_40 cat results/mine/smoke/latest.json
else
    skip "the figure" "$python has no matplotlib or h5py"
fi
cd "$OLDPWD" || exit 1
finish
