/* Loops of the high level as loops of C: vectors, copies, further sums, prefetching. */
#include <stdio.h>
#include <string.h>

#include "ir/lower.h"
#include "kernels/kern.h"

#define UNROLL_MAX 64

int64_t ir_attr_value(const struct ir_node *loop, const char *name, int64_t absent)
{
    int64_t x;

    return ir_int_value(ir_attr(loop, name), &x) && x > 0 ? x : absent;
}

int ir_check_loop(const struct ir_node *n, int64_t *lanes, int64_t *unroll)
{
    *lanes = ir_attr_value(n, "vector", 1);
    *unroll = ir_attr_value(n, "unroll", 1);
    if (*lanes > IR_LANES_MAX || (*lanes & (*lanes - 1)) || *unroll > UNROLL_MAX)
        return err_set(ERR_ARG,
                       "the loop over %s: expected vectors of 1, 2, 4, 8 or 16 and at "
                       "most %d at once",
                       n->text, UNROLL_MAX);
    return OK;
}

struct expansion {
    struct ir_lowering *w;
    struct ir_node *loop;
    int64_t lanes, unroll;
    const char *var, *ahead; /* the counter; the variable of the distance or NULL */
    int n_sets;              /* of sums */
    int n_sums;              /* of vectors, in a set */
    struct ir_list *out;
};

/* The names of sums of vectors that the loop adds to. */
#define SUMS_MAX 128
struct sum_names {
    const struct ir_lowering *w;
    const char *v[SUMS_MAX];
    int n;
};

static bool collect_sum(const struct ir_node *n, void *arg)
{
    struct sum_names *s = arg;
    struct ir_type t;

    if (n->kind != IR_ASSIGN || n->op != IR_ADD || n->k[0]->kind != IR_NAME)
        return false;
    t = ir_type_of(s->w, n->k[0]);
    if (t.base && strncmp(t.base, "f32x", 4) == 0 && s->n < SUMS_MAX &&
        !ir_among(s->v, s->n, n->k[0]->text))
        s->v[s->n++] = n->k[0]->text;
    return false;
}

/* Loads that move with the counter are asked for ahead of their use, a line once. */
struct loads {
    const struct expansion *x;
    const struct ir_node *at[KERN_NP_MAX];
    int n;
};

static bool collect_load(const struct ir_node *n, void *arg)
{
    struct loads *l = arg;

    if (!ir_vector_lanes(n, "load") || n->k[0]->kind != IR_UNARY ||
        !ir_mentions(n->k[0], l->x->loop->text) || l->n == KERN_NP_MAX)
        return false;
    for (int i = 0; i < l->n; i++)
        if (ir_same(l->at[i]->k[0]->k[0], n->k[0]->k[0]->k[0]))
            return false;
    l->at[l->n++] = n->k[0];
    return false;
}

/* Into the first level where a vector is a whole line and many sums take longer than reading it,
 * else into the second: what waits for memory anyway leaves the first level to others. */
#define FAR_SUMS 8

static bool is_line(const struct ir_node *n, void *arg)
{
    (void)arg;
    return ir_vector_lanes(n, "load") == IR_LANES_MAX;
}

static void put_prefetches(const struct expansion *x, const struct ir_node *body,
                           struct ir_list *out)
{
    struct ir *p = x->w->p;
    struct loads l = {.x = x};
    bool whole_line;

    (void)ir_any_in_list(body, collect_load, &l);
    whole_line = ir_any_in_list(body, is_line, NULL);
    for (int i = 0; i < l.n; i++) {
        struct ir_node *e = ir_node(p, IR_EXPR, 0), *at = ir_node(p, IR_CAST, 0);
        bool near = x->n_sums > FAR_SUMS && whole_line;

        at->type = (struct ir_type){.base = "char", .is_const = true, .ptr = 1};
        at->k[0] = ir_copy(p, l.at[i]);
        at = ir_binary(p, IR_ADD, at, ir_name(p, x->ahead));
        at->next = ir_int(p, 0);
        at->next->next = ir_int(p, near ? 3 : 2);
        e->k[0] = ir_call(p, "__builtin_prefetch", at);
        ir_append(out, e);
    }
}

