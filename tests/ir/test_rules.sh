#!/bin/sh
# What must be looked at before a loop is called par or red, and before it is changed; each broken
# on purpose.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests ir/test_ir ir/test_build

rule() { # rule, file, sed script, test program, test
    breaks "$1" "engine/ir/$2" "$3" "ir/$4" "$5"
}

rule "what is written is not read elsewhere" judge.c 's/ir_any_in_list(j->loop->k\[4\], is_other_element, &x)/false/' \
    test_ir loops_that_depend_on_their_order
rule "an index has one element for each iteration" judge.c 's/coef == 0 ||/false ||/; s/!ir_affine(at->k\[1\], j->loop->text, &coef) ||/(ir_affine(at->k[1], j->loop->text, \&coef), false) ||/' \
    test_ir loops_that_depend_on_their_order
rule "a sum is not read in the loop" judge.c 's/count_name(j->loop->k\[4\], name) > 1/false/' test_ir loops_that_depend_on_their_order
rule "a sum is only added to" judge.c 's/if (n->op != IR_ADD || ir_mentions/if (ir_mentions/' test_ir loops_that_depend_on_their_order
rule "a loop that returns has an order" judge.c 's/if (n->kind == IR_RETURN ||/if (/' test_ir loops_that_depend_on_their_order
rule "the bounds of a loop are fixed" raise.c 's/!is_fixed(cond->k\[1\], n->k\[3\], rest.first) ||/false ||/' \
    test_ir loops_with_moving_bounds
rule "further sums are told" raise.c 's/const char \*attrs\[\] = {"sums",/const char *attrs[] = {"none",/' test_ir parameters
rule "fused multiply-adds are told" raise.c 's/return ir_param(high, "fma") <= 0 &&/return/' test_ir parameters
rule "contraction is off" build.c 's/> 0 ? "fast" : "off"/> 0 ? "fast" : "fast"/' test_build gemm_keeps_its_bits
rule "an object is of its text" build.c 's/{text, flags, c.version/{flags, c.version/' \
    test_build another_text_is_another_object
rule "an object has the bytes of its name" build.c 's/strcmp(strrchr(path, .\/.) + 1, e->d_name) == 0/true/' \
    test_build planted_objects_are_not_loaded
rule "each iteration of a tile has its own row" tile.c 's/return t->r == 0 ? n/return t->r >= 0 ? n/' test_build gemm_keeps_its_bits
rule "what is left after vectors is computed" expand.c 's/    if (x.lanes \* x.unroll > 1 || !n->k\[2\])/    if (x.lanes * x.unroll > 1)\n        return OK;\n    if (!n->k[2])/' \
    test_build rope_keeps_its_bits
rule "elements of a vector are next to each other" vector.c 's/!ir_affine(n->k\[1\], v->var, &coef) || coef != 1)/!ir_affine(n->k[1], v->var, \&coef))/' \
    test_build what_cannot_be_lowered
rule "sums go back to memory" promote.c 's/    for (int i = 0; i < s.n; i++) {\n        struct ir_node \*e/XX/; s/ir_vector_call(p, "store", s.lanes\[i\], at)/ir_vector_call(p, "load", s.lanes[i], at)/' \
    test_build gemm_keeps_its_bits
finish_broken
