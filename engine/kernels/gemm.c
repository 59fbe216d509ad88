#include "kernels/gemm.h"

#include <assert.h>
#include <string.h>

#include "cpu/cpu.h"

/* The state of a thread's loop over the slices of its part. */
struct walk {
    const struct kern_gemm_job *j;
    enum kern_epilogue epilogue; /* the job's, or KERN_STORE into a partial product */
    int64_t n_blocks;            /* row blocks of A in all */
    int64_t bm, bn, bk;          /* size of a slice: row blocks, panels, rows of K */
    float *c;                    /* C, a partial product, or scratch: tiles go here */
    /* Floats from a row of c to the next, and the row and panel that c begins with. */
    int64_t ldc, c_row0, c_panel0;
    int64_t i_lo, i_hi;     /* row blocks of this slice */
    int64_t next_p, next_k; /* the next slice begins here; next_p = -1: no next slice */
    const char *next;       /* columns of B that are multiplied after this tile's */
};

/* A single row block of at most AHEAD_ROWS_F32 rows (half of that for bf16 weights) is
 * bound by reading B, so it prefetches each line as long before its use as the processor
 * wants it (cpu_prefetch()). Where there are several row blocks, the first AHEAD_BLOCKS
 * prefetch the columns of B that are multiplied next. Measured on Zen 4. */
#define AHEAD_ROWS_F32  6
#define AHEAD_BYTES_MIN 256
#define AHEAD_BLOCKS    4

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_down(int64_t x, int64_t step)
{
    return x < step ? step : x / step * step;
}

/* Set [*lo, *hi) to part `i` of `parts` of the range [0, n), cut at multiples of
 * `step`. */
static void share(int64_t n, int64_t step, int i, int parts, int64_t *lo, int64_t *hi)
{
    int64_t steps = (n + step - 1) / step;

    *lo = min64(steps * i / parts * step, n);
    *hi = min64(steps * (i + 1) / parts * step, n);
}

void kern_gemm_part(struct kern_gemm_job *j, int64_t together, int id)
{
    const struct kern_schedule *s = &j->s;
    const struct kern_mat *w = j->w;
    int along_n = id % s->pn, along_m = id / s->pn % s->pm, along_k = id / s->pn / s->pm;

    share(w->n_panels, together, along_n, s->pn, &j->p_lo, &j->p_hi);
    share(kern_a_blocks(j->m, s->mr), 1, along_m, s->pm, &j->i_lo, &j->i_hi);
    share(w->k_pad, kern_mat_grain(w), along_k, s->pk, &j->k_lo, &j->k_hi);
    j->along_k = along_k;
}

/* The address of row k of panel p of B. Where B is split, that is within row k's unit. */
static const char *b_at(const struct kern_mat *b, int64_t p, int64_t k)
{
    int64_t unit = b->n_units > 1 ? k / b->k_unit : 0;
    int64_t row = k - unit * b->k_unit;

    return (const char *)kern_mat_at(b, unit, p) + kern_panel_size(b->type, row);
}

/* Are columns of B converted for this many row blocks? Where the variant has a choice, slices that
 * scratch has no room for, as their weights cannot be divided along K, are not. */
static bool converts(const struct kern_gemm_job *j, int64_t n_blocks)
{
    return j->v->convert && n_blocks >= j->v->convert_blocks &&
           (j->v->convert_blocks == 0 ||
            KERN_CONVERTED_BYTES(kern_mat_grain(j->w), j->s.np) <=
                KERN_GEMM_CONVERTED_BYTES);
}

/* Set the members of `t` that describe B: np panels from `at` on, which all row blocks of
 * the slice are multiplied with. Converts them to scratch if t->converted. */
static void tile_columns(const struct walk *w, struct kern_gemm_tile *t, const char *at,
                         int np)
{
    const struct kern_gemm_job *j = w->j;

    t->b = at;
    t->np = np;
    if (t->converted) {
        char *converted = (char *)j->scratch + KERN_GEMM_SUMS_BYTES;
        float *factor = (float *)(converted + KERN_GEMM_CONVERTED_BYTES);

        t->k_unit = j->w->n_units > 1 ? j->w->k_unit : t->k;
        j->v->convert(t, converted, factor);
        t->b = converted;
        t->k_unit = t->k;
        t->col_factor = factor;
    }
}

