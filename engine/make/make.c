/* Planning and writing a made model. */
#include "make/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_tmp.h"
#include "base/mem.h"
#include "format/fill.h"
#include "format/write.h"

#define PATH_BYTES 600

struct making {
    const struct make_plan *plan;
    const struct make_random *random;
};

/* The generator's rows are in half-split order; where rotary pairs are interleaved, row
 * 2i + j of a head is row i + j head_dim / 2 of the model. So both formats hold the same
 * model. */
static int64_t model_row(const struct make_plan *p, const struct make_tensor *t,
                         int64_t row)
{
    int64_t d = p->config.head_dim, in_head = row % d;

    if (!p->interleave || (t->role != FORMAT_Q && t->role != FORMAT_K))
        return row;
    return row - in_head + in_head / 2 + in_head % 2 * (d / 2);
}

static struct format_write_tensor tensor_at(const void *ctx, int i)
{
    const struct make_tensor *t = &((const struct making *)ctx)->plan->tensor[i];

    return (struct format_write_tensor){t->rows, t->bytes, t->at};
}

static int make_rows(const void *ctx, int i, int64_t row, int64_t n, char *out,
                     void *scratch)
{
    const struct making *k = ctx;
    const struct make_plan *p = k->plan;
    const struct make_tensor *t = &p->tensor[i];
    size_t row_bytes = t->bytes / (uint64_t)t->rows;

    for (int64_t r = row; r < row + n; r++, out += row_bytes) {
        if (t->given)
            memcpy(out, t->given, row_bytes);
        else if (t->type == p->plain_type || t->rows == 1)
            make_row(k->random, t->role, t->layer, model_row(p, t, r), t->cols, out);
        else {
            make_row(k->random, t->role, t->layer, model_row(p, t, r), t->cols, scratch);
            TRY(kern_quantize(kern_quant_scheme_for_row(p->opts->scheme, t->cols), out,
                              scratch, t->cols));
        }
    }
    return OK;
}

/* Write the planned file, open for writing and empty. */
static int write_file(const struct make_plan *p, int fd, const char *path)
{
    struct make_random random = {0};
    const struct making k = {p, &random};
    const struct format_writer w = {.head = &p->head,
                                    .data_bytes = p->data_bytes,
                                    .n_tensors = p->n_tensors,
                                    .n_threads = p->opts->n_threads,
                                    .tensor = tensor_at,
                                    .rows = make_rows,
                                    .scratch_bytes = p->cols_max * sizeof(float),
                                    .ctx = &k,
                                    .progress = p->opts->progress,
                                    .progress_ctx = p->opts->progress_ctx};
    int rc;

    TRY(make_random_init(&random, &p->config, p->plain_type, p->opts->seed));
    rc = format_write(&w, fd, path);
    make_random_fini(&random);
    return rc;
}

/* Type and bytes of a tensor whose shape is known. */
static int plan_type(struct make_plan *p, struct make_tensor *t)
{
    const struct kern_quant_scheme *s = p->opts->scheme;
    char name[MODEL_NAME_BYTES];

    if (s)
        s = kern_quant_scheme_for_row(s, t->cols);
    if (t->rows == 1) /* vectors stay exact, as is usual */
        t->type = KERN_F32;
    else
        t->type = s ? s->type : p->plain_type;
    if (t->cols % kern_type_block(t->type) != 0) {
        format_role_name(MODEL_NAMES_GGUF, t->role, t->layer, name);
        return err_set(ERR_UNSUPPORTED,
                       "model make: tensor %s: expected rows of a multiple of %d weights "
                       "for %s, found %lld",
                       name, kern_type_block(t->type), s->name, (long long)t->cols);
    }
    t->bytes = (uint64_t)t->rows * kern_type_size(t->type, t->cols);
    if ((size_t)t->cols > p->cols_max)
        p->cols_max = (size_t)t->cols;
    return OK;
}

