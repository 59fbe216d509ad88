/* Llama-family models in GGUF files, dense and mixtures of experts. */
#include "format/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/fill.h"
#include "format/gguf_parts.h"
#include "format/keys.h"
#include "format/support.h"
#include "base/file.h"

#define MAGIC      "GGUF"
#define ROPE_FREQS "rope_freqs.weight"
#define ROPE_SHORT "rope_factors_short.weight"
#define ROPE_LONG  "rope_factors_long.weight"

static int gguf_probe(const char *path)
{
    char magic[4];

    return file_peek(path, magic, sizeof(magic)) &&
           memcmp(magic, MAGIC, sizeof(magic)) == 0;
}

/* A number for each layer, as files of models have it whose layers may differ: here they must
 * not. *found: the key is such an array. */
static int per_layer(const struct format_file *f, const char *key, int64_t *out,
                     bool *found)
{
    const struct gguf *g = f->state;
    enum gguf_type type;
    const void *handle;
    int64_t first = 0, v;
    uint64_t n = 0;

    *found = gguf_has(g, key) && gguf_get_array(g, key, &type, &n, &handle) == OK;
    if (!*found) {
        err_clear(); /* another type is an answer too */
        return OK;
    }
    if (type == GGUF_STRING || n != (uint64_t)f->config.n_layers)
        return err_set(ERR_FORMAT,
                       "%s: %s: expected a number, or one for each of %d layers, found "
                       "%" PRIu64 " elements",
                       f->path, key, f->config.n_layers, n);
    for (uint64_t i = 0; i < n; i++) {
        TRY(gguf_array_int(handle, i, &v));
        first = i == 0 ? v : first;
        if (v != first)
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s: expected the same number for every layer, found "
                           "%" PRId64 " and, for layer %" PRIu64 ", %" PRId64,
                           f->path, key, first, i, v);
    }
    *out = first;
    return OK;
}

/* "<arch>.<key>" of the file, as an int within the configuration's reach. */
static int arch_int(const struct format_file *f, const char *key, bool needed, int *out)
{
    const struct gguf *g = f->state;
    char full[96];
    int64_t v = *out;
    bool layers;
    int rc;

    snprintf(full, sizeof(full), "%s.%s", f->config.arch, key);
    rc = per_layer(f, full, &v, &layers);
    if (rc == OK && !layers)
        rc = needed ? gguf_get_int(g, full, &v) : gguf_opt_int(g, full, &v);
    if (rc != OK)
        return rc;
    if (v < INT32_MIN || v > INT32_MAX)
        return err_set(ERR_LIMIT, "%s: %s: expected a number below 2^31, found %" PRId64,
                       f->path, full, v);
    *out = (int)v;
    return OK;
}

static int arch_float(const struct format_file *f, const char *key, bool needed,
                      float *out)
{
    const struct gguf *g = f->state;
    char full[96];
    double v = (double)*out;
    int rc;

    snprintf(full, sizeof(full), "%s.%s", f->config.arch, key);
    rc = needed ? gguf_get_f64(g, full, &v) : gguf_opt_f64(g, full, &v);
    *out = (float)v;
    return rc;
}

static int read_arch(struct format_file *f)
{
    char arch[sizeof(f->config.arch)];
    const struct format_family *family;
    const char *s;
    size_t n;
    int rc = gguf_get_str(f->state, "general.architecture", &s, &n);

    if (rc != OK)
        return rc;
    snprintf(arch, sizeof(arch), "%.*s", (int)(n < sizeof(arch) ? n : 0), s);
    family = format_family_of_arch(arch);
    if (!family)
        TRY(format_refuse(f->path, "general.architecture", arch));
    if (!family || strlen(arch) != n)
        return err_set(ERR_UNSUPPORTED,
                       "%s: general.architecture: expected one that `sandwich model "
                       "explain-support` lists as known, found %.*s",
                       f->path, (int)(n > 40 ? 40 : n), s);
    format_family_apply(family, &f->config);
    /* No key says it; of the tensors of all layers either all or none must be there. */
    f->config.qkv_bias |= gguf_tensor_find(f->state, "blk.0.attn_q.bias") ||
                          gguf_tensor_find(f->state, "blk.0.attn_qkv.bias");
    f->config.o_bias = gguf_tensor_find(f->state, "blk.0.attn_output.bias") != NULL;
    f->config.mlp_bias =
        f->config.no_gate && gguf_tensor_find(f->state, "blk.0.ffn_up.bias") != NULL;
    f->config.qk_norm |= family->qk_norm_key &&
                         gguf_tensor_find(f->state, "blk.0.attn_q_norm.weight") != NULL;
    f->rope_interleaved = family->rope_interleaved;
    return OK;
}

