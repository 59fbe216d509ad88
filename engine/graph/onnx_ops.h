/* graph/onnx_ops.h - the operators of ONNX, by ours.   Threads: stateless. */
#ifndef GRAPH_ONNX_OPS_H
#define GRAPH_ONNX_OPS_H

#include "graph/onnx_proto.h"

/* The nodes of our graph that compute what `v` does: one for each of its outputs, to out. in[a]:
 * the node of input a, -1 where it is left out. */
MUST int graph_onnx_convert(struct graph *g, int64_t opset, const struct onnx_node *v,
                            const int *in, int *out);
/* A const of a tensor. */
MUST int graph_onnx_put_const(struct graph *g, const struct onnx_tensor *t, int *out);

#endif
