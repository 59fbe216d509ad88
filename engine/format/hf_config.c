#include "format/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "format/family.h"
#include "format/keys.h"
#include "format/support.h"

#define MAX_BYTES (1u << 20) /* real ones have about 1 KB */

/* In these files null means absent. */
static void drop_nulls(json_t *obj)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(obj, next, key, v)
    {
        if (json_is_null(v))
            json_object_del(obj, key);
        else if (json_is_object(v))
            drop_nulls(v);
    }
}

static int get_int(const json_t *j, const char *key, int *out, const char *path)
{
    int64_t v;
    int rc = json_get_int(j, key, 1, INT32_MAX, &v, path);

    if (rc == OK)
        *out = (int)v;
    return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
}

static int opt_int(const json_t *j, const char *key, int *out, const char *path)
{
    return json_object_get(j, key) ? get_int(j, key, out, path) : OK;
}

/* A number of layers, which may be 0. */
static int opt_layer(const json_t *j, const char *key, int *out, const char *path)
{
    int64_t v = 0;

    if (json_object_get(j, key))
        TRY(json_get_int(j, key, 0, INT32_MAX, &v, path));
    *out = (int)v;
    return OK;
}

static int read_family(const struct format_family **out, const json_t *j,
                       const char *path)
{
    const json_t *list = json_object_get(j, "architectures");
    const char *class = json_string_value(json_array_get(list, 0));
    const char *type = json_string_value(json_object_get(j, "model_type"));

    *out = NULL;
    if (!class)
        return err_set(ERR_FORMAT,
                       "%s: architectures: expected a list with a name, found none",
                       path);
    *out = format_family_of_class(class);
    if (!*out && type)
        TRY(format_refuse(path, "model_type", type));
    if (*out && type && strcmp(type, (*out)->hf_type) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: model_type: expected %s of a %s, found %.60s", path,
                       (*out)->hf_type, class, type);
    if (*out && (*out)->gguf_only)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: architectures: expected %s in a GGUF file, found a folder: %s", path,
            class, (*out)->gguf_only);
    if (*out)
        return OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s: architectures: expected a class that `sandwich model "
                   "explain-support` lists, found %.60s",
                   path, class);
}

static int refuse_true(const json_t *j, const char *key, const char *path)
{
    bool v = false;
    int rc = json_opt_bool(j, key, &v, path);

    if (rc == OK && v)
        return err_set(ERR_UNSUPPORTED, "%s: %s: expected false, found true", path, key);
    return rc;
}

/* The value of a key as format_key_check() wants it. */
static double key_value(const json_t *v)
{
    return json_is_number(v)    ? json_number_value(v)
           : json_is_boolean(v) ? json_is_true(v)
                                : NAN;
}

static int check_keys(enum format_keys of, const struct format_family *f, const json_t *j,
                      const char *where)
{
    const char *key;
    const json_t *v;
    int rc = OK;

    json_object_foreach((json_t *)j, key, v)
    {
        rc = format_key_check(of, f, key, key_value(v), where);
        if (rc != OK)
            break;
    }
    return rc;
}

static int refuse_unsupported(const struct format_family *f, const json_t *j,
                              const char *path)
{
    const char *const *names = format_activation_names[f->activation];
    const char *act = names[0];
    int rc;

    if ((rc = check_keys(FORMAT_KEYS_CONFIG, f, j, path)) != OK ||
        (rc = json_opt_str(j, "hidden_act", &act, path)) != OK ||
        (rc = json_opt_str(j, "hidden_activation", &act, path)) != OK)
        return rc;
    if (f->gemma &&
        strcmp(act, "gelu") == 0) /* the first files; transformers takes tanh */
        act = names[0];
    if (f->bias_key && (rc = refuse_true(j, "attention_bias", path)) != OK)
        return rc;
    if (!f->qkv_bias && !f->attention_bias &&
        (rc = refuse_true(j, "attention_bias", path)) != OK)
        return rc;
    if (strcmp(act, names[0]) != 0 && (!names[1] || strcmp(act, names[1]) != 0))
        return err_set(ERR_UNSUPPORTED, "%s: hidden_act: expected %s, found %.40s", path,
                       names[0], act);
    return OK;
}

