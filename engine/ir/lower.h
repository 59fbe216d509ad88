/* ir/lower.h - what changes a loop as its attributes say. Private to the module. */
#ifndef IR_LOWER_H
#define IR_LOWER_H

#include "ir/tree.h"

struct ir_lowering {
    struct ir *p;                   /* the program that is changed */
    const struct ir_node *function; /* the one in hand, for types of variables */
    int n_names;                    /* made so far */
    bool by_row;                    /* of ir_tile() */
};

/* The type of an expression, as far as lowering asks: NULL base where it does not know. */
struct ir_type ir_type_of(const struct ir_lowering *w, const struct ir_node *n);

/* tile.c: the n iterations of a loop over `var` from 0 at once. What is the same in all of them
 * is done once, and pointers that differ by a constant are one. by_row: statements of an iteration
 * stay together, else equal statements of all iterations. */
MUST int ir_tile(struct ir_lowering *w, struct ir_node **list, const char *var, int n,
                 bool by_row);

/* vector.c: the loop's body for `lanes` iterations from its counter on. *out: statements.
 * ERR_UNSUPPORTED: not possible. The sum of a red loop is a vector of the same name. */
MUST int ir_vector(struct ir_lowering *w, struct ir_node **out,
                   const struct ir_node *loop, int lanes);
struct ir_type ir_vector_type(struct ir *p, int lanes);
struct ir_node *ir_vector_call(struct ir *p, const char *what, int lanes,
                               struct ir_node *args);
/* Lanes of a call of ir_<what>_f32xN; 0: it is another call. */
int ir_vector_lanes(const struct ir_node *call, const char *what);

/* promote.c: vectors that a loop reads, adds to and writes in the same place are kept in
 * registers while it runs. */
MUST int ir_promote(struct ir_lowering *w, struct ir_node **list);

/* expand.c: every IR_LOOP of the list as a block with loops of C. */
MUST int ir_expand(struct ir_lowering *w, struct ir_node **list);
/* The value of an attribute; `absent` where there is none or 0. */
int64_t ir_attr_value(const struct ir_node *loop, const char *name, int64_t absent);
/* Its vectors and copies, at least 1 each. ERR_ARG: more than there may be. */
#define IR_LANES_MAX 16
MUST int ir_check_loop(const struct ir_node *loop, int64_t *lanes, int64_t *unroll);

#endif
