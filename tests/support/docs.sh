#!/bin/sh
# Renew what documents have of records, from the published ones alone, so that every checkout gets the
# same: docs/claims.md and results/published/README.md as a whole, the tables of results/performance.md, and
# the numbers in those of the other pages of docs/ (docs_values.py). --check changes nothing and names each page that is not as it
# would be renewed.
#   sh tests/support/docs.sh [--check]      BUILD: folder of the programs
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "${BUILD:-build}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/results"
cp -r "$top/results/published" "$top/results/README.md" "$top/results/performance.md" "$dir/results"
cp -r "$top/docs" "$dir/docs"
mkdir -p "$dir/paper-figs/gallery"
cp "$top"/paper-figs/gallery/*.svg "$dir/paper-figs/gallery" 2>/dev/null || true # there may be none
cd "$dir"
SANDWICH_HOME=$top
export SANDWICH_HOME
"$build/testbed" artifact --appendix >docs/claims.md
/usr/bin/python3 "$top/tests/support/docs_values.py" results/published docs/*.md
"$build/testbed" report --no-draw --out page --readme results/published/README.md \
    --tables results/performance.md >/dev/null
status=0
for page in docs/*.md results/published/README.md results/performance.md; do
    if cmp -s "$page" "$top/$page"; then
        continue
    elif [ "${1-}" = --check ]; then
        echo "$page: not as the published records have it; make docs renews it"
        diff "$top/$page" "$page" | head -n 20
        status=1
    else
        cp "$page" "$top/$page"
    fi
done
exit $status
