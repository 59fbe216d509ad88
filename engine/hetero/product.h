/* hetero/product.h - products with packed weights on this host's CPUs: the CPU's own slices, and
 * those of accelerators that compute here. All variants are exact, with f32 activations.
 *   Threads: a workspace has one owner; the functions for a team are called by all its threads. */
#ifndef HETERO_PRODUCT_H
#define HETERO_PRODUCT_H

#include "kernels/gemm.h"
#include "par/team.h"

/* y[n_tok, 16 n_panels] = x[n_tok, k] w, or added to y. Rows of x and y are ldx and ldy floats
 * apart. With KERN_GATED y has a column for each pair of columns of w. */
struct hetero_product {
    const struct kern_mat *w;
    const float *x;
    float *y;
    int64_t ldx, ldy, n_tok;
    enum kern_epilogue epilogue;
};

struct hetero_work {
    struct kern_table kern;
    int n_threads;
    void *scratch; /* [n_threads, KERN_GEMM_SCRATCH_BYTES] */
    void *packed;  /* activations */
    float *partial;
    size_t packed_bytes, partial_bytes;
};

/* Given back with hetero_work_close(), also after an error. ERR_NOMEM. */
MUST int hetero_work_open(struct hetero_work *w, int n_threads);
void hetero_work_close(struct hetero_work *w);
/* Take what the product needs, before hetero_product_run(). ERR_NOMEM. */
MUST int hetero_product_reserve(struct hetero_work *w, const struct hetero_product *p);
/* All threads of a phase of w->n_threads call it; self NULL: one thread alone. Ends with a
 * barrier. */
void hetero_product_run(struct hetero_work *w, const struct hetero_product *p,
                        struct par_self *self);
/* Both, by the calling thread alone. w has one thread. ERR_NOMEM. */
MUST int hetero_product_alone(struct hetero_work *w, const struct hetero_product *p);
/* h[n_tok, 16 n_pairs]: silu(gate) * up of pairs of panels. */
void hetero_swiglu(const struct hetero_work *w, float *h, int64_t ldh,
                   const float *gate_up, int64_t ld, int64_t n_tok, int64_t n_pairs);

#endif
