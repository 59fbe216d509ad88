#!/bin/sh
# `sandwich tune` as a user meets it: search, go on, interrupt, damage, and the engine that reads
# what was found.
set -u
. tests/support/tap.sh
# The row of the closing table that begins with this word: shapes found known measurements.
row() {
    awk -v name="$1" '$1 == name { print $(NF - 7), $(NF - 6), $(NF - 5), $(NF - 4) }' "$dir/out"
}
has_row() { # wanted "shapes found known [measurements]", command...
    want=$1
    shift
    "$@" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; return 1; }
    cat "$dir/out"
    case "$(row all)" in "$want"*) ;; *) return 1 ;; esac
}
tune="$sandwich tune --no-pin --rounds 1"

check "help lists the options" sh -c "$sandwich tune --help | grep -q -- --budget"
check "nothing to tune" refuses 2 'one of --model and --shapes' $tune
check "a shape that is none" refuses 2 'offset 6' $tune --shapes 64x64,64y --cache "$dir/x"
check "an odd unit" refuses 2 'UNIT' $tune --shapes 64x64/3 --cache "$dir/x"
check "rows that descend" refuses 2 'ascending' $tune --shapes 64x64 --rows 4,2 --cache "$dir/x"
check "unknown policy names the nearest" refuses 1 '"sandwich"' \
    $tune --shapes 64x64 --policy sandwhich
check "a folder that is a file" refuses 1 'log/x' $tune --shapes 64x64 --rows 1 --cache "$dir/log/x"

c=$dir/schedules.json
check "search" has_row "4 4 0" $tune --shapes 64x96,96x64/16 --rows 1,7 --cache "$c"
check "what is known is not measured" has_row "4 0 4 0" \
    $tune --shapes 64x96,96x64/16 --rows 1,7 --cache "$c"
check "more rows: only those" has_row "6 2 4" \
    $tune --shapes 64x96,96x64/16 --rows 1,7,12 --cache "$c"
check "another thread set is another key" has_row "2 2 0" \
    $tune --shapes 64x96 --rows 1,7 --cache "$c" --threads 1
check "every policy" sh -c "for p in roller roller_topk mikpoly dietcode ansor default; do
    $tune --shapes 64x96 --rows 3,40 --trials 20 --policy \$p --cache $dir/\$p.json || exit 1; done"
check "a budget leaves the rest" sh -c "$tune --shapes 512x512 --every --m-max 64 --budget 0.05 \
    --cache $dir/budget.json >$dir/out && grep '^all' $dir/out | awk '\$3 >= 64 { exit 1 }'"

# Long enough to be still at it when the signal comes; the file says that it has begun.
$tune --shapes 512x512,1024x512 --every --m-max 512 --cache "$dir/long.json" \
    >"$dir/out" 2>"$dir/err" &
pid=$!
i=0
while [ ! -s "$dir/long.json" ] && [ $i -lt 600 ]; do
    sleep 0.1
    i=$((i + 1))
done
kill -INT $pid
wait $pid
check "an interrupt: status 130" [ $? = 130 ]
check "an interrupt says how to go on" grep -q 'the same command continues' "$dir/err"
found=$(row all | awk '{ print $2 }')
check "an interrupt leaves what was found" sh -c "[ '$found' -gt 0 ] && [ '$found' -lt 1024 ]"
check "and it goes on there" sh -c "$tune --shapes 512x512,1024x512 --every --m-max 512 \
    --budget 0.001 --rounds 0 --cache $dir/long.json >$dir/out 2>$dir/err
    [ \$(awk '\$1 == \"all\" { print \$(NF - 5) }' $dir/out) = $found ]"

head -c 300 "$c" >"$dir/cut.json"
check "a damaged file is set aside, with a word" sh -c "$tune --shapes 64x96 --rows 1 \
    --cache $dir/cut.json 2>$dir/err && grep -q damaged $dir/err && [ -s $dir/cut.json.damaged ]"

check "make a model" "$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf"
check "tune its matrices" has_row "" $tune --model "$dir/tiny.gguf" --m-max 24 --cache "$dir/t.json"
run="$sandwich run --no-pin --model $dir/tiny.gguf -n 12 --ignore-eos --prompt-ids 1,2,3,4,5"
$run --ids >"$dir/ids" 2>"$dir/err"
check "the same ids" sh -c "$run --ids --schedules $dir/t.json --max-step-tok 24 >$dir/tuned &&
    cmp $dir/ids $dir/tuned"
check "the engine says what it found" sh -c "$run --json --schedules $dir/t.json --max-step-tok 24 |
    python3 -c 'import json, sys
s = json.load(sys.stdin)[\"engine\"][\"schedules\"]
assert 0 < s[\"n_tuned\"] <= s[\"n_schedules\"] == 5 * 24, s'"
check "schedules that are not there" refuses 1 'none.json: cannot open' \
    $run --schedules "$dir/none.json"
check "damaged schedules" refuses 1 'cut.json.damaged' $run --schedules "$dir/cut.json.damaged"
check "schedules of another model are said to be" sh -c \
    "$run --schedules $c 2>&1 | grep -q 'no schedule for this model'"
finish
