/* chat/impl.h - shared by the files of this module only.
 *
 * A template is parsed once into nodes. A rendering evaluates them; all of its values are in an
 * arena that is given back at its end. The first error of a parse or of a rendering is kept in
 * `rc`, and everything after it returns at once, so that callers check it where they loop or
 * use what they got. */
#ifndef CHAT_IMPL_H
#define CHAT_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/template.h"

#define CHAT_DEPTH_MAX 1000 /* nested evaluations, each of at most 1.5 KiB of stack */
#define CHAT_NEST_MAX  100  /* nested expressions and blocks of a template */
#define CHAT_STEPS_MAX (16 << 20) /* nodes evaluated by one rendering: about a second */
#define CHAT_BYTES_MAX ((size_t)192 << 20) /* of all values of one rendering */
#define CHAT_ARGS_MAX  6

struct chat_arena {
    struct chat_block *blocks;
    size_t used, max; /* bytes */
};
/* n zeroed bytes until chat_arena_fini(). NULL: ERR_NOMEM or ERR_LIMIT is set. */
void *chat_arena_new(struct chat_arena *a, size_t n, int *rc);
void chat_arena_fini(struct chat_arena *a);

/* ---- values ---- */

/* UTF-8, and where each byte comes from: own[i] is 1 where the template wrote it and 0 where a
 * user did. own NULL: a user wrote all of it. */
struct chat_str {
    const char *p, *own;
    size_t n;
};

enum chat_kind {
    CHAT_UNDEFINED,
    CHAT_NONE,
    CHAT_BOOL,
    CHAT_INT,
    CHAT_FLOAT,
    CHAT_STR,
    CHAT_LIST,
    CHAT_DICT,
    CHAT_NAMESPACE,
    CHAT_MACRO,
    CHAT_METHOD, /* of a value, not called; or a function */
    CHAT_LOOP,
};

struct chat_value {
    enum chat_kind kind;
    bool user;   /* of a number: a user wrote, or chose, it */
    bool markup; /* of a text: the filter `safe` gave it */
    union {
        int64_t i; /* also of CHAT_BOOL */
        double f;
        struct chat_str s; /* of CHAT_UNDEFINED: the name that is not defined */
        struct chat_list *list;
        struct chat_dict *dict; /* also of CHAT_NAMESPACE */
        const struct chat_node *macro;
        struct chat_loop *loop;
    };
    struct chat_scope *scope; /* of a macro: where it was defined */
};

/* What Python has for a sequence differs in what one may do with it. */
enum chat_list_kind {
    CHAT_PLAIN_LIST,
    CHAT_TUPLE,
    CHAT_RANGE,
    CHAT_VIEW,      /* of a mapping's keys, values, items: no subscripts */
    CHAT_GENERATOR, /* of map, select ...: always true, no length, read once */
};
struct chat_list {
    enum chat_list_kind kind;
    struct chat_value *v; /* [n] */
    size_t n, capacity;
    size_t n_used; /* of a generator */
};

struct chat_pair {
    struct chat_value key, value;
    bool read;
};
struct chat_dict {
    struct chat_pair *pair; /* [n], in the order of insertion */
    size_t n, capacity;
};

/* ---- nodes ---- */

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
    NODE_FOR,        /* a in b if c; else d */
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
};

/* ---- functions ---- */

struct chat_run;
struct chat_args {
    struct chat_value v[CHAT_ARGS_MAX]; /* by parameter; CHAT_UNDEFINED where not given */
    bool has[CHAT_ARGS_MAX];
    const struct chat_node *node;
};
typedef struct chat_value chat_fn(struct chat_run *r, struct chat_value self,
                                  const struct chat_args *a);

struct chat_builtin {
    const char *name;
    const char *params; /* their names, separated by spaces */
    int n_needed;
    chat_fn *fn;
};
/* By name; NULL: there is none. */
const struct chat_builtin *chat_filter_named(const char *name, size_t n);
const struct chat_builtin *chat_test_named(const char *name, size_t n);
const struct chat_builtin *chat_method_named(const char *name, size_t n);
const struct chat_builtin *chat_in_table(const struct chat_builtin *table,
                                         const char *name, size_t n);
extern const struct chat_builtin chat_text_filters[], chat_list_filters[];
/* Whether Python's text, list or mapping has this attribute. */
bool chat_is_attribute(struct chat_value v, const char *name, size_t n);
/* A function of every template, such as range; NULL fn: there is none. */
bool chat_is_function(const char *name, size_t n);
struct chat_value chat_call_function(struct chat_run *r, const char *name,
                                     const struct chat_node *call);

