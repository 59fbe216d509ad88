#!/bin/sh
# What passes must look at before they change a graph, each broken on purpose.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests graph/test_graph

rule() { # rule, file, sed script, test
    breaks "$1" "engine/graph/$2" "$3" graph/test_graph "$4"
}

rule "a dynamic size is a const as a size only" pass/fold.c 's/user\[g->out\[a\]\] = g->out\[a\];/;/' \
    a_dynamic_size_is_no_const
rule "the mean is along the last axis" pass/fuse_norm.c 's/ || !graph_match_last_axis(g, i))/)/' look_alikes_stay
rule "the power is two" pass/fuse_norm.c 's/other == d \&\& power == 2/other == d/' look_alikes_stay
rule "squares are of what is divided" pass/fuse_norm.c 's/other == d \&\& power == 2/power == 2/; s/in\[0\] == d \&\&/in[0] >= 0 \&\&/; s/in\[1\] == d;/in[1] >= 0;/' \
    look_alikes_stay
rule "slices are along other axes" pass/fuse_slices.c 's/return true;/return false;/' slices_that_stay
rule "gate and product are of one size" pass/fuse_swiglu.c 's/!graph_match_same_size(g, gate, up))/false)/' look_alikes_stay
rule "rotated is the second half before the first" pass/fuse_rope.c 's/ \&\& v->ints\[1\] == begin \&\& v->ints\[2\] == end;/;/' \
    look_alikes_of_rope_stay
rule "softmax is along the keys" pass/fuse_attention.c 's/ || !graph_match_last_axis(g, soft))/)/' look_alikes_stay
rule "keys are transposed" pass/fuse_attention.c 's/v->ints\[r - 1\] != r - 2 ||/false ||/; s/v->ints\[r - 2\] != r - 1)/false)/' \
    look_alikes_stay
rule "heads are copied along an axis of their own" pass/fuse_group.c 's/u->ints\[0\]) != 2)/u->ints[0]) < 0)/' \
    other_heads_stay
rule "equal nodes have equal numbers" pass/merge.c 's/a->x != b->x ||/false ||/; s/memcmp(a->data, b->data, [^;]*) != 0)/false)/; s/double x = v->x + 0.0/double x = 0/; s/h\[3\] += hash_bytes/h[3] += 0 * hash_bytes/' \
    random_graphs
rule "only sums and products commute" pass/merge.c 's/return commutes(a) \&\&/return a->n_in == 2 \&\&/' random_graphs
rule "what nothing reads is dropped" graph.c 's/to\[i\] = to\[i\] || graph_is(g, i, "input");/to[i] = 1;/' a_decoder_block
finish_broken
