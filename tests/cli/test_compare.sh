#!/bin/sh
# `testbed compare`: records that exist, two settings run in turn, what is refused, and the exit
# status. The system is the scripted one: what it does is known.
# Regression: `testbed compare` did not mention the warnings of the records.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1

cat >job.json <<'JSON'
{"about": "a small job", "system": {"adapter": "scripted", "ttft_ms": 30}, "smoke": {"load": {"n_requests": 12}},
 "dataset": {"n": 20, "max_prompt_tok": 8, "max_output_tok": 3},
 "load": {"n_requests": 20, "lateness_warn_ms": 1e6}, "slo": {"ttft_ms": 500}}
JSON
compare() { # status wanted, words
    want=$1
    shift
    "$testbed" compare "$@" >out 2>err
    got=$?
    [ "$got" = "$want" ] || { echo "status $got"; cat out err; return 1; }
}
has() { grep -q -- "$1" out || { cat out err; return 1; }; }

# The scripted waits are lower bounds: a busy machine adds to them. So a verdict is expected only
# where what was recorded allows no other.
mean_ttft() { # folder: the largest mean time to first token of its records
    for r in "$1"/*.h5; do
        "$testbed" export "$r" --format json | sed -n 's/^ *"mean_ttft_ms": \([0-9.]*\),*$/\1/p'
    done | sort -g | tail -n 1
}
slower_is_found() {
    "$testbed" compare ./job.json --b system.ttft_ms=33 --rounds 4 --out slower --metric mean_ttft_ms \
        --metric mean_tpot_ms >out 2>err
    got=$?
    a=$(mean_ttft slower/a)
    b=$(mean_ttft slower/b)
    aa=$(mean_ttft slower/aa)
    if awk "BEGIN { exit !($a < 30.4 && $b < 33.4 && $aa < 30.4) }"; then
        [ "$got" = 4 ] && grep -q 'mean_ttft_ms.* worse$' out && return
    else
        echo "the machine was busy: $a, $b, $aa"
        [ "$got" = 0 ] || [ "$got" = 4 ] && return
    fi
    cat out err
    return 1
}
check "10 per cent more are found" slower_is_found
check "four records of each side" [ "$(ls slower/a/*.h5 slower/b/*.h5 slower/aa/*.h5 | wc -l)" = 12 ]
check "A runs a second time, and all take turns" [ "$(sed -n 's/.*round \(.\) of 4: /\1 /p' err | paste -sd, )" = \
    "1 A,1 B,1 A again,2 A again,2 B,2 A,3 B,3 A again,3 A,4 A,4 A again,4 B" ]
check "what could have been seen is stated" has \
    'detectable: the smallest difference that an A/A could have seen, from A again in the same rounds'
check "for each metric" sh -c "[ \$(grep -c '^  mean_t[a-z]*_ms .* [0-9.]* %  ' out) = 2 ]"
check "and which records it is from" has '^A again: slower/aa, 4 records'
check "what differs is stated" has 'system.ttft_ms: 30 -> 33'
check "restarts, turns and requests are stated" has \
    '4 runs of A, 4 of B: 4 restarts of each, in turn; 20 requests in each, the same in both, in blocks of 4'
cp out before
check "the records alone say the same" sh -c \
    "'$testbed' compare slower/a slower/b --metric mean_ttft_ms,mean_tpot_ms >out 2>err; cmp out before"
check "what is there counts as rounds" sh -c "'$testbed' compare ./job.json --b system.ttft_ms=33 --rounds 4 \
    --out slower >out 2>err; ! grep -q 'round . of' err"
check "another round is added" sh -c "'$testbed' compare ./job.json --b system.ttft_ms=33 --rounds 5 \
    --out slower >out 2>err; [ \$(grep -c 'round 5 of 5' err) = 3 ] && [ \$(ls slower/*/*.h5 | wc -l) = 15 ]"
check "the A/A can be left out" sh -c "'$testbed' compare ./job.json --b system.ttft_ms=33 --rounds 6 --no-aa \
    --out slower >out 2>err; [ \$(grep -c 'round 6 of 6' err) = 2 ] && [ \$(ls slower/aa/*.h5 | wc -l) = 5 ] &&
    grep -q 'detectable: not known: there is no A/A' out"
check "of records, too" sh -c "'$testbed' compare slower/a slower/b --no-aa >out 2>err; ! grep -q 'A again' out"
check "records of six restarts have an A/A of their own" sh -c "cp -r slower/a alone && cp -r slower/b other &&
    '$testbed' compare alone other >out 2>err
    grep -q \"could have seen, from one half of A's restarts and the other\" out"

