#!/bin/sh
# The lint itself: a small clean tree passes, and each fault put into it is reported as the
# right rule at the right line.
set -u
top=$(pwd)
tree=$(mktemp -d "${BUILD:-build}/lint.XXXXXX") || exit 1
trap 'rm -rf "$tree"' EXIT
tree=$(cd "$tree" && pwd)
unset BUILD
n=0

clean() { # a tree without fault: two modules, a header, a test, the objects
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/engine/base" "$tree/engine/kv" "$tree/tests/kv" "$tree/build/obj/engine/kv"
    cp "$top/.clang-format" "$tree/"
    echo "# base" >"$tree/engine/base/README.md"
    echo "# kv" >"$tree/engine/kv/README.md"
    printf '#ifndef BASE_MEM_H\n#define BASE_MEM_H\n\nvoid mem_free(void *p);\n\n#endif\n' \
        >"$tree/engine/base/mem.h"
    printf '#ifndef KV_KV_H\n#define KV_KV_H\n\nint kv_count(void);\n\n#endif\n' \
        >"$tree/engine/kv/kv.h"
    printf '#include "kv/kv.h"\n#include "base/mem.h"\n\nint kv_count(void)\n{\n    return 1;\n}\n' \
        >"$tree/engine/kv/kv.c"
    printf '#include "kv/kv.h"\n#include "tests/support/test.h"\n' >"$tree/tests/kv/test_kv.c"
}

