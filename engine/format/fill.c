#include "format/fill.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/quant.h"

/* A tensor of a model: of a layer and of an expert, where the role says so. */
struct place {
    enum format_role role;
    int layer, expert;
};

static struct format_tensor *slot(const struct format_file *f, struct place p)
{
    if (p.role < FORMAT_ATTN_NORM)
        return (struct format_tensor *)&f->global[p.role];
    if (p.role < FORMAT_N_ROLES)
        return &f->layer[p.layer][p.role - FORMAT_ATTN_NORM];
    return (struct format_tensor *)format_expert_tensor(f, p.layer, p.expert, p.role);
}

static struct format_tensor *layer_slot(const struct format_file *f,
                                        enum format_role role, int layer)
{
    return slot(f, (struct place){role, layer, 0});
}

/* The i-th place of a model, globals first; false after the last. */
static bool place_at(const struct model_config *c, int64_t i, struct place *p)
{
    const int once = FORMAT_N_ROLES - FORMAT_ATTN_NORM;
    const int per_layer = once + c->n_experts * FORMAT_N_EXPERT_ROLES;
    int in_layer;

    *p = (struct place){.role = (enum format_role)i};
    if (i < FORMAT_ATTN_NORM)
        return true;
    i -= FORMAT_ATTN_NORM;
    p->layer = (int)(i / per_layer);
    in_layer = (int)(i % per_layer);
    p->role = FORMAT_ATTN_NORM + (enum format_role)in_layer;
    if (in_layer >= once) {
        p->expert = (in_layer - once) / FORMAT_N_EXPERT_ROLES;
        p->role = FORMAT_EXPERT_GATE +
                  (enum format_role)((in_layer - once) % FORMAT_N_EXPERT_ROLES);
    }
    return p->layer < c->n_layers;
}

int format_fill_layers(struct format_file *f)
{
    const struct model_config *c = &f->config;
    size_t n = (size_t)c->n_layers;

    f->layer = mem_new(MEM_MODEL_FILE, n, sizeof(f->layer[0]));
    if (c->n_experts > 0)
        f->expert =
            mem_new(MEM_MODEL_FILE, n * (size_t)c->n_experts, sizeof(f->expert[0]));
    return f->layer && (f->expert || c->n_experts == 0) ? OK : ERR_NOMEM;
}

void format_tensor_name(const struct format_file *f, enum format_role role, int layer,
                        int expert, char out[MODEL_NAME_BYTES])
{
    bool hf = strcmp(f->format, "safetensors") == 0;

    format_role_name((hf ? format_family_of(&f->config)->hf_naming : MODEL_NAMES_GGUF) |
                         (enum model_naming)f->fused,
                     role, layer, expert, out);
}

static int check_one(const struct format_file *f, struct place p)
{
    const struct format_tensor *t = slot(f, p);
    char name[MODEL_NAME_BYTES];
    int64_t rows, cols;

    format_tensor_name(f, p.role, p.layer, p.expert, name);
    format_role_shape(&f->config, p.role, &rows, &cols);
    if (!t->data)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected shape [%" PRId64 ", %" PRId64
                       "], found no such "
                       "tensor",
                       f->path, name, rows, cols);
    if (t->planes > 1)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected at most 2 dimensions, found [%" PRId64
                       ", %" PRId64 ", %" PRId64 "]",
                       f->path, name, t->planes, t->rows, t->cols);
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
    struct place p;
    int rc;

    for (int64_t i = 0; place_at(&f->config, i, &p); i++)
        if (format_role_needed(&f->config, p.role, p.layer) &&
            (rc = check_one(f, p)) != OK)
            return rc;
    return OK;
}

/* The number behind a dot that a name of an expert's tensor may have; 0: none. */
static int expert_in(const char *name)
{
    int expert = 0;

    for (const char *p = strchr(name, '.'); p; p = strchr(p + 1, '.'))
        if (p[1] >= '0' && p[1] <= '9')
            sscanf(p + 1, "%9d", &expert);
    return expert;
}

