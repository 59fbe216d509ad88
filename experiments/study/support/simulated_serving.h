/* experiments/study/support/simulated_serving.h - requests that one simulated machine serves: times
 * of steps of engine/simulate for the cores of both phases, which go through the performance model
 * `host` into the simulated cluster, and the highest rate at which objectives are kept.
 *   Threads: one. */
#ifndef STUDY_SIMULATED_SERVING_H
#define STUDY_SIMULATED_SERVING_H

#include "cluster/cluster.h"
#include "experiments/study/support/topo.h"

#define STUDY_SIMULATED_SERVING_TARGET_FRAC 0.9
#define STUDY_SIMULATED_SERVING_TOLERANCE   0.02

/* A step of a prompt of n_tok tokens, and of `batch` sequences of ctx_tok tokens: its seconds, and
 * the bytes that it reads. type: of the weights, which placed_by has placed; NULL: f has. */
MUST int study_simulated_serving_prompt_s(const struct study_topo *t, enum kern_type type,
                                          const struct topo_config *f,
                                          const struct topo_config *placed_by,
                                          int64_t n_tok, double *seconds, double *bytes);
MUST int study_simulated_serving_token_s(const struct study_topo *t, enum kern_type type,
                                         const struct topo_config *f, int batch,
                                         double ctx_tok, double *seconds, double *bytes);

/* An engine on given cores. */
struct study_simulated_serving_engine {
    struct cluster_perf perf;
    double prompt_s, prompt_bytes; /* of the trace's mean prompt, alone */
    double token_s, token_bytes;   /* of a step of eight sequences of its mean length */
    int prompt_cores, token_cores;
};
/* placed_by: of prefill's steps; decode always reads what is placed for it. */
MUST int study_simulated_serving_engine_open(struct study_simulated_serving_engine *out,
                                             const struct study_topo *t,
                                             enum kern_type type,
                                             const struct topo_config *prefill,
                                             const struct topo_config *decode,
                                             const struct topo_config *placed_by);

struct study_simulated_serving_kept {
    bool ttft, tpot;
};
/* Objectives that are multiples of what `alone` takes for the request by itself. */
struct study_simulated_serving_kept
study_simulated_serving_kept_alone(const struct cluster_perf *alone, double ttft_factor,
                                   double tpot_factor, const struct cluster_done *d);
/* One engine, or a prompt machine and a token machine on the same memory controllers. */
struct study_simulated_serving {
    const struct study_topo *topo; /* its trace is drawn from */
    const struct study_simulated_serving_engine *prompt,
        *token;           /* token NULL: one engine */
    double slowdown;      /* of both machines while both compute; 1: none */
    const char *policy;   /* scheduling policy */
    int64_t max_step_tok; /* of "chunked"; 0: no limit */
    int64_t max_seqs;
    /* Which objectives a request has met. */
    struct study_simulated_serving_kept (*kept)(void *ctx, const struct cluster_done *d);
    void *kept_ctx;
};

struct study_simulated_serving_counts {
    int64_t n;                      /* requests */
    int64_t n_ttft, n_tpot, n_both; /* those that kept an objective, or both */
};
/* As many requests as the trace has, drawn from it, at Poisson times of a rate. */
MUST int study_simulated_serving_run(struct study_simulated_serving_counts *out,
                                     const struct study_simulated_serving *s,
                                     double rate_rps, uint64_t seed);
/* The highest rate at which STUDY_SIMULATED_SERVING_TARGET_FRAC of them keep both objectives, to
 * STUDY_SIMULATED_SERVING_TOLERANCE. 0: none. */
MUST int study_simulated_serving_goodput(double *out,
                                         const struct study_simulated_serving *s,
                                         uint64_t seed);
/* That of each of n seeds, from `seed` on. */
MUST int study_simulated_serving_goodputs(double *out,
                                          const struct study_simulated_serving *s,
                                          int64_t n, int64_t seed);
/* The result *x is the mean of v[n], with its interval; why: the reason where it is NaN. */
void study_simulated_serving_mean(struct frame *f, double *x, const double *v, int64_t n,
                                  const char *why);

#endif
