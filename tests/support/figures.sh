#!/bin/sh
# Draw every figure that has a published record, from these records alone, as SVG into FOLDER, and
# print the hash of each, in the form that `sha256sum -c` reads: results/published/figures.sha256.
#   sh tests/support/figures.sh FOLDER
set -eu
python=${PYTHON:-/usr/bin/python3}
mkdir -p "$1"
rm -f "$1"/*.svg
: >"$1/faults" # what cannot be read in them, by paper-figs/lib/lint.py
FIGURES=$1 RESULTS=none "$python" paper-figs/lib/draw.py --formats svg --lint "$1/faults" >"$1/log" 2>&1 || {
    cat "$1/log" >&2
    exit 1
}
echo "# What make figures draws from the published records, as SVG; make docs renews these hashes."
"$python" -c 'import matplotlib, matplotlib.ft2font as f
print("# matplotlib %s, FreeType %s" % (matplotlib.__version__, f.__freetype_version__))'
(cd "$1" && sha256sum -- *.svg) | sed 's|  |  paper-figs/out/|'
