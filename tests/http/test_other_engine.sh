#!/bin/sh
# The probabilities of every family's made model are those of another engine, where one is installed.
set -u
. tests/support/tap.sh
for server in llama-server ik-llama-server; do
    command -v "$server" >/dev/null && break
    server=
done
if [ -z "$server" ]; then
    skip "probabilities as another engine has them" "neither llama-server nor ik-llama-server is in PATH"
    finish
fi
python3 tests/http/other_engine.py "$sandwich" "$server" "$dir"