/* The body for `lanes` iterations from the counter plus `from` on, as a block. */
static int put_copy(const struct expansion *x, int64_t lanes, int64_t from, int set,
                    struct ir_list *out)
{
    struct ir *p = x->w->p;
    struct ir_node *block = ir_node(p, IR_BLOCK, x->loop->line), *at, *body;
    struct sum_names sums = {.w = x->w};
    IR_LIST_INIT(l);

    if (lanes > 1)
        TRY(ir_vector(x->w, &body, x->loop, (int)lanes));
    else
        body = ir_copy_list(p, x->loop->k[4]);
    if (x->ahead)
        put_prefetches(x, body, &l);
    ir_append(&l, body);
    block->k[0] = l.first;
    at = ir_binary(p, IR_ADD, ir_name(p, x->var), ir_int(p, from));
    ir_substitute(p, &block->k[0], x->loop->text, at);
    if (lanes > 1 && x->loop->op == IR_RED)
        ir_rename(p, &block->k[0], x->loop->k[4]->k[0]->text,
                  ir_textf(p, "%s__%d", x->var, set));
    else if (set > 0) {
        (void)ir_any_in_list(block->k[0], collect_sum, &sums);
        for (int i = 0; i < sums.n; i++)
            ir_rename(p, &block->k[0], sums.v[i], ir_textf(p, "%s__%d", sums.v[i], set));
    }
    ir_fold(p, &block->k[0]);
    TRY(ir_expand(x->w, &block->k[0]));
    ir_append(out, block);
    return OK;
}

/* for (; var + (width - 1) < hi; var += width) n copies of `lanes`. */
static int put_for(const struct expansion *x, int64_t lanes, int64_t n,
                   struct ir_list *out)
{
    struct ir *p = x->w->p;
    struct ir_node *f = ir_node(p, IR_FOR, x->loop->line), *left;
    IR_LIST_INIT(body);

    left = ir_name(p, x->var);
    if (lanes * n > 1)
        left = ir_binary(p, IR_ADD, left, ir_int(p, lanes * n - 1));
    f->k[1] = ir_binary(p, IR_LT, left, ir_copy(p, x->loop->k[1]));
    f->k[2] = ir_assign(p, IR_ADD, ir_name(p, x->var), ir_int(p, lanes * n));
    for (int64_t i = 0; i < n; i++)
        TRY(put_copy(x, lanes, i * lanes, (int)(i % x->n_sets), &body));
    f->k[3] = body.first;
    ir_append(out, f);
    return OK;
}

/* Further sets of sums: zero before the loop, added behind it. */
static void put_sets(const struct expansion *x, const struct sum_names *sums, bool after,
                     struct ir_list *out)
{
    struct ir *p = x->w->p;

    for (int set = 1; set < x->n_sets; set++)
        for (int i = 0; i < sums->n; i++) {
            const char *name = ir_textf(p, "%s__%d", sums->v[i], set);
            struct ir_type t = ir_type_of(x->w, ir_name(p, sums->v[i]));
            int lanes = 0;

            (void)sscanf(t.base, "f32x%d", &lanes);
            if (after)
                ir_append(out,
                          ir_assign(p, IR_ADD, ir_name(p, sums->v[i]), ir_name(p, name)));
            else
                ir_append(out, ir_decl(p, t, name,
                                       ir_vector_call(p, "splat", lanes, ir_int(p, 0))));
        }
}

