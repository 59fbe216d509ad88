/* The operators of ONNX, by ours. To add one: a row of the table, and a function where it is not
 * one of ours under another name. */
#include "graph/onnx_ops.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"

#define ELEMENTS_MAX ((int64_t)1 << 16) /* of a const */

/* The node that a conversion works on, and its surroundings. */
struct job {
    struct graph *g;
    int64_t opset;
    const struct onnx_node *v;
    const int *in;
    int *out;
    const char *arg; /* of the table's row */
};

/* ---- what conversions share ---- */

static const struct onnx_attr *attr(const struct job *j, const char *name)
{
    for (int a = 0; a < j->v->n_attrs; a++)
        if (graph_onnx_is(j->v->attrs[a].name, name))
            return &j->v->attrs[a];
    return NULL;
}

static int64_t attr_int(const struct job *j, const char *name, int64_t otherwise)
{
    const struct onnx_attr *a = attr(j, name);

    return a && a->has_i ? a->i : otherwise;
}

static double attr_number(const struct job *j, const char *name, double otherwise)
{
    const struct onnx_attr *a = attr(j, name);

    return a && a->has_f ? a->f : otherwise;
}

static const struct graph_shape *shape_of(const struct job *j, int node)
{
    return &j->g->nodes[node].shape;
}

static bool has(const struct job *j, int a)
{
    return a < j->v->n_in && j->in[a] >= 0;
}

static int put(const struct job *j, const char *op, int a, int b, int *out)
{
    return graph_add_op(j->g, op, (int[]){a, b}, b < 0 ? 1 : 2, NULL, 0, out);
}

static int put_along(const struct job *j, const char *op, int x, int64_t axis, int *out)
{
    return graph_add_op(j->g, op, &x, 1, &axis, 1, out);
}

static int put_slice(const struct job *j, int x, int64_t axis, int64_t begin, int64_t end,
                     int *out)
{
    return graph_add_op(j->g, "slice", &x, 1, (int64_t[]){axis, begin, end}, 3, out);
}

int graph_onnx_put_const(struct graph *g, const struct onnx_tensor *t, int *out)
{
    int64_t n = graph_n_elements(&t->shape);
    double *data;
    int rc;

    if (n > ELEMENTS_MAX)
        return err_set(ERR_LIMIT, "a const of %lld elements: expected at most %lld",
                       (long long)n, (long long)ELEMENTS_MAX);
    data = mem_new(MEM_OTHER, (size_t)n, sizeof(*data));
    if (!data)
        return ERR_NOMEM;
    rc = graph_onnx_elements(t, data);
    if (rc == OK)
        rc = graph_add_const(g, graph_onnx_is_real(t) ? GRAPH_F32 : GRAPH_I64, &t->shape,
                             data, out);
    mem_free(data);
    return rc;
}

/* Integers that are an attribute in old opsets and an input in new ones; *n is 0 without them. */
static int list(const struct job *j, const char *name, int input, int64_t *out, int *n)
{
    const struct onnx_attr *a = attr(j, name);

    *n = 0;
    if (a) {
        *n = a->n_ints;
        memcpy(out, a->ints, sizeof(a->ints));
    } else if (has(j, input)) {
        const struct graph_node *v = &j->g->nodes[j->in[input]];

        if (v->type != GRAPH_I64 || v->n_value < 0)
            return err_set(ERR_UNSUPPORTED,
                           "input %d: expected integers that follow from sizes", input);
        *n = v->n_value;
        memcpy(out, v->value, sizeof(v->value));
    }
    return OK;
}

static int one_axis(const struct job *j, int input, int64_t otherwise, int64_t *axis)
{
    int64_t axes[GRAPH_INTS_MAX];
    int n;

    TRY(list(j, "axes", input, axes, &n));
    if (n > 1)
        return err_set(ERR_UNSUPPORTED, "axes: expected one, found %d", n);
    *axis = n == 1 ? axes[0] : otherwise;
    return OK;
}

/* ---- conversions ---- */

