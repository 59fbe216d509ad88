/* chat/value.h - values as Python has them, and what a rendering keeps.
 *
 * All values of a rendering are in an arena that is given back at its end. The first error is kept
 * in `rc`, and everything after it returns at once, so that callers check it where they loop or
 * use what they got. */
#ifndef CHAT_VALUE_H
#define CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/template.h"

#define CHAT_DEPTH_MAX 1000 /* nested evaluations, each of at most 1.5 KiB of stack */
#define CHAT_STEPS_MAX (16 << 20) /* nodes evaluated by one rendering: about a second */
#define CHAT_BYTES_MAX ((size_t)192 << 20) /* of all values of one rendering */

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

/* Python's kinds of sequence differ in what one may do with them. */
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
    bool group;    /* a tuple of groupby: has the attributes grouper and list */
};

struct chat_pair {
    struct chat_value key, value;
    bool read;
};
struct chat_dict {
    struct chat_pair *pair; /* [n], in the order of insertion */
    size_t n, capacity;
};

/* ---- a rendering ---- */

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

/* A text that grows: a value, or what is written until it becomes the prompt or a value. */
struct chat_builder {
    struct chat_run *r;
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
    struct chat_builder *out;
    enum { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;
    char *ones; /* origin of what the interpreter writes: [n_ones] */
    size_t n_ones;
};

/* Keeps the first error, with line and column of r->at. Returns undefined. */
struct chat_value chat_fail(struct chat_run *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* One step, and one for each 16 bytes that an operation touches, before or right after it. All
 * work counts, so that steps bound the time whatever the template does. false: it ends. */
bool chat_step(struct chat_run *r, size_t bytes);
void *chat_new(struct chat_run *r, size_t n, size_t size); /* NULL: it failed */

/* ---- making and comparing ---- */

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
struct chat_pair *chat_find_str(struct chat_run *r, const struct chat_dict *d,
                                const char *s, size_t n);
struct chat_value chat_from_json(struct chat_run *r, const json_t *j);
bool chat_is_str(struct chat_value v, const char *s);
bool chat_str_is(struct chat_str s, const char *word);
bool chat_truth(struct chat_value v);
bool chat_equal(struct chat_run *r, struct chat_value a, struct chat_value b);
/* Less than zero, zero, more; fails where Python has no order. */
int chat_compare(struct chat_run *r, struct chat_value a, struct chat_value b);
bool chat_is_number(struct chat_value v); /* also true and false, as in Python */
double chat_f64(struct chat_value v);
const char *chat_type_name(struct chat_value v);            /* Python's */
bool chat_is_user(struct chat_run *r, struct chat_value v); /* a user chose some of it */

#endif
