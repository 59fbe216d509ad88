/* The operators: their arguments, and the sizes of their results. */
#include <string.h>

#include "graph/graph.h"

static struct graph_node *input(struct graph *g, int i, int a)
{
    return &g->nodes[g->nodes[i].in[a]];
}

static int wrong(const char *what)
{
    return err_set(ERR_FORMAT, "%s", what);
}

/* An axis, counted from the end where it is negative, of `rank` axes. */
static int axis_of(int64_t axis, int rank, int *out)
{
    *out = 0;
    if (axis < -rank || axis >= rank)
        return err_set(ERR_FORMAT, "axis %lld of %d axes", (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return OK;
}

static int given(struct graph *g, int i)
{
    struct graph_node *v = &g->nodes[i];
    int64_t n = graph_n_elements(&v->shape);

    v->n_value = -1;
    if (v->data && v->type == GRAPH_I64 && v->shape.rank <= 1 && n <= GRAPH_RANK_MAX) {
        v->n_value = (int)n;
        for (int k = 0; k < n; k++)
            v->value[k] = (int64_t)v->data[k];
    }
    return OK;
}

static int same_as_first(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);

    g->nodes[i].type = x->type;
    g->nodes[i].shape = x->shape;
    g->nodes[i].n_value = -1;
    return OK;
}

static int infer_shape(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];

    v->type = GRAPH_I64;
    v->shape = (struct graph_shape){1, {x->shape.rank}};
    v->n_value = x->shape.rank;
    memcpy(v->value, x->shape.dim, sizeof(v->value));
    return OK;
}

static int infer_gather(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];
    int axis;

    TRY(axis_of(v->ints[0], x->shape.rank, &axis));
    if (v->ints[1] < 0 ||
        (x->shape.dim[axis] != GRAPH_DYNAMIC && v->ints[1] >= x->shape.dim[axis]))
        return err_set(ERR_FORMAT, "element %lld of %lld", (long long)v->ints[1],
                       (long long)x->shape.dim[axis]);
    TRY(same_as_first(g, i));
    memmove(&v->shape.dim[axis], &v->shape.dim[axis + 1],
            (size_t)(x->shape.rank - 1 - axis) * sizeof(v->shape.dim[0]));
    v->shape.rank--;
    if (x->n_value >= 0 && x->shape.rank == 1) {
        v->n_value = 1;
        v->value[0] = x->value[v->ints[1]];
    }
    return OK;
}

static int infer_concat(struct graph *g, int i)
{
    struct graph_node *v = &g->nodes[i];
    int axis;

    TRY(same_as_first(g, i));
    TRY(axis_of(v->ints[0], v->shape.rank, &axis));
    v->shape.dim[axis] = 0;
    v->n_value = v->shape.rank == 1 ? 0 : -1;
    for (int a = 0; a < v->n_in; a++) {
        const struct graph_node *x = input(g, i, a);

        if (x->type != v->type || x->shape.rank != v->shape.rank ||
            x->shape.dim[axis] == GRAPH_DYNAMIC)
            return wrong("other types or axes than the first input");
        for (int d = 0; d < v->shape.rank; d++)
            if (d != axis && x->shape.dim[d] != v->shape.dim[d])
                return wrong("other sizes than the first input");
        v->shape.dim[axis] += x->shape.dim[axis];
        if (x->n_value < 0 || v->n_value < 0 ||
            v->n_value + x->n_value > GRAPH_RANK_MAX) {
            v->n_value = -1;
            continue;
        }
        memcpy(&v->value[v->n_value], x->value, (size_t)x->n_value * sizeof(x->value[0]));
        v->n_value += x->n_value;
    }
    return OK;
}

