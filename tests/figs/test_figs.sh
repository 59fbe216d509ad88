#!/bin/sh
# Every figure draws from a made-up result, with all numbers and with none, and draws the same
# SVG twice; every experiment has its figure and the other way round.
set -u
python=${PYTHON:-/usr/bin/python3}
build=${BUILD:-build}
n=0
ok() {
    n=$((n + 1))
    echo "ok $n - $1"
}
not_ok() {
    n=$((n + 1))
    failed=1
    echo "not ok $n - $1"
    sed 's/^/# /' "$dir/log"
}
failed=0
dir=$(mktemp -d "$build/figs.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT

# The names must agree whether or not figures can be drawn here.
ls experiments/*.json | sed 's|.*/||; s|\.json$||' >"$dir/experiments"
ls paper-figs/*.py | sed 's|.*/||; s|\.py$||' | grep -v '^sweep$' >"$dir/figures"
if diff "$dir/experiments" "$dir/figures" >"$dir/log"; then
    ok "every experiment has its figure"
else
    not_ok "every experiment has its figure"
fi

stems=$(cat "$dir/figures")
if ! "$python" -c 'import matplotlib, h5py' 2>/dev/null; then
    for s in $stems; do
        n=$((n + 1))
        echo "# skip: $python has no matplotlib or h5py"
        echo "ok $n - $s # SKIP"
    done
    echo "1..$n"
    exit $failed
fi

draw() { # result, folder, script
    "$python" "paper-figs/$3.py" "$1" "$2" >"$dir/log" 2>&1 &&
        test -s "$2/$3.svg" && test -s "$2/$3.png"
}
for s in $stems; do
    for kind in "" missing; do
        what="$s${kind:+ with every number missing}"
        h5=$dir/$s$kind.h5
        if "$python" tests/figs/make_result.py "$h5" "$s" $kind >"$dir/log" 2>&1 &&
            draw "$h5" "$dir/a$kind" "$s" && draw "$h5" "$dir/b$kind" "$s"; then
            ok "$what is drawn"
        else
            not_ok "$what is drawn"
            continue
        fi
        if cmp "$dir/a$kind/$s.svg" "$dir/b$kind/$s.svg" >"$dir/log" 2>&1; then
            ok "$what is the same SVG twice"
        else
            not_ok "$what is the same SVG twice"
        fi
    done
    # The numbers must reach the picture: without them it is another one.
    if cmp -s "$dir/a/$s.svg" "$dir/amissing/$s.svg"; then
        echo "drawn alike with and without numbers" >"$dir/log"
        not_ok "$s shows its numbers"
    else
        ok "$s shows its numbers"
    fi
done
# A sweep by --set is drawn as one by the experiment's own script; sweep.py draws any record
# with axes.
for s in quickstart tab03_window; do
    for kind in swept swept_missing; do
        "$python" tests/figs/make_result.py "$dir/$s$kind.h5" "$s" $kind >"$dir/log" 2>&1 &&
            draw "$dir/$s$kind.h5" "$dir/$kind" "$s"
    done
    if ! cmp -s "$dir/swept/$s.svg" "$dir/swept_missing/$s.svg" &&
        ! cmp -s "$dir/swept/$s.svg" "$dir/a/$s.svg" &&
        "$python" paper-figs/sweep.py "$dir/${s}swept.h5" "$dir/any" >"$dir/log" 2>&1 &&
        cmp "$dir/swept/$s.svg" "$dir/any/$s.svg" >"$dir/log" 2>&1; then
        ok "$s, swept, is drawn as a sweep"
    else
        not_ok "$s, swept, is drawn as a sweep"
    fi
done
sweep=$dir/swept/quickstart.svg
if grep -q '<!-- overloaded -->' "$sweep" && grep -q 'weight_type=f32' "$sweep" &&
    grep -q 'load.rate_rps' "$sweep" && ! grep -q '<!-- overloaded -->' "$dir/swept_missing/quickstart.svg"; then
    ok "a sweep shows rates, lines and overload"
else
    not_ok "a sweep shows rates, lines and overload"
fi
# Variants that are one system, and those that are skipped, are named below the figure.
if grep -q 'same configuration: one_plan, plan, plan_tuned' "$dir/a/fig11_throughput.svg" &&
    grep -q 'skipped: llama.cpp (llama-server: not found)' "$dir/a/fig11_throughput.svg" &&
    grep -q '95 % interval' "$dir/a/fig11_throughput.svg"; then
    ok "equal and skipped variants are named"
else
    not_ok "equal and skipped variants are named"
fi
# Older records call their evidence truth: the figure is the same.
"$python" -c "import h5py, shutil, sys
shutil.copy(sys.argv[1], sys.argv[2])
with h5py.File(sys.argv[2], 'a') as f: f.attrs['truth'] = f.attrs.pop('evidence')" \
    "$dir/quickstart.h5" "$dir/older.h5" >"$dir/log" 2>&1
if draw "$dir/older.h5" "$dir/older" quickstart && grep -q measured_small "$dir/a/quickstart.svg" &&
    cmp "$dir/a/quickstart.svg" "$dir/older/quickstart.svg" >"$dir/log" 2>&1; then
    ok "a record of before is drawn as it was"
else
    not_ok "a record of before is drawn as it was"
fi
# The papers' numbers are named with their machine: on the axis where they fit, else in words.
if grep -q '<!-- Sandwich, Xeon 8272CL -->' "$dir/a/tab01_ablation.svg" &&
    grep -q '<!-- Sandwich, 2x EPYC 7H12: 378 to 973, off this axis -->' "$dir/a/tab03_window.svg"; then
    ok "a figure shows the paper's numbers and machine"
else
    not_ok "a figure shows the paper's numbers and machine"
fi
# A record whose median is not that of its own times is refused, not drawn.
"$python" tests/figs/make_result.py "$dir/wrong.h5" quickstart >"$dir/log" 2>&1
"$python" -c "import h5py, sys
with h5py.File(sys.argv[1], 'a') as f: f['cells/0000/summary/p50_ttft_ms'][()] *= 1.01" "$dir/wrong.h5"
if ! draw "$dir/wrong.h5" "$dir/wrong" quickstart && grep -q 'the record says' "$dir/log"; then
    ok "a record that contradicts itself is refused"
else
    not_ok "a record that contradicts itself is refused"
fi
if RESULTS=$dir/none "$python" paper-figs/quickstart.py >"$dir/log" 2>&1 &&
    grep -q 'no result yet: make experiment NAME=quickstart' "$dir/log"; then
    ok "without a result, the command that makes one is named"
else
    not_ok "without a result, the command that makes one is named"
fi
echo "1..$n"
exit $failed
