/* ONNX files of decoders: the graph is read and rewritten (graph/), and has to be a decoder of the
 * Llama family (graph/decoder.h). Its weights are copied to f32, as [out, in]. An ONNX file has no
 * tokenizer, no tokens that end a text, and no longest context: the number of tokens up to which
 * its mask and angles were checked stands for that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_map.h"
#include "base/mem.h"
#include "format/fill.h"
#include "graph/decoder.h"
#include "graph/onnx.h"

struct opened {
    struct file_map map;
    struct graph_onnx *onnx;
    struct graph_decoder d;
    float **data; /* [n] of tensors */
    int n, max;
};

static int onnx_probe(const char *path)
{
    struct stat st;
    uint8_t head[16];
    size_t n;
    FILE *f;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0; /* opening a pipe would wait */
    f = fopen(path, "rb");
    if (!f)
        return 0;
    n = fread(head, 1, sizeof(head), f);
    fclose(f);
    return graph_onnx_probe(head, n);
}

/* ---- weights ---- */

static float *take(struct opened *o, int64_t n)
{
    float **data;

    if (o->n == o->max) {
        int max = 2 * o->max + 32;

        data = mem_resize(MEM_MODEL_FILE, o->data, (size_t)max, sizeof(*data));
        if (!data)
            return NULL;
        o->data = data;
        o->max = max;
    }
    o->data[o->n] = mem_new(MEM_MODEL_FILE, (size_t)n, sizeof(float));
    return o->data[o->n] ? o->data[o->n++] : NULL;
}

static int elements(const struct opened *o, int node, int64_t n, float *out)
{
    const struct graph_node *v = &graph_onnx_graph(o->onnx)->nodes[node];

    if (!v->data)
        return graph_onnx_weight(o->onnx, v->name, out);
    for (int64_t k = 0; k < n; k++)
        out[k] = (float)v->data[k];
    return OK;
}

static void flip(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < rows; r++)
            to[r * cols + c] = from[c * rows + r];
}

static int copy(struct opened *o, struct graph_matrix m, struct format_tensor *t)
{
    const struct graph_shape *s = &graph_onnx_graph(o->onnx)->nodes[m.node].shape;
    int64_t n = graph_n_elements(s);
    float *data = take(o, n), *as_read;
    int rc;

    if (!data)
        return ERR_NOMEM;
    *t = (struct format_tensor){.data = data,
                                .type = KERN_F32,
                                .in_memory = true,
                                .rows = s->rank == 1 ? 1 : s->dim[m.flipped ? 1 : 0],
                                .cols = s->dim[s->rank == 1 || m.flipped ? 0 : 1]};
    if (s->rank == 1 || !m.flipped)
        return elements(o, m.node, n, data);
    as_read = mem_new(MEM_MODEL_FILE, (size_t)n, sizeof(*as_read));
    if (!as_read)
        return ERR_NOMEM;
    rc = elements(o, m.node, n, as_read);
    if (rc == OK)
        flip(data, as_read, t->rows, t->cols);
    mem_free(as_read);
    return rc;
}

static int copy_layer(struct format_file *f, struct opened *o, int layer)
{
    const struct graph_decoder_layer *l = &o->d.layers[layer];
    const struct {
        enum format_role role;
        struct graph_matrix m;
    } all[] = {{FORMAT_ATTN_NORM, l->attn_norm},
               {FORMAT_Q, l->q},
               {FORMAT_K, l->k},
               {FORMAT_V, l->v},
               {FORMAT_O, l->o},
               {FORMAT_Q_BIAS, l->q_bias},
               {FORMAT_K_BIAS, l->k_bias},
               {FORMAT_V_BIAS, l->v_bias},
               {FORMAT_O_BIAS, l->o_bias},
               {FORMAT_FFN_NORM, l->ffn_norm},
               {FORMAT_GATE, l->gate},
               {FORMAT_UP, l->up},
               {FORMAT_DOWN, l->down},
               {FORMAT_Q_NORM, l->q_norm},
               {FORMAT_K_NORM, l->k_norm}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].m.node >= 0)
            TRY(copy(o, all[i].m, &f->layer[layer][all[i].role - FORMAT_ATTN_NORM]));
    return OK;
}