/* Our operator j->arg with all inputs of the node. */
static int same(const struct job *j)
{
    const struct graph_op *op = graph_op_find(j->arg);

    for (int a = 0; a < j->v->n_in; a++)
        if (j->in[a] < 0)
            return err_set(ERR_FORMAT, "input %d is left out", a);
    return graph_add_op(j->g, op->name, j->in, j->v->n_in, NULL, 0, j->out);
}

static int identity(const struct job *j)
{
    j->out[0] = j->in[0];
    return OK;
}

static int cast(const struct job *j)
{
    const struct onnx_tensor to = {.type = attr_int(j, "to", 0)};
    bool from_real = j->g->nodes[j->in[0]].type == GRAPH_F32;
    bool real = graph_onnx_is_real(&to);

    return from_real == real ? identity(j)
                             : put_along(j, "cast", j->in[0], real ? 0 : 1, j->out);
}

static int put_numbers(const struct job *j, enum graph_type type, int n,
                       const int64_t *ints, const double *floats, bool scalar)
{
    const struct graph_shape shape = {.rank = scalar ? 0 : 1, .dim = {n}};
    double data[GRAPH_INTS_MAX];

    for (int k = 0; k < n; k++)
        data[k] = type == GRAPH_I64 ? graph_onnx_exact(ints[k]) : floats[k];
    return graph_add_const(j->g, type, &shape, data, j->out);
}

static int constant(const struct job *j)
{
    const struct onnx_attr *a = &j->v->attrs[0];

    if (j->v->n_attrs != 1)
        return err_set(ERR_UNSUPPORTED, "expected one attribute, found %d",
                       j->v->n_attrs);
    if (a->has_tensor)
        return graph_onnx_put_const(j->g, &a->t, j->out);
    if (graph_onnx_is(a->name, "value_int"))
        return put_numbers(j, GRAPH_I64, 1, &a->i, NULL, true);
    if (graph_onnx_is(a->name, "value_float"))
        return put_numbers(j, GRAPH_F32, 1, NULL, &a->f, true);
    if (graph_onnx_is(a->name, "value_ints"))
        return put_numbers(j, GRAPH_I64, a->n_ints, a->ints, NULL, false);
    if (graph_onnx_is(a->name, "value_floats"))
        return put_numbers(j, GRAPH_F32, a->n_floats, NULL, a->floats, false);
    return err_set(ERR_UNSUPPORTED, "attribute \"%.*s\"", onnx_shown(a->name), a->name.p);
}

static int concat(const struct job *j)
{
    int64_t axis = attr_int(j, "axis", 0);

    if (j->v->n_in > GRAPH_IN_MAX)
        return err_set(ERR_UNSUPPORTED, "%d inputs: expected at most %d", j->v->n_in,
                       GRAPH_IN_MAX);
    for (int a = 0; a < j->v->n_in; a++)
        if (j->in[a] < 0)
            return err_set(ERR_FORMAT, "input %d is left out", a);
    return graph_add_op(j->g, "concat", j->in, j->v->n_in, &axis, 1, j->out);
}

static void sort(int *x, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && x[k - 1] > x[k]; k--) {
            int t = x[k];

            x[k] = x[k - 1];
            x[k - 1] = t;
        }
}

/* One axis after the other; of those that go, the last first. */
static int squeeze(const struct job *j)
{
    bool adds = strcmp(j->arg, "unsqueeze") == 0;
    int64_t axes[GRAPH_INTS_MAX];
    int at[GRAPH_INTS_MAX], n, rank = shape_of(j, j->in[0])->rank;

    TRY(list(j, "axes", 1, axes, &n));
    if (n == 0)
        return err_set(ERR_UNSUPPORTED, "expected axes");
    for (int k = 0; k < n; k++)
        TRY(graph_axis(axes[k], adds ? rank + n : rank, &at[k]));
    sort(at, n);
    j->out[0] = j->in[0];
    for (int k = 0; k < n; k++)
        TRY(put_along(j, j->arg, j->out[0], at[adds ? k : n - 1 - k], j->out));
    return OK;
}

