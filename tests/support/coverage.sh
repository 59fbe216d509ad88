#!/bin/sh
# Which lines and branches the tests reach, by module: build with counters, run every test, add
# up what gcov says of our own .c files. A few minutes; prints a Markdown table.
set -eu
build=${BUILD:-build-coverage}
set -- BUILD="$build" OPT="-O1 --coverage" LDFLAGS='-fopenmp --coverage $(LINK_HARDEN)'
make -j2 "$@" all >&2
make -j2 "$@" test >&2
echo "| module | lines | reached % | branches taken % |"
echo "|---|---|---|---|"
find "$build/obj" -name '*.gcda' ! -path '*/tests/*' ! -path '*/gen/*' | sort |
    while read -r counters; do gcov -b -n "$counters" 2>/dev/null; done | awk '
    /^File / { file = $2; gsub("\047", "", file) }
    /alls( executed|$)/ { file = "" } # what follows the last file is their sum
    file !~ /^(engine|characterize|baselines|datasets|experiments)\/.*\.c$/ { next }
    /^Lines executed/ { split($2, p, /[:%]/); add(lines, reached, p[2], $NF) }
    /^Taken at least/ { split($4, p, /[:%]/); add(branches, taken, p[2], $NF) }
    function module(    r) {
        r = file
        if (!sub(/^engine\//, "", r))
            return r ~ /^experiments/ ? gensub(/^(experiments\/[a-z]*)\/.*/, "\\1", 1, r) : substr(r, 1, index(r, "/") - 1)
        return r ~ /\// ? substr(r, 1, index(r, "/") - 1) : "main"
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