static int infer_unsqueeze(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];
    int axis;

    if (x->shape.rank == GRAPH_RANK_MAX)
        return wrong("too many axes");
    TRY(axis_of(v->ints[0], x->shape.rank + 1, &axis));
    TRY(same_as_first(g, i));
    memmove(&v->shape.dim[axis + 1], &v->shape.dim[axis],
            (size_t)(x->shape.rank - axis) * sizeof(v->shape.dim[0]));
    v->shape.dim[axis] = 1;
    v->shape.rank++;
    if (x->shape.rank == 0) { /* its one element, in an axis */
        v->n_value = x->n_value;
        v->value[0] = x->value[0];
    }
    return OK;
}

static int infer_squeeze(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];
    int axis;

    TRY(axis_of(v->ints[0], x->shape.rank, &axis));
    if (x->shape.dim[axis] != 1)
        return wrong("the axis is not of size 1");
    TRY(same_as_first(g, i));
    memmove(&v->shape.dim[axis], &v->shape.dim[axis + 1],
            (size_t)(x->shape.rank - 1 - axis) * sizeof(v->shape.dim[0]));
    v->shape.rank--;
    if (x->shape.rank == 1) {
        v->n_value = x->n_value;
        v->value[0] = x->value[0];
    }
    return OK;
}

/* The product of the known sizes, and how many are dynamic. */
static int64_t product(const int64_t *dim, int n, int *n_dynamic)
{
    int64_t p = 1;

    *n_dynamic = 0;
    for (int d = 0; d < n; d++) {
        if (dim[d] == GRAPH_DYNAMIC)
            ++*n_dynamic;
        else if (__builtin_mul_overflow(p, dim[d], &p))
            return -1;
    }
    return p;
}

static int infer_reshape(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0), *s = input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    int n_from, n_to;
    int64_t from, to;

    if (s->n_value < 0)
        return wrong("the new sizes are not known");
    from = product(x->shape.dim, x->shape.rank, &n_from);
    to = product(s->value, s->n_value, &n_to);
    v->type = x->type;
    v->n_value = -1;
    v->shape.rank = s->n_value;
    memcpy(v->shape.dim, s->value, sizeof(v->shape.dim));
    if (n_from == n_to && n_from <= 1 && from == to)
        return OK;
    if (n_from == 0 && n_to == 1 && to > 0 &&
        from % to == 0) { /* the size that is left */
        for (int d = 0; d < v->shape.rank; d++)
            if (v->shape.dim[d] == GRAPH_DYNAMIC)
                v->shape.dim[d] = from / to;
        return OK;
    }
    return wrong("the elements do not fit the new sizes");
}

static int infer_transpose(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];
    bool seen[GRAPH_RANK_MAX] = {false};

    if (v->n_ints != x->shape.rank)
        return wrong("expected one axis for each of the input");
    TRY(same_as_first(g, i));
    for (int d = 0; d < v->n_ints; d++) {
        if (v->ints[d] < 0 || v->ints[d] >= x->shape.rank || seen[v->ints[d]])
            return wrong("expected each axis once");
        seen[v->ints[d]] = true;
        v->shape.dim[d] = x->shape.dim[v->ints[d]];
    }
    return OK;
}

/* Triples of axis, begin and end; each axis at most once. */
static int infer_slice(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];
    bool seen[GRAPH_RANK_MAX] = {false};

    if (v->n_ints % 3 != 0)
        return wrong("expected triples of axis, begin and end");
    TRY(same_as_first(g, i));
    for (int k = 0; k < v->n_ints; k += 3) {
        int axis;
        int64_t begin = v->ints[k + 1], end = v->ints[k + 2];

        TRY(axis_of(v->ints[k], x->shape.rank, &axis));
        if (seen[axis] || begin < 0 || end <= begin || end > x->shape.dim[axis])
            return err_set(ERR_FORMAT, "elements %lld to %lld of an axis of %lld",
                           (long long)begin, (long long)end,
                           (long long)x->shape.dim[axis]);
        seen[axis] = true;
        v->shape.dim[axis] = end - begin;
        if (x->n_value >= 0 && x->shape.rank == 1) {
            v->n_value = (int)(end - begin);
            memcpy(v->value, &x->value[begin], (size_t)v->n_value * sizeof(v->value[0]));
        }
    }
    return OK;
}

