#!/bin/sh
# Every figure draws from a made-up result, with all numbers and with none, in a form that can be
# printed; one in four is drawn twice, and its files are the same; every experiment has its figure and
# the other way round.
# Regression: figures were up to 20 inches wide, labels crossed titles, numbers floated above their
# bars, a table had empty cells, and panels without data were blank.
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

if [ -n "${SANDWICH_ISA:-}" ]; then
    echo "# skip: figures are the same under every instruction set"
    echo "ok 1 - figures # SKIP"
    echo "1..1"
    exit 0
fi

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

files() { # folder, script
    test -s "$1/$2.svg" && test -s "$1/$2.png" && test -s "$1/$2.pdf"
}
draw() { # result, folder, script
    "$python" "paper-figs/$3.py" "$1" "$2" >"$dir/log" 2>&1 && files "$2" "$3"
}
"$python" tests/figs/draw_all.py "$dir" "$n" $stems >"$dir/tap" 2>&1 || failed=1
cat "$dir/tap"
n=$(grep -c '^ok \|^not ok ' "$dir/tap" | awk -v n="$n" '{ print n + $1 }')
# Regression: footers had up to 109 lines, one for each cell that was skipped.
"$python" -c '
import sys
sys.path.insert(0, "paper-figs")
from lib import read
class Cell:
    axes = {}
    def __init__(self, n, why):
        self.attrs = {"state": "skipped", "label": "n=%d" % n, "error": why}
result = read.Result.__new__(read.Result)
result.cells, result.trials, result.again, result.headlines, result.job, result.evidence = [], [], [], {}, {}, "measured"
result.attrs = {"cpu_model": "a processor", "n_cpus": 2}
result.left_out = [Cell(n, "%d ranks need as many cores, here are 2" % (4 + n % 3)) for n in range(54)]
print(result.footer(120, "fig.md"))
result.left_out += [Cell(n, "llama-2-%db has no experts" % n) for n in range(60, 70)]
print(result.footer(120, "fig.md"))
print(*result.notes(), sep="\n")
print("lines", result.footer(24, "fig.md").count("\n"))
' >"$dir/log" 2>&1
if grep -q '^54 cells skipped: 4 to 6 ranks need as many cores, here are 2$' "$dir/log" &&
    grep -q '^64 cells skipped: 4 to 6 ranks .* (54) and 10 other reasons$' "$dir/log" &&
    [ "$(grep -c '^skipped: n=' "$dir/log")" = 64 ] && grep -q '^lines 3$' "$dir/log"; then
    ok "a footer sums up what was skipped, in four lines"
else
    not_ok "a footer sums up what was skipped, in four lines"
fi
if grep -q -x -- '- skipped: llama.cpp (llama-server: not found)' "$dir/a/fig11_throughput.md"; then
    ok "the list is in the Markdown file"
else
    cp "$dir/a/fig11_throughput.md" "$dir/log"
    not_ok "the list is in the Markdown file"
fi
if "$python" tests/figs/check_tables.py >"$dir/log" 2>&1; then
    ok "tables show any text, in Markdown and in LaTeX"
else
    not_ok "tables show any text, in Markdown and in LaTeX"
