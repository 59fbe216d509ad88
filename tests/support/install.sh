#!/bin/sh
# Install into $DESTDIR$PREFIX what `make` has built in $BUILD: both programs, the files that they
# look for (engine/base/home.h), and a man page for each verb where help2man is there (MAN=no: none).
set -eu
BUILD=${BUILD:-build}
to=${DESTDIR-}$PREFIX
lib=$to/lib/sandwich share=$to/share/sandwich man=$to/share/man/man1
install -d "$to/bin" "$lib/baseline" "$share"
for program in sandwich testbed; do
    install "$BUILD/$program" "$lib/"
    ln -sf "../lib/sandwich/$program" "$to/bin/$program"
done
for program in "$BUILD"/baseline/*; do
    [ ! -x "$program" ] || install "$program" "$lib/baseline/"
done
for library in "$BUILD"/mpi/*.so; do
    [ ! -e "$library" ] || install -D "$library" "$lib/mpi/${library##*/}"
done
for data in experiments/*.json experiments/sets/*.json baselines/systems/*.json \
    engine/simulate/machines/*.json engine/simulate/machines/params/*.json engine/cluster/machines/*.json \
    characterize/counters/events/*.json engine/kernels/ref/*.c \
    datasets/fits/*.json datasets/topologies/* results/reference/* results/assumptions.json \
    results/claims.json results/coverage.json results/findings.json paper-figs/*.py \
    paper-figs/lib/*.py CITATION.cff; do
    install -D -m 644 "$data" "$share/$data"
done

# page NAME PROGRAM [VERB...], from --help. help2man takes words apart, so no path goes into them.
page() {
    name=$1
    shift
    summary=$("$@" --help | sed -n '/^$/,$ { /./ { s/\. .*//; s/\.$//; p; q } }')
    help2man --no-info --version-string="$VERSION" --name="$summary" --source="Sandwich Testbed" \
        --output="$man/$name.1" "$*"
    # An example is a line of its own.
    sed -i '/^\.SH EXAMPLES/,/^\.S[HS] "\?Exit/ { s/^\.SH EXAMPLES/&\n.nf/; s/^\.S[HS] "\?Exit/.fi\n&/ }' \
        "$man/$name.1"
}
verbs() { "$@" --help | sed -n '/^Verbs:\|^Commands:/,/^$/ s/^  \([a-z]*\) .*/\1/p'; }
[ "${MAN-}" != no ] || exit 0
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
