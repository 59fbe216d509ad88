#include "model/cost.h"

#include <math.h>

/* Sums over the chunks of a step, from which the formulas compute. */
struct sums {
    double rows, logits; /* tokens; those that want logits */
    /* Pairs of a row and a token that it attends to: of all rows, of those with logits. */
    double pairs, logit_pairs;
    /* Tokens whose keys and values are read: in a layer; in the last layer. */
    double kv_tok, last_kv_tok;
    /* The same of layers with a window. */
    double window_pairs, window_logit_pairs, window_kv_tok, window_last_kv_tok;
};

/* The layers before the last one that have a window, or 0; *last: does that one have it? */
static double n_windows(const struct model_config *c, bool *last)
{
    double n = 0;

    *last = false;
    for (int i = 0; c->window > 0 && i < c->n_layers; i++) {
        n += *last;
        *last = c->layer_flags[i] & MODEL_LAYER_WINDOW;
    }
    return n;
}

/* Products with matrices of `in` rows and `out` columns: n_rows of them over all layers,
 * with n_matrices matrices. */
static struct model_cost_part product(double in, double out, double n_rows,
                                      double n_matrices, double weight_bytes)
{
    return (struct model_cost_part){.flop = 2 * in * out * n_rows,
                                    .weight_bytes =
                                        round(in * out * n_matrices * weight_bytes)};
}

static void add(struct model_cost_part *to, struct model_cost_part more)
{
    to->flop += more.flop;
    to->weight_bytes += more.weight_bytes;
}

/* The bytes of a packed weight of these matrices in type t, or in their own types where t is
 * that of most of them. */
static double weight_bytes(const struct model_config *c, enum kern_type t,
                           enum model_matrices which)
{
    int block = kern_type_block(t);

    if (t == c->weight_type && c->mean_bytes[which] > 0)
        return c->mean_bytes[which];
    return which == MODEL_EMBED ? (double)kern_type_size(t, block) / block
                                : kern_type_weight_bytes(t);
}

double model_cost_experts(const struct model_config *c, double n_tok)
{
    double n = c->n_experts;

    return n > 0 ? n * (1 - pow(1 - c->n_active / n, n_tok)) : 0;
}

