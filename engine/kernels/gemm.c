#include "kernels/gemm.h"

#include <assert.h>
#include <string.h>

/* A computation slice (bM, bN, bK). The pair of panels a micro-kernel works on should
 * leave half the first-level cache to A and C; A's slice should take half the second
 * level. */
#define SLICE_B_BYTES  (32 * 1024)  /* bK rows of np_max panels */
#define SLICE_A_BYTES  (512 * 1024) /* bM rows of bK activations */
#define SLICE_N_PANELS 8 /* bN: C's slice stays in the second level over all of K */

/* Up to this many rows are bound by reading B, so B is read strictly in the order of
 * memory, panel by panel, whatever that costs in loads of A and C: a split matrix then
 * streams at 40 GB/s from one Zen 5 core, against 28 when tiles jump from unit to unit.
 */
#define STREAM_ROWS 4

struct walk {
    const struct kern_gemm_job *j;
    int64_t b_k;      /* rows of K in a slice; whole units where the matrix is split */
    int64_t n_blocks; /* row blocks of A in all */
    int64_t n_panels; /* of a slice */
    int np;           /* panels of a tile, at most */
    float *c;         /* where tiles go: the job's C, or scratch for KERN_SWIGLU */
    int64_t ldc, c_row0, c_panel0;
};

static size_t a_elem_bytes(const struct kern_variant *v)
{
    return v->a_format == KERN_A_BF16_PAIR ? 2 : 4;
}

static int64_t round_down(int64_t x, int64_t step)
{
    return x < step ? step : x / step * step;
}

/* Rows [k_lo, k_lo + k) of panels [p, p + np) times row block i. */
static void tile(const struct walk *w, int64_t i, int64_t p, int np, int64_t k_lo,
                 int64_t k, bool accumulate)
{
    const struct kern_gemm_job *j = w->j;
    const struct kern_mat *b = j->w;
    int64_t r0 = kern_a_row(j->m, w->n_blocks, i);
    int mr = (int)(kern_a_row(j->m, w->n_blocks, i + 1) - r0);
    size_t a_bytes = a_elem_bytes(j->v);
    bool split = b->n_units > 1;
    int64_t unit = split ? k_lo / b->k_unit : 0;
    int64_t row = k_lo - unit * b->k_unit;
    struct kern_gemm_tile t = {
        .a = (const char *)j->a_packed + (size_t)(r0 * b->k_pad + k_lo * mr) * a_bytes,
        .b = (const char *)kern_mat_at(b, unit, p) +
             (size_t)(row * KERN_PANEL) * kern_type_bytes(b->type),
        .b_panel_bytes = b->panel_bytes,
        .b_unit_bytes = b->unit_bytes,
        .k = k,
        .k_unit = split ? b->k_unit : k,
        .c = w->c + (r0 - w->c_row0) * w->ldc + (p - w->c_panel0) * KERN_PANEL,
        .ldc = w->ldc,
        .mr = mr,
        .np = np,
        .accumulate = accumulate,
    };

    j->v->fn.gemm(&t);
}

