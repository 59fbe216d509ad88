#include "tune/space.h"

#include <string.h>

#include "cpu/cpu.h"

/* Along K a tile is four cache lines of f32: less than that costs more in loads and
 * stores of C than any cache can give back. */
#define K_TILE 64

static int64_t div_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

static int64_t round_up(int64_t x, int64_t to)
{
    return div_up(x, to) * to;
}

/* ---- micro-kernels and schemes ---- */

static bool less_reuse(struct tune_mk a, struct tune_mk b)
{
    if (a.mr * a.np != b.mr * b.np)
        return a.mr * a.np < b.mr * b.np;
    return a.np > b.np;
}

int tune_mks(const struct kern_variant *v, int64_t m, struct tune_mk *out)
{
    int n = 0;

    for (int np = 1; np <= KERN_NP_MAX; np++) {
        int most = kern_gemm_rows(v, np);

        for (int mr = most; mr >= 1 && n < TUNE_MKS_MAX; mr--) {
            struct tune_mk mk = {mr, np};
            int i = n;

            if (mr < most && kern_a_blocks(m, mr) == kern_a_blocks(m, mr + 1))
                continue;
            for (; i > 0 && less_reuse(out[i - 1], mk); i--)
                out[i] = out[i - 1];
            out[i] = mk;
            n++;
        }
    }
    return n;
}

int tune_schemes(int n_threads, bool split_k, struct tune_scheme *out)
{
    int n = 0;

    for (int pk = 1; pk <= n_threads; pk++) {
        if (n_threads % pk || (pk > 1 && !split_k))
            continue;
        for (int pm = 1; pm <= n_threads / pk; pm++) {
            if (n_threads / pk % pm == 0 && n < TUNE_SCHEMES_MAX)
                out[n++] = (struct tune_scheme){pm, n_threads / pk / pm, pk};
        }
    }
    return n;
}

void tune_set_scheme(struct kern_schedule *s, struct tune_scheme x)
{
    s->pm = x.pm;
    s->pn = x.pn;
    s->pk = x.pk;
}

/* ---- extents ---- */

int64_t *tune_extent(struct kern_schedule *s, enum tune_dim d)
{
    return d == TUNE_M ? &s->bm : d == TUNE_N ? &s->bn : &s->bk;
}

int64_t tune_tile(const struct kern_schedule *s, const struct kern_mat *w,
                  enum tune_dim d)
{
    if (d == TUNE_M)
        return s->mr;
    return d == TUNE_N ? s->np : round_up(K_TILE, kern_mat_grain(w));
}

int64_t tune_part(const struct kern_schedule *s, const struct kern_mat *w, int64_t m,
                  enum tune_dim d)
{
    if (d == TUNE_M)
        return div_up(kern_a_blocks(m, s->mr), s->pm) * s->mr;
    if (d == TUNE_N)
        return round_up(div_up(w->n_panels, s->pn), s->np);
    return div_up(div_up(w->k_pad, kern_mat_grain(w)), s->pk) * kern_mat_grain(w);
}

void tune_clamp(struct kern_schedule *s, const struct kern_mat *w, int64_t m)
{
    for (int d = 0; d < TUNE_N_DIMS; d++) {
        int64_t grain = d == TUNE_K ? kern_mat_grain(w) : tune_tile(s, w, d);
        int64_t part = tune_part(s, w, m, d), *b = tune_extent(s, d);

        *b = *b < 1 ? 1 : *b;
        *b = *b >= part ? part : round_up(*b, grain);
    }
}

bool tune_same(const struct kern_schedule *a, const struct kern_schedule *b)
{
    return a->mr == b->mr && a->np == b->np && a->bm == b->bm && a->bn == b->bn &&
           a->bk == b->bk && a->pm == b->pm && a->pn == b->pn && a->pk == b->pk &&
           a->order == b->order;
}

/* ---- the limit of parallelizability ---- */

void tune_slice_limit(const int64_t dim[TUNE_N_DIMS], int n_threads,
                      int64_t limit[TUNE_N_DIMS])
{
    for (int d = 0; d < TUNE_N_DIMS; d++)
        limit[d] = dim[d] / n_threads > 1 ? dim[d] / n_threads : 1;
}