/* ---- the configuration ---- */

/* theta ^ (-i / half) / factor[i] is the i-th frequency, exactly: theta is what people write where
 * it is near, and a factor that is not 1 makes up for the difference. */
static void set_rope(struct model_config *c, const struct graph_decoder *d)
{
    int half = d->head_dim / 2;
    char rounded[32];
    double theta = half > 1 ? pow(d->freq[1], -half) : 10000;

    snprintf(rounded, sizeof(rounded), "%.4g", theta);
    c->rope_theta = (float)theta;
    if (fabs(strtod(rounded, NULL) / theta - 1) < 1e-4)
        c->rope_theta = strtof(rounded, NULL);
    for (int i = 0; i < half; i++) {
        double factor = pow((double)c->rope_theta, -(double)i / half) / d->freq[i];

        c->rope_factor[i] = fabs(factor - 1) < 1e-6 ? 1 : (float)factor;
    }
}

static int set_config(struct format_file *f, const struct graph_decoder *d)
{
    struct model_config *c = &f->config;

    format_family_apply(format_family_like(d->qkv_bias && !d->o_bias, d->qk_norm), c);
    format_name_from_path(c, f->path);
    c->dim = d->dim;
    c->n_layers = d->n_layers;
    c->n_heads = d->n_heads;
    c->n_kv_heads = d->n_kv_heads;
    c->head_dim = d->head_dim;
    c->vocab = d->vocab;
    c->hidden = d->hidden;
    c->max_tok = GRAPH_DECODER_TOK;
    c->norm_eps = (float)d->norm_eps;
    c->tied = d->tied;
    c->qkv_bias = d->qkv_bias;
    c->o_bias = d->o_bias;
    c->qk_norm = d->qk_norm;
    c->weight_type = KERN_F32;
    if (d->head_dim > MODEL_HEAD_DIM_MAX)
        return err_set(ERR_UNSUPPORTED, "heads of %d elements: expected at most %d",
                       d->head_dim, MODEL_HEAD_DIM_MAX);
    set_rope(c, d);
    return model_config_check(c, f->path);
}

static int recognise(struct opened *o)
{
    struct graph *g;

    TRY(graph_onnx_open(&o->onnx, o->map.base, (size_t)o->map.bytes));
    g = graph_onnx_graph(o->onnx);
    TRY(graph_rewrite(g, NULL));
    return graph_decoder_of(&o->d, g, graph_onnx_fill, o->onnx);
}

static int onnx_open(struct format_file *f, const char *path)
{
    struct opened *o = mem_new(MEM_MODEL_FILE, 1, sizeof(*o));
    int rc;

    f->state = o;
    if (!o)
        return ERR_NOMEM;
    TRY(file_map_open(&o->map, path));
    f->file_bytes = (int64_t)o->map.bytes;
    rc = recognise(o);
    if (rc == OK)
        rc = set_config(f, &o->d);
    if (rc != OK)
        return err_prefix(rc, "%s", path);
    TRY(format_fill_layers(f));
    TRY(copy(o, o->d.embed, &f->global[FORMAT_EMBED]));
    TRY(copy(o, o->d.out_norm, &f->global[FORMAT_OUT_NORM]));
    if (!o->d.tied)
        TRY(copy(o, o->d.head, &f->global[FORMAT_HEAD]));
    for (int l = 0; l < o->d.n_layers; l++)
        TRY(copy_layer(f, o, l));
    format_fill_types(f);
    return OK;
}

static void onnx_close(struct format_file *f)
{
    struct opened *o = f->state;

    if (!o)
        return;
    for (int i = 0; i < o->n; i++)
        mem_free(o->data[i]);
    mem_free(o->data);
    graph_decoder_fini(&o->d);
    graph_onnx_close(&o->onnx);
    if (o->map.base)
        file_map_close(&o->map);
    mem_free(o);
    f->state = NULL;
}

const struct format_reader format_reader_onnx = {
    .name = "onnx", .probe = onnx_probe, .open = onnx_open, .close = onnx_close};
