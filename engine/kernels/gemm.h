/* kernels/gemm.h - computes one thread's part of C[M, N] = A[M, K] W[K, N], f32, where W
 * is packed in panels of 16 columns.
 *
 * The schedule divides the product among threads and each thread's part into computation
 * slices. An epilogue runs on tiles while they are in the caches. With pk = 1 a thread
 * writes its part of C. With pk > 1 it writes partial sums. After a barrier, which is the
 * caller's, every thread calls kern_gemm_reduce() for its share of C.
 * Paper: Sandwich 6 (micro-kernel, computation slice, polymerization scheme).
 * Threads: each thread has its own copy of the job and its own scratch. All threads read
 * the same A, packed before the call in blocks of at most schedule.mr rows
 * (kern_a_blocks(m, mr)). */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "kernels/schedule.h"

enum kern_epilogue {
    KERN_STORE,    /* c = A W (+ bias) */
    KERN_RESIDUAL, /* c += A W */
    KERN_GATED,    /* panels 2 p and 2 p + 1 of W are the pair (gate, up): c[:, 16 p ..] =
                      act(gate) * up. C has n_panels / 2 * 16 columns. */
    KERN_ACT       /* c = act(A W (+ bias)) */
};

/* Memory that the thread reads after the product. While a variant that does not prefetch
 * B itself (kern_variant.prefetches_next) multiplies a tile of *bytes, it may prefetch from the
 * address that `next` returns as many as *bytes then is, not more; NULL: nothing. */
struct kern_ahead {
    const void *(*next)(void *ctx, int64_t *bytes); /* NULL: nothing is known */
    void *ctx;
};

struct kern_gemm_job {
    const struct kern_variant *v;    /* of an op KERN_GEMM_* matching w->type */
    const struct kern_variant *gate; /* for KERN_GATED and KERN_ACT: of the activation */
    const struct kern_mat *w;
    struct kern_schedule s;
    const void *a_packed; /* kern_a_pack() blocks of v->a_format over all m rows */
    int64_t m;
    float *c; /* [m, ldc], with 16 columns per panel (or pair of panels) */
    int64_t ldc;
    const float *bias; /* NULL, or n_panels * 16 floats; not KERN_RESIDUAL */
    enum kern_epilogue epilogue;
    /* This thread's part, set by kern_gemm_part(): panels [p_lo, p_hi), blocks of rows
     * [i_lo, i_hi), rows of K [k_lo, k_hi). */
    int64_t p_lo, p_hi, i_lo, i_hi, k_lo, k_hi;
    int along_k;    /* which of the pk partial products it writes, from 0 */
    void *scratch;  /* KERN_GEMM_SCRATCH_BYTES, 64-byte aligned, this thread's own */
    float *partial; /* for pk > 1: kern_gemm_partial_bytes(), shared by all threads */
    struct kern_ahead ahead;
};
/* The scratch: sums before the epilogue, a slice of converted weights, and one factor for
 * each of its columns. */
#define KERN_GEMM_SUMS_BYTES      (256 * 1024)
#define KERN_GEMM_CONVERTED_BYTES (256 * 1024)
#define KERN_GEMM_SCRATCH_BYTES                                                          \
    (KERN_GEMM_SUMS_BYTES + KERN_GEMM_CONVERTED_BYTES +                                  \
     KERN_NP_MAX * KERN_PANEL * sizeof(float))

/* Set the job's part to that of thread `id` of pm * pn * pk. The job's v, w, s and m are
 * set before. Panels are assigned in groups of `together` (2 for KERN_GATED). A part may
 * be empty. */
void kern_gemm_part(struct kern_gemm_job *j, int64_t together, int id);
/* Compute the part. Does nothing when it is empty. */
void kern_gemm_run(const struct kern_gemm_job *j);

/* The size of job.partial: [pk, m, 16 n_panels] floats; 0 for pk = 1. */
size_t kern_gemm_partial_bytes(const struct kern_gemm_job *j);
/* Add up thread id's share of the partial products and compute the epilogue. Partial
 * products are added in the order of K, so the result does not depend on timing. Does
 * nothing for pk = 1. */
void kern_gemm_reduce(const struct kern_gemm_job *j, int id, int n_threads);

#endif
