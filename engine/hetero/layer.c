#include "hetero/layer.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "hetero/product.h"

/* ---- slices of packed matrices ---- */

static struct kern_mat columns_of(const struct kern_mat *w, int64_t lo, int64_t hi)
{
    struct kern_mat m = *w;

    hi = hi < w->n_panels ? hi : w->n_panels;
    m.n_panels = hi - lo;
    m.n = m.n_panels * KERN_PANEL;
    m.bytes = (size_t)m.n_panels * w->panel_bytes;
    m.data = (char *)w->data + (size_t)lo * w->panel_bytes;
    return m;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void hetero_mlp_slice(struct hetero_mlp *out, const struct hetero_mlp *m, int lo, int hi)
{
    const struct kern_mat *d = &m->down;
    int64_t row_lo = lo * d->k_unit, row_hi = hi * d->k_unit;
    int64_t pairs = 2 * d->k_unit / KERN_PANEL; /* panels of gate_up of a unit */

    out->gate_up = columns_of(&m->gate_up, lo * pairs,
                              hi == d->n_units ? m->gate_up.n_panels : hi * pairs);
    out->down = *d;
    out->down.k = least(d->k, row_hi) - row_lo;
    out->down.k_pad = least(d->k_pad, row_hi) - row_lo;
    out->down.n_units = hi - lo;
    out->down.data = (char *)d->data + (size_t)lo * d->unit_bytes;
    out->down.bytes =
        (size_t)(hi - lo - 1) * d->unit_bytes + (size_t)d->n_panels * d->panel_bytes;
    if (hi - lo == 1) {
        out->down.unit_bytes = 0;
        out->down.k_unit = out->down.k_pad;
    }
}

/* The i-th of the three products' weights. */
static struct kern_mat matrix(const struct hetero_mlp *slice, int i)
{
    int64_t half = slice->gate_up.n_panels / 4 * 2;

