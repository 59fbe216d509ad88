/* The sizes of operators that choose, repeat and compare elements. */
#include <string.h>

#include "graph/ops.h"

static int wrong(const char *what)
{
    return err_set(ERR_FORMAT, "%s", what);
}

/* The size of elements begin to end of an axis. Of a dynamic axis the last k are -k to T, and of
 * an axis with a size 0 to T are as many as there are tokens. */
static int slice_size(int64_t size, int64_t begin, int64_t end, int64_t *out)
{
    bool last = begin < 0 && end == GRAPH_DYNAMIC && size == GRAPH_DYNAMIC;
    bool tokens = begin == 0 && end == GRAPH_DYNAMIC && size != GRAPH_DYNAMIC;

    *out = last ? -begin : tokens ? GRAPH_DYNAMIC : end - begin;
    if ((last && begin >= INT32_MIN) || tokens ||
        (begin >= 0 && end > begin && (size == GRAPH_DYNAMIC || end <= size)))
        return OK;
    return err_set(ERR_FORMAT, "elements %lld to %lld of an axis of %lld",
                   (long long)begin, (long long)end, (long long)size);
}

/* Triples of axis, begin and end; each axis at most once. */
int graph_infer_slice(struct graph *g, int i)
{
    const struct graph_node *x = graph_input(g, i, 0);
    struct graph_node *v = &g->nodes[i];
    bool seen[GRAPH_RANK_MAX] = {false};

    if (v->n_ints % 3 != 0)
        return wrong("expected triples of axis, begin and end");
    TRY(graph_same_as_first(g, i));
    for (int k = 0; k < v->n_ints; k += 3) {
        int axis;
        int64_t begin = v->ints[k + 1], end = v->ints[k + 2];

        TRY(graph_axis(v->ints[k], x->shape.rank, &axis));
        if (seen[axis])
            return wrong("expected an axis at most once");
        seen[axis] = true;
        TRY(slice_size(x->shape.dim[axis], begin, end, &v->shape.dim[axis]));
        if (x->n_value >= 0 && x->shape.rank == 1 && end != GRAPH_DYNAMIC) {
            v->n_value = (int)(end - begin);
            memcpy(v->value, &x->value[begin], (size_t)v->n_value * sizeof(v->value[0]));
        }
    }
    return OK;
}

/* Elements of x whose numbers along the axis a tensor holds; below 0 they count from the end. */
int graph_infer_take(struct graph *g, int i)
{
    const struct graph_node *x = graph_input(g, i, 0), *at = graph_input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    int axis, r = at->shape.rank;

    TRY(graph_axis(v->ints[0], x->shape.rank, &axis));
    if (at->type != GRAPH_I64 || x->shape.rank - 1 + r > GRAPH_RANK_MAX)
        return wrong(
            "expected i64 numbers of elements, and no more axes than there may be");
    TRY(graph_same_as_first(g, i));
    v->shape.rank = x->shape.rank - 1 + r;
    memcpy(&v->shape.dim[axis], at->shape.dim, (size_t)r * sizeof(v->shape.dim[0]));
    memcpy(&v->shape.dim[axis + r], &x->shape.dim[axis + 1],
           (size_t)(x->shape.rank - 1 - axis) * sizeof(v->shape.dim[0]));
    if (x->n_value < 0 || at->n_value < 0 || x->shape.rank != 1)
        return OK;
    for (int k = 0; k < at->n_value; k++) {
        int64_t e = at->value[k] < 0 ? at->value[k] + x->n_value : at->value[k];

        if (at->value[k] == GRAPH_DYNAMIC)
            return OK;
        if (e < 0 || e >= x->n_value)
            return err_set(ERR_FORMAT, "element %lld of %d", (long long)at->value[k],
                           x->n_value);
        v->value[k] = x->value[e];
    }
    v->n_value = at->n_value;
    return OK;
}

