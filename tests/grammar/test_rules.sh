#!/bin/sh
# Rules of masks, each broken on purpose in a copy of the code: the test that stands for it must fail.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests grammar/test_masks

rule() { # rule, sed script, test
    breaks "$1" engine/grammar/match.c "$2" grammar/test_masks "$3"
}

rule "a mask serves one place too many" 's/longest > 1 ? longest - 1 : 0;/longest > 2 ? longest - 2 : 0;/' \
    tokens_fill_the_places_that_are_left
rule "tokens one byte longer than a mask is for are not looked at" 's/walk(g, set, SHORT_TOK, bits)/walk(g, set, SHORT_TOK + 1, bits)/' \
    tokens_fill_the_places_that_are_left
rule "longer tokens are not looked at" 's/like != set && g->v->trie.longest > SHORT_TOK/false/' \
    masks_of_200_thousand_tokens
rule "a mask serves another place of a part" 's/ + k % r->stride;/ + (k + 1) % r->stride;/' \
    copies_of_a_part_stand_for_others
rule "the rules that called are forgotten" 's/^    like = parent < 0 ? parent : .*/    like = parent;/' \
    masks_accept_what_a_recogniser_does
rule "a text may end anywhere" 's/g->sets\[set\].ends && i < /i < /' masks_accept_what_a_recogniser_does
rule "a byte next to those that are read leads nowhere" 's/lo > last ? lo : last + 1/lo > last ? lo : last/' \
    masks_accept_what_a_recogniser_does
rule "grammars of one length are one" 's/memcmp(g->text, text, n) != 0/false/' grammars_go_when_others_come
rule "rules are nested less deep" 's/== GRAMMAR_DEPTH_MAX)/== GRAMMAR_DEPTH_MAX - 9)/' depth_has_a_limit
finish_broken