static bool is_of(const struct format_file *f, enum model_naming naming, const char *name,
                  struct place p)
{
    char want[MODEL_NAME_BYTES];

    format_role_name(naming, p.role, p.layer, p.expert, want);
    return strcmp(want, name) == 0 && slot(f, p)->data != NULL;
}

/* Is `name` the name of a tensor that was filled? */
static bool is_used(const struct format_file *f, enum model_naming naming,
                    const char *name)
{
    const bool gguf = (naming & MODEL_NAMES_MASK) == MODEL_NAMES_GGUF;
    const char *prefix = gguf ? "blk." : "model.layers.";
    const struct model_config *c = &f->config;
    int role, layer = 0, expert;

    if (strncmp(name, prefix, strlen(prefix)) != 0) {
        for (role = 0; role < FORMAT_ATTN_NORM; role++)
            if (is_of(f, naming, name, (struct place){(enum format_role)role, 0, 0}))
                return true;
        return false;
    }
    if (sscanf(name + strlen(prefix), "%9d", &layer) != 1 || layer < 0 ||
        layer >= c->n_layers)
        return false;
    for (role = FORMAT_ATTN_NORM; role < FORMAT_N_ROLES; role++)
        if (is_of(f, naming, name, (struct place){(enum format_role)role, layer, 0}))
            return true;
    if (f->latent) {
        char of_both[MODEL_NAME_BYTES];

        format_role_name(naming, FORMAT_KV_B, layer, 0, of_both);
        if (strcmp(of_both, name) == 0)
            return true;
    }
    expert = expert_in(name + strlen(prefix));
    if (expert >= c->n_experts)
        return false;
    for (role = FORMAT_EXPERT_GATE; role < FORMAT_ALL_ROLES; role++) {
        struct place p = {(enum format_role)role, layer, expert};

        if (is_of(f, naming, name, p) ||
            (gguf && is_of(f, MODEL_NAMES_GGUF_EXPERTS, name, p)))
            return true;
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
    case FORMAT_V_B:
        return MODEL_O;
    case FORMAT_GATE:
    case FORMAT_UP:
    case FORMAT_DOWN:
    case FORMAT_SHARED_GATE:
    case FORMAT_SHARED_UP:
    case FORMAT_SHARED_DOWN:
        return MODEL_FFN;
    case FORMAT_EXPERT_GATE:
    case FORMAT_EXPERT_UP:
    case FORMAT_EXPERT_DOWN:
        return MODEL_EXPERTS;
    default:
        return MODEL_QKV;
    }
}

