#include "hetero/layer.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"

#define N_GEMMS 3 /* gate, up, down */

int accel_find(const char *name, const struct accel_kind **out)
{
    *out = name_find(accel_kinds, name, "accelerator");
    return *out ? OK : ERR_NOTFOUND;
}

void hetero_product(float *y, const float *x, const float *w, int64_t n_tok,
                    int64_t n_units, int64_t dim, bool down)
{
    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t u = 0; u < n_units; u++) {
            float sum = 0;

            for (int64_t d = 0; d < dim; d++) {
                if (down)
                    y[t * dim + d] += x[t * n_units + u] * w[u * dim + d];
                else
                    sum += x[t * dim + d] * w[u * dim + d];
            }
            if (!down)
                y[t * n_units + u] = sum;
        }
}

void hetero_swiglu(float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        gate[i] *= up[i] / (1 + expf(-gate[i]));
}

/* A slice on the accelerator. */
struct slice {
    int64_t first, n;     /* hidden units */
    int64_t tok0, n_tok;  /* tokens that it computes */
    bool resident;        /* GG: its weights are there */
    int gate, up;         /* buffers [n_tok of the layer, n] */
    int weights[N_GEMMS]; /* resident: buffers */
};

enum { CG, GG, CG_PRIME, N_SLICES };

struct schedule {
    const struct hetero_mlp *mlp;
    const struct accel_kind *k;
    struct accel *a;
    int64_t n_tok;
    int x, y, staging[2];
    int used[2]; /* the event after which a staging buffer is free; -1: it is */
    int n_sent;
    struct slice slices[N_SLICES];
};

static const float *matrix(const struct hetero_mlp *mlp, int i)
{
    return i == 0 ? mlp->gate : i == 1 ? mlp->up : mlp->down;
}

static size_t bytes_of(const struct schedule *w, int64_t n_units)
{
    return (size_t)(n_units * w->mlp->dim) * sizeof(float);
}

static int alloc_slice(struct schedule *w, struct slice *s)
{
    size_t bytes = (size_t)(w->n_tok * s->n) * sizeof(float);

    if (s->n == 0 || s->n_tok == 0)
        return OK;
    TRY(w->k->alloc(w->a, bytes, &s->gate));
    TRY(w->k->alloc(w->a, bytes, &s->up));
    for (int i = 0; i < N_GEMMS && s->resident; i++) {
        TRY(w->k->alloc(w->a, bytes_of(w, s->n), &s->weights[i]));
        TRY(w->k->copy(w->a, s->weights[i], 0, matrix(w->mlp, i) + s->first * w->mlp->dim,
                       bytes_of(w, s->n)));
    }
    return OK;
}

/* What is there before the layer begins: tokens, and the weights that stay. */
static int prepare(struct schedule *w, const float *x)
{
    size_t bytes = (size_t)(w->n_tok * w->mlp->dim) * sizeof(float);
    int64_t most = 0;

    TRY(w->k->alloc(w->a, bytes, &w->x));
    TRY(w->k->alloc(w->a, bytes, &w->y));
    for (int i = 0; i < N_SLICES; i++) {
        TRY(alloc_slice(w, &w->slices[i]));
        if (!w->slices[i].resident && w->slices[i].n > most)
            most = w->slices[i].n;
    }
    for (int i = 0; i < 2; i++) {
        TRY(w->k->alloc(w->a, bytes_of(w, most), &w->staging[i]));
        w->used[i] = -1;
    }
    TRY(w->k->copy(w->a, w->x, 0, x, bytes));
    w->k->wait(w->a, ACCEL_COMPUTE, w->k->record(w->a, ACCEL_COPY));
    return OK;
}

/* Send matrix i of a slice into the staging buffer that is free first; the kernel that follows
 * waits for it. */
static int send(struct schedule *w, const struct slice *s, int i, int *buffer)
{
    int at = w->n_sent++ % 2;

    *buffer = w->staging[at];
    if (w->used[at] >= 0)
        w->k->wait(w->a, ACCEL_COPY, w->used[at]);
    TRY(w->k->copy(w->a, *buffer, 0, matrix(w->mlp, i) + s->first * w->mlp->dim,
                   bytes_of(w, s->n)));
    w->k->wait(w->a, ACCEL_COMPUTE, w->k->record(w->a, ACCEL_COPY));
    return OK;
}

static int compute(struct schedule *w, const struct slice *s, int i, int weights)
{
    struct accel_gemm g = {.n_tok = s->n_tok,
                           .n_units = s->n,
                           .dim = w->mlp->dim,
                           .w = {weights, 0},
                           .down = i == 2,
                           .tok0 = s->tok0};
    size_t first = (size_t)(s->tok0 * s->n) * sizeof(float);

    g.x.buffer = g.down ? s->gate : w->x;
    g.y.buffer = g.down ? w->y : i == 0 ? s->gate : s->up;
    TRY(w->k->gemm(w->a, &g));
    if (i == 1)
        TRY(w->k->swiglu(w->a, (struct accel_matrix){s->gate, first},
                         (struct accel_matrix){s->up, first}, s->n_tok * s->n));
    return OK;
}

static bool is_used(const struct slice *s)
{
    return s->n > 0 && s->n_tok > 0;
}

