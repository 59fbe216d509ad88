/* The yardstick: a whole grid is measured, for a small number of shapes.
 *
 * The grid is bounded: micro-kernels of each width in the two fewest numbers of row
 * blocks whose sums fill at least half of what the widest use of the registers holds (all
 * of them while the rows fit one block); slices of 1, 4 and 16 tiles or all along M and
 * N, of 2, 4, 8 and 16 tiles or all along K; every scheme; one loop order. A micro-kernel under
 * a scheme that is a third slower than another in each of four widely spaced slices is left
 * out; of the others every slice is run, often enough for a first look. The 32 fastest
 * are measured as the other policies measure, and of these the ten fastest under every loop
 * order. What is between grid points, lower micro-kernels for long shapes, and other
 * orders of slower points are not seen. */
#include <math.h>

#include "base/mem.h"
#include "tune/search.h"

#define HEIGHTS    2 /* block counts for each width of a micro-kernel */
#define PROBE_FRAC 1.33
#define LOOK_S     0.002 /* a first look at a short shape runs it repeatedly, for so long */
#define LOOKS_MAX  5
#define TOP        32
#define FINAL      10

static const int64_t tiles_mn[] = {1, 4, 16, 0}; /* 0: all */
static const int64_t tiles_k[] = {2, 4, 8, 16, 0};
#define N_MN     ((int)(sizeof(tiles_mn) / sizeof(tiles_mn[0])))
#define N_K      ((int)(sizeof(tiles_k) / sizeof(tiles_k[0])))
#define N_SLICES (N_MN * N_MN * N_K)

struct top {
    struct kern_schedule s[TOP];
    double seconds[TOP];
    int n;
};

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

static struct kern_schedule slice(const struct tune_search *q,
                                  const struct kern_schedule *base, int64_t m, int64_t n,
                                  int64_t k)
{
    struct kern_schedule s = *base;

    s.bm = m ? m * tune_tile(base, q->w, TUNE_M) : KERN_ALL;
    s.bn = n ? n * tune_tile(base, q->w, TUNE_N) : KERN_ALL;
    s.bk = k ? k * tune_tile(base, q->w, TUNE_K) : KERN_ALL;
    return s;
}

static void keep(struct top *top, const struct kern_schedule *s, double seconds)
{
    int i = top->n;

    if (i == TOP && seconds >= top->seconds[TOP - 1])
        return;
    top->n += i < TOP;
    i -= i == TOP;
    for (; i > 0 && top->seconds[i - 1] > seconds; i--) {
        top->s[i] = top->s[i - 1];
        top->seconds[i] = top->seconds[i - 1];
    }
    top->s[i] = *s;
    top->seconds[i] = seconds;
}

/* Four slices of one micro-kernel and scheme; *best: the time of the fastest. */
static int probe(struct tune_search *q, const struct kern_schedule *base, int rounds,
                 double *best)
{
    struct kern_schedule s[] = {slice(q, base, 4, 4, 8), slice(q, base, 16, 0, 4),
                                slice(q, base, 0, 16, 0), slice(q, base, 1, 1, 16)};
    int n = sizeof(s) / sizeof(s[0]), rc;
    double seconds[sizeof(s) / sizeof(s[0])];

    *best = INFINITY;
    rc = tune_search_look(q, s, &n, rounds, seconds);
    for (int i = 0; i < n && rc == OK; i++)
        *best = fmin(*best, seconds[i]);
    return rc;
}

/* Every slice of one micro-kernel and scheme. */
static int grid(struct tune_search *q, const struct kern_schedule *base, int rounds,
                struct top *top)
{
    struct kern_schedule s[N_SLICES];
    double seconds[N_SLICES];
    int n = N_SLICES, rc;

    for (int x = 0; x < n; x++)
        s[x] = slice(q, base, tiles_mn[x % N_MN], tiles_mn[x / N_MN % N_MN],
                     tiles_k[x / N_MN / N_MN]);
    rc = tune_search_look(q, s, &n, rounds, seconds);
    for (int i = 0; i < n && rc == OK; i++)
        keep(top, &s[i], seconds[i]);
    return rc;
}

/* Loop orders of the fastest, and of the default where searches begin with it: it is a
 * point of no grid. */
static int finish(struct tune_search *q)
{
    struct kern_schedule top[FINAL + 1];
    double seconds;
    int n, rc = OK;

    tune_search_sort(q);
    n = q->n_seen < FINAL ? q->n_seen : FINAL;
    for (int i = 0; i < n; i++)
        top[i] = q->seen[i].s;
    if (q->c->o->start_default)
        tune_search_default(q, &top[n++]);
    for (int i = 0; i < n * KERN_N_ORDERS && rc == OK; i++) {
        struct kern_schedule s = top[i / KERN_N_ORDERS];

        s.order = (enum kern_order)(i % KERN_N_ORDERS);
        rc = tune_search_try(q, &s, q->c->n_threads, &seconds);
    }
    return rc;
}

/* Runs of a first look, by the time of one. */
static int looks(struct tune_search *q, const struct kern_schedule *base, int *rounds)
{
    struct kern_schedule s = slice(q, base, 4, 4, 8);
    double seconds;
    int rc = tune_search_try(q, &s, q->c->n_threads, &seconds);

    *rounds = (int)fmax(1, fmin(LOOKS_MAX, LOOK_S / seconds));
    return rc;
}

/* base[n]: the micro-kernels under each scheme. */
static int search(struct tune_search *q, const struct kern_schedule *base, int n,
                  double *best, struct top *top)
{
    double least = INFINITY, seconds;
    int rounds;

    TRY(looks(q, &base[0], &rounds));
    for (int i = 0; i < n; i++) {
        TRY(probe(q, &base[i], rounds, &best[i]));
        least = fmin(least, best[i]);
    }
    for (int i = 0; i < n; i++)
        if (best[i] <= PROBE_FRAC * least)
            TRY(grid(q, &base[i], rounds, top));
    for (int i = 0; i < top->n; i++)
        TRY(tune_search_try(q, &top->s[i], q->c->n_threads, &seconds));
    return finish(q);
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    struct tune_mk mks[TUNE_MKS_MAX];
    int n_schemes = tune_schemes(q->c->n_threads, q->c->o->split_k, schemes);
    int n = choose_mks(q, mks) * n_schemes, rc = ERR_NOMEM;
    struct kern_schedule *base = mem_new(MEM_OTHER, (size_t)n, sizeof(*base));
    double *best = mem_new(MEM_OTHER, (size_t)n, sizeof(*best));
    struct top top = {.n = 0};

    (void)arg, (void)i;
    for (int x = 0; x < n && base; x++) {
        base[x] = (struct kern_schedule){.mr = mks[x / n_schemes].mr,
                                         .np = mks[x / n_schemes].np};
        tune_set_scheme(&base[x], schemes[x % n_schemes]);
    }
    if (base && best)
        rc = search(q, base, n, best, &top);
    if (rc == OK && isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    mem_free(base);
    mem_free(best);
    return rc;
}

static const struct tune_steps steps = {.one = one};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    return tune_search_run(c, out, &steps, NULL);
}

const struct tune_policy tune_policy_oracle = {
    .name = "oracle",
    .help = "a whole grid of schedules looked at; slow, for a few shapes",
    .run = run,
};
