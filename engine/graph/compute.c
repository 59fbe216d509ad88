/* What a graph computes, in f64: plain loops, the meaning of each operator. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph.h"

#define ELEMENTS_MAX ((int64_t)1 << 24)

struct tensor {
    struct graph_shape shape; /* without a dynamic size */
    double *data;
};

struct machine {
    const struct graph *g;
    struct tensor *t; /* [g->n] */
    int64_t n_dynamic;
    graph_fill_fn fill;
    void *ctx;
};

static int allocate(struct tensor *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->shape.rank; d++)
        if (__builtin_mul_overflow(n, t->shape.dim[d], &n) || n > ELEMENTS_MAX)
            return err_set(ERR_LIMIT, "a tensor of more than %lld elements",
                           (long long)ELEMENTS_MAX);
    t->data = mem_new(MEM_OTHER, (size_t)n, sizeof(*t->data));
    return t->data ? OK : ERR_NOMEM;
}

/* Elements after axis d: the distance of its neighbours. */
static int64_t stride(const struct graph_shape *s, int d)
{
    int64_t n = 1;

    while (++d < s->rank)
        n *= s->dim[d];
    return n;
}

/* The offset in x of the element of `out` at `at`, where x broadcasts to it. */
static int64_t broadcast_offset(const struct graph_shape *x,
                                const struct graph_shape *out, const int64_t *at)
{
    int64_t offset = 0;

    for (int d = 0; d < x->rank; d++)
        if (x->dim[d] > 1)
            offset += at[d + out->rank - x->rank] * stride(x, d);
    return offset;
}

/* The next element in row-major order. */
static void advance(int64_t *at, const struct graph_shape *s)
{
    for (int d = s->rank - 1; d >= 0; d--) {
        if (++at[d] < s->dim[d])
            return;
        at[d] = 0;
    }
}

static double binary(const char *op, double a, double b, bool integers)
{
    return strcmp(op, "add") == 0   ? a + b
           : strcmp(op, "sub") == 0 ? a - b
           : strcmp(op, "mul") == 0 ? a * b
           : strcmp(op, "pow") == 0 ? pow(a, b)
           : integers               ? trunc(a / b)
                                    : a / b;
}

static double unary(const char *op, double x)
{
    return strcmp(op, "sqrt") == 0         ? sqrt(x)
           : strcmp(op, "reciprocal") == 0 ? 1 / x
                                           : 1 / (1 + exp(-x));
}

static void compute_binary(const struct graph_node *v, struct tensor *out,
                           const struct tensor *a, const struct tensor *b)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++, advance(at, &out->shape))
        out->data[k] = binary(
            v->op->name, a->data[broadcast_offset(&a->shape, &out->shape, at)],
            b->data[broadcast_offset(&b->shape, &out->shape, at)], v->type == GRAPH_I64);
}

/* Whatever moves elements: the source of each. */
static void compute_move(const struct graph_node *v, struct tensor *out,
                         const struct tensor *x)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    int64_t begin[GRAPH_RANK_MAX] = {0};
    bool transposes = strcmp(v->op->name, "transpose") == 0;

    for (int k = 0; !transposes && k < v->n_ints; k += 3)
        begin[v->ints[k] < 0 ? v->ints[k] + x->shape.rank : v->ints[k]] = v->ints[k + 1];
    for (int64_t k = 0; k < n; k++, advance(at, &out->shape)) {
        int64_t from = 0;

        for (int d = 0; d < out->shape.rank; d++)
            from +=
                (at[d] + begin[d]) * stride(&x->shape, transposes ? (int)v->ints[d] : d);
        out->data[k] = x->data[from];
    }
}

static void compute_gather(const struct graph_node *v, struct tensor *out,
                           const struct tensor *x)
{
    int axis = (int)(v->ints[0] < 0 ? v->ints[0] + x->shape.rank : v->ints[0]);
    int64_t inner = stride(&x->shape, axis), n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++)
        out->data[k] = x->data[k / inner * inner * x->shape.dim[axis] +
                               v->ints[1] * inner + k % inner];
}

static void compute_concat(const struct machine *m, const struct graph_node *v,
                           struct tensor *out)
{
    int axis = (int)(v->ints[0] < 0 ? v->ints[0] + out->shape.rank : v->ints[0]);
    int64_t inner = stride(&out->shape, axis), row = inner * out->shape.dim[axis],
            begin = 0;

