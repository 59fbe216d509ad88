#!/bin/sh
# `testbed artifact`: the order of experiments, what fits, failures, interrupts and the exit
# status, on scripted systems.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
top=$PWD
ln -s "$top/datasets" "$dir"
cd "$dir" || exit 1
mkdir -p experiments paper-figs results
job() { # name, minutes, more of the system, more of the job
    cat >experiments/"$1".json <<JSON
{"about": "a job",${4-} "evidence": "simulated", "system": {"adapter": "scripted"${3:+, $3}}, "cost": {"minutes": $2},
 "dataset": {"n": 3, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 3}, "repeats": 3,
 "headline": [{"name": "n", "metric": "n_completed"}]}
JSON
    cat >paper-figs/"$1".py <<PY
import os, sys
out = sys.argv[2] if len(sys.argv) > 2 else "paper-figs/out"
os.makedirs(out, exist_ok=True)
open(out + "/$1.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg'/>")
PY
}
job a_plain 1
job b_other_claim 2
job c_should 2
job d_should_more 3
job e_long 500
job f_short 0.5
claims() { # rule of d_should_more
    cat >results/claims.json <<JSON
{"claims": [
 {"name": "c1", "paper": "P", "section": "1", "text": "t", "experiment": "c_should", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}], "reproduced": "n = 3", "should": "reproduced"},
 {"name": "d1", "paper": "P", "section": "1", "text": "t", "experiment": "d_should_more", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}], "reproduced": "$1", "should": "reproduced"},
 {"name": "d2", "paper": "P", "section": "1", "text": "t", "experiment": "d_should_more", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}], "reproduced": "n = 3", "should": "reproduced"},
 {"name": "b1", "paper": "P", "section": "1", "text": "t", "experiment": "b_other_claim", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}], "reproduced": "n = 4"},
 {"name": "x1", "paper": "P", "section": "1", "text": "t", "experiment": "a_plain", "why": "no machine"}]}
JSON
}
SANDWICH_HOME=$dir
export SANDWICH_HOME

ran() { # status, command words...
    want=$1
    shift
    "$testbed" artifact "$@" >out 2>err
    got=$?
    cat out err
    [ "$got" = "$want" ]
}
planned() { # state, names in their order
    state=$1
    shift
    [ "$(sed -n "s/^  $state *\([a-z_]*\) .*/\1/p" out | tr '\n' ' ')" = "$* " ]
}

claims 'n = 3'
check "a dry run" ran 0 --budget 8m --dry-run
check "by claims that should hold per minute, then others, then the shortest" planned run \
    d_should_more c_should b_other_claim f_short
check "what does not fit is left out" planned 'left out' a_plain e_long
check "it says why" grep -q 'd_should_more .*3 min  2 claims that should hold, 2 in all' out
check "it runs nothing" [ ! -e results/artifact.json ]
check "hours" ran 0 --budget 9h --dry-run
check "all fit into them" planned run d_should_more c_should b_other_claim f_short a_plain e_long
check "a run" ran 0 --budget 8m
check "each has a record" ls results/d_should_more/latest.json results/c_should/latest.json \
    results/b_other_claim/latest.json results/f_short/latest.json
# Time that was not used goes to what would not have fitted by its stated minutes.
check "what was gained in time is used" ls results/a_plain/latest.json
check "what does not fit is named" grep -q 'left out for want of time: e_long (500 min)' out
check "figures are drawn" ls paper-figs/out/c_should.svg
check "verdicts are printed" grep -q '^3 reproduced, 0 reproduced in shape, 0 consistent, 0 undecided, 0 undecided: no interval, 1 not reproduced' out
check "the page is written" grep -q 'src="data:image' results/report/index.html
check "what is not published is so called" grep -q -x '  c_should *not published' out
mkdir -p results/published/m/c_should results/published/m/b_other_claim
cp results/c_should/latest.json results/published/m/c_should
sed 's/"n": {/"m": {/' results/b_other_claim/latest.json >results/published/m/b_other_claim/latest.json

claims 'n = 4'
check "a claim that should hold fails" ran 4 --budget 8m --resume
check "what was finished is not run again" [ "$(ls results/c_should/*.h5 | wc -l)" = 1 ]
check "and is named" grep -q '^== c_should: done before' out
check "a record is compared with the published one" grep -q '^  c_should *same  *1  *0 ' out
claims 'n = 3'
check "without --resume all is run again" ran 0 --budget 8m
check "that one differs is no failure" grep -q '^  b_other_claim *differs  *0  *0  no number in common' out
check "so there are two records" [ "$(ls results/c_should/*.h5 | wc -l)" = 2 ]

