/* Roller as its authors built it (OSDI'22): a slice is scaled up level by level in
 * aligned steps as long as it fits the level's cache; slices are ranked by a model of
 * data reuse, only the best ten are measured and the fastest is taken. Scale-out then
 * copies the slice to all threads; K is never split. `roller` is what Sandwich's paper
 * made of it.
 *
 * Roller walks its construction depth first until it has ten. Ours is small enough to be
 * walked in full, so the ten are the best by the model, which is to its advantage. */
#include <math.h>
#include <stdlib.h>

#include "tune/search.h"

#define TOP_K     10
#define STEPS_MAX 32   /* tiles of a slice along a dimension, at most */
#define FILL_FRAC 0.75 /* of a cache that a slice may take */
#define N_LEVELS  3

/* The work of one core of a server in a cycle: sums of 16 lanes, loads, and bytes from the
 * second level, the last and memory. Only ratios matter. */
#define FMA_PER_CYCLE  2.0
#define LOAD_PER_CYCLE 2.0
#define FMA_LATENCY    4.0
static const double bytes_per_cycle[N_LEVELS] = {48, 16, 6};

struct state {
    double caches[N_LEVELS];
};

struct ranked {
    struct kern_schedule s;
    double cycles;
};

struct sizes {
    double a, w;       /* bytes of an element */
    double m, n, k;    /* of a thread's part */
    double bm, bn, bk; /* of the slice, all in elements */
    double mr, cols;   /* of the micro-kernel */
};

static struct sizes sizes_of(const struct tune_search *q, const struct kern_schedule *s)
{
    double blocks = (double)kern_a_blocks(q->shape.m, s->mr);

    return (struct sizes){
        .a = tune_a_elem(q->shape.v),
        .w = kern_type_weight_bytes(q->w->type),
        .mr = (double)q->shape.m / blocks,
        .cols = (double)s->np * KERN_PANEL,
        .m = ceil(blocks / s->pm) * (double)q->shape.m / blocks,
        .n = (double)tune_part(s, q->w, q->shape.m, TUNE_N) * KERN_PANEL,
        .k = (double)q->w->k_pad,
        .bm = (double)s->bm,
        .bn = (double)s->bn * KERN_PANEL,
        .bk = (double)s->bk,
    };
}

/* Does the slice lie in the caches it is meant for? A tile's columns of B in the first
 * level, the slices of A and C in the second, that of B in the last. */
static bool fits(const struct state *st, const struct sizes *z)
{
    double b_tile = z->cols * z->bk * z->w, a = z->bm * z->bk * z->a;
    double c = z->bm * z->bn * sizeof(float), b = z->bn * z->bk * z->w;

    return b_tile + z->mr * z->cols * sizeof(float) <= FILL_FRAC * st->caches[0] &&
           b_tile + a + c <= FILL_FRAC * st->caches[1] &&
           a + b + c <= FILL_FRAC * st->caches[2];
}

/* Cycles of a thread: the slowest of arithmetic and each level's traffic, and a little of
 * all traffic so that reuse decides between equals. */
static double model(const struct sizes *z)
{
    double lanes = z->mr * z->cols / KERN_PANEL, fma = z->m * z->n * z->k / KERN_PANEL;
    double loads = fma / lanes * (z->mr + z->cols / KERN_PANEL);
    double short_chain = FMA_PER_CYCLE * FMA_LATENCY / lanes;
    double slices_m = ceil(z->m / z->bm), slices_n = ceil(z->n / z->bn);
    double slices_k = ceil(z->k / z->bk);
    double c_moved = 2 * z->m * z->n * sizeof(float) * slices_k;
    double traffic[N_LEVELS] = {
        /* into the first level: A once for every tile of columns */
        z->m * z->k * z->a * ceil(z->n / z->cols) + c_moved,
        /* into the second: B once for every slice of rows */
        z->n * z->k * z->w * slices_m + z->m * z->k * z->a * slices_n,
        z->n * z->k * z->w + z->m * z->k * z->a,
    };
    double cycles = fma / FMA_PER_CYCLE * (short_chain > 1 ? short_chain : 1), all = 0;

    cycles = fmax(cycles, loads / LOAD_PER_CYCLE);
    for (int i = 0; i < N_LEVELS; i++) {
        cycles = fmax(cycles, traffic[i] / bytes_per_cycle[i]);
        all += traffic[i] / bytes_per_cycle[i];
    }
    return cycles + all / 16;
}

/* Keep the TOP_K best in order. */
static void rank(struct ranked *top, int *n, const struct kern_schedule *s, double cycles)
{
    int i = *n;

    for (int j = 0; j < *n; j++)
        if (tune_same(&top[j].s, s))
            return;
    if (*n == TOP_K && cycles >= top[TOP_K - 1].cycles)
        return;
    if (*n < TOP_K)
        (*n)++;
    else
        i--;
    for (; i > 0 && top[i - 1].cycles > cycles; i--)
        top[i] = top[i - 1];
    top[i] = (struct ranked){*s, cycles};
}

/* Every aligned slice of one micro-kernel and scheme: one to STEPS_MAX tiles, doubling. */
static void scale_up(const struct tune_search *q, const struct state *st,
                     const struct kern_schedule *base, struct ranked *top, int *n)
{
    for (int64_t k = 1; k <= STEPS_MAX; k *= 2) {
        for (int64_t m = 1; m <= STEPS_MAX; m *= 2) {
            for (int64_t panels = 1; panels <= STEPS_MAX; panels *= 2) {
                struct kern_schedule s = *base;
                struct sizes z;

                s.bm = m * tune_tile(&s, q->w, TUNE_M);
                s.bn = panels * tune_tile(&s, q->w, TUNE_N);
                s.bk = k * tune_tile(&s, q->w, TUNE_K);
                tune_clamp(&s, q->w, q->shape.m);
                z = sizes_of(q, &s);
                if ((k == 1 && m == 1 && panels == 1) || fits(st, &z))
                    rank(top, n, &s, model(&z));
            }
        }
    }
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    struct tune_mk mks[TUNE_MKS_MAX];
    struct ranked top[TOP_K];
    int n_schemes = tune_schemes(q->c->n_threads, false, schemes), n = 0, rc = OK;
    int n_mks = tune_mks(q->shape.v, q->shape.m, mks);

    (void)i;
    for (int x = 0; x < n_mks * n_schemes; x++) {
        struct kern_schedule base = {.mr = mks[x / n_schemes].mr,
                                     .np = mks[x / n_schemes].np};

        tune_set_scheme(&base, schemes[x % n_schemes]);
        if (kern_a_blocks(q->shape.m, base.mr) >= base.pm) /* else threads idle */
            scale_up(q, arg, &base, top, &n);
    }
    for (int x = 0; x < n && rc == OK; x++) {
        double seconds;

        rc = tune_search_try(q, &top[x].s, q->c->n_threads, &seconds);
    }
    if (isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    return rc;
}

static const struct tune_steps steps = {.one = one};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    struct state st;

    tune_caches(c->n_threads, st.caches);
    return tune_search_run(c, out, &steps, &st);
}

const struct tune_policy tune_policy_roller_topk = {
    .name = "roller_topk",
    .help = "scale-up by a model of caches and reuse, ten measured, then scale-out",
    .run = run,
};
