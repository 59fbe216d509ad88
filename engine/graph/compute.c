/* What a graph computes, in f64: plain loops, the meaning of each operator. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "graph/ops.h"

#define ELEMENTS_MAX ((int64_t)1 << 24)

struct machine {
    const struct graph *g;
    struct graph_tensor *t; /* [g->n] */
    int64_t n_dynamic;
    graph_fill_fn fill;
    void *ctx;
};

int graph_tensor_new(struct graph_tensor *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->shape.rank; d++)
        if (__builtin_mul_overflow(n, t->shape.dim[d], &n) || n > ELEMENTS_MAX)
            return err_set(ERR_LIMIT, "a tensor of more than %lld elements",
                           (long long)ELEMENTS_MAX);
    t->data = mem_new(MEM_OTHER, (size_t)n, sizeof(*t->data));
    return t->data ? OK : ERR_NOMEM;
}

int64_t graph_stride(const struct graph_shape *s, int d)
{
    int64_t n = 1;

    while (++d < s->rank)
        n *= s->dim[d];
    return n;
}

int64_t graph_offset(const struct graph_shape *x, const struct graph_shape *out,
                     const int64_t *at)
{
    int64_t offset = 0, n = 1;

    for (int d = x->rank - 1; d >= 0; d--) {
        if (x->dim[d] > 1)
            offset += at[d + out->rank - x->rank] * n;
        n *= x->dim[d];
    }
    return offset;
}

void graph_advance(int64_t *at, const struct graph_shape *s)
{
    for (int d = s->rank - 1; d >= 0; d--) {
        if (++at[d] < s->dim[d])
            return;
        at[d] = 0;
    }
}

/* ---- element by element ---- */

static double add(double a, double b)
{
    return a + b;
}

static double sub(double a, double b)
{
    return a - b;
}

static double mul(double a, double b)
{
    return a * b;
}

static double quotient(double a, double b)
{
    return a / b;
}

static double is_equal(double a, double b)
{
    return a == b;
}

static double is_less(double a, double b)
{
    return a < b;
}

static double is_less_equal(double a, double b)
{
    return a <= b;
}

static double reciprocal(double x)
{
    return 1 / x;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double neg(double x)
{
    return -x;
}

static const struct {
    const char *name;
    double (*two)(double, double);
    double (*one)(double);
} functions[] = {
    {"add", add, NULL},         {"sub", sub, NULL},
    {"mul", mul, NULL},         {"div", quotient, NULL},
    {"pow", pow, NULL},         {"equal", is_equal, NULL},
    {"less", is_less, NULL},    {"less_equal", is_less_equal, NULL},
    {"sqrt", NULL, sqrt},       {"reciprocal", NULL, reciprocal},
    {"sigmoid", NULL, sigmoid}, {"neg", NULL, neg},
    {"exp", NULL, exp},         {"sin", NULL, sin},
    {"cos", NULL, cos},         {"tanh", NULL, tanh},
    {"erf", NULL, erf},
};

static int function_of(const struct graph_node *v)
{
    int k = 0;

    while (strcmp(functions[k].name, v->op->name) != 0)
        k++;
    return k;
}

int graph_compute_binary(const struct graph_node *v, struct graph_tensor *out,
                         const struct graph_tensor *const *in)
{
    double (*fn)(double, double) = functions[function_of(v)].two;
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    bool whole = v->type == GRAPH_I64 && fn == quotient;

    for (int64_t k = 0; k < n; k++, graph_advance(at, &out->shape)) {
        double y = fn(in[0]->data[graph_offset(&in[0]->shape, &out->shape, at)],
                      in[1]->data[graph_offset(&in[1]->shape, &out->shape, at)]);

        out->data[k] = whole ? trunc(y) : y;
    }
    return OK;
}

int graph_compute_unary(const struct graph_node *v, struct graph_tensor *out,
                        const struct graph_tensor *const *in)
{
    double (*fn)(double) = functions[function_of(v)].one;
    int64_t n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++)
        out->data[k] = fn(in[0]->data[k]);
    return OK;
}