    for (int a = 0; a < v->n_in; a++) {
        const struct tensor *x = &m->t[v->in[a]];
        int64_t part = inner * x->shape.dim[axis], n = graph_n_elements(&x->shape);

        for (int64_t k = 0; k < n; k++)
            out->data[k / part * row + begin + k % part] = x->data[k];
        begin += part;
    }
}

/* Rows along an axis: softmax, mean. */
static void compute_along_axis(const struct graph_node *v, struct tensor *out,
                               const struct tensor *x)
{
    int axis = (int)(v->ints[0] < 0 ? v->ints[0] + x->shape.rank : v->ints[0]);
    int64_t inner = stride(&x->shape, axis), n = x->shape.dim[axis];
    int64_t n_rows = graph_n_elements(&x->shape) / n;
    bool mean = strcmp(v->op->name, "reduce_mean") == 0;

    for (int64_t r = 0; r < n_rows; r++) {
        const double *from = x->data + r / inner * inner * n + r % inner;
        double *to = out->data + r / inner * inner * n + r % inner;
        double most = -INFINITY, sum = 0;

        for (int64_t k = 0; k < n; k++)
            most = fmax(most, from[k * inner]);
        for (int64_t k = 0; k < n; k++)
            sum += mean ? from[k * inner] : exp(from[k * inner] - most);
        if (mean)
            out->data[r] = sum / (double)n;
        for (int64_t k = 0; !mean && k < n; k++)
            to[k * inner] = exp(from[k * inner] - most) / sum;
    }
}

static void compute_matmul(struct tensor *out, const struct tensor *a,
                           const struct tensor *b)
{
    int r = out->shape.rank;
    int64_t m = out->shape.dim[r - 2], n = out->shape.dim[r - 1];
    int64_t k = a->shape.dim[a->shape.rank - 1];
    int64_t at[GRAPH_RANK_MAX] = {0}, n_out = graph_n_elements(&out->shape);
    struct graph_shape lead = out->shape, la = a->shape, lb = b->shape;

    lead.rank -= 2, la.rank -= 2, lb.rank -= 2;
    for (int64_t i = 0; i < n_out / (m * n); i++, advance(at, &lead)) {
        const double *x = a->data + broadcast_offset(&la, &lead, at) * m * k;
        const double *y = b->data + broadcast_offset(&lb, &lead, at) * k * n;

        for (int64_t e = 0; e < m * n; e++)
            for (int64_t j = 0; j < k; j++)
                out->data[i * m * n + e] += x[e / n * k + j] * y[j * n + e % n];
    }
}

static void compute_norm(const struct machine *m, const struct graph_node *v,
                         struct tensor *out)
{
    const struct tensor *x = &m->t[v->in[0]];
    int64_t n = x->shape.dim[x->shape.rank - 1], total = graph_n_elements(&x->shape);
    bool layer = v->n_in == 3;

    for (int64_t row = 0; row < total; row += n) {
        double mean = 0, square = 0;

        for (int64_t k = 0; layer && k < n; k++)
            mean += x->data[row + k] / (double)n;
        for (int64_t k = 0; k < n; k++)
            square += pow(x->data[row + k] - mean, 2) / (double)n;
        for (int64_t k = 0; k < n; k++)
            out->data[row + k] =
                (x->data[row + k] - mean) / sqrt(square + v->x) * m->t[v->in[1]].data[k] +
                (layer ? m->t[v->in[2]].data[k] : 0);
    }
}

/* One query: the softmax of its scores, times the values. */
static void attend(double *out, const double *q, const double *k, const double *u,
                   const double *mask, int64_t n, int64_t d, int64_t e, double scale)
{
    double most = -INFINITY, sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int64_t s = 0; s < n; s++) {
            double score = mask ? mask[s] : 0, p;

            for (int64_t j = 0; j < d; j++)
                score += scale * q[j] * k[s * d + j];
            if (pass == 0) {
                most = fmax(most, score);
                continue;
            }
            p = exp(score - most);
            sum += p;
            for (int64_t j = 0; j < e; j++)
                out[j] += p * u[s * e + j];
        }
    for (int64_t j = 0; j < e; j++)
        out[j] /= sum;
}

static int compute_attention(const struct machine *m, const struct graph_node *v,
                             struct tensor *out)
{
    const struct tensor *q = &m->t[v->in[0]], *k = &m->t[v->in[1]], *u = &m->t[v->in[2]];
    int r = q->shape.rank;
    int64_t d = q->shape.dim[r - 1], t = q->shape.dim[r - 2], s = k->shape.dim[r - 2];
    int64_t e = u->shape.dim[r - 1], n_rows = graph_n_elements(&q->shape) / d;
    struct tensor mask = {0};
    struct graph_shape scores = q->shape;
    int64_t at[GRAPH_RANK_MAX] = {0};

