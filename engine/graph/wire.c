/* The wire format of protocol buffers. */
#include "graph/wire.h"

#include <string.h>

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

struct graph_wire graph_wire_of(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    return (struct graph_wire){p, p, n > 0 ? p + n : p};
}

struct graph_wire graph_wire_in(const struct graph_wire *w,
                                const struct graph_wire_field *f)
{
    return (struct graph_wire){w->base, f->p, f->n > 0 ? f->p + f->n : f->p};
}

int graph_wire_expected(const struct graph_wire *w, const char *what)
{
    return err_set(ERR_FORMAT, "offset %zu: expected %s", (size_t)(w->at - w->base),
                   what);
}

int graph_wire_varint(struct graph_wire *w, uint64_t *out, bool *more)
{
    const uint8_t *p = w->at;

    *out = 0;
    *more = p < w->end;
    for (int shift = 0; *more; shift += 7, p++) {
        if (p == w->end || shift > 63)
            return graph_wire_expected(w, "a number of at most 10 bytes");
        *out |= (uint64_t)(*p & 0x7f) << shift;
        if (!(*p & 0x80))
            break;
    }
    w->at = p + *more;
    return OK;
}

static int fixed(struct graph_wire *w, size_t n, uint64_t *out)
{
    *out = 0;
    if ((size_t)(w->end - w->at) < n)
        return graph_wire_expected(w, "a number of 4 or 8 bytes");
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)w->at[i] << (8 * i);
    w->at += n;
    return OK;
}

int graph_wire_next(struct graph_wire *w, struct graph_wire_field *f, bool *more)
{
    uint64_t key, n;
    bool got;

    *f = (struct graph_wire_field){0};
    TRY(graph_wire_varint(w, &key, more));
    if (!*more)
        return OK;
    f->number = (uint32_t)(key >> 3);
    if (f->number == 0 || key >> 32 != 0)
        return graph_wire_expected(w, "a field number");
    switch (key & 7) {
    case VARINT:
        TRY(graph_wire_varint(w, &f->value, &got));
        return got ? OK : graph_wire_expected(w, "a number");
    case FIXED64:
        return fixed(w, 8, &f->value);
    case FIXED32:
        return fixed(w, 4, &f->value);
    case BYTES:
        TRY(graph_wire_varint(w, &n, &got));
        if (!got || n > (uint64_t)(w->end - w->at))
            return graph_wire_expected(w, "as many bytes as the field says");
        f->is_bytes = true;
        f->p = w->at;
        f->n = (size_t)n;
        w->at += n;
        return OK;
    default:
        return graph_wire_expected(w, "a type of field that is in use");
    }
}
