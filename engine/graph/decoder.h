/* graph/decoder.h - the decoder that a rewritten graph is: its shape, which tensors are its
 * weights, and the engine's operators that compute it (step/op.h).
 *
 * Recognised from the result back: logits = rms_norm(x) W; x = x + W swiglu(..) and
 * x + W attention(..) of rms_norm(x), layer by layer to the rows of the embedding. What depends on
 * positions alone (mask, cosines, sines) is computed for GRAPH_DECODER_TOK tokens and has to be
 * causal, and a rotation by frequencies: a window of fewer tokens, for instance, is found.
 * Paper: MNN-LLM III (a graph is rewritten, then run by the engine's operators).
 * Threads: stateless. */
#ifndef GRAPH_DECODER_H
#define GRAPH_DECODER_H

#include "graph/graph.h"

#define GRAPH_HEAD_DIM_MAX 1024
#define GRAPH_DECODER_TOK  2048

/* A matrix of the graph: a weight or a const. */
struct graph_matrix {
    int node;     /* -1: there is none */
    bool flipped; /* it is [in, out], as a product reads it; else [out, in] */
};
struct graph_decoder_layer {
    struct graph_matrix attn_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm,
        k_norm, ffn_norm, gate, up, down;
};
struct graph_decoder {
    int n_layers, dim, n_heads, n_kv_heads, head_dim, hidden, vocab;
    double norm_eps;
    double freq[GRAPH_HEAD_DIM_MAX / 2]; /* radians a token turns pair i of a head */
    bool tied, qkv_bias, o_bias, qk_norm;
    struct graph_matrix embed, out_norm,
        head;                           /* head: the embedding where they are tied */
    struct graph_decoder_layer *layers; /* [n_layers]; owned */
};

/* fill: as in graph_compute(). ERR_UNSUPPORTED names the node that is something else.
 * ERR_NOMEM. */
MUST int graph_decoder_of(struct graph_decoder *out, const struct graph *g,
                          graph_fill_fn fill, void *ctx);
void graph_decoder_fini(struct graph_decoder *d);
/* The list of operators as text; mem_free(). ERR_NOMEM. */
MUST int graph_decoder_ops(char **out, const struct graph_decoder *d);

#endif
