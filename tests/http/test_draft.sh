#!/bin/sh
# Tokens that are guessed under `sandwich serve --draft` (draft.py).
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/draft.py