/* ---- template ---- */

struct chat_template {
    struct chat_arena arena;
    char *source; /* line ends are "\n" */
    size_t n_source;
    char *own; /* [n_source] ones: the origin of literals */
    struct chat_str *names;
    int n_names, cap_names;
    struct chat_node *body;
};

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
    bool *assigned;   /* [t->cap_names] by name */
};
/* parse_expr.c and parse.c */
struct chat_node *chat_parse_expr(struct chat_parser *p);
/* One expression, or several as a tuple. `conditions`: "x if y" may be one. */
struct chat_node *chat_parse_tuple(struct chat_parser *p, bool conditions);
struct chat_node *chat_parse_target(struct chat_parser *p, bool attribute);
struct chat_node *chat_parse_primary(struct chat_parser *p);
struct chat_node *chat_parse_number(struct chat_parser *p);
struct chat_node *chat_parse_postfix(struct chat_parser *p, struct chat_node *a);
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
int chat_name_of(const struct chat_template *t, const char *s, size_t n); /* -1: none */
/* "expected `what`, found ...": returns NULL. */
struct chat_node *chat_expected(struct chat_parser *p, const char *what);
/* ERR_FORMAT: a syntax error; ERR_UNSUPPORTED: a construct that is not known, by name. */
void chat_parse_fail(struct chat_parser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- rendering ---- */

struct chat_var {
    int name;
    bool read;
    struct chat_value value;
};
struct chat_scope {
    struct chat_scope *parent;
    struct chat_var *var;
    int n, capacity;
};

/* What is written, until it becomes the prompt or a value. */
struct chat_output {
    char *p, *own;
    size_t n, capacity;
};

struct chat_run {
    const struct chat_template *t;
    struct chat_input *in;
    struct chat_arena arena;
    int rc;
    const struct chat_node *at; /* for messages */
    int64_t n_steps;
    int depth;
    struct chat_scope *scope, *root;
    struct chat_output *out;
    enum { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;
    char *ones; /* origin of what the interpreter writes: [n_ones] */
    size_t n_ones;
};

/* Keeps the first error, with line and column of r->at. Returns undefined. */
struct chat_value chat_fail(struct chat_run *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool chat_step(struct chat_run *r, size_t bytes);          /* false: the rendering ends */
void *chat_new(struct chat_run *r, size_t n, size_t size); /* NULL: it failed */

struct chat_value chat_eval(struct chat_run *r, const struct chat_node *n);
/* A filter or test of `self`. */
struct chat_value chat_apply(struct chat_run *r, const struct chat_node *n,
                             struct chat_value self);
struct chat_value chat_call_macro(struct chat_run *r, struct chat_value macro,
                                  const struct chat_node *call,
                                  const struct chat_value *caller);
/* What a call calls. `caller`: of a call block; NULL: none. */
struct chat_value chat_call(struct chat_run *r, const struct chat_node *call,
                            const struct chat_value *caller);
void chat_exec(struct chat_run *r, const struct chat_node *list);
void chat_emit(struct chat_run *r, struct chat_str s);
/* Scopes: set in the innermost one, look up in all. */
void chat_enter(struct chat_run *r, struct chat_scope *parent);
void chat_assign(struct chat_run *r, int name, struct chat_value v);
struct chat_var *chat_lookup(struct chat_run *r, int name);
/* Assign to a name, a tuple of names or an attribute of a namespace. */
void chat_assign_to(struct chat_run *r, const struct chat_node *target,
                    struct chat_value v);

/* ---- loops: loop.c ---- */
struct chat_loop {
    const struct chat_node *node;
    struct chat_scope *outer;
    struct chat_list *items, *ahead;
    size_t at, at_ahead;
    int64_t index0;
    struct chat_value before, current, after;
    bool has_before, has_after;
};
/* The next item that passes the loop's filter. */
bool chat_loop_next(struct chat_run *r, struct chat_loop *l);
struct chat_value chat_loop_attr(struct chat_run *r, struct chat_loop *l,
                                 struct chat_str name);

/* ---- value.c ---- */
struct chat_value chat_undefined(struct chat_str name);
struct chat_value chat_none(void);
struct chat_value chat_bool(bool v);
struct chat_value chat_int(int64_t v, bool user);
struct chat_value chat_float(double v, bool user);
struct chat_value chat_text(struct chat_str s);
struct chat_str chat_own(struct chat_run *r, const char *s, size_t n); /* not copied */
struct chat_str chat_cut(struct chat_str s, size_t from, size_t to);
struct chat_list *chat_list_new(struct chat_run *r, enum chat_list_kind kind);
void chat_push(struct chat_run *r, struct chat_list *l, struct chat_value v);
struct chat_value chat_list_value(struct chat_list *l);
struct chat_dict *chat_dict_new(struct chat_run *r);
void chat_put(struct chat_run *r, struct chat_dict *d, struct chat_value key,
              struct chat_value v);
struct chat_pair *chat_find(struct chat_run *r, const struct chat_dict *d,
                            struct chat_value key);
struct chat_pair *chat_find_str(const struct chat_dict *d, const char *s, size_t n);
struct chat_value chat_from_json(struct chat_run *r, const json_t *j);
bool chat_is_str(struct chat_value v, const char *s);
bool chat_str_is(struct chat_str s, const char *word);
bool chat_truth(struct chat_value v);
bool chat_equal(struct chat_run *r, struct chat_value a, struct chat_value b);
/* Less than zero, zero, more; fails where Python has no order. */
int chat_compare(struct chat_run *r, struct chat_value a, struct chat_value b);
int chat_str_compare(struct chat_str a, struct chat_str b);
bool chat_contains(struct chat_run *r, struct chat_value box, struct chat_value v);
bool chat_is_number(struct chat_value v); /* also true and false, as in Python */
double chat_f64(struct chat_value v);
const char *chat_type_name(struct chat_value v); /* Python's */
bool chat_is_user(struct chat_value v);          /* a user chose some of it */
/* The items of what can be iterated, as a new list; NULL: it failed. */
struct chat_list *chat_iterate(struct chat_run *r, struct chat_value v);
struct chat_value chat_binary(struct chat_run *r, enum chat_op op, struct chat_value a,
                              struct chat_value b);
struct chat_value chat_negative(struct chat_run *r, struct chat_value v);
/* obj.name and obj[key], as jinja2's sandbox finds them. */
struct chat_value chat_attr(struct chat_run *r, struct chat_value obj,
                            struct chat_str name);
struct chat_value chat_item(struct chat_run *r, struct chat_value obj,
                            struct chat_value key);
struct chat_value chat_slice(struct chat_run *r, struct chat_value obj,
                             const struct chat_value bound[3]);

/* ---- print.c: values as texts ---- */
struct chat_builder {
    struct chat_run *r;
    char *p, *own;
    size_t n, capacity;
};
void chat_add(struct chat_builder *b, struct chat_str s);
void chat_add_own(struct chat_builder *b, const char *s);
void chat_add_user(struct chat_builder *b, const char *s, size_t n);
/* n bytes of the origin of `like`, which begins at the byte that they replace. */
void chat_add_like(struct chat_builder *b, const char *s, size_t n, bool own);
struct chat_str chat_built(struct chat_builder *b);
struct chat_str chat_str_of(struct chat_run *r, struct chat_value v); /* Python's str() */
struct chat_value chat_tojson(struct chat_run *r, struct chat_value v,
                              const struct chat_args *a);
void chat_add_float(char out[40], double v); /* as Python writes it */

/* ---- unicode.c, text.c ---- */
int32_t chat_code_at(struct chat_str s, size_t at, size_t *len);
size_t chat_n_codes(struct chat_str s);
bool chat_is_space(int32_t code);
bool chat_is_printable(int32_t code);
enum chat_case { CHAT_UPPER, CHAT_LOWER, CHAT_TITLE, CHAT_CAPITALIZE, CHAT_TITLE_FILTER };
struct chat_str chat_case(struct chat_run *r, struct chat_str s, enum chat_case how);
enum { CHAT_LEFT = 1, CHAT_RIGHT = 2, CHAT_BOTH = 3 };
/* Without the characters of `set` (NULL: whitespace) at its ends. */
struct chat_str chat_strip(struct chat_str s, const struct chat_str *set, int sides);
struct chat_list *chat_lines(struct chat_run *r, struct chat_str s);
/* The first place of `part` at or after `from`; SIZE_MAX: none. */
size_t chat_search(struct chat_run *r, struct chat_str s, struct chat_str part,
                   size_t from);
struct chat_str chat_replace(struct chat_run *r, struct chat_str s, struct chat_str from,
                             struct chat_str to, int64_t count);
struct chat_list *chat_chars(struct chat_run *r, struct chat_str s);
struct chat_str chat_join(struct chat_run *r, struct chat_list *items,
                          struct chat_str between, bool convert);

#endif
