/* Sums that stay in registers while a loop runs. */
#include <string.h>

#include "ir/lower.h"

#define SUMS_MAX 128

struct sums {
    struct ir_lowering *w;
    const struct ir_node *loop;         /* IR_LOOP or IR_FOR */
    const struct ir_node *at[SUMS_MAX]; /* addresses of stores */
    const char *name[SUMS_MAX];
    int lanes[SUMS_MAX];
    int n;
};

static const struct ir_node *body_of(const struct ir_node *loop)
{
    return loop->kind == IR_LOOP ? loop->k[4] : loop->k[3];
}

static int find(const struct sums *s, const struct ir_node *address)
{
    int i = 0;

    while (i < s->n && !ir_same(s->at[i], address))
        i++;
    return i < s->n ? i : -1;
}

static bool is_moving(const struct ir_node *n, void *arg)
{
    const struct ir_node *loop = arg;

    return n->kind == IR_CALL ||
           (n->kind == IR_NAME &&
            (strcmp(n->text, loop->text) == 0 || ir_assigns(body_of(loop), n->text)));
}

/* The addresses that the loop stores to and that stay where they are. */
static bool collect(const struct ir_node *n, void *arg)
{
    struct sums *s = arg;
    int lanes = n->kind == IR_EXPR ? ir_vector_lanes(n->k[0], "store") : 0;

    if (lanes == 0 || s->n == SUMS_MAX)
        return false;
    n = n->k[0]->k[0];
    if (find(s, n) < 0 && !ir_any(n, is_moving, (void *)s->loop)) {
        s->at[s->n] = n;
        s->lanes[s->n] = lanes;
        s->name[s->n++] = ir_textf(s->w->p, "ir_sum%d", ++s->w->n_names);
    }
    return false;
}

/* Anything else of the same array would read what is in a register. */
struct other {
    const struct sums *s;
    const char *root;
};

static bool has_other(const struct ir_node *n, struct other *x)
{
    for (; n; n = n->next) {
        if (n->kind == IR_CALL &&
            (ir_vector_lanes(n, "load") || ir_vector_lanes(n, "store")) &&
            find(x->s, n->k[0]) >= 0) {
            if (has_other(n->k[0]->next, x))
                return true;
            continue;
        }
        if (n->kind == IR_NAME && strcmp(n->text, x->root) == 0)
            return true;
        for (int i = 0; i < IR_KIDS; i++)
            if (has_other(n->k[i], x))
                return true;
    }
    return false;
}

static struct ir_node *into_register(struct ir *p, struct ir_node *n, void *arg)
{
    const struct sums *s = arg;
    int i;

    if (n->kind == IR_EXPR && ir_vector_lanes(n->k[0], "store") &&
        (i = find(s, n->k[0]->k[0])) >= 0) {
        n->kind = IR_ASSIGN;
        n->op = IR_SET;
        n->k[1] = n->k[0]->k[0]->next;
        n->k[0] = ir_name(p, s->name[i]);
        return n;
    }
    if (ir_vector_lanes(n, "load") && (i = find(s, n->k[0])) >= 0)
        return ir_name(p, s->name[i]);
    return n;
}

/* `sum = sum + x` is `sum += x`. */
static struct ir_node *shorten(struct ir *p, struct ir_node *n, void *arg)
{
    (void)p, (void)arg;
    if (n->kind == IR_ASSIGN && n->op == IR_SET && n->k[1]->kind == IR_BINARY &&
        n->k[1]->op == IR_ADD && ir_same(n->k[0], n->k[1]->k[0])) {
        n->op = IR_ADD;
        n->k[1] = n->k[1]->k[1];
    }
    return n;
}

static void promote_loop(struct ir_lowering *w, struct ir_node *loop, struct ir_list *out)
{
    struct sums s = {.w = w, .loop = loop};
    struct ir *p = w->p;

    (void)ir_any_in_list(body_of(loop), collect, &s);
    for (int i = 0; i < s.n; i++) {
        struct other x = {&s, ir_root(s.at[i])};

        if (!x.root || has_other(body_of(loop), &x)) {
            ir_append(out, loop);
            return;
        }
    }
    for (int i = 0; i < s.n; i++)
        ir_append(out,
                  ir_decl(p, ir_vector_type(p, s.lanes[i]), s.name[i],
                          ir_vector_call(p, "load", s.lanes[i], ir_copy(p, s.at[i]))));
    for (int i = 0; i < s.n; i++) /* they are in the tree that is changed */
        s.at[i] = ir_copy(p, s.at[i]);
    if (s.n > 0) {
        ir_change(p, &loop->k[loop->kind == IR_LOOP ? 4 : 3], into_register, &s);
        ir_change(p, &loop->k[loop->kind == IR_LOOP ? 4 : 3], shorten, NULL);
    }
    ir_append(out, loop);
    for (int i = 0; i < s.n; i++) {
        struct ir_node *e = ir_node(p, IR_EXPR, 0), *at = ir_copy(p, s.at[i]);

        at->next = ir_name(p, s.name[i]);
        e->k[0] = ir_vector_call(p, "store", s.lanes[i], at);
        ir_append(out, e);
    }
}

static int promote(void *arg, struct ir_node *n, struct ir_list *out)
{
    struct ir_lowering *w = arg;

    if (n->kind == IR_LOOP || n->kind == IR_FOR) {
        promote_loop(w, n, out);
        return OK;
    }
    if (n->kind == IR_IF) {
        TRY(ir_promote(w, &n->k[1]));
        TRY(ir_promote(w, &n->k[2]));
    }
    ir_append(out, n);
    return OK;
}

int ir_promote(struct ir_lowering *w, struct ir_node **list)
{
    return ir_each(list, promote, w);
}
