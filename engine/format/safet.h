/* format/safet.h - one safetensors file: a JSON header and the tensors' bytes, which
 * must cover the rest of the file without hole or overlap.   Threads: immutable once
 * open. */
#ifndef FORMAT_SAFET_H
#define FORMAT_SAFET_H

#include <stdint.h>

#include "base/err.h"

#define MODEL_SAFET_MAX_TENSORS 65536
/* The format's own limit on the header. */
#define MODEL_SAFET_MAX_HEADER 100000000

struct format_safet;

struct format_safet_tensor {
    const char *name, *dtype; /* lent by the file */
    int n_dims;
    uint64_t dims[4];    /* [0] is the slowest */
    uint64_t begin, end; /* from the start of the data */
    const void *data;
};

MUST int format_safet_open(struct format_safet **out, const char *path);
void format_safet_close(struct format_safet **s);

int64_t format_safet_bytes(const struct format_safet *s); /* of the file */
uint64_t format_safet_n(const struct format_safet *s);
/* In the order of their names; i < n. */
const struct format_safet_tensor *format_safet_at(const struct format_safet *s,
                                                  uint64_t i);
const struct format_safet_tensor *format_safet_find(const struct format_safet *s,
                                                    const char *name); /* NULL: none */

#endif
