/* Several iterations of a loop at once: unroll and jam. */
#include <string.h>

#include "ir/lower.h"

#define NAMES_MAX 64

/* A variable of the body, in iteration r. */
struct variable {
    const char *name;
    const struct ir_node *offset; /* name + offset, in which `var` stands for r; NULL:
                                     a variable of its own, name_r */
};

struct tiling {
    struct ir_lowering *w;
    const char *var;
    int n, n_variables, r;
    bool by_row;
    struct variable v[NAMES_MAX];
    /* Names that may differ between iterations, and of these the ones that are not only
     * given a first value and moved alike. */
    const char *may[NAMES_MAX], *uneven[NAMES_MAX];
    int n_may, n_uneven;
    bool full;
};

static const struct variable *find(const struct tiling *t, const char *name)
{
    for (int i = 0; i < t->n_variables; i++)
        if (strcmp(t->v[i].name, name) == 0)
            return &t->v[i];
    return NULL;
}

static bool is_varying(const struct ir_node *n, void *arg)
{
    const struct tiling *t = arg;

    return (n->kind == IR_NAME || n->kind == IR_DECL) &&
           (strcmp(n->text, t->var) == 0 || find(t, n->text));
}

static bool varies(struct tiling *t, const struct ir_node *n)
{
    return ir_any(n, is_varying, t);
}

/* ---- what may differ between iterations ---- */

static bool add(struct tiling *t, const char **names, int *n, const char *name)
{
    if (ir_among(names, *n, name))
        return false;
    t->full |= *n == NAMES_MAX;
    if (!t->full)
        names[(*n)++] = name;
    return !t->full;
}

static bool is_may(const struct ir_node *n, void *arg)
{
    const struct tiling *t = arg;

    return n->kind == IR_NAME && ir_among(t->may, t->n_may, n->text);
}

static bool may_vary(struct tiling *t, const struct ir_node *n)
{
    return ir_any(n, is_may, t);
}

/* `under`: whether the statements run at all may differ. Returns whether a name was added. */
static bool mark(struct tiling *t, const struct ir_node *n, bool under)
{
    bool more = false;

    for (; n; n = n->next) {
        bool inside = under;

        if (n->kind == IR_DECL && may_vary(t, n->k[1]))
            more |= add(t, t->may, &t->n_may, n->text);
        if (n->kind == IR_ASSIGN && n->k[0]->kind == IR_NAME &&
            (under || n->op != IR_ADD || may_vary(t, n->k[1]))) {
            more |= add(t, t->may, &t->n_may, n->k[0]->text);
            more |= add(t, t->uneven, &t->n_uneven, n->k[0]->text);
        }
        for (int i = 0; i < 3 && n->kind != IR_DECL && n->kind != IR_ASSIGN; i++)
            inside |= n->k[i] && !n->k[i]->next && may_vary(t, n->k[i]) &&
                      (i == 0 || n->kind != IR_IF);
        if (n->kind == IR_LOOP && inside)
            more |= add(t, t->may, &t->n_may, n->text);
        for (int i = 1; i < IR_KIDS; i++)
            if ((n->kind == IR_IF && i < 3) || (n->kind == IR_LOOP && i == 4) ||
                (n->kind == IR_FOR && i >= 2))
                more |= mark(t, n->k[i], inside);
    }
    return more;
}

/* ---- iteration r ---- */

static const char *name_of(struct tiling *t, const char *name)
{
    return ir_textf(t->w->p, "%s__%d", name, t->r);
}

static struct ir_node *of_iteration(struct ir *p, struct ir_node *n, void *arg)
{
    struct tiling *t = arg;
    const struct variable *v;

    if (n->kind == IR_DECL && (v = find(t, n->text)) && !v->offset)
        n->text = name_of(t, n->text);
    if (n->kind != IR_NAME)
        return n;
    if (strcmp(n->text, t->var) == 0)
        return ir_int(p, t->r);
    v = find(t, n->text);
    if (!v)
        return n;
    if (!v->offset)
        return ir_name(p, name_of(t, n->text));
    return t->r == 0 ? n
                     : ir_binary(p, IR_ADD, ir_name(p, n->text), ir_copy(p, v->offset));
}

/* A copy of one statement, without what follows it. */
static struct ir_node *copy_for(struct tiling *t, const struct ir_node *n, int r)
{
    struct ir_node *c = ir_copy(t->w->p, n);
    struct ir_node *by = ir_int(t->w->p, r);

    t->r = r;
    ir_change(t->w->p, &c, of_iteration, t);
    ir_substitute(t->w->p, &c, t->var, by); /* within offsets */
    ir_fold(t->w->p, &c);
    return c;
}

/* ---- pointers that differ by a constant ---- */

/* Sum of terms: those that vary go to *varying. */
static bool split(struct tiling *t, struct ir_node *n, struct ir_node **fixed,
                  struct ir_node **varying)
{
    struct ir *p = t->w->p;

