#!/bin/sh
# sandwich graph: what it prints, and where.
set -u
. tests/support/tap.sh
golden=tests/graph/golden

rewrites() {
    run_quietly "$sandwich" graph $golden/block.graph
    [ "$got" = 0 ] && cmp "$dir/out" $golden/block.rewritten && grep -q "^nodes: 86 before, 36 after" "$dir/err"
}
check "the rewritten graph, and on standard error how many nodes" rewrites

keeps() {
    run_quietly "$sandwich" graph $golden/slices.graph --keep
    [ "$got" = 0 ] && cmp "$dir/out" $golden/slices.graph && [ ! -s "$dir/err" ]
}
check "the graph as it is" keeps
printf '%%0 = input x: f32[2]\n%%1 = add(%%0)\n' >"$dir/bad"
check "a bad line is named" refuses 1 "$dir/bad: line 2: add of 1 inputs" "$sandwich" graph "$dir/bad"
check "a graph that is no decoder has no operators of the engine" refuses 1 "expected a product with weights" \
    "$sandwich" graph $golden/block.graph --ops
check "a file that is not there" refuses 1 "$dir/none" "$sandwich" graph "$dir/none"
check "no file" refuses 2 "an argument is missing" "$sandwich" graph
finish
