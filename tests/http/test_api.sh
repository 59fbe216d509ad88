#!/bin/sh
# `sandwich serve` as a client meets it (api.py).
# Regression: a client of more than 256 connections was cut off without a word before the queue's
# status 429.
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/api.py
