/* graph/ops.h - what the files of operators share: ops.c holds the table, ops_index.c the sizes of
 * operators that choose, repeat or compare elements, compute.c and compute_index.c what operators
 * compute. Threads: stateless. */
#ifndef GRAPH_OPS_H
#define GRAPH_OPS_H

#include "graph/graph.h"

/* ---- sizes ---- */

struct graph_node *graph_input(struct graph *g, int i, int a); /* input a of node i */
/* An axis, counted from the end where it is negative, of `rank` axes. ERR_FORMAT. */
MUST int graph_axis(int64_t axis, int rank, int *out);
/* Type and shape of node i are those of its first input; its value is not known. */
int graph_same_as_first(struct graph *g, int i);
/* The sizes of two tensors that broadcast to each other. ERR_FORMAT. */
MUST int graph_broadcast(struct graph_shape *out, const struct graph_shape *a,
                         const struct graph_shape *b);

int graph_infer_slice(struct graph *g, int i);
int graph_infer_take(struct graph *g, int i);
int graph_infer_expand(struct graph *g, int i);
int graph_infer_range(struct graph *g, int i);
int graph_infer_trilu(struct graph *g, int i);
int graph_infer_compare(struct graph *g, int i);
int graph_infer_where(struct graph *g, int i);
int graph_infer_cast(struct graph *g, int i);
int graph_infer_rope(struct graph *g, int i);

/* ---- values ---- */

struct graph_tensor {
    struct graph_shape shape; /* without a dynamic size */
    double *data;
};

/* The elements, all 0. ERR_LIMIT, ERR_NOMEM. */
MUST int graph_tensor_new(struct graph_tensor *t);
/* Elements after axis d: the distance of its neighbours. */
int64_t graph_stride(const struct graph_shape *s, int d);
/* The offset in x of the element of `out` at `at`, where x broadcasts to it. */
int64_t graph_offset(const struct graph_shape *x, const struct graph_shape *out,
                     const int64_t *at);
/* The next element in row-major order. */
void graph_advance(int64_t *at, const struct graph_shape *s);

graph_compute_fn graph_compute_shape, graph_compute_copy, graph_compute_unary,
    graph_compute_binary, graph_compute_along_axis, graph_compute_matmul,
    graph_compute_norm, graph_compute_swiglu, graph_compute_attention, graph_compute_rope,
    graph_compute_move, graph_compute_gather, graph_compute_take, graph_compute_concat,
    graph_compute_expand, graph_compute_range, graph_compute_trilu, graph_compute_where,
    graph_compute_cast;

#endif
