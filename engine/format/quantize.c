#include "format/quantize.h"

#include <inttypes.h>

#include "base/file.h"
#include "base/file_map.h"
#include "base/file_tmp.h"
#include "base/mem.h"
#include "format/format.h"
#include "format/gguf_parts.h"
#include "format/gguf_write.h"
#include "format/write.h"

struct entry {
    const struct gguf_tensor *from;
    enum kern_type type;                    /* of a matrix in the input */
    const struct kern_quant_scheme *scheme; /* of a matrix in the output; else NULL */
    uint64_t bytes, at;                     /* in the output */
    int64_t rows;
};

struct job {
    const struct format_quantize_opts *o;
    struct gguf *in;
    struct entry *tensors;
    int n_tensors;
    size_t cols_max; /* of a matrix */
    uint64_t data_bytes;
    struct text head;
};

/* ---- the plan ---- */

static int plan_matrix(struct job *k, struct entry *e)
{
    uint64_t cols = e->from->dims[0];
    const struct kern_quant_scheme *s =
        kern_quant_scheme_for_row(k->o->scheme, (int64_t)cols);

    if (!gguf_ggml_computed(e->from->ggml_type, &e->type) || kern_type_quantised(e->type))
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %s: expected F32, F16 or BF16, found %s: quantising "
                       "twice would lose precision",
                       k->o->in, e->from->name, gguf_ggml_type_name(e->from->ggml_type));
    if (cols % (uint64_t)kern_type_block(s->type) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor %s: expected rows of a multiple of %d weights for %s, "
                       "found %" PRIu64,
                       k->o->in, e->from->name, kern_type_block(s->type), s->name, cols);
    e->scheme = s;
    e->rows = (int64_t)(e->from->dims[1] * e->from->dims[2] * e->from->dims[3]);
    e->bytes = (uint64_t)e->rows * kern_type_size(s->type, (int64_t)cols);
    k->cols_max = cols > k->cols_max ? cols : k->cols_max;
    return OK;
}

/* Routers, few weights that decide which others are read, biases of experts, which have two
 * dimensions, and FORMAT_KV_B, which is read by columns, too, keep their type. */
static bool keeps_type(const struct gguf_tensor *t)
{
    return t->n_dims == 1 || strstr(t->name, ".ffn_gate_inp") ||
           strstr(t->name, "_exps.bias") || strstr(t->name, ".attn_kv_b.");
}

