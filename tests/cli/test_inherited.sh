#!/bin/sh
# What a program inherits must not break it: closed standard descriptors, SIGCHLD ignored.
# Regression: a journal got descriptor 2 where the run began without one, and warnings were written
# into it; and children were reported lost where SIGCHLD was inherited as ignored.
set -u
. tests/support/tap.sh
testbed=$build/testbed
cat >"$dir/job.json" <<END
{"about": "a small job", "system": {"adapter": "scripted", "ttft_ms": [1, 2]},
 "dataset": {"n": 5, "max_prompt_tok": 8, "max_output_tok": 3},
 "load": {"n_requests": 5, "lateness_warn_ms": 1e-6},
 "prepare": [{"run": ["touch", "$dir/prepared"], "creates": "$dir/prepared"}]}
END

whole() { # folder of a record: it has every request of both cells
    "$testbed" export "$1"/*.h5 --format csv >"$dir/csv" || return 1
    [ "$(grep -c ',ok,' "$dir/csv")" = 10 ] && [ ! -e "$1/job.journal" ]
}

closed() { # a descriptor
    eval '"$testbed" run "$dir/job.json" --trust-prepare --out "$dir/without$1"' "$1>&-"
    status=$?
    # What is printed on a closed standard output is lost, which may be reported.
    [ $status = 0 ] || [ $1 = 1 ] || { echo "status $status"; return 1; }
    whole "$dir/without$1"
}
for fd in 0 1 2; do
    check "testbed run without descriptor $fd: the record is whole" closed $fd
done
check "testbed run without any: the record is whole" \
    sh -c "$testbed run $dir/job.json --trust-prepare --out $dir/without 0>&- 1>&- 2>&-; [ -e $dir/without/*.h5 ]"
check "it can be exported" whole "$dir/without"

# Not every shell hands an ignored signal on.
ignoring() {
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$@"
}
rm -f "$dir/prepared"
check "testbed run with SIGCHLD ignored" ignoring "$testbed" run "$dir/job.json" --trust-prepare --out "$dir/ignored"
check "its record is whole" whole "$dir/ignored"
check "export with SIGCHLD ignored" ignoring "$testbed" export "$dir"/ignored/*.h5 --out "$dir/csv"
check "make a model with SIGCHLD ignored" ignoring "$sandwich" model make --arch tiny --out "$dir/t.gguf"
check "ranks as processes with SIGCHLD ignored" ignoring "$sandwich" run --no-pin --model "$dir/t.gguf" \
    --ranks 2 --rank-mode processes --prompt-ids 1,2,3 --ids -n 4
finish
