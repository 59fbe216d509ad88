#include "graph/onnx_proto.h"

#include <math.h>
#include <string.h>

bool graph_onnx_is(struct onnx_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

struct onnx_text graph_onnx_text(const struct graph_wire_field *f)
{
    return (struct onnx_text){(const char *)f->p, f->n};
}

/* ---- tensors ---- */

/* TensorProto.DataType */
enum {
    TYPE_F32 = 1,
    TYPE_U8 = 2,
    TYPE_I8 = 3,
    TYPE_I32 = 6,
    TYPE_I64 = 7,
    TYPE_BOOL = 9,
    TYPE_F16 = 10,
    TYPE_F64 = 11,
    TYPE_BF16 = 16
};

/* Numbers of fields of TensorProto. */
enum {
    F_DIMS = 1,
    F_TYPE = 2,
    F_SEGMENT = 3,
    F_FLOAT = 4,
    F_INT32 = 5,
    F_INT64 = 7,
    F_NAME = 8,
    F_RAW = 9,
    F_DOUBLE = 10,
    F_EXTERNAL = 13,
    F_LOCATION = 14
};

static size_t type_bytes(int64_t type)
{
    switch (type) {
    case TYPE_U8:
    case TYPE_I8:
    case TYPE_BOOL:
        return 1;
    case TYPE_F16:
    case TYPE_BF16:
        return 2;
    case TYPE_F32:
    case TYPE_I32:
        return 4;
    case TYPE_F64:
    case TYPE_I64:
        return 8;
    default:
        return 0;
    }
}

bool graph_onnx_is_real(const struct onnx_tensor *t)
{
    return t->type == TYPE_F32 || t->type == TYPE_F16 || t->type == TYPE_F64 ||
           t->type == TYPE_BF16;
}

static int put_dim(const struct graph_wire *w, struct graph_shape *s, int64_t dim)
{
    if (s->rank == GRAPH_RANK_MAX)
        return graph_wire_expected(w, "a tensor of at most 8 axes");
    if (dim < 1 || dim > INT32_MAX)
        return graph_wire_expected(w, "sizes from 1 to 2^31 - 1");
    s->dim[s->rank++] = dim;
    return OK;
}

static int read_dims(const struct graph_wire *w, const struct graph_wire_field *f,
                     struct graph_shape *s)
{
    struct graph_wire in = graph_wire_in(w, f);
    uint64_t dim;
    bool more;

    if (!f->is_bytes)
        return put_dim(w, s, (int64_t)f->value);
    for (;;) {
        TRY(graph_wire_varint(&in, &dim, &more));
        if (!more)
            return OK;
        TRY(put_dim(&in, s, (int64_t)dim));
    }
}

int graph_onnx_read_tensor(struct graph_wire w, struct onnx_tensor *out)
{
    struct graph_wire_field f;
    int64_t n = 1;
    bool more;

    *out = (struct onnx_tensor){.whole = w};
    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            break;
        if (f.number == F_DIMS)
            TRY(read_dims(&w, &f, &out->shape));
        else if (f.number == F_TYPE && !f.is_bytes)
            out->type = (int64_t)f.value;
        else if (f.number == F_NAME && f.is_bytes)
            out->name = (struct onnx_text){(const char *)f.p, f.n};
        else if (f.number == F_RAW && f.is_bytes)
            out->raw = f.p, out->raw_bytes = f.n;
        else if (f.number == F_SEGMENT || f.number == F_EXTERNAL ||
                 (f.number == F_LOCATION && f.value != 0))
            return err_set(
                ERR_UNSUPPORTED,
                "offset %zu: tensor \"%.*s\" has its data in another file or in "
                "segments",
                (size_t)(w.at - w.base), onnx_shown(out->name), out->name.p);
    }
    if (type_bytes(out->type) == 0)
        return err_set(ERR_UNSUPPORTED, "tensor \"%.*s\" has elements of type %lld",
                       onnx_shown(out->name), out->name.p, (long long)out->type);
    for (int d = 0; d < out->shape.rank; d++) /* an element is a byte at least */
        if (__builtin_mul_overflow(n, out->shape.dim[d], &n) ||
            (uint64_t)n > (uint64_t)(w.end - out->whole.at))
            return graph_wire_expected(&w, "no more elements than bytes");
    if (out->raw && out->raw_bytes != (size_t)n * type_bytes(out->type))
        return err_set(ERR_FORMAT, "tensor \"%.*s\": expected %zu bytes, found %zu",
                       onnx_shown(out->name), out->name.p,
                       (size_t)n * type_bytes(out->type), out->raw_bytes);
    return OK;
}

