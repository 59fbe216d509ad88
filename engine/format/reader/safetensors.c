/* A directory in the layout of Hugging Face: config.json and model.safetensors, or
 * several files that model.safetensors.index.json assigns tensors to. */
#include "format/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "format/fill.h"
#include "format/hf_config.h"
#include "format/safet.h"
#include "format/safet_quant.h"

#define MAX_SHARDS      1000
#define MAX_INDEX_BYTES (16u << 20)
#define PATH_BYTES      768
#define INDEX_NAME      "model.safetensors.index.json"

struct dir {
    json_t *index; /* NULL: one file */
    int n;
    struct format_safet *shard[MAX_SHARDS];
    const char *shard_name[MAX_SHARDS]; /* kept by index */
    struct format_safet_quant quant;
};

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_safetensors(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t n = strlen(path), m = sizeof(ending) - 1;

    return n > m && strcmp(path + n - m, ending) == 0;
}

/* A single .safetensors file is ours too, to say that the directory is wanted. */
static int safetensors_probe(const char *path)
{
    return is_dir(path) || is_safetensors(path);
}

static const json_t *weight_map(const struct dir *d)
{
    return json_object_get(d->index, "weight_map");
}

/* Open the file of this name, once. Returns its number, or a negative error. */
static int open_shard(struct dir *d, const char *dir, const char *name)
{
    char path[PATH_BYTES];
    int i, rc;

    for (i = 0; i < d->n; i++)
        if (strcmp(d->shard_name[i], name) == 0)
            return i;
    if (strchr(name, '/') || !is_safetensors(name))
        return err_set(ERR_FORMAT,
                       "%s/" INDEX_NAME
                       ": weight_map: expected the name of a .safetensors "
                       "file in this directory, found %.100s",
                       dir, name);
    if (d->n == MAX_SHARDS)
        return err_set(ERR_LIMIT,
                       "%s/" INDEX_NAME ": expected at most %d files, found more", dir,
                       MAX_SHARDS);
    snprintf(path, sizeof(path), "%s/%.200s", dir, name);
    if ((rc = format_safet_open(&d->shard[d->n], path)) != OK)
        return rc;
    d->shard_name[d->n] = name;
    return d->n++;
}

/* Index and files must say the same: each assigned tensor is in its file, and no file
 * holds one that is assigned elsewhere or not at all. */
static int check_index(const struct dir *d, const char *dir)
{
    const json_t *map = weight_map(d);
    const char *name, *file;
    uint64_t t;
    int i;

    for (i = 0; i < d->n; i++)
        for (t = 0; t < format_safet_n(d->shard[i]); t++) {
            name = format_safet_at(d->shard[i], t)->name;
            file = json_string_value(json_object_get(map, name));
            if (!file || strcmp(file, d->shard_name[i]) != 0)
                return err_set(
                    ERR_FORMAT,
                    "%s/%.200s: tensor %.100s: expected in %.100s by " INDEX_NAME
                    ", found here",
                    dir, d->shard_name[i], name, file ? file : "no file");
        }
    return OK;
}

static int open_sharded(struct dir *d, const char *dir, const char *index_path)
{
    const json_t *map;
    const char *name;
    json_t *v;
    int i, rc;

    if ((rc = json_read_file(&d->index, index_path, MAX_INDEX_BYTES)) != OK ||
        (rc = json_get_obj(d->index, "weight_map", &map, index_path)) != OK)
        return rc == ERR_NOTFOUND ? ERR_FORMAT : rc;
    json_object_foreach((json_t *)map, name, v)
    {
        if (!json_is_string(v))
            return err_set(
                ERR_FORMAT,
                "%s: weight_map.%.100s: expected a file's name, found something "
                "else",
                index_path, name);
        if ((i = open_shard(d, dir, json_string_value(v))) < 0)
            return i;
        if (!format_safet_find(d->shard[i], name))
            return err_set(ERR_FORMAT,
                           "%s/%.200s: tensor %.100s: expected here by " INDEX_NAME
                           ", found no such tensor",
                           dir, json_string_value(v), name);
    }
    return check_index(d, dir);
}

static const struct format_safet_tensor *find(const void *ctx, const char *name)
{
    const struct dir *d = ctx;
    const struct format_safet_tensor *t = NULL;
    int i;

    for (i = 0; !t && i < d->n; i++)
        t = format_safet_find(d->shard[i], name);
    return t;
}

