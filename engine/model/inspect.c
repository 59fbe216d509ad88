/* What a model file holds, for people and as JSON. Both come from one summary. */
#include "model/inspect.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/fill.h"

/* The contexts for which the bytes of a decoded token are given: the weights alone, a
 * short chat, a long one. */
static const int64_t ctx_tok[] = {0, 128, 2048};
#define N_CTX ((int)(sizeof(ctx_tok) / sizeof(ctx_tok[0])))

/* Keys and values are kept as bf16 unless asked otherwise. */
#define KV_ELEM_BYTES 2

static int64_t tensor_bytes(const struct format_tensor *t)
{
    return t->data ? t->rows * t->cols * (int64_t)kern_type_bytes(t->type) : 0;
}

static int64_t all_bytes(const struct format_file *f)
{
    int64_t sum = 0;
    int layer, role;

    for (role = 0; role < FORMAT_ATTN_NORM; role++)
        sum += tensor_bytes(&f->global[role]);
    for (layer = 0; layer < f->config.n_layers; layer++)
        for (role = FORMAT_ATTN_NORM; role < FORMAT_N_ROLES; role++)
            sum += tensor_bytes(format_layer_tensor(f, layer, role));
    return sum;
}

/* What one decoded token reads of the weights as they are stored. */
static int64_t stored_token_bytes(const struct format_file *f)
{
    const struct format_tensor *embed = &f->global[FORMAT_EMBED];
    int64_t bytes = all_bytes(f);

    if (!f->config
             .tied) /* one row of the embedding; tied, all of it is read as the head */
        bytes -= tensor_bytes(embed) / embed->rows * (embed->rows - 1);
    return bytes;
}

static json_t *shape_json(const struct format_tensor *t)
{
    return t->rows > 1 ? json_pack("[I, I]", (json_int_t)t->rows, (json_int_t)t->cols)
                       : json_pack("[I]", (json_int_t)t->cols);
}

/* One entry a role: layers have the same shapes, and mostly the same types. */
static json_t *tensor_json(const struct format_file *f, enum format_role role)
{
    const struct format_tensor *t;
    char name[MODEL_NAME_BYTES];
    int64_t bytes = 0;
    int layer, n = role < FORMAT_ATTN_NORM ? 1 : f->config.n_layers;
    const char *type = NULL;

    for (layer = 0; layer < n; layer++) {
        t = role < FORMAT_ATTN_NORM ? &f->global[role]
                                    : format_layer_tensor(f, layer, role);
        bytes += tensor_bytes(t);
        type = layer && strcmp(type, kern_type_name(t->type)) ? "mixed"
                                                              : kern_type_name(t->type);
    }
    format_role_name(strcmp(f->format, "safetensors") ? MODEL_NAMES_GGUF : MODEL_NAMES_HF,
                     role, 0, name);
    t = role < FORMAT_ATTN_NORM ? &f->global[role] : format_layer_tensor(f, 0, role);
    return json_pack("{s:s, s:i, s:o, s:s, s:I}", "name", name, "count", n, "shape",
                     shape_json(t), "type", type, "bytes", (json_int_t)bytes);
}

static json_t *tensors_json(const struct format_file *f)
{
    json_t *list = json_array();
    int role, rc = list ? 0 : -1;

    for (role = 0; rc == 0 && role < FORMAT_N_ROLES; role++)
        if (format_role_needed(&f->config, role))
            rc = json_array_append_new(list, tensor_json(f, role));
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *token_json(const struct format_file *f)
{
    json_t *list = json_array();
    int64_t weights = stored_token_bytes(f), kv;
    int i, rc = list ? 0 : -1;

    for (i = 0; rc == 0 && i < N_CTX; i++) {
        kv = model_token_kv_bytes(&f->config, ctx_tok[i], KV_ELEM_BYTES);
        rc = json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:I}", "ctx_tok", (json_int_t)ctx_tok[i],
                            "weight_bytes", (json_int_t)weights, "kv_bytes",
                            (json_int_t)kv, "bytes", (json_int_t)(weights + kv)));
    }
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

