/* ir/expr.h - a parser of tokens, and the expressions that both levels have. Private to the
 * module. */
#ifndef IR_EXPR_H
#define IR_EXPR_H

#include "ir/lex.h"

#define IR_SCOPE_MAX 512
#define IR_DEPTH_MAX 100
#define IR_FUNCS_MAX 64

struct ir_parser {
    struct ir *p;
    const struct ir_token *t;        /* the next one */
    const char *names[IR_SCOPE_MAX]; /* that may be used here */
    int n_names;
    const char *functions[IR_FUNCS_MAX], *types[IR_FUNCS_MAX]; /* defined before */
    int n_functions, n_types, depth;
};

MUST int ir_expected(const struct ir_parser *r, const char *what);
bool ir_is(const struct ir_parser *r, const char *sign_or_word);
bool ir_take(struct ir_parser *r, const char *sign_or_word);
MUST int ir_need(struct ir_parser *r, const char *sign_or_word);
/* A name, and not a word of the language. */
MUST int ir_need_name(struct ir_parser *r, const char **out);
MUST int ir_declare(struct ir_parser *r, const char *name);
bool ir_at_type(const struct ir_parser *r);
/* "const struct x"; the stars are the caller's. */
MUST int ir_need_base(struct ir_parser *r, struct ir_type *out);
void ir_take_stars(struct ir_parser *r, struct ir_type *type);
MUST int ir_need_type(struct ir_parser *r, struct ir_type *out); /* both */
MUST int ir_enter(struct ir_parser *r); /* one level deeper; r->depth-- leaves it */

MUST int ir_expr(struct ir_parser *r, struct ir_node **out);
/* An expression or a list of initial values. */
MUST int ir_initial(struct ir_parser *r, struct ir_node **out);
/* The sizes of an array, if there are any. */
MUST int ir_sizes(struct ir_parser *r, struct ir_node **out);
/* An assignment or a call, without its end. */
MUST int ir_simple(struct ir_parser *r, struct ir_node **out);

#endif
