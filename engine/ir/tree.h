/* ir/tree.h - making and changing the nodes of a program. Private to the module.
 *
 * Nodes belong to a program and are freed with it. Where one cannot be made, the call of the
 * module that is running ends: ir_guard() says where. So nothing between there and here may own
 * anything but nodes, or what the guard's function frees. */
#ifndef IR_TREE_H
#define IR_TREE_H

#include "ir/ir.h"

/* fn(arg), which makes nodes of p; p's error where one could not be made. */
MUST int ir_guard(struct ir *p, int (*fn)(void *arg), void *arg);

struct ir_node *ir_node(struct ir *p, enum ir_kind kind, int line);
/* A copy of n bytes of text that lives as long as the program. */
const char *ir_text(struct ir *p, const char *s, size_t n);
const char *ir_textf(struct ir *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

struct ir_node *ir_int(struct ir *p, int64_t x);
struct ir_node *ir_name(struct ir *p, const char *name);
struct ir_node *ir_unary(struct ir *p, enum ir_op op, struct ir_node *a);
struct ir_node *ir_binary(struct ir *p, enum ir_op op, struct ir_node *a,
                          struct ir_node *b);
struct ir_node *ir_index(struct ir *p, struct ir_node *a, struct ir_node *b);
struct ir_node *ir_call(struct ir *p, const char *name, struct ir_node *args);
struct ir_node *ir_decl(struct ir *p, struct ir_type t, const char *name,
                        struct ir_node *init);
struct ir_node *ir_assign(struct ir *p, enum ir_op op, struct ir_node *a,
                          struct ir_node *b);

/* Lists grow at their end. */
struct ir_list {
    struct ir_node *first, **end;
};
#define IR_LIST_INIT(l) struct ir_list l = {NULL, &l.first}
void ir_append(struct ir_list *l, struct ir_node *n); /* n and what follows it */

struct ir_node *ir_copy(struct ir *p, const struct ir_node *n);      /* of one node */
struct ir_node *ir_copy_list(struct ir *p, const struct ir_node *n); /* with `next` */
bool ir_same(const struct ir_node *a, const struct ir_node *b);      /* without `next` */
bool ir_same_list(const struct ir_node *a, const struct ir_node *b);

/* Does `fn` hold for the node or any below it? Lists below it count, its own `next` does not. */
bool ir_any(const struct ir_node *n, bool (*fn)(const struct ir_node *, void *),
            void *arg);
bool ir_any_in_list(const struct ir_node *n, bool (*fn)(const struct ir_node *, void *),
                    void *arg);
bool ir_mentions(const struct ir_node *n, const char *name);   /* as a value */
bool ir_assigns(const struct ir_node *list, const char *name); /* or declares it */
bool ir_among(const char *const *names, int n, const char *name);

/* Make the list again: fn gets each statement without what follows it, and appends to `out` what
 * stands for it. */
MUST int ir_each(struct ir_node **list,
                 int (*fn)(void *arg, struct ir_node *n, struct ir_list *out), void *arg);
/* Replace in the tree at *n every node for which `fn` returns another one. */
typedef struct ir_node *(*ir_change_fn)(struct ir *p, struct ir_node *n, void *arg);
void ir_change(struct ir *p, struct ir_node **n, ir_change_fn fn, void *arg);
/* Is n an integer `*coef` times this variable plus what does not depend on it? */
bool ir_affine(const struct ir_node *n, const char *var, int64_t *coef);
/* The variable that an address begins with: x of x[i], (x + 4)[i]. NULL: none. */
const char *ir_root(const struct ir_node *address);
/* Another name for a variable, declarations too. */
void ir_rename(struct ir *p, struct ir_node **list, const char *from, const char *to);
/* An expression for a variable. */
void ir_substitute(struct ir *p, struct ir_node **list, const char *name,
                   const struct ir_node *by);
/* Arithmetic on constants, x + 0, x * 1, 0 * x, conditions that are constant. */
void ir_fold(struct ir *p, struct ir_node **n);
bool ir_int_value(const struct ir_node *n, int64_t *out); /* of IR_INT */

struct ir_node *ir_attr(const struct ir_node *loop, const char *name); /* NULL: none */
struct ir_node *ir_find_function(const struct ir *p, const char *name);
struct ir_node *ir_part(const struct ir *p, enum ir_kind kind); /* the first one */

/* The function of the row: of .fn.rope = rope_ref. "": there is none. */
const char *ir_entry_name(const struct ir *p);

/* judge.c: IR_PAR, IR_RED or IR_SEQ, by what the body of a loop of `function` reads and writes. */
enum ir_op ir_judge(const struct ir *p, const struct ir_node *function,
                    const struct ir_node *loop);

/* known.c: the words that the parser knows without a declaration. */
bool ir_known_function(const char *name);
bool ir_known_constant(const char *name, int64_t *value, bool *has_value);
bool ir_known_type(const char *word);

/* print.c: parts of a program as text. */
void ir_print_function(struct text *t, const struct ir_node *f, enum ir_level level);
void ir_print_type(struct text *t, struct ir_type type, enum ir_level level);
const char *ir_op_text(enum ir_op op, enum ir_level level);
int ir_op_rank(enum ir_op op); /* precedence of a binary operator, more binds tighter */

#endif
