/* Attention of a rank's query heads. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "step/step.h"

/* Consecutive tokens of one chunk for the rank's query heads of one KV group: what
 * attention computes at a time. */
struct block {
    const struct model_chunk *chunk;
    int64_t row0; /* of the chunk in the step */
    int64_t i, n; /* tokens [i, i + n) of the chunk */
    int layer, kv_head;
    int q, g; /* query heads [q, q + g) */
};

static float *q_at(const struct model_thread_ctx *w, const struct block *b, int64_t i)
{
    const struct model_rank *r = w->rank;

    return r->qkv + (b->row0 + i) * r->ld_qkv + model_q_column(w->m, b->q) -
           r->shard.col_lo;
}

static void norm_heads(const struct model *m, float *x, int n_heads, const float *weights)
{
    int hd = m->c.head_dim;

    for (int h = 0; h < n_heads; h++)
        m->kern.v[KERN_RMSNORM]->fn.rmsnorm(x + h * hd, x + h * hd, weights, hd,
                                            m->c.norm_eps);
}

static bool has_window(const struct model *m, int layer)
{
    return m->c.layer_flags[layer] & MODEL_LAYER_WINDOW;
}

static void rotate(const struct model *m, float *x, int n_heads, int layer, int64_t pos)
{
    int hd = m->c.head_dim, dims = model_rope_dims(&m->c);
    bool local = m->c.rope_local_theta != 0 && has_window(m, layer);
    int64_t at = (pos + (local ? m->max_tok : 0)) * (dims / 2);
    const float *cos = m->rope_cos + at, *sin = m->rope_sin + at;

    if (dims == hd)
        m->kern.v[KERN_ROPE]->fn.rope(x, cos, sin, n_heads, hd);
    else
        for (int h = 0; h < n_heads; h++)
            m->kern.v[KERN_ROPE]->fn.rope(x + h * hd, cos, sin, 1, dims);
}

/* The query heads of KV group h that the rank has: [*q, *q + the result). */
static int heads_of(const struct model_thread_ctx *w, int h, int *q)
{
    const struct model_tp_shard *p = &w->rank->shard;
    int all = w->m->group;

    *q = h * all > p->q_lo ? h * all : p->q_lo;
    return ((h + 1) * all < p->q_hi ? (h + 1) * all : p->q_hi) - *q;
}

/* The group's columns in the matrix that is split off. */
static float *split_at(const struct model_thread_ctx *w, const struct block *b, int64_t i)
{
    const struct model_rank *r = w->rank;

    return r->qkv + (b->row0 + i) * r->ld_qkv + r->shard.col_hi - r->shard.col_lo +
           b->kv_head * w->m->v_unit - r->shard.v_lo;
}

/* The key of the group, which follows its last query or is in the other matrix. */
static float *key_at(const struct model_thread_ctx *w, const struct block *b, int64_t i)
{
    return w->m->c.k_split ? split_at(w, b, i) : q_at(w, b, i) + b->g * w->m->c.head_dim;
}

/* The value of the group, which follows its key or is first in the other matrix. */
static float *value_at(const struct model_thread_ctx *w, const struct block *b, int64_t i)
{
    return w->m->c.v_split && !w->m->c.k_split ? split_at(w, b, i)
                                               : key_at(w, b, i) + w->m->c.head_dim;
}

/* ---- the norm of all heads together ---- */

static float squares(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sum;
}

/* The sums of squares of the rank's heads in a row; 0 for those that another rank counts. */
static void row_sums(const struct model_thread_ctx *w, int64_t row, float *sums)
{
    const struct model_tp_shard *p = &w->rank->shard;
    const struct model_config *c = &w->m->c;

    memset(sums, 0, (size_t)(c->n_heads + c->n_kv_heads) * sizeof(*sums));
    for (int h = p->q_lo / w->m->group; h <= (p->q_hi - 1) / w->m->group; h++) {
        struct block b = {.row0 = row, .kv_head = h};

        b.g = heads_of(w, h, &b.q);
        for (int i = 0; i < b.g && p->seq_i == 0; i++)
            sums[b.q + i] = squares(q_at(w, &b, 0) + i * c->head_dim, c->head_dim);
        if (p->kv)
            sums[c->n_heads + h] = squares(key_at(w, &b, 0), c->head_dim);
    }
}

static float inverse_rms(const float *sums, int n_heads, const struct model_config *c)
{
    double sum = 0;

    for (int h = 0; h < n_heads; h++)
        sum += (double)sums[h];
    return (float)(1 / sqrt(sum / n_heads / c->head_dim + (double)c->norm_eps));
}

