/* The passes of engine/graph over a decoder block as an export of a framework writes it: what each
 * pass leaves of nodes, copies and bytes. Counts, no times.   Paper: MNN-LLM III. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "graph/graph.h"

enum { DIVISION, RECIPROCAL, POWER, LAYER_NORM };

#define OPTIONS(X)                                                                       \
    X(ENUM, norm, "division",                                                            \
      "How the file spells a normalisation: RMSNorm by a division, by the reciprocal "   \
      "of the root, or by a power of -0.5; LayerNorm by means and differences.",         \
      .values = "division|reciprocal|power|layer_norm")                                  \
    X(STR, passes, "all", "Passes that run, in this order, with commas; none; all.",     \
      .unit = "NAMES")                                                                   \
    X(INT, n_tok, "560", "Tokens, the dynamic size.", .min = 1, .max = 1 << 20)          \
    X(INT, dim, "2048", "Size of the residual stream.", .min = 16, .max = 1 << 16)       \
    X(INT, n_heads, "16", "Heads, which divide dim.", .min = 1, .max = 1024)             \
    X(INT, hidden, "5504", "Size of the MLP.", .min = 16, .max = 1 << 18)                \
    X(INT, n_layers, "24", "Blocks.", .min = 1, .max = 128)

#define RESULTS(X)                                                                       \
    X(n_nodes, "", LOWER, "nodes of the graph")                                          \
    X(n_operators, "", LOWER, "nodes that compute or move activations")                  \
    X(n_copies, "", LOWER, "operators that only move elements")                          \
    X(activation_mb, "MB", LOWER, "activations read and written, operator by operator")  \
    X(copied_mb, "MB", LOWER, "of these by operators that only move elements")           \
    X(nodes_left_frac, "", LOWER, "n_nodes / that of the file")                          \
    X(activation_left_frac, "", LOWER, "activation_mb / that of the file")

FRAME_TYPES;

struct graph_rewrite {
    FRAME_CELL;
};

/* ---- the file ---- */

struct file {
    const struct opts *o;
    struct text text;
    int n; /* nodes so far */
};

