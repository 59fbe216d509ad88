/* A decoder is recognised in a graph, from its result back. */
#include "graph/decoder.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define LAYERS_MAX 1024

struct job {
    const struct graph *g;
    struct graph_decoder *d;
    int mask, cos, sin; /* -1: not met yet */
    int last_norm;      /* of the layer at hand: what queries are projected from */
    double scale;       /* of the scores */
};

static int expected(const struct job *j, int i, const char *what)
{
    return err_set(ERR_UNSUPPORTED, "%%%d = %s: expected %s", i, j->g->nodes[i].op->name,
                   what);
}

static const struct graph_node *node(const struct job *j, int i)
{
    return &j->g->nodes[i];
}

static bool is_given(const struct job *j, int i)
{
    return graph_is(j->g, i, "weight") || graph_is(j->g, i, "const");
}

/* ---- pieces ---- */

static int matrix(const struct job *j, int i, struct graph_matrix *out)
{
    const struct graph_node *v = node(j, i);

    *out = (struct graph_matrix){i, true};
    if (graph_is(j->g, i, "transpose") && v->n_ints == 2 && v->ints[0] == 1)
        *out = (struct graph_matrix){v->in[0], false};
    return is_given(j, out->node) && node(j, out->node)->shape.rank == 2
               ? OK
               : expected(j, i, "a matrix of weights");
}

static int vector(const struct job *j, int i, int64_t n, struct graph_matrix *out)
{
    const struct graph_shape *s = &node(j, i)->shape;

    *out = (struct graph_matrix){i, false};
    return is_given(j, i) && s->rank == 1 && s->dim[0] == n
               ? OK
               : expected(j, i, "a vector of weights");
}

/* Inputs and outputs of a matrix. */
static void sizes(const struct job *j, struct graph_matrix m, int64_t *in, int64_t *out)
{
    const struct graph_shape *s = &node(j, m.node)->shape;

    *in = s->dim[m.flipped ? 0 : 1];
    *out = s->dim[m.flipped ? 1 : 0];
}

/* x W, and + b where `bias` is not NULL. */
static int linear(const struct job *j, int i, int *x, struct graph_matrix *w,
                  struct graph_matrix *bias)
{
    int product = i, b = -1;

    if (bias) {
        *bias = (struct graph_matrix){-1, false};
        for (int a = 0; a < 2 && graph_is(j->g, i, "add"); a++)
            if (is_given(j, node(j, i)->in[a])) {
                b = node(j, i)->in[a];
                product = node(j, i)->in[1 - a];
            }
    }
    if (!graph_is(j->g, product, "matmul"))
        return expected(j, product, "a product with weights");
    *x = node(j, product)->in[0];
    TRY(matrix(j, node(j, product)->in[1], w));
    if (b >= 0) {
        int64_t in, out;

        sizes(j, *w, &in, &out);
        TRY(vector(j, b, out, bias));
    }
    return OK;
}

static int norm(struct job *j, int i, int *x, struct graph_matrix *w)
{
    const struct graph_node *v = node(j, i);
    const struct graph_shape *s;

    if (!graph_is(j->g, i, "rms_norm"))
        return expected(j, i, "rms_norm");
    if (j->d->norm_eps != 0 && j->d->norm_eps != v->x)
        return expected(j, i, "one epsilon for all normalisations");
    j->d->norm_eps = v->x;
    *x = v->in[0];
    s = &node(j, *x)->shape;
    return vector(j, v->in[1], s->dim[s->rank - 1], w);
}

static bool swaps_heads(const struct graph_node *v)
{
    return v->n_ints == 4 && v->ints[0] == 0 && v->ints[1] == 2 && v->ints[2] == 1 &&
           v->ints[3] == 3;
}

/* A projection as heads: transpose(reshape(x W + b)), with a normalisation of each head
 * before the transpose where `head_norm` is not NULL and it is there. */
static int heads(struct job *j, int i, struct graph_matrix *w, struct graph_matrix *bias,
                 struct graph_matrix *head_norm, int *n_heads)
{
    int y, x;

    if (!graph_is(j->g, i, "transpose") || !swaps_heads(node(j, i)))
        return expected(j, i, "heads before tokens");
    *n_heads = (int)node(j, i)->shape.dim[1];
    y = node(j, i)->in[0];
    if (head_norm) {
        *head_norm = (struct graph_matrix){-1, false};
        if (graph_is(j->g, y, "rms_norm"))
            TRY(norm(j, y, &y, head_norm));
    }
    if (!graph_is(j->g, y, "reshape"))
        return expected(j, y, "a reshape to heads");
    TRY(linear(j, node(j, y)->in[0], &x, w, bias));
    if (j->last_norm >= 0 && x != j->last_norm)
        return expected(j, x, "one input of queries, keys and values");
    j->last_norm = x;
    return OK;
}