/* One of the sizes in a tensor of one axis: of another tensor's sizes where it is 0. */
static int put_size(const struct job *j, int shape, int k, int64_t size, int *out)
{
    if (size != 0)
        return graph_add_const(j->g, GRAPH_I64, &(struct graph_shape){1, {1}},
                               (double[]){(double)size}, out);
    TRY(graph_add_op(j->g, "gather", &shape, 1, (int64_t[]){0, k}, 2, out));
    return put_along(j, "unsqueeze", *out, 0, out);
}

/* A size 0 is that of the input. */
static int reshape(const struct job *j)
{
    const struct graph_node to = j->g->nodes[j->in[1]];
    int rank = shape_of(j, j->in[0])->rank, shape, size[GRAPH_RANK_MAX], sizes;
    bool zero = false, dynamic = false;

    for (int k = 0; k < to.n_value; k++) {
        zero = zero || to.value[k] == 0;
        dynamic = dynamic || to.value[k] == GRAPH_DYNAMIC;
        if (to.value[k] == 0 && k >= rank)
            return err_set(ERR_FORMAT, "size %d of an input of %d axes", k, rank);
    }
    if (!zero || attr_int(j, "allowzero", 0))
        return put(j, "reshape", j->in[0], j->in[1], j->out);
    if (dynamic)
        return err_set(ERR_UNSUPPORTED, "a size 0 next to the number of tokens");
    TRY(put(j, "shape", j->in[0], -1, &shape));
    for (int k = 0; k < to.n_value; k++)
        TRY(put_size(j, shape, k, to.value[k], &size[k]));
    TRY(graph_add_op(j->g, "concat", size, to.n_value, (int64_t[]){0}, 1, &sizes));
    return put(j, "reshape", j->in[0], sizes, j->out);
}

static int transpose(const struct job *j)
{
    const struct onnx_attr *a = attr(j, "perm");
    int n = shape_of(j, j->in[0])->rank;
    int64_t order[GRAPH_RANK_MAX];

    if (a && a->n_ints != n)
        return err_set(ERR_FORMAT, "perm: expected %d axes, found %d", n, a->n_ints);
    for (int d = 0; d < n; d++)
        order[d] = a ? a->ints[d] : n - 1 - d;
    return graph_add_op(j->g, "transpose", j->in, 1, order, n, j->out);
}

/* A place on an axis of `size`, counted from the end where it is negative. */
static int64_t clipped(int64_t at, int64_t size)
{
    at += at < 0 ? size : 0;
    return at < 0 ? 0 : at > size ? size : at;
}

/* An end past the last element of any axis, as exporters write it. */
static bool is_open(int64_t end)
{
    return end == GRAPH_DYNAMIC || end >= INT_MAX;
}

static int slice_axis(const struct job *j, int64_t axis, int64_t begin, int64_t end)
{
    int d;
    int64_t size;

    TRY(graph_axis(axis, shape_of(j, j->out[0])->rank, &d));
    size = shape_of(j, j->out[0])->dim[d];
    if (begin == GRAPH_DYNAMIC)
        return err_set(ERR_UNSUPPORTED, "a start at the number of tokens");
    if (size == GRAPH_DYNAMIC)
        return begin == 0 && is_open(end)
                   ? OK
                   : put_slice(j, j->out[0], d, begin, is_open(end) ? GRAPH_DYNAMIC : end,
                               j->out);
    if (end == GRAPH_DYNAMIC)
        return put_slice(j, j->out[0], d, begin, end, j->out);
    if (begin == 0 && end >= size)
        return OK;
    return put_slice(j, j->out[0], d, clipped(begin, size), clipped(end, size), j->out);
}

