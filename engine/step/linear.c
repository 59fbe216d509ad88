/* Multiplies activations with packed matrices and sums the products over the ranks. */
#include <string.h>

#include "step/step.h"

void model_sync(struct model_thread_ctx *w, enum model_op_class before)
{
    model_lap(w, before);
    if (w->phase->n_ranks == 1 && !w->phase->multiprocess)
        par_barrier(w->self);
    else
        par_group_barrier(&w->rank->group, w->self);
    model_lap(w, MODEL_T_WAIT);
}

void model_sync_all(struct model_thread_ctx *w, enum model_op_class before)
{
    model_lap(w, before);
    if (!w->phase->multiprocess) {
        par_barrier(w->self);
    } else {
        par_group_barrier(&w->rank->group, w->self);
        /* Thread i waits for thread i of each other rank. Each of these has passed its
         * own rank's barrier, so all threads of all ranks have arrived. */
        if (w->phase->n_ranks > 1)
            model_fail(w, par_rank_barrier(&w->rank->endpoints[w->id]));
    }
    model_lap(w, MODEL_T_WAIT);
}

/* ---- packing activations into the format of a kernel ---- */

static const float *row_in(const struct model_rows *in, int64_t i)
{
    return in->x + (in->rows ? in->rows[i] : i) * in->ld;
}

void model_pack_block(struct model_thread_ctx *w, const struct kern_gemm_job *j,
                      void *dst, const struct model_rows *in, int64_t b, int64_t n_blocks)
{
    int64_t r0 = kern_a_row(in->n, n_blocks, b), r1 = kern_a_row(in->n, n_blocks, b + 1);
    const struct model *m = w->m;
    const float *x = row_in(in, r0);
    int64_t ld = in->ld;

    if (in->norm_w || in->rows || in->scale != 0) { /* packing reads consecutive rows */
        ld = model_pad16(in->k);
        for (int64_t r = r0; r < r1; r++) {
            float *out = w->own->stage + (r - r0) * ld;

            if (in->norm_w)
                model_norm(m, out, row_in(in, r), in->norm_w, in->norm_b, in->k);
            else
                memcpy(out, row_in(in, r), (size_t)in->k * sizeof(float));
            for (int64_t i = 0; in->scale != 0 && i < in->k; i++)
                out[i] *= in->scale;
        }
        x = w->own->stage;
    }
    dst = (char *)dst + kern_a_bytes(j->v->a_format, r0, j->w->k_pad);
    kern_a_pack(j->v, dst, x, ld, r1 - r0, in->k, j->w->k_pad);
}

/* A single block is packed by each thread for itself, which is cheaper than a barrier.
 * Several blocks are divided among the rank's threads, and a barrier follows. */
const void *model_pack(struct model_thread_ctx *w, const struct kern_gemm_job *j,
                       const struct model_rows *in)
{
    const struct kern_variant *v = j->v;
    int64_t n_blocks = kern_a_blocks(in->n, j->s.mr);
    int64_t lo, hi;

    /* The packed form of a single f32 row is the row itself, padded with zeros to ld. */
    if (in->n == 1 && v->a_format == KERN_A_F32 && !in->norm_w && in->scale == 0)
        return row_in(in, 0);
    if (n_blocks == 1) {
        model_pack_block(w, j, w->own->a, in, 0, 1);
        model_lap(w, MODEL_T_NORM_ROPE);
        return w->own->a;
    }
    par_share(n_blocks, w->id, w->n, &lo, &hi);
    for (int64_t b = lo; b < hi; b++)
        model_pack_block(w, j, w->rank->a_packed, in, b, n_blocks);
    model_sync(w, MODEL_T_NORM_ROPE);
    return w->rank->a_packed;
}

/* Where the schedule splits K, a barrier comes before the sum of the partial products. */
void model_linear(struct model_thread_ctx *w, struct kern_gemm_job *j, int64_t together)
{
    j->gate = w->m->kern.v[model_gate_op(&w->m->c)];
    j->scratch = w->own->gemm;
    j->partial = w->rank->partial;
    if (w->ahead.left > 0 && kern_schedule_computes(j->v, j->w, j->m, w->n))
        j->ahead = (struct kern_ahead){model_ahead_next, &w->ahead};
    kern_gemm_part(j, together, w->id);
    kern_gemm_run(j);
    if (j->s.pk > 1) {
        model_sync(w, MODEL_T_LINEAR);
        kern_gemm_reduce(j, w->id, w->n);
    }
    model_lap(w, MODEL_T_LINEAR);
}