static double from_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 0    ? ldexp(m, -24)
               : e == 31 ? (m ? NAN : INFINITY)
                         : ldexp(1024 + m, e - 25);

    return h & 0x8000 ? -x : x;
}

static double real_of(uint64_t bits, int64_t type)
{
    uint32_t low = (uint32_t)(type == TYPE_BF16 ? bits << 16 : bits);
    float x;
    double y;

    if (type == TYPE_F16)
        return from_f16((uint16_t)bits);
    if (type == TYPE_F64) {
        memcpy(&y, &bits, sizeof(y));
        return y;
    }
    memcpy(&x, &low, sizeof(x));
    return (double)x;
}

double graph_onnx_exact(int64_t x)
{
    return fmax(-0x1p53, fmin(0x1p53, (double)x));
}

static double element_of(uint64_t bits, int64_t type)
{
    switch (type) {
    case TYPE_I8:
        return (int8_t)bits;
    case TYPE_I32:
        return (int32_t)bits;
    case TYPE_I64:
        return graph_onnx_exact((int64_t)bits);
    case TYPE_U8:
    case TYPE_BOOL:
        return (double)(uint8_t)bits;
    default:
        return real_of(bits, type);
    }
}

static uint64_t little_endian(const uint8_t *p, size_t n)
{
    uint64_t x = 0;

    for (size_t i = 0; i < n; i++)
        x |= (uint64_t)p[i] << (8 * i);
    return x;
}

/* The field that holds elements of this type, and the bytes of one in it; 0: a varint. */
static uint32_t typed_field(int64_t type, size_t *bytes)
{
    *bytes = type == TYPE_F32 ? 4 : type == TYPE_F64 ? 8 : 0;
    return type == TYPE_F32   ? F_FLOAT
           : type == TYPE_F64 ? F_DOUBLE
           : type == TYPE_I64 ? F_INT64
                              : F_INT32;
}

static int typed_elements(const struct onnx_tensor *t, int64_t n, double *out)
{
    struct graph_wire w = t->whole;
    struct graph_wire_field f;
    size_t bytes;
    uint32_t number = typed_field(t->type, &bytes);
    int64_t have = 0;
    bool more;

    for (;;) {
        struct graph_wire in;
        uint64_t bits;

        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            break;
        if (f.number != number)
            continue;
        if (!f.is_bytes) {
            if (have < n)
                out[have] = element_of(f.value, t->type);
            have++;
            continue;
        }
        for (in = graph_wire_in(&w, &f); in.at < in.end; have++) {
            if (bytes == 0) {
                TRY(graph_wire_varint(&in, &bits, &more));
            } else if ((size_t)(in.end - in.at) < bytes) {
                return graph_wire_expected(&in, "whole elements");
            } else {
                bits = little_endian(in.at, bytes);
                in.at += bytes;
            }
            if (have < n)
                out[have] = element_of(bits, t->type);
        }
    }
    return have == n
               ? OK
               : err_set(ERR_FORMAT,
                         "tensor \"%.*s\": expected %lld elements, found %lld",
                         onnx_shown(t->name), t->name.p, (long long)n, (long long)have);
}

int graph_onnx_elements(const struct onnx_tensor *t, double *out)
{
    int64_t n = graph_n_elements(&t->shape);
    size_t bytes = type_bytes(t->type);

    if (!t->raw)
        return typed_elements(t, n, out);
    for (int64_t k = 0; k < n; k++)
        out[k] = element_of(little_endian(t->raw + (size_t)k * bytes, bytes), t->type);
    return OK;
}

/* ---- attributes and nodes ---- */

static int put_int(const struct graph_wire *w, struct onnx_attr *a, uint64_t x)
{
    if (a->n_ints == GRAPH_INTS_MAX)
        return graph_wire_expected(w, "at most 24 integers in an attribute");
    a->ints[a->n_ints++] = (int64_t)x;
    return OK;
}

