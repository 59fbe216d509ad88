/* Describes a model file, for people and as JSON. Both come from one summary. */
#include "model/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "format/fill.h"
#include "model/cost.h"

/* The cost of a token decoded at these contexts is shown (the weights alone, a short chat, a
 * long one), and prompts of these lengths. Keys and values as the engine keeps them by
 * default. */
static const int64_t ctx_tok[] = {0, 128, 2048}, prompt_tok[] = {128, 512, 2048};
#define N_STEPS 3
#define KV_TYPE KERN_KV_F32

static int64_t tensor_bytes(const struct format_tensor *t)
{
    return t->data ? t->rows * (int64_t)kern_type_size(t->type, t->cols) : 0;
}

/* How many tensors have this role, and the i-th of them. */
static int n_tensors(const struct format_file *f, enum format_role role)
{
    return role < FORMAT_ATTN_NORM ? 1
           : role < FORMAT_N_ROLES ? f->config.n_layers
                                   : f->config.n_layers * f->config.n_experts;
}

static const struct format_tensor *tensor_of(const struct format_file *f,
                                             enum format_role role, int i)
{
    return role < FORMAT_ATTN_NORM ? &f->global[role]
           : role < FORMAT_N_ROLES ? format_layer_tensor(f, i, role)
                                   : format_expert_tensor(f, 0, i, role);
}

static int64_t all_bytes(const struct format_file *f)
{
    int64_t sum = 0;
    int i, role;

    for (role = 0; role < FORMAT_ATTN_NORM; role++)
        sum += tensor_bytes(&f->global[role]);
    for (role = FORMAT_ATTN_NORM; role < FORMAT_ALL_ROLES; role++)
        for (i = 0; i < n_tensors(f, role); i++)
            sum += tensor_bytes(tensor_of(f, role, i));
    return sum;
}