build() {
    (cd "$tree" && for c in engine/kv/*.c; do
        gcc -I. -Iengine -c "$c" -o "build/obj/${c%.c}.o" || exit 1
    done)
}

lint() {
    sh "$top/tests/lint/lint.sh" "$tree" 2>&1
}

check() { # name, expected line of output ("" for a clean pass)
    n=$((n + 1))
    build || { echo "not ok $n - $1: the tree does not compile"; return; }
    out=$(lint)
    rc=$?
    if [ -z "$2" ] && [ $rc -eq 0 ]; then
        echo "ok $n - $1"
    elif [ -n "$2" ] && [ $rc -eq 1 ] && printf '%s\n' "$out" | grep -q -F -- "$2" &&
        [ "$(printf '%s\n' "$out" | grep -c '^[^ ]*:[0-9]*: ')" -eq 1 ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1: status $rc"
        printf '%s\n' "$out" | sed 's/^/# /'
    fi
    clean
}

add() { # file, line of C to put at the end of it
    mkdir -p "$tree/$(dirname "$1")"
    printf '%s\n' "$2" >>"$tree/$1"
}

lines() { # how many, of what
    yes "$2" | head -n "$1"
}

clean
check "a clean tree" ""
add engine/base/mem.c '#include "kv/kv.h"'
check "a wall" 'engine/base/mem.c:1: include: "kv/kv.h"'
add engine/kv/kv.c '#include "kv.h"'
sed -i 's/^#include "kv.h"$/#include "stdio.h"/' "$tree/engine/kv/kv.c"
check "an include without its module" 'engine/kv/kv.c:8: include: "stdio.h", expected'
mkdir -p "$tree/tests/support"
printf '#ifndef A_H\n#define A_H\n\n#endif\n' >"$tree/tests/support/test.h"
add engine/kv/kv.c '#include "tests/support/test.h"'
check "tests included from outside" 'nobody includes tests'
add engine/base/topo.c '#include <hwloc.h>'
check "a system header in the wrong module" 'engine/base/topo.c:1: include: <hwloc.h>'
mkdir -p "$tree/engine/kernels"
echo "# kernels" >"$tree/engine/kernels/README.md"
add engine/base/clock.h '#define CLOCK 1'
add engine/kernels/pack.c '#include "base/clock.h"'
check "a header of an allowed module that is not allowed" 'engine/kernels/pack.c:1: include: "base/clock.h"'
add elsewhere/x.c 'int x;'
check "a file in no module" 'elsewhere/x.c:1: module:'
lines 901 '/* */' >"$tree/engine/base/long.c"
check "a long file" 'engine/base/long.c:901: size: file of 901 lines'
lines 900 '/* */' >"$tree/engine/base/long.c"
check "a file of the full length" ""
lines 901 '# a line' >"$tree/tests/kv/long.sh"
check "a long script" 'tests/kv/long.sh:901: size:'
{ printf 'void kv_f(void);\nvoid kv_f(void)\n{\n'; lines 89 '    ;'; echo '}'; } >"$tree/engine/kv/f.c"
check "a long function" 'engine/kv/f.c:3: size: function of 91 lines, at most 90'
{ printf 'void kv_f(void);\nvoid kv_f(void)\n{\n'; lines 88 '    ;'; echo '}'; } >"$tree/engine/kv/f.c"
check "a function of the full length" ""
mkdir -p "$tree/engine/kernels"
echo "# kernels" >"$tree/engine/kernels/README.md"
{ printf 'void kern_f(void);\nvoid kern_f(void)\n{\n'; lines 149 '    ;'; echo '}'; } >"$tree/engine/kernels/f.c"
check "a long kernel" 'engine/kernels/f.c:3: size: function of 151 lines, at most 150'
add engine/kv/g.c 'int count(void);'
printf 'int count(void)\n{\n    return 0;\n}\n' >>"$tree/engine/kv/g.c"
check "a symbol without the module's prefix" 'engine/kv/g.c:1: symbol: count, expected'
add engine/kv/g.c 'int stray;'
check "a variable without the module's prefix" 'engine/kv/g.c:1: symbol: stray, expected'
add engine/kv/g.c "/* $(lines 25 word | tr '\n' ' ' | cut -c 1-95 | sed 's/ $/x/') */"
check "a wide comment" 'engine/kv/g.c:1: size: a line of 101 columns'
add engine/kv/g.c 'static  int  kept;'
check "bad format" 'engine/kv/g.c:1: format:'
printf '#ifndef KV_BAD_H\n#define KV_BAD_H\n\nsize_t kv_size(void);\n\n#endif\n' >"$tree/engine/kv/bad.h"
check "a header that needs another" 'engine/kv/bad.h:1: header:'
for word in TODO FIXME XXX HACK; do
    add engine/kv/g.c "/* $word: later */"
    check "the mark $word" 'engine/kv/g.c:1: mark: work left'
done
printf '#if 0\nint kv_x;\n#endif\n' >"$tree/engine/base/g.c"
check "code switched off" 'engine/base/g.c:1: mark: code switched off'
add engine/kv/g.c 'static const char kv_text[] = "; did you mean \"x\"?";'
check "a second way to look up names" 'engine/kv/g.c:1: once: base/name.h'
clean
printf '#include <pthread.h>\n\nint kv_lock(pthread_mutex_t *m)\n{\n    return pthread_mutex_init(m, 0);\n}\n' \
    >"$tree/engine/kv/g.c"
check "a lock that nothing can refuse" 'engine/kv/g.c:5: once: base/thread.h'
add engine/kv/README.md 'Data lie in /home/someone/data.'
check "a path of one machine" 'engine/kv/README.md:2: mark: a path'
printf 'struct found {\n    int n;\n};\n' >"$tree/engine/kv/g.c"
check "a struct that is not a noun" 'engine/kv/g.c:1: word: struct found, expected a noun'
add engine/kv/g.c '/* As kv_count(), and then kv_gone(). */'
check "a function that does not exist" 'engine/kv/g.c:1: word: kv_gone(), which does not exist'
add engine/kv/g.c '/* Few rows: what lies in a region. */'
check "a word in a comment" 'engine/kv/g.c:1: word: "lies", expected is'
printf '/* This text\n * begins anew. */\n' >"$tree/engine/kv/g.c"
check "a word in the second line of a comment" 'engine/kv/g.c:2: word: "anew"'
printf 'extern const char kv_text[];\nconst char kv_text[] = "/* who waits";\n' >"$tree/engine/kv/g.c"
check "a word in a string" 'engine/kv/g.c:2: word: "who waits"'
add engine/kv/g.c '/* it is no longer so */'
check "words of a rule in another order" ""
add engine/kv/README.md 'Pages beside the pool.'
check "a word in a document" 'engine/kv/README.md:2: word: "beside"'
add engine/kv/README.md "$(lines 23 word | tr '\n' ' ' | cut -c 1-111 | sed 's/ $/x/')"
check "a wide document" 'engine/kv/README.md:2: markdown: a line of 111 columns'
add engine/kv/README.md 'See [the pool](pool.md), [the header](kv.h) and [the site](https://example.org).'
check "a broken link" 'engine/kv/README.md:2: markdown: a link to pool.md'
add engine/kv/README.md 'See [what virtual CPUs do](../base/README.md#what-cpus-do), [here](#kv) and [there](#pool).'
printf '# base\n\n## What CPUs do\n' >"$tree/engine/base/README.md"
check "a heading that is not there" 'engine/kv/README.md:2: markdown: a link to the heading #pool'
add engine/kv/README.md 'See [base](../base/README.md#what-cpus-dont).'
check "one that is not there in another page" 'engine/kv/README.md:2: markdown: a link to the heading #what-cpus-dont'
add TESTING.md 'By `kv/test_kv` and `kv/test_pool`.'
check "a test that is not there" 'TESTING.md:1: markdown: the test kv/test_pool'
printf '#define KV_G 1\n\n#ifdef __AVX2__\n#define KV_G2 2\n#endif\n' >"$tree/engine/kv/g.h"
check "a condition outside base and cpu" 'engine/kv/g.h:3: condition:'
printf '#ifdef __AVX2__\n#define MEM_G 1\n#endif\n' >"$tree/engine/base/g.h"
check "a condition in base" ""
printf '#include <stdio.h>\n\nvoid kv_say(void);\nvoid kv_say(void)\n{\n    printf("x");\n}\n' >"$tree/engine/kv/g.c"
check "printing from the library" 'engine/kv/g.c:6: print:'
add tests/kv/test_kv.c 'static const char isa[] = "avx512";'
check "an instruction set without asking" 'tests/kv/test_kv.c:3: isa: avx512 is not asked for'
add tests/kv/test_kv.c 'static long isa = CPU_MASK(AVX2);'
check "its bit without asking" 'tests/kv/test_kv.c:3: isa: avx2 is not asked for'
add tests/kv/test_run.sh 'run --isa avx2'
check "an instruction set in a script" 'tests/kv/test_run.sh:1: isa: avx2'
add tests/kv/test_kv.c 'static int f(void)'
printf '{\n    test_needs_isa("avx2");\n    return run("avx2");\n}\n' >>"$tree/tests/kv/test_kv.c"
check "an instruction set that was asked for" ""
mkdir "$tree/experiments"
versions() { # of VERSION, CITATION.cff and CHANGELOG.md
    echo "$1" >"$tree/VERSION"
    printf 'type: software\nversion: %s\n' "$2" >"$tree/CITATION.cff"
    printf '# Changelog\n\n## %s (a date)\n\n## 0.1.0\n' "$3" >"$tree/CHANGELOG.md"
}
versions 0.2.0 0.2.0 0.2.0
check "one version" ""
versions 0.2.0 0.1.0 0.2.0
check "a citation of another version" 'CITATION.cff:1: version: expected "version: 0.2.0"'
versions 0.2.0 0.2.0 0.2
check "a version without its entry" 'CHANGELOG.md:1: version:'
rm "$tree/engine/kv/README.md"
check "a module without a page" 'engine/kv:1: readme:'
sed 's/^\(module | engine\/base .*|\) -$/\1 kv/' "$top/tests/lint/modules.txt" >"$tree.modules"
export MODULES="$tree.modules"
check "an arrow that runs up" 'order: base may include kv, which is not a module listed before it'
rm "$tree.modules"
echo "1..$n"
