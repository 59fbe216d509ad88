/* The operators: their arguments, and the types, sizes and values of their results. */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

/* Input a of node i. */
static struct graph_node *input(struct graph *g, int i, int a)
{
    return &g->nodes[g->nodes[i].in[a]];
}

static int wrong(const char *what)
{
    return err_set(ERR_FORMAT, "%s", what);
}

int64_t graph_n_elements(const struct graph_shape *s)
{
    int64_t n = 1;

    for (int d = 0; d < s->rank; d++) {
        if (s->dim[d] == GRAPH_DYNAMIC)
            return GRAPH_DYNAMIC;
        if (__builtin_mul_overflow(n, s->dim[d], &n))
            return INT64_MAX;
    }
    return n;
}

int graph_axis(int64_t axis, int rank, int *out)
{
    *out = 0;
    if (axis < -rank || axis >= rank)
        return err_set(ERR_FORMAT, "axis %lld of %d axes", (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return OK;
}

/* Of an error: as a text of a graph has it. */
#define SIZE_TEXT 24
static const char *size_text(char out[SIZE_TEXT], int64_t size)
{
    snprintf(out, SIZE_TEXT, "%lld", (long long)size);
    return size == GRAPH_DYNAMIC ? "T" : out;
}

static int sizes_differ(int64_t x, int64_t y)
{
    char a[SIZE_TEXT], b[SIZE_TEXT];

    return err_set(ERR_FORMAT, "sizes %s and %s", size_text(a, x), size_text(b, y));
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

/* Type and shape of node i are those of its first input; its value is not known. */
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

    TRY(graph_axis(v->ints[0], x->shape.rank, &axis));
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
    TRY(graph_axis(v->ints[0], v->shape.rank, &axis));
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
    TRY(graph_axis(v->ints[0], x->shape.rank + 1, &axis));
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

    TRY(graph_axis(v->ints[0], x->shape.rank, &axis));
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

/* The product of the known sizes; how many are dynamic, and how many are what is left (-1). */
static int64_t product(const int64_t *dim, int n, int *n_dynamic, int *n_left)
{
    int64_t p = 1;

    *n_dynamic = *n_left = 0;
    for (int d = 0; d < n; d++) {
        if (dim[d] == GRAPH_DYNAMIC)
            ++*n_dynamic;
        else if (dim[d] == -1)
            ++*n_left;
        else if (dim[d] < 0 || __builtin_mul_overflow(p, dim[d], &p))
            return -1;
    }
    return p;
}

/* One size may be -1: what is left. */
static int infer_reshape(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0), *s = input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    int n_from, n_to, n_left;
    int64_t from, to, left;

    if (s->type != GRAPH_I64 || s->n_value < 0)
        return wrong("the new sizes are not known");
    from = product(x->shape.dim, x->shape.rank, &n_from, &n_left);
    to = product(s->value, s->n_value, &n_to, &n_left);
    v->type = x->type;
    v->n_value = -1;
    v->shape.rank = s->n_value;
    memcpy(v->shape.dim, s->value, sizeof(v->shape.dim));
    if (from < 0 || to < 0 || n_left > 1 || (n_left == 1 && to == 0))
        return wrong("the elements do not fit the new sizes");
    left = n_left == 0 ? 1 : n_from == n_to + 1 ? GRAPH_DYNAMIC : from / to;
    if (n_from != n_to + (left == GRAPH_DYNAMIC) ||
        from != (left == GRAPH_DYNAMIC ? to : to * left))
        return wrong("the elements do not fit the new sizes");
    for (int d = 0; d < v->shape.rank; d++)
        if (v->shape.dim[d] == -1)
            v->shape.dim[d] = left;
    if (v->shape.rank <= 1 && x->n_value >= 0) {
        v->n_value = x->n_value;
        memcpy(v->value, x->value, sizeof(v->value));
    }
    return OK;
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

/* The sizes of two tensors that broadcast to each other. */
MUST static int broadcast(struct graph_shape *out, const struct graph_shape *a,
                          const struct graph_shape *b)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;

    out->rank = rank;
    for (int d = 0; d < rank; d++) {
        int64_t x = d < rank - a->rank ? 1 : a->dim[d - (rank - a->rank)];
        int64_t y = d < rank - b->rank ? 1 : b->dim[d - (rank - b->rank)];

        if (x != y && x != 1 && y != 1)
            return sizes_differ(x, y);
        out->dim[d] = x == 1 ? y : x;
    }
    return OK;
}

/* The result is known of a dynamic size plus 0 or times 1: itself. */
static bool arithmetic(const char *op, int64_t a, int64_t b, int64_t *out)
{
    bool sums = strcmp(op, "add") == 0 || strcmp(op, "sub") == 0;

    if (a == GRAPH_DYNAMIC || b == GRAPH_DYNAMIC) {
        bool swapped = a != GRAPH_DYNAMIC;

        *out = GRAPH_DYNAMIC;
        return (swapped ? a : b) == !sums &&
               (!swapped || strcmp(op, "add") == 0 || strcmp(op, "mul") == 0) &&
               strcmp(op, "pow") != 0;
    }
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
    int n;

    if (a->type != b->type)
        return wrong("inputs of two types");
    v->type = a->type;
    v->n_value = -1;
    TRY(broadcast(&v->shape, &a->shape, &b->shape));
    n = a->n_value > b->n_value ? a->n_value : b->n_value;
    if (v->type == GRAPH_F32 || v->shape.rank > 1 || a->n_value < 0 || b->n_value < 0 ||
        (a->n_value != n && a->n_value != 1) || (b->n_value != n && b->n_value != 1))
        return OK;
    v->n_value = n;
    for (int k = 0; k < n; k++)
        if (!arithmetic(v->op->name, a->value[a->n_value == 1 ? 0 : k],
                        b->value[b->n_value == 1 ? 0 : k], &v->value[k])) {
            v->n_value = -1;
            break;
        }
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
    return graph_axis(g->nodes[i].ints[0], g->nodes[i].shape.rank, &axis);
}

static int infer_reduce(struct graph *g, int i)
{
    struct graph_node *v = &g->nodes[i];
    int axis;

    TRY(infer_unary(g, i));
    TRY(graph_axis(v->ints[0], v->shape.rank, &axis));
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
        return sizes_differ(x.dim[x.rank - 1], y.dim[y.rank - 2]);
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

/* Queries [.., h, t, d], keys [.., h / g, s, d], values [.., h / g, s, e], and a mask to add to the
 * scores. */
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
        if (k->dim[d] != u->dim[d] ||
            (q->dim[d] != k->dim[d] &&
             (d != r - 3 || k->dim[d] < 1 || q->dim[d] < 1 || q->dim[d] % k->dim[d])))
            return wrong("queries, keys and values do not fit");
    g->nodes[i].shape.dim[r - 1] = u->dim[r - 1];
    return OK;
}

/* ---- operators that choose, repeat and compare elements ---- */

/* The size of elements begin to end of an axis. Of a dynamic axis the last k are -k to T, and of
 * an axis with a size 0 to T are as many as there are tokens. */
static int slice_size(int64_t size, int64_t begin, int64_t end, int64_t *out)
{
    char from[SIZE_TEXT], to[SIZE_TEXT], of[SIZE_TEXT];
    bool last = begin < 0 && end == GRAPH_DYNAMIC && size == GRAPH_DYNAMIC;
    bool tokens = begin == 0 && end == GRAPH_DYNAMIC && size != GRAPH_DYNAMIC;

    if ((last && begin >= INT32_MIN) || tokens ||
        (begin >= 0 && end > begin && (size == GRAPH_DYNAMIC || end <= size))) {
        *out = last ? -begin : tokens ? GRAPH_DYNAMIC : end - begin;
        return OK;
    }
    return err_set(ERR_FORMAT, "elements %s to %s of an axis of %s",
                   size_text(from, begin), size_text(to, end), size_text(of, size));
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
static int infer_take(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0), *at = input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    int axis, r = at->shape.rank;

    TRY(graph_axis(v->ints[0], x->shape.rank, &axis));
    if (at->type != GRAPH_I64 || x->shape.rank - 1 + r > GRAPH_RANK_MAX)
        return wrong(
            "expected i64 numbers of elements, and no more axes than there may be");
    TRY(same_as_first(g, i));
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
static int infer_expand(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0), *s = input(g, i, 1);
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
    TRY(same_as_first(g, i));
    TRY(broadcast(&v->shape, &x->shape, &to));
    n = graph_n_elements(&v->shape);
    if (x->n_value == 1 && v->shape.rank <= 1 && n > 0 && n <= GRAPH_RANK_MAX) {
        v->n_value = (int)n;
        for (int k = 0; k < n; k++)
            v->value[k] = x->value[0];
    }
    return OK;
}

/* From start to before limit in steps: 0 to the number of tokens, or known numbers. */
static int infer_range(struct graph *g, int i)
{
    struct graph_node *v = &g->nodes[i];
    int64_t x[3], n, span;

    for (int a = 0; a < 3; a++) {
        const struct graph_node *in = input(g, i, a);

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
static int infer_trilu(struct graph *g, int i)
{
    const struct graph_node *v = &g->nodes[i];

    if (input(g, i, 0)->shape.rank < 2 || v->ints[0] < 0 || v->ints[0] > 1 ||
        v->ints[1] < INT32_MIN || v->ints[1] > INT32_MAX)
        return wrong("expected two axes and more, 0 or 1, and a diagonal");
    return same_as_first(g, i);
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

/* A value has one element, or as many as the result. */
static bool has_values(const struct graph_node *v, int64_t n)
{
    return v->n_value == 1 || v->n_value == n;
}

/* 1 or 0 for each element. */
static int infer_compare(struct graph *g, int i)
{
    const struct graph_node *a = input(g, i, 0), *b = input(g, i, 1);
    struct graph_node *v = &g->nodes[i];
    int64_t n;

    if (a->type != b->type)
        return wrong("inputs of two types");
    v->type = GRAPH_I64;
    v->n_value = -1;
    TRY(broadcast(&v->shape, &a->shape, &b->shape));
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
static int infer_where(struct graph *g, int i)
{
    const struct graph_node *c = input(g, i, 0), *a = input(g, i, 1), *b = input(g, i, 2);
    struct graph_node *v = &g->nodes[i];
    struct graph_shape both;
    int64_t n;

    if (c->type != GRAPH_I64 || a->type != b->type)
        return wrong("expected i64, and two tensors of one type");
    v->type = a->type;
    v->n_value = -1;
    TRY(broadcast(&both, &a->shape, &b->shape));
    TRY(broadcast(&v->shape, &both, &c->shape));
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
static int infer_cast(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    struct graph_node *v = &g->nodes[i];

    if (v->ints[0] < 0 || v->ints[0] > 1)
        return wrong("expected 0, f32, or 1, i64");
    TRY(same_as_first(g, i));
    v->type = v->ints[0] ? GRAPH_I64 : GRAPH_F32;
    if (v->type == x->type) {
        v->n_value = x->n_value;
        memcpy(v->value, x->value, sizeof(v->value));
    }
    return OK;
}

/* x, cosines and sines, which broadcast to x: the first half of the last axis is rotated with the
 * second. */
static int infer_rope(struct graph *g, int i)
{
    const struct graph_node *x = input(g, i, 0);
    int r = x->shape.rank;

    for (int a = 0; a < 3; a++) {
        const struct graph_node *in = input(g, i, a);
        struct graph_shape all;

        if (in->type != GRAPH_F32)
            return wrong("expected f32");
        TRY(broadcast(&all, &x->shape, &in->shape));
        if (all.rank != r ||
            memcmp(all.dim, x->shape.dim, (size_t)r * sizeof(all.dim[0])))
            return wrong("cosines and sines are larger than what is rotated");
    }
    if (r < 1 || x->shape.dim[r - 1] == GRAPH_DYNAMIC || x->shape.dim[r - 1] % 2)
        return wrong("expected an even last axis");
    return same_as_first(g, i);
}

/* ---- the table ---- */

static const struct graph_op ops[] = {
    {"input", 0, 0, 0, 0, false, given},
    {"weight", 0, 0, 0, 0, false, given},
    {"const", 0, 0, 0, 0, false, given},
    {"shape", 1, 1, 0, 0, false, infer_shape},
    {"gather", 1, 1, 2, 2, false, infer_gather}, /* axis, element */
    {"take", 2, 2, 1, 1, false, infer_take},     /* of x, numbers; axis */
    {"concat", 1, GRAPH_IN_MAX, 1, 1, false, infer_concat},
    {"unsqueeze", 1, 1, 1, 1, false, infer_unsqueeze},
    {"squeeze", 1, 1, 1, 1, false, infer_squeeze},
    {"reshape", 2, 2, 0, 0, false, infer_reshape},
    {"expand", 2, 2, 0, 0, false, infer_expand}, /* x, sizes */
    {"transpose", 1, 1, 0, GRAPH_RANK_MAX, false, infer_transpose},
    {"slice", 1, 1, 3, GRAPH_INTS_MAX, false, infer_slice},
    {"range", 3, 3, 0, 0, false, infer_range}, /* start, limit, step */
    {"trilu", 1, 1, 2, 2, false, infer_trilu}, /* upper, diagonal */
    {"cast", 1, 1, 1, 1, false, infer_cast},
    {"equal", 2, 2, 0, 0, false, infer_compare},
    {"less", 2, 2, 0, 0, false, infer_compare},
    {"less_equal", 2, 2, 0, 0, false, infer_compare},
    {"where", 3, 3, 0, 0, false, infer_where},
    {"add", 2, 2, 0, 0, false, infer_binary},
    {"sub", 2, 2, 0, 0, false, infer_binary},
    {"mul", 2, 2, 0, 0, false, infer_binary},
    {"div", 2, 2, 0, 0, false, infer_binary},
    {"pow", 2, 2, 0, 0, false, infer_binary},
    {"sqrt", 1, 1, 0, 0, false, infer_unary},
    {"reciprocal", 1, 1, 0, 0, false, infer_unary},
    {"sigmoid", 1, 1, 0, 0, false, infer_unary},
    {"neg", 1, 1, 0, 0, false, infer_unary},
    {"exp", 1, 1, 0, 0, false, infer_unary},
    {"sin", 1, 1, 0, 0, false, infer_unary},
    {"cos", 1, 1, 0, 0, false, infer_unary},
    {"tanh", 1, 1, 0, 0, false, infer_unary},
    {"erf", 1, 1, 0, 0, false, infer_unary},
    {"softmax", 1, 1, 1, 1, false, infer_along_axis},
    {"reduce_mean", 1, 1, 1, 1, false, infer_reduce},
    {"matmul", 2, 2, 0, 0, false, infer_matmul},
    {"layer_norm", 3, 3, 0, 0, true, infer_norm},
    {"rms_norm", 2, 2, 0, 0, true, infer_norm},
    {"rope", 3, 3, 0, 0, false, infer_rope}, /* x, cosines, sines */
    {"swiglu", 2, 2, 0, 0, false, infer_swiglu},
    {"attention", 3, 4, 0, 0, true, infer_attention},
    {0},
};

const struct graph_op *graph_op_find(const char *name)
{
    for (const struct graph_op *op = ops; op->name; op++)
        if (strcmp(op->name, name) == 0)
            return op;
    return NULL;
}
