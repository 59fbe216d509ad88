# What test scripts of a program share; sourced. Gives $build, $sandwich, $dir (a folder that is
# removed at the end) and counts in $n and $failed; a script ends in `finish`.
build=${BUILD:-build}
sandwich=$build/sandwich
dir=$(mktemp -d "$build/tap.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
n=0
failed=0

check() { # name, command that must succeed
    n=$((n + 1))
    name=$1
    shift
    if "$@" >"$dir/log" 2>&1; then
        echo "ok $n - $name"
    else
        failed=1
        echo "not ok $n - $name"
        sed 's/^/# /' "$dir/log"
    fi
}

skip() { # name, why
    n=$((n + 1))
    echo "# skip: $2"
    echo "ok $n - $1 # SKIP"
}

# Runs a command: its status is $got, its output $dir/out and $dir/err, without the warnings about
# a machine card that the checkout may hold and about what else this machine does.
run_quietly() { # command...
    "$@" >"$dir/out" 2>"$dir/err.all"
    got=$?
    grep -Ev '^warning: (machine_card_[a-z]+|noisy_machine|steal|throttled):' "$dir/err.all" >"$dir/err"
    cat "$dir/err"
}

# The command exits with this status, says one line, and the line holds this text.
refuses() { # status, text, command...
    want=$1
    text=$2
    shift 2
    run_quietly "$@"
    [ "$got" = "$want" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -q -- "$text" "$dir/err"
}

finish() {
    echo "1..$n"
    exit $failed
}