/* The sum of a reduction in vectors: one for each copy. */
static void put_lane_sums(const struct expansion *x, bool after, struct ir_list *out)
{
    struct ir *p = x->w->p;

    for (int i = 0; i < x->n_sets; i++) {
        const char *name = ir_textf(p, "%s__%d", x->var, i);

        if (after)
            ir_append(out, ir_assign(p, IR_ADD, ir_copy(p, x->loop->k[4]->k[0]),
                                     ir_vector_call(p, "sum", (int)x->lanes,
                                                    ir_name(p, name))));
        else
            ir_append(out,
                      ir_decl(p, ir_vector_type(p, (int)x->lanes), name,
                              ir_vector_call(p, "splat", (int)x->lanes, ir_int(p, 0))));
    }
}

/* A variable for the distance of prefetching, where it is not 0. */
static void put_ahead(struct expansion *x)
{
    struct ir_node *ahead = ir_attr(x->loop, "ahead");
    struct ir *p = x->w->p;
    int64_t value;

    if (!ahead || (ir_int_value(ahead, &value) && value == 0))
        return;
    x->ahead = ir_textf(p, "ir_ahead_%s", x->var);
    ir_append(x->out, ir_decl(p, (struct ir_type){.base = "size_t", .is_const = true},
                              x->ahead, ir_copy(p, ahead)));
}

static int expand_loop(struct ir_lowering *w, struct ir_node *n, struct ir_list *out)
{
    struct expansion x = {.w = w, .loop = n, .n_sets = 1, .out = out};
    struct sum_names sums = {.w = w};
    struct ir *p = w->p;
    int64_t least = ir_attr_value(n, "sums", 0);
    bool lanes_sum;

    TRY(ir_check_loop(n, &x.lanes, &x.unroll));
    if (x.lanes * x.unroll > 1 && n->k[2])
        return err_set(ERR_UNSUPPORTED, "the loop over %s cannot be unrolled: its step",
                       n->text);
    x.var = ir_textf(p, "%s__%d", n->text, ++w->n_names);
    ir_append(out, ir_decl(p, n->type, x.var, ir_copy(p, n->k[0])));
    put_ahead(&x);
    lanes_sum = x.lanes > 1 && n->op == IR_RED;
    (void)ir_any_in_list(n->k[4], collect_sum, &sums);
    x.n_sums = sums.n;
    if (lanes_sum)
        x.n_sets = (int)x.unroll;
    else if (sums.n > 0 && least > sums.n && x.unroll > 1)
        x.n_sets = (int)((least + sums.n - 1) / sums.n);
    if (x.n_sets > x.unroll)
        x.n_sets = (int)x.unroll;
    if (lanes_sum)
        put_lane_sums(&x, false, out);
    else
        put_sets(&x, &sums, false, out);
    if (x.unroll > 1)
        TRY(put_for(&x, x.lanes, x.unroll, out));
    if (x.lanes > 1)
        TRY(put_for(&x, x.lanes, 1, out));
    if (lanes_sum)
        put_lane_sums(&x, true, out);
    else
        put_sets(&x, &sums, true, out);
    if (x.lanes * x.unroll > 1 || !n->k[2])
        return put_for(&x, 1, 1, out);
    /* another step */
    x.n_sets = 1;
    TRY(put_for(&x, 1, 1, out));
    for (struct ir_node *f = out->first; f; f = f->next)
        if (f->kind == IR_FOR && !f->next)
            f->k[2]->k[1] = ir_copy(p, n->k[2]);
    return OK;
}

static int expand(void *arg, struct ir_node *n, struct ir_list *out)
{
    struct ir_lowering *w = arg;

    if (n->kind == IR_IF) {
        TRY(ir_expand(w, &n->k[1]));
        TRY(ir_expand(w, &n->k[2]));
    } else if (n->kind == IR_FOR) {
        TRY(ir_expand(w, &n->k[3]));
    } else if (n->kind == IR_LOOP) {
        struct ir_node *block = ir_node(w->p, IR_BLOCK, n->line);
        IR_LIST_INIT(l);

        TRY(expand_loop(w, n, &l));
        block->k[0] = l.first;
        n = block;
    }
    ir_append(out, n);
    return OK;
}

int ir_expand(struct ir_lowering *w, struct ir_node **list)
{
    return ir_each(list, expand, w);
}