static int read_router(struct model_config *c, const struct format_family *f,
                       const json_t *j, const char *path)
{
    const char *other = f->router_sigmoid ? "softmax" : "sigmoid", *scoring = "";

    TRY(json_opt_str(j, "scoring_func", &scoring, path));
    if (strcmp(scoring, other) == 0)
        return err_set(ERR_UNSUPPORTED, "%s: scoring_func: expected %s of a %s, found %s",
                       path, f->router_sigmoid ? "sigmoid" : "softmax", f->hf_class,
                       other);
    TRY(opt_int(j, "n_group", &c->n_groups, path));
    TRY(opt_int(j, "topk_group", &c->n_active_groups, path));
    if (c->n_groups <= 1)
        c->n_groups = c->n_active_groups = 0;
    return OK;
}

/* The layers without experts, which are the first. */
static int read_dense(struct model_config *c, const struct format_expert_keys *keys,
                      const json_t *j, const char *path)
{
    const json_t *list = json_object_get(j, "mlp_only_layers");
    int last = c->n_layers - 1;

    if (json_array_size(list) > 0 || (list && !json_is_array(list)))
        return err_set(ERR_UNSUPPORTED,
                       "%s: mlp_only_layers: expected an empty list, found another value",
                       path);
    TRY(opt_int(j, "moe_layer_end_index", &last, path));
    if (last != -1 && last != c->n_layers - 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: moe_layer_end_index: expected the last layer, %d, found %d",
                       path, c->n_layers - 1, last);
    if (keys->n_dense)
        TRY(opt_int(j, keys->n_dense, &c->n_dense, path));
    if (c->n_dense == 0)
        c->dense_hidden = 0;
    return OK;
}

/* Where experts have a size of their own, intermediate_size is that of layers without. */
static int read_experts(struct model_config *c, const struct format_family *f,
                        const json_t *j, const char *path)
{
    const struct format_expert_keys *keys = f->experts;
    int n_shared = 0;

    if (!keys)
        return OK;
    c->norm_topk = keys->norm_topk ? false : f->norm_topk;
    c->expert_hidden = c->dense_hidden = c->hidden;
    c->hidden = 0;
    TRY(get_int(j, keys->n_experts, &c->n_experts, path));
    TRY(get_int(j, keys->n_active ? keys->n_active : "num_experts_per_tok", &c->n_active,
                path));
    if (keys->expert_hidden)
        TRY(get_int(j, keys->expert_hidden, &c->expert_hidden, path));
    if (keys->norm_topk)
        TRY(json_opt_bool(j, keys->norm_topk, &c->norm_topk, path));
    TRY(read_dense(c, keys, j, path));
    TRY(read_router(c, f, j, path));
    if (keys->shared_hidden)
        return get_int(j, keys->shared_hidden, &c->hidden, path);
    if (keys->n_shared)
        TRY(opt_int(j, keys->n_shared, &n_shared, path));
    if (n_shared < 0 || n_shared > MODEL_MAX_EXPERTS || c->expert_hidden < 0 ||
        c->expert_hidden > INT32_MAX / MODEL_MAX_EXPERTS)
        return err_set(ERR_FORMAT, "%s: %s: expected 0 to %d, found %d", path,
                       keys->n_shared, MODEL_MAX_EXPERTS, n_shared);
    c->hidden = n_shared * c->expert_hidden;
    return OK;
}