    if (i == 2)
        return slice->down;
    return columns_of(&slice->gate_up, i == 0 ? 0 : half,
                      i == 0 ? half : slice->gate_up.n_panels);
}

/* ---- the accelerator ---- */

enum { CG, GG, CG_PRIME, N_SLICES };

/* A slice of a layer. */
struct slice {
    struct hetero_mlp mlp;
    int n_units;
    int weights[HETERO_N_GEMMS]; /* GG's: buffers */
};

struct layer {
    struct slice slices[N_SLICES];
};

struct hetero_device {
    const struct accel_kind *k;
    struct accel *a;
    int n_layers;
    int64_t ld, max_tok, max_rows;
    struct layer *layers;
    int x, y;
    int gate_up[N_SLICES], h[N_SLICES]; /* activations of each slice, of any layer */
    int staging[2];
    int used[2]; /* the event after which a staging buffer is free; -1: it is */
    int n_sent;
    float *part;    /* the result, [max_rows, ld] */
    int64_t lo, hi; /* rows that the accelerator computes; none: lo == hi */
};

static int alloc_weights(struct hetero_device *d, struct slice *s)
{
    for (int i = 0; i < HETERO_N_GEMMS; i++) {
        struct kern_mat w = matrix(&s->mlp, i);

        TRY(d->k->alloc(d->a, w.bytes, &s->weights[i]));
        TRY(d->k->copy(d->a, (struct accel_at){s->weights[i], 0}, w.data, w.bytes));
    }
    return OK;
}

static int open_layer(struct hetero_device *d, struct layer *l,
                      const struct hetero_mlp *m, struct hetero_units u)
{
    int n = hetero_mlp_units(m), cc = n - u.cg - u.gg;
    const int at[N_SLICES + 1][2] = {{cc, cc + u.cg}, {cc + u.cg, n}, {0, cc}};

    if (u.cg < 0 || u.gg < 0 || cc < 0)
        return err_set(ERR_ARG, "slices of %d and %d units: expected at most %d in all",
                       u.cg, u.gg, n);
    for (int i = 0; i < N_SLICES; i++) {
        l->slices[i].n_units = at[i][1] - at[i][0];
        if (l->slices[i].n_units > 0)
            hetero_mlp_slice(&l->slices[i].mlp, m, at[i][0], at[i][1]);
    }
    return u.gg > 0 ? alloc_weights(d, &l->slices[GG]) : OK;
}

/* The largest of all layers. */
static int64_t most_pairs(const struct hetero_device *d, int slice)
{
    int64_t most = 0;

    for (int i = 0; i < d->n_layers; i++) {
        const struct slice *s = &d->layers[i].slices[slice];

        if (s->n_units > 0 && s->mlp.gate_up.n_panels / 2 > most)
            most = s->mlp.gate_up.n_panels / 2;
    }
    return most;
}

static size_t most_sent_bytes(const struct hetero_device *d)
{
    size_t most = 0;

    for (int i = 0; i < d->n_layers; i++)
        for (int k = 0; k < N_SLICES; k++)
            for (int g = 0; g < HETERO_N_GEMMS; g++) {
                const struct slice *s = &d->layers[i].slices[k];

                if (k != GG && s->n_units > 0 && matrix(&s->mlp, g).bytes > most)
                    most = matrix(&s->mlp, g).bytes;
            }
    return most;
}

static int alloc_activations(struct hetero_device *d)
{
    size_t rows = (size_t)d->max_tok * sizeof(float);
    size_t all = (size_t)(d->max_rows * d->ld) * sizeof(float);

    TRY(d->k->alloc(d->a, all, &d->x));
    TRY(d->k->alloc(d->a, all, &d->y));
    for (int i = 0; i < N_SLICES; i++) {
        size_t n = (size_t)most_pairs(d, i) * KERN_PANEL;

        TRY(d->k->alloc(d->a, 2 * rows * n, &d->gate_up[i]));
        TRY(d->k->alloc(d->a, rows * n, &d->h[i]));
    }
    for (int i = 0; i < 2; i++) {
        TRY(d->k->alloc(d->a, most_sent_bytes(d), &d->staging[i]));
        d->used[i] = -1;
    }
    return OK;
}

int hetero_device_open(struct hetero_device **out, const struct hetero_device_opts *o)
{
    struct hetero_device *d = mem_new(MEM_OTHER, 1, sizeof(*d));
    double s;
    int rc;

    *out = d;
    if (!d)
        return ERR_NOMEM;
    d->k = o->kind;
    d->n_layers = o->n_layers;
    d->ld = o->ld;
    d->max_tok = o->max_tok;
    d->max_rows = o->max_rows > 0 ? o->max_rows : o->max_tok;
    d->layers = mem_new(MEM_OTHER, (size_t)o->n_layers, sizeof(*d->layers));
    d->part = mem_new(MEM_OTHER, (size_t)(d->max_rows * o->ld), sizeof(*d->part));
    rc = d->layers && d->part ? o->kind->open(&d->a, &o->accel) : ERR_NOMEM;
    for (int i = 0; i < o->n_layers && rc == OK; i++)
        rc = open_layer(d, &d->layers[i], &o->layers[i], o->units[i]);
    if (rc == OK)
        rc = alloc_activations(d);
    if (rc == OK)
        rc = d->k->finish(d->a, &s);
    if (rc != OK)
        hetero_device_close(out);
    return rc;
}

void hetero_device_close(struct hetero_device **d)
{
    if (!*d)
        return;
    if ((*d)->a)
        (*d)->k->close(&(*d)->a);
    mem_free((*d)->layers);
    mem_free((*d)->part);
    mem_free(*d);
    *d = NULL;
}

static bool is_used(const struct layer *l, int slice, int64_t n_accel_tok)
{
    return l->slices[slice].n_units > 0 && (slice != CG_PRIME || n_accel_tok > 0);
}

bool hetero_device_has(const struct hetero_device *d, int layer, int64_t n_accel_tok)
{
    const struct layer *l = &d->layers[layer];

    return is_used(l, CG, 0) || is_used(l, GG, 0) || is_used(l, CG_PRIME, n_accel_tok);
}

int64_t hetero_device_from(const struct hetero_device *d, int layer, struct hetero_rows r)
{
    const struct layer *l = &d->layers[layer];

    if (is_used(l, CG, 0) || is_used(l, GG, 0))
        return 0;
    return is_used(l, CG_PRIME, r.n_accel) ? r.n - r.n_accel : r.n;
}

int hetero_device_send(struct hetero_device *d, const float *x, int64_t n_rows)
{
    d->k->launch(d->a, 1);
    TRY(d->k->copy(d->a, (struct accel_at){d->x, 0}, x,
                   (size_t)(n_rows * d->ld) * sizeof(*x)));
    d->k->wait(d->a, ACCEL_COMPUTE, d->k->record(d->a, ACCEL_COPY));
    return OK;
}

/* Send a matrix into the staging buffer that is free first; the kernel that follows waits for
 * it. */
static int send(struct hetero_device *d, const struct kern_mat *w, int *buffer)
{
    int at = d->n_sent++ % 2;

    *buffer = d->staging[at];
    if (d->used[at] >= 0)
        d->k->wait(d->a, ACCEL_COPY, d->used[at]);
    TRY(d->k->copy(d->a, (struct accel_at){*buffer, 0}, w->data, w->bytes));
    d->k->wait(d->a, ACCEL_COMPUTE, d->k->record(d->a, ACCEL_COPY));
    return OK;
}

static struct accel_at row_at(int buffer, int64_t row, int64_t ld, int64_t column)
{
    return (struct accel_at){buffer, (size_t)(row * ld + column) * sizeof(float)};
}

/* Product i of a slice for these rows; the first slice of the layer sets y. */
static int compute(struct hetero_device *d, int slice, const struct slice *s, int i,
                   int weights, struct hetero_rows r, bool first)
{
    int64_t pairs = s->mlp.gate_up.n_panels / 2, ldh = pairs * KERN_PANEL;
    struct accel_gemm g = {.n_tok = r.n,
                           .layout = matrix(&s->mlp, i),
                           .w = {weights, 0},
                           .accumulate = i == 2 && !first};
    const struct accel_swiglu f = {.n_tok = g.n_tok,
                                   .n_pairs = pairs,
                                   .ldh = ldh,
                                   .ld = 2 * ldh,
                                   .h = {d->h[slice], 0},
                                   .gate_up = {d->gate_up[slice], 0}};

    g.layout.data = NULL;
    if (i == 2) {
        g.x = f.h, g.ldx = ldh;
        g.y = row_at(d->y, r.first, d->ld, 0), g.ldy = d->ld;
    } else {
        g.x = row_at(d->x, r.first, d->ld, 0), g.ldx = d->ld;
        g.y = row_at(d->gate_up[slice], 0, 2 * ldh, i * (pairs / 2) * 2 * KERN_PANEL);
        g.ldy = 2 * ldh;
    }
    if (g.layout.n_panels > 0)
        TRY(d->k->gemm(d->a, &g));
    return i == 1 ? d->k->swiglu(d->a, &f) : OK;
}

/* One product of each slice: all launches, then what is sent, then what is computed. */
static int one_gemm(struct hetero_device *d, const struct layer *l, int i,
                    struct hetero_rows r)
{
    const struct hetero_rows taken = {r.first + r.n - r.n_accel, r.n_accel, 0};
    bool first = true;

