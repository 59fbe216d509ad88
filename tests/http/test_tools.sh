#!/bin/sh
# Calls of tools in chats (tools.py).
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/tools.py >"$dir/tap"
sed '/^1\.\./d' "$dir/tap"
n=$(grep -c '^\(not \)\?ok ' "$dir/tap")
! grep -q '^not ok' "$dir/tap" && [ "$n" -ge 6 ] || failed=1
finish
