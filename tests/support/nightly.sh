#!/bin/sh
# What takes too long for each change: build all with ThreadSanitizer, and with AddressSanitizer and
# UndefinedBehaviorSanitizer, each in a folder of its own, and run the modules that each is for.
# Prints a line for each module and one at the end, and goes on past failures.
#   sh tests/support/nightly.sh [thread|address,undefined [MODULE ...]]
set -u
cd "$(dirname "$0")/../.."
thread="serve roles http par"
memory="format tokenizer topo graph datasets job chat grammar ir roles"
failed=0
# SANITIZERS MODULES
sanitize() {
    log=build-$(echo "$1" | tr , -)/nightly.log
    mkdir -p "$(dirname "$log")"
    make SAN="$1" all >"$log" 2>&1 || { tail -n 20 "$log"; failed=1; return; }
    for module in $2; do
        line=$(make SAN="$1" MODULE="$module" test 2>&1 | tee -a "$log" | grep -E '^[0-9]+ passed, ' || echo "no result")
        echo "$1, $module: $line"
        case $line in
        *" passed, 0 failed, "*) ;;
        *) failed=1 ;;
        esac
    done
}
case ${1:-} in
thread) shift; sanitize thread "${*:-$thread}" ;;
address,undefined) shift; sanitize address,undefined "${*:-$memory}" ;;
"") sanitize thread "$thread"; sanitize address,undefined "$memory" ;;
*) echo "usage: nightly.sh [thread|address,undefined [MODULE ...]]"; exit 2 ;;
esac
[ $failed -eq 0 ] && echo "nightly: 0 failed" || { echo "nightly: failed, see build-*/nightly.log"; exit 1; }