/* Prefetch what the job reads next, at most as many bytes as one of the tile's panels has. */
static void prefetch_ahead(const struct kern_gemm_job *j, struct kern_gemm_tile *t)
{
    int64_t bytes = (int64_t)kern_panel_size(j->w->type, t->k), n = bytes;
    const void *next = NULL;

    if (j->ahead.next)
        next = j->ahead.next(j->ahead.ctx, &n);
    if (next) {
        t->next = next;
        t->next_step = (int)(64 * n / bytes);
    }
}

/* From a line of a panel that is multiplied to the one that is asked for: np panels share the
 * distance of one. */
static int far_bytes(int np)
{
    int most = cpu_prefetch()->far_bytes / np / 64 * 64;

    return most > AHEAD_BYTES_MIN ? most : AHEAD_BYTES_MIN;
}

/* Set what row block i prefetches: its share of the columns of B that are multiplied
 * next. A single block that is bound by reading B prefetches what it will read
 * itself. */
static void prefetch(const struct walk *w, struct kern_gemm_tile *t, int64_t i)
{
    enum kern_type type = w->j->w->type;
    int64_t parts = min64(w->i_hi - w->i_lo, AHEAD_BLOCKS), part = i - w->i_lo;

    t->next = t->b;
    t->next_step = 0;
    if (!w->j->v->prefetches_next)
        prefetch_ahead(w->j, t);
    if (!w->j->v->prefetches_next || part >= parts)
        return;
    t->next_step = 64;
    if (parts > 1) {
        size_t bytes = kern_panel_size(type, min64(t->k, t->k_unit));

        t->next = w->next + (size_t)part * (bytes / (size_t)parts);
        t->next_step = (int)(64 / parts);
    } else if (t->mr * 4 <= AHEAD_ROWS_F32 * kern_type_weight_bytes(type)) {
        t->next = (const char *)t->b + far_bytes(t->np);
    } else {
        t->next = w->next;
    }
}

/* Multiply row block i of A, K from k_lo to k_lo + t->k, with the columns of `t`, which
 * begin at panel p of the slice's, the last of which is before p_hi. */
static void tile(const struct walk *w, struct kern_gemm_tile *t, int64_t i, int64_t p,
                 int64_t p_hi, int64_t k_lo)
{
    const struct kern_gemm_job *j = w->j;
    int64_t r0 = kern_a_row(j->m, w->n_blocks, i), k_pad = j->w->k_pad;
    int rows = (int)(kern_a_row(j->m, w->n_blocks, i + 1) - r0);
    const char *a = (const char *)j->a_packed + kern_a_bytes(j->v->a_format, r0, k_pad);

    t->tiles_ready = t->tiles_kept && t->mr == rows;
    t->tiles_kept = i + 1 < w->i_hi || p + t->np < p_hi;
    t->mr = rows;
    t->a = a + kern_a_offset(j->v->a_format, t->mr, k_lo);
    if (j->v->a_format == KERN_A_F16_TWICE)
        t->row_factor = (const float *)(a + (size_t)(k_pad * t->mr) * sizeof(float));
    t->c = w->c + (r0 - w->c_row0) * w->ldc + (p - w->c_panel0) * KERN_PANEL;
    prefetch(w, t, i);
    j->v->fn.gemm(t);
}

static void add_bias(const struct kern_gemm_job *j, int64_t r_lo, int64_t r_hi,
                     int64_t p_lo, int64_t p_hi)
{
    for (int64_t r = r_lo; r < r_hi; r++) {
        float *c = j->c + r * j->ldc;

        for (int64_t n = p_lo * KERN_PANEL; n < p_hi * KERN_PANEL; n++)
            c[n] += j->bias[n];
    }
}

/* Compute row r of C from panels [p_lo, p_hi) of W. x has the row's sums: (gate, up)
 * pairs of panels from p_lo on. */
static void swiglu_row(const struct kern_gemm_job *j, float *x, int64_t r, int64_t p_lo,
                       int64_t p_hi)
{
    for (int64_t p = p_lo; p < p_hi; p += 2) {
        float *gate = x + (p - p_lo) * KERN_PANEL;

        for (int n = 0; j->bias && n < 2 * KERN_PANEL; n++)
            gate[n] += j->bias[p * KERN_PANEL + n];
        j->gate->fn.gate(j->c + r * j->ldc + p / 2 * KERN_PANEL, gate, gate + KERN_PANEL,
                         KERN_PANEL);
    }
}

