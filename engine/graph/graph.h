/* graph/graph.h - a graph of operators, as a model's file describes it, and its passes.
 *
 * Nodes are in an order in which inputs come first. Each has one result, a tensor of f32 or i64.
 * Of the sizes of a tensor one may be dynamic, the same in the whole graph: the number of
 * tokens. A graph is written as text, which graph_parse() reads and graph_print() writes:
 *
 *     %0 = input x: f32[1, T, 64]
 *     %1 = weight w: f32[64]
 *     %2 = const i64[3]: 1, -1, 64
 *     %3 = slice(%0; 2, 0, 32)          inputs; integers (here axis, begin, end); a number
 *     %4 = rms_norm(%0, %1; ; 1e-05)
 *     return %4
 *
 * A pass is one file in graph/pass/ that ends in one `const struct graph_pass
 * graph_pass_<stem>`. It keeps what the graph computes and adds no node. graph_rewrite() runs
 * passes to a fixed point. Paper: MNN-LLM III.   Threads: one owner per graph. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GRAPH_RANK_MAX   8
#define GRAPH_IN_MAX     8
#define GRAPH_INTS_MAX   24
#define GRAPH_NAME_MAX   96
#define GRAPH_ROUNDS_MAX 50        /* of all passes; graphs of published models take 4 */
#define GRAPH_DYNAMIC    INT64_MIN /* the size that is not known: T in a text */

enum graph_type { GRAPH_F32, GRAPH_I64 };

struct graph_shape {
    int rank;
    int64_t dim[GRAPH_RANK_MAX]; /* GRAPH_DYNAMIC at most once */
};

struct graph_node {
    const struct graph_op *op;
    int n_in, in[GRAPH_IN_MAX]; /* numbers of earlier nodes */
    int n_ints;
    int64_t ints[GRAPH_INTS_MAX];
    double x;                  /* of operators that have a number, else 0 */
    char name[GRAPH_NAME_MAX]; /* of an input or a weight */
    double *data;              /* of a const: its elements; owned */
    /* Given for an input, a weight and a const, else found from its inputs. */
    enum graph_type type;
    struct graph_shape shape;
    /* The elements of an i64 tensor of one axis, or of none, as far as they follow from sizes:
     * GRAPH_DYNAMIC stands for the dynamic one. n_value -1: not known. */
    int n_value;
    int64_t value[GRAPH_RANK_MAX];
};

struct graph {
    struct graph_node *nodes; /* [n] */
    int n, max;
    int n_out, out[GRAPH_IN_MAX];
    int64_t n_steps; /* nodes that passes looked at */
};

/* An operator: a row of the table in ops.c. */
struct graph_op {
    const char *name;
    int min_in, max_in, min_ints, max_ints;
    bool has_x;
    /* Set type, shape and value of node i from its inputs. ERR_FORMAT: they do not fit. */
    int (*infer)(struct graph *g, int i);
};
const struct graph_op *graph_op_find(const char *name); /* NULL: there is none */

void graph_fini(struct graph *g); /* any graph, also after an error */
/* A copy with its own data. ERR_NOMEM: *out is closed. */
MUST int graph_copy(struct graph *out, const struct graph *g);

/* Read a text of n bytes. ERR_FORMAT: line, what was expected, what was found. ERR_LIMIT: more
 * nodes, axes or elements than there may be. The sizes of all nodes are known then. */
MUST int graph_parse(struct graph *out, const char *text, size_t n);
/* The text, NUL-terminated; mem_free(). Two equal graphs have the same text. ERR_NOMEM. */
MUST int graph_print(char **out, const struct graph *g);

/* ---- for those who build a graph ---- */

/* Add a node at the end, without type and sizes; *out is its number. ERR_LIMIT, ERR_NOMEM. */
MUST int graph_add(struct graph *g, const char *op, int *out);
/* The same with its inputs and integers, and find its type and sizes. ERR_FORMAT. */
MUST int graph_add_op(struct graph *g, const char *op, const int *in, int n_in,
                      const int64_t *ints, int n_ints, int *out);
/* An axis, counted from the end where it is negative, of `rank` axes. ERR_FORMAT. */
MUST int graph_axis(int64_t axis, int rank, int *out);
/* A const; data [elements of shape] is copied. */
MUST int graph_add_const(struct graph *g, enum graph_type type,
                         const struct graph_shape *shape, const double *data, int *out);

/* ---- for passes ---- */

bool graph_is(const struct graph *g, int i, const char *op);
/* The one element of a const f32 or i64. false: the node is something else. */
bool graph_scalar(const struct graph *g, int i, double *x);
/* Whoever used node i uses to[i], an earlier node or i itself, instead. */
void graph_replace(struct graph *g, const int *to);
/* Make node i another operator on earlier nodes; its old data are freed. Its type and sizes
 * must stay. */
void graph_become(struct graph *g, int i, const char *op, const int *in, int n_in);
/* Make it a const; data [n] is copied. ERR_NOMEM. */
MUST int graph_become_const(struct graph *g, int i, enum graph_type type,
                            const struct graph_shape *shape, const double *data);
/* GRAPH_DYNAMIC: not known. INT64_MAX: as many and more. */
int64_t graph_n_elements(const struct graph_shape *s);

struct graph_pass {
    const char *name, *help;
    /* *n_changes is increased by what it did. */
    int (*run)(struct graph *g, int *n_changes);
};
extern const struct graph_pass *const graph_passes[];

/* The passes in turn, until none changes anything, or GRAPH_ROUNDS_MAX times, so that the work is
 * linear in the nodes; unused nodes are dropped after each.
 *   passes     ends with NULL
 *   n_changes  [number of passes] how often each did something, may be NULL */
MUST int graph_rewrite_by(struct graph *g, const struct graph_pass *const *passes,
                          int *n_changes);
/* Rewrite the graph by all passes. */
MUST int graph_rewrite(struct graph *g, int *n_changes);

/* The cost of a graph that is run node by node, each reading its inputs and writing its result in
 * f32. A view (reshape, squeeze, unsqueeze) costs nothing. */
struct graph_cost {
    int n_nodes;     /* all */
    int n_operators; /* without inputs, weights, consts, views and arithmetic on sizes */
    int n_copies; /* of these those that only move elements: transpose, slice, concat */
    double activation_bytes; /* read and written, without weights and consts */
    double copied_bytes;     /* of these by copies */
};
struct graph_cost graph_cost_of(const struct graph *g, int64_t n_dynamic);

/* ---- what it computes ---- */

/* Compute the results for inputs with n_dynamic tokens, in f64: the meaning of operators, for
 * tests and for constants. inputs(ctx, name, shape, data) fills the elements of an input or a
 * weight.
 *   out     [n_out] the results' elements, each owned, mem_free(); sizes in out_n
 * ERR_FORMAT: sizes do not fit with that many tokens. ERR_LIMIT: a tensor of more than 2^24
 * elements. ERR_NOMEM. */
typedef void (*graph_fill_fn)(void *ctx, const char *name,
                              const struct graph_shape *shape, double *data);
MUST int graph_compute(double **out, int64_t *out_n, const struct graph *g,
                       int64_t n_dynamic, graph_fill_fn fill, void *ctx);

#endif
