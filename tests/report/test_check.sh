#!/bin/sh
# `testbed check`: verdicts on made-up claims about a scripted system, what is run, and the exit
# status.
# Regression: a verdict from a record of a noisy machine looked like any other.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1
mkdir experiments

cat >experiments/small.json <<'JSON'
{"about": "a small job", "evidence": "simulated", "system": {"adapter": "scripted", "ttft_ms": 5}, "cost": {"minutes": 0.5},
 "dataset": {"n": 5, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 5, "lateness_warn_ms": 1e6},
 "headline": [{"name": "t", "metric": "p50_ttft_ms", "better": "lower"}, {"name": "n", "metric": "n_completed"}]}
JSON
claims() { # rule of the claim that should hold
    cat >claims.json <<JSON
{"claims": [
 {"name": "served", "paper": "P", "section": "1", "text": "all are served", "experiment": "small", "reproduced": "$1", "should": "reproduced", "compared": [{"names": "n", "values": [3, 4, 5, 6, 7]}]},
 {"name": "quick", "paper": "P", "section": "2", "text": "it is quick", "experiment": "small", "reproduced": "t < 0.001", "shape": "t < 60000", "compared": [{"names": "t", "about": 150000}]},
 {"name": "never", "paper": "P", "section": "3", "text": "it is never slow", "experiment": "small", "reproduced": "t < 0", "compared": ["t"]},
 {"name": "soon", "paper": "P", "section": "3", "text": "it is soon", "experiment": "small", "reproduced": "t < 60000", "compared": [{"names": "t", "about": 60000}]},
 {"name": "elsewhere", "paper": "Q", "section": "4", "text": "on another machine", "why": "no such machine"}]}
JSON
}
checked() { # status, command words...
    want=$1
    shift
    SANDWICH_HOME=$dir "$testbed" check --claims claims.json "$@" >out 2>err
    got=$?
    cat out err
    [ "$got" = "$want" ]
}

claims 'n = 5'
check "without records" checked 0
check "nothing is run" [ ! -e results ]
check "the command and its minutes are named" grep -q '0.5 min: testbed run small' out
check "what cannot be tested here says why" grep -q 'no such machine' out
check "missing records are made" checked 0 --run --quiet
check "once" [ "$(ls results/small/*.h5 | wc -l)" = 1 ]
check "the totals" grep -q '^1 reproduced, 1 reproduced in shape, 1 consistent, 0 undecided, 0 undecided: no interval, 1 not reproduced, 1 not testable here, 0 no record yet$' out
check "with records, nothing is run" checked 0 --run --quiet
check "so there is one" [ "$(ls results/small/*.h5 | wc -l)" = 1 ]
check "a comparison shows its numbers" grep -q 'n (5) = 5' out
check "what chance passes is consistent" grep -q '^soon *consistent' out
check "chance is counted" checked 0 --null
check "for each rule" [ "$(grep -c '^    by chance, ' out)" = 5 ]
check "of 5 values, one" grep -q 'by chance, reproduced: 20.0 % (equal 20.0 %, of any size 20.0 %, exchanged' out
simulators() { # headline
    claims 'n = 5'
    sed -i "1s/^{/{\"simulators\": {\"P\": {\"experiment\": \"small\", \"error\": \"$1\"}}, /" claims.json
}
simulators n
check "a simulator's error" checked 0
check "is printed with each verdict on simulated numbers" \
    [ "$(grep -c '; the simulator errs by 5 %, in ratios by 5 % (small)' out)" = 4 ]
simulators none
check "an error that no record has" checked 0
check "is not known" grep -q '; how far the simulator errs is not known' out
claims 'n > 0'
check "a rule that no draw fails" checked 2 --null
check "is refused" grep -q 'reproduced: 100.0 % (.*): refused, no draw fails it' out
check "and gives no verdict" grep -q '^served *consistent' out
claims 'n = 6'
check "a claim that should hold fails" checked 4
check "and is named" grep -q '^1 should hold and does not: served$' out
check "a claim" checked 0 quick
check "with what the paper says, and its record" grep -q 'the paper: it is quick' out
check "and no other" [ "$(grep -c '^[a-z]' out)" = 1 ]
check "an experiment's claims" checked 4 small
check "a paper's claims" checked 0 Q
check "an unknown name" refuses 2 'did you mean "quick"' env SANDWICH_HOME="$dir" "$testbed" check --claims claims.json quik
rm results/small/*.h5
"$testbed" run small --quiet --set load.lateness_warn_ms=1e-6 --set load.process=constant \
    --set load.rate_rps=50 --out results/small >log 2>&1
check "a record with a warning" checked 0 quick
check "which is next to the verdict" grep -q '^    warnings: .*lateness in 1 of 1 cell (' out
claims 'n =='
check "a broken list" refuses 2 'served: reproduced: expected' "$testbed" check --claims claims.json
claims 'n = 5'
echo damaged >"$(ls results/small/*.h5)"
check "a verdict needs only the head" checked 0
echo damaged >results/small/latest.json
check "a damaged head" checked 3
check "is named" grep -q 'results/small/latest.json: ' out

cat >interrupt.py <<'PY'
"""Interrupts a command once it waits for a reader of its output, and prints what it says then."""
import fcntl, os, signal, subprocess, sys, termios, time
ours, theirs = os.pipe()
fcntl.fcntl(theirs, 1031, 4096)  # F_SETPIPE_SZ
p = subprocess.Popen(sys.argv[1:], stdout=theirs, stderr=subprocess.PIPE)
os.close(theirs)
while int.from_bytes(fcntl.ioctl(ours, termios.FIONREAD, b"1234"), "little") < 4096 and p.poll() is None:
    time.sleep(0.01)
p.send_signal(signal.SIGINT)
said = p.communicate()[1].decode()
print(p.returncode, said)
sys.exit(p.returncode != -signal.SIGINT or said != "")
PY
check "interrupted, where nothing runs, it says nothing of runs" env -u SANDWICH_HOME python3 interrupt.py \
    "$testbed" check --published
cat >watch.py <<'PY'
"""Runs a command whose errors go to a terminal: it shows how far it is there, and then nothing."""
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
shown = b""
try:
    while part := os.read(ours, 4096):
        shown += part
except OSError:  # the other end is closed
    pass
p.wait()
print(shown)
sys.exit(b"claim 5 of 5" not in shown or not shown.endswith(b"\r\x1b[K"))
PY
check "a terminal shows how far it is, and no trace of it stays" env SANDWICH_HOME="$dir" python3 watch.py \
    "$testbed" check --claims claims.json
# What of the papers is tested.
"$testbed" coverage >out 2>err
check "coverage" [ "$?" = 0 ]
check "of all papers" grep -q '^All papers: [0-9]* full, [0-9]* partial, [0-9]* other, [0-9]* none$' out
"$testbed" coverage ODMA >out 2>err
check "of one paper" [ "$(grep -c '^[A-Z]' out)" = 2 ]
"$testbed" coverage fig06_cross_sections >out 2>err
check "of one experiment" grep -q '^Sandwich: 1 full, 0 partial, 0 other, 0 none$' out
check "an unknown paper" refuses 2 'did you mean "ODMA"' "$testbed" coverage ODM
finish