/* Columns of panels [p_lo, p_hi) of C, which has the sums. */
static void activate(const struct kern_gemm_job *j, int64_t r_lo, int64_t r_hi,
                     int64_t p_lo, int64_t p_hi)
{
    static const float ones[KERN_PANEL] = {1, 1, 1, 1, 1, 1, 1, 1,
                                           1, 1, 1, 1, 1, 1, 1, 1};

    for (int64_t r = r_lo; r < r_hi; r++)
        for (int64_t p = p_lo; p < p_hi; p++) {
            float *c = j->c + r * j->ldc + p * KERN_PANEL;

            j->gate->fn.gate(c, c, ones, KERN_PANEL);
        }
}

static void epilogue(const struct walk *w, int64_t i_lo, int64_t i_hi, int64_t p_lo,
                     int64_t p_hi)
{
    const struct kern_gemm_job *j = w->j;
    int64_t r_lo = kern_a_row(j->m, w->n_blocks, i_lo);
    int64_t r_hi = kern_a_row(j->m, w->n_blocks, i_hi);

    if (w->epilogue == KERN_GATED)
        for (int64_t r = r_lo; r < r_hi; r++)
            swiglu_row(j, w->c + (r - r_lo) * w->ldc, r, p_lo, p_hi);
    else if (w->epilogue != KERN_RESIDUAL && w->c == j->c && j->bias)
        add_bias(j, r_lo, r_hi, p_lo, p_hi);
    if (w->epilogue == KERN_ACT)
        activate(j, r_lo, r_hi, p_lo, p_hi);
}

/* Compute one (bM, bN, bK) slice, which begins at row block i, panel p and row k of K.
 * The outer loop is over panels and the inner one over row blocks, so that a tile's
 * columns of B stay in the first-level cache. */
static void visit(struct walk *w, int64_t i, int64_t p, int64_t k)
{
    const struct kern_gemm_job *j = w->j;
    int64_t i_hi = min64(i + w->bm, j->i_hi), p_hi = min64(p + w->bn, j->p_hi);
    int64_t rows = min64(w->bk, j->k_hi - k);
    bool accumulate = k > j->k_lo || w->epilogue == KERN_RESIDUAL;
    size_t tile_bytes = (size_t)j->s.np * j->w->panel_bytes;
    const char *b = b_at(j->w, p, k);
    struct kern_gemm_tile t;

    w->i_lo = i, w->i_hi = i_hi;
    if (w->epilogue == KERN_GATED) {
        w->ldc = (p_hi - p) * KERN_PANEL;
        w->c_row0 = kern_a_row(j->m, w->n_blocks, i);
        w->c_panel0 = p;
    }
    /* Once, not for each tile: compilers clear it by REP STOS, which took a tenth of the time of
     * products of one row with quantised weights. */
    t = (struct kern_gemm_tile){.b_panel_bytes = j->w->panel_bytes,
                                .b_unit_bytes = j->w->unit_bytes,
                                .k = rows,
                                .k_unit = j->w->n_units > 1 ? j->w->k_unit : rows,
                                .ldc = w->ldc,
                                .accumulate = accumulate,
                                .sparse = cpu_prefetch()->sparse,
                                .converted = converts(j, i_hi - i)};
    for (int64_t at = p; at < p_hi; at += j->s.np, b += tile_bytes) {
        w->next = b + tile_bytes;
        if (at + j->s.np >= p_hi)
            w->next = w->next_p >= 0 ? b_at(j->w, w->next_p, w->next_k) : b;
        tile_columns(w, &t, b, (int)min64(j->s.np, p_hi - at));
        for (int64_t block = i; block < i_hi; block++)
            tile(w, &t, block, at, p_hi, k);
    }
    if (k + rows == j->k_hi)
        epilogue(w, i, i_hi, p, p_hi);
}

/* Set the size of a slice from the schedule: rows become row blocks, and every size
 * becomes a multiple of its step. For KERN_GATED the epilogue reads a slice's sums over
 * all of K from scratch, so the slice must fit there. */
static void cut(struct walk *w)
{
    const struct kern_gemm_job *j = w->j;
    const struct kern_mat *b = j->w;
    int64_t n_floats_max = KERN_GEMM_SUMS_BYTES / (KERN_PANEL * sizeof(float));
    int64_t k_step = kern_mat_grain(b);

    w->bm = round_down(j->s.bm, j->s.mr) / j->s.mr;
    w->bn = round_down(j->s.bn, j->s.np);
    w->bk = j->s.bk;
    if (converts(j, min64(w->bm, j->i_hi - j->i_lo)))
        w->bk = min64(w->bk, KERN_GEMM_CONVERTED_BYTES /
                                 (int64_t)KERN_CONVERTED_BYTES(1, j->s.np));
    w->bk = round_down(w->bk, k_step);
    if (w->epilogue == KERN_GATED) {
        w->bn = round_down(min64(w->bn, n_floats_max / j->s.mr), 2);
        w->bm = min64(w->bm, round_down(n_floats_max / w->bn, j->s.mr) / j->s.mr);
    }
}