static int slice(const struct job *j)
{
    int64_t begin[GRAPH_INTS_MAX], end[GRAPH_INTS_MAX], axes[GRAPH_INTS_MAX],
        step[GRAPH_INTS_MAX];
    int n, n_end, n_axes, n_step;

    TRY(list(j, "", 1, begin, &n));
    TRY(list(j, "", 2, end, &n_end));
    TRY(list(j, "", 3, axes, &n_axes));
    TRY(list(j, "", 4, step, &n_step));
    if (n == 0 || n_end != n || (n_axes > 0 && n_axes != n) ||
        (n_step > 0 && n_step != n))
        return err_set(ERR_FORMAT, "%d starts, %d ends, %d axes, %d steps", n, n_end,
                       n_axes, n_step);
    j->out[0] = j->in[0];
    for (int k = 0; k < n; k++) {
        if (n_step > 0 && step[k] != 1)
            return err_set(ERR_UNSUPPORTED, "a step of %lld", (long long)step[k]);
        TRY(slice_axis(j, n_axes > 0 ? axes[k] : k, begin[k], end[k]));
    }
    return OK;
}

/* One element along an axis, or rows by their numbers. */
static int gather(const struct job *j)
{
    const struct graph_node *at = &j->g->nodes[j->in[1]];
    const struct graph_shape *x = shape_of(j, j->in[0]);
    int axis;
    bool one = at->data && at->type == GRAPH_I64 && graph_n_elements(&at->shape) == 1;

    TRY(graph_axis(attr_int(j, "axis", 0), x->rank, &axis));
    if (one && at->shape.rank <= 1) {
        int64_t i = (int64_t)at->data[0], size = x->dim[axis];
        bool keep = at->shape.rank == 1;

        if (i < 0 && size == GRAPH_DYNAMIC)
            return err_set(ERR_UNSUPPORTED, "the last elements of the dynamic axis %d",
                           axis);
        TRY(graph_add_op(j->g, "gather", j->in, 1,
                         (int64_t[]){axis, i < 0 ? i + size : i}, 2, j->out));
        return keep ? put_along(j, "unsqueeze", j->out[0], axis, j->out) : OK;
    }
    return graph_add_op(j->g, "take", (int[]){j->in[0], j->in[1]}, 2, (int64_t[]){axis},
                        1, j->out);
}

static int reduce_mean(const struct job *j)
{
    int64_t given = -1;
    int axis;

    TRY(one_axis(j, 1, -1, &given));
    TRY(graph_axis(given, shape_of(j, j->in[0])->rank, &axis));
    if (shape_of(j, j->in[0])->rank > 1 && !attr(j, "axes") && !has(j, 1))
        return err_set(ERR_UNSUPPORTED, "the mean of all axes");
    TRY(put_along(j, "reduce_mean", j->in[0], axis, j->out));
    return attr_int(j, "keepdims", 1) ? OK
                                      : put_along(j, "squeeze", j->out[0], axis, j->out);
}

static int softmax(const struct job *j)
{
    int64_t axis = attr_int(j, "axis", j->opset < 13 ? 1 : -1);
    int d, rank = shape_of(j, j->in[0])->rank;

    TRY(graph_axis(axis, rank, &d));
    if (j->opset < 13 && d != rank - 1)
        return err_set(ERR_UNSUPPORTED, "over axis %d and those after it", d);
    return put_along(j, "softmax", j->in[0], axis, j->out);
}

static int transposed(const struct job *j, int x, bool wanted, int *out)
{
    *out = x;
    if (!wanted)
        return OK;
    return graph_add_op(j->g, "transpose", &x, 1, (int64_t[]){1, 0}, 2, out);
}

static int gemm(const struct job *j)
{
    int a, b;

    if (attr_number(j, "alpha", 1) != 1 || attr_number(j, "beta", 1) != 1)
        return err_set(ERR_UNSUPPORTED, "alpha and beta other than 1");
    TRY(transposed(j, j->in[0], attr_int(j, "transA", 0), &a));
    TRY(transposed(j, j->in[1], attr_int(j, "transB", 0), &b));
    TRY(put(j, "matmul", a, b, j->out));
    return has(j, 2) ? put(j, "add", j->out[0], j->in[2], j->out) : OK;
}

