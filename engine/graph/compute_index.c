/* What operators compute that move, choose and repeat elements. */
#include <math.h>
#include <string.h>

#include "graph/ops.h"

/* The node's axis of the first integer, counted from the front. */
static int first_axis(const struct graph_node *v, const struct graph_shape *s)
{
    return (int)(v->ints[0] < 0 ? v->ints[0] + s->rank : v->ints[0]);
}

int graph_compute_shape(const struct graph_node *v, struct graph_tensor *out,
                        const struct graph_tensor *const *in)
{
    (void)v;
    for (int d = 0; d < in[0]->shape.rank; d++)
        out->data[d] = (double)in[0]->shape.dim[d];
    return OK;
}

/* The same elements in other sizes. */
int graph_compute_copy(const struct graph_node *v, struct graph_tensor *out,
                       const struct graph_tensor *const *in)
{
    (void)v;
    memcpy(out->data, in[0]->data,
           (size_t)graph_n_elements(&out->shape) * sizeof(*out->data));
    return OK;
}

int graph_compute_cast(const struct graph_node *v, struct graph_tensor *out,
                       const struct graph_tensor *const *in)
{
    int64_t n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++)
        out->data[k] = v->type == GRAPH_I64 ? trunc(in[0]->data[k]) : in[0]->data[k];
    return OK;
}

/* Where slices begin; their ends are within the axes for this number of tokens. */
static int find_begin(int64_t *begin, const struct graph_node *v,
                      const struct graph_shape *x, const struct graph_shape *out)
{
    for (int k = 0; k < v->n_ints; k += 3) {
        int axis = (int)(v->ints[k] < 0 ? v->ints[k] + x->rank : v->ints[k]);
        int64_t at = v->ints[k + 1] < 0 ? v->ints[k + 1] + x->dim[axis] : v->ints[k + 1];

        if (at < 0 || at + out->dim[axis] > x->dim[axis])
            return err_set(ERR_FORMAT, "%lld elements from %lld of an axis of %lld",
                           (long long)out->dim[axis], (long long)at,
                           (long long)x->dim[axis]);
        begin[axis] = at;
    }
    return OK;
}

/* transpose and slice: the source of each element. */
int graph_compute_move(const struct graph_node *v, struct graph_tensor *out,
                       const struct graph_tensor *const *in)
{
    const struct graph_tensor *x = in[0];
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    int64_t begin[GRAPH_RANK_MAX] = {0}, step[GRAPH_RANK_MAX];
    bool transposes = strcmp(v->op->name, "transpose") == 0;

    if (!transposes)
        TRY(find_begin(begin, v, &x->shape, &out->shape));
    for (int d = 0; d < out->shape.rank; d++)
        step[d] = graph_stride(&x->shape, transposes ? (int)v->ints[d] : d);
    for (int64_t k = 0; k < n; k++, graph_advance(at, &out->shape)) {
        int64_t from = 0;

        for (int d = 0; d < out->shape.rank; d++)
            from += (at[d] + begin[d]) * step[d];
        out->data[k] = x->data[from];
    }
    return OK;
}

int graph_compute_gather(const struct graph_node *v, struct graph_tensor *out,
                         const struct graph_tensor *const *in)
{
    const struct graph_tensor *x = in[0];
    int axis = first_axis(v, &x->shape);
    int64_t inner = graph_stride(&x->shape, axis), n = graph_n_elements(&out->shape);

    if (v->ints[1] >= x->shape.dim[axis])
        return err_set(ERR_FORMAT, "element %lld of %lld", (long long)v->ints[1],
                       (long long)x->shape.dim[axis]);
    for (int64_t k = 0; k < n; k++)
        out->data[k] = x->data[k / inner * inner * x->shape.dim[axis] +
                               v->ints[1] * inner + k % inner];
    return OK;
}

int graph_compute_take(const struct graph_node *v, struct graph_tensor *out,
                       const struct graph_tensor *const *in)
{
    const struct graph_tensor *x = in[0], *at = in[1];
    int axis = first_axis(v, &x->shape);
    int64_t inner = graph_stride(&x->shape, axis), size = x->shape.dim[axis];
    int64_t n_at = graph_n_elements(&at->shape);
    int64_t n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++) {
        double e = at->data[k / inner % n_at];

        e += e < 0 ? (double)size : 0;
        if (!(e >= 0 && e < (double)size))
            return err_set(ERR_FORMAT, "element %.17g of %lld",
                           at->data[k / inner % n_at], (long long)size);
        out->data[k] =
            x->data[(k / inner / n_at * size + (int64_t)e) * inner + k % inner];
    }
    return OK;
}

int graph_compute_concat(const struct graph_node *v, struct graph_tensor *out,
                         const struct graph_tensor *const *in)
{
    int axis = first_axis(v, &out->shape);
    int64_t inner = graph_stride(&out->shape, axis);
    int64_t row = inner * out->shape.dim[axis], begin = 0;

    for (int a = 0; a < v->n_in; a++) {
        int64_t part = inner * in[a]->shape.dim[axis];
        int64_t n = graph_n_elements(&in[a]->shape);

        for (int64_t k = 0; k < n; k++)
            out->data[k / part * row + begin + k % part] = in[a]->data[k];
        begin += part;
    }
    return OK;
}

int graph_compute_expand(const struct graph_node *v, struct graph_tensor *out,
                         const struct graph_tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);

    (void)v;
    for (int64_t k = 0; k < n; k++, graph_advance(at, &out->shape))
        out->data[k] = in[0]->data[graph_offset(&in[0]->shape, &out->shape, at)];
    return OK;
}

int graph_compute_range(const struct graph_node *v, struct graph_tensor *out,
                        const struct graph_tensor *const *in)
{
    (void)v;
    for (int64_t k = 0; k < out->shape.dim[0]; k++)
        out->data[k] = in[0]->data[0] + (double)k * in[2]->data[0];
    return OK;
}

int graph_compute_trilu(const struct graph_node *v, struct graph_tensor *out,
                        const struct graph_tensor *const *in)
{
    int r = out->shape.rank;
    int64_t rows = out->shape.dim[r - 2], cols = out->shape.dim[r - 1];
    int64_t n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++) {
        int64_t diagonal = k % cols - k / cols % rows;

        if (v->ints[0] ? diagonal >= v->ints[1] : diagonal <= v->ints[1])
            out->data[k] = in[0]->data[k];
    }
    return OK;
}

int graph_compute_where(const struct graph_node *v, struct graph_tensor *out,
                        const struct graph_tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);

    (void)v;
    for (int64_t k = 0; k < n; k++, graph_advance(at, &out->shape)) {
        bool chosen = in[0]->data[graph_offset(&in[0]->shape, &out->shape, at)] != 0;
        const struct graph_tensor *x = in[chosen ? 1 : 2];

        out->data[k] = x->data[graph_offset(&x->shape, &out->shape, at)];
    }
    return OK;
}