/* Move `at` to the next slice, innermost loop (order[2]) first. After the last slice it
 * moves `at` to the first one and returns false. */
static bool advance(int64_t at[3], const int64_t lo[3], const int64_t hi[3],
                    const int64_t step[3], const int order[3])
{
    for (int i = 2; i >= 0; i--) {
        int d = order[i];

        at[d] += step[d];
        if (at[d] < hi[d])
            return true;
        at[d] = lo[d];
    }
    return false;
}

void kern_gemm_run(const struct kern_gemm_job *j)
{
    struct walk w = {.j = j, .epilogue = j->epilogue, .c = j->c, .ldc = j->ldc};
    /* Dimensions 0, 1, 2 are N, M, K. The schedule says which loop is outermost. */
    static const int order[KERN_N_ORDERS][3] = {[KERN_ORDER_NMK] = {0, 1, 2},
                                                [KERN_ORDER_MNK] = {1, 0, 2},
                                                [KERN_ORDER_KNM] = {2, 0, 1}};
    enum kern_order ord = j->s.order;
    int64_t lo[3] = {j->p_lo, j->i_lo, j->k_lo}, hi[3] = {j->p_hi, j->i_hi, j->k_hi};
    int64_t at[3] = {lo[0], lo[1], lo[2]}, next[3] = {lo[0], lo[1], lo[2]}, step[3];

    assert(j->m >= 1 && j->p_lo >= 0 && j->p_hi <= j->w->n_panels);
    assert(j->epilogue != KERN_GATED || (j->p_lo % 2 == 0 && j->p_hi % 2 == 0));
    if (j->p_lo >= j->p_hi || j->i_lo >= j->i_hi || j->k_lo >= j->k_hi)
        return;
    w.n_blocks = kern_a_blocks(j->m, j->s.mr);
    if (j->s.pk > 1) {
        w.epilogue = KERN_STORE;
        w.ldc = j->w->n_panels * KERN_PANEL;
        w.c = j->partial + j->along_k * j->m * w.ldc;
    } else if (j->epilogue == KERN_GATED) {
        w.c = j->scratch;
        ord = ord == KERN_ORDER_KNM ? KERN_ORDER_NMK : ord;
    }
    cut(&w);
    step[0] = w.bn, step[1] = w.bm, step[2] = w.bk;
    for (bool more = true; more;) {
        more = advance(next, lo, hi, step, order[ord]);
        w.next_p = more ? next[0] : -1, w.next_k = next[2];
        visit(&w, at[1], at[0], at[2]);
        memcpy(at, next, sizeof(at));
    }
}

size_t kern_gemm_partial_bytes(const struct kern_gemm_job *j)
{
    size_t one = (size_t)(j->m * j->w->n_panels * KERN_PANEL) * sizeof(float);

    return j->s.pk > 1 ? (size_t)j->s.pk * one : 0;
}

void kern_gemm_reduce(const struct kern_gemm_job *j, int id, int n_threads)
{
    int64_t ld = j->w->n_panels * KERN_PANEL, lo, hi;
    int64_t together = j->epilogue == KERN_GATED ? 2 : 1;

    if (j->s.pk <= 1)
        return;
    share(j->w->n_panels, together, id, n_threads, &lo, &hi);
    for (int64_t r = 0; r < j->m; r++) {
        float *sum = j->partial + r * ld; /* the first partial product becomes the sum */

        for (int part = 1; part < j->s.pk; part++) {
            const float *x = sum + part * j->m * ld;

            for (int64_t n = lo * KERN_PANEL; n < hi * KERN_PANEL; n++)
                sum[n] += x[n];
        }
        if (j->epilogue == KERN_GATED) {
            swiglu_row(j, sum + lo * KERN_PANEL, r, lo, hi);
            continue;
        }
        for (int64_t n = lo * KERN_PANEL; n < hi * KERN_PANEL; n++) {
            float *c = j->c + r * j->ldc + n;

            *c = (j->epilogue == KERN_RESIDUAL ? *c : 0) + sum[n];
        }
    }
    if (j->epilogue != KERN_RESIDUAL && j->epilogue != KERN_GATED && j->bias)
        add_bias(j, 0, j->m, lo, hi);
    if (j->epilogue == KERN_ACT)
        activate(j, 0, j->m, lo, hi);
}
