/* Sums over ranks whose bits do not depend on how many there are.
 *
 * K is split at the boundaries of every allowed degree. Each rank computes the products of its own
 * parts in memory that all ranks see. Then each rank adds all parts in the order of K. This
 * is done for a slab of columns at a time, so that the parts stay in a cache. Two halves of
 * the memory alternate, so that one barrier of all threads per slab is enough: before a half
 * is written again, all threads have passed a barrier after reading it.   Promise: P7. */
#include <string.h>

#include "step/step.h"

/* Columns of a sum: panels [p_lo, p_hi) of it, whose parts lie at `half`. */
struct slab {
    float *half;
    int n_parts;
    int64_t n_rows, p_lo, p_hi;
};

static float *part_at(const struct slab *s, int part)
{
    return s->half + part * s->n_rows * (s->p_hi - s->p_lo) * KERN_PANEL;
}

/* The sum += parts, in their order; this thread's rows of the slab or, of few rows, columns. */
static void add_parts(struct model_thread_ctx *w, const struct slab *s)
{
    kern_add_fn add = w->m->kern.v[KERN_ADD]->fn.add;
    int64_t cols = (s->p_hi - s->p_lo) * KERN_PANEL, r_lo = 0, r_hi = s->n_rows;
    int64_t c_lo = 0, c_hi = cols;

    if (s->n_rows >= w->n)
        par_share(s->n_rows, w->id, w->n, &r_lo, &r_hi);
    else
        par_share(cols, w->id, w->n, &c_lo, &c_hi);
    for (int64_t r = r_lo; r < r_hi && c_lo < c_hi; r++) {
        float *sum = w->own->stage;

        memcpy(sum, part_at(s, 0) + r * cols + c_lo,
               (size_t)(c_hi - c_lo) * sizeof(*sum));
        for (int i = 1; i < s->n_parts; i++)
            add(sum, part_at(s, i) + r * cols + c_lo, c_hi - c_lo);
        add(model_sum_at(w) + r * w->m->ld_x + s->p_lo * KERN_PANEL + c_lo, sum,
            c_hi - c_lo);
    }
}

void model_sum_parts(struct model_thread_ctx *w, int n_parts, model_part_fn fn, void *ctx)
{
    struct slab s = {.n_parts = n_parts, .n_rows = w->n_rows};
    int64_t n_panels = w->m->ld_x / KERN_PANEL;
    int64_t most = (int64_t)w->phase->sums_floats / (n_parts * w->n_rows * KERN_PANEL);

    for (s.p_lo = 0; s.p_lo < n_panels; s.p_lo = s.p_hi) {
        s.p_hi = n_panels - s.p_lo < most ? n_panels : s.p_lo + most;
        s.half = w->phase->sums + (w->n_halves++ & 1) * w->phase->sums_floats;
        for (int i = 0; i < n_parts; i++)
            fn(w, ctx, i, s.p_lo, s.p_hi, part_at(&s, i));
        model_sync_all(w, MODEL_T_LINEAR);
        add_parts(w, &s);
        model_lap(w, MODEL_T_REDUCE);
    }
    model_sync(w, MODEL_T_REDUCE);
}

/* A product whose rows of K are divided into parts; the rank's begin at row `lo`. */
struct cut_product {
    struct kern_gemm_job job;
    const struct model_reduction_boundaries *boundaries;
    int64_t lo, hi;
};

static void product_part(struct model_thread_ctx *w, void *ctx, int i, int64_t p_lo,
                         int64_t p_hi, float *out)
{
    const struct cut_product *c = ctx;
    struct kern_gemm_job j = c->job;
    const int64_t *at = &c->boundaries->at[i];
    int64_t lo, hi;

    if (at[0] < c->lo || at[1] > c->hi)
        return;
    j.scratch = w->own->gemm;
    kern_gemm_part(&j, 1, w->id);
    par_share(p_hi - p_lo, w->id % j.s.pn, j.s.pn, &lo, &hi);
    j.p_lo = p_lo + lo;
    j.p_hi = p_lo + hi;
    j.k_lo = at[0] - c->lo;
    j.k_hi = at[1] - c->lo < j.w->k ? at[1] - c->lo : j.w->k_pad;
    j.ldc = (p_hi - p_lo) * KERN_PANEL;
    j.c = out - p_lo * KERN_PANEL;
    kern_gemm_run(&j);
}

void model_linear_batch_invariant(struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, const struct model_rows *in,
                                  const struct model_reduction_boundaries *boundaries,
                                  int64_t lo)
{
    struct cut_product c = {.boundaries = boundaries, .lo = lo, .hi = lo + mat->k};

    if (!model_view_empty(mat)) {
        c.job = model_job(w, which, mat);
        c.job.a_packed = model_pack(w, &c.job, in);
    }
    model_sum_parts(w, boundaries->n, product_part, &c);
}
