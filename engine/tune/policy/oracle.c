/* The yardstick: everything in a common grid is measured, for few shapes only.
 *
 * The grid is bounded: micro-kernels of each width in the two fewest numbers of row
 * blocks whose sums fill at least half of what the widest use of the registers holds (all
 * of them while the rows fit one block); slices of 1, 4 and 16 tiles or all along M and
 * N, of 2, 4, 8 and 16 tiles or all along K; every scheme; one loop order. The ten
 * fastest are then measured again under every loop order. What lies between grid points,
 * lower micro-kernels for long shapes, and other orders of slower points are not seen. */
#include <math.h>
#include <stdlib.h>

#include "tune/search.h"

#define HEIGHTS 2 /* block counts for each width of a micro-kernel */
#define FINAL   10

static const int64_t tiles_mn[] = {1, 4, 16, 0}; /* 0: all */
static const int64_t tiles_k[] = {2, 4, 8, 16, 0};
#define N_MN ((int)(sizeof(tiles_mn) / sizeof(tiles_mn[0])))
#define N_K  ((int)(sizeof(tiles_k) / sizeof(tiles_k[0])))

static int choose_mks(const struct tune_search *q, struct tune_mk *out)
{
    struct tune_mk all[TUNE_MKS_MAX];
    int n_all = tune_mks(q->shape.v, q->shape.m, all), n = 0, per_np[KERN_NP_MAX + 1];
    int most = 0;

    for (int np = 0; np <= KERN_NP_MAX; np++) {
        int sums = np > 0 ? np * kern_gemm_rows(q->shape.v, np) : 0;

        per_np[np] = 0;
        most = sums > most ? sums : most;
    }
    for (int i = 0; i < n_all; i++) { /* of one width, the tallest come first */
        if (per_np[all[i].np] < HEIGHTS && 2 * all[i].mr * all[i].np >= most) {
            per_np[all[i].np]++;
            out[n++] = all[i];
        }
    }
    return n;
}

static int grid_of_slices(struct tune_search *q, const struct kern_schedule *base)
{
    int rc = OK;

    for (int x = 0; x < N_MN * N_MN * N_K && rc == OK; x++) {
        int64_t m = tiles_mn[x % N_MN], n = tiles_mn[x / N_MN % N_MN];
        int64_t k = tiles_k[x / N_MN / N_MN];
        struct kern_schedule s = *base;
        double seconds;

        s.bm = m ? m * tune_tile(base, q->w, TUNE_M) : KERN_ALL;
        s.bn = n ? n * tune_tile(base, q->w, TUNE_N) : KERN_ALL;
        s.bk = k ? k * tune_tile(base, q->w, TUNE_K) : KERN_ALL;
        rc = tune_search_try(q, &s, q->c->n_threads, &seconds);
    }
    return rc;
}

static int by_min(const void *a, const void *b)
{
    double x = ((const struct tune_seen *)a)->t.estimate;
    double y = ((const struct tune_seen *)b)->t.estimate;

    return (x > y) - (x < y);
}

/* Loop orders of the fastest, and the default, which is a point of no grid. */
static int finish(struct tune_search *q)
{
    struct kern_schedule top[FINAL + 1];
    double seconds;
    int n, rc = OK;

    qsort(q->seen, (size_t)q->n_seen, sizeof(*q->seen), by_min);
    n = q->n_seen < FINAL ? q->n_seen : FINAL;
    for (int i = 0; i < n; i++)
        top[i] = q->seen[i].s;
    tune_search_default(q, &top[n]);
    for (int i = 0; i < (n + 1) * KERN_N_ORDERS && rc == OK; i++) {
        struct kern_schedule s = top[i / KERN_N_ORDERS];

        s.order = (enum kern_order)(i % KERN_N_ORDERS);
        rc = tune_search_try(q, &s, q->c->n_threads, &seconds);
    }
    return rc;
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    struct tune_mk mks[TUNE_MKS_MAX];
    int n_schemes = tune_schemes(q->c->n_threads, q->c->o->split_k, schemes);
    int n_mks = choose_mks(q, mks), rc = OK;

    (void)arg, (void)i;
    for (int x = 0; x < n_mks * n_schemes && rc == OK; x++) {
        struct kern_schedule base = {.mr = mks[x / n_schemes].mr,
                                     .np = mks[x / n_schemes].np};

        tune_set_scheme(&base, schemes[x % n_schemes]);
        rc = grid_of_slices(q, &base);
    }
    if (rc == OK)
        rc = finish(q);
    if (isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    return rc;
}

static const struct tune_steps steps = {.one = one};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    return tune_search_run(c, out, &steps, NULL);
}

const struct tune_policy tune_policy_oracle = {
    .name = "oracle",
    .help = "every point of a common grid measured; slow, for a few shapes",
    .run = run,
};