static int split(const struct job *j)
{
    int64_t sizes[GRAPH_INTS_MAX], at = 0, size;
    int n, axis, parts = j->v->n_out;

    TRY(list(j, "split", 1, sizes, &n));
    TRY(graph_axis(attr_int(j, "axis", 0), shape_of(j, j->in[0])->rank, &axis));
    size = shape_of(j, j->in[0])->dim[axis];
    if (n != 0 && n != parts)
        return err_set(ERR_FORMAT, "%d sizes of %d parts", n, parts);
    if (size == GRAPH_DYNAMIC)
        return err_set(ERR_UNSUPPORTED, "parts of the dynamic axis %d", axis);
    for (int k = 0; k < parts; k++) {
        int64_t each = (size + parts - 1) / parts;
        int64_t end = n > 0 ? at + sizes[k] : clipped(at + each, size);

        TRY(put_slice(j, j->in[0], axis, at, end, &j->out[k]));
        at = end;
    }
    return at == size ? OK
                      : err_set(ERR_FORMAT, "parts of %lld elements of %lld",
                                (long long)at, (long long)size);
}

static int constant_of_shape(const struct job *j)
{
    const struct onnx_attr *a = attr(j, "value");
    const struct graph_shape none = {0};
    double x = 0;
    int value;

    if (a && a->has_tensor && graph_n_elements(&a->t.shape) != 1)
        return err_set(ERR_FORMAT, "value: expected one element");
    if (a && a->has_tensor)
        TRY(graph_onnx_elements(&a->t, &x));
    TRY(graph_add_const(
        j->g, a && a->has_tensor && !graph_onnx_is_real(&a->t) ? GRAPH_I64 : GRAPH_F32,
        &none, &x, &value));
    return put(j, "expand", value, j->in[0], j->out);
}

static int trilu(const struct job *j)
{
    double k = 0;

    if (has(j, 1) &&
        (!graph_scalar(j->g, j->in[1], &k) || j->g->nodes[j->in[1]].type != GRAPH_I64))
        return err_set(ERR_UNSUPPORTED, "expected a const diagonal");
    return graph_add_op(j->g, "trilu", j->in, 1,
                        (int64_t[]){attr_int(j, "upper", 1) != 0, (int64_t)k}, 2, j->out);
}

static int norm(const struct job *j)
{
    int axis, rank = shape_of(j, j->in[0])->rank;
    int n_in = strcmp(j->arg, "layer_norm") == 0 ? 3 : 2;

    TRY(graph_axis(attr_int(j, "axis", -1), rank, &axis));
    if (axis != rank - 1)
        return err_set(ERR_UNSUPPORTED, "over axis %d and those after it", axis);
    if (j->v->n_in != n_in)
        return err_set(ERR_UNSUPPORTED, "expected a scale%s",
                       n_in == 3 ? " and an offset" : "");
    TRY(graph_add_op(j->g, j->arg, j->in, n_in, NULL, 0, j->out));
    j->g->nodes[j->out[0]].x = attr_number(j, "epsilon", 1e-5);
    return OK;
}

static int negation(const struct job *j)
{
    const struct graph_shape none = {0};
    int zero;

    if (j->g->nodes[j->in[0]].type == GRAPH_F32)
        return same(j);
    TRY(graph_add_const(j->g, GRAPH_I64, &none, (double[]){0}, &zero));
    return put(j, "sub", zero, j->in[0], j->out);
}

/* Our operator j->arg with the node's two inputs swapped. */
static int swapped(const struct job *j)
{
    return put(j, j->arg, j->in[1], j->in[0], j->out);
}

static int not_zero(const struct job *j)
{
    int zero;

    TRY(graph_add_const(j->g, GRAPH_I64, &(struct graph_shape){0}, (double[]){0}, &zero));
    return put(j, "equal", j->in[0], zero, j->out);
}

/* ---- the table ---- */

