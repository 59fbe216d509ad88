/* What tells a model from another one of the same shape. */
#include <inttypes.h>
#include <stdio.h>

#include "base/hash_stream.h"
#include "format/family.h"
#include "format/format.h"

#define SAMPLES      4 /* of a tensor, the first and the last bytes included */
#define SAMPLE_BYTES 64

static void add_tensor(struct hash_stream *h, const struct format_tensor *t)
{
    const int64_t shape[] = {t->type, t->rows, t->cols, t->planes};
    size_t bytes = (size_t)t->rows * kern_type_size(t->type, t->cols);

    if (!t->data)
        return;
    hash_stream_add(h, shape, sizeof(shape));
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t n = bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES;

        hash_stream_add(h, (const char *)t->data + (bytes - n) * i / (SAMPLES - 1), n);
    }
}

/* What most families do not have; a model without it keeps the hash that it had before these
 * existed. */
static void add_special(struct hash_stream *h, const struct format_file *f)
{
    const struct model_config *c = &f->config;
    float x[11 + FORMAT_EXPERT_SCALE + MODEL_MAX_LAYERS] = {
        c->qk_norm_row,   (float)c->norms,          c->layer_norm,       c->norm_bias,
        c->parallel,      (float)c->rope_short_tok, (float)c->rope_dims, c->rope_length,
        (float)c->window, c->rope_local_theta,      f->norm_offset};
    int n = 11;
    bool any = false;

    for (int i = 0; i < FORMAT_EXPERT_SCALE; i++)
        x[n++] = *format_number_of(c, i);
    for (int i = 0; i < c->n_layers; i++)
        x[n++] = c->layer_flags[i];
    for (int i = 0; i < n; i++)
        any |= x[i] != 0;
    if (any)
        hash_stream_add(h, x, sizeof(*x) * (size_t)n);
    /* added later: other models keep their hash */
    if (c->rope_ntk != 0)
        hash_stream_add(h, &c->rope_ntk, sizeof(c->rope_ntk));
    if (c->sinks || c->expert_bias)
        hash_stream_add(h, (const bool[]){c->sinks, c->expert_bias}, 2 * sizeof(bool));
    if (c->no_gate)
        hash_stream_add(h, &c->mlp_bias, sizeof(c->mlp_bias));
    if (c->n_experts > 0) {
        const float routing[] = {c->router_sigmoid,
                                 c->router_choice,
                                 (float)c->n_groups,
                                 (float)c->n_active_groups,
                                 c->shared_plain && c->hidden > 0,
                                 c->expert_scale,
                                 (float)c->dense_hidden,
                                 (float)c->n_dense};

        for (any = false, n = 0; n < (int)(sizeof(routing) / sizeof(*routing)); n++)
            any |= routing[n] != 0;
        if (any)
            hash_stream_add(h, routing, sizeof(routing));
    }
    if (c->latent_dim > 0)
        hash_stream_add(h, (const int[]){c->latent_dim, c->nope_dim, c->value_dim},
                        3 * sizeof(int));
    if (c->q_rank > 0)
        hash_stream_add(h, &c->q_rank, sizeof(c->q_rank));
    if (c->rope_short_tok > 0)
        hash_stream_add(h, c->rope_long, sizeof(float) * (size_t)model_rope_dims(c) / 2);
}

uint64_t format_identity(const struct format_file *f)
{
    const struct model_config *c = &f->config;
    const int64_t counts[] = {
        c->dim,    c->n_layers, c->n_heads,       c->n_kv_heads,      c->head_dim,
        c->vocab,  c->hidden,   c->n_experts,     c->n_active,        c->norm_topk,
        c->tied,   c->qkv_bias, c->expert_hidden, c->activation,      c->qk_norm,
        c->bos_id, c->eos_id,   c->n_stop,        f->rope_interleaved};
    const float reals[] = {c->norm_eps, c->rope_theta};
    struct hash_stream h;

    hash_stream_init(&h);
    hash_stream_add(&h, counts, sizeof(counts));
    hash_stream_add(&h, reals, sizeof(reals));
    add_special(&h, f);
    hash_stream_add(&h, c->rope_factor, sizeof(float) * (size_t)(model_rope_dims(c) / 2));
    hash_stream_add(&h, c->stop_ids, sizeof(c->stop_ids[0]) * (size_t)c->n_stop);
    for (int r = 0; r < FORMAT_ATTN_NORM; r++)
        add_tensor(&h, &f->global[r]);
    for (int l = 0; l < c->n_layers; l++)
        for (int r = FORMAT_ATTN_NORM; r < FORMAT_N_ROLES; r++)
            add_tensor(&h, format_layer_tensor(f, l, (enum format_role)r));
    for (int i = 0; f->expert && i < c->n_layers * c->n_experts; i++)
        for (int r = 0; r < FORMAT_N_EXPERT_ROLES; r++)
            add_tensor(&h, &f->expert[i][r]);
    return hash_stream_end(&h);
}

int format_identity_of(char out[FORMAT_IDENTITY_BYTES], const char *path)
{
    struct format_file *f;

    TRY(format_open(&f, path));
    snprintf(out, FORMAT_IDENTITY_BYTES, "%016" PRIx64, format_identity(f));
    format_close(&f);
    return OK;
}
