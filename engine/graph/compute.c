/* The meaning of each operator: plain loops that compute a graph in f64. To add an operator: a row
 * of the table `meanings`, after its row in ops.c. */
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

MUST static int tensor_new(struct tensor *t)
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
static int64_t offset_of(const struct graph_shape *x, const struct graph_shape *out,
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

/* The next element in row-major order. */
static void advance(int64_t *at, const struct graph_shape *s)
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

static void binary(double (*fn)(double, double), enum graph_type type, struct tensor *out,
                   const struct tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    bool whole = type == GRAPH_I64 && fn == quotient;

    for (int64_t k = 0; k < n; k++, advance(at, &out->shape)) {
        double y = fn(in[0]->data[offset_of(&in[0]->shape, &out->shape, at)],
                      in[1]->data[offset_of(&in[1]->shape, &out->shape, at)]);

        out->data[k] = whole ? trunc(y) : y;
    }
}

static void unary(double (*fn)(double), struct tensor *out, const struct tensor *x)
{
    int64_t n = graph_n_elements(&out->shape);

    for (int64_t k = 0; k < n; k++)
        out->data[k] = fn(x->data[k]);
}

static int swiglu(const struct graph_node *v, struct tensor *out,
                  const struct tensor *const *in)
{
    int64_t n = graph_n_elements(&out->shape);

    (void)v;
    for (int64_t k = 0; k < n; k++)
        out->data[k] = in[0]->data[k] * sigmoid(in[0]->data[k]) * in[1]->data[k];
    return OK;
}

/* x cos + rotated x sin, where the rotated has the second half, negative, and then the first. */
static int rope(const struct graph_node *v, struct tensor *out,
                const struct tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    int64_t half = out->shape.dim[out->shape.rank - 1] / 2;

    (void)v;
    for (int64_t k = 0; k < n; k++, advance(at, &out->shape)) {
        bool first = at[out->shape.rank - 1] < half;
        double rotated = first ? -in[0]->data[k + half] : in[0]->data[k - half];

        out->data[k] =
            in[0]->data[k] * in[1]->data[offset_of(&in[1]->shape, &out->shape, at)] +
            rotated * in[2]->data[offset_of(&in[2]->shape, &out->shape, at)];
    }
    return OK;
}

/* ---- along an axis ---- */

/* Rows along an axis: softmax, mean. */
static int along_axis(const struct graph_node *v, struct tensor *out,
                      const struct tensor *const *in)
{
    const struct tensor *x = in[0];
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
    return OK;
}

static int matmul(const struct graph_node *v, struct tensor *out,
                  const struct tensor *const *in)
{
    const struct tensor *a = in[0], *b = in[1];
    int rank = out->shape.rank;
    int64_t m = out->shape.dim[rank - 2], n = out->shape.dim[rank - 1];
    int64_t k = a->shape.dim[a->shape.rank - 1];
    int64_t at[GRAPH_RANK_MAX] = {0}, n_out = graph_n_elements(&out->shape);
    struct graph_shape lead = out->shape, la = a->shape, lb = b->shape;

    (void)v;
    lead.rank -= 2, la.rank -= 2, lb.rank -= 2;
    for (int64_t i = 0; i < n_out / (m * n); i++, advance(at, &lead)) {
        const double *x = a->data + offset_of(&la, &lead, at) * m * k;
        const double *y = b->data + offset_of(&lb, &lead, at) * k * n;
        double *to = out->data + i * m * n;

        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < k; j++)
                for (int64_t c = 0; c < n; c++)
                    to[r * n + c] += x[r * k + j] * y[j * n + c];
    }
    return OK;
}