static const struct onnx_op {
    const char *name;
    int min_in, max_in; /* the first min_in are never left out */
    int (*convert)(const struct job *j);
    const char *arg;
} onnx_ops[] = {
    {"Add", 2, 2, same, "add"},
    {"And", 2, 2, same, "mul"},
    {"Cast", 1, 1, cast, NULL},
    {"Concat", 1, ONNX_IN_MAX, concat, NULL},
    {"Constant", 0, 0, constant, NULL},
    {"ConstantOfShape", 1, 1, constant_of_shape, NULL},
    {"Cos", 1, 1, same, "cos"},
    {"Div", 2, 2, same, "div"},
    {"Equal", 2, 2, same, "equal"},
    {"Erf", 1, 1, same, "erf"},
    {"Exp", 1, 1, same, "exp"},
    {"Expand", 2, 2, same, "expand"},
    {"Gather", 2, 2, gather, NULL},
    {"Gemm", 2, 3, gemm, NULL},
    {"Greater", 2, 2, swapped, "less"},
    {"GreaterOrEqual", 2, 2, swapped, "less_equal"},
    {"Identity", 1, 1, identity, NULL},
    {"LayerNormalization", 2, 3, norm, "layer_norm"},
    {"Less", 2, 2, same, "less"},
    {"LessOrEqual", 2, 2, same, "less_equal"},
    {"MatMul", 2, 2, same, "matmul"},
    {"Mul", 2, 2, same, "mul"},
    {"Neg", 1, 1, negation, "neg"},
    {"Not", 1, 1, not_zero, NULL},
    {"Pow", 2, 2, same, "pow"},
    {"RMSNormalization", 2, 2, norm, "rms_norm"},
    {"Range", 3, 3, same, "range"},
    {"Reciprocal", 1, 1, same, "reciprocal"},
    {"ReduceMean", 1, 2, reduce_mean, NULL},
    {"Reshape", 2, 2, reshape, NULL},
    {"Shape", 1, 1, same, "shape"},
    {"Sigmoid", 1, 1, same, "sigmoid"},
    {"Sin", 1, 1, same, "sin"},
    {"Slice", 3, 5, slice, NULL},
    {"Softmax", 1, 1, softmax, NULL},
    {"Split", 1, 2, split, NULL},
    {"Sqrt", 1, 1, same, "sqrt"},
    {"Squeeze", 1, 2, squeeze, "squeeze"},
    {"Sub", 2, 2, same, "sub"},
    {"Tanh", 1, 1, same, "tanh"},
    {"Transpose", 1, 1, transpose, NULL},
    {"Trilu", 1, 2, trilu, NULL},
    {"Unsqueeze", 1, 2, squeeze, "unsqueeze"},
    {"Where", 3, 3, same, "where"},
};

int graph_onnx_convert(struct graph *g, int64_t opset, const struct onnx_node *v,
                       const int *in, int *out)
{
    const struct job job = {.g = g, .opset = opset, .v = v, .in = in, .out = out};

    if (v->domain.n > 0 && !graph_onnx_is(v->domain, "ai.onnx"))
        return err_set(ERR_UNSUPPORTED, "of domain \"%.*s\"", onnx_shown(v->domain),
                       v->domain.p);
    for (size_t i = 0; i < sizeof(onnx_ops) / sizeof(onnx_ops[0]); i++) {
        const struct onnx_op *op = &onnx_ops[i];
        struct job j = job;

        if (!graph_onnx_is(v->op, op->name))
            continue;
        if (v->n_in < op->min_in || v->n_in > op->max_in || v->n_out < 1 ||
            (v->n_out > 1 && op->convert != split))
            return err_set(ERR_FORMAT, "%d inputs and %d outputs", v->n_in, v->n_out);
        for (int a = 0; a < op->min_in; a++)
            if (in[a] < 0)
                return err_set(ERR_FORMAT, "input %d is left out", a);
        j.arg = op->arg;
        return op->convert(&j);
    }
    return err_set(ERR_UNSUPPORTED, "an operator that is not known here");
}
