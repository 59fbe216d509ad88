#include "format/fill.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/quant.h"

static const struct {
    const char *gguf, *hf;
} names[FORMAT_N_ROLES] = {
    [FORMAT_EMBED] = {"token_embd.weight", "model.embed_tokens.weight"},
    [FORMAT_HEAD] = {"output.weight", "lm_head.weight"},
    [FORMAT_OUT_NORM] = {"output_norm.weight", "model.norm.weight"},
    [FORMAT_ATTN_NORM] = {"attn_norm.weight", "input_layernorm.weight"},
    [FORMAT_Q] = {"attn_q.weight", "self_attn.q_proj.weight"},
    [FORMAT_K] = {"attn_k.weight", "self_attn.k_proj.weight"},
    [FORMAT_V] = {"attn_v.weight", "self_attn.v_proj.weight"},
    [FORMAT_O] = {"attn_output.weight", "self_attn.o_proj.weight"},
    [FORMAT_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias"},
    [FORMAT_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias"},
    [FORMAT_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias"},
    [FORMAT_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight"},
    [FORMAT_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight"},
    [FORMAT_UP] = {"ffn_up.weight", "mlp.up_proj.weight"},
    [FORMAT_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight"},
    [FORMAT_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    [FORMAT_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight"},
};

void format_role_name(enum model_naming naming, enum format_role role, int layer,
                      char out[MODEL_NAME_BYTES])
{
    const char *stem = naming == MODEL_NAMES_HF ? names[role].hf : names[role].gguf;

    if (role < FORMAT_ATTN_NORM)
        snprintf(out, MODEL_NAME_BYTES, "%s", stem);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s.%d.%s",
                 naming == MODEL_NAMES_HF ? "model.layers" : "blk", layer, stem);
}

void format_role_shape(const struct model_config *c, enum format_role role, int64_t *rows,
                       int64_t *cols)
{
    int64_t q = (int64_t)c->n_heads * c->head_dim,
            kv = (int64_t)c->n_kv_heads * c->head_dim;

    *rows = 1;
    *cols = c->dim;
    switch (role) {
    case FORMAT_EMBED:
    case FORMAT_HEAD:
        *rows = c->vocab;
        break;
    case FORMAT_Q:
        *rows = q;
        break;
    case FORMAT_K:
    case FORMAT_V:
        *rows = kv;
        break;
    case FORMAT_O:
        *rows = c->dim;
        *cols = q;
        break;
    case FORMAT_Q_BIAS:
        *cols = q;
        break;
    case FORMAT_K_BIAS:
    case FORMAT_V_BIAS:
        *cols = kv;
        break;
    case FORMAT_GATE:
    case FORMAT_UP:
        *rows = c->hidden;
        break;
    case FORMAT_DOWN:
        *rows = c->dim;
        *cols = c->hidden;
        break;
    case FORMAT_Q_NORM:
    case FORMAT_K_NORM:
        *cols = c->head_dim;
        break;
    default: /* norms: one row of dim */
        break;
    }
}

bool format_role_needed(const struct model_config *c, enum format_role role)
{
    if (role == FORMAT_HEAD)
        return !c->tied;
    if (role == FORMAT_Q_BIAS || role == FORMAT_K_BIAS || role == FORMAT_V_BIAS)
        return c->qkv_bias;
    if (role == FORMAT_Q_NORM || role == FORMAT_K_NORM)
        return c->qk_norm;
    return true;
}

static struct format_tensor *slot(const struct format_file *f, enum format_role role,
                                  int layer)
{
    return role < FORMAT_ATTN_NORM ? (struct format_tensor *)&f->global[role]
                                   : &f->layer[layer][role - FORMAT_ATTN_NORM];
}

/* The i-th (role, layer) of a model, globals first; false after the last. */
static bool role_at(const struct model_config *c, int64_t i, enum format_role *role,
                    int *layer)
{
    const int per_layer = FORMAT_N_ROLES - FORMAT_ATTN_NORM;

    *layer = 0;
    *role = (enum format_role)i;
    if (i < FORMAT_ATTN_NORM)
        return true;
    i -= FORMAT_ATTN_NORM;
    *layer = (int)(i / per_layer);
    *role = FORMAT_ATTN_NORM + (enum format_role)(i % per_layer);
    return *layer < c->n_layers;
}

int format_fill_layers(struct format_file *f)
{
    f->layer = mem_new(MEM_MODEL_FILE, (size_t)f->config.n_layers, sizeof(f->layer[0]));
    return f->layer ? OK : ERR_NOMEM;
}

void format_tensor_name(const struct format_file *f, enum format_role role, int layer,
                        char out[MODEL_NAME_BYTES])
{
    bool hf = strcmp(f->format, "safetensors") == 0;

    format_role_name(hf ? MODEL_NAMES_HF : MODEL_NAMES_GGUF, role, layer, out);
}

static int check_one(const struct format_file *f, enum format_role role, int layer)
{
    const struct format_tensor *t = slot(f, role, layer);
    char name[MODEL_NAME_BYTES];
    int64_t rows, cols;

    format_tensor_name(f, role, layer, name);
    format_role_shape(&f->config, role, &rows, &cols);
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
    if (rows == 1 && kern_type_block(t->type) > 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %s: expected a vector of F32, F16 or BF16, found %s",
                       f->path, name, kern_type_name(t->type));
    return OK;
}

int format_check_tensors(const struct format_file *f)
{
    enum format_role role;
    int64_t i;
    int layer, rc;

    for (i = 0; role_at(&f->config, i, &role, &layer); i++)
        if (format_role_needed(&f->config, role) &&
            (rc = check_one(f, role, layer)) != OK)
            return rc;
    return OK;
}

/* Is `name` the name of a tensor that was filled? */
static bool is_used(const struct format_file *f, enum model_naming naming,
                    const char *name)
{
    char want[MODEL_NAME_BYTES];
    const char *prefix = naming == MODEL_NAMES_HF ? "model.layers." : "blk.";
    int role, layer = 0, first = 0, last = FORMAT_ATTN_NORM;

    if (strncmp(name, prefix, strlen(prefix)) == 0) {
        if (sscanf(name + strlen(prefix), "%9d", &layer) != 1 || layer < 0 ||
            layer >= f->config.n_layers)
            return false;
        first = FORMAT_ATTN_NORM;
        last = FORMAT_N_ROLES;
    }
    for (role = first; role < last; role++) {
        format_role_name(naming, role, layer, want);
        if (strcmp(want, name) == 0)
            return slot(f, role, layer)->data != NULL;
    }
    return false;
}

static enum model_matrices matrices_of(enum format_role role)
{
    switch (role) {
    case FORMAT_EMBED:
        return MODEL_EMBED;
    case FORMAT_HEAD:
        return MODEL_HEAD;
    case FORMAT_O:
        return MODEL_O;
    case FORMAT_GATE:
    case FORMAT_UP:
    case FORMAT_DOWN:
        return MODEL_FFN;
    default:
        return MODEL_QKV;
    }
}

/* Do all rows of all matrices of Q4_1, of which some have several blocks, have one scale each? */
static bool all_w4c(const struct format_file *f)
{
    enum format_role role;
    int layer, n = 0;

    for (int64_t i = 0; role_at(&f->config, i, &role, &layer); i++) {
        const struct format_tensor *t = slot(f, role, layer);
        const size_t row_bytes = t->data ? kern_type_size(t->type, t->cols) : 0;

        if (!t->data || t->type != KERN_Q4_1)
            continue;
        n += t->cols > kern_type_block(t->type);
        for (int64_t r = 0; r < t->rows; r++)
            if (!kern_quant_is_w4c((const char *)t->data + (size_t)r * row_bytes,
                                   t->cols))
                return false;
    }
    return n > 0;
}

/* GGUF has no type for 4 bits per output channel: such matrices are Q4_1 whose blocks repeat
 * the scales of their row. */
static void find_w4c(struct format_file *f)
{
    enum format_role role;
    int layer;

    if (!all_w4c(f))
        return;
    for (int64_t i = 0; role_at(&f->config, i, &role, &layer); i++)
        if (slot(f, role, layer)->type == KERN_Q4_1)
            slot(f, role, layer)->type = KERN_W4C;
}

/* What the types of the tensors mean for how matrices are divided. */
static void set_blocks(struct format_file *f)
{
    struct model_config *c = &f->config;
    const int group = c->n_heads / c->n_kv_heads * c->head_dim;

    for (int i = 0; i < c->n_layers; i++) {
        enum kern_type q = slot(f, FORMAT_Q, i)->type, v = slot(f, FORMAT_V, i)->type;
        int o = kern_type_block(slot(f, FORMAT_O, i)->type);
        int down = kern_type_block(slot(f, FORMAT_DOWN, i)->type);

        if (kern_type_one_block(slot(f, FORMAT_O, i)->type))
            o = (group + o - 1) / o * o;
        c->k_block = o > c->k_block ? o : c->k_block;
        c->k_block = down > c->k_block ? down : c->k_block;
        c->v_split |= q != v && (kern_type_quantised(q) || kern_type_quantised(v));
    }
}

/* Tensors that share a matrix are kept as f32 where their plain types differ. */
static enum kern_type kept_type(const struct format_file *f, enum format_role role,
                                int layer)
{
    static const enum format_role shared[][3] = {{FORMAT_Q, FORMAT_K, FORMAT_V},
                                                 {FORMAT_GATE, FORMAT_UP, FORMAT_UP}};
    enum kern_type type = slot(f, role, layer)->type;

    for (int g = 0; g < 2 && !kern_type_quantised(type); g++) {
        bool member = false, same = true;

        for (int i = 0; i < 3; i++) {
            member |= shared[g][i] == role;
            same &= slot(f, shared[g][i], layer)->type == type;
        }
        if (member && !same)
            return KERN_F32;
    }
    return type;
}

/* The type of most weights of the matrices; and, where types differ, the mean bytes that a
 * step reads for a weight of each kind of matrix. */
static void set_weight_type(struct format_file *f)
{
    int64_t weights[KERN_N_TYPES] = {0};
    double n[MODEL_N_MATRICES] = {0}, bytes[MODEL_N_MATRICES] = {0}, embed = 0;
    struct model_config *c = &f->config;
    enum format_role role;
    int layer, n_types = 0;

    for (int64_t i = 0; role_at(c, i, &role, &layer); i++) {
        int64_t rows, cols;
        enum kern_type type;

        format_role_shape(c, role, &rows, &cols);
        if (!slot(f, role, layer)->data || rows == 1)
            continue;
        type = kept_type(f, role, layer);
        n_types += weights[type] == 0;
        weights[type] += rows * cols;
        n[matrices_of(role)] += (double)(rows * cols);
        bytes[matrices_of(role)] += (double)(rows * cols) * kern_type_weight_bytes(type);
        if (role == FORMAT_EMBED) /* rows of it are read as they are in the file */
            embed = (double)kern_type_size(type, cols) / (double)cols;
    }
    if (c->tied) {
        n[MODEL_HEAD] = n[MODEL_EMBED];
        bytes[MODEL_HEAD] = bytes[MODEL_EMBED];
    }
    c->weight_type = KERN_F32;
    for (int t = 0; t < KERN_N_TYPES; t++)
        if (weights[t] > weights[c->weight_type])
            c->weight_type = (enum kern_type)t;
    for (int k = 0; k < MODEL_N_MATRICES; k++)
        c->mean_bytes[k] = n_types < 2 ? 0 : k == MODEL_EMBED ? embed : bytes[k] / n[k];
}

void format_fill_types(struct format_file *f)
{
    find_w4c(f);
    set_weight_type(f);
    set_blocks(f);
}

/* A folder may state that its head is the embedding and have another one, as merged fine-tunes
 * do: then what it has counts. */
static int check_tie(struct format_file *f, const struct model_tensor_source *s)
{
    struct format_tensor embed = {0}, head = {0};
    char name[2][MODEL_NAME_BYTES];
    int64_t rows, cols;
    size_t bytes;
    int rc;

    if (!f->config.tied)
        return OK;
    format_role_name(s->naming, FORMAT_HEAD, 0, name[0]);
    format_role_name(s->naming, FORMAT_EMBED, 0, name[1]);
    rc = s->find(s->ctx, name[0], &head);
    if (rc == OK)
        rc = s->find(s->ctx, name[1], &embed);
    if (rc != OK)
        return rc == ERR_NOTFOUND ? OK : rc;
    format_role_shape(&f->config, FORMAT_HEAD, &rows, &cols);
    bytes = kern_type_size(head.type, cols) * (size_t)rows;
    if (head.type == embed.type && head.rows == rows && head.cols == cols &&
        embed.rows == rows && embed.cols == cols &&
        memcmp(head.data, embed.data, bytes) == 0)
        return OK;
    f->config.tied = false;
    log_warning("head_not_tied", NAN, NAN,
                "%s: %s differs from %s, though the configuration ties them: the head's "
                "own weights are used",
                f->path, name[0], name[1]);
    return OK;
}

int format_fill(struct format_file *f, const struct model_tensor_source *s)
{
    char name[MODEL_NAME_BYTES];
    const char *extra;
    enum format_role role;
    int64_t i;
    int layer, rc = format_fill_layers(f);

    if (rc == OK)
        rc = check_tie(f, s);
    if (rc != OK)
        return rc;
    for (i = 0; role_at(&f->config, i, &role, &layer); i++) {
        if (!format_role_needed(&f->config, role))
            continue;
        format_role_name(s->naming, role, layer, name);
        rc = s->find(s->ctx, name, slot(f, role, layer));
        if (rc != OK && rc != ERR_NOTFOUND)
            return rc;
        if ((rc = check_one(f, role, layer)) != OK)
            return rc;
    }
    for (i = 0; (extra = s->name_at(s->ctx, (uint64_t)i)) != NULL; i++)
        if (!is_used(f, s->naming, extra) && !s->ignored(s->ctx, extra))
            return err_set(
                ERR_UNSUPPORTED,
                "%s: tensor %.100s: expected only tensors of a %s model, found this",
                f->path, extra, f->config.arch);
    format_fill_types(f);
    return OK;
}

void format_name_from_path(struct model_config *c, const char *path)
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
