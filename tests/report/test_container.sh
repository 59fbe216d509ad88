#!/bin/sh
# docs/Containerfile: what it installs, that it needs no network after `make deps`, and that README.md and
# docs/artifact.md say the same. No container is made here.
set -u
. tests/support/tap.sh

# The rules that a recipe breaks, one a line.
faults() { # recipe
    awk '
        function fault(text) { print FILENAME ":" FNR ": " text }
        FNR == NR { allowed = allowed $0 " "; next }
        /^#/ || !NF { next }
        $1 == "FROM" { n_from++; if ($2 != "debian:12") fault("expected debian:12") }
        $1 == "COPY" && $0 != "COPY .git .git" { fault("only what is committed goes in") }
        $1 == "ADD" { fault("nothing is fetched") }
        $1 != "RUN" { next }
        /^RUN make deps$/ { deps++; next }
        deps && $2 != "--network=none" { fault("a network after make deps") }
        deps && /apt-get|curl|wget|git (clone|fetch|pull)|pip/ { fault("a download after make deps") }
        /apt-get install/ {
            for (i = 3; i <= NF; i++)
                if ($i ~ /^[a-z]/ && $i !~ /^(apt-get|update|install)$/ && !index(allowed, " " $i " "))
                    fault($i " is not among what make deps installs")
        }
        END {
            if (n_from != 1)
                fault("expected one FROM")
            if (deps != 1)
                fault("expected make deps once")
        }' "$dir/needed" "$1"
}
sed -n '/^NEEDED="/,/"$/ { s/NEEDED="/ /; s/"//; p }' tests/support/deps.sh >"$dir/needed"
recipe=docs/Containerfile
faults $recipe >"$dir/faults"
check "the recipe keeps its rules" sh -c 'cat "$1"; [ ! -s "$1" ]' sh "$dir/faults"
broken() { # name, sed command, the fault
    sed "$2" $recipe >"$dir/recipe"
    faults "$dir/recipe" >"$dir/faults"
    check "a recipe with $1 breaks them" grep -q -- "$3" "$dir/faults"
}
broken "another base" 's/debian:12/debian/' 'expected debian:12'
broken "files that are not committed" 's/^COPY .*/COPY . ./' 'only what is committed'
broken "a network at the end" 's/--network=none //' 'a network after make deps'
broken "a download" 's/^RUN --network=none make$/RUN --network=none curl x/' 'a download after'
broken "another package" 's/git make/git make vim/' 'vim is not among'
broken "no dependencies" '/make deps/d' 'make deps once'

# What its steps call is what README and the appendix tell a reader to call.
targets=$(sed -n 's/^RUN \(--network=none \)\{0,1\}make\( \([a-z]*\)\)\{0,1\}$/\3/p' $recipe)
check "its targets are those of make help" sh -c 'make -s help >"$2"
    for t in $1; do grep -q "^make $t " "$2" || { echo "$t"; exit 1; }; done' sh "$targets" "$dir/targets"
check "they are deps, all and figures" [ "$(echo $targets)" = "deps figures" ]
for page in README.md docs/artifact.md; do
    check "$page names this Debian" grep -q "Debian 12" $page
done
section() { sed -n '/^## In a container/,/^## [^I]/p' docs/artifact.md; }
section >"$dir/section"
check "the appendix builds it" grep -q "^    podman build -f $recipe -t sandwich-testbed \.\$" "$dir/section"
check "and starts what it has built, without a network" \
    grep -q '^    podman run .*--network=none .*sandwich-testbed$' "$dir/section"
folder=$(sed -n 's/^WORKDIR //p' $recipe)
check "records are copied from its folder" grep -q "^    podman cp [a-z]*:$folder/results/" "$dir/section"
finish