static int find_tensor(void *ctx, const char *name, struct format_tensor *out)
{
    const struct format_file *f = ctx;
    struct dir *d = f->state;
    const struct format_safet_tensor *t = find(d, name);
    int rc = format_safet_quant_find(&d->quant, name, out);

    if (rc == OK && !strstr(name, ".layers.")) /* is the head the embedding? */
        rc = format_safet_quant_repack(&d->quant);
    if (rc != ERR_NOTFOUND || !t)
        return rc;
    if (strcmp(t->dtype, "F32") == 0)
        out->type = KERN_F32;
    else if (strcmp(t->dtype, "F16") == 0)
        out->type = KERN_F16;
    else if (strcmp(t->dtype, "BF16") == 0)
        out->type = KERN_BF16;
    else
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %s: dtype: expected F32, F16 or BF16, found %.40s",
                       f->path, name, t->dtype);
    if (t->n_dims < 1 || t->n_dims > 2)
        return err_set(ERR_FORMAT,
                       "%s: tensor %s: shape: expected 1 or 2 dimensions, found %d",
                       f->path, name, t->n_dims);
    out->data = t->data;
    out->rows = t->n_dims == 2 ? (int64_t)t->dims[0] : 1;
    out->cols = (int64_t)t->dims[t->n_dims - 1];
    return OK;
}

static const char *name_at(void *ctx, uint64_t i)
{
    const struct dir *d = ((struct format_file *)ctx)->state;
    int s;

    for (s = 0; s < d->n; s++) {
        if (i < format_safet_n(d->shard[s]))
            return format_safet_at(d->shard[s], i)->name;
        i -= format_safet_n(d->shard[s]);
    }
    return NULL;
}

/* Older exports keep the rotary frequencies, which follow from the configuration; and a
 * tied model may keep its head a second time. */
static bool is_ignored(void *ctx, const char *name)
{
    const struct format_file *f = ctx;
    const struct dir *d = f->state;
    const char *dot = strstr(name, ".rotary_emb.inv_freq");
    int layer;

    if (f->config.n_ahead > 0 && sscanf(name, "model.layers.%9d.", &layer) == 1 &&
        layer >= f->config.n_layers)
        return true;
    return format_safet_quant_owns(&d->quant, name) ||
           (dot && dot[strlen(".rotary_emb.inv_freq")] == 0) ||
           (f->config.tied && strcmp(name, "lm_head.weight") == 0);
}

static int open_files(struct format_file *f, struct dir *d)
{
    char index_path[PATH_BYTES];
    int i;

    snprintf(index_path, sizeof(index_path), "%s/" INDEX_NAME, f->path);
    if (access(index_path, F_OK) == 0)
        return open_sharded(d, f->path, index_path);
    i = open_shard(d, f->path, "model.safetensors");
    return i < 0 ? i : OK;
}

static int safetensors_open(struct format_file *f, const char *path)
{
    struct model_tensor_source source = {
        .ctx = f, .find = find_tensor, .name_at = name_at, .ignored = is_ignored};
    char config_path[PATH_BYTES];
    struct dir *d;
    int i, rc;

    if (!is_dir(path))
        return err_set(
            ERR_ARG,
            "%s: expected the directory that holds it and config.json, found a file",
            path);
    f->state = d = mem_new(MEM_MODEL_FILE, 1, sizeof(*d));
    if (!d)
        return ERR_NOMEM;
    format_name_from_path(&f->config, path);
    snprintf(config_path, sizeof(config_path), "%s/config.json", path);
    d->quant.path = f->path;
    d->quant.find = find;
    d->quant.ctx = d;
    if ((rc = format_hf_config(&f->config, config_path)) != OK ||
        (rc = format_safet_quant_config(&d->quant, config_path)) != OK)
        return rc;
    snprintf(config_path, sizeof(config_path), "%s/generation_config.json", path);
    if ((rc = format_hf_generation_config(&f->config, config_path)) != OK ||
        (rc = open_files(f, d)) != OK)
        return rc;
    for (i = 0; i < d->n; i++)
        f->file_bytes += format_safet_bytes(d->shard[i]);
    source.naming = format_family_of(&f->config)->hf_naming;
    f->rope_interleaved = format_family_of(&f->config)->hf_rope_interleaved;
    f->norm_offset = format_family_of(&f->config)->gemma ? 1 : 0;
    if ((rc = format_fill(f, &source)) != OK)
        return rc;
    return format_safet_quant_repack(&d->quant);
}

static void safetensors_close(struct format_file *f)
{
    struct dir *d = f->state;

    if (!d)
        return;
    while (d->n > 0)
        format_safet_close(&d->shard[--d->n]);
    json_decref(d->index);
    format_safet_quant_fini(&d->quant);
    mem_free(d);
    f->state = NULL;
}

const struct format_reader format_reader_safetensors = {
    .name = "safetensors",
    .probe = safetensors_probe,
    .open = safetensors_open,
    .close = safetensors_close,
};
