/* kernels/gemm.h - one thread's share of C[M, N] = A[M, K] W, driven over packed panels.
 *
 * The driver cuts the share into computation slices (bM, bN, bK) that fit the caches and
 * calls the micro-kernel; an epilogue runs on tiles while they are in the first-level
 * cache.
 * Paper: Sandwich 6 (micro-kernel, computation slice, polymerization scheme).
 * Threads: each calls with its own panel range and scratch; A is shared and packed
 * before. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "kernels/pack.h"

enum kern_epilogue {
    KERN_STORE,    /* c = A W (+ bias) */
    KERN_RESIDUAL, /* c += A W */
    KERN_SWIGLU,   /* panels come in pairs (gate, up): c[:, 16 p ..] = silu(gate) * up for
                      pair p; c has n_panels/2 * 16 columns */
};

struct kern_gemm_job {
    const struct kern_variant *v;        /* of an op KERN_GEMM_* matching w->type */
    const struct kern_variant *silu_mul; /* for KERN_SWIGLU */
    const struct kern_mat *w;
    const void *a_packed; /* kern_a_pack() blocks of v->a_format over all m rows */
    int64_t m;
    float *c; /* [m, ldc], room for 16 columns per panel (pair) */
    int64_t ldc;
    const float *bias; /* NULL, or n_panels * 16 floats; KERN_STORE only */
    enum kern_epilogue epilogue;
    int64_t p_lo, p_hi; /* this thread's panels; even bounds for KERN_SWIGLU */
    void *scratch;      /* KERN_GEMM_SCRATCH_BYTES, 64-byte aligned, this thread's own */
};
#define KERN_GEMM_SCRATCH_BYTES (256 * 1024)

void kern_gemm_run(const struct kern_gemm_job *j);

#endif