static int norm(const struct graph_node *v, struct tensor *out,
                const struct tensor *const *in)
{
    const struct tensor *x = in[0];
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

static int attention(const struct graph_node *v, struct tensor *out,
                     const struct tensor *const *in)
{
    const struct tensor *q = in[0], *k = in[1], *u = in[2];
    int r = q->shape.rank;
    int64_t d = q->shape.dim[r - 1], t = q->shape.dim[r - 2], s = k->shape.dim[r - 2];
    int64_t e = u->shape.dim[r - 1], n_rows = graph_n_elements(&q->shape) / d;
    /* Heads, the third axis from the end, may share keys and values. */
    int64_t group = r > 2 ? q->shape.dim[r - 3] / k->shape.dim[r - 3] : 1;
    struct tensor mask = {0};
    struct graph_shape scores = q->shape;
    int64_t at[GRAPH_RANK_MAX] = {0};

    scores.dim[r - 1] = s;
    if (v->n_in == 4) { /* as large as the scores */
        const struct tensor *x = in[3];

        mask.shape = scores;
        TRY(tensor_new(&mask));
        for (int64_t i = 0; i < n_rows * s; i++, advance(at, &scores))
            mask.data[i] = x->data[offset_of(&x->shape, &scores, at)];
    }
    for (int64_t i = 0; i < n_rows; i++)
        attend(out->data + i * e, q->data + i * d, k->data + i / t / group * s * d,
               u->data + i / t / group * s * e, mask.data ? mask.data + i * s : NULL, s,
               d, e, v->x);
    mem_free(mask.data);
    return OK;
}

/* ---- moving, choosing and repeating elements ---- */

/* The node's axis of the first integer, counted from the front. */
static int first_axis(const struct graph_node *v, const struct graph_shape *s)
{
    return (int)(v->ints[0] < 0 ? v->ints[0] + s->rank : v->ints[0]);
}

static int shape(const struct graph_node *v, struct tensor *out,
                 const struct tensor *const *in)
{
    (void)v;
    for (int d = 0; d < in[0]->shape.rank; d++)
        out->data[d] = (double)in[0]->shape.dim[d];
    return OK;
}

/* The same elements in other sizes. */
static int copy(const struct graph_node *v, struct tensor *out,
                const struct tensor *const *in)
{
    (void)v;
    memcpy(out->data, in[0]->data,
           (size_t)graph_n_elements(&out->shape) * sizeof(*out->data));
    return OK;
}

static int cast(const struct graph_node *v, struct tensor *out,
                const struct tensor *const *in)
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
static int move(const struct graph_node *v, struct tensor *out,
                const struct tensor *const *in)
{
    const struct tensor *x = in[0];
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);
    int64_t begin[GRAPH_RANK_MAX] = {0}, step[GRAPH_RANK_MAX];
    bool transposes = strcmp(v->op->name, "transpose") == 0;

    if (!transposes)
        TRY(find_begin(begin, v, &x->shape, &out->shape));
    for (int d = 0; d < out->shape.rank; d++)
        step[d] = stride(&x->shape, transposes ? (int)v->ints[d] : d);
    for (int64_t k = 0; k < n; k++, advance(at, &out->shape)) {
        int64_t from = 0;

        for (int d = 0; d < out->shape.rank; d++)
            from += (at[d] + begin[d]) * step[d];
        out->data[k] = x->data[from];
    }
    return OK;
}

static int gather(const struct graph_node *v, struct tensor *out,
                  const struct tensor *const *in)
{
    const struct tensor *x = in[0];
    int axis = first_axis(v, &x->shape);
    int64_t inner = stride(&x->shape, axis), n = graph_n_elements(&out->shape);

    if (v->ints[1] >= x->shape.dim[axis])
        return err_set(ERR_FORMAT, "element %lld of %lld", (long long)v->ints[1],
                       (long long)x->shape.dim[axis]);
    for (int64_t k = 0; k < n; k++)
        out->data[k] = x->data[k / inner * inner * x->shape.dim[axis] +
                               v->ints[1] * inner + k % inner];
    return OK;
}