static int rotated(struct job *j, int i, int *x)
{
    const struct graph_node *v = node(j, i);

    if (!graph_is(j->g, i, "rope"))
        return expected(j, i, "rope");
    if (j->cos >= 0 && (v->in[1] != j->cos || v->in[2] != j->sin))
        return expected(j, i, "the same angles in all layers");
    j->cos = v->in[1];
    j->sin = v->in[2];
    *x = v->in[0];
    return OK;
}

/* ---- a layer ---- */

static int attention(struct job *j, int i, struct graph_decoder_layer *l)
{
    const struct graph_node *v = node(j, i);
    int q = -1, k = -1, n_heads = 0, n_kv = 0, n_values = 0;

    if (!graph_is(j->g, i, "attention") || v->n_in != 4 || v->shape.rank != 4)
        return expected(j, i, "attention with a mask");
    if ((j->mask >= 0 && v->in[3] != j->mask) || (j->scale != 0 && v->x != j->scale))
        return expected(j, i, "the same mask and scale in all layers");
    j->mask = v->in[3];
    j->scale = v->x;
    j->last_norm = -1;
    TRY(rotated(j, v->in[0], &q));
    TRY(rotated(j, v->in[1], &k));
    TRY(heads(j, q, &l->q, &l->q_bias, &l->q_norm, &n_heads));
    TRY(heads(j, k, &l->k, &l->k_bias, &l->k_norm, &n_kv));
    TRY(heads(j, v->in[2], &l->v, &l->v_bias, NULL, &n_values));
    if (n_values != n_kv ||
        (j->d->n_heads != 0 && (n_heads != j->d->n_heads || n_kv != j->d->n_kv_heads)))
        return expected(j, i, "the same heads in all layers");
    j->d->n_heads = n_heads;
    j->d->n_kv_heads = n_kv;
    j->d->head_dim = (int)node(j, q)->shape.dim[3];
    return (l->q_bias.node >= 0) == (l->k_bias.node >= 0) &&
                   (l->q_bias.node >= 0) == (l->v_bias.node >= 0) &&
                   (l->q_norm.node >= 0) == (l->k_norm.node >= 0)
               ? OK
               : expected(j, i, "biases and norms of queries, keys and values alike");
}

/* x + attention of its norm. Gives x. */
static int attention_block(struct job *j, int i, struct graph_decoder_layer *l, int *x)
{
    int y, joined = -1, last = -1, normed = i;

    for (int a = 0; a < 2 && graph_is(j->g, i, "add"); a++) {
        *x = node(j, i)->in[a];
        if (linear(j, node(j, i)->in[1 - a], &joined, &l->o, &l->o_bias) != OK ||
            !graph_is(j->g, joined, "reshape") ||
            !graph_is(j->g, node(j, joined)->in[0], "transpose"))
            continue;
        y = node(j, joined)->in[0];
        if (!swaps_heads(node(j, y)))
            continue;
        TRY(attention(j, node(j, y)->in[0], l));
        normed = j->last_norm;
        TRY(norm(j, normed, &last, &l->attn_norm));
        return last == *x ? OK : expected(j, normed, "the norm of what is added to");
    }
    return expected(j, i, "the residual stream and attention");
}

/* x + MLP of its norm. Gives x. */
static int mlp_block(struct job *j, int i, struct graph_decoder_layer *l, int *x)
{
    for (int a = 0; a < 2 && graph_is(j->g, i, "add"); a++) {
        int hidden = -1, gate = -1, up = -1, last = -1;

        *x = node(j, i)->in[a];
        if (linear(j, node(j, i)->in[1 - a], &hidden, &l->down, NULL) != OK ||
            !graph_is(j->g, hidden, "swiglu"))
            continue;
        TRY(linear(j, node(j, hidden)->in[0], &gate, &l->gate, NULL));
        TRY(linear(j, node(j, hidden)->in[1], &up, &l->up, NULL));
        if (gate != up)
            return expected(j, hidden, "one input of gate and up");
        TRY(norm(j, gate, &last, &l->ffn_norm));
        return last == *x ? OK : expected(j, gate, "the norm of what is added to");
    }
    return expected(j, i, "the residual stream and an MLP");
}

