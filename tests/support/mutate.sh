#!/bin/sh
# Would the tests notice? Every operator and constant of a module is changed, one at a time.
#
#     sh tests/support/mutate.sh [-e N] [-k K] [-r FILE] MODULE     a module of tests/support/mutants.txt
#
# -e N: each N-th change only, -k K: from the K-th on. -r FILE: verdicts are kept there, one a line, and a
# change that has one is not tried again. A change that gives the same machine code is none; a program that
# hangs has noticed. Prints what survives without a reason in tests/support/survivors.txt, reasons for what
# does not survive, then the counts; fails where there are such.
set -u
build=${BUILD:-build}
every=1
first=1
kept=
while getopts e:k:r: o; do
    case $o in
    e) every=$OPTARG ;;
    k) first=$OPTARG ;;
    r) kept=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
row=$(grep "^${1:-none} *|" tests/support/mutants.txt) || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
module=$1
files=$(echo "$row" | cut -d'|' -f2)
tests=$(echo "$row" | cut -d'|' -f3)
. tests/support/tap.sh
. tests/support/broken.sh
kept=${kept:-$dir/verdicts}
touch "$kept"
# shellcheck disable=SC2086
need_tests $tests
tab=$(printf '\t')

# Without debug information a mutant is compiled and linked in half the time.
lean=$dir/lean
mkdir -p "$lean/gen" "$lean/obj/tests"
sed 's/ -g / /' "$build/gen/flags" >"$lean/gen/flags"
cp "$build/libtestbed.a" "$build/libsandwich.a" "$lean/"
for t in $tests; do
    mkdir -p "$lean/obj/tests/${t%/*}"
    cp "$build/obj/tests/$t.o" "$lean/obj/tests/$t.o"
done
strip -g "$lean"/*.a "$lean"/obj/tests/*/*.o "$dir/support.a"
build=$lean

# Seconds of processor time of the last command, rounded up.
cpu_s() {
    ( "$@" >"$dir/log" 2>&1 || echo failed >"$dir/failed"; times ) | awk '
        NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/); print int(60 * (u[1] + s[1]) + u[2] + s[2]) + 1 }'
}

# shellcheck disable=SC2086
for f in $files; do
    compile_broken "$f" "$dir/original.o" || exit 1
    strip -o "$dir/$(echo "$f" | tr / .)" "$dir/original.o"
    awk -f tests/support/mutants.awk "$f" | sed "s,^,$f$tab," >>"$dir/list"
done
for t in $tests; do
    link_broken "$dir/original.o" "$t" "$dir/unchanged" || exit 1
    s=$(cpu_s "$dir/unchanged")
    [ ! -e "$dir/failed" ] || { echo "$t fails without any change:"; tail -n 20 "$dir/log"; exit 1; }
    echo "$t" $((5 * s + 2)) >>"$dir/limits"
done
# A change is known by its file, its place in a line without indentation, what it puts there, and that line.
awk -F"$tab" -v OFS="$tab" -v every="$every" -v first="$first" -v kept="$kept" '
    BEGIN { while ((getline line < kept) > 0) { split(line, f, FS); seen[f[2] FS f[3] FS f[4] FS f[5]] } }
    { text = $6; indent = match(text, /[^ \t]/) - 1; sub(/^[ \t]+/, "", text)
      key = $1 OFS $3 - indent OFS $5 OFS text }
    FNR % every == first % every && !(key in seen) { print $1, $2, $3, $4, $5, $3 - indent, text }' \
    "$dir/list" >"$dir/chosen"

judge() { # folder, file, line, column, length, new text: prints the verdict
    at=$1
    awk -v line="$3" -v col="$4" -v len="$5" -v new="$6" 'NR == line {
        new = new == "nothing" ? "" : new
        $0 = substr($0, 1, col - 1) new substr($0, col + len) } { print }' "$2" >"$at/m.c"
    compile_broken "$at/m.c" "$at/m.o" 2>/dev/null || { echo invalid; return; }
    strip -o "$at/s.o" "$at/m.o"
    cmp -s "$at/s.o" "$dir/$(echo "$2" | tr / .)" && { echo equal; return; }
    while read -r t limit; do
        link_broken "$at/m.o" "$t" "$at/test" || { echo invalid; return; }
        (ulimit -t "$limit"; timeout 120 "$at/test" >"$at/log" 2>&1)
        case $? in
        0) ;;
        124) echo hangs && return ;;
        *) echo found && return ;;
        esac
    done <"$dir/limits"
    echo survived
}

k=0
while IFS=$tab read -r file line col len new place text; do
    k=$((k + 1))
    {
        mkdir "$dir/m$k"
        verdict=$(judge "$dir/m$k" "$file" "$line" "$col" "$len" "$new" 2>/dev/null)
        rm -rf "${dir:?}/m$k"
        printf '%s\t%s\t%s\t%s\t%s\n' "$verdict" "$file" "$place" "$new" "$text" >>"$kept"
    } &
    [ $((k % broken_jobs)) != 0 ] || wait
done <"$dir/chosen"
wait
awk -F"$tab" -v module="$module" -v all="$(wc -l <"$dir/list")" '
    FILENAME ~ /survivors.txt$/ { if ($1 !~ /^#/ && NF) why[$1 FS $2 FS $3 FS $4] = $5; next }
    { n[$1]++; total++; key = $2 FS $3 FS $4 FS $5 }
    $1 == "survived" && !(key in why) { print "no reason: " key; bad = 1 }
    $1 != "survived" && key in why { print "a reason, but " $1 ": " key; bad = 1 }
    END {
        real = n["found"] + n["hangs"] + n["survived"]
        printf "%s: %d of %d changes tried: %d do not compile, %d give the same machine code; of the other %d " \
               "the tests notice %d, %d of them by a hang, and %d survive (%.1f %%)\n",
            module, total, all, n["invalid"], n["equal"], real, n["found"] + n["hangs"], n["hangs"],
            n["survived"], real ? 100 * n["survived"] / real : 0
        exit bad
    }' tests/support/survivors.txt "$kept"
