/* Computes one step over a batch, from token ids to logits. Read step_run() first.
 *
 * All threads of the phase run step_run() at the same time. Each rank has its own copy of
 * the residual stream and its own units of every layer. The copies are equal, because
 * every rank adds the same sum over all ranks to its copy. Within a rank, each thread
 * computes its own panels of every matrix and its own heads of attention. model_sync() is
 * the barrier between a write by one thread and a read by another. A batch of one block
 * of rows (decode) is packed by every thread for itself, so a layer on one rank needs
 * four barriers: after attention, after its output projection, after gate+up and after
 * down. */
#include <string.h>

#include "step/step.h"

/* ---- the operators, in the order of a step ---- */

static void embed_row(const struct model *m, int64_t id, float *x)
{
    int64_t dim = m->c.dim;
    const void *row = (const char *)m->embed + (size_t)id * m->embed_row_bytes;

    if (!m->embed)
        kern_mat_get_row(&m->head, id, x);
    else if (m->embed_type == KERN_F32)
        memcpy(x, row, (size_t)dim * sizeof(float));
    else if (m->embed_type == KERN_BF16)
        m->kern.v[KERN_FROM_BF16]->fn.from_bf16(x, row, dim);
    else if (m->embed_type == KERN_F16)
        m->kern.v[KERN_FROM_F16]->fn.from_f16(x, row, dim);
    else
        kern_quant_to_f32(kern_quant_of(m->embed_type), x, row, dim);
}

static void embed(struct model_thread_ctx *w)
{
    const struct model *m = w->m;
    const struct model_step *s = w->step;
    int64_t lo, hi, row = 0;

    par_share(s->n_tok, w->id, w->n, &lo, &hi);
    for (int c = 0; c < s->n_chunks; c++)
        for (int64_t i = 0; i < s->chunks[c].n_tok; i++, row++)
            if (row >= lo && row < hi)
                embed_row(m, s->chunks[c].ids[i], w->rank->x + row * m->ld_x);
    model_sync(w, MODEL_T_NORM_ROPE);
}

static void attention(struct model_thread_ctx *w, int layer)
{
    const struct model_layer *l = &w->m->layers[layer];
    const struct model_tp_shard *part = &w->rank->shard;
    const struct model_rows in = {.x = w->x,
                                  .ld = w->m->ld_x,
                                  .k = w->m->c.dim,
                                  .n = w->n_rows,
                                  .norm_w = l->attn_norm};
    const struct model_view *view = &w->rank->layers[layer];
    struct kern_gemm_job qkv = model_job(w, MODEL_MAT_QKV, &view->mats[MODEL_MAT_QKV]);
    bool whole = model_groups_whole(w->m, part, w->n), own_heads;

    qkv.a_packed = model_pack(w, &qkv, &in);
    qkv.c = w->rank->qkv;
    qkv.ldc = w->rank->ld_qkv;
    qkv.bias = l->qkv_bias ? l->qkv_bias + part->col_lo : NULL;
    model_linear(w, &qkv, whole ? w->m->qkv_unit / KERN_PANEL : 1);
    own_heads = whole && qkv.s.pn == w->n;
    if (!model_view_empty(&view->mats[MODEL_MAT_V])) {
        struct kern_gemm_job v = model_job(w, MODEL_MAT_V, &view->mats[MODEL_MAT_V]);

        if (v.v == qkv.v && v.s.mr == qkv.s.mr) {
            v.a_packed = qkv.a_packed;
        } else {
            if (kern_a_blocks(w->n_rows, qkv.s.mr) > 1) /* shared: all have read them */
                model_sync(w, MODEL_T_LINEAR);
            v.a_packed = model_pack(w, &v, &in);
        }
        v.c = w->rank->qkv + part->col_hi - part->col_lo;
        v.ldc = w->rank->ld_qkv;
        v.bias = l->v_bias ? l->v_bias + part->v_lo : NULL;
        model_linear(w, &v, whole ? w->m->v_unit / KERN_PANEL : 1);
        own_heads &= v.s.pn == w->n;
    }
    model_attend(w, layer, own_heads);
}

