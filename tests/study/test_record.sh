#!/bin/sh
# What studies of counters and of the machine leave in HDF5: a number or its reason, twins apart,
# and a card that is JSON, HDF5 and one page.
set -u
python=${PYTHON:-/usr/bin/python3}
. tests/support/tap.sh
one() { # pattern: the one file it stands for
    set -- $1
    test $# -eq 1 && test -s "$1" && echo "$1"
}
if ! "$python" -c 'import matplotlib, h5py' 2>/dev/null || ! test -x build/sandwich; then
    skip "records of counters and of a machine" \
        "$python has no matplotlib or h5py, or build/sandwich is not built"
    finish
fi

check "characterization runs" "$build/testbed" run fig01_characterization --smoke --quiet \
    --out "$dir/counters" --set study.model=build/models/tiny-f32.gguf --set study.batch=[1,3]
check "a number or its reason, twins apart, PAPI to the byte" \
    "$python" tests/study/check_record.py counters "$(one "$dir/counters/*.h5")"
rm -f build/machine/*-full.json
check "testbed machine --full runs" sh -c "'$build/testbed' machine --full \
    --smoke --quiet --out '$dir/card' >'$dir/said'"
check "... and says where the card is" grep '^kept in build/machine (JSON) and .*h5 (HDF5)$' "$dir/said"
check "its JSON" test -s "$(one 'build/machine/*-full.json')"
check "its HDF5 has curves, roofline, trust, topology" \
    "$python" tests/study/check_record.py card "$(one "$dir/card/*.h5")"
check "its page as SVG" grep -q '</svg>' "$dir/card/characterize.svg"
check "its page as PNG" test -s "$dir/card/characterize.png"
finish