bool tune_slice_parallel(const int64_t dim[TUNE_N_DIMS], const int64_t b[TUNE_N_DIMS],
                         int n_threads, bool literal, bool split_k)
{
    int64_t limit[TUNE_N_DIMS], tiles;

    if (literal) {
        tune_slice_limit(dim, n_threads, limit);
        return b[TUNE_M] <= limit[TUNE_M] && b[TUNE_N] <= limit[TUNE_N] &&
               b[TUNE_K] <= limit[TUNE_K];
    }
    tiles = div_up(dim[TUNE_M], b[TUNE_M]) * div_up(dim[TUNE_N], b[TUNE_N]);
    if (split_k)
        tiles *= div_up(dim[TUNE_K], b[TUNE_K]);
    return tiles >= n_threads;
}

/* ---- chance ---- */

static void draw_mk(struct kern_schedule *s, const struct tune_shape *shape,
                    struct rng *r)
{
    struct tune_mk mks[TUNE_MKS_MAX];
    int n = tune_mks(shape->v, shape->m, mks);
    struct tune_mk mk = mks[rng_below(r, (uint64_t)n)];

    s->mr = mk.mr;
    s->np = mk.np;
}

/* Tiles of a slice: uniform in the logarithm, from one to the whole part. */
static void draw_extent(struct kern_schedule *s, const struct tune_shape *shape,
                        const struct kern_mat *w, enum tune_dim d, struct rng *r)
{
    int64_t tile = tune_tile(s, w, d);
    int64_t most = div_up(tune_part(s, w, shape->m, d), tile), cap = 1;
    int steps = 0;

    while (cap < most) {
        cap *= 2;
        steps++;
    }
    cap = INT64_C(1) << rng_below(r, (uint64_t)steps + 1);
    cap += (int64_t)rng_below(r, (uint64_t)cap); /* not only powers of two */
    *tune_extent(s, d) = (cap < most ? cap : most) * tile;
}

static void draw_scheme(struct kern_schedule *s, int n_threads, bool split_k,
                        struct rng *r)
{
    struct tune_scheme all[TUNE_SCHEMES_MAX];
    int n = tune_schemes(n_threads, split_k, all);

    tune_set_scheme(s, all[rng_below(r, (uint64_t)n)]);
}

void tune_random(struct kern_schedule *s, const struct tune_shape *shape,
                 const struct kern_mat *w, int n_threads, bool split_k, struct rng *r)
{
    memset(s, 0, sizeof(*s));
    draw_mk(s, shape, r);
    draw_scheme(s, n_threads, split_k, r);
    s->order = (enum kern_order)rng_below(r, KERN_N_ORDERS);
    for (int d = 0; d < TUNE_N_DIMS; d++)
        draw_extent(s, shape, w, (enum tune_dim)d, r);
    tune_clamp(s, w, shape->m);
}

void tune_mutate(struct kern_schedule *s, const struct tune_shape *shape,
                 const struct kern_mat *w, int n_threads, bool split_k, struct rng *r)
{
    uint64_t what = rng_below(r, 6);

    if (what < TUNE_N_DIMS)
        draw_extent(s, shape, w, (enum tune_dim)what, r);
    else if (what == 3)
        draw_mk(s, shape, r);
    else if (what == 4)
        draw_scheme(s, n_threads, split_k, r);
    else
        s->order = (enum kern_order)rng_below(r, KERN_N_ORDERS);
    tune_clamp(s, w, shape->m);
}

/* ---- numbers ---- */

void tune_caches(int n_threads, double bytes[3])
{
    bytes[0] = (double)cpu_cache_bytes(1);
    bytes[1] = (double)cpu_cache_bytes(2);
    bytes[2] = (double)cpu_cache_bytes(3) / n_threads;
    for (int i = 1; i < 3; i++) /* a share that is smaller than the level below */
        bytes[i] = bytes[i] > bytes[i - 1] ? bytes[i] : bytes[i - 1];
}

double tune_flop(const struct tune_shape *s)
{
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

double tune_a_elem(const struct kern_variant *v)
{
    return (double)kern_a_offset(v->a_format, 1, K_TILE) / K_TILE;
}