int graph_compute_swiglu(const struct graph_node *v, struct graph_tensor *out,
                         const struct graph_tensor *const *in)
{
    int64_t n = graph_n_elements(&out->shape);

    (void)v;
    for (int64_t k = 0; k < n; k++)
        out->data[k] = in[0]->data[k] * sigmoid(in[0]->data[k]) * in[1]->data[k];
    return OK;
}

/* x cos + rotated x sin, where the rotated has the second half, negative, and then the first. */
int graph_compute_rope(const struct graph_node *v, struct graph_tensor *out,
                       const struct graph_tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    int64_t half = out->shape.dim[out->shape.rank - 1] / 2;

    (void)v;
    for (int64_t k = 0; k < n; k++, graph_advance(at, &out->shape)) {
        bool first = at[out->shape.rank - 1] < half;
        double rotated = first ? -in[0]->data[k + half] : in[0]->data[k - half];

        out->data[k] =
            in[0]->data[k] * in[1]->data[graph_offset(&in[1]->shape, &out->shape, at)] +
            rotated * in[2]->data[graph_offset(&in[2]->shape, &out->shape, at)];
    }
    return OK;
}

/* ---- along an axis ---- */

/* Rows along an axis: softmax, mean. */
int graph_compute_along_axis(const struct graph_node *v, struct graph_tensor *out,
                             const struct graph_tensor *const *in)
{
    const struct graph_tensor *x = in[0];
    int axis = (int)(v->ints[0] < 0 ? v->ints[0] + x->shape.rank : v->ints[0]);
    int64_t inner = graph_stride(&x->shape, axis), n = x->shape.dim[axis];
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
    return OK;
}

int graph_compute_matmul(const struct graph_node *v, struct graph_tensor *out,
                         const struct graph_tensor *const *in)
{
    const struct graph_tensor *a = in[0], *b = in[1];
    int rank = out->shape.rank;
    int64_t m = out->shape.dim[rank - 2], n = out->shape.dim[rank - 1];
    int64_t k = a->shape.dim[a->shape.rank - 1];
    int64_t at[GRAPH_RANK_MAX] = {0}, n_out = graph_n_elements(&out->shape);
    struct graph_shape lead = out->shape, la = a->shape, lb = b->shape;

    (void)v;
    lead.rank -= 2, la.rank -= 2, lb.rank -= 2;
    for (int64_t i = 0; i < n_out / (m * n); i++, graph_advance(at, &lead)) {
        const double *x = a->data + graph_offset(&la, &lead, at) * m * k;
        const double *y = b->data + graph_offset(&lb, &lead, at) * k * n;
        double *to = out->data + i * m * n;

        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < k; j++)
                for (int64_t c = 0; c < n; c++)
                    to[r * n + c] += x[r * k + j] * y[j * n + c];
    }
    return OK;
}

int graph_compute_norm(const struct graph_node *v, struct graph_tensor *out,
                       const struct graph_tensor *const *in)
{
    const struct graph_tensor *x = in[0];
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
                (x->data[row + k] - mean) / sqrt(square + v->x) * in[1]->data[k] +
                (layer ? in[2]->data[k] : 0);
    }
    return OK;
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

int graph_compute_attention(const struct graph_node *v, struct graph_tensor *out,
                            const struct graph_tensor *const *in)
{
    const struct graph_tensor *q = in[0], *k = in[1], *u = in[2];
    int r = q->shape.rank;
    int64_t d = q->shape.dim[r - 1], t = q->shape.dim[r - 2], s = k->shape.dim[r - 2];
    int64_t e = u->shape.dim[r - 1], n_rows = graph_n_elements(&q->shape) / d;
    /* Heads, the third axis from the end, may share keys and values. */
    int64_t group = r > 2 ? q->shape.dim[r - 3] / k->shape.dim[r - 3] : 1;
    struct graph_tensor mask = {0};
    struct graph_shape scores = q->shape;
    int64_t at[GRAPH_RANK_MAX] = {0};

    scores.dim[r - 1] = s;
    if (v->n_in == 4) { /* as large as the scores */
        const struct graph_tensor *x = in[3];

        mask.shape = scores;
        TRY(graph_tensor_new(&mask));
        for (int64_t i = 0; i < n_rows * s; i++, graph_advance(at, &scores))
            mask.data[i] = x->data[graph_offset(&x->shape, &scores, at)];
    }
    for (int64_t i = 0; i < n_rows; i++)
        attend(out->data + i * e, q->data + i * d, k->data + i / t / group * s * d,
               u->data + i / t / group * s * e, mask.data ? mask.data + i * s : NULL, s,
               d, e, v->x);
    mem_free(mask.data);
    return OK;
}

