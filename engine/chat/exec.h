/* chat/exec.h - the interpreter: statements and expressions (exec.c), operators (operate.c), and
 * the filters, tests and methods that they call and that call them again (filter.c, method.c). */
#ifndef CHAT_EXEC_H
#define CHAT_EXEC_H

#include "chat/parse.h"
#include "chat/text.h"

/* A filter, test or method of `v`, which has a row in a table with the names of its parameters. */
#define CHAT_BUILTIN(name)                                                               \
    static struct chat_value name(struct chat_run *r __attribute__((unused)),            \
                                  struct chat_value v __attribute__((unused)),           \
                                  const struct chat_args *a __attribute__((unused)))

#define CHAT_RETURNS(name, value)                                                        \
    CHAT_BUILTIN(name)                                                                   \
    {                                                                                    \
        return value;                                                                    \
    }

/* ---- exec.c ---- */

void chat_exec(struct chat_run *r, const struct chat_node *list);
struct chat_value chat_eval(struct chat_run *r, const struct chat_node *n);
/* A filter, test or method of `self`. */
struct chat_value chat_apply(struct chat_run *r, const struct chat_node *n,
                             struct chat_value self);
/* Scopes: set in the innermost one, look up in all. */
void chat_enter(struct chat_run *r, struct chat_scope *parent);
void chat_assign(struct chat_run *r, int name, struct chat_value v);

/* The variable `loop`. */
struct chat_loop {
    const struct chat_node *node;
    struct chat_scope *outer;
    struct chat_list *items, *ahead;
    size_t at, at_ahead;
    int64_t index0, depth0;
    struct chat_value before, current, after;
    bool has_before, has_after;
};

struct chat_value chat_loop_attr(struct chat_run *r, struct chat_loop *l,
                                 struct chat_str name);

/* ---- operate.c ---- */

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

/* ---- format.c ---- */

/* Python's format % values: a tuple's, or one. */
struct chat_value chat_percent(struct chat_run *r, struct chat_value format,
                               struct chat_value values);
/* Python's str.format() of {} and {0}. */
struct chat_value chat_format(struct chat_run *r, struct chat_str format,
                              const struct chat_value *values, size_t n);
/* `body` in `width` characters, filled on the left ('>'), on the right ('<'), on both sides ('^'),
 * or behind a sign ('='). */
struct chat_str chat_pad(struct chat_run *r, struct chat_str body, int64_t width,
                         struct chat_str fill, char align);

bool chat_contains(struct chat_run *r, struct chat_value box, struct chat_value v);

/* ---- filter.c, method.c ---- */

const struct chat_builtin *chat_in_table(const struct chat_builtin *table,
                                         const char *name, size_t n);
/* Whether Python's text, list or mapping has this attribute. */
bool chat_is_attribute(struct chat_value v, const char *name, size_t n);

#endif