static int plan_tensors(struct job *k)
{
    k->n_tensors = (int)gguf_n_tensors(k->in);
    k->tensors = mem_new(MEM_MODEL_FILE, (size_t)k->n_tensors, sizeof(k->tensors[0]));
    if (!k->tensors)
        return ERR_NOMEM;
    for (int i = 0; i < k->n_tensors; i++) {
        struct entry *e = &k->tensors[i];

        e->from = gguf_tensor_at(k->in, (uint64_t)i);
        e->rows = 1;
        e->bytes = e->from->bytes;
        if (!keeps_type(e->from))
            TRY(plan_matrix(k, e));
        e->at = k->data_bytes;
        k->data_bytes += (e->bytes + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
    }
    return OK;
}

/* ---- the head ---- */

/* Records that describe the file rather than the model. */
static bool is_replaced(const struct gguf_record *r)
{
    static const char *const keys[] = {"general.file_type", "general.alignment",
                                       "general.quantization_version"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (r->key_n == strlen(keys[i]) && memcmp(r->key, keys[i], r->key_n) == 0)
            return true;
    return r->key_n > 6 && memcmp(r->key, "split.", 6) == 0;
}

static int put_head(struct job *k)
{
    struct gguf_records metadata = {0}, directory = {0};
    struct gguf_record r;
    int rc;

    for (uint64_t i = 0; i < gguf_n_keys(k->in); i++) {
        gguf_key_at(k->in, i, &r);
        if (!is_replaced(&r))
            gguf_put_record(&metadata, &r);
    }
    gguf_put_key_u32(&metadata, "general.file_type", gguf_file_type(k->o->scheme->type));
    gguf_put_key_u32(&metadata, "general.quantization_version", GGUF_QUANT_VERSION);
    gguf_put_key_u32(&metadata, "general.alignment", GGUF_ALIGN);
    for (int i = 0; i < k->n_tensors; i++) {
        const struct entry *e = &k->tensors[i];

        gguf_put_tensor(&directory, e->from->name, e->from->dims, e->from->n_dims,
                        e->scheme ? gguf_ggml_of(e->scheme->type) : e->from->ggml_type,
                        e->at);
    }
    rc = gguf_put_head(&k->head, &metadata, &directory);
    text_fini(&metadata.text);
    text_fini(&directory.text);
    return rc;
}

/* ---- the data ---- */

static struct format_write_tensor tensor_at(const void *ctx, int i)
{
    const struct entry *e = &((const struct job *)ctx)->tensors[i];

    return (struct format_write_tensor){e->rows, e->bytes, e->at};
}

static int quantize_rows(const void *ctx, int i, int64_t row, int64_t n, char *out,
                         void *scratch)
{
    const struct job *k = ctx;
    const struct entry *e = &k->tensors[i];
    int64_t cols = (int64_t)e->from->dims[0];

    if (!e->scheme) {
        memcpy(out, e->from->data, e->bytes);
        return OK;
    }
    for (int64_t r = row; r < row + n; r++) {
        const char *from =
            (const char *)e->from->data + (size_t)r * kern_type_size(e->type, cols);
        int rc;

        kern_row_to_f32(e->type, scratch, from, cols);
        rc = kern_quantize(e->scheme, out, scratch, cols);
        if (rc != OK)
            return err_prefix(rc, "%s: tensor %s: row %" PRId64, k->o->in, e->from->name,
                              r);
        out += kern_type_size(e->scheme->type, cols);
    }
    return OK;
}

static int write_out(const struct job *k)
{
    const struct format_writer w = {.head = &k->head,
                                    .data_bytes = k->data_bytes,
                                    .n_tensors = k->n_tensors,
                                    .n_threads = k->o->n_threads,
                                    .tensor = tensor_at,
                                    .rows = quantize_rows,
                                    .scratch_bytes = k->cols_max * sizeof(float),
                                    .ctx = k,
                                    .progress = k->o->progress,
                                    .progress_ctx = k->o->progress_ctx};
    struct file_tmp tmp = {.fd = -1};
    int rc = file_tmp_open(&tmp, k->o->out);

    if (rc == OK)
        rc = format_write(&w, tmp.fd, tmp.path);
    if (rc == OK)
        rc = file_map_check();
    if (rc == OK)
        rc = file_tmp_publish(&tmp, k->o->out);
    file_tmp_close(&tmp);
    return rc;
}

/* The reader of models says what is wrong with a file before anything is written. */
static int check_in(const struct format_quantize_opts *o)
{
    struct format_file *f;
    int rc = format_open(&f, o->in);

    if (rc == OK && strcmp(f->format, "gguf") != 0)
        rc = err_set(ERR_UNSUPPORTED, "%s: expected a GGUF file, found %s", o->in,
                     f->format);
    format_close(&f);
    return rc;
}

int format_quantize(const struct format_quantize_opts *o)
{
    struct job k = {.o = o};
    int rc = file_check_target(o->out, o->in);

    if (rc == OK)
        rc = check_in(o);
    if (rc == OK)
        rc = gguf_open(&k.in, o->in);
    if (rc == OK)
        rc = plan_tensors(&k);
    if (rc == OK)
        rc = put_head(&k);
    if (rc == OK)
        rc = write_out(&k);
    mem_free(k.tensors);
    text_fini(&k.head);
    gguf_close(&k.in);
    return rc;
}
