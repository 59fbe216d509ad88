/* graph/onnx_proto.h - the messages of an ONNX file: tensors, attributes and nodes, read where the
 * file is mapped.   Threads: stateless. */
#ifndef GRAPH_ONNX_PROTO_H
#define GRAPH_ONNX_PROTO_H

#include "graph/graph.h"
#include "graph/wire.h"

#define ONNX_IN_MAX    16
#define ONNX_ATTRS_MAX 16

struct onnx_text { /* in the file; not NUL-terminated */
    const char *p;
    size_t n;
};
bool graph_onnx_is(struct onnx_text t, const char *s);
struct onnx_text graph_onnx_text(const struct graph_wire_field *f);
/* How much of it a message quotes, for %.*s. */
static inline int onnx_shown(struct onnx_text t)
{
    return (int)(t.n < 80 ? t.n : 80);
}

struct onnx_tensor {
    struct onnx_text name;
    int64_t type; /* TensorProto.DataType */
    struct graph_shape shape;
    const uint8_t *raw; /* NULL: in typed fields */
    size_t raw_bytes;
    struct graph_wire whole; /* the message, for typed fields */
};

struct onnx_attr {
    struct onnx_text name, s;
    bool has_i, has_f, has_tensor;
    int64_t i;
    double f;
    struct onnx_tensor t;
    int n_ints;
    int64_t ints[GRAPH_INTS_MAX];
    int n_floats;
    double floats[GRAPH_INTS_MAX];
};

struct onnx_node {
    struct onnx_text name, op, domain;
    int n_in, n_out, n_attrs;
    struct onnx_text in[ONNX_IN_MAX], out[ONNX_IN_MAX];
    struct onnx_attr attrs[ONNX_ATTRS_MAX];
};

MUST int graph_onnx_read_node(struct graph_wire w, struct onnx_node *v);
MUST int graph_onnx_read_tensor(struct graph_wire w, struct onnx_tensor *out);
bool graph_onnx_is_real(const struct onnx_tensor *t); /* f32 in our graph, else i64 */
/* As f64: the nearest that is exact, as exporters write 2^63 - 1 for "to the end". */
double graph_onnx_exact(int64_t x);
/* All elements: out [elements], as f64. ERR_FORMAT: fewer or more than its sizes say. */
MUST int graph_onnx_elements(const struct onnx_tensor *t, double *out);

#endif
