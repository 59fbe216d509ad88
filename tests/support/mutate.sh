#!/bin/sh
# Would the tests notice? Every operator and constant of a module is changed, one at a time.
#
#     sh tests/support/mutate.sh [-s] [-e N] [-k K] [-r FILE] MODULE     one of tests/support/mutants.txt
#
# -e N: each N-th change only, -k K: from the K-th on. -s: what survives is tried with the sanitizers of
# `make test SAN=address,undefined` as well. -r FILE: verdicts are kept there, one a line, and a change that
# has one is not tried again. A change that gives the same machine code is none; a program that hangs has
# noticed. Prints what survives without a reason in tests/support/survivors.txt, reasons for what does not
# survive, then the counts; fails where there are such.
set -u
plain=${BUILD:-build}
every=1
sanitize=
first=1
kept=
while getopts se:k:r: o; do
    case $o in
    s) sanitize=1 ;;
    e) every=$OPTARG ;;
    k) first=$OPTARG ;;
    r) kept=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
row=$(grep "^${1:-none} *|" tests/support/mutants.txt) || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
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
make_lean() { # build folder: what is needed of it in $build, and $support
    build=$dir/lean-$1
    support=$build/support.a
    mkdir -p "$build/gen"
    sed 's/ -g / /' "$1/gen/flags" >"$build/gen/flags"
    cp "$1/libtestbed.a" "$1/libsandwich.a" "$build/"
    ar rcs "$support" "$1"/obj/tests/support/*.o
    for t in $tests; do
        mkdir -p "$build/obj/tests/${t%/*}"
        cp "$1/obj/tests/$t.o" "$build/obj/tests/$t.o"
    done
    strip -g "$build"/*.a "$build"/obj/tests/*/*.o
}

# The limits of a program: seconds of processor time, and of waiting, by what it takes unchanged.
limits_of() {
    started=$(date +%s)
    ( "$@" >"$dir/log" 2>&1 || echo failed >"$dir/failed"; times ) | awk -v started="$started" '
        NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/); cpu = int(60 * (u[1] + s[1]) + u[2] + s[2]) + 1
                  "date +%s" | getline now; print 5 * cpu + 2, 10 * (now - started) + 10 }'
}

# What each program takes unchanged, into $build/limits.
measure_unchanged() {
    for t in $tests; do
        link_broken "$dir/original.o" "$t" "$dir/unchanged" || exit 1
        limits=$(limits_of "$dir/unchanged")
        [ ! -e "$dir/failed" ] || { echo "$t fails without any change:"; tail -n 20 "$dir/log"; exit 1; }
        echo "$t $limits" >>"$build/limits"
    done
}

if [ "$sanitize" ]; then
    with=build-address-undefined
    # shellcheck disable=SC2046,SC2086
    make -s SAN=address,undefined MODULE= "$with/libtestbed.a" "$with/libsandwich.a" \
        $(printf "$with/obj/tests/%s.o\n" $tests | sort -u) \
        $(printf "$with/obj/%s.o\n" tests/support/*.c | sed 's/\.c\.o/.o/') || exit 1
    make_lean "$with"
    for f in $files; do break; done
    compile_broken "$f" "$dir/original.o" || exit 1
    measure_unchanged
    sanitized=$build
fi
make_lean "$plain"
# shellcheck disable=SC2086
for f in $files; do
    compile_broken "$f" "$dir/original.o" || exit 1
    strip -o "$dir/$(echo "$f" | tr / .)" "$dir/original.o"
    awk -f tests/support/mutants.awk "$f" | sed "s,^,$f$tab," >>"$dir/list"
done
measure_unchanged
# A change is known by its file, its place in a line without indentation, what it puts there, and that line.
awk -F"$tab" -v OFS="$tab" -v every="$every" -v first="$first" -v kept="$kept" '
    BEGIN { while ((getline line < kept) > 0) { split(line, f, FS); seen[f[2] FS f[3] FS f[4] FS f[5]] } }
    { text = $6; indent = match(text, /[^ \t]/) - 1; sub(/^[ \t]+/, "", text)
      key = $1 OFS $3 - indent OFS $5 OFS text }
    FNR % every == first % every && !(key in seen) { print $1, $2, $3, $4, $5, $3 - indent, text }' \
    "$dir/list" >"$dir/chosen"

run_all() { # folder with m.o: prints nothing where all programs pass
    while read -r t cpu_s wait_s; do
        link_broken "$1/m.o" "$t" "$1/test" || { echo invalid; return; }
        # The first assertion that fails ends the program.
        (ulimit -c 0; ulimit -t "$cpu_s"; CMOCKA_TEST_ABORT=1 timeout -k 1 "$wait_s" "$1/test" >"$1/log" 2>&1)
        case $? in
        0) ;;
        124 | 137 | 152) echo hangs && return ;;
        *) echo found && return ;;
        esac
    done <"$build/limits"
}

judge() { # folder, file, line, column, length, new text: prints the verdict
    awk -v line="$3" -v col="$4" -v len="$5" -v new="$6" 'NR == line {
        new = new == "nothing" ? "" : new
        $0 = substr($0, 1, col - 1) new substr($0, col + len) } { print }' "$2" >"$1/m.c"
    compile_broken "$1/m.c" "$1/m.o" 2>/dev/null || { echo invalid; return; }
    strip -o "$1/s.o" "$1/m.o"
    cmp -s "$1/s.o" "$dir/$(echo "$2" | tr / .)" && { echo equal; return; }
    verdict=$(run_all "$1")
    if [ -z "$verdict" ] && [ "$sanitize" ]; then
        build=$sanitized support=$sanitized/support.a
        compile_broken "$1/m.c" "$1/m.o"
        case $(run_all "$1") in
        found | hangs) verdict=sanitized ;;
        esac
    fi
    echo "${verdict:-survived}"
}

try_all() { # number of a list
    mkdir "$dir/m$1"
    while IFS=$tab read -r file line col len new place text; do
        verdict=$(judge "$dir/m$1" "$file" "$line" "$col" "$len" "$new" 2>/dev/null)
        printf '%s\t%s\t%s\t%s\t%s\n' "$verdict" "$file" "$place" "$new" "$text" >>"$kept"
    done <"$dir/chosen.$1"
}
for j in $(seq "$broken_jobs"); do
    awk -v j="$j" -v jobs="$broken_jobs" 'NR % jobs == j % jobs' "$dir/chosen" >"$dir/chosen.$j"
    try_all "$j" &
done
wait
awk -F"$tab" -v module="$module" -v all="$(wc -l <"$dir/list")" '
    FILENAME ~ /survivors.txt$/ { if ($1 !~ /^#/ && NF) why[$1 FS $2 FS $3 FS $4] = $5; next }
    { n[$1]++; total++; key = $2 FS $3 FS $4 FS $5 }
    $1 == "survived" && !(key in why) { print "no reason: " key; bad = 1 }
    $1 != "survived" && key in why { print "a reason, but " $1 ": " key; bad = 1 }
    END {
        noticed = n["found"] + n["hangs"] + n["sanitized"]
        real = noticed + n["survived"]
        printf "%s: %d of %d changes tried: %d do not compile, %d give the same machine code; of the other %d " \
               "the tests notice %d, %d by a hang, %d with sanitizers only, and %d survive (%.1f %%)\n",
            module, total, all, n["invalid"], n["equal"], real, noticed, n["hangs"], n["sanitized"],
            n["survived"], real ? 100 * n["survived"] / real : 0
        exit bad
    }' tests/support/survivors.txt "$kept"
