#!/bin/sh
# The probabilities of every family's made model are those of llama.cpp's server, where it is installed.
# (ik_llama.cpp's neither keeps keys and values in f32 nor tells the tokens it generated.)
set -u
. tests/support/tap.sh
if ! command -v llama-server >/dev/null; then
    skip "probabilities as another engine has them" "llama-server is not in PATH"
    finish
fi
python3 tests/http/other_engine.py "$sandwich" llama-server "$dir"