/* x in larger sizes; among these -1 is the dynamic one. */
int graph_infer_expand(struct graph *g, int i)
{
    const struct graph_node *x = graph_input(g, i, 0), *s = graph_input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    struct graph_shape to = {.rank = s->n_value};
    int64_t n;

    if (s->type != GRAPH_I64 || s->n_value < 0)
        return wrong("the new sizes are not known");
    for (int d = 0; d < to.rank; d++) {
        to.dim[d] = s->value[d] == -1 ? GRAPH_DYNAMIC : s->value[d];
        if (to.dim[d] != GRAPH_DYNAMIC && (to.dim[d] < 1 || to.dim[d] > INT32_MAX))
            return err_set(ERR_FORMAT, "a size of %lld", (long long)to.dim[d]);
    }
    TRY(graph_same_as_first(g, i));
    TRY(graph_broadcast(&v->shape, &x->shape, &to));
    n = graph_n_elements(&v->shape);
    if (x->n_value == 1 && v->shape.rank <= 1 && n > 0 && n <= GRAPH_RANK_MAX) {
        v->n_value = (int)n;
        for (int k = 0; k < n; k++)
            v->value[k] = x->value[0];
    }
    return OK;
}

/* From start to before limit in steps: 0 to the number of tokens, or known numbers. */
int graph_infer_range(struct graph *g, int i)
{
    struct graph_node *v = &g->nodes[i];
    int64_t x[3], n, span;

    for (int a = 0; a < 3; a++) {
        const struct graph_node *in = graph_input(g, i, a);

        if (in->type != GRAPH_I64 || in->n_value != 1)
            return wrong("start, limit and step are not known");
        x[a] = in->value[0];
    }
    v->type = GRAPH_I64;
    v->n_value = -1;
    v->shape = (struct graph_shape){1, {GRAPH_DYNAMIC}};
    if (x[0] == 0 && x[1] == GRAPH_DYNAMIC && x[2] == 1)
        return OK;
    if (x[0] == GRAPH_DYNAMIC || x[1] == GRAPH_DYNAMIC || x[2] < 1 ||
        __builtin_sub_overflow(x[1], x[0], &span) || span < 1)
        return wrong("expected 0 to the number of tokens in steps of 1, or known numbers "
                     "that grow");
    n = (span - 1) / x[2] + 1;
    if (n > INT32_MAX)
        return wrong("too many numbers");
    v->shape.dim[0] = n;
    v->n_value = n <= GRAPH_RANK_MAX ? (int)n : -1;
    for (int k = 0; k < v->n_value; k++)
        v->value[k] = x[0] + k * x[2];
    return OK;
}

/* The integers: 1 the upper triangle, 0 the lower, and the diagonal that it begins with. */
int graph_infer_trilu(struct graph *g, int i)
{
    const struct graph_node *v = &g->nodes[i];

    if (graph_input(g, i, 0)->shape.rank < 2 || v->ints[0] < 0 || v->ints[0] > 1 ||
        v->ints[1] < INT32_MIN || v->ints[1] > INT32_MAX)
        return wrong("expected two axes and more, 0 or 1, and a diagonal");
    return graph_same_as_first(g, i);
}

/* Is what they hold known, as 0 or 1? A dynamic size is at least 1. */
static bool compare(const char *op, int64_t a, int64_t b, int64_t *out)
{
    bool dynamic = a == GRAPH_DYNAMIC || b == GRAPH_DYNAMIC;
    int64_t other = a == GRAPH_DYNAMIC ? b : a;

    *out = strcmp(op, "equal") == 0 ? a == b : strcmp(op, "less") == 0 ? a < b : a <= b;
    if (!dynamic)
        return true;
    return strcmp(op, "equal") == 0 && (a == b || other < 1);
}

static int64_t value_at(const struct graph_node *v, int k)
{
    return v->value[v->n_value == 1 ? 0 : k];
}