static int take(const struct graph_node *v, struct tensor *out,
                const struct tensor *const *in)
{
    const struct tensor *x = in[0], *at = in[1];
    int axis = first_axis(v, &x->shape);
    int64_t inner = stride(&x->shape, axis), size = x->shape.dim[axis];
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

static int concat(const struct graph_node *v, struct tensor *out,
                  const struct tensor *const *in)
{
    int axis = first_axis(v, &out->shape);
    int64_t inner = stride(&out->shape, axis);
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

static int expand(const struct graph_node *v, struct tensor *out,
                  const struct tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);

    (void)v;
    for (int64_t k = 0; k < n; k++, advance(at, &out->shape))
        out->data[k] = in[0]->data[offset_of(&in[0]->shape, &out->shape, at)];
    return OK;
}

static int range(const struct graph_node *v, struct tensor *out,
                 const struct tensor *const *in)
{
    (void)v;
    for (int64_t k = 0; k < out->shape.dim[0]; k++)
        out->data[k] = in[0]->data[0] + (double)k * in[2]->data[0];
    return OK;
}

static int trilu(const struct graph_node *v, struct tensor *out,
                 const struct tensor *const *in)
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

static int where(const struct graph_node *v, struct tensor *out,
                 const struct tensor *const *in)
{
    int64_t at[GRAPH_RANK_MAX] = {0}, n = graph_n_elements(&out->shape);

    (void)v;
    for (int64_t k = 0; k < n; k++, advance(at, &out->shape)) {
        bool chosen = in[0]->data[offset_of(&in[0]->shape, &out->shape, at)] != 0;
        const struct tensor *x = in[chosen ? 1 : 2];

        out->data[k] = x->data[offset_of(&x->shape, &out->shape, at)];
    }
    return OK;
}

/* ---- the graph ---- */

/* A row for each operator but inputs, weights and consts: a function of one element or of two, or
 * one of whole tensors. ERR_FORMAT: sizes or numbers of elements that turn out not to fit. */
static const struct meaning {
    const char *op;
    double (*one)(double);
    double (*two)(double, double);
    int (*compute)(const struct graph_node *v, struct tensor *out,
                   const struct tensor *const *in);
} meanings[] = {
    {"sqrt", .one = sqrt},
    {"reciprocal", .one = reciprocal},
    {"sigmoid", .one = sigmoid},
    {"neg", .one = neg},
    {"exp", .one = exp},
    {"sin", .one = sin},
    {"cos", .one = cos},
    {"tanh", .one = tanh},
    {"erf", .one = erf},
    {"add", .two = add},
    {"sub", .two = sub},
    {"mul", .two = mul},
    {"div", .two = quotient},
    {"pow", .two = pow},
    {"equal", .two = is_equal},
    {"less", .two = is_less},
    {"less_equal", .two = is_less_equal},
    {"swiglu", .compute = swiglu},
    {"rope", .compute = rope},
    {"softmax", .compute = along_axis},
    {"reduce_mean", .compute = along_axis},
    {"matmul", .compute = matmul},
    {"layer_norm", .compute = norm},
    {"rms_norm", .compute = norm},
    {"attention", .compute = attention},
    {"shape", .compute = shape},
    {"unsqueeze", .compute = copy},
    {"squeeze", .compute = copy},
    {"reshape", .compute = copy},
    {"cast", .compute = cast},
    {"transpose", .compute = move},
    {"slice", .compute = move},
    {"gather", .compute = gather},
    {"take", .compute = take},
    {"concat", .compute = concat},
    {"expand", .compute = expand},
    {"range", .compute = range},
    {"trilu", .compute = trilu},
    {"where", .compute = where},
};

static const struct meaning *meaning_of(const struct graph_op *op)
{
    const struct meaning *m = meanings;

    while (strcmp(m->op, op->name) != 0)
        m++;
    return m;
}

static int compute_node(struct machine *m, int i)
{
    const struct graph_node *v = &m->g->nodes[i];
    const struct tensor *in[GRAPH_IN_MAX];
    struct tensor *out = &m->t[i];
    const struct meaning *meaning;

    out->shape = v->shape;
    for (int d = 0; d < v->shape.rank; d++)
        if (v->shape.dim[d] == GRAPH_DYNAMIC)
            out->shape.dim[d] = m->n_dynamic;
    TRY(tensor_new(out));
    if (v->data)
        memcpy(out->data, v->data,
               (size_t)graph_n_elements(&out->shape) * sizeof(*out->data));
    else if (v->n_in == 0)
        m->fill(m->ctx, v->name, &out->shape, out->data);
    if (v->n_in == 0)
        return OK;
    for (int a = 0; a < v->n_in; a++)
        in[a] = &m->t[v->in[a]];
    meaning = meaning_of(v->op);
    if (meaning->one)
        unary(meaning->one, out, in[0]);
    else if (meaning->two)
        binary(meaning->two, v->type, out, in);
    return meaning->compute ? meaning->compute(v, out, in) : OK;
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
        const struct tensor *t = &m.t[g->out[a]];

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