static int read_name(struct format_file *f)
{
    const char *s = NULL;
    size_t n = 0;
    int rc = gguf_opt_str(f->state, "general.name", &s, &n);

    if (n > 0)
        snprintf(f->config.name, sizeof(f->config.name), "%.*s",
                 (int)(n < sizeof(f->config.name) ? n : sizeof(f->config.name) - 1), s);
    else
        format_name_from_path(&f->config, f->path);
    return rc;
}

/* The vocabulary's size stands in one key, or is the length of the list of tokens, or is
 * what the embedding has. */
static int read_vocab(struct format_file *f)
{
    const struct gguf *g = f->state;
    const struct gguf_tensor *embed = gguf_tensor_find(g, "token_embd.weight");
    enum gguf_type type;
    const void *handle;
    uint64_t n = 0;
    int rc;

    f->config.vocab = -1;
    if ((rc = arch_int(f, "vocab_size", false, &f->config.vocab)) != OK ||
        f->config.vocab != -1)
        return rc;
    if (gguf_has(g, "tokenizer.ggml.tokens")) {
        if ((rc = gguf_get_array(g, "tokenizer.ggml.tokens", &type, &n, &handle)) != OK)
            return rc;
    } else if (embed) {
        n = embed->dims[1];
    }
    f->config.vocab = n < INT32_MAX ? (int)n : INT32_MAX;
    return OK;
}

/* Where key_length and value_length are of the key of all heads, those of a head have keys of their
 * own. */
static int read_latent(struct format_file *f)
{
    struct model_config *c = &f->config;
    int q_dim = 0;

    TRY(arch_int(f, "attention.kv_lora_rank", true, &c->latent_dim));
    TRY(arch_int(f, "attention.q_lora_rank", false, &c->q_rank));
    TRY(arch_int(f, "rope.dimension_count", true, &c->rope_dims));
    TRY(arch_int(f, "attention.key_length", true, &q_dim));
    TRY(arch_int(f, "attention.value_length", true, &c->value_dim));
    TRY(arch_int(f, "attention.key_length_mla", false, &q_dim));
    TRY(arch_int(f, "attention.value_length_mla", false, &c->value_dim));
    c->nope_dim = q_dim - c->rope_dims;
    if (c->latent_dim < 1 || c->rope_dims < 2 || c->nope_dim < 1 || c->value_dim < 1 ||
        c->latent_dim > MODEL_HEAD_DIM_MAX || c->rope_dims > MODEL_HEAD_DIM_MAX)
        return err_set(ERR_FORMAT,
                       "%s: %s.attention: expected sizes of latent attention, found "
                       "kv_lora_rank %d, key_length %d of which %d are rotated, "
                       "value_length %d",
                       f->path, c->arch, c->latent_dim, q_dim, c->rope_dims,
                       c->value_dim);
    model_config_latent(c, 0, 0);
    return OK;
}

