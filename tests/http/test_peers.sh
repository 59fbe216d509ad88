#!/bin/sh
# Requests as users of other servers send them (peers.py).
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/peers.py