static json_t *stops_json(const struct model_config *c)
{
    json_t *list = json_array();
    int rc = list ? 0 : -1;

    for (int i = 0; rc == 0 && i < c->n_stop; i++)
        rc = json_array_append_new(list, json_integer(c->stop_ids[i]));
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *shape_json(const struct format_tensor *t)
{
    return t->rows > 1 ? json_pack("[I, I]", (json_int_t)t->rows, (json_int_t)t->cols)
                       : json_pack("[I]", (json_int_t)t->cols);
}

/* "q4_k+q6_k" of a set of types. */
static void type_names(char *out, size_t n, unsigned types)
{
    size_t used = 0;

    for (int t = 0; t < KERN_N_TYPES; t++)
        if (types >> t & 1)
            used += (size_t)snprintf(out + used, n - used, "%s%s", used ? "+" : "",
                                     kern_type_name((enum kern_type)t));
}

/* One entry a role: layers and experts have the same shapes, and mostly the same types. `layer`:
 * the first that has it. */
static json_t *tensor_json(const struct format_file *f, enum format_role role, int layer)
{
    const struct format_tensor *one = NULL;
    char name[MODEL_NAME_BYTES], type[64];
    int64_t bytes = 0;
    unsigned types = 0;
    int n = 0;

    for (int i = 0; i < n_tensors(f, role); i++) {
        const struct format_tensor *t = tensor_of(f, role, i);

        if (!t->data)
            continue;
        n++;
        bytes += tensor_bytes(t);
        types |= 1u << t->type;
        one = one ? one : t;
    }
    type_names(type, sizeof(type), types);
    format_tensor_name(f, role, layer, 0, name);
    return json_pack("{s:s, s:i, s:o, s:s, s:I}", "name", name, "count", n, "shape",
                     shape_json(one ? one : tensor_of(f, role, 0)), "type", type, "bytes",
                     (json_int_t)bytes);
}

static json_t *tensors_json(const struct format_file *f)
{
    json_t *list = json_array();
    int role, rc = list ? 0 : -1;

    for (role = 0; rc == 0 && role < FORMAT_ALL_ROLES; role++)
        for (int l = 0; rc == 0 && l <= f->config.n_dense; l += f->config.n_dense + !l) {
            if (!format_role_needed(&f->config, role, l))
                continue;
            rc = json_array_append_new(list, tensor_json(f, role, l));
            break;
        }
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

static struct model_cost cost_of(const struct model_config *c, bool decode, int64_t n_tok)
{
    const struct model_cost_types t = {.weight = c->weight_type, .kv = KV_TYPE};

    return decode ? model_cost_decode(c, t, (double)n_tok, 1)
                  : model_cost_prefill(c, t, n_tok, 0);
}

static json_t *cost_json(const struct model_config *c, bool decode)
{
    json_t *list = json_array();
    int i, rc = list ? 0 : -1;

    for (i = 0; rc == 0 && i < N_STEPS; i++) {
        int64_t n_tok = decode ? ctx_tok[i] : prompt_tok[i];
        struct model_cost x = cost_of(c, decode, n_tok);

        rc = json_array_append_new(
            list,
            json_pack("{s:I, s:I, s:I, s:I, s:I}", decode ? "ctx_tok" : "n_tok",
                      (json_int_t)n_tok, "flop", (json_int_t)x.flop, "weight_bytes",
                      (json_int_t)x.weight_bytes, "kv_bytes", (json_int_t)x.kv_read_bytes,
                      "bytes", (json_int_t)x.read_bytes));
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
        "{s:o, s:s, s:o, s:o, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:i, s:i, s:i, s:i, "
        "s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, "
        "s:b, s:b, s:b, s:b, "
        "s:i, s:i, s:o, s:s, s:I, s:I, s:I, s:o, s:s, s:o, s:o}",
        "path", json_string_lossy(f->path), "format", f->format, "name",
        json_string_lossy(c->name), "arch", json_string_lossy(c->arch), "dim", c->dim,
        "hidden", c->hidden, "n_experts", c->n_experts, "n_active", c->n_active,
        "expert_hidden", c->expert_hidden, "norm_topk", c->norm_topk, "router_sigmoid",
        c->router_sigmoid, "n_dense", c->n_dense, "dense_hidden", c->dense_hidden,
        "latent_dim", c->latent_dim, "value_dim", c->value_dim, "n_layers", c->n_layers,
        "n_heads", c->n_heads, "n_kv_heads", c->n_kv_heads, "head_dim", c->head_dim,
        "vocab", c->vocab, "max_tok", c->max_tok, "rope_theta", (double)c->rope_theta,
        "norm_eps", (double)c->norm_eps, "tied", c->tied, "qkv_bias", c->qkv_bias,
        "o_bias", c->o_bias, "qk_norm", c->qk_norm, "rope_scaled",
        c->rope_factor[model_rope_dims(c) / 2 - 1] != 1 || c->rope_ntk != 0, "bos_id",
        c->bos_id, "eos_id", c->eos_id, "stop_ids", stops_json(c), "weight_type",
        kern_type_name(c->weight_type), "n_params", (json_int_t)model_n_params(c),
        "tensor_bytes", (json_int_t)all_bytes(f), "file_bytes", (json_int_t)f->file_bytes,
        "tensors", tensors_json(f), "kv_type", kern_kv_type_name(KV_TYPE),
        "decoded_token", cost_json(c, true), "prompt", cost_json(c, false));
    return *out ? OK
                : err_set(ERR_NOMEM, "%s: not enough memory to describe it", f->path);
}

static bool is(const json_t *j, const char *key)
{
    return json_is_true(json_object_get(j, key));
}

static void put_mlp(struct text *b, const json_t *j)
{
    if (json_int_at(j, "n_experts") == 0) {
        text_printf(b, "  feed-forward size  %lld\n", json_int_at(j, "hidden"));
        return;
    }
    text_printf(b,
                "  experts            %lld of size %lld; a token has %lld, whose weights "
                "%s\n",
                json_int_at(j, "n_experts"), json_int_at(j, "expert_hidden"),
                json_int_at(j, "n_active"),
                is(j, "norm_topk")        ? "are in proportion"
                : is(j, "router_sigmoid") ? "are sigmoids"
                                          : "are of the softmax over all");
    if (json_int_at(j, "n_dense") > 0)
        text_printf(b, "  without experts    the first %lld, size %lld\n",
                    json_int_at(j, "n_dense"), json_int_at(j, "dense_hidden"));
    if (json_int_at(j, "hidden") > 0)
        text_printf(b, "  shared expert      size %lld\n", json_int_at(j, "hidden"));
}

static void put_shape(struct text *b, const json_t *j)
{
    char path[512], name[256], arch[64]; /* of the file's own words */
    const json_t *stops = json_object_get(j, "stop_ids"), *id;
    size_t i;

    utf8_show(path, sizeof(path), json_str_at(j, "path", ""));
    utf8_show(name, sizeof(name), json_str_at(j, "name", ""));
    utf8_show(arch, sizeof(arch), json_str_at(j, "arch", ""));
    text_printf(b, "%s: %s\n", path, name);
    text_printf(b, "  format             %s, architecture %s\n",
                json_str_at(j, "format", ""), arch);
    text_printf(b, "  layers             %lld\n", json_int_at(j, "n_layers"));
    text_printf(b, "  hidden size        %lld\n", json_int_at(j, "dim"));
    put_mlp(b, j);
    if (json_int_at(j, "latent_dim") > 0)
        text_printf(
            b,
            "  latent attention   one key of %lld, of which %lld are latent; values "
            "of %lld\n",
            json_int_at(j, "head_dim"), json_int_at(j, "latent_dim"),
            json_int_at(j, "value_dim"));
    text_printf(b, "  attention heads    %lld of size %lld; KV heads %lld%s%s\n",
                json_int_at(j, "n_heads"), json_int_at(j, "head_dim"),
                json_int_at(j, "n_kv_heads"),
                is(j, "o_bias")     ? "; Q, K, V and the output have a bias"
                : is(j, "qkv_bias") ? "; Q, K and V have a bias"
                                    : "",
                is(j, "qk_norm") ? "; Q and K are normalised" : "");
    text_printf(b, "  vocabulary         %lld tokens; the output head %s\n",
                json_int_at(j, "vocab"),
                is(j, "tied") ? "is the embedding matrix" : "has its own matrix");
    text_printf(b, "  context length     %lld tokens\n", json_int_at(j, "max_tok"));
    text_printf(b, "  ids that end text ");
    json_array_foreach(stops, i, id)
        text_printf(b, " %lld", (long long)json_integer_value(id));
    text_printf(b, "%s\n", i ? "" : " none");
    text_printf(b, "  RoPE base          %.0f%s\n",
                json_real_value(json_object_get(j, "rope_theta")),
                is(j, "rope_scaled") ? ", scaled frequencies" : "");
    text_printf(b, "  RMSNorm epsilon    %g\n",
                json_real_value(json_object_get(j, "norm_eps")));
    text_printf(b, "  parameters         %lld (%.1f million)\n",
                json_int_at(j, "n_params"), (double)json_int_at(j, "n_params") * 1e-6);
    text_printf(b, "  weights            %s, %.1f MB; file %.1f MB\n",
                json_str_at(j, "weight_type", ""),
                (double)json_int_at(j, "tensor_bytes") * 1e-6,
                (double)json_int_at(j, "file_bytes") * 1e-6);
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
    text_printf(b, "  %-48s %4lld x %-18s %-5s %14lld bytes\n",
                json_str_at(t, "name", ""), json_int_at(t, "count"), dims,
                json_str_at(t, "type", ""), json_int_at(t, "bytes"));
}

/* A row for each step of a list of cost_json(). */
static void put_costs(struct text *b, const json_t *list, const char *n_tok)
{
    const json_t *x;
    size_t i;

    text_printf(b, "  %-10s %12s %14s %14s %14s\n", n_tok, "GFLOP", "MB read",
                "MB weights", "MB KV cache");
    json_array_foreach(list, i, x) text_printf(
        b, "  %10lld %12.3f %14.3f %14.3f %14.3f\n",
        json_int_at(x, json_object_get(x, "n_tok") ? "n_tok" : "ctx_tok"),
        (double)json_int_at(x, "flop") * 1e-9, (double)json_int_at(x, "bytes") * 1e-6,
        (double)json_int_at(x, "weight_bytes") * 1e-6,
        (double)json_int_at(x, "kv_bytes") * 1e-6);
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
    put_shape(&b, j);
    text_printf(&b, "\nTensors: the name in the first layer, how many there are, "
                    "the shape [rows, columns],\nits type, and the bytes of "
                    "all of them.\n");
    json_array_foreach(json_object_get(j, "tensors"), i, t) put_tensor(&b, t);
    text_printf(&b,
                "\nCost of decoding one token, by the tokens it attends to "
                "(weights %s, KV cache %s).\n",
                json_str_at(j, "weight_type", ""), json_str_at(j, "kv_type", ""));
    put_costs(&b, json_object_get(j, "decoded_token"), "context");
    text_printf(&b, "\nCost of processing a prompt in one step.\n");
    put_costs(&b, json_object_get(j, "prompt"), "tokens");
    json_decref(j);
    text_put(&b, "", 1);
    rc = b.rc;
    if (rc == OK)
        *text = b.p, b.p = NULL;
    text_fini(&b);
    return rc;
}