/* A node; returns its number. */
static int node(struct file *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int node(struct file *f, const char *fmt, ...)
{
    char line[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    text_printf(&f->text, "%%%d = %s\n", f->n, line);
    return f->n++;
}

static int norm(struct file *f, int x, int layer, const char *name)
{
    int how = f->o->norm, d = x, two, mean, sum, root, y, w;

    if (how == LAYER_NORM) {
        mean = node(f, "reduce_mean(%%%d; -1)", x);
        d = node(f, "sub(%%%d, %%%d)", x, mean);
    }
    two = node(f, "const f32[]: 2");
    y = node(f, "pow(%%%d, %%%d)", d, two);
    mean = node(f, "reduce_mean(%%%d; -1)", y);
    sum = node(f, "const f32[]: 1e-06");
    sum = node(f, "add(%%%d, %%%d)", mean, sum);
    if (how == POWER) {
        root = node(f, "const f32[]: -0.5");
        root = node(f, "pow(%%%d, %%%d)", sum, root);
    } else {
        root = node(f, "sqrt(%%%d)", sum);
    }
    if (how == RECIPROCAL)
        root = node(f, "reciprocal(%%%d)", root);
    y = node(f, "%s(%%%d, %%%d)", how == POWER || how == RECIPROCAL ? "mul" : "div", d,
             root);
    w = node(f, "weight %s.%d: f32[%lld]", name, layer, (long long)f->o->dim);
    y = node(f, "mul(%%%d, %%%d)", y, w);
    if (how != LAYER_NORM)
        return y;
    w = node(f, "weight %s.bias.%d: f32[%lld]", name, layer, (long long)f->o->dim);
    return node(f, "add(%%%d, %%%d)", y, w);
}

static int linear(struct file *f, int x, int layer, const char *name, int64_t k,
                  int64_t n)
{
    int w =
        node(f, "weight %s.%d: f32[%lld, %lld]", name, layer, (long long)k, (long long)n);

    return node(f, "matmul(%%%d, %%%d)", x, w);
}

/* [1, tokens, heads, size], each size out of the shape of x. */
static int head_sizes(struct file *f, int x)
{
    int shape, one, tok, heads, size;

    shape = node(f, "shape(%%%d)", x);
    one = node(f, "gather(%%%d; 0, 0)", shape);
    one = node(f, "unsqueeze(%%%d; 0)", one);
    shape = node(f, "shape(%%%d)", x);
    tok = node(f, "gather(%%%d; 0, 1)", shape);
    tok = node(f, "unsqueeze(%%%d; 0)", tok);
    heads = node(f, "const i64[1]: %lld", (long long)f->o->n_heads);
    size = node(f, "const i64[1]: %lld", (long long)(f->o->dim / f->o->n_heads));
    return node(f, "concat(%%%d, %%%d, %%%d, %%%d; 0)", one, tok, heads, size);
}

static int heads(struct file *f, int x, int layer, const char *name)
{
    int y = linear(f, x, layer, name, f->o->dim, f->o->dim);
    int sizes = head_sizes(f, y);

    y = node(f, "reshape(%%%d, %%%d)", y, sizes);
    return node(f, "transpose(%%%d; 0, 2, 1, 3)", y);
}

static int attention(struct file *f, int x, int layer)
{
    int q = heads(f, x, layer, "q"), k = heads(f, x, layer, "k"),
        v = heads(f, x, layer, "v");
    int root =
        node(f, "const f32[]: %g", 1 / sqrt((double)f->o->dim / (double)f->o->n_heads));
    int y = node(f, "transpose(%%%d; 0, 1, 3, 2)", k);

    y = node(f, "matmul(%%%d, %%%d)", q, y);
    y = node(f, "mul(%%%d, %%%d)", y, root);
    y = node(f, "add(%%%d, %%1)", y); /* the mask */
    y = node(f, "softmax(%%%d; -1)", y);
    y = node(f, "matmul(%%%d, %%%d)", y, v);
    y = node(f, "transpose(%%%d; 0, 2, 1, 3)", y);
    root = node(f, "const i64[3]: 1, -1, %lld", (long long)f->o->dim);
    y = node(f, "reshape(%%%d, %%%d)", y, root);
    return linear(f, y, layer, "o", f->o->dim, f->o->dim);
}

static int mlp(struct file *f, int x, int layer)
{
    int gate = linear(f, x, layer, "gate", f->o->dim, f->o->hidden);
    int up = linear(f, x, layer, "up", f->o->dim, f->o->hidden);
    int y = node(f, "sigmoid(%%%d)", gate);

    y = node(f, "mul(%%%d, %%%d)", gate, y);
    y = node(f, "mul(%%%d, %%%d)", y, up);
    return linear(f, y, layer, "down", f->o->hidden, f->o->dim);
}

static int write_file(struct file *f)
{
    int x = node(f, "input x: f32[1, T, %lld]", (long long)f->o->dim), y;

    (void)node(
        f, "weight mask: f32[1, 1, 1, 1]"); /* of scores; its size is no matter here */
    for (int layer = 0; layer < f->o->n_layers; layer++) {
        y = attention(f, norm(f, x, layer, "attn_norm"), layer);
        x = node(f, "add(%%%d, %%%d)", x, y);
        y = mlp(f, norm(f, x, layer, "ffn_norm"), layer);
        x = node(f, "add(%%%d, %%%d)", x, y);
    }
    text_printf(&f->text, "return %%%d\n", norm(f, x, 0, "out_norm"));
    return f->text.rc;
}

/* ---- the passes ---- */

#define PASSES_MAX 32

static int find_passes(const struct graph_pass *out[PASSES_MAX], const char *names)
{
    int n = 0;
    size_t len;

    out[0] = NULL;
    if (strcmp(names, "none") == 0)
        return OK;
    for (const char *p = names; n < PASSES_MAX - 1; p += len + 1) {
        int i = 0;

        len = strcspn(p, ",");
        while (graph_passes[i] && (strlen(graph_passes[i]->name) != len ||
                                   strncmp(graph_passes[i]->name, p, len) != 0))
            i++;
        if (!graph_passes[i])
            return err_set(ERR_ARG, "passes: no pass \"%.*s\"", (int)len, p);
        out[n++] = graph_passes[i];
        out[n] = NULL;
        if (!p[len])
            return OK;
    }
    return err_set(ERR_LIMIT, "passes: more than %d", PASSES_MAX - 1);
}

static int graph_rewrite_run(struct graph_rewrite *c)
{
    const struct opts *o = c->o;
    const struct graph_pass *passes[PASSES_MAX];
    struct file f = {.o = o};
    struct graph g = {0};
    struct graph_cost before, after;
    int rc = write_file(&f);

    if (rc == OK && strcmp(o->passes, "all") != 0)
        rc = find_passes(passes, o->passes);
    if (rc == OK)
        rc = graph_parse(&g, f.text.p, f.text.n);
    text_fini(&f.text);
    before = graph_cost_of(&g, o->n_tok);
    if (rc == OK)
        rc = strcmp(o->passes, "all") == 0 ? graph_rewrite(&g, NULL)
                                           : graph_rewrite_by(&g, passes, NULL);
    after = graph_cost_of(&g, o->n_tok);
    graph_fini(&g);
    if (rc != OK)
        return rc;
    c->r->n_nodes = after.n_nodes;
    c->r->n_operators = after.n_operators;
    c->r->n_copies = after.n_copies;
    c->r->activation_mb = after.activation_bytes / 1e6;
    c->r->copied_mb = after.copied_bytes / 1e6;
    c->r->nodes_left_frac = (double)after.n_nodes / before.n_nodes;
    c->r->activation_left_frac = after.activation_bytes / before.activation_bytes;
    return OK;
}

STUDY(graph_rewrite,
      "passes over a decoder's graph: nodes, copies and bytes that are left");