static int broadcast(struct graph_shape *out, const struct graph_shape *a,
                     const struct graph_shape *b)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;

    out->rank = rank;
    for (int d = 0; d < rank; d++) {
        int64_t x = d < rank - a->rank ? 1 : a->dim[d - (rank - a->rank)];
        int64_t y = d < rank - b->rank ? 1 : b->dim[d - (rank - b->rank)];

        if (x != y && x != 1 && y != 1)
            return err_set(ERR_FORMAT, "sizes %lld and %lld", (long long)x, (long long)y);
        out->dim[d] = x == 1 ? y : x;
    }
    return OK;
}

static bool is_known(const struct graph_node *v)
{
    for (int k = 0; k < v->n_value; k++)
        if (v->value[k] == GRAPH_DYNAMIC)
            return false;
    return v->n_value >= 0;
}

static bool arithmetic(const char *op, int64_t a, int64_t b, int64_t *out)
{
    if (strcmp(op, "add") == 0)
        return !__builtin_add_overflow(a, b, out);
    if (strcmp(op, "sub") == 0)
        return !__builtin_sub_overflow(a, b, out);
    if (strcmp(op, "mul") == 0)
        return !__builtin_mul_overflow(a, b, out);
    if (strcmp(op, "div") != 0 || b <= 0 || a < 0)
        return false;
    *out = a / b;
    return true;
}

static int infer_binary(struct graph *g, int i)
{
    const struct graph_node *a = input(g, i, 0), *b = input(g, i, 1);
    struct graph_node *v = &g->nodes[i];

    if (a->type != b->type)
        return wrong("inputs of two types");
    v->type = a->type;
    v->n_value = -1;
    TRY(broadcast(&v->shape, &a->shape, &b->shape));
    if (v->type == GRAPH_F32 || !is_known(a) || !is_known(b) || a->n_value != b->n_value)
        return OK;
    v->n_value = a->n_value;
    for (int k = 0; k < a->n_value; k++)
        if (!arithmetic(v->op->name, a->value[k], b->value[k], &v->value[k]))
            v->n_value = -1;
    return OK;
}

static int infer_unary(struct graph *g, int i)
{
    if (input(g, i, 0)->type != GRAPH_F32)
        return wrong("expected f32");
    return same_as_first(g, i);
}

static int infer_along_axis(struct graph *g, int i)
{
    int axis;

    TRY(infer_unary(g, i));
    return axis_of(g->nodes[i].ints[0], g->nodes[i].shape.rank, &axis);
}

static int infer_reduce(struct graph *g, int i)
{
    struct graph_node *v = &g->nodes[i];
    int axis;

    TRY(infer_unary(g, i));
    TRY(axis_of(v->ints[0], v->shape.rank, &axis));
    v->shape.dim[axis] = 1;
    return OK;
}

/* [.., m, k] and [.., k, n], where the leading sizes broadcast. */
static int infer_matmul(struct graph *g, int i)
{
    const struct graph_node *a = input(g, i, 0), *b = input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    struct graph_shape x = a->shape, y = b->shape;

    if (a->type != GRAPH_F32 || b->type != GRAPH_F32 || x.rank < 2 || y.rank < 2)
        return wrong("expected two f32 tensors of two axes and more");
    if (x.dim[x.rank - 1] != y.dim[y.rank - 2])
        return err_set(ERR_FORMAT, "sizes %lld and %lld", (long long)x.dim[x.rank - 1],
                       (long long)y.dim[y.rank - 2]);
    x.rank -= 2;
    y.rank -= 2;
    TRY(broadcast(&v->shape, &x, &y));
    v->shape.dim[v->shape.rank++] = x.dim[x.rank];
    v->shape.dim[v->shape.rank++] = y.dim[y.rank + 1];
    v->type = GRAPH_F32;
    v->n_value = -1;
    return OK;
}

