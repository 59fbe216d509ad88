/* tests/graph/onnx_decoder.h - writes the ONNX file of a decoder's weights, each operator small. */
#ifndef TESTS_GRAPH_ONNX_DECODER_H
#define TESTS_GRAPH_ONNX_DECODER_H

#include <math.h>

#include "format/format.h"
#include "tests/graph/onnx_write.h"

struct writer {
    struct text g;
    const struct format_file *f;
    const struct model_config *c;
    int n; /* names so far */
};

/* A name that no other node has; four are good at a time. */
static const char *fresh(struct writer *w)
{
    static char names[16][24];
    char *name = names[w->n % 16];

    snprintf(name, sizeof(names[0]), "v%d", w->n++);
    return name;
}

static const char *node(struct writer *w, const char *op, const char *attrs,
                        const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static const char *node(struct writer *w, const char *op, const char *attrs,
                        const char *fmt, ...)
{
    char ins[300];
    const char *out = fresh(w);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(ins, sizeof(ins), fmt, ap);
    va_end(ap);
    onnx_node(&w->g, op, out, ins, attrs);
    return out;
}

static void number(struct writer *w, const char *name, double x)
{
    float f = (float)x;

    onnx_initializer(&w->g, name, 1, NULL, 0, &f);
}

static void integers(struct writer *w, const char *name, int n, const int64_t *x)
{
    int64_t dim = n;

    onnx_initializer(&w->g, name, 7, &dim, n < 0 ? 0 : 1, x);
}

/* The row of a file that is row r of a head in halves. */
static int64_t row_of(const struct writer *w, enum format_role role, int64_t r)
{
    int64_t hd = w->c->head_dim, i = r % hd;

    if (!w->f->rope_interleaved || (role != FORMAT_Q && role != FORMAT_K))
        return r;
    return r - i + (i < hd / 2 ? 2 * i : 2 * (i - hd / 2) + 1);
}

/* A matrix [rows, cols] of the file as [cols, rows] for MatMul; a vector as it is. */
static void weight(struct writer *w, const char *name, const struct format_tensor *t,
                   enum format_role role)
{
    float *x = malloc((size_t)(t->rows * t->cols) * sizeof(*x)), v;
    int64_t dim[2] = {t->cols, t->rows};

    assert_non_null(x);
    assert_int_equal(t->type, KERN_F32);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++) {
            const char *at = t->data;

            /* a bias has an element for each row of its matrix */
            memcpy(&v,
                   at + (t->rows > 1 ? row_of(w, role, r) * t->cols + c
                                     : row_of(w, role, c)) *
                            (int64_t)sizeof(v),
                   sizeof(v));
            x[c * t->rows + r] = v;
        }
    onnx_initializer(&w->g, name, 1, dim, t->rows == 1 ? 1 : 2, x);
    free(x);
}

static const char *product(struct writer *w, const char *x, int layer,
                           enum format_role role, enum format_role bias)
{
    char name[64];
    const char *y;

    snprintf(name, sizeof(name), "model.layers.%d.role%d.weight", layer, (int)role);
    weight(w, name, format_layer_tensor(w->f, layer, role), role);
    y = node(w, "MatMul", "", "%s %s", x, name);
    if (bias == FORMAT_N_ROLES || !format_layer_tensor(w->f, layer, bias)->data)
        return y;
    snprintf(name, sizeof(name), "model.layers.%d.role%d.bias", layer, (int)role);
    weight(w, name, format_layer_tensor(w->f, layer, bias),
           role == FORMAT_V ? FORMAT_V : role);
    return node(w, "Add", "", "%s %s", name, y);
}

/* RMSNorm in one of three spellings. */
static const char *norm(struct writer *w, const char *x, const char *name,
                        const struct format_tensor *t, int spelling)
{
    char in[24];
    const char *y;

    snprintf(in, sizeof(in), "%s", x);
    weight(w, name, t, FORMAT_ATTN_NORM);
    y = spelling == 1 ? node(w, "Mul", "", "%s %s", in, in)
                      : node(w, "Pow", "", "%s two", in);
    y = node(w, "ReduceMean", "keepdims=1", "%s last", y);
    y = node(w, "Add", "", "%s eps", y);
    if (spelling == 2) {
        y = node(w, "Pow", "", "%s minus_half", y);
        y = node(w, "Mul", "", "%s %s", in, y);
    } else {
        y = node(w, "Sqrt", "", "%s", y);
        if (spelling == 1)
            y = node(w, "Reciprocal", "", "%s", y);
        y = node(w, spelling == 1 ? "Mul" : "Div", "", "%s %s", in, y);
    }
    return node(w, "Mul", "", "%s %s", name, y);
}

/* Heads before tokens, each after its norm where the model has one. */
static const char *heads(struct writer *w, const char *x, const char *sizes, int layer,
                         enum format_role norm_role)
{
    const struct format_tensor *t = format_layer_tensor(w->f, layer, norm_role);
    const char *y = node(w, "Reshape", "", "%s %s", x, sizes);
    char name[64];