static int check_layer(const struct job *j, const struct graph_decoder_layer *l)
{
    const struct graph_decoder *d = j->d;
    int64_t hd = d->head_dim, dim = d->dim, hidden = d->hidden;
    const struct {
        struct graph_matrix m;
        int64_t in, out;
    } want[] = {{l->q, dim, d->n_heads * hd},    {l->k, dim, d->n_kv_heads * hd},
                {l->v, dim, d->n_kv_heads * hd}, {l->o, d->n_heads * hd, dim},
                {l->gate, dim, hidden},          {l->up, dim, hidden},
                {l->down, hidden, dim}};

    for (size_t k = 0; k < sizeof(want) / sizeof(want[0]); k++) {
        int64_t in, out;

        sizes(j, want[k].m, &in, &out);
        if (in != want[k].in || out != want[k].out)
            return err_set(ERR_UNSUPPORTED,
                           "%%%d: expected a matrix of %lld to %lld, found %lld to %lld",
                           want[k].m.node, (long long)want[k].in, (long long)want[k].out,
                           (long long)in, (long long)out);
    }
    return (l->q_bias.node >= 0) == d->qkv_bias && (l->o_bias.node >= 0) == d->o_bias &&
                   (l->q_norm.node >= 0) == d->qk_norm
               ? OK
               : expected(j, l->q.node, "all layers with biases and norms, or none");
}

/* ---- mask and angles ---- */

static int check_mask(const double *mask, int64_t n, int64_t n_tok)
{
    if (n != n_tok * n_tok)
        return err_set(ERR_UNSUPPORTED, "the mask is not one of tokens by tokens");
    for (int64_t k = 0; k < n; k++)
        if (k % n_tok <= k / n_tok ? mask[k] != 0 : !(mask[k] <= -1e4))
            return err_set(ERR_UNSUPPORTED, "the mask is not causal: token %lld to %lld",
                           (long long)(k / n_tok), (long long)(k % n_tok));
    return OK;
}

/* Tables in a file may be of f32, so that the error grows with the position. */
static int check_angles(struct graph_decoder *d, const double *cosines,
                        const double *sines, int64_t n_cos, int64_t n_sin, int64_t n_tok)
{
    int hd = d->head_dim, half = hd / 2;

    if (n_cos != n_tok * hd || n_sin != n_cos)
        return err_set(ERR_UNSUPPORTED, "angles are not of tokens by a head's elements");
    for (int i = 0; i < half; i++) {
        d->freq[i] = atan2(sines[hd + i], cosines[hd + i]);
        if (!(d->freq[i] > 0))
            return err_set(ERR_UNSUPPORTED, "pair %d does not turn", i);
    }
    for (int64_t k = 0; k < n_tok * hd; k++) {
        int64_t t = k / hd;
        double angle = (double)t * d->freq[k % hd % half];
        double most = 1e-5 + 3e-7 * (double)t;

        if (!(fabs(cosines[k] - cos(angle)) < most && fabs(sines[k] - sin(angle)) < most))
            return err_set(ERR_UNSUPPORTED,
                           "angles are not in proportion to positions from 0");
    }
    return OK;
}

/* Check the part with n_tok tokens, since its values may depend on how many there are. */
static int check_part(struct graph_decoder *d, const struct graph *part, int64_t n_tok,
                      graph_fill_fn fill, void *ctx)
{
    double *out[GRAPH_IN_MAX] = {NULL};
    int64_t n[GRAPH_IN_MAX];
    int rc = graph_compute(out, n, part, n_tok, fill, ctx);

    if (rc == OK)
        rc = check_mask(out[0], n[0], n_tok);
    if (rc == OK)
        rc = check_angles(d, out[1], out[2], n[1], n[2], n_tok);
    for (int a = 0; a < 3; a++)
        mem_free(out[a]);
    return rc;
}

/* The part of the graph that gives mask and angles, for 2 and GRAPH_DECODER_TOK tokens. */
static int check_positions(struct job *j, graph_fill_fn fill, void *ctx)
{
    static const struct graph_pass *const none[] = {NULL};
    struct graph part;
    int rc;

    TRY(graph_copy(&part, j->g));
    part.n_out = 3;
    part.out[0] = j->mask;
    part.out[1] = j->cos;
    part.out[2] = j->sin;
    rc = graph_rewrite_by(&part, none, NULL); /* drops what they do not need */
    if (rc == OK)
        rc = check_part(j->d, &part, 2, fill, ctx);
    if (rc == OK)
        rc = check_part(j->d, &part, GRAPH_DECODER_TOK, fill, ctx);
    graph_fini(&part);
    return rc;
}

