/* The .bin files of llama2.c: seven int32 (dim, hidden, layers, heads, KV heads,
 * vocabulary, sequence length; a negative vocabulary means an output head of its own),
 * then f32 tensors, each kind for all layers at once. Rotary pairs are interleaved. */
#include "format/format.h"

#include <inttypes.h>
#include <string.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "format/fill.h"
#include "base/file_map.h"

#define N_HEADER     7
#define HEADER_BYTES (N_HEADER * 4)
#define V1_MAGIC     0x616b3432 /* "ak42": the later, versioned exports */

static int llama2c_probe(const char *path)
{
    struct stat st;
    size_t n = strlen(path);

    return n > 4 && strcmp(path + n - 4, ".bin") == 0 && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode);
}

static int read_header(struct format_file *f, const struct file_map *m)
{
    static const char *const keys[N_HEADER] = {
        "dim", "hidden", "n_layers", "n_heads", "n_kv_heads", "vocab", "max_tok"};
    struct model_config *c = &f->config;
    int32_t h[N_HEADER];
    int i;

    if (m->bytes < HEADER_BYTES)
        return err_set(ERR_FORMAT, "%s: header: expected %d bytes, found %" PRIu64,
                       f->path, HEADER_BYTES, m->bytes);
    memcpy(h, m->base, sizeof(h));
    if (h[0] == V1_MAGIC)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: offset 0: expected the header of a version 0 export, found a later "
            "version",
            f->path);
    for (i = 0; i < N_HEADER; i++)
        if (h[i] == 0 || (i != 5 && h[i] < 0) || h[i] == INT32_MIN)
            return err_set(ERR_FORMAT, "%s: offset %d: %s: expected at least 1, found %d",
                           f->path, i * 4, keys[i], h[i]);
    c->dim = h[0];
    c->hidden = h[1];
    c->n_layers = h[2];
    c->n_heads = h[3];
    c->n_kv_heads = h[4];
    c->tied = h[5] > 0;
    c->vocab = abs(h[5]);
    c->max_tok = h[6];
    if (c->dim % c->n_heads != 0)
        return err_set(ERR_FORMAT,
                       "%s: offset 12: n_heads: expected a divisor of dim %d, "
                       "found %d",
                       f->path, c->dim, c->n_heads);
    c->head_dim = c->dim / c->n_heads;
    return OK;
}

/* The format fixes these and does not state them. */
static void set_constants(struct format_file *f)
{
    struct model_config *c = &f->config;
    int i;

    format_family_apply(format_family_of_arch("llama"), c);
    format_name_from_path(c, f->path);
    c->norm_eps = 1e-5f;
    c->rope_theta = 10000;
    c->weight_type = KERN_F32;
    c->bos_id = c->vocab > 1 ? 1 : -1;
    c->eos_id = c->vocab > 2 ? 2 : -1;
    if (c->eos_id >= 0)
        c->stop_ids[c->n_stop++] = c->eos_id;
    for (i = 0; i < MODEL_HEAD_DIM_MAX / 2; i++)
        c->rope_factor[i] = 1;
    f->rope_interleaved = true;
}

/* Take the next tensor of a kind for every layer. The sizes are bounded by the checked
 * configuration, so their sum cannot overflow; it is compared with the file at the end.
 */
static void take(struct format_file *f, const uint8_t *base, uint64_t *at,
                 enum format_role role)
{
    int layer, n = role < FORMAT_ATTN_NORM ? 1 : f->config.n_layers;
    struct format_tensor *t;

    for (layer = 0; layer < n; layer++) {
        t = role < FORMAT_ATTN_NORM ? &f->global[role]
                                    : &f->layer[layer][role - FORMAT_ATTN_NORM];
        format_role_shape(&f->config, role, &t->rows, &t->cols);
        t->type = KERN_F32;
        t->data = base + *at; /* lent only once the size is known to fit */
        *at += (uint64_t)t->rows * (uint64_t)t->cols * sizeof(float);
    }
}

/* The bytes a file of this configuration has: header, tensors, and the two rotary tables
 * that the format keeps between them. */
static uint64_t expected_bytes(const struct model_config *c)
{
    return HEADER_BYTES + (uint64_t)model_n_params(c) * sizeof(float) +
           (uint64_t)c->max_tok * (uint64_t)c->head_dim * sizeof(float);
}

static int llama2c_open(struct format_file *f, const char *path)
{
    static const enum format_role order[] = {
        FORMAT_EMBED, FORMAT_ATTN_NORM, FORMAT_Q,        FORMAT_K,
        FORMAT_V,     FORMAT_O,         FORMAT_FFN_NORM, FORMAT_GATE,
        FORMAT_DOWN,  FORMAT_UP,        FORMAT_OUT_NORM};
    struct file_map *m;
    uint64_t at = HEADER_BYTES;
    size_t i;
    int rc;

    f->state = m = mem_new(MEM_MODEL_FILE, 1, sizeof(*m));
    if (!m)
        return ERR_NOMEM;
    if ((rc = file_map_open(m, path)) != OK)
        return rc;
    f->file_bytes = (int64_t)m->bytes;
    if ((rc = read_header(f, m)) != OK)
        return rc;
    set_constants(f);
    if ((rc = model_config_check(&f->config, path)) != OK)
        return rc;
    if (m->bytes != expected_bytes(&f->config))
        return err_set(ERR_FORMAT,
                       "%s: expected %" PRIu64 " bytes by its header, found %" PRIu64,
                       path, expected_bytes(&f->config), m->bytes);
    if ((rc = format_fill_layers(f)) != OK)
        return rc;
    for (i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        take(f, m->base, &at, order[i]);
    at += (uint64_t)f->config.max_tok * (uint64_t)f->config.head_dim * sizeof(float);
    if (!f->config.tied)
        take(f, m->base, &at, FORMAT_HEAD);
    return OK;
}

static void llama2c_close(struct format_file *f)
{
    if (f->state)
        file_map_close(f->state);
    mem_free(f->state);
    f->state = NULL;
}

const struct format_reader format_reader_llama2c = {
    .name = "llama2c",
    .probe = llama2c_probe,
    .open = llama2c_open,
    .close = llama2c_close,
};
