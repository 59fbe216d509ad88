/* MikPoly's two stages (ASPLOS'24, as Sandwich 2.2 and 3.2 describe it), over our
 * micro-kernels. Offline a fixed set of macro tiles is timed alone on one thread at a few
 * depths, which gives each a piecewise linear cost of K. Online the shape is covered with
 * tiles of one kind, rounds of threads times cost are added up for every tile and scheme,
 * and the cheapest is taken: nothing is measured for a shape.
 *
 * MikPoly covers a shape by two or three regions of different tiles. Our driver takes one
 * region and a remainder of shorter blocks, so the model charges one region and, for a
 * last tile that is not full, the blocks it has. */
#include <math.h>

#include "base/mem.h"
#include "tune/search.h"

#define N_DEPTHS  3
#define TILES_MAX 64
#define MKS_MAX   10  /* micro-kernels the tiles are made of, most sums first */
#define K_SLICE   256 /* rows of K that a tile takes at once */

struct macro_tile {
    struct kern_schedule s; /* bm, bn: the tile */
    double seconds[N_DEPTHS];
};

struct state {
    struct macro_tile tiles[TILES_MAX];
    int n_tiles;
    double depth[N_DEPTHS];
};

/* Seconds of one tile over k rows: through the points, and on along the last piece. */
static double cost(const struct state *st, const struct macro_tile *x, double k)
{
    int i = k <= st->depth[1] ? 0 : 1;
    double slope =
        (x->seconds[i + 1] - x->seconds[i]) / (st->depth[i + 1] - st->depth[i]);
    double t = x->seconds[i] + slope * (k - st->depth[i]);

    return t > 0 ? t : 0;
}

static void choose_tiles(struct state *st, const struct tune_shape *largest,
                         const struct kern_mat *w)
{
    static const int blocks[] = {1, 4}, columns[] = {1, 4};
    struct tune_mk mks[TUNE_MKS_MAX];
    int n = tune_mks(largest->v, largest->m, mks);

    for (int i = 0; i < n && i < MKS_MAX; i++) {
        for (int x = 0; x < 4; x++) {
            struct kern_schedule s = {
                .mr = mks[i].mr, .np = mks[i].np, .pm = 1, .pn = 1, .pk = 1};

            s.bm = s.mr * blocks[x / 2];
            s.bn = s.np * columns[x % 2];
            s.bk = (K_SLICE + w->k_unit - 1) / w->k_unit * w->k_unit;
            s.bk = w->n_units > 1 ? s.bk : K_SLICE;
            if (s.bm < 2 * largest->m)
                st->tiles[st->n_tiles++].s = s;
        }
    }
    /* short shapes: low and wide */
    for (int np = 1; np <= KERN_NP_MAX && st->n_tiles < TILES_MAX; np++) {
        struct kern_schedule s = {.mr = (kern_gemm_rows(largest->v, np) + 3) / 4,
                                  .np = np,
                                  .bn = np,
                                  .bk = KERN_ALL,
                                  .pm = 1,
                                  .pn = 1,
                                  .pk = 1};

        s.bm = s.mr;
        if (s.mr > 0)
            st->tiles[st->n_tiles++].s = s;
    }
}

/* Offline: one measurement for each tile and depth, the tile being the whole shape. */
static int profile(void *arg, struct tune_search *q)
{
    const struct tune_shape *largest = &q->c->shapes[q->c->n_shapes - 1];
    struct state *st = arg;
    struct kern_mat w;
    int rc = OK;

    kern_mat_layout(&w, (enum kern_type)(largest->v->op - KERN_GEMM_F32), largest->n,
                    largest->k, largest->k_unit);
    choose_tiles(st, largest, &w);
    for (int d = 0; d < N_DEPTHS; d++)
        st->depth[d] = (double)(largest->k >> (N_DEPTHS - 1 - d));
    for (int i = 0; i < st->n_tiles * N_DEPTHS && rc == OK; i++) {
        struct macro_tile *x = &st->tiles[i / N_DEPTHS];
        struct tune_shape tile = *largest;
        struct kern_schedule s = x->s;

        tile.m = s.bm;
        tile.n = s.bn * KERN_PANEL;
        tile.k = (int64_t)st->depth[i % N_DEPTHS];
        rc = tune_search_shape(q, &tile);
        if (rc == OK)
            rc = tune_search_try(q, &s, 1, &x->seconds[i % N_DEPTHS]);
    }
    return rc;
}

static double predict(const struct state *st, const struct macro_tile *x,
                      const struct tune_search *q, const struct kern_schedule *s)
{
    double blocks = ceil((double)kern_a_blocks(q->shape.m, s->mr) / s->pm);
    double tile_blocks = (double)(x->s.bm / x->s.mr);
    double panels = ceil((double)q->w->n_panels / s->pn);
    double rounds_n = ceil(panels / (double)x->s.bn);

    return blocks / tile_blocks * rounds_n * cost(st, x, (double)q->w->k_pad / s->pk);
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    const struct state *st = arg;
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    int n_schemes = tune_schemes(q->c->n_threads, q->c->o->split_k, schemes);
    double best = INFINITY;

    (void)i, (void)t;
    for (int x = 0; x < st->n_tiles * n_schemes; x++) {
        const struct macro_tile *tile = &st->tiles[x / n_schemes];
        struct kern_schedule cand = tile->s;
        double seconds;

        tune_set_scheme(&cand, schemes[x % n_schemes]);
        if (kern_schedule_check(&cand, q->shape.v, q->w, q->shape.m, q->c->n_threads) !=
            OK) {
            err_clear();
            continue;
        }
        seconds = predict(st, tile, q, &cand);
        if (seconds < best) {
            best = seconds;
            *s = cand;
        }
    }
    tune_clamp(s, q->w, q->shape.m);
    return OK;
}

static const struct tune_steps steps = {.one = one, .before = profile};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    struct state *st;
    int rc;

    st = mem_new(MEM_OTHER, 1, sizeof(*st));
    if (!st)
        return ERR_NOMEM;
    rc = tune_search_run(c, out, &steps, st);
    mem_free(st);
    return rc;
}

const struct tune_policy tune_policy_mikpoly = {
    .name = "mikpoly",
    .help = "macro tiles timed once offline, shapes covered by their cost model",
    .run = run,
};