/* ---- the whole ---- */

/* Layers from the last to the first, and then the other way round. */
static int layers(struct job *j, int x, int *first)
{
    struct graph_decoder *d = j->d;
    int max = 0;

    while (!graph_is(j->g, x, "take")) {
        struct graph_decoder_layer *l;
        int mid = -1;

        if (d->n_layers == max) {
            max = 2 * max + 8;
            l = mem_resize(MEM_OTHER, d->layers, (size_t)max, sizeof(*l));
            if (!l)
                return ERR_NOMEM;
            d->layers = l;
        }
        if (d->n_layers == LAYERS_MAX)
            return err_set(ERR_LIMIT, "more than %d layers", LAYERS_MAX);
        l = &d->layers[d->n_layers];
        TRY(mlp_block(j, x, l, &mid));
        TRY(attention_block(j, mid, l, &x));
        d->n_layers++;
    }
    *first = x;
    for (int a = 0, b = d->n_layers - 1; a < b; a++, b--) {
        struct graph_decoder_layer l = d->layers[a];

        d->layers[a] = d->layers[b];
        d->layers[b] = l;
    }
    return d->n_layers > 0 ? OK : expected(j, x, "a layer");
}

static int recognise(struct job *j)
{
    struct graph_decoder *d = j->d;
    int normed = -1, x = -1, first = -1;
    int64_t in, out;

    TRY(linear(j, j->g->out[0], &normed, &d->head, NULL));
    TRY(norm(j, normed, &x, &d->out_norm));
    TRY(layers(j, x, &first));
    d->embed = (struct graph_matrix){node(j, first)->in[0], false};
    if (!is_given(j, d->embed.node) || node(j, d->embed.node)->shape.rank != 2 ||
        node(j, first)->ints[0] != 0 || !graph_is(j->g, node(j, first)->in[1], "input"))
        return expected(j, first, "rows of an embedding by the ids of an input");
    sizes(j, d->embed, &in, &out);
    d->dim = (int)in;
    d->vocab = (int)out;
    d->tied = d->head.node == d->embed.node;
    sizes(j, d->head, &in, &out);
    if (in != d->dim || out != d->vocab)
        return expected(j, j->g->out[0], "a logit for each row of the embedding");
    sizes(j, d->layers[0].gate, &in, &out);
    d->hidden = (int)out;
    d->qkv_bias = d->layers[0].q_bias.node >= 0;
    d->o_bias = d->layers[0].o_bias.node >= 0;
    d->qk_norm = d->layers[0].q_norm.node >= 0;
    for (int l = 0; l < d->n_layers; l++)
        TRY(check_layer(j, &d->layers[l]));
    if (d->head_dim > GRAPH_HEAD_DIM_MAX ||
        !(fabs(j->scale * sqrt(d->head_dim) - 1) < 1e-5))
        return err_set(ERR_UNSUPPORTED, "scores are not divided by the root of %d",
                       d->head_dim);
    return OK;
}

int graph_decoder_of(struct graph_decoder *out, const struct graph *g, graph_fill_fn fill,
                     void *ctx)
{
    struct job j = {.g = g, .d = out, .mask = -1, .cos = -1, .sin = -1, .last_norm = -1};
    int rc;

    *out = (struct graph_decoder){0};
    rc = recognise(&j);
    if (rc == OK)
        rc = check_positions(&j, fill, ctx);
    if (rc != OK)
        graph_decoder_fini(out);
    return rc;
}

void graph_decoder_fini(struct graph_decoder *d)
{
    mem_free(d->layers);
    d->layers = NULL;
    d->n_layers = 0;
}

int graph_decoder_ops(char **out, const struct graph_decoder *d)
{
    struct text t = {0};

    text_puts(&t, "embed\n");
    for (int l = 0; l < d->n_layers; l++) {
        text_printf(&t, "%d attn_qkv\n%d attention\n", l, l);
        if (l + 1 == d->n_layers) /* from here on the rows whose logits are wanted */
            text_printf(&t, "%d wanted_rows\n", l);
        text_printf(&t, "%d stored\n%d attn_out\n%d mlp\n", l, l, l);
    }
    text_puts(&t, "lm_head\n");
    return text_take(&t, out);
}
