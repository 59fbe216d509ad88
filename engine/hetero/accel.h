/* hetero/accel.h - what an accelerator has to do for the slices of a layer: plug-ins, one file in
 * hetero/accel/ each, which ends in one `const struct accel_kind accel_kind_<stem>`.
 *
 * An accelerator has memory of its own, in buffers, and two streams, one for copies and one for
 * computing. What a stream is given runs in that order, after the launches that were issued before
 * it, and next to the other stream: only an event orders two streams. So a kernel waits for the
 * copy of its weights, and a copy into a buffer that is used again for the kernel that read it.
 * Activations are f32 and row-major. Weights are the bytes that the CPU computes with, in panels
 * (kernels/pack.h), so that a slice need not be packed again to be computed elsewhere.
 * Paper: ScheInfer III-C.   Threads: one owner. */
#ifndef HETERO_ACCEL_H
#define HETERO_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hetero/times.h"
#include "kernels/pack.h"
#include "kernels/panel.h"

enum accel_stream { ACCEL_COPY, ACCEL_COMPUTE, ACCEL_N_STREAMS };

/* A place in a buffer, a byte of it. */
struct accel_at {
    int buffer;
    size_t offset;
};

/* y[n_tok, 16 n_panels] = x[n_tok, k] w, or added to y. Rows are ldx and ldy floats apart. */
struct accel_gemm {
    int64_t n_tok, ldx, ldy;
    struct accel_at x, w, y;
    struct kern_mat layout; /* of the weights at w; its data is not read */
    bool accumulate;
};

/* h[n_tok, 16 n_pairs] = silu(gate) * up of the pairs of panels gate, up of gate_up. */
struct accel_swiglu {
    int64_t n_tok, n_pairs, ldh, ld;
    struct accel_at h, gate_up;
};

struct accel {
    const struct accel_kind *kind;
};

struct accel_opts {
    const struct hetero_machine *machine; /* what is simulated takes these times; lent */
    int cpu; /* for a thread of the accelerator's own, where it has one; -1: any */
};

struct accel_kind {
    const char *name, *help;
    bool real_time; /* its seconds are those of the clock, not computed ones */
    /* ERR_UNSUPPORTED: there is no such device here; the message says what is missing. */
    MUST int (*open)(struct accel **out, const struct accel_opts *o);
    void (*close)(struct accel **a); /* waits for what runs */
    /* A zeroed buffer; it lives until close(). ERR_NOMEM. */
    MUST int (*alloc)(struct accel *a, size_t bytes, int *buffer);
    /* Issue n launches: what is given to a stream from now on starts after them. */
    void (*launch)(struct accel *a, int n);
    /* From the host's memory, which has to stay as it is until it was copied; or to it. */
    MUST int (*copy)(struct accel *a, struct accel_at to, const void *from, size_t bytes);
    MUST int (*fetch)(struct accel *a, void *to, struct accel_at from, size_t bytes);
    MUST int (*gemm)(struct accel *a, const struct accel_gemm *g);
    MUST int (*swiglu)(struct accel *a, const struct accel_swiglu *s);
    /* The number of an event after all that the stream was given so far; and `stream` goes on
     * after it only. */
    int (*record)(struct accel *a, enum accel_stream stream);
    void (*wait)(struct accel *a, enum accel_stream stream, int event);
    /* Wait for all; what comes later is after it. *seconds: since open(), on the accelerator's
     * clock, when the last of it was done. ERR_STATE: two operations that no event orders used
     * the same bytes, one of them writing. */
    MUST int (*finish)(struct accel *a, double *seconds);
};
extern const struct accel_kind *const accel_kinds[];
MUST int accel_find(const char *name, const struct accel_kind **out);

/* ---- for accelerators ---- */

/* Memory for one more in a list of n, with *max so far, of objects of `size` bytes. list: the
 * address of the pointer to the first one, NULL at first; mem_free(). ERR_NOMEM. */
MUST int accel_grow(void *list, int n, int *max, size_t size);

/* The layout of packed weights for a device's kernels, which read it as numbers of 64 bits in this
 * order; kernels/panel.h defines the parts of a block. */
struct accel_form {
    int64_t k, k_unit, panel_bytes, unit_bytes;
    int64_t type, subs, head, sub, bits, zero, min, scales, halves, book, wide;
};
static inline struct accel_form accel_form_of(const struct kern_mat *w)
{
    const struct kern_form *f = kern_form(w->type);

    return (struct accel_form){.k = w->k,
                               .k_unit = w->k_unit,
                               .panel_bytes = (int64_t)w->panel_bytes,
                               .unit_bytes = (int64_t)w->unit_bytes,
                               .type = w->type,
                               .subs = f->subs,
                               .head = f->head,
                               .sub = f->sub,
                               .bits = f->bits,
                               .zero = f->zero,
                               .min = f->min,
                               .scales = f->scales,
                               .halves = f->halves,
                               .book = f->book,
                               .wide = f->wide};
}

/* Bytes from the first to the last float of n_tok rows of n floats, ld floats apart. */
static inline size_t accel_rows_bytes(int64_t n_tok, int64_t ld, int64_t n)
{
    return (size_t)((n_tok - 1) * ld + n) * sizeof(float);
}

#endif