    scores.dim[r - 1] = s;
    if (v->n_in == 4) { /* as large as the scores */
        const struct tensor *x = &m->t[v->in[3]];

        mask.shape = scores;
        TRY(allocate(&mask));
        for (int64_t i = 0; i < n_rows * s; i++, advance(at, &scores))
            mask.data[i] = x->data[broadcast_offset(&x->shape, &scores, at)];
    }
    for (int64_t i = 0; i < n_rows; i++)
        attend(out->data + i * e, q->data + i * d, k->data + i / t * s * d,
               u->data + i / t * s * e, mask.data ? mask.data + i * s : NULL, s, d, e,
               v->x);
    mem_free(mask.data);
    return OK;
}

static int compute_node(struct machine *m, int i)
{
    const struct graph_node *v = &m->g->nodes[i];
    struct tensor *out = &m->t[i], *x = v->n_in > 0 ? &m->t[v->in[0]] : NULL,
                  *y = v->n_in > 1 ? &m->t[v->in[1]] : NULL;
    const char *op = v->op->name;
    int64_t n;

    out->shape = v->shape;
    for (int d = 0; d < v->shape.rank; d++)
        if (v->shape.dim[d] == GRAPH_DYNAMIC)
            out->shape.dim[d] = m->n_dynamic;
    TRY(allocate(out));
    n = graph_n_elements(&out->shape);
    if (v->data)
        memcpy(out->data, v->data, (size_t)n * sizeof(*out->data));
    else if (v->n_in == 0)
        m->fill(m->ctx, v->name, &out->shape, out->data);
    else if (strcmp(op, "shape") == 0)
        for (int64_t k = 0; k < n; k++)
            out->data[k] = (double)x->shape.dim[k];
    else if (strcmp(op, "gather") == 0)
        compute_gather(v, out, x);
    else if (strcmp(op, "concat") == 0)
        compute_concat(m, v, out);
    else if (strcmp(op, "transpose") == 0 || strcmp(op, "slice") == 0)
        compute_move(v, out, x);
    else if (strcmp(op, "softmax") == 0 || strcmp(op, "reduce_mean") == 0)
        compute_along_axis(v, out, x);
    else if (strcmp(op, "matmul") == 0)
        compute_matmul(out, x, y);
    else if (strcmp(op, "layer_norm") == 0 || strcmp(op, "rms_norm") == 0)
        compute_norm(m, v, out);
    else if (strcmp(op, "attention") == 0)
        return compute_attention(m, v, out);
    else if (strcmp(op, "swiglu") == 0)
        for (int64_t k = 0; k < n; k++)
            out->data[k] = x->data[k] * unary("sigmoid", x->data[k]) * y->data[k];
    else if (strcmp(op, "reshape") == 0 || strcmp(op, "squeeze") == 0 ||
             strcmp(op, "unsqueeze") == 0)
        memcpy(out->data, x->data, (size_t)n * sizeof(*out->data));
    else if (y)
        compute_binary(v, out, x, y);
    else
        for (int64_t k = 0; k < n; k++)
            out->data[k] = unary(op, x->data[k]);
    return OK;
}

int graph_compute(double **out, int64_t *out_n, const struct graph *g, int64_t n_dynamic,
                  graph_fill_fn fill, void *ctx)
{
    struct machine m = {.g = g, .n_dynamic = n_dynamic, .fill = fill, .ctx = ctx};
    int rc = OK;

    for (int a = 0; a < g->n_out; a++)
        out[a] = NULL;
    m.t = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*m.t));
    if (!m.t)
        return ERR_NOMEM;
    for (int i = 0; i < g->n && rc == OK; i++)
        rc = compute_node(&m, i);
    for (int a = 0; a < g->n_out && rc == OK; a++) {
        const struct tensor *t = &m.t[g->out[a]];

        out_n[a] = graph_n_elements(&t->shape);
        out[a] = mem_new(MEM_OTHER, (size_t)out_n[a], sizeof(**out));
        if (out[a])
            memcpy(out[a], t->data, (size_t)out_n[a] * sizeof(**out));
        else
            rc = ERR_NOMEM;
    }
    for (int i = 0; i < g->n; i++)
        mem_free(m.t[i].data);
    mem_free(m.t);
    for (int a = 0; a < g->n_out && rc != OK; a++) {
        mem_free(out[a]);
        out[a] = NULL;
    }
    return rc;
}
