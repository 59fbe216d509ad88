/* model/cost.h - what a step costs: floating-point operations and bytes.
 *
 * This is the only arithmetic of cost. Benchmarks, studies, records, the plan, `model inspect` and
 * the engine's own totals all take their figures from here, so that every "% of peak" and
 * "% of bandwidth" divides the same numbers. It needs a configuration, not a model.
 *
 * Counted is what forward.c executes, for a step of n tokens of which n_logits want logits:
 *     QKV projection        all layers, n rows
 *     attention             all layers, n rows; in the last layer the n_logits rows
 *     output projection,    all layers but the last, n rows; in the last layer the
 *     gate, up, down,       n_logits rows
 *     router, experts
 *     head                  the n_logits rows
 * A step that wants no logits therefore reads neither the last layer's output projection
 * and feed-forward nor the head. Multiply and add count as two operations.
 * Not counted: norms, rotation, softmax and SiLU (below a thousandth of the operations);
 * columns and rows that only fill a panel; activations, which stay in the caches; and the
 * queries that several ranks compute when they share a query head.
 * Threads: any. */
#ifndef MODEL_COST_H
#define MODEL_COST_H

#include "format/config.h"
#include "kernels/kv_type.h"

struct kv_slot;

/* A run of consecutive tokens of one sequence: a prompt, a piece of one, or one new
 * token. A step computes one or more of them. */
struct model_chunk {
    const struct kv_slot *kv; /* holds the pos0 tokens before; gets these appended */
    const int32_t *ids;
    int64_t n_tok, pos0;
    bool want_logits; /* of the chunk's last token */
};

/* The types in memory: of all matrices, and of keys and values. Where the file mixes types and
 * `weight` is the one of most of its weights, matrices cost what they have in the file, each
 * kind by its mean over the layers. */
struct model_cost_types {
    enum kern_type weight;
    enum kern_kv_type kv;
};

struct model_cost_part {
    double flop, weight_bytes;
};

/* Whole numbers, exact below 2^53 (but for a fractional context of model_cost_decode()). */
struct model_cost {
    struct model_cost_part qkv;  /* dim -> query, key and value heads */
    struct model_cost_part attn; /* queries times keys, and weights times values: 4 *
                                    head_dim for each query head and token that a row
                                    attends to, itself included; no weights */
    struct model_cost_part o;    /* query heads -> dim */
    struct model_cost_part
        ffn; /* gate and up, dim -> hidden; down, hidden -> dim: of the MLP
                                    or shared expert that every token has */
    struct model_cost_part router; /* dim -> experts; f32 */
    struct model_cost_part
        experts; /* as ffn: the operations of the experts that each token has,
                                       the bytes of those that the rows of the step are expected to
                                       have together, see model_cost_experts() */
    struct model_cost_part head; /* dim -> vocabulary */
    /* Only bytes: a row of the embedding for each token (part of the head where they are
     * tied and the head is read), norms and biases, which are kept as f32. */
    struct model_cost_part other;
    double flop;           /* of all parts */
    double weight_bytes;   /* read: each weight that the step needs, once */
    double kv_read_bytes;  /* keys and values of every token that a chunk attends to, its
                              own included, once for each chunk, layer and KV head; in the
                              last layer of chunks that want logits only */
    double kv_write_bytes; /* keys and values of the step's tokens */
    double read_bytes;     /* weight_bytes + kv_read_bytes */
};

/* The experts of a layer that n_tok tokens are expected to have together, each token its own, all
 * equally probable: E (1 - (1 - k / E)^n_tok). Real routers prefer some, and have fewer. */
double model_cost_experts(const struct model_config *c, double n_tok);

/* The cost of one step. ids and kv of the chunks are not read. */
struct model_cost model_cost_step(const struct model_config *c, struct model_cost_types t,
                                  const struct model_chunk *chunks, int n_chunks);
/* A step that computes n_tok tokens of one prompt, after ctx_tok others, with logits of
 * the last one. A prompt that is computed in pieces takes the same operations: the sum of
 * its pieces, of which only the last wants logits, is that of one step. */
struct model_cost model_cost_prefill(const struct model_config *c,
                                     struct model_cost_types t, int64_t n_tok,
                                     int64_t ctx_tok);
/* A step that decodes one token of each of n_seqs sequences, which attends to ctx_tok
 * tokens, itself included. Linear in ctx_tok, which may be a mean. */
struct model_cost model_cost_decode(const struct model_config *c,
                                    struct model_cost_types t, double ctx_tok,
                                    int64_t n_seqs);

#endif