static int compute_node(struct machine *m, int i)
{
    const struct graph_node *v = &m->g->nodes[i];
    const struct graph_tensor *in[GRAPH_IN_MAX];
    struct graph_tensor *out = &m->t[i];

    out->shape = v->shape;
    for (int d = 0; d < v->shape.rank; d++)
        if (v->shape.dim[d] == GRAPH_DYNAMIC)
            out->shape.dim[d] = m->n_dynamic;
    TRY(graph_tensor_new(out));
    if (v->data)
        memcpy(out->data, v->data,
               (size_t)graph_n_elements(&out->shape) * sizeof(*out->data));
    else if (!v->op->compute)
        m->fill(m->ctx, v->name, &out->shape, out->data);
    if (!v->op->compute)
        return OK;
    for (int a = 0; a < v->n_in; a++)
        in[a] = &m->t[v->in[a]];
    return v->op->compute(v, out, in);
}

/* Nodes that no later one reads give their memory back: last[i] is the last that reads node i. */
static void find_last(int *last, const struct graph *g)
{
    for (int i = 0; i < g->n; i++) {
        last[i] = i;
        for (int a = 0; a < g->nodes[i].n_in; a++)
            last[g->nodes[i].in[a]] = i;
    }
    for (int a = 0; a < g->n_out; a++)
        last[g->out[a]] = g->n;
}

static int compute_nodes(struct machine *m, const int *last)
{
    for (int i = 0; i < m->g->n; i++) {
        const struct graph_node *v = &m->g->nodes[i];
        int rc = compute_node(m, i);

        if (rc != OK)
            return rc == ERR_NOMEM ? rc : err_prefix(rc, "%%%d = %s", i, v->op->name);
        for (int a = 0; a < v->n_in; a++)
            if (last[v->in[a]] == i) {
                mem_free(m->t[v->in[a]].data);
                m->t[v->in[a]].data = NULL;
            }
    }
    return OK;
}

int graph_compute(double **out, int64_t *out_n, const struct graph *g, int64_t n_dynamic,
                  graph_fill_fn fill, void *ctx)
{
    struct machine m = {.g = g, .n_dynamic = n_dynamic, .fill = fill, .ctx = ctx};
    int rc, *last;

    for (int a = 0; a < g->n_out; a++)
        out[a] = NULL;
    m.t = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*m.t));
    last = mem_new(MEM_OTHER, (size_t)g->n, sizeof(*last));
    if (last)
        find_last(last, g);
    rc = m.t && last ? compute_nodes(&m, last) : ERR_NOMEM;
    for (int a = 0; a < g->n_out && rc == OK; a++) {
        const struct graph_tensor *t = &m.t[g->out[a]];

        out_n[a] = graph_n_elements(&t->shape);
        out[a] = mem_new(MEM_OTHER, (size_t)out_n[a], sizeof(**out));
        if (out[a])
            memcpy(out[a], t->data, (size_t)out_n[a] * sizeof(**out));
        else
            rc = ERR_NOMEM;
    }
    for (int i = 0; m.t && i < g->n; i++)
        mem_free(m.t[i].data);
    mem_free(m.t);
    mem_free(last);
    for (int a = 0; a < g->n_out && rc != OK; a++) {
        mem_free(out[a]);
        out[a] = NULL;
    }
    return rc;
}
