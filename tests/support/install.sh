#!/bin/sh
# Install into $DESTDIR$PREFIX what `make` has built in $BUILD: both programs, stripped, the files that they
# look for (engine/base/home.h), and, unless EXTRAS=no, the published records, the documents, completions
# for bash, zsh and fish, and, where help2man is there, a man page for each verb.
set -eu
BUILD=${BUILD:-build}
to=${DESTDIR-}$PREFIX
lib=$to/lib/sandwich share=$to/share/sandwich man=$to/share/man/man1
install -d "$to/bin" "$lib/baseline" "$share"
for program in sandwich testbed; do
    install -s "$BUILD/$program" "$lib/"
    ln -sf "../lib/sandwich/$program" "$to/bin/$program"
done
for program in "$BUILD"/baseline/*; do
    [ ! -x "$program" ] || install -s "$program" "$lib/baseline/"
done
for library in "$BUILD"/mpi/*.so; do
    [ ! -e "$library" ] || install -D "$library" "$lib/mpi/${library##*/}"
done
extras=
[ "${EXTRAS-}" = no ] || extras=$(find results/published docs README.md CHANGELOG.md -type f)
for data in $extras experiments/*.json experiments/sets/*.json baselines/systems/*.json \
    engine/simulate/machines/*.json engine/simulate/machines/params/*.json engine/cluster/machines/*.json \
    characterize/counters/events/*.json engine/kernels/ref/*.c \
    datasets/fits/*.json datasets/topologies/* results/reference/* results/assumptions.json \
    results/claims.json results/coverage.json results/findings.json paper-figs/*.py \
    paper-figs/lib/*.py CITATION.cff; do
    install -D -m 644 "$data" "$share/$data"
done

if [ -n "$extras" ]; then
    # The engine as a library: one object, of whose names only those of sandwich.h are seen.
    install -D -m 644 engine/api/sandwich.h "$to/include/sandwich.h"
    ld -r -u sandwich_open -o "$to/lib/sandwich.o" "$BUILD/libsandwich.a"
    objcopy -g --wildcard --keep-global-symbol='sandwich_*' "$to/lib/sandwich.o"
    rm -f "$to/lib/libsandwich.a"
    ar rcs "$to/lib/libsandwich.a" "$to/lib/sandwich.o"
    rm "$to/lib/sandwich.o"
    mkdir -p "$to/lib/pkgconfig"
    sed "s|@PREFIX@|$PREFIX|; s|@VERSION@|$VERSION|" engine/api/sandwich.pc.in >"$to/lib/pkgconfig/sandwich.pc"
    install -D -m 644 engine/program/complete/words.sh "$share/words.sh"
    for program in sandwich testbed; do
        install -D -m 644 engine/program/complete/bash "$to/share/bash-completion/completions/$program"
        install -D -m 644 engine/program/complete/fish "$to/share/fish/vendor_completions.d/$program.fish"
    done
    install -D -m 644 engine/program/complete/zsh "$to/share/zsh/site-functions/_sandwich"
fi

# page NAME PROGRAM [VERB...], from --help. help2man takes words apart, so no path goes into them.
page() {
    name=$1
    shift
    summary=$("$@" --help | sed -n '/^$/,$ { /./ { s/\. .*//; s/\.$//; p; q } }')
    help2man --no-info --version-string="$VERSION" --name="$summary" --source="Sandwich Testbed" \
        --output="$man/$name.1" "$*"
    # The page's own name; an example is a line of its own.
    sed -i "/^\.SH NAME/ { n; s/.* \\\\- /$name \\\\- / }" "$man/$name.1"
    sed -i '/^\.SH EXAMPLES/,/^\.S[HS] "\?Exit/ { s/^\.SH EXAMPLES/&\n.nf/; s/^\.S[HS] "\?Exit/.fi\n&/ }' \
        "$man/$name.1"
}
verbs() { "$@" --help | sed -n '/^Verbs:\|^Commands:/,/^$/ s/^  \([a-z]*\) .*/\1/p'; }
[ -n "$extras" ] || exit 0
if ! command -v help2man >/dev/null; then
    echo "no man pages: help2man is not installed" >&2
    exit 0
fi
install -d "$man"
man=$(cd "$man" && pwd)
cd "$lib"
for program in sandwich testbed; do
    page "$program" "./$program"
    for verb in $(verbs "./$program"); do
        page "$program-$verb" "./$program" "$verb"
        for command in $(verbs "./$program" "$verb"); do
            page "$program-$verb-$command" "./$program" "$verb" "$command"
        done
    done
done
