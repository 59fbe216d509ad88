#!/bin/sh
# Check the tree (by default this one) against the rules that lint checks. Each fault is one line
# "file:line: rule: what", and any fault makes the exit status 1.
#   sh tests/lint/lint.sh [TREE]      BUILD: folder of the objects, below TREE
#                                     MODULES: another list than tests/lint/modules.txt
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}" || exit 2
BUILD=${BUILD:-build}
CC=${CC:-gcc}
modules=${MODULES:-$here/modules.txt}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT

# The two slow checks pass over what has not changed since a run that found no fault.
clean=$BUILD/lint.clean
touch "$tmp/start"
if [ .clang-format -nt "$clean" ] || [ "$modules" -nt "$clean" ] || [ "$0" -nt "$clean" ]; then
    clean=
fi
changed() { # of the files of the input, one a line
    while read -r f; do
        [ -n "$clean" ] && [ -f "$clean" ] && [ ! "$f" -nt "$clean" ] || echo "$f"
    done
}

# Every file that is or could be committed, one a line.
if [ -e .git ]; then
    git ls-files -co --exclude-standard | while read -r f; do [ -f "$f" ] && echo "$f"; done
else
    find . -type f ! -path './build*' | sed 's,^\./,,'
fi | sort >"$tmp/files"
grep '\.[ch]$' "$tmp/files" >"$tmp/c"

check_source() { # include, size, condition, print
    [ -s "$tmp/c" ] && xargs awk -v MODULES="$modules" -f "$here/source.awk" "$modules" <"$tmp/c"
}

