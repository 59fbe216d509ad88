#include "experiments/study/support/kernel_machine.h"

#include <math.h>
#include <string.h>

#include "tune/space.h"

#define ELEM            4.0 /* bytes of f32 */
#define FMA_LATENCY     4.0
#define LOADS_PER_CYCLE 2.0

enum { PLAIN, SMALL_CACHES, ODD_TILES, RUGGED, NOISY };

static double between(struct rng *r, double low, double high)
{
    return low + (high - low) * rng_f64(r);
}

/* Ranges about the numbers of servers' cores. Of a cache 60 to 95 % is left to a product. */
void study_kernel_machine_draw(struct study_kernel_machine *m, int kind, int n_threads,
                               uint64_t seed)
{
    struct cpu_info *x = &m->shown;
    struct rng r;

    rng_init(&r, seed, "kernel machine");
    memset(m, 0, sizeof(*m));
    m->seed = seed;
    m->n_threads = 2 << rng_below(&r, 4);
    m->n_threads = n_threads ? n_threads : m->n_threads;
    m->fma_per_cycle = 1 + (double)rng_below(&r, 2);
    x->l1d_bytes = (2 + (int64_t)rng_below(&r, 2)) << 14;
    x->l2_bytes = (int64_t)512 << 10 << rng_below(&r, 3);
    x->l3_bytes = (int64_t)16 << 20 << rng_below(&r, 3);
    /* by these the engine knows how many multiply-adds a core starts (cpu_fma_per_cycle_of()) */
    x->family = m->fma_per_cycle < 2 ? 0x19 : 6;
    x->model = m->fma_per_cycle < 2 ? 0x11 : 0xcf;
    strcpy(x->vendor, m->fma_per_cycle < 2 ? "AuthenticAMD" : "GenuineIntel");
    for (int i = 0; i < 3; i++) {
        int64_t whole = i == 0 ? x->l1d_bytes : i == 1 ? x->l2_bytes : x->l3_bytes;
        double alone = between(&r, 0.6, 0.95), crowded = between(&r, 0.1, 0.4);

        m->cache_bytes[i] =
            (double)whole * (kind == SMALL_CACHES && i > 0 ? crowded : alone);
    }
    m->ghz = between(&r, 2.4, 4);
    m->bytes_per_cycle[0] = between(&r, 24, 56);
    m->bytes_per_cycle[1] = between(&r, 6, 18);
    m->core_gbps = between(&r, 8, 16);
    m->memory_gbps = m->core_gbps * m->n_threads * between(&r, 0.35, 0.8);
    m->restart_bytes = between(&r, 32, 512);
    m->call_cycles = between(&r, 15, 50);
    m->slice_cycles = between(&r, 100, 1000);
    m->barrier_s = 1e-9 * between(&r, 100, 500) * log2(2 * m->n_threads);
    m->overlap_loss = between(&r, 0.05, 0.3);
    m->tile_sd = kind == ODD_TILES ? 0.15 : 0.03;
    m->schedule_sd = kind == RUGGED ? 0.04 : 0.005;
    m->noise_frac = kind == NOISY ? between(&r, 0.005, 0.06) : 0.015;
    m->spike_frac = kind == NOISY ? between(&r, 0.1, 1) : 0.05;
    m->spike_chance = kind == NOISY ? between(&r, 0.01, 0.1) : 0.01;
}

double study_kernel_machine_noise(const struct study_kernel_machine *m, struct rng *r)
{
    double x = exp(m->noise_frac * rng_normal(r));

    return rng_f64(r) < m->spike_chance ? x * (1 + m->spike_frac * rng_exp(r)) : x;
}

/* ---- the time of a schedule ---- */

/* The part of a thread, and its slices. */
struct part {
    double h, np; /* rows and panels of a micro-kernel, as they fall */
    double blocks, panels, k;
    double bm, bn, bk; /* of a slice: blocks of rows, panels, rows of K */
    double slices_m, slices_n, slices_k;
};