/* The tensors in the order of their use: embedding, layers, final norm, head. */
static int plan_tensors(struct make_plan *p)
{
    const int per_layer = FORMAT_N_ROLES - FORMAT_ATTN_NORM;
    int i, n = FORMAT_ATTN_NORM + p->config.n_layers * per_layer;
    struct make_tensor *t;
    enum format_role role;

    /* one more for what a format adds */
    p->tensor = mem_new(MEM_MODEL_FILE, (size_t)n + 1, sizeof(p->tensor[0]));
    if (!p->tensor)
        return ERR_NOMEM;
    for (i = 0; i < n; i++) {
        if (i == 0)
            role = FORMAT_EMBED;
        else if (i <= p->config.n_layers * per_layer)
            role = FORMAT_ATTN_NORM + (enum format_role)((i - 1) % per_layer);
        else
            role = i == n - 1 ? FORMAT_HEAD : FORMAT_OUT_NORM;
        if (!format_role_needed(&p->config, role))
            continue;
        t = &p->tensor[p->n_tensors++];
        t->role = role;
        t->layer = role < FORMAT_ATTN_NORM ? 0 : (i - 1) / per_layer;
        format_role_shape(&p->config, role, &t->rows, &t->cols);
        TRY(plan_type(p, t));
    }
    return OK;
}

static int make_gguf(struct make_plan *p, struct file_tmp *tmp)
{
    int rc = file_check_target(p->opts->out, p->opts->tokenizer);

    if (rc == OK)
        rc = make_gguf_head(p);
    if (rc == OK)
        rc = file_tmp_open(tmp, p->opts->out);
    return rc == OK ? write_file(p, tmp->fd, tmp->path) : rc;
}

static int write_safetensors(const struct make_plan *p, const char *path)
{
    int rc, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot create: %m", path);
    rc = write_file(p, fd, path);
    if (rc == OK && fdatasync(fd) != 0)
        rc = err_set(ERR_IO, "%s: cannot write to disk: %m", path);
    close(fd);
    return rc;
}

static int make_safetensors(struct make_plan *p, struct file_tmp *tmp)
{
    char path[PATH_BYTES + 64];
    int rc;

    if (rmdir(p->opts->out) != 0 && errno != ENOENT)
        return err_set(ERR_IO, "%s: expected no such file, or an empty directory: %m",
                       p->opts->out);
    if ((rc = make_safetensors_head(p)) != OK ||
        (rc = file_tmp_open_dir(tmp, p->opts->out)) != OK ||
        (rc = make_hf_files(p, tmp->path)) != OK)
        return rc;
    snprintf(path, sizeof(path), "%s/model.safetensors", tmp->path);
    return write_safetensors(p, path);
}

static int check_opts(const struct make_opts *o, bool *gguf)
{
    *gguf = strcmp(o->format, "gguf") == 0;
    if (!*gguf && strcmp(o->format, "safetensors") != 0)
        return err_set(ERR_ARG,
                       "model make: format: expected gguf or safetensors, found %.40s",
                       o->format);
    if ((int)o->type < 0 || o->type >= KERN_N_PLAIN_TYPES)
        return err_set(ERR_ARG, "model make: type: expected f32, f16 or bf16, found %d",
                       (int)o->type);
    if (o->scheme && !*gguf)
        return err_set(ERR_UNSUPPORTED,
                       "model make: type: expected f32, f16 or bf16 for safetensors, "
                       "found %s",
                       o->scheme->name);
    if (o->tokenizer && (strstr(o->tokenizer, ".json") != NULL) == *gguf)
        return err_set(
            ERR_UNSUPPORTED,
            "model make: tokenizer: expected a %s for a %s model, found %.200s",
            *gguf ? ".gguf file" : "tokenizer.json", o->format, o->tokenizer);
    return OK;
}

int make_type(struct make_opts *o, const char *name)
{
    enum kern_type type;

    o->scheme = NULL;
    if (kern_type_parse(name, &type) == OK && !kern_type_quantised(type)) {
        o->type = type;
        return OK;
    }
    return kern_quant_scheme_find(name, &o->scheme);
}

int make_model(const struct make_opts *o)
{
    struct make_plan p = {.opts = o, .plain_type = o->scheme ? KERN_F32 : o->type};
    struct file_tmp tmp = {.fd = -1};
    bool gguf;
    int rc;

    if ((rc = check_opts(o, &gguf)) != OK || (rc = make_shape(o->arch, &p.shape)) != OK ||
        (rc = make_config(o->arch, &p.config)) != OK)
        return rc;
    if (strlen(o->out) > PATH_BYTES - 60)
        return err_set(ERR_LIMIT, "%.60s...: path: expected at most %d bytes, found %zu",
                       o->out, PATH_BYTES - 60, strlen(o->out));
    if ((rc = plan_tensors(&p)) == OK)
        rc = gguf ? make_gguf(&p, &tmp) : make_safetensors(&p, &tmp);
    if (rc == OK)
        rc = file_tmp_publish(&tmp, o->out);
    file_tmp_close(&tmp);
    mem_free(p.tensor);
    text_fini(&p.head);
    return rc;
}
