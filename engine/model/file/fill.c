#include "model/file/fill.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const struct {
    const char *gguf, *hf;
} names[MODEL_N_ROLES] = {
    [MODEL_EMBED] = {"token_embd.weight", "model.embed_tokens.weight"},
    [MODEL_HEAD] = {"output.weight", "lm_head.weight"},
    [MODEL_OUT_NORM] = {"output_norm.weight", "model.norm.weight"},
    [MODEL_ATTN_NORM] = {"attn_norm.weight", "input_layernorm.weight"},
    [MODEL_Q] = {"attn_q.weight", "self_attn.q_proj.weight"},
    [MODEL_K] = {"attn_k.weight", "self_attn.k_proj.weight"},
    [MODEL_V] = {"attn_v.weight", "self_attn.v_proj.weight"},
    [MODEL_O] = {"attn_output.weight", "self_attn.o_proj.weight"},
    [MODEL_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias"},
    [MODEL_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias"},
    [MODEL_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias"},
    [MODEL_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight"},
    [MODEL_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight"},
    [MODEL_UP] = {"ffn_up.weight", "mlp.up_proj.weight"},
    [MODEL_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight"},
};

void model_role_name(enum model_naming naming, enum model_role role, int layer,
                     char out[MODEL_NAME_BYTES])
{
    const char *stem = naming == MODEL_NAMES_HF ? names[role].hf : names[role].gguf;

    if (role < MODEL_ATTN_NORM)
        snprintf(out, MODEL_NAME_BYTES, "%s", stem);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s.%d.%s",
                 naming == MODEL_NAMES_HF ? "model.layers" : "blk", layer, stem);
}

void model_role_shape(const struct model_config *c, enum model_role role, int64_t *rows,
                      int64_t *cols)
{
    int64_t q = (int64_t)c->n_heads * c->head_dim,
            kv = (int64_t)c->n_kv_heads * c->head_dim;

    *rows = 1;
    *cols = c->dim;
    switch (role) {
    case MODEL_EMBED:
    case MODEL_HEAD:
        *rows = c->vocab;
        break;
    case MODEL_Q:
        *rows = q;
        break;
    case MODEL_K:
    case MODEL_V:
        *rows = kv;
        break;
    case MODEL_O:
        *rows = c->dim;
        *cols = q;
        break;
    case MODEL_Q_BIAS:
        *cols = q;
        break;
    case MODEL_K_BIAS:
    case MODEL_V_BIAS:
        *cols = kv;
        break;
    case MODEL_GATE:
    case MODEL_UP:
        *rows = c->hidden;
        break;
    case MODEL_DOWN:
        *rows = c->dim;
        *cols = c->hidden;
        break;
    default: /* norms: one row of dim */
        break;
    }
}

bool model_role_needed(const struct model_config *c, enum model_role role)
{
    if (role == MODEL_HEAD)
        return !c->tied;
    if (role == MODEL_Q_BIAS || role == MODEL_K_BIAS || role == MODEL_V_BIAS)
        return c->qkv_bias;
    return true;
}

static struct model_tensor *slot(const struct model_file *f, enum model_role role,
                                 int layer)
{
    return role < MODEL_ATTN_NORM ? (struct model_tensor *)&f->global[role]
                                  : &f->layer[layer][role - MODEL_ATTN_NORM];
}

/* The i-th (role, layer) of a model, globals first; false after the last. */
static bool role_at(const struct model_config *c, int64_t i, enum model_role *role,
                    int *layer)
{
    const int per_layer = MODEL_N_ROLES - MODEL_ATTN_NORM;

    *layer = 0;
    *role = (enum model_role)i;
    if (i < MODEL_ATTN_NORM)
        return true;
    i -= MODEL_ATTN_NORM;
    *layer = (int)(i / per_layer);
    *role = MODEL_ATTN_NORM + (enum model_role)(i % per_layer);
    return *layer < c->n_layers;
}

int model_fill_layers(struct model_file *f)
{
    f->layer = mem_new(MEM_MODEL_FILE, (size_t)f->config.n_layers, sizeof(f->layer[0]));
    return f->layer ? OK : ERR_NOMEM;
}

static int check_one(const struct model_file *f, enum model_naming naming,
                     enum model_role role, int layer)
{
    const struct model_tensor *t = slot(f, role, layer);
    char name[MODEL_NAME_BYTES];
    int64_t rows, cols;

    model_role_name(naming, role, layer, name);
    model_role_shape(&f->config, role, &rows, &cols);
    if (!t->data)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected shape [%" PRId64 ", %" PRId64
                       "], found no such "
                       "tensor",
                       f->path, name, rows, cols);
    if (t->rows != rows || t->cols != cols)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected shape [%" PRId64 ", %" PRId64
                       "], found [%" PRId64 ", %" PRId64 "]",
                       f->path, name, rows, cols, t->rows, t->cols);
    return OK;
}

int model_file_check_tensors(const struct model_file *f)
{
    enum model_naming naming =
        strcmp(f->format, "safetensors") == 0 ? MODEL_NAMES_HF : MODEL_NAMES_GGUF;
    enum model_role role;
    int64_t i;
    int layer, rc;

    for (i = 0; role_at(&f->config, i, &role, &layer); i++)
        if (model_role_needed(&f->config, role) &&
            (rc = check_one(f, naming, role, layer)) != OK)
            return rc;
    return OK;
}

/* Is `name` the name of a tensor that was filled? */
static bool is_used(const struct model_file *f, enum model_naming naming,
                    const char *name)
{
    char want[MODEL_NAME_BYTES];
    const char *prefix = naming == MODEL_NAMES_HF ? "model.layers." : "blk.";
    int role, layer = 0, first = 0, last = MODEL_ATTN_NORM;

    if (strncmp(name, prefix, strlen(prefix)) == 0) {
        if (sscanf(name + strlen(prefix), "%9d", &layer) != 1 || layer < 0 ||
            layer >= f->config.n_layers)
            return false;
        first = MODEL_ATTN_NORM;
        last = MODEL_N_ROLES;
    }
    for (role = first; role < last; role++) {
        model_role_name(naming, role, layer, want);
        if (strcmp(want, name) == 0)
            return slot(f, role, layer)->data != NULL;
    }
    return false;
}

static enum kern_type common_type(const struct model_file *f)
{
    enum kern_type type = f->global[MODEL_EMBED].type;
    enum model_role role;
    int64_t i, rows, cols;
    int layer;

    for (i = 0; role_at(&f->config, i, &role, &layer); i++) {
        model_role_shape(&f->config, role, &rows, &cols);
        if (rows > 1 && slot(f, role, layer)->data && slot(f, role, layer)->type != type)
            return KERN_F32;
    }
    return type;
}

int model_fill(struct model_file *f, const struct model_tensor_source *s)
{
    char name[MODEL_NAME_BYTES];
    const char *extra;
    enum model_role role;
    int64_t i;
    int layer, rc = model_fill_layers(f);

    if (rc != OK)
        return rc;
    for (i = 0; role_at(&f->config, i, &role, &layer); i++) {
        if (!model_role_needed(&f->config, role))
            continue;
        model_role_name(s->naming, role, layer, name);
        rc = s->find(s->ctx, name, slot(f, role, layer));
        if (rc != OK && rc != ERR_NOTFOUND)
            return rc;
        if ((rc = check_one(f, s->naming, role, layer)) != OK)
            return rc;
    }
    for (i = 0; (extra = s->name_at(s->ctx, (uint64_t)i)) != NULL; i++)
        if (!is_used(f, s->naming, extra) && !s->ignored(s->ctx, extra))
            return err_set(
                ERR_UNSUPPORTED,
                "%s: tensor %.100s: expected only tensors of a %s model, found this",
                f->path, extra, f->config.arch);
    f->config.weight_type = common_type(f);
    return OK;
}

void model_name_from_path(struct model_config *c, const char *path)
{
    size_t n = strlen(path);
    const char *slash;

    while (n > 1 && path[n - 1] == '/')
        n--;
    slash = memrchr(path, '/', n);
    if (slash) {
        n -= (size_t)(slash + 1 - path);
        path = slash + 1;
    }
    if (n > 5 && memcmp(path + n - 5, ".gguf", 5) == 0)
        n -= 5;
    else if (n > 4 && memcmp(path + n - 4, ".bin", 4) == 0)
        n -= 4;
    snprintf(c->name, sizeof(c->name), "%.*s", (int)(n > 90 ? 90 : n), path);
}