int model_inspect_json(const struct format_file *f, struct json_t **out)
{
    const struct model_config *c = &f->config;

    *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, "
        "s:b, s:b, "
        "s:i, s:i, s:s, s:I, s:I, s:I, s:o, s:i, s:o}",
        "path", f->path, "format", f->format, "name", c->name, "arch", c->arch, "dim",
        c->dim, "hidden", c->hidden, "n_layers", c->n_layers, "n_heads", c->n_heads,
        "n_kv_heads", c->n_kv_heads, "head_dim", c->head_dim, "vocab", c->vocab,
        "max_tok", c->max_tok, "rope_theta", (double)c->rope_theta, "norm_eps",
        (double)c->norm_eps, "tied", c->tied, "qkv_bias", c->qkv_bias, "rope_scaled",
        c->rope_factor[c->head_dim / 2 - 1] != 1, "bos_id", c->bos_id, "eos_id",
        c->eos_id, "weight_type", kern_type_name(c->weight_type), "n_params",
        (json_int_t)model_n_params(c), "tensor_bytes", (json_int_t)all_bytes(f),
        "file_bytes", (json_int_t)f->file_bytes, "tensors", tensors_json(f),
        "kv_elem_bytes", KV_ELEM_BYTES, "decoded_token", token_json(f));
    return *out ? OK
                : err_set(ERR_NOMEM, "%s: not enough memory to describe it", f->path);
}

static json_int_t get(const json_t *j, const char *key)
{
    return json_integer_value(json_object_get(j, key));
}

static const char *get_str(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

static void put_head(struct text *b, const json_t *j)
{
    double params = (double)get(j, "n_params");

    text_printf(b, "%s: %s, format %s, architecture %s\n", get_str(j, "path"),
                get_str(j, "name"), get_str(j, "format"), get_str(j, "arch"));
    text_printf(b, "  layers %lld, dim %lld, hidden %lld, vocabulary %lld%s\n",
                get(j, "n_layers"), get(j, "dim"), get(j, "hidden"), get(j, "vocab"),
                json_is_true(json_object_get(j, "tied")) ? ", head tied to embedding"
                                                         : "");
    text_printf(b, "  heads %lld of %lld, KV heads %lld%s\n", get(j, "n_heads"),
                get(j, "head_dim"), get(j, "n_kv_heads"),
                json_is_true(json_object_get(j, "qkv_bias")) ? ", QKV bias" : "");
    text_printf(b, "  context %lld, rope theta %.0f%s, norm eps %g\n", get(j, "max_tok"),
                json_real_value(json_object_get(j, "rope_theta")),
                json_is_true(json_object_get(j, "rope_scaled")) ? " (scaled)" : "",
                json_real_value(json_object_get(j, "norm_eps")));
    text_printf(
        b, "  parameters %lld (%.3f G), weights %s, tensors %.3f GB, file %.3f GB\n",
        get(j, "n_params"), params * 1e-9, get_str(j, "weight_type"),
        (double)get(j, "tensor_bytes") * 1e-9, (double)get(j, "file_bytes") * 1e-9);
}

static void put_tensor(struct text *b, const json_t *t)
{
    const json_t *shape = json_object_get(t, "shape");
    char dims[48];

    if (json_array_size(shape) == 2)
        snprintf(dims, sizeof(dims), "[%lld, %lld]",
                 (long long)json_integer_value(json_array_get(shape, 0)),
                 (long long)json_integer_value(json_array_get(shape, 1)));
    else
        snprintf(dims, sizeof(dims), "[%lld]",
                 (long long)json_integer_value(json_array_get(shape, 0)));
    text_printf(b, "  %-48s %4lld x %-18s %-5s %14lld bytes\n", get_str(t, "name"),
                get(t, "count"), dims, get_str(t, "type"), get(t, "bytes"));
}

int model_inspect_text(const struct format_file *f, char **text)
{
    struct text b = {0};
    json_t *j = NULL, *t;
    size_t i;
    int rc = model_inspect_json(f, &j);

    *text = NULL;
    if (rc != OK)
        return rc;
    put_head(&b, j);
    text_printf(&b, "tensors (name in layer 0, layers x shape, type, bytes of all)\n");
    json_array_foreach(json_object_get(j, "tensors"), i, t) put_tensor(&b, t);
    text_printf(&b, "bytes read per decoded token (keys and values of %lld bytes)\n",
                get(j, "kv_elem_bytes"));
    json_array_foreach(json_object_get(j, "decoded_token"), i, t) text_printf(
        &b, "  at context %6lld %14lld  (weights %lld, KV %lld)\n", get(t, "ctx_tok"),
        get(t, "bytes"), get(t, "weight_bytes"), get(t, "kv_bytes"));
    json_decref(j);
    text_put(&b, "", 1);
    rc = b.rc;
    if (rc == OK)
        *text = b.p, b.p = NULL;
    text_fini(&b);
    return rc;
}