/* Scale and offset are of the last axis. */
static int infer_norm(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);

    TRY(infer_unary(g, i));
    for (int a = 1; a < g->nodes[i].n_in; a++) {
        const struct graph_node *w = input(g, i, a);

        if (w->type != GRAPH_F32 || w->shape.rank != 1 || x->shape.rank < 1 ||
            w->shape.dim[0] != x->shape.dim[x->shape.rank - 1])
            return wrong("expected a scale of the last axis");
    }
    return OK;
}

static int infer_swiglu(struct graph *g, int i)
{
    const struct graph_node *a = input(g, i, 0), *b = input(g, i, 1);

    TRY(infer_unary(g, i));
    if (b->type != GRAPH_F32 || a->shape.rank != b->shape.rank ||
        memcmp(a->shape.dim, b->shape.dim,
               (size_t)a->shape.rank * sizeof(a->shape.dim[0])) != 0)
        return wrong("expected two tensors of one size");
    return OK;
}

/* Queries [.., t, d], keys [.., s, d], values [.., s, e], and a mask to add to the scores. */
static int infer_attention(struct graph *g, int i)
{
    const struct graph_shape *q = &input(g, i, 0)->shape, *k = &input(g, i, 1)->shape,
                             *u = &input(g, i, 2)->shape;
    int r = q->rank;

    TRY(infer_unary(g, i));
    if (r < 2 || k->rank != r || u->rank != r || q->dim[r - 1] != k->dim[r - 1] ||
        k->dim[r - 2] != u->dim[r - 2])
        return wrong("queries, keys and values do not fit");
    for (int d = 0; d < r - 2; d++)
        if (q->dim[d] != k->dim[d] || q->dim[d] != u->dim[d])
            return wrong("queries, keys and values do not fit");
    g->nodes[i].shape.dim[r - 1] = u->dim[r - 1];
    return OK;
}

const struct graph_op graph_ops[] = {
    {"input", 0, 0, 0, 0, false, given},
    {"weight", 0, 0, 0, 0, false, given},
    {"const", 0, 0, 0, 0, false, given},
    {"shape", 1, 1, 0, 0, false, infer_shape},
    {"gather", 1, 1, 2, 2, false, infer_gather}, /* axis, element */
    {"concat", 1, GRAPH_IN_MAX, 1, 1, false, infer_concat},
    {"unsqueeze", 1, 1, 1, 1, false, infer_unsqueeze},
    {"squeeze", 1, 1, 1, 1, false, infer_squeeze},
    {"reshape", 2, 2, 0, 0, false, infer_reshape},
    {"transpose", 1, 1, 0, GRAPH_RANK_MAX, false, infer_transpose},
    {"slice", 1, 1, 3, GRAPH_INTS_MAX, false, infer_slice},
    {"add", 2, 2, 0, 0, false, infer_binary},
    {"sub", 2, 2, 0, 0, false, infer_binary},
    {"mul", 2, 2, 0, 0, false, infer_binary},
    {"div", 2, 2, 0, 0, false, infer_binary},
    {"pow", 2, 2, 0, 0, false, infer_binary},
    {"sqrt", 1, 1, 0, 0, false, infer_unary},
    {"reciprocal", 1, 1, 0, 0, false, infer_unary},
    {"sigmoid", 1, 1, 0, 0, false, infer_unary},
    {"softmax", 1, 1, 1, 1, false, infer_along_axis},
    {"reduce_mean", 1, 1, 1, 1, false, infer_reduce},
    {"matmul", 2, 2, 0, 0, false, infer_matmul},
    {"layer_norm", 3, 3, 0, 0, true, infer_norm},
    {"rms_norm", 2, 2, 0, 0, true, infer_norm},
    {"swiglu", 2, 2, 0, 0, false, infer_swiglu},
    {"attention", 3, 4, 0, 0, true, infer_attention},
    {0},
};

const struct graph_op *graph_op_find(const char *name)
{
    for (const struct graph_op *op = graph_ops; op->name; op++)
        if (strcmp(op->name, name) == 0)
            return op;
    return NULL;
}
