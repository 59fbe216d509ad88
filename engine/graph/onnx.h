/* graph/onnx.h - a graph from an ONNX file.
 *
 * A file is read where it is mapped. What its operators compute becomes our operators: one for one,
 * or a few for one (Gemm, Split, ReduceMean without kept axes). Initializers of up to 64 elements
 * become consts; larger ones are weights, by their names, whose elements stay in the file. Sizes
 * that are not numbers ("sequence", -1) are the dynamic one; an axis named "batch" is 1, since we
 * run one sequence.
 *
 * Read: opset 11 to 23 of the default domain; f32, f64, f16 and bf16 as f32; i64, i32, i8, u8 and
 * bool as i64. Refused by name: an operator that is not in onnx_ops.c, other domains, subgraphs,
 * sparse tensors, data in other files, quantised tensors.
 * Paper: MNN-LLM III.   Threads: one owner per file. */
#ifndef GRAPH_ONNX_H
#define GRAPH_ONNX_H

#include "graph/graph.h"

struct graph_onnx;
/* bytes [n] is lent, and stays as it is until the close. ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT,
 * ERR_NOMEM. */
MUST int graph_onnx_open(struct graph_onnx **out, const void *bytes, size_t n);
void graph_onnx_close(struct graph_onnx **f); /* twice is fine */
/* The graph, which may be rewritten; owned by f. */
struct graph *graph_onnx_graph(struct graph_onnx *f);
/* graph_fill_fn with ctx f: the elements of a weight, zeros for any other name. */
void graph_onnx_fill(void *f, const char *name, const struct graph_shape *shape,
                     double *data);
/* The same as f32: out [elements of the weight]. ERR_NOTFOUND, ERR_FORMAT, ERR_NOMEM. */
MUST int graph_onnx_weight(const struct graph_onnx *f, const char *name, float *out);

/* Do these first bytes of a file look like ONNX? */
bool graph_onnx_probe(const void *bytes, size_t n);

#endif
