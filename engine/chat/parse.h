/* chat/parse.h - a template's text becomes tokens (lex.c), and these become nodes: expressions
 * (expr.c) in statements (parse.c). What is not known is refused by name with line and column. */
#ifndef CHAT_PARSE_H
#define CHAT_PARSE_H

#include "chat/value.h"

#define CHAT_NEST_MAX  100 /* nested expressions and blocks of a template */
#define CHAT_ARGS_MAX  6
#define CHAT_NAMES_MAX 1024

enum chat_op {
    CHAT_ADD,
    CHAT_SUB,
    CHAT_MUL,
    CHAT_DIV,
    CHAT_FLOORDIV,
    CHAT_MOD,
    CHAT_POW,
    CHAT_EQ,
    CHAT_NE,
    CHAT_LT,
    CHAT_LE,
    CHAT_GT,
    CHAT_GE,
    CHAT_IN,
    CHAT_NOT_IN,
};

enum chat_node_kind {
    /* expressions */
    NODE_CONST,   /* value */
    NODE_NAME,    /* name */
    NODE_ATTR,    /* a . value.s */
    NODE_ITEM,    /* a [ b ] */
    NODE_SLICE,   /* a [ b : c : d ], each may be NULL */
    NODE_LIST,    /* list */
    NODE_TUPLE,   /* list */
    NODE_DICT,    /* list of NODE_PAIR */
    NODE_PAIR,    /* a : b, or value.s = b */
    NODE_NEG,     /* - a */
    NODE_POS,     /* + a */
    NODE_NOT,     /* not a */
    NODE_AND,     /* a and b */
    NODE_OR,      /* a or b */
    NODE_BINARY,  /* a op b */
    NODE_CONCAT,  /* list, joined by ~ */
    NODE_COMPARE, /* a, then a list of NODE_COMPARE with op and a */
    NODE_IF_ELSE, /* b if a else c; c may be NULL */
    NODE_FILTER,  /* a | fn(arg); `sub`: what map, select ... apply */
    NODE_TEST,    /* a is fn(arg) */
    NODE_METHOD,  /* a . fn(arg) */
    NODE_SPREAD,  /* *a, an argument */
    NODE_CALL,    /* a(list, named arguments in b) */
    /* statements; `list` is the body */
    NODE_TEXT,       /* value.s */
    NODE_PRINT,      /* {{ a }} */
    NODE_FOR,        /* a in b if c; else d; name: of the variable loop */
    NODE_IF,         /* if a; else d */
    NODE_SET,        /* a = b */
    NODE_SET_BLOCK,  /* a = the body through the filters b; a NULL: written */
    NODE_MACRO,      /* name(parameters in a: NODE_PARAM) */
    NODE_PARAM,      /* name = a; a may be NULL */
    NODE_CALL_BLOCK, /* the call a; b is a macro of the body, its caller */
    NODE_WITH,       /* a: list of NODE_SET */
    NODE_BREAK,
    NODE_CONTINUE,
};

struct chat_node {
    enum chat_node_kind kind;
    enum chat_op op;
    int line, column;
    int name; /* index in the template's names */
    struct chat_value value;
    struct chat_node *a, *b, *c, *d, *list, *next;
    const struct chat_builtin *fn;
    struct chat_node *arg[CHAT_ARGS_MAX]; /* by parameter; NULL: not given */
    struct chat_node *sub;
    bool uses_caller; /* of a macro */
    bool recursive;   /* of a loop */
};

/* ---- what a template can call ---- */

struct chat_args {
    struct chat_value v[CHAT_ARGS_MAX]; /* by parameter; CHAT_UNDEFINED where not given */
    bool has[CHAT_ARGS_MAX];
    const struct chat_node *node;
};
#define CHAT_ANY_ARGS "a b c d e f" /* parameters of what takes any number of values */
static inline size_t chat_n_args(const struct chat_args *a)
{
    size_t n = 0;

    while (n < CHAT_ARGS_MAX && a->has[n])
        n++;
    return n;
}
typedef struct chat_value chat_fn(struct chat_run *r, struct chat_value self,
                                  const struct chat_args *a);

struct chat_builtin {
    const char *name;
    const char *params; /* their names, separated by spaces */
    int n_needed;
    chat_fn *fn;
};

/* By name; NULL: there is none. filter.c, method.c and exec.c have them. */
const struct chat_builtin *chat_filter_named(const char *name, size_t n);
const struct chat_builtin *chat_test_named(const char *name, size_t n);
const struct chat_builtin *chat_method_named(const char *name, size_t n);
bool chat_is_function(const char *name, size_t n); /* such as range */

/* ---- a template ---- */

struct chat_template {
    struct chat_arena arena;
    char *source; /* line ends are "\n" */
    size_t n_source;
    char *own;              /* [n_source] ones: the origin of literals */
    struct chat_str *names; /* [CHAT_NAMES_MAX] */
    int n_names;
    struct chat_node *body;
};

int chat_name_of(const struct chat_template *t, const char *s, size_t n); /* -1: none */

enum chat_token_kind {
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* with its quotes */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OP, /* one or two bytes */
    TOKEN_END,
};
struct chat_token {
    enum chat_token_kind kind;
    const char *p;
    size_t n;
    int line, column;
};
/* lex.c: all tokens of the source, TOKEN_END last; mem_free(). */
MUST int chat_lex(const struct chat_template *t, struct chat_token **out);

struct chat_parser {
    struct chat_template *t;
    const struct chat_token *at;
    int rc, depth, loops;
    struct chat_calls {
        const struct chat_node *node;
        struct chat_calls *next;
    } * calls;        /* of names, to be checked when all names are known */
    bool uses_caller; /* the macro or block that is parsed */
    bool *assigned;   /* [CHAT_NAMES_MAX] by name */
};

/* ---- expr.c ---- */

struct chat_node *chat_parse_expr(struct chat_parser *p);
/* One expression, or several as a tuple. `conditions`: "x if y" may be one. */
struct chat_node *chat_parse_tuple(struct chat_parser *p, bool conditions);
/* The filters behind a value; `a` is the value. */
struct chat_node *chat_parse_filters(struct chat_parser *p, struct chat_node *a,
                                     bool tests);
struct chat_node *chat_node_new(struct chat_parser *p, enum chat_node_kind kind);
bool chat_is_op(const struct chat_parser *p, const char *op);
bool chat_is_name(const struct chat_parser *p, const char *name);
bool chat_skip_op(struct chat_parser *p, const char *op);
bool chat_skip_name(struct chat_parser *p, const char *name);
void chat_expect_op(struct chat_parser *p, const char *op);
int chat_intern(struct chat_parser *p, const char *s, size_t n);
/* "expected `what`, found ...": returns NULL. */
struct chat_node *chat_expected(struct chat_parser *p, const char *what);
/* ERR_FORMAT: a syntax error; ERR_UNSUPPORTED: a construct that is not known, by name. */
void chat_parse_fail(struct chat_parser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