    if (n->kind == IR_BINARY && n->op == IR_ADD)
        return split(t, n->k[0], fixed, varying) && split(t, n->k[1], fixed, varying);
    if (n->kind == IR_NAME && find(t, n->text)) {
        const struct variable *v = find(t, n->text);

        if (!v->offset)
            return false;
        *fixed = *fixed ? ir_binary(p, IR_ADD, *fixed, n) : n;
        n = ir_copy(p, v->offset);
        *varying = *varying ? ir_binary(p, IR_ADD, *varying, n) : n;
        return true;
    }
    if (varies(t, n)) {
        *varying = *varying ? ir_binary(p, IR_ADD, *varying, n) : n;
        return n->kind != IR_NAME || strcmp(n->text, t->var) == 0;
    }
    *fixed = *fixed ? ir_binary(p, IR_ADD, *fixed, n) : n;
    return true;
}

static bool is_var_only(const struct ir_node *n, void *arg)
{
    const struct tiling *t = arg;

    return n->kind == IR_NAME && find(t, n->text);
}

/* A pointer that begins with a constant distance from iteration to iteration, and moves alike. */
static bool take_offset(struct tiling *t, struct ir_node *d)
{
    struct ir_node *fixed = NULL, *varying = NULL, *init;

    if (d->type.ptr == 0 || t->n_variables == NAMES_MAX)
        return false;
    init = ir_copy(t->w->p, d->k[1]);
    if (!split(t, init, &fixed, &varying) || !fixed || !varying ||
        ir_any(varying, is_var_only, t))
        return false;
    t->v[t->n_variables++] = (struct variable){d->text, varying};
    d->k[1] = fixed;
    return true;
}

/* ---- statements ---- */

static int put(struct tiling *t, struct ir_node *n, struct ir_list *out);

/* A step of a pointer that all iterations share. */
static bool is_steady(struct tiling *t, const struct ir_node *n)
{
    return n->kind == IR_ASSIGN && n->k[0]->kind == IR_NAME && find(t, n->k[0]->text) &&
           find(t, n->k[0]->text)->offset;
}

/* A loop of its own that is jammed; one that becomes vectors is copied. */
static bool is_jammed(struct tiling *t, const struct ir_node *n)
{
    return n->kind == IR_LOOP && !varies(t, n->k[0]) && !varies(t, n->k[1]) &&
           !(n->k[2] && varies(t, n->k[2])) && !ir_attr(n, "vector");
}

static bool is_copied(struct tiling *t, const struct ir_node *n)
{
    return n->kind != IR_DECL && !is_steady(t, n) && varies(t, n) &&
           !(n->kind == IR_IF && !varies(t, n->k[0])) && !is_jammed(t, n);
}

static int put_list(struct tiling *t, struct ir_node *list, struct ir_list *out)
{
    struct ir_node *n = list, *next;

    while (n) {
        struct ir_node *end = n;

        while (t->by_row && end && is_copied(t, end)) /* a run of them, row by row */
            end = end->next;
        if (end != n) {
            for (int r = 0; r < t->n; r++)
                for (struct ir_node *s = n; s != end; s = s->next)
                    ir_append(out, copy_for(t, s, r));
            n = end;
            continue;
        }
        next = n->next;
        n->next = NULL;
        TRY(put(t, n, out));
        n = next;
    }
    return OK;
}

static void put_copies(struct tiling *t, struct ir_node *n, struct ir_list *out)
{
    for (int r = 0; r < t->n; r++)
        ir_append(out, copy_for(t, n, r));
}

static int put_inside(struct tiling *t, struct ir_node **list)
{
    IR_LIST_INIT(l);

    TRY(put_list(t, *list, &l));
    *list = l.first;
    return OK;
}

static int put_decl(struct tiling *t, struct ir_node *d, struct ir_list *out)
{
    bool differs = d->k[0] || !d->k[1] || ir_among(t->uneven, t->n_uneven, d->text);

    if (!differs && (!varies(t, d->k[1]) || take_offset(t, d))) {
        ir_append(out, d);
        return OK;
    }
    if (t->n_variables == NAMES_MAX)
        return err_set(ERR_LIMIT, "more than %d variables in a tile", NAMES_MAX);
    t->v[t->n_variables++] = (struct variable){.name = d->text};
    put_copies(t, d, out);
    return OK;
}

static int put(struct tiling *t, struct ir_node *n, struct ir_list *out)
{
    if (n->kind == IR_DECL)
        return put_decl(t, n, out);
    if (is_copied(t, n)) {
        put_copies(t, n, out);
        return OK;
    }
    if (n->kind == IR_IF) {
        TRY(put_inside(t, &n->k[1]));
        TRY(put_inside(t, &n->k[2]));
    } else if (n->kind == IR_LOOP) {
        TRY(put_inside(t, &n->k[4]));
    }
    ir_append(out, n);
    return OK;
}

int ir_tile(struct ir_lowering *w, struct ir_node **list, const char *var, int n,
            bool by_row)
{
    struct tiling t = {.w = w, .var = var, .n = n, .by_row = by_row};
    IR_LIST_INIT(out);

    (void)add(&t, t.may, &t.n_may, var);
    while (mark(&t, *list, false))
        ;
    if (t.full)
        return err_set(ERR_LIMIT, "more than %d variables in a tile", NAMES_MAX);
    TRY(put_list(&t, *list, &out));
    *list = out.first;
    return OK;
}
