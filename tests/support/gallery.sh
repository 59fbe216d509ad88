#!/bin/sh
# Renew the SVG files of paper-figs/gallery, which documents show: FOLDER has what figures.sh drew.
# --check changes nothing and names each that differs. A file of a new name there is one more to renew.
#   sh tests/support/gallery.sh FOLDER [--check]
set -eu
python=${PYTHON:-/usr/bin/python3}
FIGURES=$1 "$python" paper-figs/lib/coverage.py >"$1/log" 2>&1 || {
    cat "$1/log" >&2
    exit 1
}
"${BUILD:-build}/testbed" check --published --assumptions --json >"$1/assumptions.json"
FIGURES=$1 "$python" paper-figs/lib/assumption_matrix.py "$1/assumptions.json" >"$1/log" 2>&1 || {
    cat "$1/log" >&2
    exit 1
}
status=0
for kept in paper-figs/gallery/*.svg; do
    drawn=$1/${kept##*/}
    if cmp -s "$drawn" "$kept"; then
        continue
    elif [ "${2-}" = --check ]; then
        echo "$kept: not as it would be drawn; make docs renews it"
        status=1
    else
        cp "$drawn" "$kept"
    fi
done
exit $status
