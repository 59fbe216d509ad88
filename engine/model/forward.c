/* One step over a batch, from token ids to logits. Read step_run() first.
 *
 * All threads run it side by side; each computes its own panels of every matrix and its
 * own heads of attention, and sync() separates what one writes from what another reads.
 * With one block of rows (decode) every thread packs the activations for itself, so a
 * layer needs four barriers: after attention, after its output projection, after gate+up,
 * after down. */
#include <string.h>

#include "base/clock.h"
#include "kernels/gemm.h"
#include "model/impl.h"

struct step {
    struct model *m;
    const struct model_chunk *chunks;
    int n_chunks;
    int64_t n_tok, n_logits;
    float *logits;
    /* For all rows, and for those that want logits. */
    struct kern_schedule all[MODEL_N_MATS], wanted[MODEL_N_MATS];
};

/* One thread's view of the running step. */
struct lane {
    const struct step *step;
    struct model *m;
    struct par_self *self;
    struct model_scratch *own;
    float *x;            /* the residual stream: m->x, at the end m->x_last */
    int64_t n_rows;      /* of x */
    const int64_t *rows; /* rows to read instead of 0 .. n_rows; NULL: those */
    bool last;           /* the last layer: only rows that want logits go on */
    bool wanted;         /* from here on only those rows are there */
    uint64_t t_ns;       /* when thread 0's present operation began */
};

/* The time since the last lap was spent on `what`. */
static void lap(struct lane *w, enum model_op_class what)
{
    uint64_t now;

    if (w->self->id != 0)
        return;
    now = clock_ns();
    w->m->times_ns[what] += now - w->t_ns;
    w->t_ns = now;
}

static void sync(struct lane *w, enum model_op_class before)
{
    lap(w, before);
    par_barrier(w->self);
    lap(w, MODEL_T_WAIT);
}

/* ---- activations in the order a kernel wants them ---- */

/* Rows of a matrix of activations, normalised on the way when norm_w is given. */
struct rows_in {
    const float *x;
    int64_t ld, k, n;
    const int64_t *rows; /* NULL: 0 .. n */
    const float *norm_w;
};

static const float *row_in(const struct rows_in *in, int64_t i)
{
    return in->x + (in->rows ? in->rows[i] : i) * in->ld;
}

static void pack_block(struct lane *w, const struct kern_gemm_job *j, void *dst,
                       const struct rows_in *in, int64_t r0, int64_t r1)
{
    const struct model *m = w->m;
    const float *x = row_in(in, r0);
    int64_t ld = in->ld;

    if (in->norm_w || in->rows) { /* packing reads consecutive rows */
        ld = m->ld_stage;
        for (int64_t r = r0; r < r1; r++) {
            float *out = w->own->stage + (r - r0) * ld;

            if (in->norm_w)
                m->kern.v[KERN_RMSNORM]->fn.rmsnorm(out, row_in(in, r), in->norm_w, in->k,
                                                    m->c.norm_eps);
            else
                memcpy(out, row_in(in, r), (size_t)in->k * sizeof(float));
        }
        x = w->own->stage;
    }
    kern_a_pack(j->v, dst, x, ld, r1 - r0, in->k, j->w->k_pad);
}

/* The activations packed for `mat`'s kernel. One block: each thread makes its own copy,
 * which is cheaper than waiting for another's. More: the threads share them out, and
 * wait. */
static const void *pack_rows(struct lane *w, const struct kern_gemm_job *j,
                             const struct rows_in *in)
{
    const struct kern_variant *v = j->v;
    const struct kern_mat *mat = j->w;
    int64_t n_blocks = kern_a_blocks(in->n, j->s.mr);
    int64_t lo, hi;

    /* A single f32 row is its own packing; rows are padded with zeros to ld. */
    if (in->n == 1 && v->a_format == KERN_A_F32 && !in->norm_w)
        return row_in(in, 0);
    if (n_blocks == 1) {
        pack_block(w, j, w->own->a, in, 0, in->n);
        lap(w, MODEL_T_NORM_ROPE);
        return w->own->a;
    }
    par_share(n_blocks, w->self->id, w->self->n, &lo, &hi);
    for (int64_t b = lo; b < hi; b++) {
        int64_t r0 = kern_a_row(in->n, n_blocks, b);

        pack_block(w, j,
                   (char *)w->m->a_packed + kern_a_bytes(v->a_format, r0, mat->k_pad), in,
                   r0, kern_a_row(in->n, n_blocks, b + 1));
    }
    sync(w, MODEL_T_NORM_ROPE);
    return w->m->a_packed;
}

