#!/bin/sh
# Run a command next to busy loops, and stop and continue its process group at random, as a busy
# machine does. A test that fails here and passes alone depends on time. The exit status is the
# command's.
#   sh tests/support/stress.sh LOOPS SEED COMMAND...     # 4 1 make test MODULE=run
set -u
loops=$1
seed=$2
shift 2
started=
trap 'kill $started 2>/dev/null' EXIT
trap 'kill -CONT -- "-$group"; kill -TERM -- "-$group"; exit 130' INT TERM
i=0
while [ $i -lt "$loops" ]; do
    i=$((i + 1))
    while :; do :; done &
    started="$started $!"
done
setsid "$@" &
group=$!
# It runs for at most 2 s, and is stopped for at most 1 s.
awk -v seed="$seed" 'BEGIN { srand(seed); for (;;) print 0.05 + 1.95 * rand(), rand() }' |
    while read -r run_s stop_s; do
        sleep "$run_s"
        kill -STOP -- "-$group" || break
        sleep "$stop_s"
        kill -CONT -- "-$group"
    done 2>/dev/null &
started="$started $!"
wait "$group"