static int read_head_dim(struct format_file *f)
{
    struct model_config *c = &f->config;
    int value_dim, rope_dim, rc;

    if (format_family_of(c)->latent) {
        rc = read_latent(f);
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    }
    if (c->n_heads > 0)
        c->head_dim = c->dim / c->n_heads;
    if ((rc = arch_int(f, "attention.key_length", false, &c->head_dim)) != OK)
        return rc;
    value_dim = rope_dim = c->head_dim;
    if ((rc = arch_int(f, "attention.value_length", false, &value_dim)) != OK ||
        (rc = arch_int(f, "rope.dimension_count", false, &rope_dim)) != OK)
        return rc;
    if (value_dim != c->head_dim)
        return err_set(ERR_UNSUPPORTED,
                       "%s: %s: expected key and value sizes of a head to be equal, "
                       "found %d and %d",
                       f->path, c->arch, c->head_dim, value_dim);
    if (rope_dim < 2)
        return err_set(ERR_FORMAT,
                       "%s: %s.rope.dimension_count: expected at least 2, found %d",
                       f->path, c->arch, rope_dim);
    c->rope_dims = rope_dim == c->head_dim ? 0 : rope_dim;
    return OK;
}

/* How the router scores, and how experts are chosen by it. */
static int read_router(struct format_file *f)
{
    struct model_config *c = &f->config;
    int gating = 0, rc;
    char key[96];

    snprintf(key, sizeof(key), "%s.expert_weights_norm", c->arch);
    if ((rc = gguf_opt_bool(f->state, key, &c->norm_topk)) != OK ||
        (rc = arch_int(f, "expert_gating_func", false, &gating)) != OK ||
        (rc = arch_int(f, "expert_group_count", false, &c->n_groups)) != OK ||
        (rc = arch_int(f, "expert_group_used_count", false, &c->n_active_groups)) != OK)
        return rc;
    if (gating < 0 || gating > 3)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: %s.expert_gating_func: expected 1 (softmax), 2 (sigmoid) or 3 "
            "(softmax of the chosen), found %d",
            f->path, c->arch, gating);
    if (gating > 0)
        c->router_sigmoid = gating == 2;
    c->norm_topk |= gating == 3;
    if (c->n_groups <= 1)
        c->n_groups = c->n_active_groups = 0;
    snprintf(key, sizeof(key), "blk.%d.exp_probs_b.bias", c->n_dense);
    c->router_choice = gguf_tensor_find(f->state, key) != NULL;
    /* Early files of GLM-4.7-Flash do not say how scores are made. */
    if (gating == 0 && format_family_of(c)->latent && c->router_choice)
        c->router_sigmoid = true;
    return OK;
}

/* The size of the shared expert: where no key has it, that of expert_shared_count experts, or of
 * its tensor. */
static int read_shared(struct format_file *f, const struct format_expert_keys *keys)
{
    struct model_config *c = &f->config;
    const struct gguf_tensor *t;
    char name[64];
    int n = 0;

    TRY(arch_int(f, "expert_shared_feed_forward_length", false, &c->hidden));
    if (c->hidden == 0 && keys->n_shared) {
        TRY(arch_int(f, "expert_shared_count", false, &n));
        c->hidden = n > 0 && n <= c->n_experts && c->expert_hidden <= INT32_MAX / n
                        ? n * c->expert_hidden
                        : 0;
    }
    if (c->hidden == 0) {
        snprintf(name, sizeof(name), "blk.%d.ffn_up_shexp.weight", c->n_dense);
        t = gguf_tensor_find(f->state, name);
        c->hidden = t && t->dims[1] < INT32_MAX ? (int)t->dims[1] : 0;
    }
    return OK;
}

/* feed_forward_length is that of an expert where no other key has it, as in Mixtral; otherwise it
 * is of the layers without experts, of which there may be none. */