/* The phase's schedules are for the types of the first layer. A matrix of another type
 * has other micro-kernels and gets the default schedule for them, and so does the part of an MLP
 * that an accelerator leaves. */
struct kern_gemm_job model_job_of(const struct model_thread_ctx *w, enum model_mat which,
                                  const struct kern_mat *mat, int64_t rows)
{
    struct kern_gemm_job j = {.v = model_gemm(w->m, mat, rows),
                              .w = mat,
                              .s = w->rank->schedules[which][rows - 1],
                              .m = rows};

    if (mat->type != model_mat(w->m, which)->type || w->phase->offload)
        kern_schedule_default(&j.s, j.v, mat, j.m, w->n);
    if (w->phase->offload) { /* no memory was taken for partial products of such parts */
        j.s.pn *= j.s.pk;
        j.s.pk = 1;
    }
    return j;
}

struct kern_gemm_job model_job(const struct model_thread_ctx *w, enum model_mat which,
                               const struct kern_mat *mat)
{
    return model_job_of(w, which, mat, w->n_rows);
}

/* ---- the sum over the ranks ---- */

/* Set [*lo, *hi) to the floats of the rank's y that this thread reduces. Any thread of
 * the rank may have written them. */
static void slice(const struct model_thread_ctx *w, size_t *lo, size_t *hi)
{
    int64_t lines = w->n_rows * w->m->ld_x / KERN_PANEL, a, b;

    par_share(lines, w->id, w->n, &a, &b);
    *lo = (size_t)a * KERN_PANEL;
    *hi = (size_t)b * KERN_PANEL;
}

/* Each thread adds its slice. The sum has the same bits on every rank. */
void model_add_ranks(struct model_thread_ctx *w)
{
    float *y = w->rank->y, *sum = model_sum_at(w);
    size_t at, hi;

    slice(w, &at, &hi);
    while (at < hi) {
        size_t n = hi - at < MODEL_MESSAGE_FLOATS ? hi - at : MODEL_MESSAGE_FLOATS;

        model_fail(w,
                   par_allreduce(&w->rank->endpoints[w->id], w->phase->coll, y + at, n));
        w->m->kern.v[KERN_ADD]->fn.add(sum + at, y + at, (int64_t)n);
        at += n;
    }
    model_sync(w, MODEL_T_REDUCE);
}

void model_linear_residual(struct model_thread_ctx *w, enum model_mat which,
                           const struct kern_mat *mat, const struct model_rows *in)
{
    bool alone = w->phase->n_ranks == 1;
    struct kern_gemm_job j = model_job(w, which, mat);

    j.c = alone ? model_sum_at(w) : w->rank->y;
    j.ldc = w->m->ld_x;
    j.epilogue = alone ? KERN_RESIDUAL : KERN_STORE;
    if (!model_view_empty(mat)) {
        j.a_packed = model_pack(w, &j, in);
        model_linear(w, &j, 1);
    } else {
        size_t lo, hi;

        slice(w, &lo, &hi);
        memset(j.c + lo, 0, (hi - lo) * sizeof(float));
    }
    model_sync(w, MODEL_T_LINEAR);
    if (!alone)
        model_add_ranks(w);
}

/* Once for all ranks' products: after their sum, each rank in its copy of the stream. */
void model_add_bias(struct model_thread_ctx *w, const float *bias)
{
    int64_t lo, hi;

    par_share(w->n_rows, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        w->m->kern.v[KERN_ADD]->fn.add(model_sum_at(w) + r * w->m->ld_x, bias,
                                       w->m->c.dim);
    model_sync(w, MODEL_T_REDUCE);
}

/* ---- sums apart from the residual stream ---- */

void model_branch(struct model_thread_ctx *w)
{
    size_t lo, hi;

    slice(w, &lo, &hi);
    memset(w->rank->branch + lo, 0, (hi - lo) * sizeof(float));
    w->apart = true;
    model_sync(w, MODEL_T_NORM_ROPE);
}

void model_branch_add(struct model_thread_ctx *w, const float *norm_w)
{
    const struct model *m = w->m;
    int64_t lo, hi;

    par_share(w->n_rows, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        float *sum = w->rank->branch + r * m->ld_x;

        if (norm_w)
            model_norm(m, sum, sum, norm_w, NULL, m->c.dim);
        m->kern.v[KERN_ADD]->fn.add(w->x + r * m->ld_x, sum, m->c.dim);
    }
    w->apart = false;
    model_sync(w, MODEL_T_NORM_ROPE);
}
