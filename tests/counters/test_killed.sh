#!/bin/sh
# A testbed that is killed while a program of its own runs (here valgrind, played by a script):
# the program ends with it.
# Regression: a killed testbed left valgrind running, and its files.
set -u
. tests/support/tap.sh
PATH=$(realpath "$dir"):$PATH
folders() { # how many folders of valgrind's files there are
    find results -maxdepth 1 -name 'callgrind.*' | wc -l
}
waits_for() { # command: until it succeeds, 60 s at most
    for _ in $(seq 600); do
        "$@" >"$dir/log" 2>&1 && return 0
        sleep 0.1
    done
    return 1
}
ended() { # process: it is gone, or dead and not waited for yet
    ! grep '^State:.[^ZX]' "/proc/$1/status"
}
run="$build/testbed run $dir/job.json --smoke --quiet --fresh --out $dir/counters
    --set study.phase=decode --set study.batch=1"
sed -e "s,build/models/[a-z0-9.-]*,$dir/tiny.gguf," -e "s,build/sandwich,$sandwich," \
    experiments/fig01_characterization.json >"$dir/job.json"

"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" >"$dir/log" 2>&1

cat >"$dir/valgrind" <<EOF
#!/bin/sh
for word; do case \$word in --log-file=*) echo started >"\${word#*=}" ;; esac; done
echo \$\$ >"$dir/new" && mv "$dir/new" "$dir/pid"
exec sleep 1000
EOF
chmod +x "$dir/valgrind"
$run >"$dir/run" 2>&1 &
testbed=$!
check "valgrind runs" waits_for test -s "$dir/pid"
check "its files lie in a folder of their own" test "$(folders)" -ge 1
kill -9 $testbed
wait $testbed 2>/dev/null
check "it ends with the testbed" waits_for ended "$(cat "$dir/pid")"
printf '#!/bin/sh\nexit 3\n' >"$dir/valgrind"
check "the next run succeeds" $run
check "nothing is left of valgrind's files" test "$(folders)" -eq 0
finish
