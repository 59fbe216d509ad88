/* grammar/rules.h - the automaton's states, for the files of this module.
 *
 * A state reads one byte of a range, calls a rule, or goes on to one or two others. State 0 is the
 * end of every rule, so that a call whose next state is 0 needs no place on the stack. Parts of a
 * rule are compiled one after the other to neighbouring states, as Thompson's construction does;
 * parts that are repeated are copied. */
#ifndef GRAMMAR_RULES_H
#define GRAMMAR_RULES_H

#include "grammar/grammar.h"

#define GRAMMAR_STATES_MAX (1 << 18)
#define GRAMMAR_RULES_MAX  4096
#define GRAMMAR_REPEAT_MAX 4096

enum grammar_state_kind { GRAMMAR_END, GRAMMAR_BYTES, GRAMMAR_CALL, GRAMMAR_SPLIT };
struct grammar_state {
    enum grammar_state_kind kind;
    int32_t next;
    int32_t
        arg; /* BYTES: first | last << 8. CALL: a rule. SPLIT: the other next state; -1: none */
};
/* The copies of a repeated part at which it may end, from the last one to the first: the copy that
 * k others may follow has the states from + k * stride and on. */
struct grammar_repeat {
    int32_t from, stride, n;
};
struct grammar_rules {
    struct grammar_state *states;
    int32_t *entry; /* [GRAMMAR_RULES_MAX] states; rule 0 is the root */
    struct grammar_repeat *repeats;
    int n_states, cap_states, n_rules, n_repeats, cap_repeats;
    int rc; /* the first error, after which no state is added */
};
/* A part of a rule: where it is entered, and the state whose next one is what follows it. */
struct grammar_part {
    int32_t in, out;
};
struct grammar_range {
    int32_t lo, hi; /* code points */
};

/* Make the array larger where it holds n elements and has room for no more. ERR_NOMEM. */
MUST int grammar_grow(void *array, int *capacity, int n, size_t size);
/* Its index; 0 after an error, which is kept in r->rc. */
int32_t grammar_state_add(struct grammar_rules *r, enum grammar_state_kind kind,
                          int32_t next, int32_t arg);
/* Another alternative of a part whose `out` it shares; p->in < 0: the first. */
void grammar_part_or(struct grammar_rules *r, struct grammar_part *p, int32_t in);
/* One more alternative: a character of these code points, in UTF-8. */
void grammar_part_chars(struct grammar_rules *r, struct grammar_part *p, int32_t lo,
                        int32_t hi);
/* Repeat a part, whose states are all from `from` on, `least` to `most` times; most -1: any. */
void grammar_part_repeat(struct grammar_rules *r, struct grammar_part *p, int32_t from,
                         int least, int most);
/* All rules are there: no rule calls itself before it has read a byte, and each can end. *why says
 * what *rule does otherwise. ERR_ARG, ERR_NOMEM. */
MUST int grammar_rules_check(struct grammar_rules *r, int *rule, const char **why);
/* From text to rules. *r is zeroed before, and given back with grammar_rules_fini() in any case. */
MUST int grammar_rules_read(struct grammar_rules *r, const char *text, size_t n);
void grammar_rules_fini(struct grammar_rules *r);

/* ---- tokens.c: the trie ---- */
struct grammar_node {    /* in the order of the tokens' bytes: its children follow it */
    int32_t skip;        /* the node after all of its descendants */
    int32_t first_token; /* with exactly these bytes: ids up to those of the next node */
    uint16_t depth;      /* bytes: 1 for the first */
    uint16_t deepest;    /* of itself and its descendants */
    uint8_t byte;
};
struct grammar_trie {
    struct grammar_node *nodes; /* [n_nodes + 1] the last one ends the others */
    int n_nodes, cap_nodes;
    int32_t *ids; /* sorted by bytes */
    int n_ids, longest;
};
MUST int grammar_trie_open(struct grammar_trie *t, const struct tok *tok, int n_vocab);
void grammar_trie_fini(struct grammar_trie *t);

#endif
