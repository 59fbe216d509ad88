/* baselines/gemm.h - GEMM libraries: a library's GEMM, timed against ours on equal terms.
 *
 * A baseline is one file baselines/gemm/<name>.c, built into its own small program when its
 * library is found, because BLAS libraries claim the same symbols and read their settings
 * from the environment at start. The client starts one child per setting worth trying
 * (core type, weight layout: several libraries mistake new CPUs for old ones), lets each
 * compute the shape, checks the result against float64 on sampled elements, keeps the
 * fastest and says which it was. A child computes only when told to, so runs of several
 * baselines and of our kernels can be interleaved; between runs its threads sleep.
 * Threads: one caller. */
#ifndef BASELINES_GEMM_H
#define BASELINES_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gemm_baseline;

struct gemm_baseline_opts {
    const int *cpus; /* thread i runs on cpus[i] */
    int n_threads;
    size_t cache_bytes; /* weights rotate through copies larger than this several times */
    int64_t seed;
    double limit_s; /* a child that does not answer within this time is ended; 0: 30 */
    const char
        *dir; /* folder of the baselines' programs; NULL: baseline/ next to this one */
};

/* Names of the baselines this project knows, NULL-terminated, built or not. */
extern const char *const gemm_baseline_names[];

/* ERR_NOTFOUND: not built, its library is absent (err_msg() says so). */
MUST int gemm_baseline_open(struct gemm_baseline **out, const char *name,
                            const struct gemm_baseline_opts *o);
void gemm_baseline_close(struct gemm_baseline **r);
const char *gemm_baseline_version(const struct gemm_baseline *r); /* "oneDNN 2.6.3" */

/* Make ready for C[m, n] = A[m, k] W[k, n] with weights of `type` ("f32", "bf16";
 * activations and result f32 at the interface, rounding them is inside the time), try every
 * setting for at most budget_s seconds in all, keep the best.
 * ERR_NOTFOUND: the baseline has no such type.  ERR_STATE: no setting computed it right. */
MUST int gemm_baseline_shape(struct gemm_baseline *r, const char *type, int64_t m,
                             int64_t n, int64_t k, bool warm, double budget_s);
/* The setting kept for the shape made ready ("core=SkylakeX op=gemm layout=NK", and " (8 of 14
 * settings tried)" where budget_s did not reach for all), and the RMS error of sampled elements
 * against float64, relative to the RMS of the result. */
const char *gemm_baseline_setting(const struct gemm_baseline *r);
double gemm_baseline_error(const struct gemm_baseline *r);
/* Compute once more; the time by the child's own clock, its threads awake when it starts
 * and asleep when this returns. ERR_IO: the child died.  ERR_LIMIT: it hangs.  After an
 * error no shape is ready. */
MUST int gemm_baseline_run(struct gemm_baseline *r, double *seconds);

#endif