static int read_sizes(struct model_config *c, const struct format_family *f,
                      const json_t *j, const char *path)
{
    const char *eps_key = f->eps_key      ? f->eps_key
                          : f->layer_norm ? "layer_norm_eps"
                                          : "rms_norm_eps";
    double eps;
    int rc;

    if ((rc = get_int(j, "hidden_size", &c->dim, path)) != OK ||
        (rc = get_int(j, "intermediate_size", &c->hidden, path)) != OK ||
        (rc = get_int(j, "num_hidden_layers", &c->n_layers, path)) != OK ||
        (rc = get_int(j, "num_attention_heads", &c->n_heads, path)) != OK ||
        (rc = get_int(j, "vocab_size", &c->vocab, path)) != OK ||
        (rc = get_int(j, "max_position_embeddings", &c->max_tok, path)) != OK ||
        (rc = json_get_f64(j, eps_key, &eps, path)) != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    if (f->attention_bias) {
        c->o_bias = f->hf_bias;
        TRY(json_opt_bool(j, f->bias_key ? f->bias_key : "attention_bias", &c->o_bias,
                          path));
        c->qkv_bias |= c->o_bias;
        c->mlp_bias = c->no_gate && c->o_bias;
        c->o_bias &= !f->no_o_bias;
    }
    if (f->qk_norm_key)
        TRY(json_opt_bool(j, f->qk_norm_key, &c->qk_norm, path));
    TRY(opt_int(j, "num_nextn_predict_layers", &c->n_ahead, path));
    c->tied = f->hf_tied;
    c->norm_eps = (float)eps;
    c->n_kv_heads = c->n_heads;
    if ((rc = opt_int(j, "num_key_value_heads", &c->n_kv_heads, path)) != OK ||
        (rc = opt_int(j, "head_dim", &c->head_dim, path)) != OK ||
        (rc = json_opt_bool(j, "tie_word_embeddings", &c->tied, path)) != OK)
        return rc;
    if (f->latent) {
        TRY(get_int(j, "kv_lora_rank", &c->latent_dim, path));
        if (!json_is_null(json_object_get(j, "q_lora_rank")))
            TRY(opt_int(j, "q_lora_rank", &c->q_rank, path));
        TRY(get_int(j, "qk_nope_head_dim", &c->nope_dim, path));
        TRY(get_int(j, "qk_rope_head_dim", &c->rope_dims, path));
        TRY(get_int(j, "v_head_dim", &c->value_dim, path));
        if (c->latent_dim < 1 || c->rope_dims < 2 || c->latent_dim > MODEL_HEAD_DIM_MAX ||
            c->rope_dims > MODEL_HEAD_DIM_MAX || c->nope_dim < 1 || c->nope_dim > 4096)
            return err_set(
                ERR_FORMAT,
                "%s: kv_lora_rank: expected sizes of latent attention, found %d, "
                "%d of a head that are rotated and %d that are not",
                path, c->latent_dim, c->rope_dims, c->nope_dim);
        model_config_latent(c, 0, 0);
    } else if (!json_object_get(j, "head_dim")) {
        if (c->dim % c->n_heads != 0)
            return err_set(
                ERR_FORMAT,
                "%s: num_attention_heads: expected a divisor of hidden_size %d, found %d",
                path, c->dim, c->n_heads);
        c->head_dim = c->dim / c->n_heads;
    }
    return read_experts(c, f, j, path);
}

static int read_numbers(struct model_config *c, const struct format_family *f,
                        const json_t *j, const char *path)
{
    for (int i = 0; i < FORMAT_N_NUMBERS; i++) {
        double v = 0;

        if (!(f->numbers >> i & 1))
            continue;
        TRY(json_opt_f64(j, format_numbers[i].hf, &v, path));
        *format_number_of(c, i) = format_number_in_file(i, (float)v);
    }
    format_family_derive(f, c);
    if (f->gemma) {
        double scalar = c->head_dim, theta = (double)c->rope_local_theta;

        TRY(json_opt_f64(j, "query_pre_attn_scalar", &scalar, path));
        if (scalar != c->head_dim)
            c->attn_scale = (float)(1 / sqrt(scalar));
        TRY(json_opt_f64(j, "rope_local_base_freq", &theta, path));
        c->rope_local_theta = (float)theta;
    }
    return OK;
}

/* Which layers rotate: a list with 1 for each that does, or each n-th does not. */
static int read_no_rope(struct model_config *c, const json_t *j, const char *path)
{
    const json_t *list = json_object_get(j, "no_rope_layers"), *v;
    int every = 0;
    size_t i;

    TRY(opt_int(j, "no_rope_layer_interval", &every, path));
    if (list || every > 0)
        memset(c->layer_flags, 0, sizeof(c->layer_flags));
    if (!list) {
        model_config_flag(c, MODEL_LAYER_NO_ROPE, every);
        return OK;
    }
    if (json_array_size(list) != (size_t)c->n_layers || c->n_layers > MODEL_MAX_LAYERS)
        return err_set(ERR_FORMAT,
                       "%s: no_rope_layers: expected a list of %d numbers, found another",
                       path, c->n_layers);
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v))
            return err_set(ERR_FORMAT,
                           "%s: no_rope_layers: layer %zu: expected 0 or 1, found "
                           "something else",
                           path, i);
        if (json_integer_value(v) == 0)
            c->layer_flags[i] |= MODEL_LAYER_NO_ROPE;
    }
    return OK;
}