    snprintf(name, sizeof(name), "model.layers.%d.role%d.norm", layer, (int)norm_role);
    if (norm_role != FORMAT_V && t->data)
        y = norm(w, y, name, t, layer % 3);
    return node(w, "Transpose", "perm=0,2,1,3", "%s", y);
}

static const char *rope(struct writer *w, const char *x)
{
    char in[24], straight[24];
    const char *a, *b;

    snprintf(in, sizeof(in), "%s", x);
    snprintf(straight, sizeof(straight), "%s", node(w, "Mul", "", "%s cos", in));
    a = node(w, "Slice", "", "%s zero half last", in);
    b = node(w, "Slice", "", "%s half end last", in);
    b = node(w, "Neg", "", "%s", b);
    a = node(w, "Concat", "axis=-1", "%s %s", b, a);
    a = node(w, "Mul", "", "%s sin", a);
    return node(w, "Add", "", "%s %s", straight, a);
}

/* Each head of keys or values for all queries that share it. */
static const char *repeat(struct writer *w, const char *x)
{
    const char *y;

    if (w->c->n_heads == w->c->n_kv_heads)
        return x;
    y = node(w, "Unsqueeze", "", "%s two_axis", x);
    y = node(w, "Expand", "", "%s repeated", y);
    return node(w, "Reshape", "", "%s all_heads", y);
}

static const char *attention(struct writer *w, const char *n, int layer)
{
    char q[24], k[24], v[24];
    const char *y;

    y = product(w, n, layer, FORMAT_Q, FORMAT_Q_BIAS);
    snprintf(q, sizeof(q), "%s", rope(w, heads(w, y, "q_sizes", layer, FORMAT_Q_NORM)));
    y = product(w, n, layer, FORMAT_K, FORMAT_K_BIAS);
    y = rope(w, heads(w, y, "kv_sizes", layer, FORMAT_K_NORM));
    snprintf(k, sizeof(k), "%s", repeat(w, y));
    y = product(w, n, layer, FORMAT_V, FORMAT_V_BIAS);
    y = heads(w, y, "kv_sizes", layer, FORMAT_V);
    snprintf(v, sizeof(v), "%s", repeat(w, y));
    y = node(w, "Transpose", "perm=0,1,3,2", "%s", k);
    y = node(w, "MatMul", "", "%s %s", q, y);
    y = node(w, "Div", "", "%s root", y);
    y = node(w, "Add", "", "%s mask", y);
    y = node(w, "Softmax", "axis=-1", "%s", y);
    y = node(w, "MatMul", "", "%s %s", y, v);
    y = node(w, "Transpose", "perm=0,2,1,3", "%s", y);
    y = node(w, "Reshape", "", "%s joined", y);
    return product(w, y, layer, FORMAT_O, FORMAT_O_BIAS);
}

static const char *mlp(struct writer *w, const char *n, int layer)
{
    char in[24], gate[24], silu[24];
    const char *y;

    snprintf(in, sizeof(in), "%s", n);
    snprintf(gate, sizeof(gate), "%s",
             product(w, in, layer, FORMAT_GATE, FORMAT_N_ROLES));
    y = node(w, "Sigmoid", "", "%s", gate);
    snprintf(silu, sizeof(silu), "%s", node(w, "Mul", "", "%s %s", gate, y));
    y = product(w, in, layer, FORMAT_UP, FORMAT_N_ROLES);
    y = node(w, "Mul", "", "%s %s", silu, y);
    return product(w, y, layer, FORMAT_DOWN, FORMAT_N_ROLES);
}

static void layer_of(struct writer *w, char x[24], int layer)
{
    char name[64], n[24];

    snprintf(name, sizeof(name), "model.layers.%d.input_norm", layer);
    snprintf(
        n, sizeof(n), "%s",
        norm(w, x, name, format_layer_tensor(w->f, layer, FORMAT_ATTN_NORM), layer % 3));
    snprintf(x, 24, "%s", node(w, "Add", "", "%s %s", x, attention(w, n, layer)));
    snprintf(name, sizeof(name), "model.layers.%d.post_norm", layer);
    snprintf(n, sizeof(n), "%s",
             norm(w, x, name, format_layer_tensor(w->f, layer, FORMAT_FFN_NORM),
                  (layer + 1) % 3));
    snprintf(x, 24, "%s", node(w, "Add", "", "%s %s", x, mlp(w, n, layer)));
}

