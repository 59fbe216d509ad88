/* hetero/accel.h - what an accelerator has to do for the slices of a layer: plug-ins, one file in
 * hetero/accel/ each, which ends in one `const struct accel_kind accel_kind_<stem>`.
 *
 * An accelerator has memory of its own, in buffers, and two streams, one for copies and one for
 * computing. What a stream is given runs in that order, after the launches that were issued before
 * it, and next to the other stream: only an event orders two streams. So a kernel waits for the
 * copy of its weights, and a copy into a buffer that is used again for the kernel that read it.
 * Tensors are f32 and row-major.
 * Paper: ScheInfer III-C.   Threads: one owner. */
#ifndef HETERO_ACCEL_H
#define HETERO_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hetero/times.h"

enum accel_stream { ACCEL_COPY, ACCEL_COMPUTE, ACCEL_N_STREAMS };

/* A matrix in a buffer, from a byte on. */
struct accel_matrix {
    int buffer;
    size_t offset;
};

/* Products of n_tok rows. */
struct accel_gemm {
    int64_t n_tok, n_units, dim;
    struct accel_matrix x, w, y;
    /* false: y[n_tok, n_units] = x[n_tok, dim] w[n_units, dim]^T.
     * true: y[n_tok, dim] += x[n_tok, n_units] w[n_units, dim]. */
    bool down;
    int64_t tok0; /* rows of x and y from here on */
};

struct accel {
    const struct accel_kind *kind;
};

struct accel_kind {
    const char *name, *help;
    MUST int (*open)(struct accel **out, const struct hetero_machine *m);
    void (*close)(struct accel **a); /* waits for what runs */
    /* A zeroed buffer; it lives until close(). ERR_NOMEM. */
    MUST int (*alloc)(struct accel *a, size_t bytes, int *buffer);
    /* Issue n launches: what is given to a stream from now on starts after them. */
    void (*launch)(struct accel *a, int n);
    /* From the host's memory, which has to stay as it is until it was copied; or to it. */
    MUST int (*copy)(struct accel *a, int to, size_t offset, const void *from,
                     size_t bytes);
    MUST int (*fetch)(struct accel *a, void *to, int from, size_t offset, size_t bytes);
    MUST int (*gemm)(struct accel *a, const struct accel_gemm *g);
    /* gate[n] = silu(gate) * up */
    MUST int (*swiglu)(struct accel *a, struct accel_matrix gate, struct accel_matrix up,
                       int64_t n);
    /* The number of an event after all that the stream was given so far; and `stream` goes on
     * after it only. */
    int (*record)(struct accel *a, enum accel_stream stream);
    void (*wait)(struct accel *a, enum accel_stream stream, int event);
    /* Wait for all. *seconds: since open(). ERR_STATE: two operations that no event orders used
     * the same bytes, one of them writing. */
    MUST int (*finish)(struct accel *a, double *seconds);
};
extern const struct accel_kind *const accel_kinds[];
MUST int accel_find(const char *name, const struct accel_kind **out);

#endif