/* An id or a list of them, which all end a text where `stop`. *out: the first; an id
 * outside the vocabulary, or none, gives -1. */
static int read_id(struct model_config *c, const json_t *j, const char *key, bool stop,
                   int *out, const char *path)
{
    const json_t *v = json_object_get(j, key), *one;
    size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    int rc = OK;

    *out = -1;
    for (size_t i = 0; rc == OK && i < n; i++) {
        one = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(one))
            return err_set(
                ERR_FORMAT,
                "%s: %s: expected an integer or a list of them, found something else",
                path, key);
        if (i == 0 && json_integer_value(one) >= 0 && json_integer_value(one) < c->vocab)
            *out = (int)json_integer_value(one);
        if (stop)
            rc = model_config_stop(c, json_integer_value(one), path);
    }
    return rc;
}

int format_hf_generation_config(struct model_config *c, const char *path)
{
    json_t *j = NULL;
    int first, rc = json_read_file(&j, path, MAX_BYTES);

    if (rc == ERR_NOTFOUND)
        return OK;
    if (rc != OK)
        return rc;
    if (json_is_object(j)) {
        drop_nulls(j);
        rc = read_id(c, j, "eos_token_id", true, &first, path);
    } else {
        rc = err_set(ERR_FORMAT, "%s: expected an object, found something else", path);
    }
    json_decref(j);
    return rc;
}

/* `unlimited`: the file has null in place of a sliding_window. */
static int read_window(struct model_config *c, const struct format_family *f,
                       const json_t *j, bool unlimited, const char *path)
{
    const json_t *types = json_object_get(j, "layer_types"), *type;
    bool always = f->window == FORMAT_WINDOW_ALWAYS, use = always;
    int window = unlimited ? 0 : f->window_default, every = f->window_every, rc;
    int first = 0; /* layer with a window, where only those from it on have one */
    size_t i;

    json_array_foreach(types, i, type)
    {
        const char *s = json_string_value(type);

        if (!s || (strcmp(s, "full_attention") && strcmp(s, "sliding_attention")))
            return err_set(ERR_UNSUPPORTED,
                           "%s: layer_types: layer %zu: expected full_attention or "
                           "sliding_attention, found %.40s",
                           path, i, s ? s : "something else");
        if (i < MODEL_MAX_LAYERS && s[0] == 's')
            c->layer_flags[i] |= MODEL_LAYER_WINDOW;
    }
    if (types && json_array_size(types) != (size_t)c->n_layers)
        return err_set(ERR_FORMAT, "%s: layer_types: expected %d layers, found %zu", path,
                       c->n_layers, json_array_size(types));
    if (!always && (rc = json_opt_bool(j, "use_sliding_window", &use, path)) != OK)
        return rc;
    if ((rc = opt_int(j, "sliding_window", &window, path)) != OK ||
        (rc = opt_int(j, "sliding_window_pattern", &every, path)) != OK ||
        (!always && (rc = opt_layer(j, "max_window_layers", &first, path)) != OK))
        return rc;
    if (!use) {
        model_config_window(c, 0, 0, types != NULL);
        return OK;
    }
    if (!always && (window == 0 || f->window == FORMAT_WINDOW_NEVER))
        return err_set(ERR_UNSUPPORTED,
                       "%s: use_sliding_window: expected false, or a sliding_window in a "
                       "family that has one, found true",
                       path);
    format_family_window(f, c, window, every, types != NULL);
    for (i = 0; !types && (int)i < first && i < MODEL_MAX_LAYERS; i++)
        c->layer_flags[i] &= (uint8_t)~MODEL_LAYER_WINDOW;
    return OK;
}