# A failure: what the job needs cannot be made.
rm -rf results/*/ results/artifact.json
job c_should 2 '' '"prepare": [{"run": ["false"], "creates": "nothing"}],'
check "one that fails" ran 3 --budget 6m
check "is named with the reason" grep -q '^failed: c_should (.*exited with status 3' out
check "the others are run" ls results/d_should_more/latest.json results/f_short/latest.json
check "the page is written all the same" [ -s results/report/index.html ]
job c_should 2
check "it is tried again" ran 0 --budget 6m --resume
check "and no other" [ "$(ls results/d_should_more/*.h5 | wc -l)" = 1 ]
check "and it worked" ls results/c_should/latest.json

# An interrupt, and the end of the time, in the middle of a run.
rm -rf results/*/ results/artifact.json
job c_should 2 '"ttft_ms": 300'
interrupted() { # signal
    "$testbed" artifact --budget 6m >out 2>err &
    pid=$!
    until grep -q '"cell"' results/c_should/c_should.journal 2>log; do
        kill -0 $pid 2>log || return 1
        sleep 0.02
    done
    kill -"$1" $pid
    wait $pid 2>log
    cat out err
    tries=0
    until flock -n results/c_should/c_should.journal true; do # who measures holds it
        tries=$((tries + 1))
        [ $tries -lt 200 ] || return 1
        sleep 0.05
    done
}
# A shell makes its background commands ignore INT.
check "an interrupt, after which nothing is left running" interrupted TERM
check "says how to go on" grep -q ' artifact --budget 6m --resume$' err
check "what was finished is noted" grep -q d_should_more results/artifact.json
check "what was not, is not" sh -c '! grep -q c_should results/artifact.json'
check "it goes on" ran 0 --budget 6m --resume
check "with the cell that was left" grep -q 'of 3 cells are finished' err
check "and without what was finished" [ "$(ls results/d_should_more/*.h5 | wc -l)" = 1 ]
rm -rf results/*/ results/artifact.json
job d_should_more 0.001 '"ttft_ms": 500'
check "the end of the time" ran 0 --budget 2s
check "stops what still runs" grep -q 'd_should_more: stopped at the end of the time' out
check "more time continues it" ran 0 --budget 60s --resume
check "to its record" ls results/d_should_more/latest.json

check "a broken time" refuses 2 'budget: expected a time such as 90s, 10m or 1h, found "soon"' \
    "$testbed" artifact --budget soon
echo '[]' >results/artifact.json
check "a damaged state" refuses 2 'results/artifact.json: expected an object' "$testbed" artifact --resume
echo '{' >experiments/g_broken.json
check "a broken experiment" refuses 2 'g_broken.json' "$testbed" artifact --dry-run

rm -f experiments/g_broken.json results/artifact.json

# A set: its order, its settings, a share of the time for each.
rm -rf results/*/
mkdir experiments/sets
cat >experiments/sets/mine.json <<'JSON'
{"about": "a set", "experiments": [
 {"name": "f_short", "why": "first", "tag": "two", "minutes": 0.4, "set": {"system.ttft_ms": [1, 2], "repeats": 1}},
 {"name": "e_long", "why": "too long"},
 {"name": "a_plain", "why": "slow", "tag": "slow", "minutes": 0.08,
  "set": {"system.ttft_ms": [1000, 1001, 1002, 1003, 1004], "repeats": 1}},
 {"name": "c_should", "why": "last", "minutes": 0.4}]}
JSON
check "a set: a dry run" ran 0 --set mine --budget 57s --dry-run
check "in its order, by folder" [ "$(sed -n 's|^  run *\([a-z_/]*\) .*|\1|p' out | tr '\n' ' ')" = \
    "f_short/two a_plain/slow c_should " ]
check "with its reasons" grep -q 'a_plain/slow *0.08 min  slow$' out
check "a set: a run" ran 0 --set mine --budget 57s
check "the settings are the set's" grep -q '"n ttft_ms=2"' results/f_short/two/latest.json
check "one without settings is the experiment itself" ls results/c_should/latest.json
check "one that takes longer than its share has a record" ls results/a_plain/slow/latest.json
check "which says what it lacks" grep -q 'the time of --limit was over' out
check "so that the next has its time" grep -q '^== c_should: last' out
check "what does not fit is named" grep -q 'left out for want of time: e_long (500 min)' out
check "the folders are named" grep -q -x 'results/f_short/two' out
check "no page is written for a set" [ ! -e results/report ]
check "a set: what was done is not run again" ran 0 --set mine --budget 57s --resume
check "and is named so" grep -q '^== f_short/two: done before' out
sed -i 's/"about": "a job"/"smoke": {"repeats": 1}, &/' experiments/*.json
check "the smoke sections of a set" ran 0 --set ./experiments/sets/mine.json --smoke --budget 9h
check "in folders of their own" ls results/f_short/two-smoke/latest.json results/e_long/smoke/latest.json
check "an unknown set" refuses 2 'experiments/sets/yours.json' "$testbed" artifact --set yours
broken_set() { # text, error
    echo "$1" >experiments/sets/broken.json
    refuses 2 "$2" "$testbed" artifact --set broken --dry-run
}
check "a set with an unknown key" broken_set '{"experiments": [{"name": "f_short", "why": "w", "tga": "t"}]}' \
    'did you mean "tag"'
check "a set with a setting that is none" broken_set \
    '{"experiments": [{"name": "f_short", "why": "w", "tag": "t", "set": {"load.n_request": 3}}]}' \
    'did you mean "n_requests"'
check "a set with settings and no tag" broken_set \
    '{"experiments": [{"name": "f_short", "why": "w", "set": {"load.n_requests": 3}}]}' 'needs a "tag"'
check "a set with no experiments" broken_set '{"about": "none"}' 'experiments: expected'

unset SANDWICH_HOME
rm -rf results
check "the shipped experiments" ran 0 --budget 100h --dry-run
check "none is left out" sh -c '! grep -q "left out" out'
check "the first decides claims that should hold" sh -c 'grep "^  run" out | head -n 1 | grep -q "should hold"'
for set in "$top"/experiments/sets/*.json; do
    check "the shipped set ${set##*/}" ran 0 --set "$set" --budget 9m --dry-run
done
finish