static int read_experts(struct format_file *f)
{
    struct model_config *c = &f->config;
    const struct format_family *family = format_family_of(c);
    bool needed = family->experts != NULL;
    int rc;

    if ((rc = arch_int(f, "expert_count", needed, &c->n_experts)) != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    if (c->n_experts == 0 && !needed)
        return OK;
    if (c->n_experts < 1)
        return err_set(ERR_FORMAT, "%s: %s.expert_count: expected at least 1, found %d",
                       f->path, c->arch, c->n_experts);
    family = format_family_of(c);
    if (!family->experts)
        return err_set(ERR_UNSUPPORTED, "%s: %s.expert_count: expected 0, found %d",
                       f->path, c->arch, c->n_experts);
    c->expert_hidden = c->dense_hidden = c->hidden;
    c->hidden = 0;
    c->norm_topk = family->norm_topk;
    if ((rc = arch_int(f, "expert_used_count", true, &c->n_active)) != OK ||
        (rc = arch_int(f, "expert_feed_forward_length", false, &c->expert_hidden)) !=
            OK ||
        (rc = arch_int(f, "leading_dense_block_count", false, &c->n_dense)) != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    if (c->n_dense == 0)
        c->dense_hidden = 0;
    TRY(read_router(f));
    return family->experts->shared_hidden || family->experts->n_shared
               ? read_shared(f, family->experts)
               : OK;
}

static int read_numbers(struct format_file *f)
{
    const struct format_family *family = format_family_of(&f->config);

    for (int i = 0; i < FORMAT_N_NUMBERS; i++) {
        float v = 0;

        if (!(family->numbers >> i & 1))
            continue;
        TRY(arch_float(f, format_numbers[i].gguf, false, &v));
        *format_number_of(&f->config, i) = format_number_in_file(i, v);
    }
    return OK;
}

/* Which layers have a window: each n-th has none, or a list says it of each. */
static int read_window(struct format_file *f)
{
    static const char key_of_list[] = "attention.sliding_window_pattern";
    const struct format_family *family = format_family_of(&f->config);
    struct model_config *c = &f->config;
    int window = family->gguf_window_default, every = family->window_every;
    enum gguf_type type;
    const void *list;
    char key[96];
    uint64_t n;

    TRY(arch_int(f, "attention.sliding_window", false, &window));
    snprintf(key, sizeof(key), "%s.%s", c->arch, key_of_list);
    if (!gguf_has(f->state, key) ||
        gguf_get_array(f->state, key, &type, &n, &list) != OK) {
        err_clear(); /* a number is an answer too */
        TRY(arch_int(f, key_of_list, false, &every));
        format_family_window(family, c, window, every, false);
        return OK;
    }
    if (type == GGUF_STRING || n != (uint64_t)c->n_layers)
        return err_set(ERR_FORMAT,
                       "%s: %s: expected a number, or one for each of %d layers, found "
                       "%" PRIu64 " elements",
                       f->path, key, c->n_layers, n);
    for (uint64_t i = 0; i < n; i++) {
        int64_t v;

        TRY(gguf_array_int(list, i, &v));
        if (i < MODEL_MAX_LAYERS && v != 0)
            c->layer_flags[i] |= MODEL_LAYER_WINDOW;
    }
    format_family_window(family, c, window, 0, true);
    return OK;
}

static int read_sizes(struct format_file *f)
{
    struct model_config *c = &f->config;
    const struct format_family *family = format_family_of(c);
    int rc;

    if ((rc = arch_int(f, "context_length", true, &c->max_tok)) != OK ||
        (rc = arch_int(f, "embedding_length", true, &c->dim)) != OK ||
        (rc = arch_int(f, "block_count", true, &c->n_layers)) != OK ||
        (rc = arch_int(f, "nextn_predict_layers", false, &c->n_ahead)) != OK ||
        (rc = arch_int(f, "feed_forward_length", true, &c->hidden)) != OK ||
        (rc = arch_int(f, "attention.head_count", true, &c->n_heads)) != OK)
        return rc;
    if (c->n_ahead < 0 || c->n_ahead >= c->n_layers)
        return err_set(ERR_FORMAT,
                       "%s: %s.nextn_predict_layers: expected 0 to %d, found %d", f->path,
                       c->arch, c->n_layers - 1, c->n_ahead);
    c->n_layers -= c->n_ahead;
    c->n_kv_heads = c->n_heads;
    c->rope_theta = 10000;
    if ((rc = arch_int(f, "attention.head_count_kv", false, &c->n_kv_heads)) != OK ||
        (rc = arch_float(f,
                         c->layer_norm ? "attention.layer_norm_epsilon"
                                       : "attention.layer_norm_rms_epsilon",
                         true, &c->norm_eps)) != OK ||
        (rc = arch_float(f, "rope.freq_base", false, &c->rope_theta)) != OK ||
        (rc = read_head_dim(f)) != OK || (rc = read_vocab(f)) != OK ||
        (rc = arch_float(f, "rope.freq_base_swa", false, &c->rope_local_theta)) != OK ||
        (rc = read_numbers(f)) != OK)
        return rc;
    format_family_derive(family, c);
    if (family->wide_layers > 0 && c->n_layers == family->wide_layers && c->n_heads > 0)
        c->attn_scale = 1 / sqrtf((float)c->dim / (float)c->n_heads);
    TRY(read_window(f));
    return read_experts(f);
}

static int check_keys(const struct format_file *f)
{
    const struct gguf *g = f->state;
    char key[160], prefix[40];
    size_t n = (size_t)snprintf(prefix, sizeof(prefix), "%s.", f->config.arch);
    int rc = OK;

    for (uint64_t i = 0; rc == OK && i < gguf_n_keys(g); i++) {
        struct gguf_record r;

        gguf_key_at(g, i, &r);
        snprintf(key, sizeof(key), "%.*s", (int)(r.key_n < 159 ? r.key_n : 159), r.key);
        if (strncmp(key, prefix, n) == 0)
            rc = format_key_check(FORMAT_KEYS_GGUF, format_family_of(&f->config), key,
                                  gguf_number(g, key), f->path);
    }
    return rc;
}

/* A token id of the tokenizer; one outside the vocabulary means none. */
static int read_id(const struct format_file *f, const char *key, int *out)
{
    int64_t id = -1;
    int rc = gguf_opt_int(f->state, key, &id);

    *out = id >= 0 && id < f->config.vocab ? (int)id : -1;
    return rc;
}

/* The ends of a text, of a turn of a conversation and of a message. */
static int read_ids(struct format_file *f)
{
    struct model_config *c = &f->config;
    int eot = -1, eom = -1, rc;

    if ((rc = read_id(f, "tokenizer.ggml.bos_token_id", &c->bos_id)) != OK ||
        (rc = read_id(f, "tokenizer.ggml.eos_token_id", &c->eos_id)) != OK ||
        (rc = read_id(f, "tokenizer.ggml.eot_token_id", &eot)) != OK ||
        (rc = read_id(f, "tokenizer.ggml.eom_token_id", &eom)) != OK ||
        (rc = model_config_stop(c, c->eos_id, f->path)) != OK ||
        (rc = model_config_stop(c, eot, f->path)) != OK)
        return rc;
    return model_config_stop(c, eom, f->path);
}

static int read_tensor(const struct format_file *f, const struct gguf_tensor *g,
                       struct format_tensor *out)
{
    if (!gguf_ggml_computed(g->ggml_type, &out->type))
        return err_set(ERR_UNSUPPORTED, "%s: tensor %s: expected type %s, found %s%s",
                       f->path, g->name, gguf_ggml_computed_names(),
                       gguf_ggml_type_name(g->ggml_type),
                       gguf_ggml_why_not(g->ggml_type));
    if (g->dims[3] != 1)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected at most 3 dimensions, found [%" PRIu64
                       ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
                       f->path, g->name, g->dims[0], g->dims[1], g->dims[2], g->dims[3]);
    out->data = g->data;
    out->cols = (int64_t)g->dims[0];
    out->rows = (int64_t)g->dims[1];
    out->planes = (int64_t)g->dims[2];
    return OK;
}

/* Multiply by the numbers of a tensor, if there is one. */
static int multiply(const struct format_file *f, const char *name, float *out, int *n)
{
    const struct gguf_tensor *t = gguf_tensor_find(f->state, name);
    int half = model_rope_dims(&f->config) / 2;
    float v;

    if (!t)
        return OK;
    if (t->ggml_type != 0 || t->bytes / sizeof(float) != (uint64_t)half)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected %d of F32, found %" PRIu64 " bytes of %s",
                       f->path, name, half, t->bytes, gguf_ggml_type_name(t->ggml_type));
    for (int i = 0; i < half; i++) {
        memcpy(&v, (const char *)t->data + sizeof(v) * (size_t)i, sizeof(v));
        out[i] *= v;
    }
    ++*n;
    return OK;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* *length: what rotated elements are multiplied by. */
static int read_yarn(struct format_file *f, double *length)
{
    struct model_config *c = &f->config;
    float factor = 1, fast = 32, slow = 1, mscale = 0;
    int original = c->max_tok;

    TRY(arch_float(f, "rope.scaling.factor", true, &factor));
    TRY(arch_float(f, "rope.scaling.yarn_beta_fast", false, &fast));
    TRY(arch_float(f, "rope.scaling.yarn_beta_slow", false, &slow));
    TRY(arch_float(f, "rope.scaling.yarn_log_multiplier", false, &mscale));
    TRY(arch_int(f, "rope.scaling.original_context_length", false, &original));
    if (!(factor >= 1) || !(slow > 0) || !(fast > slow) || original < 1)
        return err_set(ERR_FORMAT,
                       "%s: %s.rope.scaling: expected a factor of at least 1, 0 < "
                       "yarn_beta_slow < yarn_beta_fast and an original length of at "
                       "least 1, found %g, %g, %g, %d",
                       f->path, c->arch, (double)factor, (double)slow, (double)fast,
                       original);
    model_config_rope_yarn(c, (double)factor, (double)fast, (double)slow, original, true);
    *length = model_config_yarn_length((double)factor, 1) /
              model_config_yarn_length((double)factor, (double)mscale);
    if (c->latent_dim >
        0) { /* the key has a tenth of mscale_all_dim; it is of scores alone */
        *length = 1;
        model_config_latent(c, (double)factor, 10 * (double)mscale);
    }
    return OK;
}

/* Granite says by it that no layer rotates. */
static int read_rope_switch(struct format_file *f)
{
    char key[96];
    bool rotates = true;

    snprintf(key, sizeof(key), "%s.rope.scaling.finetuned", f->config.arch);
    if (format_family_of(&f->config)->rope_switch)
        TRY(gguf_opt_bool(f->state, key, &rotates));
    if (!rotates)
        model_config_flag(&f->config, MODEL_LAYER_NO_ROPE, 1);
    return OK;
}

/* Rotary scaling stands in a linear factor (of type linear, or of no type, where older
 * files call it scale_linear), in a tensor of divisors (Llama-3), in both or nowhere. A
 * factor of 0 means none. */
static int read_rope(struct format_file *f)
{
    struct model_config *c = &f->config;
    const char *type = "linear";
    char key[96];
    size_t n = strlen(type);
    float factor = 0, attn = 0;
    double length = 1;
    int i, rc, n_found = 0;

    snprintf(key, sizeof(key), "%s.rope.scaling.type", c->arch);
    if ((rc = gguf_opt_str(f->state, key, &type, &n)) != OK)
        return rc;
    if (is_word(type, n, "linear")) {
        if ((rc = arch_float(f, "rope.scale_linear", false, &factor)) != OK ||
            (rc = arch_float(f, "rope.scaling.factor", false, &factor)) != OK)
            return rc;
    } else if (!is_word(type, n, "none") && !is_word(type, n, "yarn") &&
               !is_word(type, n, "longrope")) {
        return err_set(ERR_UNSUPPORTED,
                       "%s: %s: expected none, linear, yarn or longrope, found %.*s",
                       f->path, key, (int)(n > 40 ? 40 : n), type);
    }
    if (factor == 0)
        factor = 1;
    for (i = 0; i < MODEL_HEAD_DIM_MAX / 2; i++)
        c->rope_factor[i] = c->rope_long[i] = factor;
    if (is_word(type, n, "yarn"))
        TRY(read_yarn(f, &length));
    if ((rc = read_rope_switch(f)) != OK ||
        (rc = arch_float(f, "rope.scaling.attn_factor", false, &attn)) != OK ||
        (rc = multiply(f, ROPE_FREQS, c->rope_factor, &n_found)) != OK ||
        (rc = multiply(f, ROPE_SHORT, c->rope_factor, &n_found)) != OK)
        return rc;
    if (length != 1 || attn != 0)
        c->rope_length = (float)(length * (attn != 0 ? (double)attn : 1));
    n_found = 0;
    rc = multiply(f, ROPE_LONG, c->rope_long, &n_found);
    if (rc == OK && n_found == 0 && is_word(type, n, "longrope"))
        return err_set(ERR_FORMAT,
                       "%s: %s: expected with longrope a tensor " ROPE_LONG
                       ", found none",
                       f->path, key);
    if (rc != OK || n_found == 0)
        return rc;
    return arch_int(f, "rope.scaling.original_context_length", true, &c->rope_short_tok);
}

static int find_tensor(void *ctx, const char *name, struct format_tensor *out)
{
    const struct format_file *f = ctx;
    const struct gguf_tensor *t = gguf_tensor_find(f->state, name);

    return t ? read_tensor(f, t, out) : ERR_NOTFOUND;
}

static const char *name_at(void *ctx, uint64_t i)
{
    const struct gguf_tensor *t = gguf_tensor_at(((struct format_file *)ctx)->state, i);

    return t ? t->name : NULL;
}

static bool is_ignored(void *ctx, const char *name)
{
    const struct format_file *f = ctx;
    int layer;

    if (f->config.n_ahead > 0 && sscanf(name, "blk.%9d.", &layer) == 1 &&
        layer >= f->config.n_layers)
        return true;
    /* already in rope_factor and rope_long */
    return strcmp(name, ROPE_FREQS) == 0 || strcmp(name, ROPE_SHORT) == 0 ||
           strcmp(name, ROPE_LONG) == 0;
}

static int gguf_reader_open(struct format_file *f, const char *path)
{
    struct model_tensor_source source = {MODEL_NAMES_GGUF, f, find_tensor, name_at,
                                         is_ignored};
    struct gguf *g;
    int rc = gguf_open(&g, path);

    if (rc != OK)
        return rc;
    f->state = g;
    f->file_bytes = gguf_file_bytes(g);
    f->config.tied = !gguf_tensor_find(g, "output.weight");
    if ((rc = read_arch(f)) != OK || (rc = read_name(f)) != OK ||
        (rc = check_keys(f)) != OK || (rc = read_sizes(f)) != OK ||
        (rc = read_ids(f)) != OK)
        return rc;
    /* head_dim bounds rope_factor, so it is checked before the factors are read into it
     */
    if (f->config.head_dim < 2 || f->config.head_dim > MODEL_HEAD_DIM_MAX ||
        f->config.rope_dims > f->config.head_dim)
        return err_set(ERR_LIMIT,
                       "%s: head_dim: expected 2 to %d, and as many rotated or fewer, "
                       "found %d and %d",
                       path, MODEL_HEAD_DIM_MAX, f->config.head_dim,
                       model_rope_dims(&f->config));
    if ((rc = read_rope(f)) != OK || (rc = model_config_check(&f->config, path)) != OK)
        return rc;
    return format_fill(f, &source);
}

static void gguf_reader_close(struct format_file *f)
{
    struct gguf *g = f->state;

    gguf_close(&g);
    f->state = NULL;
}

const struct format_reader format_reader_gguf = {
    .name = "gguf",
    .probe = gguf_probe,
    .open = gguf_reader_open,
    .close = gguf_reader_close,
};
