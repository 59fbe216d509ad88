/* plan/trace.h - what the requests of a data set ask of each phase: a few lengths with
 * weights, for evaluators and for replay.
 *
 * Prefill sees prompts, each once. Decode sees contexts, one for each output token: token i
 * of a request attends to its prompt and i tokens. Both are cut into equal parts in order of
 * length, and each part is represented by its mean, so that totals are those of the data
 * set whatever the number of parts.   Paper: Sandwich 5.3.   Threads: any. */
#ifndef PLAN_TRACE_H
#define PLAN_TRACE_H

#include <stdint.h>

#include "base/err.h"
#include "simulate/workload.h"

/* The lengths of requests, tokens. */
struct plan_lengths {
    const int64_t *n_prompt, *n_output; /* [n] */
    int64_t n;
};

struct plan_point {
    double
        tok; /* prefill: of a prompt; decode: that a token attends to, itself included */
    double weight; /* the number of prompts or output tokens that it stands for */
};
/* Its whole tokens. */
static inline int64_t plan_point_tok(const struct plan_point *p)
{
    return p->tok >= 1 ? (int64_t)(p->tok + 0.5) : 1;
}

#define PLAN_POINTS_MAX SIMULATE_STEPS_MAX
struct plan_points {
    int n;
    struct plan_point v[PLAN_POINTS_MAX]; /* ascending, no two equal */
};

struct plan_trace {
    struct plan_points prompts, contexts;
    double mean_output; /* tokens of a request's output */
};

/* Requests longer than max_tok tokens (0: no limit) are shortened to it, the output first, as
 * an engine with that limit would not serve them. ERR_ARG: no lengths, or one below 1. */
MUST int plan_trace_of(struct plan_trace *out, const struct plan_lengths *l,
                       int64_t max_tok);

/* Their weighted mean. */
double plan_points_mean(const struct plan_points *p);
/* Represent the same by at most n_max points, neighbours together. */
void plan_points_merge(struct plan_points *p, int n_max);

/* Seconds of a request: its prompt and, in steps of `batch` sequences, its output. */
double plan_trace_s(const struct plan_trace *t, int64_t batch, double prefill_s,
                    double decode_s);

#endif
