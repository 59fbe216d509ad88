#!/bin/sh
# Renew what docs/ has of records, from the published ones alone, so that every checkout gets the
# same: docs/claims.md as a whole, and the numbers in the tables of the other pages
# (docs_values.py). --check changes nothing and names each page that is not as it would be renewed.
#   sh tests/support/docs.sh [--check]      BUILD: folder of the programs
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "${BUILD:-build}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/results"
ln -s "$top/results/published" "$dir/results/published"
cp -r "$top/docs" "$dir/docs"
cd "$dir"
SANDWICH_HOME=$top
export SANDWICH_HOME
"$build/testbed" artifact --appendix >docs/claims.md
/usr/bin/python3 "$top/tests/support/docs_values.py" results/published docs/*.md
status=0
for page in docs/*.md; do
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