static int scale_llama3(struct model_config *c, const json_t *r, const char *where)
{
    double factor, low, high, original;
    int rc;

    if ((rc = json_get_f64(r, "factor", &factor, where)) != OK ||
        (rc = json_get_f64(r, "low_freq_factor", &low, where)) != OK ||
        (rc = json_get_f64(r, "high_freq_factor", &high, where)) != OK ||
        (rc = json_get_f64(r, "original_max_position_embeddings", &original, where)) !=
            OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    if (!(factor > 0) || !(low > 0) || !(high > low) || !(original >= 1))
        return err_set(
            ERR_FORMAT,
            "%s: expected factor > 0, 0 < low_freq_factor < high_freq_factor and an "
            "original length of at least 1, found %g, %g, %g, %g",
            where, factor, low, high, original);
    model_config_rope_llama3(c, factor, low, high, original);
    return OK;
}

static int scale_linear(struct model_config *c, const json_t *r, const char *where)
{
    double factor;
    int i, rc = json_get_f64(r, "factor", &factor, where);

    if (rc != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    for (i = 0; i < model_rope_dims(c) / 2; i++)
        c->rope_factor[i] = (float)factor;
    return OK;
}

static int read_factors(float *out, int n, const json_t *r, const char *key,
                        const char *where)
{
    const json_t *list = json_object_get(r, key), *v;
    size_t i;

    if (json_array_size(list) != (size_t)n)
        return err_set(ERR_FORMAT, "%s: %s: expected a list of %d numbers, found another",
                       where, key, n);
    json_array_foreach(list, i, v) out[i] =
        (float)json_number_value(v); /* 0 is refused by model_config_check() */
    return OK;
}

/* Phi-3: one list of divisors for contexts up to the original length, another for longer ones. */
static int scale_long(struct model_config *c, const json_t *top, const json_t *r,
                      const char *where)
{
    int n = model_rope_dims(c) / 2, original = 0;
    double length = 0;

    TRY(opt_int(top, "original_max_position_embeddings", &original, where));
    TRY(opt_int(r, "original_max_position_embeddings", &original, where));
    if (original < 2)
        return err_set(ERR_FORMAT,
                       "%s: original_max_position_embeddings: expected at least 2, found "
                       "%d",
                       where, original);
    TRY(read_factors(c->rope_factor, n, r, "short_factor", where));
    TRY(read_factors(c->rope_long, n, r, "long_factor", where));
    c->rope_short_tok = original;
    if (c->max_tok > original)
        length = sqrt(1 + log((double)c->max_tok / original) / log((double)original));
    TRY(json_opt_f64(r, "attention_factor", &length, where));
    c->rope_length = (float)length;
    return OK;
}

/* The context that a model was trained for before its rotation was scaled; max_position_embeddings
 * where the file does not say. The scaled one is `factor` times as long at least. */
static int read_original(struct model_config *c, const json_t *top, const json_t *r,
                         double factor, int *original, const char *where)
{
    *original = c->max_tok;
    TRY(opt_int(top, "original_max_position_embeddings", original, where));
    TRY(opt_int(r, "original_max_position_embeddings", original, where));
    if (!(factor >= 1) || factor > 1e6)
        return err_set(ERR_FORMAT, "%s: factor: expected 1 to 1e6, found %g", where,
                       factor);
    if (*original * factor > c->max_tok)
        c->max_tok = (int)fmin(*original * factor, INT32_MAX);
    return OK;
}

static int scale_yarn(struct model_config *c, const json_t *top, const json_t *r,
                      const char *where)
{
    double factor, fast = 32, slow = 1, mscale = 0, all = 0, length;
    bool whole = true;
    int original, rc = json_get_f64(r, "factor", &factor, where);

    if (rc != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    TRY(read_original(c, top, r, factor, &original, where));
    TRY(json_opt_f64(r, "beta_fast", &fast, where));
    TRY(json_opt_f64(r, "beta_slow", &slow, where));
    TRY(json_opt_f64(r, "mscale", &mscale, where));
    TRY(json_opt_f64(r, "mscale_all_dim", &all, where));
    TRY(json_opt_bool(r, "truncate", &whole, where));
    if (!(slow > 0) || !(fast > slow))
        return err_set(ERR_FORMAT,
                       "%s: expected 0 < beta_slow < beta_fast, found %g and %g", where,
                       slow, fast);
    length = mscale != 0 && all != 0 ? model_config_yarn_length(factor, mscale) /
                                           model_config_yarn_length(factor, all)
                                     : model_config_yarn_length(factor, 1);
    TRY(json_opt_f64(r, "attention_factor", &length, where));
    model_config_rope_yarn(c, factor, fast, slow, original, whole);
    c->rope_length = (float)length;
    if (c->latent_dim > 0) {
        c->rope_length = length == 1 ? 0 : (float)length;
        model_config_latent(c, factor, all);
    }
    return OK;
}

/* Files leave the base to the length of the text so far. Here it is that of the context that the
 * model is opened for: keys that were rotated stay right. */
static int scale_dynamic(struct model_config *c, const json_t *top, const json_t *r,
                         const char *where)
{
    double factor;
    int original, rc = json_get_f64(r, "factor", &factor, where);

    if (rc != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    TRY(read_original(c, top, r, factor, &original, where));
    c->rope_short_tok = original;
    c->rope_ntk = (float)factor;
    for (int i = 0; i < model_rope_dims(c) / 2; i++)
        c->rope_long[i] = 1;
    return OK;
}

static int scale(struct model_config *c, const json_t *top, const json_t *r,
                 const char *type, const char *where)
{
    static const char *const of_yarn[] = {"beta_fast", "beta_slow", "mscale",
                                          "mscale_all_dim", "truncate"};
    double length = 1;

    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return scale_long(c, top, r, where);
    if (strcmp(type, "yarn") == 0)
        return scale_yarn(c, top, r, where);
    TRY(json_opt_f64(r, "attention_factor", &length, where));
    if (length != 1)
        return err_set(ERR_UNSUPPORTED, "%s: attention_factor: expected 1, found %g",
                       where, length);
    for (int i = 0; i < 5; i++)
        if (json_object_get(r, of_yarn[i]))
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s: expected with it rope_type yarn, found %.40s", where,
                           of_yarn[i], type);
    if (json_object_get(r, "short_factor") || json_object_get(r, "long_factor"))
        return err_set(ERR_UNSUPPORTED,
                       "%s: rope_type: expected longrope, whose lists there are, found "
                       "%.40s",
                       where, type);
    if (strcmp(type, "llama3") == 0)
        return scale_llama3(c, r, where);
    if (strcmp(type, "linear") == 0)
        return scale_linear(c, r, where);
    if (strcmp(type, "dynamic") == 0)
        return scale_dynamic(c, top, r, where);
    if (strcmp(type, "default") != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: rope_type: expected default, linear, llama3, yarn, dynamic "
                       "or longrope, found %.40s",
                       where, type);
    if (json_object_get(r, "factor"))
        return err_set(ERR_UNSUPPORTED,
                       "%s: factor: expected with it a rope_type that scales, found "
                       "%s",
                       where,
                       json_object_get(r, "rope_type") ? "default" : "no such type");
    return OK;
}

/* One of the objects with the parameters of rotary embeddings. *theta: the base so far,
 * which the object must confirm if it is `given`. */
static int read_rope_object(struct model_config *c, const json_t *top, const json_t *r,
                            double *theta, bool given, const char *where)
{
    const char *old = NULL, *type = NULL, *key;
    double own = *theta;
    const json_t *v;
    int rc;

    if (!json_is_object(r))
        return err_set(ERR_FORMAT, "%s: expected an object, found something else", where);
    json_object_foreach((json_t *)r, key, v)
    {
        if (json_is_object(v))
            return err_set(
                ERR_UNSUPPORTED,
                "%s: %.60s: expected the same parameters for all layers, found "
                "some per type of layer",
                where, key);
    }
    if ((rc = json_opt_f64(r, "rope_theta", &own, where)) != OK ||
        (rc = json_opt_str(r, "type", &old, where)) != OK ||
        (rc = json_opt_str(r, "rope_type", &type, where)) != OK)
        return rc;
    if (old && type && strcmp(old, type) != 0)
        return err_set(ERR_FORMAT,
                       "%s: type: expected %.40s as rope_type says, found %.40s", where,
                       type, old);
    if (given && own != *theta)
        return err_set(ERR_FORMAT,
                       "%s: rope_theta: expected %g as elsewhere in the file, found %g",
                       where, *theta, own);
    *theta = own;
    c->rope_theta = (float)own;
    if (!(c->rope_theta > 0))
        return model_config_check(c, where); /* says so */
    type = type ? type : old ? old : "default";
    rc = scale(c, top, r, type, where);
    return rc == OK ? check_keys(FORMAT_KEYS_ROPE, NULL, r, where) : rc;
}

static int read_rotary_part(struct model_config *c, const struct format_family *f,
                            const json_t *j, const char *path)
{
    static const char *const objects[] = {"rope_parameters", "rope_scaling"};
    double frac = f->rotary_frac > 0 ? f->rotary_frac : 1;

    if (c->latent_dim > 0)
        return OK;
    TRY(json_opt_f64(j, "partial_rotary_factor", &frac, path));
    for (int i = 0; i < 2; i++)
        if (json_is_object(json_object_get(j, objects[i])))
            TRY(json_opt_f64(json_object_get(j, objects[i]), "partial_rotary_factor",
                             &frac, path));
    if (!(frac > 0) || frac > 1 || (int)(c->head_dim * frac) < 2)
        return err_set(ERR_FORMAT,
                       "%s: partial_rotary_factor: expected a part of head_dim %d, found "
                       "%g",
                       path, c->head_dim, frac);
    c->rope_dims = frac < 1 ? (int)(c->head_dim * frac) : 0;
    return OK;
}

/* Older files keep theta at the top and a rope_scaling that may be null; newer ones keep
 * both in rope_parameters. Where a file has both they must mean the same. */
static int read_rope(struct model_config *c, const struct format_family *f,
                     const json_t *j, const char *path)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    bool given = json_object_get(j, "rope_theta"), seen = false;
    double theta = 10000;
    int rc = json_opt_f64(j, "rope_theta", &theta, path);

    for (int i = 0; i < MODEL_HEAD_DIM_MAX / 2; i++)
        c->rope_factor[i] = 1;
    c->rope_theta = (float)theta;
    if (rc != OK || !(c->rope_theta > 0) || c->head_dim > MODEL_HEAD_DIM_MAX)
        return rc != OK ? rc : model_config_check(c, path); /* says which */
    TRY(read_rotary_part(c, f, j, path));
    for (int i = 0; i < 2; i++) {
        const json_t *r = json_object_get(j, keys[i]);
        struct model_config x = *c;
        char where[800];

        if (!r)
            continue;
        snprintf(where, sizeof(where), "%s: %s", path, keys[i]);
        for (int k = 0; k < MODEL_HEAD_DIM_MAX / 2; k++)
            x.rope_factor[k] = 1;
        rc = read_rope_object(&x, j, r, &theta, given, where);
        if (rc == OK && seen &&
            memcmp(x.rope_factor, c->rope_factor, sizeof(x.rope_factor)) != 0)
            rc = err_set(ERR_FORMAT, "%s: expected the scaling of %s, found another",
                         where, keys[0]);
        if (rc != OK)
            return rc;
        *c = x;
        given = seen = true;
    }
    return OK;
}

int format_hf_config(struct model_config *c, const char *path)
{
    json_t *j = NULL;
    int rc = json_read_file(&j, path, MAX_BYTES);
    const struct format_family *f;
    bool no_window;

    if (rc != OK)
        return rc;
    if (!json_is_object(j)) {
        rc = err_set(ERR_FORMAT, "%s: expected an object, found something else", path);
        goto out;
    }
    no_window = json_is_null(json_object_get(j, "sliding_window"));
    drop_nulls(j);
    if ((rc = read_family(&f, j, path)) != OK)
        goto out;
    format_family_apply(f, c);
    if ((rc = refuse_unsupported(f, j, path)) != OK ||
        (rc = read_sizes(c, f, j, path)) != OK || (rc = read_rope(c, f, j, path)) != OK ||
        (rc = read_numbers(c, f, j, path)) != OK ||
        (rc = read_no_rope(c, j, path)) != OK ||
        (rc = read_window(c, f, j, no_window, path)) != OK ||
        (rc = read_id(c, j, "bos_token_id", false, &c->bos_id, path)) != OK ||
        (rc = read_id(c, j, "eos_token_id", true, &c->eos_id, path)) != OK)
        goto out;
    rc = model_config_check(c, path);
out:
    json_decref(j);
    return rc;
}