/* This thread's part of c = a * mat; panels are dealt out in groups of `together`. */
static void linear(struct lane *w, struct kern_gemm_job *j, int64_t together)
{
    j->silu_mul = w->m->kern.v[KERN_SILU_MUL];
    j->scratch = w->own->gemm;
    j->partial = w->m->partial;
    kern_gemm_part(j, together, w->self->id);
    kern_gemm_run(j);
    if (j->s.pk > 1) {
        sync(w, MODEL_T_LINEAR);
        kern_gemm_reduce(j, w->self->id, w->self->n);
    }
    lap(w, MODEL_T_LINEAR);
}

/* A product of the step's rows with `mat`, but for the activations. Schedules are for the
 * first layer's type; a layer of another has micro-kernels of its own. */
static struct kern_gemm_job job_of(const struct lane *w, enum model_mat which,
                                   const struct kern_mat *mat)
{
    const struct step *s = w->step;
    struct kern_gemm_job j = {.v = model_gemm(w->m, mat, w->n_rows),
                              .w = mat,
                              .s = (w->wanted ? s->wanted : s->all)[which],
                              .m = w->n_rows};

    if (mat->type != model_mat(w->m, which)->type)
        kern_schedule_default(&j.s, j.v, mat, j.m, w->self->n);
    return j;
}

/* ---- attention ---- */

/* Consecutive tokens of one chunk for one KV group: what attention computes at a time. */
struct block {
    const struct model_chunk *chunk;
    int64_t row0; /* of the chunk in the step */
    int64_t i, n; /* tokens [i, i + n) of the chunk */
    int layer, kv_head;
};

static float *qkv_at(const struct model *m, const struct block *b, int64_t i)
{
    return m->qkv + (b->row0 + i) * m->ld_qkv + b->kv_head * m->qkv_unit;
}

/* Rotate the group's queries and its key, and keep key and value. */
static void rotate_and_store(struct lane *w, const struct block *b)
{
    const struct model *m = w->m;
    int hd = m->c.head_dim, half = hd / 2, elem = (int)kern_type_bytes(m->kv_type);
    char *k = kv_at(b->chunk->kv, b->layer, b->kv_head, 0);
    char *v = kv_at(b->chunk->kv, b->layer, b->kv_head, 1);

    for (int64_t i = b->i; i < b->i + b->n; i++) {
        int64_t pos = b->chunk->pos0 + i;
        float *q = qkv_at(m, b, i), *key = q + m->group * hd, *value = key + hd;

        m->kern.v[KERN_ROPE]->fn.rope(q, m->rope_cos + pos * half,
                                      m->rope_sin + pos * half, m->group + 1, hd);
        if (m->kv_type == KERN_BF16) {
            kern_to_bf16_fn to_bf16 = m->kern.v[KERN_TO_BF16]->fn.to_bf16;

            to_bf16((uint16_t *)(k + pos * hd * elem), key, hd);
            to_bf16((uint16_t *)(v + pos * hd * elem), value, hd);
        } else {
            memcpy(k + pos * hd * elem, key, (size_t)hd * sizeof(float));
            memcpy(v + pos * hd * elem, value, (size_t)hd * sizeof(float));
        }
    }
}

static void attend(struct lane *w, const struct block *b)
{
    const struct model *m = w->m;
    enum kern_op op = m->kv_type == KERN_BF16 ? KERN_ATTN_BF16 : KERN_ATTN_F32;
    int64_t pos0 = b->chunk->pos0 + b->i;
    const struct kern_attn_args args = {
        .q = qkv_at(m, b, b->i),
        .q_stride = m->ld_qkv,
        .k = kv_at(b->chunk->kv, b->layer, b->kv_head, 0),
        .v = kv_at(b->chunk->kv, b->layer, b->kv_head, 1),
        .out = m->attn + (b->row0 + b->i) * m->ld_attn +
               (int64_t)b->kv_head * m->group * m->c.head_dim,
        .out_stride = m->ld_attn,
        .scratch = w->own->attn,
        .kv_hi = pos0 + b->n,
        .pos0 = pos0,
        .n_tok = (int)b->n,
        .g = m->group,
        .head_dim = m->c.head_dim,
        .scale = m->attn_scale,
    };

    m->kern.v[op]->fn.attn(&args);
}

/* Call fn for this thread's blocks. Where the KV groups divide evenly a thread has the
 * groups whose projections it computed; otherwise blocks are dealt out in turn. */