    for (int k = 0; k < N_SLICES; k++)
        if (is_used(l, k, r.n_accel))
            d->k->launch(d->a, k == GG ? 1 : 2);
    for (int k = 0; k < N_SLICES; k++) {
        const struct slice *s = &l->slices[k];
        int weights = s->weights[i];
        struct kern_mat w;

        if (!is_used(l, k, r.n_accel))
            continue;
        w = matrix(&s->mlp, i);
        if (k != GG)
            TRY(send(d, &w, &weights));
        TRY(compute(d, k, s, i, weights, k == CG_PRIME ? taken : r, first));
        if (k != GG)
            d->used[(d->n_sent - 1) % 2] = d->k->record(d->a, ACCEL_COMPUTE);
        first = false;
    }
    return OK;
}

int hetero_device_begin(struct hetero_device *d, int layer, struct hetero_rows r)
{
    int64_t lo = r.first + hetero_device_from(d, layer, r);

    d->lo = d->lo < d->hi && d->lo < lo ? d->lo : lo;
    d->hi = r.first + r.n;
    for (int i = 0; i < HETERO_N_GEMMS; i++)
        TRY(one_gemm(d, &d->layers[layer], i, r));
    return OK;
}

int hetero_device_wait(struct hetero_device *d, double *seconds)
{
    return d->k->finish(d->a, seconds);
}

int hetero_device_take(struct hetero_device *d, const float **y, double *seconds)
{
    int64_t lo = d->lo, n = d->hi - d->lo;

    *y = d->part;
    d->lo = d->hi = 0;
    d->k->launch(d->a, 1);
    d->k->wait(d->a, ACCEL_COPY, d->k->record(d->a, ACCEL_COMPUTE));
    TRY(d->k->fetch(d->a, d->part + lo * d->ld, row_at(d->y, lo, d->ld, 0),
                    (size_t)(n * d->ld) * sizeof(**y)));
    return d->k->finish(d->a, seconds);
}

int hetero_device_end(struct hetero_device *d, float *y, double *seconds)
{
    int64_t lo = d->lo * d->ld, hi = d->hi * d->ld;
    const float *part;

    TRY(hetero_device_take(d, &part, seconds));
    for (int64_t i = lo; i < hi; i++)
        y[i] += part[i];
    return OK;
}

/* ---- one layer ---- */

struct cpu_part {
    struct hetero_work work;
    struct hetero_product gate_up, down;
    float *h;
    double end_s; /* of the clock, by thread 0 */
};

static double now_s(void)
{
    return 1e-9 * (double)clock_ns();
}

static void cpu_phase(void *arg, struct par_self *self)
{
    struct cpu_part *p = arg;

    hetero_product_run(&p->work, &p->gate_up, self);
    hetero_product_run(&p->work, &p->down, self);
    if (!self || self->id == 0)
        p->end_s = now_s();
}

static int open_cpu(struct cpu_part *p, const struct hetero_mlp *cc, float *y,
                    const float *x, int64_t ld, int64_t n_tok, int n_threads)
{
    int64_t ldh = cc->gate_up.n_panels / 2 * KERN_PANEL;

    TRY(hetero_work_open(&p->work, n_threads));
    p->h = mem_new(MEM_OTHER, (size_t)(n_tok * ldh), sizeof(*p->h));
    if (!p->h)
        return ERR_NOMEM;
    p->gate_up =
        (struct hetero_product){&cc->gate_up, x, p->h, ld, ldh, n_tok, KERN_GATED};
    p->down = (struct hetero_product){&cc->down, p->h, y, ldh, ld, n_tok, KERN_STORE};
    TRY(hetero_product_reserve(&p->work, &p->gate_up));
    return hetero_product_reserve(&p->work, &p->down);
}

/* Both sides at once. */
static int run_both(struct hetero_device *d, struct cpu_part *cpu, bool has_cpu,
                    struct hetero_run *out, const float *x, int64_t n_tok,
                    int64_t n_accel_tok, struct par_team *team)
{
    double before_s, after_s, begin_s;

    TRY(hetero_device_send(d, x, n_tok));
    /* The layer begins when its tokens are there. */
    TRY(hetero_device_wait(d, &before_s));
    begin_s = cpu->end_s = now_s();
    if (hetero_device_has(d, 0, n_accel_tok))
        TRY(hetero_device_begin(d, 0, (struct hetero_rows){0, n_tok, n_accel_tok}));
    if (has_cpu && team)
        par_team_run(team, cpu->work.n_threads, cpu_phase, cpu);
    else if (has_cpu)
        cpu_phase(cpu, NULL);
    TRY(hetero_device_wait(d, &after_s));
    out->accel_s = hetero_device_has(d, 0, n_accel_tok) ? after_s - before_s : 0;
    out->cpu_s = cpu->end_s - begin_s;
    return OK;
}

int hetero_mlp_run(float *y, struct hetero_run *out, const struct hetero_device_opts *o,
                   const float *x, int64_t n_tok, int64_t n_accel_tok,
                   struct par_team *team, int n_threads)
{
    int cc = hetero_mlp_units(o->layers) - o->units->cg - o->units->gg;
    int64_t cpu_tok = n_tok - n_accel_tok;
    struct cpu_part cpu = {0};
    struct hetero_device *d = NULL;
    struct hetero_mlp part;
    double end_s;
    int rc;