/* Of one element, or of as many as the result. */
static bool has_values(const struct graph_node *v, int64_t n)
{
    return v->n_value == 1 || v->n_value == n;
}

/* 1 or 0 for each element. */
int graph_infer_compare(struct graph *g, int i)
{
    const struct graph_node *a = graph_input(g, i, 0), *b = graph_input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    int64_t n;

    if (a->type != b->type)
        return wrong("inputs of two types");
    v->type = GRAPH_I64;
    v->n_value = -1;
    TRY(graph_broadcast(&v->shape, &a->shape, &b->shape));
    n = graph_n_elements(&v->shape);
    if (v->shape.rank > 1 || n < 1 || n > GRAPH_RANK_MAX || !has_values(a, n) ||
        !has_values(b, n))
        return OK;
    v->n_value = (int)n;
    for (int k = 0; k < n; k++)
        if (!compare(v->op->name, value_at(a, k), value_at(b, k), &v->value[k])) {
            v->n_value = -1;
            break;
        }
    return OK;
}

/* Where the first input is not 0 the second, elsewhere the third. */
int graph_infer_where(struct graph *g, int i)
{
    const struct graph_node *c = graph_input(g, i, 0), *a = graph_input(g, i, 1),
                            *b = graph_input(g, i, 2);
    struct graph_node *v = &g->nodes[i];
    struct graph_shape both;
    int64_t n;

    if (c->type != GRAPH_I64 || a->type != b->type)
        return wrong("expected i64, and two tensors of one type");
    v->type = a->type;
    v->n_value = -1;
    TRY(graph_broadcast(&both, &a->shape, &b->shape));
    TRY(graph_broadcast(&v->shape, &both, &c->shape));
    n = graph_n_elements(&v->shape);
    if (v->type != GRAPH_I64 || v->shape.rank > 1 || n < 1 || n > GRAPH_RANK_MAX ||
        !has_values(a, n) || !has_values(b, n) || !has_values(c, n))
        return OK;
    v->n_value = (int)n;
    for (int k = 0; k < n; k++) {
        int64_t chosen = value_at(c, k);

        if (chosen == GRAPH_DYNAMIC) {
            v->n_value = -1;
            return OK;
        }
        v->value[k] = value_at(chosen ? a : b, k);
    }
    return OK;
}

/* To f32 (0), or to i64 (1), which cuts off the fraction. */
int graph_infer_cast(struct graph *g, int i)
{
    const struct graph_node *x = graph_input(g, i, 0);
    struct graph_node *v = &g->nodes[i];

    if (v->ints[0] < 0 || v->ints[0] > 1)
        return wrong("expected 0, f32, or 1, i64");
    TRY(graph_same_as_first(g, i));
    v->type = v->ints[0] ? GRAPH_I64 : GRAPH_F32;
    if (v->type == x->type) {
        v->n_value = x->n_value;
        memcpy(v->value, x->value, sizeof(v->value));
    }
    return OK;
}

/* x, cosines and sines, which broadcast to x: the first half of the last axis is rotated with the
 * second. */
int graph_infer_rope(struct graph *g, int i)
{
    const struct graph_node *x = graph_input(g, i, 0);
    int r = x->shape.rank;

    for (int a = 0; a < 3; a++) {
        const struct graph_node *in = graph_input(g, i, a);
        struct graph_shape all;

        if (in->type != GRAPH_F32)
            return wrong("expected f32");
        TRY(graph_broadcast(&all, &x->shape, &in->shape));
        if (all.rank != r ||
            memcmp(all.dim, x->shape.dim, (size_t)r * sizeof(all.dim[0])))
            return wrong("cosines and sines are larger than what is rotated");
    }
    if (r < 1 || x->shape.dim[r - 1] == GRAPH_DYNAMIC || x->shape.dim[r - 1] % 2)
        return wrong("expected an even last axis");
    return graph_same_as_first(g, i);
}