static struct part part_of(const struct tune_shape *shape, const struct kern_schedule *s)
{
    double all = (double)kern_a_blocks(shape->m, s->mr);
    struct part p = {.h = (double)shape->m / all,
                     .blocks = ceil(all / s->pm),
                     .panels = ceil(ceil((double)shape->n / KERN_PANEL) / s->pn),
                     .k = ceil((double)shape->k / s->pk)};

    p.np = fmin(s->np, p.panels);
    p.bm = fmin(ceil((double)s->bm / s->mr), p.blocks);
    p.bn = fmin((double)s->bn, p.panels);
    p.bk = fmin((double)s->bk, p.k);
    p.slices_m = ceil(p.blocks / p.bm);
    p.slices_n = ceil(p.panels / p.bn);
    p.slices_k = ceil(p.k / p.bk);
    return p;
}

/* How often n uses read something of that size, of which the cache keeps what it can hold. */
static double reads(double n, double bytes, double cache)
{
    return bytes > cache ? 1 + (1 - cache / bytes) * (n - 1) : 1;
}

/* Seconds of a thread's multiply-adds, and of its bytes from the second and the last level and from
 * memory. */
static void parts_s(const struct study_kernel_machine *m, const struct part *p,
                    const struct tune_shape *shape, const struct kern_schedule *s,
                    int n_threads, double out[4])
{
    const bool mnk = s->order == KERN_ORDER_MNK, knm = s->order == KERN_ORDER_KNM;
    const double column = KERN_PANEL * ELEM, *cache = m->cache_bytes;
    const double rows = p->blocks * p->h, lanes = p->h * p->np;
    const double a = rows * p->k * ELEM, b = p->panels * p->k * column;
    const double c = 2 * rows * p->panels * column, columns = ceil(p->panels / p->np);
    const double b_tile = p->np * p->bk * column, b_slice = p->bn * p->bk * column;
    const double a_slice = p->bm * p->h * p->bk * ELEM;
    const double c_slice = p->bm * p->h * p->bn * column;
    double cycles = fmax(1 / m->fma_per_cycle, FMA_LATENCY / lanes), l2, l3, memory;

    cycles = fmax(cycles, (p->h + p->np) / lanes / LOADS_PER_CYCLE);
    l2 = a * columns + c * p->slices_k;
    l2 += b * p->slices_m * reads(p->bm, b_tile + p->h * p->bk * ELEM, cache[0]);
    l3 = a * fmax(mnk ? 1 : p->slices_n, reads(columns, a_slice + b_tile, cache[1]));
    l3 += b * (mnk ? p->slices_m : reads(p->slices_m, a_slice + b_slice, cache[1]));
    l3 += c * (knm ? p->slices_k : reads(p->slices_k, a_slice + c_slice, cache[1]));
    memory = (double)(shape->n * shape->k) * ELEM;
    memory *= reads(p->slices_m, mnk ? memory : b_slice * s->pn * s->pk, cache[2]) *
              (1 + (p->bk < (double)shape->k ? m->restart_bytes / (p->bk * column) : 0));
    out[0] = 1e-9 * rows * p->panels * p->k * cycles / m->ghz;
    out[1] = 1e-9 * l2 / m->bytes_per_cycle[0] / m->ghz;
    out[2] = 1e-9 * l3 / m->bytes_per_cycle[1] / m->ghz;
    out[3] = 1e-9 * memory / fmin(m->core_gbps * n_threads, m->memory_gbps);
}

/* A normal number of the machine's for these n whole numbers. */
static double particular(const struct study_kernel_machine *m, const double *v, int n)
{
    uint64_t x = m->seed;
    struct rng r;

    for (int i = 0; i < n; i++) {
        x = (x ^ (uint64_t)v[i]) * UINT64_C(0x9e3779b97f4a7c15);
        x ^= x >> 29;
    }
    rng_init(&r, x, "particular");
    return rng_normal(&r);
}

