#include "format/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

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

static const struct {
    const char *name, *arch;
} classes[] = {
    {"LlamaForCausalLM", "llama"},
    {"MistralForCausalLM", "llama"},
    {"Qwen2ForCausalLM", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3"},
};

static int read_arch(struct model_config *c, const json_t *j, const char *path)
{
    const json_t *list = json_object_get(j, "architectures");
    const char *arch = json_string_value(json_array_get(list, 0));
    size_t i;

    if (!arch)
        return err_set(ERR_FORMAT,
                       "%s: architectures: expected a list with a name, found none",
                       path);
    for (i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(arch, classes[i].name) == 0)
            strcpy(c->arch, classes[i].arch);
    if (!c->arch[0])
        return err_set(ERR_UNSUPPORTED,
                       "%s: architectures: expected LlamaForCausalLM, "
                       "MistralForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM, found "
                       "%.60s",
                       path, arch);
    c->qkv_bias = strcmp(c->arch, "qwen2") == 0;
    c->qk_norm = strcmp(c->arch, "qwen3") == 0;
    return OK;
}

static int refuse_true(const json_t *j, const char *key, const char *path)
{
    bool v = false;
    int rc = json_opt_bool(j, key, &v, path);

    if (rc == OK && v)
        return err_set(ERR_UNSUPPORTED, "%s: %s: expected false, found true", path, key);
    return rc;
}

static int refuse_unsupported(const struct model_config *c, const json_t *j,
                              const char *path)
{
    const char *act = "silu";
    double rotary = 1;
    int rc;

    if ((rc = json_opt_str(j, "hidden_act", &act, path)) != OK ||
        (rc = json_opt_f64(j, "partial_rotary_factor", &rotary, path)) != OK ||
        (rc = refuse_true(j, "mlp_bias", path)) != OK ||
        (rc = refuse_true(j, "use_sliding_window", path)) != OK)
        return rc;
    if (!c->qkv_bias && (rc = refuse_true(j, "attention_bias", path)) != OK)
        return rc;
    if (strcmp(act, "silu") != 0)
        return err_set(ERR_UNSUPPORTED, "%s: hidden_act: expected silu, found %.40s",
                       path, act);
    if (rotary != 1)
        return err_set(ERR_UNSUPPORTED, "%s: partial_rotary_factor: expected 1, found %g",
                       path, rotary);
    if (json_object_get(j, "quantization_config"))
        return err_set(
            ERR_UNSUPPORTED,
            "%s: quantization_config: expected weights in F32, F16 or BF16, found "
            "a quantised model",
            path);
    return OK;
}

static int read_sizes(struct model_config *c, const json_t *j, const char *path)
{
    double eps;
    int rc;

    if ((rc = get_int(j, "hidden_size", &c->dim, path)) != OK ||
        (rc = get_int(j, "intermediate_size", &c->hidden, path)) != OK ||
        (rc = get_int(j, "num_hidden_layers", &c->n_layers, path)) != OK ||
        (rc = get_int(j, "num_attention_heads", &c->n_heads, path)) != OK ||
        (rc = get_int(j, "vocab_size", &c->vocab, path)) != OK ||
        (rc = get_int(j, "max_position_embeddings", &c->max_tok, path)) != OK ||
        (rc = json_get_f64(j, "rms_norm_eps", &eps, path)) != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    c->norm_eps = (float)eps;
    c->n_kv_heads = c->n_heads;
    if ((rc = opt_int(j, "num_key_value_heads", &c->n_kv_heads, path)) != OK ||
        (rc = opt_int(j, "head_dim", &c->head_dim, path)) != OK ||
        (rc = json_opt_bool(j, "tie_word_embeddings", &c->tied, path)) != OK)
        return rc;
    if (!json_object_get(j, "head_dim")) {
        if (c->dim % c->n_heads != 0)
            return err_set(
                ERR_FORMAT,
                "%s: num_attention_heads: expected a divisor of hidden_size %d, found %d",
                path, c->dim, c->n_heads);
        c->head_dim = c->dim / c->n_heads;
    }
    return OK;
}

/* An id, or a list of them of which the first counts; outside the vocabulary it means
 * none. */
static int read_id(const json_t *j, const char *key, int vocab, int *out,
                   const char *path)
{
    const json_t *v = json_object_get(j, key);

    if (json_is_array(v))
        v = json_array_get(v, 0);
    if (v && !json_is_integer(v))
        return err_set(
            ERR_FORMAT,
            "%s: %s: expected an integer or a list of them, found something else", path,
            key);
    *out = -1;
    if (v && json_integer_value(v) >= 0 && json_integer_value(v) < vocab)
        *out = (int)json_integer_value(v);
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
    for (i = 0; i < c->head_dim / 2; i++)
        c->rope_factor[i] = (float)factor;
    return OK;
}

/* Older files keep theta at the top and a rope_scaling that may be null; newer ones keep
 * both in rope_parameters. */
static int read_rope(struct model_config *c, const json_t *j, const char *path)
{
    const char *key =
        json_object_get(j, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *r = json_object_get(j, key);
    const char *type = "default";
    char where[800];
    double theta = 10000;
    int i, rc;

    snprintf(where, sizeof(where), "%s: %s", path, key);
    for (i = 0; i < MODEL_HEAD_DIM_MAX / 2; i++)
        c->rope_factor[i] = 1;
    if ((rc = json_opt_f64(j, "rope_theta", &theta, path)) != OK)
        return rc;
    if (r && !json_is_object(r))
        return err_set(ERR_FORMAT, "%s: expected an object, found something else", where);
    if (r && ((rc = json_opt_f64(r, "rope_theta", &theta, where)) != OK ||
              (rc = json_opt_str(r, "type", &type, where)) != OK ||
              (rc = json_opt_str(r, "rope_type", &type, where)) != OK))
        return rc;
    c->rope_theta = (float)theta;
    if (!(c->rope_theta > 0) || c->head_dim > MODEL_HEAD_DIM_MAX)
        return model_config_check(c, path); /* says which */
    if (strcmp(type, "llama3") == 0)
        return scale_llama3(c, r, where);
    if (strcmp(type, "linear") == 0)
        return scale_linear(c, r, where);
    if (strcmp(type, "default") != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: rope_type: expected default, linear or llama3, found %.40s",
                       where, type);
    return OK;
}

int format_hf_config(struct model_config *c, const char *path)
{
    json_t *j = NULL;
    int rc = json_read_file(&j, path, MAX_BYTES);

    if (rc != OK)
        return rc;
    if (!json_is_object(j)) {
        rc = err_set(ERR_FORMAT, "%s: expected an object, found something else", path);
        goto out;
    }
    drop_nulls(j);
    if ((rc = read_arch(c, j, path)) != OK ||
        (rc = refuse_unsupported(c, j, path)) != OK ||
        (rc = read_sizes(c, j, path)) != OK || (rc = read_rope(c, j, path)) != OK ||
        (rc = read_id(j, "bos_token_id", c->vocab, &c->bos_id, path)) != OK ||
        (rc = read_id(j, "eos_token_id", c->vocab, &c->eos_id, path)) != OK)
        goto out;
    rc = model_config_check(c, path);
out:
    json_decref(j);
    return rc;
}