static void each_block(struct lane *w, int layer, bool wanted_only,
                       void (*fn)(struct lane *w, const struct block *b))
{
    const struct step *s = w->step;
    int n = w->self->n, id = w->self->id, n_kv = w->m->c.n_kv_heads;
    bool own_heads = model_heads_divide(w->m, n);
    int64_t most = KERN_ATTN_ROWS_MAX / w->m->group, row0 = 0, turn = 0;

    for (int c = 0; c < s->n_chunks; row0 += s->chunks[c].n_tok, c++) {
        const struct model_chunk *chunk = &s->chunks[c];
        int64_t first = wanted_only ? chunk->n_tok - chunk->want_logits : 0;

        for (int h = 0; h < n_kv; h++) {
            for (int64_t i = first; i < chunk->n_tok; i += most) {
                int64_t left = chunk->n_tok - i;
                int owner = own_heads ? h / (n_kv / n) : (int)(turn++ % n);
                const struct block b = {.chunk = chunk,
                                        .row0 = row0,
                                        .i = i,
                                        .n = left < most ? left : most,
                                        .layer = layer,
                                        .kv_head = h};

                if (owner == id)
                    fn(w, &b);
            }
        }
    }
}

/* ---- the phases of a step ---- */

static void embed(struct lane *w)
{
    const struct step *s = w->step;
    struct model *m = w->m;
    int64_t lo, hi, row = 0, dim = m->c.dim;

    par_share(s->n_tok, w->self->id, w->self->n, &lo, &hi);
    for (int c = 0; c < s->n_chunks; c++) {
        for (int64_t i = 0; i < s->chunks[c].n_tok; i++, row++) {
            int64_t id = s->chunks[c].ids[i];
            float *x = m->x + row * m->ld_x;

            if (row < lo || row >= hi)
                continue;
            if (!m->embed)
                kern_mat_get_row(&m->head, id, x);
            else if (m->embed_type == KERN_F32)
                memcpy(x, (float *)m->embed + id * dim, (size_t)dim * sizeof(float));
            else if (m->embed_type == KERN_BF16)
                m->kern.v[KERN_FROM_BF16]->fn.from_bf16(
                    x, (uint16_t *)m->embed + id * dim, dim);
            else
                m->kern.v[KERN_FROM_F16]->fn.from_f16(x, (uint16_t *)m->embed + id * dim,
                                                      dim);
        }
    }
    sync(w, MODEL_T_NORM_ROPE);
}

static void attention(struct lane *w, int layer)
{
    const struct model_layer *l = &w->m->layers[layer];
    const struct rows_in in = {.x = w->x,
                               .ld = w->m->ld_x,
                               .k = w->m->c.dim,
                               .n = w->n_rows,
                               .norm_w = l->attn_norm};
    struct kern_gemm_job qkv = job_of(w, MODEL_MAT_QKV, &l->qkv);
    bool own_heads = model_heads_divide(w->m, w->self->n) && qkv.s.pn == w->self->n;

    qkv.a_packed = pack_rows(w, &qkv, &in);
    qkv.c = w->m->qkv;
    qkv.ldc = w->m->ld_qkv;
    qkv.bias = l->qkv_bias;
    linear(w, &qkv, model_qkv_together(w->m, w->self->n));
    if (!own_heads)
        sync(w, MODEL_T_LINEAR);
    each_block(w, layer, false, rotate_and_store);
    lap(w, MODEL_T_NORM_ROPE);
    if (!own_heads)
        sync(w, MODEL_T_NORM_ROPE);
    each_block(w, layer, w->last, attend);
    lap(w, MODEL_T_ATTN);
}

