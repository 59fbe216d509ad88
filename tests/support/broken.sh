# Tests of tests: code that is changed on purpose, compiled as the original is and linked in its
# place. Sourced after tests/support/tap.sh; needs the libraries of the build folder $build.
#
#     breaks RULE FILE SED TEST NAME [TEXT]   SED changes FILE so that RULE does not hold: the test
#                                             NAME of the program tests/TEST.c must fail, and say TEXT
#     finish_broken                           prints the verdicts in order, and ends the script
broken_jobs=${JOBS:-$(nproc)}
# What a sanitizer finds first is not what the test finds, and no counter counts broken code.
[ -z "${SAN:-}" ] || { skip "broken rules" "they are not broken with a sanitizer"; finish; }
[ -z "${COVERAGE:-}" ] || { skip "broken rules" "they are not broken with counters"; finish; }
# shellcheck disable=SC2046
broken_libs="$(pkg-config --libs hwloc jansson hdf5-serial libpcre2-8 libutf8proc libmicrohttpd zlib liblzma libcrypto papi \
    libcurl cmocka) -lcmark-gfm -lcmark-gfm-extensions -lsde -lm -lpthread"
ar rcs "$dir/support.a" "$build"/obj/tests/support/*.o

# Objects of the tests, which MODULE=kv alone does not all build.
need_tests() { # test...
    # shellcheck disable=SC2046
    make -s BUILD="$build" SAN="${SAN:-}" MODULE= $(printf "$build/obj/tests/%s.o\n" "$@" | sort -u)
}

# shellcheck disable=SC2086,SC2046
compile_broken() { # source, object
    ${CC:-gcc} $(cat "$build/gen/flags") -w -c "$1" -o "$2"
}

# shellcheck disable=SC2086,SC2046
link_broken() { # object, test, program
    ${CC:-gcc} $(cat "$build/gen/flags") $(command -v ld.gold >/dev/null && echo -fuse-ld=gold) -Wl,--strip-debug $(sed 's/^/-Wl,--wrap=/' "tests/$2.wrap" 2>/dev/null) -o "$3" "$1" \
        "$build/obj/tests/$2.o" "${support:-$dir/support.a}" "$build/libtestbed.a" "$build/libsandwich.a" $broken_libs
}

# A failed assertion of a test, or of the code, is what is wanted. Some breaks show only where threads meet at
# the wrong moment: in one of five runs.
found() { # folder, test, text
    for _ in 1 2 3 4 5; do
        TEST_ONLY=$2 CMOCKA_MESSAGE_OUTPUT=TAP timeout 60 "$1/test" >"$1/log" 2>&1
        case $? in
        0) continue ;;
        134) grep -q "Assertion" "$1/log" && return 0 ;;
        esac
        grep -q "^not ok .* - $2" "$1/log" && grep -q -- "$3" "$1/log"
        return
    done
    echo "# $2 passes"
    return 1
}

break_one() { # number, rule, file, sed script, test program, test, text
    mkdir "$dir/$1"
    sed "$4" "$3" >"$dir/$1/broken.c"
    if cmp -s "$3" "$dir/$1/broken.c"; then
        echo "# $3 has no such line: $4"
    elif compile_broken "$dir/$1/broken.c" "$dir/$1/broken.o" >"$dir/$1/log" 2>&1 &&
        link_broken "$dir/$1/broken.o" "$5" "$dir/$1/test" >>"$dir/$1/log" 2>&1 &&
        found "$dir/$1" "$6" "${7:-}"; then
        echo "ok $1 - $2: $5 $6"
        return
    fi
    [ -e "$dir/$1/log" ] && sed 's/^/# /' "$dir/$1/log"
    echo "not ok $1 - $2: $5 $6"
}

breaks() {
    n=$((n + 1))
    { break_one "$n" "$@"; rm -rf "${dir:?}/$n"; } >"$dir/$n.tap" &
    [ $((n % broken_jobs)) != 0 ] || wait
}

finish_broken() {
    wait
    for i in $(seq "$n"); do
        cat "$dir/$i.tap"
        grep -q "^ok" "$dir/$i.tap" || failed=1
    done
    finish
}