# modules.txt lists the modules of the engine and of the experiments from the lowest up, and each
# may include only modules above its own line: so the arrows of the include graph run down and
# cannot form a cycle. An entry for a part of a module obeys the order of the module's own line.
check_order() {
    awk -F ' *[|] *' -v name="tests/lint/modules.txt" '
        $1 != "module" || $2 !~ /^(engine|experiments)\// || $4 == "*" { next }
        {
            split($2, path, "/")
            self = (path[1] == "engine" ? "" : path[1] "/") path[2]
            known[self] = 1
            n = split($4, may, " ")
            for (i = 1; i <= n; i++) {
                if (may[i] ~ /^(baselines|characterize|datasets)\//)
                    continue
                sub(may[i] ~ /^experiments\// ? "/[^/]*[.]h$" : "/.*", "", may[i])
                if (may[i] != "-" && !(may[i] in known))
                    print name ":" FNR ": order: " self " may include " may[i] \
                        ", which is not a module listed before it"
            }
        }' "$modules"
}

check_long_scripts() {
    grep -E '\.(sh|py|awk)$' "$tmp/files" | while read -r f; do
        n=$(wc -l <"$f")
        [ "$n" -le 900 ] || echo "$f:901: size: file of $n lines, at most 900"
    done
}

# Words that promise work instead of doing it, code switched off, paths of one machine. The
# rules themselves and their test spell them.
check_marks() {
    grep -v -E '^tests/lint/|^LICENSE$' "$tmp/files" | tr '\n' '\0' |
        xargs -0 grep -n -I -w -H -E 'TODO|FIXME|XXX|HACK' /dev/null |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: mark: work left for later/'
    grep -v '^tests/lint/' "$tmp/c" | tr '\n' '\0' |
        xargs -0 grep -n -H -E '^[ \t]*#[ \t]*if[ \t]+0' /dev/null |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: mark: code switched off/'
    grep -v -E '^tests/lint/|^LICENSE$' "$tmp/files" | tr '\n' '\0' |
        xargs -0 grep -n -I -H -E \
            '(^|[^A-Za-z0-9_.~}/)-])/(work|root|home|Users|mnt|media|scratch)/[A-Za-z0-9]' \
            /dev/null |
        sed 's/^\([^:]*:[0-9]*\):.*/\1: mark: a path of one machine/'
}

# Words that only this project would understand (words.txt). Recorded inputs keep theirs.
check_words() {
    grep -E '(\.([ch]|md|json|sh|py|awk)|^Makefile|^\.ci/run)$' "$tmp/files" |
        grep -v -E '^tests/(lint|golden|fuzz/corpus)/' |
        xargs awk -v WORDS="$here/words.txt" -f "$here/words.awk" "$here/words.txt"
}

# One mechanism for one question: names are looked up, UTF-8 is validated, and threads and locks are
# made, in base only.
check_once() {
    grep -v -E '^(engine/base|tests)/' "$tmp/c" | tr '\n' '\0' |
        xargs -0 grep -n -H -i -E 'did you mean|< 0xc2|pthread_(create|(mutex|cond)_init) ?\(' /dev/null |
        sed -e 's/^\([^:]*:[0-9]*\):.*pthread_.*/\1: once: base\/thread.h starts threads and makes locks/' \
            -e 's/^\([^:]*:[0-9]*\):.*did you.*/\1: once: base\/name.h looks up names/' \
            -e 's/^\([^:]*:[0-9]*\):.*< 0x.*/\1: once: base\/utf8.h validates UTF-8/'
}

# clang-format breaks code at 90 columns and leaves comments as they are.
check_width() {
    tr '\n' '\0' <"$tmp/c" | xargs -0 awk 'length > 100 {
        print FILENAME ":" FNR ": size: a line of " length " columns, at most 100" }' /dev/null
}

check_format() {
    if ! command -v clang-format >/dev/null; then
        echo "lint: clang-format is not here: format not checked" >&2
        return
    fi
    changed <"$tmp/c" | xargs -r -P "$(nproc)" -n 64 clang-format --dry-run 2>&1 |
        sed -n 's/^\([^:]*\):\([0-9]*\):[0-9]*: warning:.*/\1:\2/p' | sort -t: -k1,1 -k2,2n |
        sort -t: -k1,1 -u -s | sed 's/$/: format: not as clang-format writes it from here/'
}

# A header is read first and alone, by the compiler of its processor. One that a source includes
# first was compiled so by make. Templates, which need their includer's macros, are listed in
# modules.txt.
check_headers() {
    flags="-std=gnu11 -D_GNU_SOURCE -fopenmp -Wall -Wextra -I. -Iengine -fsyntax-only
        $(pkg-config --cflags hwloc jansson hdf5-serial libpcre2-8 libutf8proc cmocka 2>/dev/null)"
    [ -n "$(grep '\.h$' "$tmp/c" | changed)" ] || return 0
    sed -n 's/^template *| *//p' "$modules" >"$tmp/templates"
    grep '\.c$' "$tmp/c" | tr '\n' '\0' | xargs -0 awk 'FNR == 1 { seen = 0 }
        !seen && /^#include/ { gsub(/"/, "", $2); print $2; print "engine/" $2; seen = 1 }' \
        /dev/null >>"$tmp/templates"
    grep '\.h$' "$tmp/c" | grep -v -x -F -f "$tmp/templates" | while read -r f; do
        cc=$CC isa=
        case $f in
        */arm/*)
            cc=aarch64-linux-gnu-gcc
            command -v $cc >/dev/null || { echo "lint: no $cc: $f not compiled" >&2; continue; }
            ;;
        */x86/*)
            case $($CC -dumpmachine) in
            x86_64*) isa='-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16' ;;
            *) echo "lint: not an x86 machine: $f not compiled" >&2; continue ;;
            esac
            ;;
        esac
        echo "#include \"$f\"" >"$tmp/alone.c"
        # shellcheck disable=SC2086
        $cc $flags $isa "$tmp/alone.c" >"$tmp/alone.err" 2>&1 ||
            echo "$f:1: header: does not compile alone: $(sed -n 's/.*error: //p' "$tmp/alone.err" | head -n 1)"
    done
}

# What the linker can see of a module begins with the module's words. Objects that are left over
# from a file or a table that went away do not count.
check_symbols() {
    find "$BUILD/obj" -name '*.o' 2>/dev/null | sort >"$tmp/objects"
    if [ ! -s "$tmp/objects" ]; then
        echo "$BUILD/obj:1: symbol: no objects to check; run make first"
        return
    fi
    for a in "$BUILD"/lib*.a; do ar t "$a" 2>/dev/null; done >"$tmp/members"
    xargs nm -A -g --defined-only <"$tmp/objects" 2>/dev/null |
        awk -v folder="$BUILD/obj/" '
            FILENAME == ARGV[1] { members[$0]; next }
            FILENAME == ARGV[2] { sources[$0]; next }
            FILENAME == ARGV[3] {
                if (split($0, row, / *[|] */) > 2 && row[1] == "module")
                    words[row[2]] = row[3]
                next
            }
            split($0, at, /[: ]+/) != 4 || at[4] ~ /^(__|_Z)/ { next }
            at[1] != object { # its first symbol
                object = at[1]
                source = substr(object, length(folder) + 1)
                sub(/[.]o$/, ".c", source)
                depends = object
                sub(/o$/, "d", depends)
                while (!(source in sources) && source !~ /^gen\// && (getline line <depends) > 0)
                    if (match(line, /[^ ]+[.]c/)) # of a kernel that is compiled for any type
                        source = substr(line, RSTART, RLENGTH)
                name = object
                sub(/.*\//, "", name)
                counts = source ~ /^gen\// ? name in members : source in sources && source !~ /^tests\//
                best = ""
                for (m in words)
                    if (index(source, m) == 1 && length(m) > length(best))
                        best = m
                n = split(words[best], begins, " ")
            }
            counts {
                for (i = 1; i <= n && index(at[4], begins[i]) != 1; i++)
                    ;
                if (i > n)
                    print source, at[4], words[best]
            }' "$tmp/members" "$tmp/c" "$modules" - |
        while read -r source name module; do
            line=$(grep -n -w -m 1 "$name" "$source" 2>/dev/null | cut -d: -f1)
            echo "$source:${line:-1}: symbol: $name, expected a name beginning with ${module:-nothing}"
        done
}

# A module of the engine explains itself on one page.
check_readmes() {
    sed -n 's,^\([a-z/-]*\)/[^/]*\.[ch]$,\1,p' "$tmp/c" | sed -n 's,^\(engine/[a-z]*\).*,\1,p' |
        sort -u | while read -r d; do
        [ -f "$d/README.md" ] || echo "$d:1: readme: the module has no README.md"
    done
    grep -E '^(engine/[a-z]+|characterize|baselines|datasets)/README.md$' "$tmp/files" |
        while read -r f; do
            n=$(wc -l <"$f")
            [ "$n" -le 40 ] || echo "$f:41: readme: $n lines, at most 40"
        done
}

# Documents can be read in a terminal and side by side in a diff, and what they refer to is there.
check_markdown() {
    grep '\.md$' "$tmp/files" >"$tmp/md"
    tr '\n' '\0' <"$tmp/md" | xargs -0 awk 'length > 110 && !/^[|]/ {
        print FILENAME ":" FNR ": markdown: a line of " length " columns, at most 110" }' /dev/null
    tr '\n' '\0' <"$tmp/md" | xargs -0 grep -n -H -o '](\([^)#]*\)' /dev/null | sed 's/](//' |
        while IFS=: read -r f line target; do
            case $target in http* | '') continue ;; esac
            [ -e "$(dirname "$f")/$target" ] ||
                echo "$f:$line: markdown: a link to $target, which is not there"
        done
    grep -n -E -o '`[a-z]+/test_[a-z0-9_]+([.]sh)?`' TESTING.md 2>/dev/null | tr -d '`' |
        while IFS=: read -r line program; do
            [ -e "tests/$program" ] || [ -e "tests/$program.c" ] ||
                echo "TESTING.md:$line: markdown: the test $program, which is not there"
        done
}