/* Row blocks [i_lo, i_hi) of panels [p_lo, p_hi), all of K, in slices of b_k rows. */
static void slice(const struct walk *w, int64_t i_lo, int64_t i_hi, int64_t p_lo,
                  int64_t p_hi)
{
    int64_t k_all = w->j->w->k_pad;

    for (int64_t k = 0; k < k_all; k += w->b_k) {
        int64_t rows = k_all - k < w->b_k ? k_all - k : w->b_k;
        bool accumulate = k > 0 || w->j->epilogue == KERN_RESIDUAL;

        for (int64_t p = p_lo; p < p_hi; p += w->np) {
            int np = (int)(p_hi - p < w->np ? p_hi - p : w->np);

            for (int64_t i = i_lo; i < i_hi; i++)
                tile(w, i, p, np, k, rows, accumulate);
        }
    }
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

/* Tiles in scratch are rows of (gate, up) panel pairs. */
static void swiglu(const struct walk *w, int64_t r_lo, int64_t r_hi, int64_t p_lo,
                   int64_t p_hi)
{
    const struct kern_gemm_job *j = w->j;

    for (int64_t r = r_lo; r < r_hi; r++) {
        for (int64_t p = p_lo; p < p_hi; p += 2) {
            const float *gate = w->c + (r - r_lo) * w->ldc + (p - p_lo) * KERN_PANEL;

            j->silu_mul->fn.silu_mul(j->c + r * j->ldc + p / 2 * KERN_PANEL, gate,
                                     gate + KERN_PANEL, KERN_PANEL);
        }
    }
}

/* One (bM, bN) slice with its epilogue. */
static void slice_and_epilogue(struct walk *w, int64_t i_lo, int64_t i_hi, int64_t p_lo,
                               int64_t p_hi)
{
    const struct kern_gemm_job *j = w->j;
    int64_t r_lo = kern_a_row(j->m, w->n_blocks, i_lo);
    int64_t r_hi = kern_a_row(j->m, w->n_blocks, i_hi);

    if (j->epilogue == KERN_SWIGLU) {
        w->c = j->scratch;
        w->ldc = (p_hi - p_lo) * KERN_PANEL;
        w->c_row0 = r_lo;
        w->c_panel0 = p_lo;
    }
    slice(w, i_lo, i_hi, p_lo, p_hi);
    if (j->epilogue == KERN_SWIGLU)
        swiglu(w, r_lo, r_hi, p_lo, p_hi);
    else if (j->bias)
        add_bias(j, r_lo, r_hi, p_lo, p_hi);
}

/* The slice of K and N: as long as the caches want, or as the matrix lies in memory. */
static void choose_slice(struct walk *w)
{
    const struct kern_mat *b = w->j->w;
    bool split = b->n_units > 1, stream = w->j->m <= STREAM_ROWS;
    size_t row_bytes = (size_t)w->j->v->np_max * KERN_PANEL * kern_type_bytes(b->type);

    w->np = stream ? 1 : w->j->v->np_max;
    w->n_panels = SLICE_N_PANELS;
    if (stream && split) {
        w->b_k = b->k_unit;
        if (w->j->epilogue != KERN_SWIGLU) /* whose scratch holds SLICE_N_PANELS */
            w->n_panels = w->j->p_hi - w->j->p_lo;
    } else if (w->n_blocks > 1) {
        w->b_k = round_down((int64_t)(SLICE_B_BYTES / row_bytes), split ? b->k_unit : 2);
    } else {
        w->b_k = b->k_pad; /* one block of rows reads B once: nothing to keep in cache */
    }
}

void kern_gemm_run(const struct kern_gemm_job *j)
{
    const struct kern_mat *b = j->w;
    struct walk w = {.j = j, .c = j->c, .ldc = j->ldc};
    int64_t bm_rows, bm_blocks;

    assert(j->m >= 1 && j->p_lo >= 0 && j->p_hi <= b->n_panels);
    assert(j->epilogue != KERN_SWIGLU || (j->p_lo % 2 == 0 && j->p_hi % 2 == 0));
    w.n_blocks = kern_a_blocks(j->m, j->v->mr_max);
    choose_slice(&w);
    bm_rows = (int64_t)(SLICE_A_BYTES / ((size_t)w.b_k * a_elem_bytes(j->v)));
    if (j->epilogue == KERN_SWIGLU) {
        int64_t room = KERN_GEMM_SCRATCH_BYTES / (SLICE_N_PANELS * KERN_PANEL * 4);

        bm_rows = bm_rows < room ? bm_rows : room;
    }
    bm_blocks = round_down(bm_rows / j->v->mr_max, 1);

    for (int64_t p = j->p_lo; p < j->p_hi; p += w.n_panels) {
        int64_t p_hi = p + w.n_panels < j->p_hi ? p + w.n_panels : j->p_hi;

        for (int64_t i = 0; i < w.n_blocks; i += bm_blocks) {
            int64_t i_hi = i + bm_blocks < w.n_blocks ? i + bm_blocks : w.n_blocks;

            slice_and_epilogue(&w, i, i_hi, p, p_hi);
        }
    }
}