double study_kernel_machine_s(const struct study_kernel_machine *m,
                              const struct tune_shape *shape,
                              const struct kern_schedule *s, int n_threads)
{
    const struct part p = part_of(shape, s);
    const double key[] = {ceil(p.h), p.np,  p.bm,  p.bn,     p.bk,
                          s->pm,     s->pn, s->pk, s->order, (double)shape->m};
    double each[4], worst = 0, sum = 0, t;

    parts_s(m, &p, shape, s, n_threads, each);
    for (int i = 0; i < 4; i++) {
        worst = fmax(worst, each[i]);
        sum += each[i];
    }
    t = p.blocks * ceil(p.panels / p.np) * p.slices_k * m->call_cycles;
    t += p.slices_m * p.slices_n * p.slices_k * m->slice_cycles;
    t = 1e-9 * t / m->ghz + worst + m->overlap_loss * (sum - worst);
    t *=
        exp(m->tile_sd * particular(m, key, 2) + m->schedule_sd * particular(m, key, 10));
    t += n_threads > 1 ? m->barrier_s * (1 + (s->pk > 1)) : 0;
    if (s->pk > 1) /* the reduction */
        t += 1e-9 * ELEM * (double)(shape->m * shape->n) * (s->pk + 1) / n_threads /
             m->bytes_per_cycle[1] / m->ghz;
    return t;
}

/* ---- the best one ---- */

#define PASSES_MAX 4
#define HOPELESS   2 /* a start that is so much slower than the best one known is left */

/* Sizes of 1, 2, 3, 5, 8, 12 ... tiles, one dimension after the other, until none gains. */
static double improve(const struct study_kernel_machine *m,
                      const struct tune_shape *shape, const struct kern_mat *w,
                      struct kern_schedule s, double seconds)
{
    double before = INFINITY;

    for (int pass = 0; pass < PASSES_MAX && seconds < before; pass++) {
        before = seconds;
        for (int d = 0; d < TUNE_N_DIMS; d++) {
            const int64_t part = tune_part(&s, w, shape->m, (enum tune_dim)d);
            const int64_t tile = tune_tile(&s, w, (enum tune_dim)d);

            for (int64_t size = tile, last = 0; last < part;
                 last = size, size += (size / tile + 1) / 2 * tile) {
                struct kern_schedule x = s;
                double t;

                *tune_extent(&x, (enum tune_dim)d) = size;
                tune_clamp(&x, w, shape->m);
                t = study_kernel_machine_s(m, shape, &x, m->n_threads);
                s = t < seconds ? x : s;
                seconds = fmin(t, seconds);
            }
        }
    }
    return seconds;
}

double study_kernel_machine_best(const struct study_kernel_machine *m,
                                 const struct tune_shape *shape)
{
    struct tune_mk mks[TUNE_MKS_MAX];
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    const int n_mks = tune_mks(shape->v, shape->m, mks);
    const int n_schemes = tune_schemes(m->n_threads, true, schemes);
    double best = INFINITY;
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, shape->n, shape->k, shape->k_unit);
    for (int i = 0; i < n_mks * n_schemes * KERN_N_ORDERS; i++) {
        const struct tune_mk mk = mks[i / KERN_N_ORDERS / n_schemes];
        struct kern_schedule s = {.mr = mk.mr,
                                  .np = mk.np,
                                  .bm = 4 * mk.mr,
                                  .bn = 4 * mk.np,
                                  .bk = 256,
                                  .order = (enum kern_order)(i % KERN_N_ORDERS)};
        double t;

        tune_set_scheme(&s, schemes[i / KERN_N_ORDERS % n_schemes]);
        tune_clamp(&s, &w, shape->m);
        if (kern_schedule_check(&s, shape->v, &w, shape->m, m->n_threads) != OK) {
            err_clear();
            continue;
        }
        t = study_kernel_machine_s(m, shape, &s, m->n_threads);
        if (t < HOPELESS * best)
            best = fmin(best, improve(m, shape, &w, s, t));
    }
    return best;
}