/* Do all rows of all matrices of Q4_1, of which some have several blocks, have one scale each? */
static bool all_w4c(const struct format_file *f)
{
    struct place p;
    int n = 0;

    for (int64_t i = 0; place_at(&f->config, i, &p); i++) {
        const struct format_tensor *t = slot(f, p);
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
    struct place p;

    if (!all_w4c(f))
        return;
    for (int64_t i = 0; place_at(&f->config, i, &p); i++)
        if (slot(f, p)->type == KERN_Q4_1)
            slot(f, p)->type = KERN_W4C;
}

/* The types of the tensors decide how matrices may be divided. */
static void set_blocks(struct format_file *f)
{
    struct model_config *c = &f->config;
    const int group = c->n_heads / c->n_kv_heads * model_o_dim(c);
    struct place p;

    for (int i = 0; i < c->n_layers; i++) {
        enum kern_type q = layer_slot(f, FORMAT_Q, i)->type;
        enum kern_type k = layer_slot(f, FORMAT_K, i)->type;
        enum kern_type v = layer_slot(f, FORMAT_V, i)->type;
        enum kern_type o = layer_slot(f, FORMAT_O, i)->type;
        int block = kern_type_block(o);

        if (kern_type_one_block(o))
            block = (group + block - 1) / block * block;
        c->k_block = block > c->k_block ? block : c->k_block;
        if (c->latent_dim > 0) /* K and V have a matrix of their own */
            continue;
        c->v_split |= q != v && (kern_type_quantised(q) || kern_type_quantised(v));
        c->k_split |= q != k && (kern_type_quantised(q) || kern_type_quantised(k));
    }
    c->v_split |= c->k_split;
    for (int64_t i = 0; place_at(c, i, &p); i++)
        if ((p.role == FORMAT_DOWN || p.role == FORMAT_SHARED_DOWN ||
             p.role == FORMAT_EXPERT_DOWN) &&
            slot(f, p)->data && kern_type_block(slot(f, p)->type) > c->k_block)
            c->k_block = kern_type_block(slot(f, p)->type);
}

/* Tensors that share a matrix are kept as f32 where their plain types differ. */
static enum kern_type kept_type(const struct format_file *f, struct place p)
{
    static const enum format_role shared[][3] = {
        {FORMAT_Q, FORMAT_K, FORMAT_V},
        {FORMAT_GATE, FORMAT_UP, FORMAT_UP},
        {FORMAT_SHARED_GATE, FORMAT_SHARED_UP, FORMAT_SHARED_UP},
        {FORMAT_EXPERT_GATE, FORMAT_EXPERT_UP, FORMAT_EXPERT_UP}};
    enum kern_type type = slot(f, p)->type;

    for (int g = 0; g < 4 && !kern_type_quantised(type); g++) {
        bool member = false, same = true;

        for (int i = 0; i < 3; i++)
            member |= shared[g][i] == p.role;
        for (int i = 0; member && i < 3; i++) {
            const struct format_tensor *t =
                slot(f, (struct place){shared[g][i], p.layer, p.expert});

            same &= !t->data || t->type == type;
        }
        if (!same)
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
    struct place p;
    int n_types = 0;

    for (int64_t i = 0; place_at(c, i, &p); i++) {
        int64_t rows, cols;
        enum kern_type type;

        format_role_shape(c, p.role, &rows, &cols);
        /* A router is kept as f32, whatever it is in the file. */
        if (!slot(f, p)->data || rows == 1 || p.role == FORMAT_ROUTER)
            continue;
        type = kept_type(f, p);
        n_types += weights[type] == 0;
        weights[type] += rows * cols;
        n[matrices_of(p.role)] += (double)(rows * cols);
        bytes[matrices_of(p.role)] +=
            (double)(rows * cols) * kern_type_weight_bytes(type);
        if (p.role == FORMAT_EMBED) /* rows of it are read as they are in the file */
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
        c->mean_bytes[k] = n_types < 2 || n[k] == 0 ? 0
                           : k == MODEL_EMBED       ? embed
                                                    : bytes[k] / n[k];
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
    format_role_name(s->naming, FORMAT_HEAD, 0, 0, name[0]);
    format_role_name(s->naming, FORMAT_EMBED, 0, 0, name[1]);
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

/* One expert of a tensor that has those of all. ERR_FORMAT: it has another number. */
static int expert_of(const struct format_file *f, const char *name, int expert,
                     enum format_role role, struct format_tensor *t)
{
    double centre;

    if (format_role_vector(role, &centre)) { /* a row for each expert */
        t->planes = t->rows;
        t->rows = 1;
    }
    if (t->planes != f->config.n_experts && (t->planes > 1 || f->config.n_experts > 1))
        return err_set(ERR_FORMAT, "%s: tensor %s: expected %d experts, found %" PRId64,
                       f->path, name, f->config.n_experts, t->planes);
    t->data = (const char *)t->data +
              (size_t)expert * (size_t)t->rows * kern_type_size(t->type, t->cols);
    t->planes = 1;
    return OK;
}

/* Which tensors of the first layer have the rows of several roles. */
static enum model_naming find_fused(const struct format_file *f,
                                    const struct model_tensor_source *s)
{
    const struct model_config *c = &f->config;
    const enum model_naming both = MODEL_NAMES_FUSED_QKV | MODEL_NAMES_FUSED_GATE_UP;
    enum model_naming out = s->naming;
    struct format_tensor norm = {0};
    char name[MODEL_NAME_BYTES];

    format_role_name(out | MODEL_NAMES_POST_NORM, FORMAT_FFN_NORM, 0, 0, name);
    if (out == MODEL_NAMES_GGUF && c->norms == MODEL_NORM_BEFORE &&
        s->find(s->ctx, name, &norm) == OK)
        out |= MODEL_NAMES_POST_NORM;
    for (int i = 0; i < 2; i++) {
        enum format_role role = i ? FORMAT_GATE : FORMAT_Q;
        struct format_tensor t = {0};
        int64_t first, all;

        (void)format_role_slice(c, both, role, &first, &all);
        format_role_name(s->naming | both, role, 0, 0, name);
        if (format_role_needed(c, role, 0) && s->find(s->ctx, name, &t) == OK &&
            t.rows == all)
            out |= i ? MODEL_NAMES_FUSED_GATE_UP : MODEL_NAMES_FUSED_QKV;
        err_clear(); /* a type that is not known is refused where the tensor is read */
    }
    return out;
}

/* The rows of one role in a tensor of several. */
static int slice_of(const struct format_file *f, enum model_naming naming,
                    const char *name, enum format_role role, struct format_tensor *t)
{
    int64_t first, all, rows, cols;
    bool vector = t->rows == 1;

    if (!format_role_slice(&f->config, naming, role, &first, &all))
        return OK;
    format_role_shape(&f->config, role, &rows, &cols);
    if ((vector ? t->cols : t->rows) != all)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: expected %" PRId64 " rows, found %" PRId64,
                       f->path, name, all, vector ? t->cols : t->rows);
    t->data = (const char *)t->data +
              (vector ? kern_type_size(t->type, first)
                      : (size_t)first * kern_type_size(t->type, t->cols));
    *(vector ? &t->cols : &t->rows) = vector ? cols : rows;
    return OK;
}

/* ERR_NOTFOUND: there is none. */
static int find_one(struct format_file *f, const struct model_tensor_source *s,
                    enum model_naming naming, struct place p)
{
    char name[MODEL_NAME_BYTES];
    int rc;

    const bool gguf_expert =
        (naming & MODEL_NAMES_MASK) == MODEL_NAMES_GGUF && p.role >= FORMAT_EXPERT_GATE;

    format_role_name(naming, p.role, p.layer, p.expert, name);
    rc = s->find(s->ctx, name, slot(f, p));
    if (rc == ERR_NOTFOUND && gguf_expert && p.role < FORMAT_EXPERT_GATE_BIAS)
        return find_one(f, s, MODEL_NAMES_GGUF_EXPERTS, p);
    if (rc == OK && gguf_expert)
        rc = expert_of(f, name, p.expert, p.role, slot(f, p));
    if (rc == OK &&
        (p.role == FORMAT_K_B || p.role == FORMAT_V_B)) { /* of each head one */
        slot(f, p)->rows *= slot(f, p)->planes > 1 ? slot(f, p)->planes : 1;
        slot(f, p)->planes = 1;
    }
    return rc == OK ? slice_of(f, naming, name, p.role, slot(f, p)) : rc;
}

/* A layer's FORMAT_KV_B becomes FORMAT_K_B, of which each head's part is transposed, and
 * FORMAT_V_B, at `to`. */
static void split_latent(struct format_file *f, const struct format_tensor *both,
                         int layer, char *to)
{
    const struct model_config *c = &f->config;
    const size_t one = kern_type_bytes(both->type), row = one * (size_t)c->latent_dim;
    struct format_tensor *k = layer_slot(f, FORMAT_K_B, layer);
    struct format_tensor *v = layer_slot(f, FORMAT_V_B, layer);
    int64_t rows, cols;

    format_role_shape(c, FORMAT_K_B, &rows, &cols);
    *k = (struct format_tensor){to, both->type, rows, cols, 1, true};
    format_role_shape(c, FORMAT_V_B, &rows, &cols);
    *v = (struct format_tensor){to + (size_t)c->n_heads * row * (size_t)c->nope_dim,
                                both->type,
                                rows,
                                cols,
                                1,
                                true};
    for (int h = 0; h < c->n_heads; h++) {
        const char *from = (const char *)both->data +
                           (size_t)h * (size_t)(c->nope_dim + c->value_dim) * row;
        char *k_to = to + (size_t)h * row * (size_t)c->nope_dim;

        for (int i = 0; i < c->nope_dim; i++)
            for (int j = 0; j < c->latent_dim; j++)
                memcpy(k_to + ((size_t)j * (size_t)c->nope_dim + (size_t)i) * one,
                       from + (size_t)i * row + (size_t)j * one, one);
        memcpy((char *)(uintptr_t)v->data + (size_t)h * row * (size_t)c->value_dim,
               from + row * (size_t)c->nope_dim, row * (size_t)c->value_dim);
    }
}

/* Where a file has FORMAT_KV_B it is split. */
static int find_latent(struct format_file *f, const struct model_tensor_source *s,
                       enum model_naming naming)
{
    const struct model_config *c = &f->config;
    struct format_tensor both = {0};
    char name[MODEL_NAME_BYTES];
    int64_t rows, cols;
    size_t bytes = 0;
    int rc = OK;

    format_role_shape(c, FORMAT_KV_B, &rows, &cols);
    for (int i = 0; i < c->n_layers && c->latent_dim > 0; i++) {
        format_role_name(naming, FORMAT_KV_B, i, 0, name);
        rc = s->find(s->ctx, name, &both);
        if (rc == ERR_NOTFOUND && i == 0)
            return OK; /* it has the two */
        if (rc != OK && rc != ERR_NOTFOUND)
            return rc;
        if (rc != OK || both.rows != rows || both.cols != cols || both.planes > 1)
            return err_set(
                ERR_FORMAT,
                "%s: tensor %s: expected shape [%" PRId64 ", %" PRId64 "], found %s",
                f->path, name, rows, cols, rc == OK ? "another" : "no such tensor");
        if (kern_type_quantised(both.type) ||
            (i > 0 && kern_type_size(both.type, rows * cols) != bytes))
            return err_set(
                ERR_UNSUPPORTED,
                "%s: tensor %s: expected one of F32, F16 and BF16 for all layers, "
                "as it is read by columns, found %s",
                f->path, name, kern_type_name(both.type));
        if (i == 0) {
            bytes = kern_type_size(both.type, rows * cols);
            f->latent = mem_new(MEM_MODEL_FILE, (size_t)c->n_layers, bytes);
            if (!f->latent)
                return ERR_NOMEM;
        }
        split_latent(f, &both, i, (char *)f->latent + (size_t)i * bytes);
    }
    return OK;
}

int format_fill(struct format_file *f, const struct model_tensor_source *s)
{
    const enum model_naming naming = find_fused(f, s);
    const char *extra;
    struct place p;
    int64_t i;
    int rc = format_fill_layers(f);

    f->fused = (int)(naming & ~MODEL_NAMES_MASK);
    if (rc == OK)
        rc = check_tie(f, s);
    if (rc == OK)
        rc = find_latent(f, s, naming);
    if (rc != OK)
        return rc;
    for (i = 0; place_at(&f->config, i, &p); i++) {
        if (!format_role_needed(&f->config, p.role, p.layer))
            continue;
        rc = slot(f, p)->in_memory ? OK : find_one(f, s, naming, p);
        if (rc != OK && rc != ERR_NOTFOUND)
            return rc;
        if ((rc = check_one(f, p)) != OK)
            return rc;
    }
    for (i = 0; (extra = s->name_at(s->ctx, (uint64_t)i)) != NULL; i++)
        if (!is_used(f, naming, extra) && !s->ignored(s->ctx, extra))
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