static struct model_cost cost(const struct model_config *c, struct model_cost_types t,
                              const struct sums *s)
{
    double dim = c->dim, heads_q = (double)c->n_heads * c->head_dim;
    double q = (double)c->n_heads * model_q_dim(c),
           o = (double)c->n_heads * model_o_dim(c);
    /* a token's key and value, a layer */
    double kv = c->latent_dim > 0 ? c->head_dim : 2.0 * c->n_kv_heads * c->head_dim;
    double kv_bytes = 2.0 * c->n_kv_heads * (double)kern_kv_bytes(t.kv, c->head_dim);
    /* The last layer behind its QKV projection, and the head: run at all? */
    double all = c->n_layers, before = all - 1, last = s->logits > 0;
    double rows = before * s->rows + s->logits, layers = before + last;
    double heads = c->qk_norm_row ? c->n_heads + c->n_kv_heads : 2;
    double in = (c->norms != MODEL_NORM_AFTER) *
                (all + (c->parallel ? 0 : layers)); /* norms of what goes in */
    double after = (c->norms != MODEL_NORM_BEFORE) * 2 * layers;
    double norms = dim * ((in + last) * (1 + c->norm_bias) + after) +
                   (c->qk_norm ? all * heads * c->head_dim : 0) +
                   all * (c->latent_dim + c->q_rank);
    double bias = (c->qkv_bias ? all * (q + kv) : 0) + (c->o_bias ? layers * dim : 0) +
                  (c->mlp_bias ? layers * (dim + c->hidden) : 0) +
                  (c->sinks ? all * c->n_heads : 0);
    bool in_head = c->tied && last > 0, last_window;
    double windows = n_windows(c, &last_window), full = before - windows;
    double logit_pairs = last_window ? s->window_logit_pairs : s->logit_pairs;
    double last_kv_tok = last_window ? s->window_last_kv_tok : s->last_kv_tok;
    /* Layers without experts, which are never the last, and what is left of them; experts read,
     * over all layers. */
    double dense = c->n_experts > 0 ? c->n_dense : 0;
    double mlp_rows = rows - dense * s->rows,
           mlp_bytes = weight_bytes(c, t.weight, MODEL_FFN);
    double read = (before - dense) * model_cost_experts(c, s->rows) +
                  last * model_cost_experts(c, s->logits);
    struct model_cost_part first =
        product(dim, 3.0 * c->dense_hidden, dense * s->rows, dense, mlp_bytes);
    struct model_cost out = {
        .qkv = product(dim, (c->q_rank > 0 ? c->q_rank : q) + kv, all * s->rows, all,
                       weight_bytes(c, t.weight, MODEL_QKV)),
        .attn.flop =
            4 * heads_q * (full * s->pairs + windows * s->window_pairs + logit_pairs),
        .o = product(o, dim, rows, layers, weight_bytes(c, t.weight, MODEL_O)),
        .ffn = product(dim, (1.0 + model_mlp_inputs(c)) * c->hidden, mlp_rows,
                       layers - dense, mlp_bytes),
        .router =
            product(dim, model_router_rows(c), mlp_rows, layers - dense, sizeof(float)),
        .experts = product(dim, 3.0 * c->expert_hidden, mlp_rows * c->n_active, read,
                           weight_bytes(c, t.weight, MODEL_EXPERTS)),
        .head = product(dim, c->vocab, s->logits, last,
                        weight_bytes(c, t.weight, MODEL_HEAD)),
        .other.weight_bytes =
            (in_head ? 0 : s->rows * dim * weight_bytes(c, t.weight, MODEL_EMBED)) +
            (norms + bias) * (double)sizeof(float),
        .kv_read_bytes =
            kv_bytes * (full * s->kv_tok + windows * s->window_kv_tok + last_kv_tok),
        .kv_write_bytes = kv_bytes * all * s->rows,
    };

    add(&out.qkv,
        product(c->q_rank, q, all * s->rows, all, weight_bytes(c, t.weight, MODEL_QKV)));
    add(&out.qkv, product(c->nope_dim, (double)c->n_heads * c->latent_dim, all * s->rows,
                          all, weight_bytes(c, t.weight, MODEL_QKV)));
    add(&out.o, product(c->latent_dim, c->latent_dim > 0 ? o : 0, rows, layers,
                        weight_bytes(c, t.weight, MODEL_O)));
    add(&out.ffn, first);
    out.flop = out.qkv.flop + out.attn.flop + out.o.flop + out.ffn.flop +
               out.router.flop + out.experts.flop + out.head.flop;
    out.weight_bytes = out.qkv.weight_bytes + out.o.weight_bytes + out.ffn.weight_bytes +
                       out.router.weight_bytes + out.experts.weight_bytes +
                       out.head.weight_bytes + out.other.weight_bytes;
    out.read_bytes = out.weight_bytes + out.kv_read_bytes;
    return out;
}

struct model_cost model_cost_step(const struct model_config *c, struct model_cost_types t,
                                  const struct model_chunk *chunks, int n_chunks)
{
    struct sums s = {0};

    for (int i = 0; i < n_chunks; i++) {
        double n = (double)chunks[i].n_tok, end = (double)chunks[i].pos0 + n;
        double w = c->window, pos0 = (double)chunks[i].pos0;
        double in = fmin(fmax(w - pos0, 0), n); /* tokens that attend to all before */

        s.window_pairs += in * pos0 + in * (in + 1) / 2 + (n - in) * w;
        s.window_kv_tok += fmin(end, w + n - 1);
        if (chunks[i].want_logits) {
            s.window_logit_pairs += fmin(end, w);
            s.window_last_kv_tok += fmin(end, w);
        }

        s.rows += n;
        s.pairs += n * (double)chunks[i].pos0 + n * (n + 1) / 2;
        s.kv_tok += end;
        if (!chunks[i].want_logits)
            continue;
        s.logits++;
        s.logit_pairs += end;
        s.last_kv_tok += end;
    }
    return cost(c, t, &s);
}

struct model_cost model_cost_prefill(const struct model_config *c,
                                     struct model_cost_types t, int64_t n_tok,
                                     int64_t ctx_tok)
{
    const struct model_chunk k = {.n_tok = n_tok, .pos0 = ctx_tok, .want_logits = true};

    return model_cost_step(c, t, &k, 1);
}

struct model_cost model_cost_decode(const struct model_config *c,
                                    struct model_cost_types t, double ctx_tok,
                                    int64_t n_seqs)
{
    double n = (double)n_seqs, pairs = n * ctx_tok;
    double windows = n * fmin(ctx_tok, c->window);
    const struct sums s = {n,     n,       pairs,   pairs,   pairs,
                           pairs, windows, windows, windows, windows};

    return cost(c, t, &s);
}