/* From here on only the rows that want logits matter. */
static void keep_wanted(struct lane *w)
{
    const struct model *m = w->m;
    int64_t lo, hi;

    par_share(w->step->n_logits, w->self->id, w->self->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        memcpy(m->x_last + r * m->ld_x, m->x + m->rows[r] * m->ld_x,
               (size_t)m->ld_x * sizeof(float));
    w->x = m->x_last;
    w->n_rows = w->step->n_logits;
    w->rows = m->rows;
    w->wanted = true;
}

static void attention_output(struct lane *w, int layer)
{
    const struct kern_mat *o = &w->m->layers[layer].o;
    const struct rows_in in = {
        .x = w->m->attn, .ld = w->m->ld_attn, .k = o->k, .n = w->n_rows, .rows = w->rows};
    struct kern_gemm_job job = job_of(w, MODEL_MAT_O, o);

    job.a_packed = pack_rows(w, &job, &in);
    job.c = w->x;
    job.ldc = w->m->ld_x;
    job.epilogue = KERN_RESIDUAL;
    linear(w, &job, 1);
    sync(w, MODEL_T_LINEAR);
}

static void ffn(struct lane *w, int layer)
{
    const struct model_layer *l = &w->m->layers[layer];
    const struct rows_in in = {.x = w->x,
                               .ld = w->m->ld_x,
                               .k = w->m->c.dim,
                               .n = w->n_rows,
                               .norm_w = l->ffn_norm};
    const struct rows_in hidden = {
        .x = w->m->h, .ld = w->m->ld_h, .k = l->down.k, .n = w->n_rows};
    struct kern_gemm_job gate_up = job_of(w, MODEL_MAT_GATE_UP, &l->gate_up);
    struct kern_gemm_job down = job_of(w, MODEL_MAT_DOWN, &l->down);

    gate_up.a_packed = pack_rows(w, &gate_up, &in);
    gate_up.c = w->m->h;
    gate_up.ldc = w->m->ld_h;
    gate_up.epilogue = KERN_SWIGLU;
    down.c = w->x;
    down.ldc = w->m->ld_x;
    down.epilogue = KERN_RESIDUAL;
    linear(w, &gate_up, 2);
    sync(w, MODEL_T_LINEAR);
    down.a_packed = pack_rows(w, &down, &hidden);
    linear(w, &down, 1);
    sync(w, MODEL_T_LINEAR);
}

/* Panels straight into the caller's rows; a ragged last panel by way of scratch, which is
 * why this product is never split along K. */
static void head(struct lane *w)
{
    const struct model *m = w->m;
    const struct rows_in in = {
        .x = w->x, .ld = m->ld_x, .k = m->c.dim, .n = w->n_rows, .norm_w = m->out_norm};
    struct kern_gemm_job j = job_of(w, MODEL_MAT_HEAD, &m->head);
    bool tail = m->head_tail.n != KERN_PANEL;

    j.a_packed = pack_rows(w, &j, &in);
    j.c = w->step->logits;
    j.ldc = m->c.vocab;
    j.scratch = w->own->gemm;
    kern_gemm_part(&j, 1, w->self->id);
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
    lap(w, MODEL_T_HEAD);
}

static void step_run(void *arg, struct par_self *self)
{
    const struct step *s = arg;
    struct lane w = {.step = s,
                     .m = s->m,
                     .self = self,
                     .own = &s->m->scratch[self->id],
                     .x = s->m->x,
                     .n_rows = s->n_tok,
                     .t_ns = self->id == 0 ? clock_ns() : 0};

    embed(&w);
    for (int layer = 0; layer < s->m->c.n_layers; layer++) {
        w.last = layer == s->m->c.n_layers - 1;
        attention(&w, layer);
        if (w.last) {
            if (s->n_logits == 0)
                return; /* the keys and values are stored: that was all */
            keep_wanted(&w);
        }
        sync(&w, MODEL_T_ATTN);
        attention_output(&w, layer);
        w.rows = NULL;
        ffn(&w, layer);
    }
    head(&w);
}

/* ---- the door ---- */

static int check_chunk(const struct model *m, const struct model_chunk *c, int i)
{
    if (c->n_tok < 1 || c->pos0 < 0)
        return err_set(ERR_ARG, "chunk %d: %lld tokens at %lld", i, (long long)c->n_tok,
                       (long long)c->pos0);
    if (c->n_tok > c->kv->cap_tok - c->pos0)
        return err_set(
            ERR_ARG, "chunk %d: %lld tokens at %lld are past its region of %lld", i,
            (long long)c->n_tok, (long long)c->pos0, (long long)c->kv->cap_tok);
    if (c->n_tok > m->max_tok - c->pos0)
        return err_set(ERR_ARG,
                       "chunk %d: %lld tokens at %lld, the longest sequence is %lld", i,
                       (long long)c->n_tok, (long long)c->pos0, (long long)m->max_tok);
    for (int64_t k = 0; k < c->n_tok; k++) {
        if (c->ids[k] < 0 || c->ids[k] >= m->c.vocab)
            return err_set(ERR_ARG, "chunk %d: token %lld: id %d outside [0, %d)", i,
                           (long long)k, c->ids[k], m->c.vocab);
    }
    return OK;
}

int model_forward(struct model *m, const struct model_chunk *chunks, int n_chunks,
                  int n_threads, float *logits)
{
    struct step s = {.m = m, .chunks = chunks, .n_chunks = n_chunks, .logits = logits};

    if (n_chunks < 1)
        return err_set(ERR_ARG, "a step of %d chunks", n_chunks);
    if (n_threads < 1 || n_threads > par_team_size(m->team))
        return err_set(ERR_ARG, "a step on %d threads of a team of %d", n_threads,
                       par_team_size(m->team));
    for (int i = 0; i < n_chunks; i++) {
        int rc = check_chunk(m, &chunks[i], i);

        if (rc != OK)
            return rc;
        if (chunks[i].n_tok > m->max_step_tok - s.n_tok)
            return err_set(ERR_ARG, "a step of more than %lld tokens",
                           (long long)m->max_step_tok);
        s.n_tok += chunks[i].n_tok;
        if (chunks[i].want_logits)
            m->rows[s.n_logits++] = s.n_tok - 1;
    }
    model_schedules(m, s.n_tok, n_threads, s.all);
    if (s.n_logits > 0)
        model_schedules(m, s.n_logits, n_threads, s.wanted);
    par_team_run(m->team, n_threads, step_run, &s);
    return OK;
}