static int read_ints(const struct graph_wire *w, const struct graph_wire_field *f,
                     struct onnx_attr *a)
{
    struct graph_wire in = graph_wire_in(w, f);
    uint64_t x;
    bool more;

    if (!f->is_bytes)
        return put_int(w, a, f->value);
    for (;;) {
        TRY(graph_wire_varint(&in, &x, &more));
        if (!more)
            return OK;
        TRY(put_int(&in, a, x));
    }
}

static double f32_of(const uint8_t *p)
{
    float x;

    memcpy(&x, p, sizeof(x));
    return (double)x;
}

static int read_floats(const struct graph_wire *w, const struct graph_wire_field *f,
                       struct onnx_attr *a)
{
    uint32_t bits = (uint32_t)f->value;
    const uint8_t *p = f->is_bytes ? f->p : (const uint8_t *)&bits;
    size_t n = f->is_bytes ? f->n : sizeof(bits);

    if (n % 4 != 0 || n / 4 > (size_t)(GRAPH_INTS_MAX - a->n_floats))
        return graph_wire_expected(w, "at most 24 numbers in an attribute");
    for (size_t i = 0; i < n; i += 4)
        a->floats[a->n_floats++] = f32_of(p + i);
    return OK;
}

static int read_attr(struct graph_wire w, struct onnx_attr *a)
{
    struct graph_wire_field f;
    uint32_t bits;
    bool more;

    *a = (struct onnx_attr){0};
    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            return OK;
        switch (f.number) {
        case 1:
            a->name = graph_onnx_text(&f);
            break;
        case 2:
            bits = (uint32_t)f.value;
            a->f = f32_of((const uint8_t *)&bits);
            a->has_f = true;
            break;
        case 3:
            a->i = (int64_t)f.value;
            a->has_i = true;
            break;
        case 4:
            a->s = graph_onnx_text(&f);
            break;
        case 5:
            if (!f.is_bytes)
                return graph_wire_expected(&w, "a tensor");
            TRY(graph_onnx_read_tensor(graph_wire_in(&w, &f), &a->t));
            a->has_tensor = true;
            break;
        case 6:
        case 11:
            return err_set(ERR_UNSUPPORTED, "attribute \"%.*s\" holds a graph",
                           onnx_shown(a->name), a->name.p);
        case 7:
            TRY(read_floats(&w, &f, a));
            break;
        case 8:
            TRY(read_ints(&w, &f, a));
            break;
        default:
            break; /* its type follows from what it holds; the rest is for people */
        }
    }
}

static int put_text(const struct graph_wire *w, struct onnx_text *list, int *n,
                    const struct graph_wire_field *f)
{
    if (*n == ONNX_IN_MAX)
        return graph_wire_expected(w, "at most 16 inputs and outputs");
    list[(*n)++] = graph_onnx_text(f);
    return OK;
}

int graph_onnx_read_node(struct graph_wire w, struct onnx_node *v)
{
    struct graph_wire_field f;
    bool more;

    memset(v, 0,
           offsetof(struct onnx_node, attrs)); /* those are long, and few are read */
    for (;;) {
        TRY(graph_wire_next(&w, &f, &more));
        if (!more)
            return OK;
        if (f.number <= 7 && !f.is_bytes)
            return graph_wire_expected(&w, "a text or a message");
        switch (f.number) {
        case 1:
            TRY(put_text(&w, v->in, &v->n_in, &f));
            break;
        case 2:
            TRY(put_text(&w, v->out, &v->n_out, &f));
            break;
        case 3:
            v->name = graph_onnx_text(&f);
            break;
        case 4:
            v->op = graph_onnx_text(&f);
            break;
        case 5:
            if (v->n_attrs == ONNX_ATTRS_MAX)
                return graph_wire_expected(&w, "at most 16 attributes");
            TRY(read_attr(graph_wire_in(&w, &f), &v->attrs[v->n_attrs++]));
            break;
        case 7:
            v->domain = graph_onnx_text(&f);
            break;
        default:
            break; /* for people */
        }
    }
}