static void scale_row(const struct model_thread_ctx *w, int layer, int64_t row,
                      const float *sums)
{
    const struct model_tp_shard *p = &w->rank->shard;
    const struct model_layer *l = &w->m->layers[layer];
    const struct model_config *c = &w->m->c;
    float of_q = inverse_rms(sums, c->n_heads, c);
    float of_k = inverse_rms(sums + c->n_heads, c->n_kv_heads, c);

    for (int h = p->q_lo / w->m->group; h <= (p->q_hi - 1) / w->m->group; h++) {
        struct block b = {.row0 = row, .kv_head = h};
        float *q, *key;

        b.g = heads_of(w, h, &b.q);
        q = q_at(w, &b, 0), key = key_at(w, &b, 0);
        for (int i = 0; i < b.g * c->head_dim; i++)
            q[i] *= of_q * l->q_norm[b.q * c->head_dim + i];
        for (int i = 0; i < c->head_dim && p->kv; i++)
            key[i] *= of_k * l->k_norm[h * c->head_dim + i];
    }
}

/* Sums are kept by head, and each is not 0 in one rank only, so that their bits are the same for
 * any number of ranks. */
void model_norm_rows(struct model_thread_ctx *w, int layer)
{
    const size_t n = (size_t)(w->m->c.n_heads + w->m->c.n_kv_heads);
    float *sums = w->rank->head_sums;
    int64_t lo, hi;

    model_sync(w, MODEL_T_LINEAR);
    par_share(w->n_rows, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        row_sums(w, r, sums + (size_t)r * n);
    for (size_t at = (size_t)lo * n; at < (size_t)hi * n && w->phase->n_ranks > 1;) {
        size_t some = (size_t)hi * n - at;

        some = some < MODEL_MESSAGE_FLOATS ? some : MODEL_MESSAGE_FLOATS;
        model_fail(w, par_allreduce(&w->rank->endpoints[w->id], w->phase->coll, sums + at,
                                    some));
        at += some;
    }
    for (int64_t r = lo; r < hi; r++)
        scale_row(w, layer, r, sums + (size_t)r * n);
    w->own_heads = false;
    model_lap(w, MODEL_T_NORM_ROPE);
}

/* Normalise (where the model does) and rotate the queries; and the key of the group, and keep key
 * and value, where they are this rank's. */
static void rotate_and_store(struct model_thread_ctx *w, const struct block *b)
{
    const struct model *m = w->m;
    int hd = m->c.head_dim;
    size_t vec_bytes = kern_kv_bytes(m->kv_type, hd);
    const struct model_layer *l = &m->layers[b->layer];
    const struct kv_slot *slot = b->chunk->kv;
    bool kv = w->rank->shard.kv;
    bool rotates = !(m->c.layer_flags[b->layer] & MODEL_LAYER_NO_ROPE);
    bool by_head = l->q_norm && !m->c.qk_norm_row;

    for (int64_t i = b->i; i < b->i + b->n; i++) {
        int64_t pos = b->chunk->pos0 + i;
        float *q = q_at(w, b, i), *key = key_at(w, b, i);
        bool together = kv && !m->c.k_split; /* the key follows the queries */

        if (by_head)
            norm_heads(m, q, b->g, l->q_norm);
        if (by_head && kv)
            norm_heads(m, key, 1, l->k_norm);
        if (rotates)
            rotate(m, q, b->g + together, b->layer, pos);
        if (!kv)
            continue;
        if (rotates && !together)
            rotate(m, key, 1, b->layer, pos);
        kern_kv_store(&m->kern, m->kv_type,
                      kv_token_at(slot, b->layer, b->kv_head, 0, pos, vec_bytes), key,
                      hd);
        kern_kv_store(&m->kern, m->kv_type,
                      kv_token_at(slot, b->layer, b->kv_head, 1, pos, vec_bytes),
                      value_at(w, b, i), hd);
    }
}

/* Where the results of a block go: the input of the output projection, or, of a share of
 * the keys, what merge() puts together. */
static void results_at(const struct model_thread_ctx *w, const struct block *b,
                       struct kern_attn_args *a)
{
    const struct model_rank *r = w->rank;
    int64_t row = b->row0 + b->i, lo = a->kv_lo, hd = w->m->c.head_dim;

    if (r->shard.seq_n == 1) {
        a->out = r->heads + row * r->ld_heads + (b->q - r->shard.q_lo) * hd;
        a->out_stride = r->ld_heads;
        return;
    }
    a->out = r->share + row * hd;
    a->out_stride = hd;
    a->lse = r->lse + row;
    par_share(a->kv_hi - lo, r->shard.seq_i, r->shard.seq_n, &a->kv_lo, &a->kv_hi);
    a->kv_lo += lo;
    a->kv_hi += lo;
}

/* A head's sink is one more term of its softmax, whose value is 0: with the sum of the others,
 * exp(lse), results shrink. */
static void add_sinks(const struct model_thread_ctx *w, const struct block *b,
                      const struct kern_attn_args *a)
{
    const float *sinks = w->m->layers[b->layer].sinks + b->q;

    for (int64_t i = 0; i < b->n; i++)
        for (int h = 0; h < b->g; h++) {
            float *out = a->out + i * a->out_stride + h * a->head_dim;
            float part = 1 / (1 + expf(sinks[h] - a->lse[i * b->g + h]));

            for (int k = 0; k < a->head_dim; k++)
                out[k] *= part;
        }
}

static void attend(struct model_thread_ctx *w, const struct block *b)
{
    float lse[KERN_ATTN_ROWS_MAX];
    const bool sinks = w->m->layers[b->layer].sinks && w->rank->shard.seq_n == 1;
    const struct model *m = w->m;
    const struct kv_slot *slot = b->chunk->kv;
    const char *values = kv_values_at(slot, b->layer, b->kv_head);
    int64_t pos0 = b->chunk->pos0 + b->i;
    int64_t past =
        has_window(m, b->layer) && m->c.window > 0
            ? pos0 + b->n - m->c.window /* tokens before the last one's window */
            : 0;
    struct kern_attn_args args = {
        .q = q_at(w, b, b->i),
        .q_stride = w->rank->ld_qkv,
        .k = values - kern_kv_bytes(m->kv_type, m->c.head_dim),
        .v = values,
        .blocks = slot->blocks,
        .block_tok = slot->block_tok,
        .block_bytes = slot->block_bytes,
        .scratch = w->own->attn,
        .kv_lo = past > 0 ? past : 0,
        .kv_hi = pos0 + b->n,
        .pos0 = pos0,
        .n_tok = (int)b->n,
        .g = b->g,
        .head_dim = m->c.head_dim,
        .scale = m->attn_scale,
        .softcap = m->c.attn_softcap,
    };

    if (past > 0 && b->n > 1) { /* each token has a window of its own */
        struct block one = *b;

        for (one.n = 1; one.i < b->i + b->n; one.i++)
            attend(w, &one);
        return;
    }
    results_at(w, b, &args);
    args.lse = sinks ? lse : args.lse;
    m->kern.v[kern_kv_attn(m->kv_type)]->fn.attn(&args);
    if (sinks)
        add_sinks(w, b, &args);
}

/* Call fn for this thread's blocks. Where the KV groups divide evenly a thread has the
 * groups whose projections it computed; otherwise blocks are dealt out in turn. */
static void each_block(struct model_thread_ctx *w, int layer, bool wanted_only,
                       bool own_heads,
                       void (*fn)(struct model_thread_ctx *w, const struct block *b))
{
    const struct model_step *s = w->step;
    const struct model_tp_shard *p = &w->rank->shard;
    int all = w->m->group, first = p->q_lo / all, n_kv = (p->q_hi - 1) / all - first + 1;
    int64_t row0 = 0, turn = 0;

    for (int c = 0; c < s->n_chunks; row0 += s->chunks[c].n_tok, c++) {
        const struct model_chunk *chunk = &s->chunks[c];
        int64_t from = wanted_only ? chunk->n_tok - chunk->want_logits : 0;

        for (int h = first; h < first + n_kv; h++) {
            int q, g = heads_of(w, h, &q);
            int64_t most = KERN_ATTN_ROWS_MAX / g;

            for (int64_t i = from; i < chunk->n_tok; i += most) {
                int64_t left = chunk->n_tok - i;
                int owner =
                    own_heads ? (h - first) / (n_kv / w->n) : (int)(turn++ % w->n);
                const struct block b = {.chunk = chunk,
                                        .row0 = row0,
                                        .i = i,
                                        .n = left < most ? left : most,
                                        .layer = layer,
                                        .kv_head = h,
                                        .q = q,
                                        .g = g};

                if (owner == w->id)
                    fn(w, &b);
            }
        }
    }
}

/* A row of the rank's share of its head's columns, out of all shares of the keys: each is
 * a mean weighted by exp(score), and exp(lse) is the sum of those weights. */
static void merge_row(const struct model_thread_ctx *w, int layer, int64_t row)
{
    const float *sinks = w->m->layers[layer].sinks;
    const struct model_rank *r = w->rank, *one = r - r->shard.seq_i;
    int64_t hd = w->m->c.head_dim, col = r->shard.attn_lo - r->shard.q_lo * hd;
    float most = -INFINITY, sum = 0, *out = r->attn + row * r->ld_attn;

    for (int i = 0; i < r->shard.seq_n; i++)
        most = fmaxf(most, one[i].lse[row]);
    memset(out, 0, (size_t)r->ld_attn * sizeof(float));
    for (int i = 0; i < r->shard.seq_n; i++) {
        const float *x = one[i].share + row * hd + col;
        float weight = expf(one[i].lse[row] - most);

        sum += weight;
        for (int64_t c = 0; c < r->ld_attn; c++)
            out[c] += weight * x[c];
    }
    if (sinks)
        sum += expf(sinks[r->shard.q_lo] - most);
    for (int64_t c = 0; c < r->ld_attn; c++)
        out[c] /= sum;
}

static void merge(struct model_thread_ctx *w, int layer)
{
    const struct model_step *s = w->step;
    int64_t lo, hi;

    if (w->rank->shard.seq_n == 1)
        return;
    par_share(w->last ? s->n_logits : s->n_tok, w->id, w->n, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        merge_row(w, layer, w->last ? w->m->rows[i] : i);
}

/* Bytes of the panels that a thread multiplies from one attention to the next. */
static int64_t layer_bytes(const struct model_thread_ctx *w, int layer)
{
    const struct model_view *v = &w->rank->layers[layer];
    double bytes = 0;

    for (int i = 0; i < MODEL_MAT_HEAD; i++) {
        const struct kern_mat *mat = &v->mats[i];

        bytes += (double)mat->n_panels * KERN_PANEL * (double)mat->k *
                 kern_type_weight_bytes(mat->type);
    }
    return (int64_t)bytes / w->n;
}

/* In a step of decode, let the products that follow prefetch what layer `layer` attends to: each
 * thread its share of half of the third-level cache. Measured on Zen 4, llama-160m in bf16, 16
 * sequences of 144 tokens: a step takes 0.93 of its time, and attention 0.6 of its own; where
 * other programs fill that cache, neither gains. On Emerald Rapids a step takes 1.06 of its time,
 * so cpu_prefetch() rules it out. */
static void look_ahead(struct model_thread_ctx *w, int layer)
{
    const struct model_step *s = w->step;
    const struct model_tp_shard *p = &w->rank->shard;
    int first = p->q_lo / w->m->group;
    int n_kv = ((p->q_hi - 1) / w->m->group - first + 1) / w->n;

    w->ahead.left = 0; /* what products did not get to has been read */
    if (cpu_prefetch()->later && s->n_tok == s->n_chunks && layer < w->m->c.n_layers)
        model_ahead_begin(&w->ahead, s->chunks, s->n_chunks, layer, first + w->id * n_kv,
                          first + (w->id + 1) * n_kv,
                          (int64_t)kern_kv_bytes(w->m->kv_type, w->m->c.head_dim),
                          (int64_t)cpu_cache_bytes(3) / 2 / w->n, layer_bytes(w, layer));
}

/* Norm, rotation and storing come before attention itself. */
static void keys_and_values(struct model_thread_ctx *w, int layer)
{
    if (!w->own_heads)
        model_sync(w, MODEL_T_LINEAR);
    each_block(w, layer, false, w->own_heads, rotate_and_store);
    model_lap(w, MODEL_T_NORM_ROPE);
}

void model_attend_by(struct model_thread_ctx *w, int layer,
                     const struct model_attend_by *by)
{
    const struct model *m = w->m;
    const struct model_rank *r = w->rank;
    const struct model_attend_args a = {.chunk = w->step->chunks,
                                        .layer = layer,
                                        .n_heads = m->c.n_heads,
                                        .group = m->group,
                                        .head_dim = m->c.head_dim,
                                        .q = r->qkv,
                                        .out = r->heads,
                                        .q_stride = r->ld_qkv,
                                        .q_unit = m->qkv_unit,
                                        .out_stride = r->ld_heads,
                                        .scale = m->attn_scale};

    assert(w->step->n_chunks == 1);
    keys_and_values(w, layer);
    model_sync(w, MODEL_T_NORM_ROPE);
    by->fn(by->ctx, &a, w->self);
    model_lap(w, MODEL_T_ATTN);
}

void model_attend(struct model_thread_ctx *w, int layer)
{
    keys_and_values(w, layer);
    if (w->phase->shares_kv)
        model_sync_all(w, MODEL_T_NORM_ROPE);
    else if (!w->own_heads)
        model_sync(w, MODEL_T_NORM_ROPE);
    each_block(w, layer, w->last, w->own_heads, attend);
    if (w->phase->shares_seq) {
        model_sync_all(w, MODEL_T_ATTN);
        merge(w, layer);
    }
    model_lap(w, MODEL_T_ATTN);
    if (w->own_heads && w->phase->n_ranks == 1)
        look_ahead(w, layer + 1);
}