    if (cpu_tok < 0 || n_accel_tok < 0 || n_tok > o->max_tok)
        return err_set(ERR_ARG, "%lld of %lld tokens: expected at most %lld",
                       (long long)n_accel_tok, (long long)n_tok, (long long)o->max_tok);
    memset(y, 0, (size_t)(n_tok * o->ld) * sizeof(*y));
    rc = hetero_device_open(&d, o);
    if (rc == OK && cc > 0 && cpu_tok > 0) {
        hetero_mlp_slice(&part, o->layers, 0, cc);
        rc = open_cpu(&cpu, &part, y, x, o->ld, cpu_tok, team ? n_threads : 1);
    }
    if (rc == OK)
        rc = run_both(d, &cpu, cc > 0 && cpu_tok > 0, out, x, n_tok, n_accel_tok, team);
    if (rc == OK && hetero_device_has(d, 0, n_accel_tok))
        rc = hetero_device_end(d, y, &end_s);
    if (rc == OK && !o->kind->real_time)
        out->cpu_s = HETERO_N_GEMMS *
                     hetero_product_s(o->accel.machine, false,
                                      (double)cc / hetero_mlp_units(o->layers) *
                                          (double)(o->layers->down.k * o->layers->down.n),
                                      cc > 0 ? (double)cpu_tok : 0);
    if (rc == OK)
        out->seconds = fmax(out->accel_s, out->cpu_s);
    hetero_device_close(&d);
    hetero_work_close(&cpu.work);
    mem_free(cpu.h);
    return rc;
}
