/* tune/measure.h - times schedules with measure/compare.h: prepares operands, runs GEMMs.
 *
 * Every policy, the tuner and the experiments measure here, so that the cost of all (calls
 * and time) is counted in the same way. Weights are rotated through copies larger together than the
 * last-level cache (cold), or not (warm).
 * Threads: the team's; the caller is its thread 0 and nothing else may run. */
#ifndef TUNE_MEASURE_H
#define TUNE_MEASURE_H

#include <stdbool.h>

#include "kernels/gemm.h"
#include "measure/compare.h"
#include "par/team.h"

/* C[m, n] = A[m, k] W as `v` computes it. */
struct tune_shape {
    const struct kern_variant *v; /* of an op KERN_GEMM_* */
    int64_t m, n, k;
    int64_t k_unit; /* 0: not split along K */
};

struct tune_bench_opts {
    bool warm;                   /* leave the weights in the caches */
    struct measure_opts measure; /* of tune_measure(); min_rounds 0: 3 */
    size_t cache_bytes;          /* the last-level cache; 0: what the CPU states */
    int64_t seed;
};

struct tune_cost {
    int64_t n_measurements; /* calls of tune_measure(), and schedules of tune_compare() */
    int64_t n_runs;         /* GEMMs computed */
    double seconds;         /* in those calls, warm-up included; preparing operands is
                               the same for all and not included */
};

struct tune_bench;
/* The team is lent. *out: tune_bench_close(). */
MUST int tune_bench_open(struct tune_bench **out, struct par_team *team,
                         const struct tune_bench_opts *o);
/* A bench that computes nothing: the time of a run is the one that fn returns. For tests of
 * policies, and for studies of a modelled or recorded machine. */
typedef double (*tune_model_fn)(void *arg, const struct tune_shape *shape,
                                const struct kern_schedule *s, int n_threads);
MUST int tune_bench_open_model(struct tune_bench **out, tune_model_fn fn, void *arg);
/* From now on a measurement on a model makes as many runs as on a machine, by a clock that the runs
 * alone advance, in place of one: for models with noise. */
void tune_bench_model_rounds(struct tune_bench *b);
void tune_bench_close(struct tune_bench **b);

/* Prepare a shape: weights (seeded random), activations, memory for results. They are kept
 * when only m differs and is not larger. */
MUST int tune_bench_shape(struct tune_bench *b, const struct tune_shape *s);
/* The matrix; after a run, the copy that it read. No data in a bench with a model. */
const struct kern_mat *tune_bench_mat(const struct tune_bench *b);
/* A [m, k] and the C [m, ldc] of the latest run. */
const float *tune_bench_a(const struct tune_bench *b);
const float *tune_bench_c(const struct tune_bench *b, int64_t *ldc);
/* Time s on n_threads threads (s->pm * pn * pk). The packing of A is inside the time. */
MUST int tune_measure(struct tune_bench *b, const struct kern_schedule *s, int n_threads,
                      struct measure_report *out);
/* Time n schedules in turn for several rounds; out[n]. Before a single round nothing warms
 * up. */
MUST int tune_compare(struct tune_bench *b, const struct kern_schedule *s, int n,
                      int n_threads, int rounds, struct measure_report *out);
/* One run of the current shape, for callers that interleave with something else. */
MUST int tune_run_once(struct tune_bench *b, const struct kern_schedule *s, int n_threads,
                       double *seconds);

void tune_cost_take(struct tune_bench *b,
                    struct tune_cost *out); /* and start again at zero */
void tune_cost_of(const struct tune_bench *b, struct tune_cost *out);

#endif
