/* graph/wire.h - the wire format of protocol buffers, in which ONNX files are written: fields one
 * after another, each a number with a type and a value.
 *
 * Our own in place of protobuf-c: a file is read where it is mapped, without copies and without
 * code that a schema compiler makes at build time; it takes no memory, whatever the file says; and
 * what is wrong is named by its offset.
 * Threads: one owner per wire. */
#ifndef GRAPH_WIRE_H
#define GRAPH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The bytes of a message, of which those before `at` are read. */
struct graph_wire {
    const uint8_t *base, *at, *end; /* base: of the whole file, for offsets */
};
struct graph_wire_field {
    uint32_t number;
    bool is_bytes;    /* a text, bytes, a message, or packed numbers */
    uint64_t value;   /* else: of a varint or a fixed number */
    const uint8_t *p; /* [n] bytes in the file; lent */
    size_t n;
};

struct graph_wire graph_wire_of(const void *bytes, size_t n);
/* The message that a field holds. */
struct graph_wire graph_wire_in(const struct graph_wire *w,
                                const struct graph_wire_field *f);
/* The next field; *more is false at the end. ERR_FORMAT names the offset. */
MUST int graph_wire_next(struct graph_wire *w, struct graph_wire_field *f, bool *more);
/* The next number of a packed field, a varint; *more is false at the end. */
MUST int graph_wire_varint(struct graph_wire *w, uint64_t *out, bool *more);
/* ERR_FORMAT: "offset N: expected ..". */
MUST int graph_wire_expected(const struct graph_wire *w, const char *what);

#endif
