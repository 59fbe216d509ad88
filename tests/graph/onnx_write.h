/* tests/graph/onnx_write.h - writes ONNX files for tests, as exporters of frameworks do: every
 * operator small, sizes computed from sizes. */
#ifndef TESTS_GRAPH_ONNX_WRITE_H
#define TESTS_GRAPH_ONNX_WRITE_H

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tests/support/test.h"

static inline void onnx_varint(struct text *t, uint64_t x)
{
    do {
        uint8_t b = (uint8_t)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));

        text_put(t, &b, 1);
        x >>= 7;
    } while (x > 0);
}

static inline void onnx_number(struct text *t, int field, int64_t x)
{
    onnx_varint(t, (uint64_t)field << 3);
    onnx_varint(t, (uint64_t)x);
}

static inline void onnx_bytes(struct text *t, int field, const void *p, size_t n)
{
    onnx_varint(t, (uint64_t)field << 3 | 2);
    onnx_varint(t, n);
    text_put(t, p, n);
}

static inline void onnx_string(struct text *t, int field, const char *s)
{
    onnx_bytes(t, field, s, strlen(s));
}

/* Put a message into a field, and forget it. */
static inline void onnx_message(struct text *t, int field, struct text *m)
{
    onnx_bytes(t, field, m->p, m->n);
    text_fini(m);
}

/* A tensor; type 1: f32, 7: i64. rank 0: a number. */
static inline struct text onnx_tensor_of(const char *name, int type, const int64_t *dim,
                                         int rank, const void *data)
{
    struct text t = {0};
    int64_t n = 1;

    for (int d = 0; d < rank; d++) {
        onnx_number(&t, 1, dim[d]);
        n *= dim[d];
    }
    onnx_number(&t, 2, type);
    onnx_string(&t, 8, name);
    onnx_bytes(&t, 9, data, (size_t)n * (type == 7 ? 8 : 4));
    return t;
}

static inline void onnx_initializer(struct text *g, const char *name, int type,
                                    const int64_t *dim, int rank, const void *data)
{
    struct text t = onnx_tensor_of(name, type, dim, rank, data);

    onnx_message(g, 5, &t);
}

/* A node. ins: names between blanks. attrs: "axis=1", "perm=0,2,1" (a comma makes a list) between
 * blanks, of integers. */
static inline void onnx_node(struct text *g, const char *op, const char *out,
                             const char *ins, const char *attrs)
{
    struct text t = {0};
    char copy[400], *save, *word;

    snprintf(copy, sizeof(copy), "%s", ins);
    for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        onnx_string(&t, 1, word);
    onnx_string(&t, 2, out);
    onnx_string(&t, 3, out);
    onnx_string(&t, 4, op);
    snprintf(copy, sizeof(copy), "%s", attrs);
    for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        struct text a = {0};
        char *value = strchr(word, '=');

        assert_non_null(value);
        *value++ = '\0';
        onnx_string(&a, 1, word);
        if (!strchr(value, ','))
            onnx_number(&a, 3, strtoll(value, NULL, 10));
        else
            for (char *p = value; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
                onnx_number(&a, 8, strtoll(p, NULL, 10));
        onnx_message(&t, 5, &a);
    }
    onnx_message(g, 1, &t);
}

/* An input or output; dim -1: a size with the name T. */
static inline void onnx_value(struct text *g, int field, const char *name, int type,
                              const int64_t *dim, int rank)
{
    struct text v = {0}, ty = {0}, te = {0}, sh = {0};

    for (int d = 0; d < rank; d++) {
        struct text one = {0};

        if (dim[d] < 0)
            onnx_string(&one, 2, "T");
        else
            onnx_number(&one, 1, dim[d]);
        onnx_message(&sh, 1, &one);
    }
    onnx_number(&te, 1, type);
    onnx_message(&te, 2, &sh);
    onnx_message(&ty, 1, &te);
    onnx_string(&v, 1, name);
    onnx_message(&v, 2, &ty);
    onnx_message(g, field, &v);
}

/* The file of a graph, which is forgotten. */
static inline struct text onnx_model(struct text *g, int64_t opset)
{
    struct text m = {0}, o = {0};

    onnx_number(&m, 1, 8);
    onnx_string(&m, 2, "a test");
    onnx_number(&o, 2, opset);
    onnx_message(&m, 8, &o);
    onnx_message(&m, 7, g);
    assert_ok(m.rc);
    return m;
}

#endif