/* One matrix: all launches, then what is sent, then what is computed. */
static int one_gemm(struct schedule *w, int i)
{
    for (int k = 0; k < N_SLICES; k++)
        if (is_used(&w->slices[k]))
            w->k->launch(w->a, w->slices[k].resident ? 1 : 2);
    for (int k = 0; k < N_SLICES; k++) {
        const struct slice *s = &w->slices[k];
        int weights = s->weights[i];

        if (!is_used(s))
            continue;
        if (!s->resident)
            TRY(send(w, s, i, &weights));
        TRY(compute(w, s, i, weights));
        if (!s->resident)
            w->used[(w->n_sent - 1) % 2] = w->k->record(w->a, ACCEL_COMPUTE);
    }
    return OK;
}

/* CC on the CPU, for the tokens that the accelerator does not take over. */
static int run_cpu(float *y, const struct hetero_mlp *mlp, const float *x, int64_t n_tok,
                   int64_t n_units)
{
    size_t n = (size_t)(n_tok * n_units);
    float *gate = mem_new(MEM_OTHER, n, sizeof(*gate)),
          *up = mem_new(MEM_OTHER, n, sizeof(*up));
    int rc = gate && up ? OK : ERR_NOMEM;

    if (rc == OK) {
        hetero_product(gate, x, mlp->gate, n_tok, n_units, mlp->dim, false);
        hetero_product(up, x, mlp->up, n_tok, n_units, mlp->dim, false);
        hetero_swiglu(gate, up, (int64_t)n);
        hetero_product(y, gate, mlp->down, n_tok, n_units, mlp->dim, true);
    }
    mem_free(gate);
    mem_free(up);
    return rc;
}

static int whole_units(double share, int64_t hidden, int64_t *out)
{
    double n = share * (double)hidden;

    *out = (int64_t)llround(n);
    if (fabs(n - (double)*out) > 1e-6 || *out < 0 || *out > hidden)
        return err_set(ERR_ARG, "a slice of %g of %lld hidden units: expected whole ones",
                       n, (long long)hidden);
    return OK;
}

/* y += what the accelerator has computed. */
static int add_result(struct schedule *w, float *y)
{
    size_t n = (size_t)(w->n_tok * w->mlp->dim);
    float *part = mem_new(MEM_OTHER, n, sizeof(*part));
    int rc = part ? OK : ERR_NOMEM;

    w->k->wait(w->a, ACCEL_COPY, w->k->record(w->a, ACCEL_COMPUTE));
    if (rc == OK)
        rc = w->k->fetch(w->a, part, w->y, 0, n * sizeof(*part));
    for (size_t i = 0; i < n && rc == OK; i++)
        y[i] += part[i];
    mem_free(part);
    return rc;
}

static int run_layer(float *y, double *seconds, struct schedule *w, const float *x)
{
    double before_s, after_s;

    TRY(prepare(w, x));
    TRY(w->k->finish(w->a, &before_s)); /* the layer begins when its tokens are there */
    for (int i = 0; i < N_GEMMS; i++)
        TRY(one_gemm(w, i));
    TRY(w->k->finish(w->a, &after_s));
    *seconds = after_s - before_s;
    return add_result(w, y);
}

int hetero_mlp_run(float *y, double *seconds, const struct hetero_mlp *mlp,
                   const float *x, int64_t n_tok, const struct hetero_slices *s,
                   const struct accel_kind *kind, const struct hetero_machine *m)
{
    struct schedule w = {.mlp = mlp, .k = kind, .n_tok = n_tok};
    int64_t cg, gg, cc, cpu_tok = n_tok - s->n_accel_tok;
    double race_s;
    int rc;

    TRY(whole_units(s->cg, mlp->hidden, &cg));
    TRY(whole_units(s->gg, mlp->hidden, &gg));
    cc = mlp->hidden - cg - gg;
    if (cc < 0 || cpu_tok < 0 || s->n_accel_tok < 0)
        return err_set(ERR_ARG,
                       "slices of %lld and %lld of %lld units, %lld of %lld tokens",
                       (long long)cg, (long long)gg, (long long)mlp->hidden,
                       (long long)s->n_accel_tok, (long long)n_tok);
    w.slices[CG] = (struct slice){.first = cc, .n = cg, .n_tok = n_tok};
    w.slices[GG] =
        (struct slice){.first = cc + cg, .n = gg, .n_tok = n_tok, .resident = true};
    w.slices[CG_PRIME] =
        (struct slice){.n = cc, .tok0 = cpu_tok, .n_tok = s->n_accel_tok};
    memset(y, 0, (size_t)(n_tok * mlp->dim) * sizeof(*y));
    rc = kind->open(&w.a, m);
    if (rc == OK)
        rc = run_layer(y, seconds, &w, x);
    if (rc == OK && cc > 0)
        rc = run_cpu(y, mlp, x, cpu_tok, cc);
    if (rc == OK) /* the result was fetched, too */
        rc = kind->finish(w.a, &race_s);
    kind->close(&w.a);
    if (rc == OK)
        *seconds =
            fmax(*seconds, N_GEMMS * hetero_product_s(m, false, (double)(cc * mlp->dim),
                                                      (double)cpu_tok));
    return rc;
}