/* From here on the step computes only the rows whose logits are wanted. Copies their
 * residual stream to x_last. w->rows tells where these rows are in the output of
 * attention. */
static void keep_wanted(struct model_thread_ctx *w)
{
    const struct model *m = w->m;
    int64_t lo, hi;

    par_share(w->step->n_logits, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        memcpy(w->rank->x_last + r * m->ld_x, w->rank->x + m->rows[r] * m->ld_x,
               (size_t)m->ld_x * sizeof(float));
    w->x = w->rank->x_last;
    w->n_rows = w->step->n_logits;
    w->rows = m->rows;
}

static void attention_output(struct model_thread_ctx *w, int layer)
{
    const struct kern_mat *o = &w->rank->layers[layer].mats[MODEL_MAT_O];
    const struct model_rows in = {.x = w->rank->attn,
                                  .ld = w->rank->ld_attn,
                                  .k = o->k,
                                  .n = w->n_rows,
                                  .rows = w->rows};

    if (w->m->deterministic)
        model_linear_batch_invariant(w, MODEL_MAT_O, o, &in, &w->m->attn_boundaries,
                                     w->rank->shard.attn_lo);
    else
        model_linear_residual(w, MODEL_MAT_O, o, &in);
}

static void ffn_of(struct model_thread_ctx *w, int layer, const struct model_view *v)
{
    const struct model_rows in = {.x = w->x,
                                  .ld = w->m->ld_x,
                                  .k = w->m->c.dim,
                                  .n = w->n_rows,
                                  .norm_w = w->m->layers[layer].ffn_norm};
    const struct model_rows hidden = {.x = w->rank->h,
                                      .ld = w->rank->ld_h,
                                      .k = v->mats[MODEL_MAT_DOWN].k,
                                      .n = w->n_rows};

    if (!model_view_empty(&v->mats[MODEL_MAT_GATE_UP])) {
        struct kern_gemm_job gate_up =
            model_job(w, MODEL_MAT_GATE_UP, &v->mats[MODEL_MAT_GATE_UP]);

        gate_up.a_packed = model_pack(w, &gate_up, &in);
        gate_up.c = w->rank->h;
        gate_up.ldc = w->rank->ld_h;
        gate_up.epilogue = KERN_SWIGLU;
        model_linear(w, &gate_up, 2);
        model_sync(w, MODEL_T_LINEAR);
    }
    if (w->m->deterministic)
        model_linear_batch_invariant(w, MODEL_MAT_DOWN, &v->mats[MODEL_MAT_DOWN], &hidden,
                                     &w->m->ffn_boundaries, w->rank->shard.ffn_lo);
    else
        model_linear_residual(w, MODEL_MAT_DOWN, &v->mats[MODEL_MAT_DOWN], &hidden);
}

static void ffn(struct model_thread_ctx *w, int layer)
{
    if (w->phase->offload)
        model_offload_ffn(w, layer, ffn_of);
    else
        ffn_of(w, layer, &w->rank->layers[layer]);
}

/* Whole panels are stored directly in the caller's logits. A last panel of fewer than 16
 * columns is computed in scratch and copied. kern_gemm_reduce() can store only whole
 * panels, so this product is never split along K. */
static void head(struct model_thread_ctx *w)
{
    const struct model *m = w->m;
    const struct model_rows in = {
        .x = w->x, .ld = m->ld_x, .k = m->c.dim, .n = w->n_rows, .norm_w = m->out_norm};
    struct kern_gemm_job j = model_job(w, MODEL_MAT_HEAD, &m->head);
    struct model_thread_slot at = w->phase->thread_slots[w->self->id];
    bool tail = m->head_tail.n != KERN_PANEL;

    j.a_packed = model_pack(w, &j, &in);
    j.c = w->step->logits;
    j.ldc = m->c.vocab;
    j.scratch = w->own->gemm;
    kern_gemm_part(&j, 1, at.rank * w->n + at.id);
    tail = tail && j.p_hi == m->head.n_panels && j.p_hi > j.p_lo;
    j.p_hi -= tail;
    kern_gemm_run(&j);
    if (tail) {
        int64_t n_blocks = kern_a_blocks(j.m, j.s.mr);

        j.w = &m->head_tail;
        j.p_lo = 0, j.p_hi = 1;
        j.c = w->own->tail;
        j.ldc = KERN_PANEL;
        kern_gemm_run(&j);
        for (int64_t r = kern_a_row(j.m, n_blocks, j.i_lo);
             r < kern_a_row(j.m, n_blocks, j.i_hi); r++)
            memcpy(w->step->logits + (r + 1) * m->c.vocab - m->head_tail.n,
                   w->own->tail + r * KERN_PANEL, (size_t)m->head_tail.n * sizeof(float));
    }
    model_lap(w, MODEL_T_HEAD);
}

/* After the barrier behind attention. The sum over ranks in between keeps every rank from being
 * a layer ahead of another. */
static void count_stored(struct model_thread_ctx *w, int layer)
{
    struct model_phase *p = w->phase;

    if (p->stored && !p->multiprocess && w->id == 0 &&
        atomic_fetch_add(&p->n_stored, 1) + 1 == (layer + 1) * p->n_ranks)
        p->stored(p->stored_ctx, layer);
}

static void compute(struct model_thread_ctx *w)
{
    int n_layers = w->m->c.n_layers;

    embed(w);
    for (int layer = 0; layer < n_layers; layer++) {
        if (atomic_load_explicit(&w->rank->rc, memory_order_relaxed) != OK)
            return;
        w->last = layer == n_layers - 1;
        attention(w, layer);
        if (w->last) {
            if (w->step->n_logits == 0)
                return; /* the step only had to store keys and values */
            keep_wanted(w);
        }
        model_sync(w, MODEL_T_ATTN);
        count_stored(w, layer);
        attention_output(w, layer);
        w->rows = NULL;
        if (w->m->c.n_experts > 0)
            model_experts(w, layer);
        else
            ffn(w, layer);
    }
    head(w);
}

static void step_run(void *arg, struct par_self *self)
{
    struct model_step *s = arg;
    struct model_phase *p = s->phase;
    struct model_thread_slot at = p->thread_slots[self->id];
    struct model_thread_ctx w = {.step = s,
                                 .m = p->m,
                                 .phase = p,
                                 .self = self,
                                 .id = at.id,
                                 .n = p->n_threads,
                                 .n_rows = s->n_tok,
                                 .t_ns = self->id == 0 ? clock_ns() : 0};

    if (at.rank < 0)
        return;
    w.rank = &p->ranks[at.rank];
    w.x = w.rank->x;
    w.own = &p->m->scratch[p->multiprocess ? at.rank * p->n_threads + at.id : self->id];
    compute(&w);
    if (p->n_ranks > 1)
        model_rank_waited(&w.rank->endpoints[at.id], self->team, self->id);
}

int model_step_run(struct model *m, struct model_step *s)
{
    struct model_phase *p = s->phase;
    int rc = OK;

    for (int r = 0; r < p->n_ranks; r++)
        atomic_store_explicit(&p->ranks[r].rc, OK, memory_order_relaxed);
    atomic_store(&p->n_stored, 0);
    par_team_run(m->team, p->n_team, step_run, s);
    for (int r = 0; r < p->n_ranks && rc == OK; r++)
        rc = atomic_load_explicit(&p->ranks[r].rc, memory_order_relaxed);
    if (rc == OK && s->n_logits == 0 && p->stored && !p->multiprocess)
        p->stored(p->stored_ctx, m->c.n_layers - 1); /* it ended without a barrier */
    return rc == OK ? OK : err_set(rc, "a rank aborted: the step has no result");
}
