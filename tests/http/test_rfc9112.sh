#!/bin/sh
# What RFC 9112 lets clients of `sandwich serve` do (rfc9112.py).
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/rfc9112.py
