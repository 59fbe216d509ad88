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

# A script trusts what it reads: damaged records ended in its traceback, a pipe in no end.
damaged() { # record, its copy with an array for a number
    "$python" - "$1" "$2" <<'PY'
import shutil, sys
import h5py
shutil.copy(sys.argv[1], sys.argv[2])
with h5py.File(sys.argv[2], "r+") as f:
    summary = f["cells"][sorted(f["cells"])[0]]["summary"]
    name = sorted(summary)[0]
    del summary[name]
    summary[name] = [1.0, 2.0]
PY
}
draw() { # record
    timeout 60 "$testbed" draw quickstart --record "$1" --out "$dir"
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
head -c 5000 "$record" >"$dir/cut.h5"
mkfifo "$dir/pipe.h5"
for bad in cut pipe none; do
    check "$bad is not drawn" refuses 3 "$bad.h5" draw "$dir/$bad.h5"
done
if "$python" -c 'import h5py' 2>/dev/null; then
    check "a record to damage" damaged "$record" "$dir/damaged.h5"
    check "a damaged one is not drawn" refuses 3 'damaged.h5: .*: expected one number' draw "$dir/damaged.h5"
else
    skip "a damaged one is not drawn" "$python has no h5py"
fi
finish
