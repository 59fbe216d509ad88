/* Sums over ranks whose bits do not depend on how many there are.
 *
 * K is split at the boundaries of every allowed degree. Each rank computes the products of its own
 * parts in memory that all ranks see. Then each rank adds all parts in the order of K. This
 * is done for a slab of columns at a time, so that the parts stay in a cache. Two halves of
 * the memory alternate, so that one barrier of all threads per slab is enough: before a half
 * is written again, all threads have passed a barrier after reading it.   Promise: P7. */
#include <string.h>

#include "step/step.h"

/* A product by slabs: panels [p_lo, p_hi) of it, whose parts lie at `half`. */
struct slab {
    const struct kern_gemm_job *job;
    const struct model_reduction_boundaries *boundaries;
    float *half;
    int64_t p_lo, p_hi;
};

static float *part_at(const struct slab *s, int part)
{
    return s->half + part * s->job->m * (s->p_hi - s->p_lo) * KERN_PANEL;
}

/* Rows [k_lo, k_hi) of the rank's matrix are part `part`: this thread's panels of it. */
static void compute_part(const struct model_thread_ctx *w, const struct slab *s, int part,
                         int64_t k_lo, int64_t k_hi)
{
    struct kern_gemm_job j = *s->job;
    int64_t lo, hi;

    j.scratch = w->own->gemm;
    kern_gemm_part(&j, 1, w->id);
    par_share(s->p_hi - s->p_lo, w->id % j.s.pn, j.s.pn, &lo, &hi);
    j.p_lo = s->p_lo + lo;
    j.p_hi = s->p_lo + hi;
    j.k_lo = k_lo;
    j.k_hi = k_hi < j.w->k ? k_hi : j.w->k_pad;
    j.ldc = (s->p_hi - s->p_lo) * KERN_PANEL;
    j.c = part_at(s, part) - s->p_lo * KERN_PANEL;
    kern_gemm_run(&j);
}

/* x += parts, in their order; this thread's rows of the slab or, of few rows, columns. */
static void add_parts(struct model_thread_ctx *w, const struct slab *s)
{
    kern_add_fn add = w->m->kern.v[KERN_ADD]->fn.add;
    int64_t cols = (s->p_hi - s->p_lo) * KERN_PANEL, r_lo = 0, r_hi = s->job->m;
    int64_t c_lo = 0, c_hi = cols;

    if (s->job->m >= w->n)
        par_share(s->job->m, w->id, w->n, &r_lo, &r_hi);
    else
        par_share(cols, w->id, w->n, &c_lo, &c_hi);
    for (int64_t r = r_lo; r < r_hi && c_lo < c_hi; r++) {
        float *sum = w->own->stage;

        memcpy(sum, part_at(s, 0) + r * cols + c_lo,
               (size_t)(c_hi - c_lo) * sizeof(*sum));
        for (int i = 1; i < s->boundaries->n; i++)
            add(sum, part_at(s, i) + r * cols + c_lo, c_hi - c_lo);
        add(w->x + r * w->m->ld_x + s->p_lo * KERN_PANEL + c_lo, sum, c_hi - c_lo);
    }
}

void model_linear_batch_invariant(struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, const struct model_rows *in,
                                  const struct model_reduction_boundaries *boundaries,
                                  int64_t lo)
{
    struct kern_gemm_job j = {.m = w->n_rows};
    struct slab s = {.job = &j, .boundaries = boundaries};
    int64_t n_panels = w->m->ld_x / KERN_PANEL, hi = lo + mat->k;
    int64_t most =
        (int64_t)w->phase->sums_floats / (boundaries->n * w->n_rows * KERN_PANEL);

    if (!model_view_empty(mat)) {
        j = model_job(w, which, mat);
        j.a_packed = model_pack(w, &j, in);
    }
    for (s.p_lo = 0; s.p_lo < n_panels; s.p_lo = s.p_hi) {
        s.p_hi = n_panels - s.p_lo < most ? n_panels : s.p_lo + most;
        s.half = w->phase->sums + (w->n_halves++ & 1) * w->phase->sums_floats;
        for (int i = 0; i < boundaries->n; i++)
            if (boundaries->at[i] >= lo && boundaries->at[i + 1] <= hi)
                compute_part(w, &s, i, boundaries->at[i] - lo,
                             boundaries->at[i + 1] - lo);
        model_sync_all(w, MODEL_T_LINEAR);
        add_parts(w, &s);
        model_lap(w, MODEL_T_REDUCE);
    }
    model_sync(w, MODEL_T_REDUCE);
}