fi
missing=
for s in $(grep -l 'write_table\|table\.write' paper-figs/*.py | sed 's|.*/||; s|\.py$||'); do
    [ -s "$dir/a/$s.md" ] && [ -s "$dir/a/$s.tex" ] || missing="$missing $s"
done
echo "$missing" >"$dir/log"
if [ -z "$missing" ]; then
    ok "tables are written as Markdown and LaTeX"
else
    not_ok "tables are written as Markdown and LaTeX"
fi
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
# 1.2 of what memory can do is not a number in a figure, which says that the bound is wrong.
"$python" -c "import h5py, shutil, sys
shutil.copy(sys.argv[1], sys.argv[2])
with h5py.File(sys.argv[2], 'a') as f: f['cells/0000/summary/decode_bandwidth_frac'][()] = 1.2" \
    "$dir/quickstart.h5" "$dir/bound.h5" >"$dir/log" 2>&1
if draw "$dir/bound.h5" "$dir/bound" quickstart && grep -q '<!-- Decode: n/a of bandwidth -->' "$dir/bound/quickstart.svg" &&
    grep -q 'bound_exceeded in 1 of [0-9]* cells (1.2, threshold 1.02)' "$dir/bound/quickstart.svg" &&
    ! grep -q '<!-- .*120' "$dir/bound/quickstart.svg"; then
    ok "a share above its bound is not drawn"
else
    not_ok "a share above its bound is not drawn"
fi
# Regression: the size and colours of a matplotlibrc of the user's were taken.
printf 'font.size: 20\nlines.linewidth: 5\naxes.facecolor: red\nsvg.hashsalt: x\n' >"$dir/matplotlibrc"
if MATPLOTLIBRC=$dir draw "$dir/quickstart.h5" "$dir/own" quickstart && cmp "$dir/a/quickstart.svg" "$dir/own/quickstart.svg" >"$dir/log" 2>&1; then
    ok "a matplotlibrc of the user's changes no figure"
else
    not_ok "a matplotlibrc of the user's changes no figure"
fi
# Variants that are one system, and those that are skipped, are named below the figure.
if grep -q 'same configuration: one_plan, plan, plan_tuned' "$dir/a/fig11_throughput.svg" &&
    grep -q 'skipped: llama.cpp (llama-server: not found)' "$dir/a/fig11_throughput.svg" &&
    grep -q '95 % interval' "$dir/a/fig11_throughput.svg"; then
    ok "equal and skipped variants are named"
else
    not_ok "equal and skipped variants are named"
fi
# The variant of the A/A is no system of its own: what it shows is told below the figure, and by the
# ratios. Systems have the order of the job, whichever ran first.
line_of() { # the first with this text
    grep -n -m 1 "<!-- $1" "$dir/a/$2.svg" | cut -d: -f1
}
if ! grep -q "one_plan'" "$dir/a/fig09_slo_scale.svg" "$dir/a/fig11_throughput.svg" "$dir/a/fig12_goodput.svg" &&
    grep -q 'A/A of one_plan: differences below 3.4 % cannot be seen' "$dir/a/fig11_throughput.svg" &&
    grep -q 'grey: not told from 1' "$dir/a/fig11_throughput.svg" &&
    [ "$(line_of one_plan fig11_throughput)" -lt "$(line_of plan_tuned fig11_throughput)" ] &&
    [ "$(line_of one_plan fig09_slo_scale)" -lt "$(line_of plan_tuned fig09_slo_scale)" ]; then
    ok "the second run of the A/A is told, not drawn"
else
    not_ok "the second run of the A/A is told, not drawn"
fi
# A figure whose numbers rest on several kinds of evidence tells them apart, by cells and by names.
if grep -q 'measured_small; simulated: llama-3.2-3b@xeon8272clx2 1 32' "$dir/a/tab01_ablation.svg" &&
    grep -q '(simulated)' "$dir/a/tab01_ablation.svg" &&
    grep -q 'measured_small; measured: search_s; simulated: llama-160m' "$dir/a/tab04_graph_tuning.svg" &&
    ! grep -q simulated "$dir/a/tab03_window.svg"; then
    ok "a figure tells kinds of evidence apart"
else
    not_ok "a figure tells kinds of evidence apart"
fi
# The papers' numbers are named with their machine: on the axis where they fit, else in words.
words() { # of a figure, its lines joined
    sed -n 's/.*<!-- \(.*\) -->.*/\1/p' "$dir/a/$1.svg" | tr '\n' ' '
}
if words tab01_ablation | grep -q 'Sandwich, Xeon 8272CL' &&
    words tab03_window | grep -q 'Sandwich, 2x EPYC 7H12: 378 to 973, off this axis'; then
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
if (cd "$dir" && RESULTS=none "$python" "$OLDPWD/paper-figs/quickstart.py" >log 2>&1) &&
    grep -q 'no result yet: make experiment NAME=quickstart' "$dir/log"; then
    ok "without a result, the command that makes one is named"
else
    not_ok "without a result, the command that makes one is named"
fi
echo "1..$n"
exit $failed
