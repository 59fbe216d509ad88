#include "experiments/study/support/rounded.h"

#include <string.h>

#include "base/mem.h"
#include "format/fill.h"
#include "kernels/quant.h"

/* How f32 weights are rounded. */
struct rounding {
    const struct kern_quant_scheme *scheme; /* NULL: to bf16 */
    enum kern_type type;
};

/* w[n] to out, and back[n]: what out stands for. */
static int round_row(const struct rounding *how, void *out, float *back, const float *w,
                     int64_t n)
{
    if (how->scheme) {
        TRY(kern_quantize(how->scheme, out, w, n));
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = kern_bf16_of(w[i]);

            memcpy((char *)out + 2 * i, &h, sizeof(h));
        }
    }
    kern_row_to_f32(how->type, back, out, n);
    return OK;
}

static int round_tensor(struct study_rounded *r, const struct rounding *how,
                        struct format_tensor *t, char **to)
{
    const int block = how->scheme ? kern_type_block(how->type) : 1;
    int64_t whole = (t->cols + block - 1) / block * block;
    bool plain = whole != t->cols;
    const size_t row_bytes = kern_type_size(t->type, t->cols);
    struct format_tensor out = *t;

    out.data = *to;
    out.type = plain ? KERN_F32 : how->type;
    r->n_plain += plain;
    for (int64_t i = 0; i < t->rows; i++) {
        char *blocks = plain ? *to + (size_t)t->cols * sizeof(float) : *to;

        kern_row_to_f32(t->type, r->row, (const char *)t->data + (size_t)i * row_bytes,
                        t->cols);
        for (int64_t k = t->cols; k < whole; k++)
            r->row[k] = r->row[t->cols - 1];
        TRY(round_row(how, blocks, r->back, r->row, whole));
        for (int64_t k = 0; k < t->cols; k++) {
            double e = (double)r->row[k] - (double)r->back[k];

            r->error2 += e * e;
            r->weight2 += (double)r->row[k] * (double)r->row[k];
        }
        r->n_bits += 8 * (double)kern_type_size(how->type, whole) * (double)t->cols /
                     (double)whole;
        if (plain)
            memcpy(*to, r->back, (size_t)t->cols * sizeof(float));
        *to += kern_type_size(out.type, t->cols);
    }
    r->n_weights += (double)(t->rows * t->cols);
    *t = out;
    return OK;
}

/* The i-th matrix of a model; NULL after the last. Vectors are left out. */
static struct format_tensor *matrix_at(struct format_file *f, int i)
{
    const int per_layer = FORMAT_N_ROLES - FORMAT_ATTN_NORM;

    if (i < FORMAT_ATTN_NORM)
        return &f->global[i];
    i -= FORMAT_ATTN_NORM;
    return i < per_layer * f->config.n_layers ? &f->layer[i / per_layer][i % per_layer]
                                              : NULL;
}

static bool is_matrix(const struct format_tensor *t)
{
    return t->data && t->rows > 1;
}

static int take_memory(struct study_rounded *r)
{
    size_t all = 0, cols = 0;
    struct format_tensor *t;

    for (int i = 0; (t = matrix_at(&r->file, i)) != NULL; i++) {
        if (!is_matrix(t))
            continue;
        if (kern_type_quantised(t->type))
            return err_set(ERR_ARG, "%s: expected f32, f16 or bf16 weights, found %s",
                           r->file.path, kern_type_name(t->type));
        /* one row more: blocks that are read back */
        all += (size_t)(t->rows + 1) * (size_t)(t->cols + KERN_QUANT_MAX) * sizeof(float);
        cols = (size_t)t->cols > cols ? (size_t)t->cols : cols;
    }
    r->bytes = mem_new(MEM_OTHER, all, 1);
    r->row = mem_new(MEM_OTHER, cols + KERN_QUANT_MAX, sizeof(float));
    r->back = mem_new(MEM_OTHER, cols + KERN_QUANT_MAX, sizeof(float));
    return r->bytes && r->row && r->back ? OK : ERR_NOMEM;
}

int study_round(struct study_rounded *out, const struct format_file *file, const char *to)
{
    bool kept = strcmp(to, "f32") == 0;
    struct rounding how = {NULL, KERN_BF16};
    struct format_tensor *t;
    char *at;

    *out = (struct study_rounded){.file = *file};
    out->file.layer = NULL;
    if (!kept && strcmp(to, "bf16") != 0) {
        TRY(kern_quant_scheme_find(to, &how.scheme));
        how.type = how.scheme->type;
    }
    TRY(format_fill_layers(&out->file));
    memcpy(out->file.layer, file->layer,
           (size_t)file->config.n_layers * sizeof(out->file.layer[0]));
    TRY(take_memory(out));
    at = out->bytes;
    for (int i = 0; !kept && (t = matrix_at(&out->file, i)) != NULL; i++)
        if (is_matrix(t))
            TRY(round_tensor(out, &how, t, &at));
    format_fill_types(&out->file);
    return OK;
}

void study_rounded_close(struct study_rounded *r)
{
    mem_free(r->file.layer);
    mem_free(r->bytes);
    mem_free(r->row);
    mem_free(r->back);
    *r = (struct study_rounded){0};
}
