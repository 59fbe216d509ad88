#!/bin/sh
# Which lines and branches the tests reach, by module: builds with counters, runs the tests, adds up
# what gcov says of our own .c files, and prints a Markdown table.
#
#     sh tests/support/coverage.sh [FOLDER...]    the tests of these folders of tests/; none: all
#
# The counters stay in build-coverage (BUILD) and add up, so that the folders can run one by one.
set -eu
build=${BUILD:-build-coverage}
export COVERAGE=1 # a test that calls make would build all without counters
with_counters() {
    make -j2 BUILD="$build" OPT=-O1 CC="${CC:-gcc} --coverage" "$@" >&2
}
[ $# -gt 0 ] || set -- ""
for folder in "$@"; do
    with_counters test MODULE="$folder" || echo "not all tests passed: ${folder:-all}" >&2
done
echo "| module | lines | reached % | branches taken % |"
echo "|---|---|---|---|"
find "$build/obj" -name '*.gcda' ! -path '*/tests/*' ! -path '*/gen/*' | sort |
    while read -r counters; do gcov -b -n "$counters" 2>/dev/null; done | awk '
    /^File / { file = $2; gsub("\047", "", file) }
    /alls( executed|$)/ { file = "" } # what follows the last file is their sum
    file !~ /^(engine|characterize|baselines|datasets|experiments)\/.*\.c$/ { next }
    /^Lines executed/ { split($2, p, /[:%]/); add(lines, reached, p[2], $NF) }
    /^Taken at least/ { split($4, p, /[:%]/); add(branches, taken, p[2], $NF) }
    function module(    n, part) {
        n = split(file, part, "/")
        if (part[1] == "engine")
            return n > 2 ? part[2] : "main"
        return part[1] == "experiments" && n > 2 ? part[1] "/" part[2] : part[1]
    }
    function add(all, some, percent, n) {
        all[module()] += n; some[module()] += percent * n / 100
        all["all"] += n; some["all"] += percent * n / 100
    }
    END {
        for (r in lines)
            printf "| %s | %d | %.0f | %.0f |\n", r, lines[r], 100 * reached[r] / lines[r],
                branches[r] ? 100 * taken[r] / branches[r] : 0
    }' | sort
