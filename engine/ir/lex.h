/* ir/lex.h - a text as tokens. Private to the module.
 *
 * Low level: C without comments; #define, also with arguments, is carried out. A part that
 * is included from kernels/ref/ is read, other includes are what the parser knows anyway.
 * High level: lines and how far they are indented are tokens, too; # begins a comment. */
#ifndef IR_LEX_H
#define IR_LEX_H

#include "ir/tree.h"

enum ir_token_kind {
    IR_T_WORD,
    IR_T_NUMBER,
    IR_T_STRING, /* without its quotes */
    IR_T_SIGN,   /* an operator or a bracket */
    IR_T_LINE,   /* high level: the end of a line */
    IR_T_IN,     /* the next line is further in */
    IR_T_OUT,
    IR_T_END
};

struct ir_token {
    enum ir_token_kind kind;
    const char *text; /* belongs to the program */
    const char *file;
    int line;
};

struct ir_lexer;
/* The state of reading a text; NULL: no memory. ir_lexer_close() frees it, and the tokens. */
MUST struct ir_lexer *ir_lexer_open(struct ir *p);
void ir_lexer_close(struct ir_lexer *x);
/* *out: the tokens, which end with IR_T_END. Errors as ir_parse(). */
MUST int ir_lex(struct ir_lexer *x, const char *text, size_t n, const char *name,
                const struct ir_token **out);

#endif