# Rounds until it is known: 40 % is known at once, a thousandth of a per cent is never.
auto() { # status wanted, precision, most rounds
    "$testbed" compare ./job.json --b system.ttft_ms=33 --set load.n_requests=4 --rounds auto --precision "$2" \
        --rounds-max "$3" --no-aa --margin 90% --metric mean_ttft_ms --out auto >out 2>err
    got=$?
    [ "$got" = "$1" ] || { echo "status $got"; cat out err; return 1; }
}
check "rounds until it is known" auto 0 40% 9
check "are six at least" sh -c "[ \$(ls auto/a/*.h5 | wc -l) = \$(ls auto/b/*.h5 | wc -l) ] &&
    [ \$(ls auto/a/*.h5 | wc -l) -ge 6 ] && grep -q 'round 1 of at most 9: A' err"
check "why they ended is printed" has '^known after [6-9] rounds: the widest interval reaches .* 40 % were asked for$'
check "and kept" grep -q '"stopped": "known after [6-9] rounds' auto/rounds.json
n_auto=$(ls auto/a/*.h5 | wc -l)
check "a limit ends them as well" auto 0 0.001% $((n_auto + 1))
check "with its reason" has "^not known after $((n_auto + 1)) rounds: .* 0.001 % were asked for\$"
check "the records alone allow for the looks" sh -c "'$testbed' compare auto/a auto/b >out 2>err
    grep -q 'in turn, as many as were needed, which the intervals allow for' out"
check "and are wider than without" sh -c "cp -r auto/a fixed_a && cp -r auto/b fixed_b
    '$testbed' compare fixed_a fixed_b >fixed 2>err
    ! grep -q 'which the intervals allow for' fixed && ! cmp -s fixed out"

first=$(ls slower/a/*.h5 | head -n 1)
check "a record and itself" compare 0 "$first" "$first" --strict
check "are the same" has ' same$'
check "an A/A of one restart is none" has "detectable: not known: an A/A of A's own records needs 6 restarts of it"
check "one restart is stated" has 'one restart of each, so that what a restart changes is not in the interval'
check "a wide margin" compare 0 slower/a slower/b --margin 90%
# An answer of one token has no time per token, however busy the machine is.
"$testbed" run ./job.json --quiet --smoke --set dataset.max_output_tok=1 --out single >out 2>err
single=$(ls single/*.h5)
check "what cannot be said is status 0" compare 0 "$single" "$single" --metric mean_tpot_ms
check "is said" has ' cannot say: A has a run without a value$'
check "and is status 5 if asked" compare 5 "$single" "$single" --metric mean_tpot_ms --strict

"$testbed" run ./job.json --quiet --set 'system.ttft_ms=[1,2]' --set repeats=2 --out axes >out 2>err
axes=$(ls axes/*.h5)
"$testbed" run ./job.json --quiet --set load.lateness_warn_ms=1e-9 --set load.n_requests=4 --set repeats=2 \
    --out late >out 2>err
check "warnings of the records" compare 0 late late --margin 90%
check "are repeated for each side" sh -c "[ \$(grep -c '^  [AB]: warning lateness in 2 of 2 cells$' out) = 2 ]"
check "cells are compared one by one" compare 0 "$axes" "$axes"
check "each by its axes" sh -c "grep -q '^system.ttft_ms=1$' out && grep -q '^system.ttft_ms=2$' out"
check "no cell in common" refuses 2 'no setting of the axes in common' "$testbed" compare "$first" "$axes"
cat >other.json <<'JSON'
{"about": "another job", "system": {"adapter": "scripted", "ttft_ms": 30}, "dataset": {"n": 15, "max_prompt_tok": 8,
 "max_output_tok": 3}, "load": {"n_requests": 15, "lateness_warn_ms": 1e6}, "smoke": {"about": "small"}}
JSON
check "two jobs" sh -c "'$testbed' compare ./job.json ./other.json --smoke --rounds 1 --out jobs >out 2>err;
    grep -q 'experiment: job -> other' out && grep -q 'not the same in both' out"
cp "$testbed" second
check "two programs" sh -c "SANDWICH_HOME='$dir' '$testbed' compare ./job.json --b-program ./second --rounds 1 \
    --smoke --out programs >out 2>err; [ \$? != 3 ] && ls programs/a/*.h5 programs/b/*.h5"

check "a folder of two settings" sh -c "mkdir mixed && cp slower/a/*.h5 mixed && cp \$(ls jobs/b/*.h5) mixed"
check "is refused" refuses 2 'differ in experiment' "$testbed" compare mixed mixed
check "no record" refuses 2 'none.h5' "$testbed" compare none.h5 none.h5
mkdir empty
check "an empty folder" refuses 2 'no record' "$testbed" compare empty empty
# Another machine: the same record under another name of the host.
/usr/bin/python3 - "$first" <<'PY'
import sys
import h5py
import numpy
with open(sys.argv[1], "rb") as f, open("elsewhere.h5", "wb") as g:
    g.write(f.read())
with h5py.File("elsewhere.h5", "r+") as f:
    f.attrs["host"] = numpy.bytes_("elsewhere")
PY
check "another machine" refuses 2 'different machines (host' "$testbed" compare "$first" elsewhere.h5
check "is compared if asked, and marked" compare 0 "$first" elsewhere.h5 --across-machines
check "in capitals" has '^DIFFERENT MACHINES: host '
check "a metric that does not exist" refuses 2 'did you mean "mean_ttft_ms"' "$testbed" compare slower/a slower/b \
    --metric mean_tftt_ms
check "a metric without a better side" refuses 2 'no verdict' "$testbed" compare slower/a slower/b --metric n_requests
check "a margin" refuses 2 '--margin: expected' "$testbed" compare slower/a slower/b --margin x
check "a precision" refuses 2 '--precision: expected' "$testbed" compare ./job.json --rounds auto --precision 3x
check "a number of rounds" refuses 2 '--rounds: expected a number from 1 to 1000 or auto, found "many"' \
    "$testbed" compare ./job.json --rounds many
check "not 0" refuses 2 '--rounds: expected' "$testbed" compare ./job.json --rounds 0
check "settings of records" refuses 2 'are for jobs' "$testbed" compare slower/a slower/b --a x=1
check "one record" refuses 2 'expected two records' "$testbed" compare slower/a
check "a setting that does not exist" sh -c "'$testbed' compare ./job.json --b system.ttft=1 --rounds 1 >out 2>err;
    [ \$? = 3 ] && grep -q 'did you mean' err && tail -n 1 err | grep -q 'side B: exited with status 2'"
finish