static void constants(struct writer *w)
{
    const struct model_config *c = w->c;
    int64_t hd = c->head_dim, half = hd / 2, dim = half;
    float freq[MODEL_HEAD_DIM_MAX / 2];

    number(w, "two", 2);
    number(w, "eps", (double)c->norm_eps);
    number(w, "minus_half", -0.5);
    number(w, "root", sqrt((double)hd));
    number(w, "none", 0);
    number(w, "never", -INFINITY);
    integers(w, "zero", 1, (int64_t[]){0});
    integers(w, "one", 1, (int64_t[]){1});
    integers(w, "zero_number", -1, (int64_t[]){0});
    integers(w, "one_number", -1, (int64_t[]){1});
    integers(w, "half", 1, &half);
    integers(w, "end", 1, (int64_t[]){INT64_MAX});
    integers(w, "last", 1, (int64_t[]){-1});
    integers(w, "two_axis", 1, (int64_t[]){2});
    integers(w, "q_sizes", 4, (int64_t[]){0, 0, c->n_heads, hd});
    integers(w, "kv_sizes", 4, (int64_t[]){1, -1, c->n_kv_heads, hd});
    integers(w, "joined", 3, (int64_t[]){0, 0, -1});
    integers(w, "all_heads", 4, (int64_t[]){1, c->n_heads, -1, hd});
    integers(w, "groups", 3, (int64_t[]){1, c->n_kv_heads, c->n_heads / c->n_kv_heads});
    integers(w, "head_size", 1, &hd);
    for (int i = 0; i < half; i++)
        freq[i] = (float)pow((double)c->rope_theta, -(double)i / (double)half);
    onnx_initializer(&w->g, "inv_freq", 1, &dim, 1, freq);
}

/* Positions, the mask and sizes follow from the number of tokens. */
static void tables(struct writer *w, int64_t window)
{
    onnx_node(&w->g, "Shape", "ids_shape", "input_ids", "");
    onnx_node(&w->g, "Gather", "n_tok", "ids_shape one_number", "axis=0");
    onnx_node(&w->g, "Range", "pos", "zero_number n_tok one_number", "");
    onnx_node(&w->g, "Unsqueeze", "pos_rows", "pos one", "");
    onnx_node(&w->g, "Unsqueeze", "pos_cols", "pos zero", "");
    onnx_node(&w->g, "Greater", "later", "pos_cols pos_rows", "");
    onnx_node(&w->g, "Where", window ? "causal" : "mask", "later never none", "");
    if (window) {
        integers(w, "window", 1, &window);
        onnx_node(&w->g, "Sub", "begin", "pos_rows window", "");
        onnx_node(&w->g, "LessOrEqual", "early", "pos_cols begin", "");
        onnx_node(&w->g, "Where", "mask", "early never causal", "");
    }
    onnx_node(&w->g, "Cast", "pos_real", "pos_rows", "to=1");
    onnx_node(&w->g, "Mul", "angles", "pos_real inv_freq", "");
    onnx_node(&w->g, "Concat", "both_angles", "angles angles", "axis=-1");
    onnx_node(&w->g, "Cos", "cos", "both_angles", "");
    onnx_node(&w->g, "Sin", "sin", "both_angles", "");
    onnx_node(&w->g, "Unsqueeze", "n_tok_row", "n_tok zero", "");
    onnx_node(&w->g, "Concat", "repeated", "groups n_tok_row head_size", "axis=0");
}

/* window: how many tokens a token attends to; 0: all. */
static inline struct text decoder(const struct format_file *f, int64_t window)
{
    struct writer w = {.f = f, .c = &f->config};
    const int64_t ids[] = {1, -1}, logits[] = {1, -1, f->config.vocab};
    const struct format_tensor *head =
        &f->global[f->config.tied ? FORMAT_EMBED : FORMAT_HEAD];
    const struct format_tensor *embed = &f->global[FORMAT_EMBED];
    char x[24];

    constants(&w);
    onnx_initializer(&w.g, "embed", 1, (int64_t[]){embed->rows, embed->cols}, 2,
                     embed->data);
    onnx_value(&w.g, 11, "input_ids", 7, ids, 2);
    tables(&w, window);
    snprintf(x, sizeof(x), "%s", node(&w, "Gather", "axis=0", "embed input_ids"));
    for (int l = 0; l < w.c->n_layers; l++)
        layer_of(&w, x, l);
    snprintf(x, sizeof(x), "%s", norm(&w, x, "out_norm", &f->global[FORMAT_OUT_NORM], 0));
    if (f->config.tied) {
        onnx_node(&w.g, "Transpose", "tied", "embed", "perm=1,0");
        snprintf(x, sizeof(x), "%s", node(&w, "MatMul", "", "%s tied", x));
    } else {
        weight(&w, "head", head, FORMAT_HEAD);
        snprintf(x, sizeof(x), "%s", node(&w, "MatMul", "", "%s head", x));
    }
    onnx_value(&w.g, 12, x, 1, logits, 3);
    return onnx_model(&w.g, 18);
}

#define N_PROMPT 4
#define N_ALL    9
/* The first N_PROMPT of N_ALL ids. */
#define PROMPT 1, 37, 5, 411

#endif
