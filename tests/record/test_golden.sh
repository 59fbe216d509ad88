#!/bin/sh
# Records of earlier versions (tests/golden/records/VERSION): each export of them and their figure are
# what they were, or the record is refused by its version. UPDATE=1 rewrites the exports.
set -u
. tests/support/tap.sh
python=${PYTHON:-/usr/bin/python3}
testbed=$build/testbed

same() { # record, format
    "$testbed" export "$1" --format "$2" --out "$dir/export" || return 1
    [ -z "${UPDATE:-}" ] || cp "$dir/export" "${1%.h5}.$2"
    cmp "$dir/export" "${1%.h5}.$2"
}
later() { # record, its copy of a version that is not there yet
    "$python" - "$1" "$2" <<'PY'
import shutil, sys
import h5py
shutil.copy(sys.argv[1], sys.argv[2])
with h5py.File(sys.argv[2], "r+") as f:
    f.attrs["schema_version"] = 99
PY
}
refused() {
    ! "$python" "paper-figs/$stem.py" "$dir/later.h5" "$dir" >"$dir/out" 2>&1 &&
        grep -q 'schema_version: expected 1 to [0-9]*, found 99' "$dir/out" && [ "$(wc -l <"$dir/out")" = 1 ]
}

for record in tests/golden/records/*/*.h5; do
    stem=$(basename "$record" .h5)
    of=$(basename "$(dirname "$record")")/$stem
    for format in csv csv-cells json-full markdown; do
        check "$of as $format" same "$record" "$format"
    done
    if ! "$python" -c 'import h5py, matplotlib' 2>/dev/null; then
        skip "$of as a figure" "$python has no h5py and matplotlib"
        continue
    fi
    check "$of as a figure" "$python" "paper-figs/$stem.py" "$record" "$dir"
    check "which is drawn" [ -s "$dir/$stem.svg" ]
    check "$of of a later version" later "$record" "$dir/later.h5"
    check "is refused by the export" refuses 3 'schema_version: expected 1 to [0-9]*, found 99' \
        "$testbed" export "$dir/later.h5"
    check "is refused by the figure" refused
done
finish