# A link to a heading, "page.md#a-heading" or "#a-heading", leads to one, as it is named on the web.
check_headings() {
    tr '\n' '\0' <"$tmp/md" | xargs -0 grep -n -H -o '][(][^):]*#[^)]*)' /dev/null | sed 's/](//; s/)$//' |
        while IFS=: read -r f line target; do
            page=$(dirname "$f")/${target%%#*}
            [ "${target%%#*}" ] || page=$f
            [ -f "$page" ] || continue # which check_markdown says
            sed -n 's/^##* //p' "$page" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g' |
                grep -q -x -F -- "${target#*#}" ||
                echo "$f:$line: markdown: a link to the heading #${target#*#}, which is not there"
        done
}

# The version is stated once, in VERSION. Whoever cites the software, or reads what is new, finds
# the same one.
check_version() {
    [ -f VERSION ] || return
    version=$(cat VERSION)
    grep -q -x -F "version: $version" CITATION.cff ||
        echo "CITATION.cff:1: version: expected \"version: $version\" as in VERSION"
    [ "$(sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)" = "$version" ] ||
        echo "CHANGELOG.md:1: version: expected the newest entry to be that of $version, as in VERSION"
}

# A test that names an instruction set asks first whether this machine has it, so that the suite
# passes on every machine. Tests of machines that are made up are listed in modules.txt.
check_isa_words() {
    sed -n 's/^isa *| *//p' "$modules" >"$tmp/isa"
    grep -E '^tests/.*\.(c|h|sh|py)$' "$tmp/files" | grep -v '^tests/lint/' |
        grep -v -x -F -f "$tmp/isa" | tr '\n' '\0' |
        xargs -0 awk '
            function report(    i, w) {
                for (i = 1; i <= n; i++)
                    if (!asked[w = word[i]])
                        print at[i] ": isa: " w " is not asked for with test_needs_isa()"
                n = 0
                split("", asked)
            }
            FILENAME == ARGV[1] {
                if (split($0, part, /^CPU_ISA[(]|, "|"[)]/) > 3)
                    bit[part[3]] = part[2]
                next
            }
            FNR == 1 { report() }
            /avx|neon|CPU_MASK/ {
                for (w in bit) {
                    if (index($0, "test_needs_isa(\"" w "\")"))
                        asked[w] = 1
                    if ($0 ~ "(^|[^A-Za-z0-9_])" w "([^A-Za-z0-9_]|$)" || index($0, "CPU_MASK(" bit[w] ")")) {
                        word[++n] = w
                        at[n] = FILENAME ":" FNR
                    }
                }
            }
            END { report() }' "$here/../../engine/cpu/isa.def"
}

{
    check_source
    check_order
    check_long_scripts
    check_marks
    check_words
    check_once
    check_width
    check_format
    check_headers
    check_symbols
    check_readmes
    check_markdown
    check_headings
    check_version
    check_isa_words
} >"$tmp/faults"
cat "$tmp/faults"
n=$(wc -l <"$tmp/faults")
if [ "$n" -gt 0 ]; then
    echo "lint: $n faults"
    exit 1
fi
cp -p "$tmp/start" "$BUILD/lint.clean" 2>/dev/null
echo "lint: $(wc -l <"$tmp/c") sources, no fault"
