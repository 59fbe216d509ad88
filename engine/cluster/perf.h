/* cluster/perf.h - how long a step takes on a machine that we do not own.
 *
 * A performance model is opened by a plug-in, one file in cluster/perf/ that ends in one `const
 * struct cluster_perf_kind cluster_perf_<stem>`, from measured points, and is read by
 * cluster_perf_step_ns(). Points of a file that hold the same setting are repeats and count
 * once, by their median. No file holds mixed batches: a step of prompts and of tokens to
 * decode takes the longer of both times, with all tokens counted as prompt tokens. That is an
 * assumption.
 * Paper: Splitwise V-B.   Threads: immutable once open. */
#ifndef CLUSTER_PERF_H
#define CLUSTER_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A step. */
struct cluster_work {
    int64_t n_prompt_tok; /* of all prompts together */
    double sum_prompt_sq; /* sum of the squares of the prompts' lengths */
    int64_t n_decode;     /* sequences that decode */
    int64_t ctx_tok;      /* tokens that these have, together */
};

/* One setting of a measured file; a number that was not measured is NaN. */
struct cluster_point {
    /* Sizes of each sequence. A profile of steps measures the next token after prompt_tok. */
    int64_t prompt_tok, batch, output_tok;
    double prompt_ms,
        token_ms; /* of the whole batch: the prompts, and one more token of each */
    double power, power_most; /* mean and highest, of the machine's peak */
    double e2e_ms;            /* of all outputs of the batch */
};

#define CLUSTER_CURVE_MAX 32
struct cluster_perf {
    const struct cluster_perf_kind *kind;
    /* table and host: piecewise linear, ascending x. */
    int n_prompt, n_token;
    double prompt_tok[CLUSTER_CURVE_MAX], prompt_ms[CLUSTER_CURVE_MAX];
    double batch[CLUSTER_CURVE_MAX], token_ms[CLUSTER_CURVE_MAX];
    double token_ctx_ms[CLUSTER_CURVE_MAX]; /* host: of each token of the mean context */
    /* distserve: prompt a + b sum(L) + c sum(L^2), token a + b ctx + c batch; in ms. host: c */
    double prompt_w[3], token_w[3];
};

struct cluster_perf_kind {
    const char *name, *help;
    /* Fit to n points. ERR_ARG: too few, or none of a kind that it needs. */
    int (*fit)(struct cluster_perf *out, const struct cluster_point *points, int n);
    double (*prompt_ms)(const struct cluster_perf *p, double n_tok, double sum_sq);
    double (*token_ms)(const struct cluster_perf *p, double batch, double ctx_tok);
};
extern const struct cluster_perf_kind *const cluster_perfs[];
MUST int cluster_perf_find(const char *name, const struct cluster_perf_kind **out);

/* The rows of one configuration of a CSV with the columns prompt_size, batch_size, token_size,
 * prompt_time, token_time (ms; an empty field is missing) and, where the configuration is
 * asked for, model, hardware and tensor_parallel. It may have average_power, peak_power (0 or
 * empty: missing) and e2e_time (ms).
 *   *out                    [n], in the file's order; mem_free()
 *   model, hardware         NULL: any
 *   tensor_parallel         0: any
 * ERR_FORMAT: file, line, column, what was expected and found. ERR_NOTFOUND: no row is of this
 * configuration. */
MUST int cluster_rows_read(struct cluster_point **out, int *n, const char *path,
                           const char *model, const char *hardware,
                           int64_t tensor_parallel);
/* Join rows of the same setting, by the median of each number where it is known, in the order of
 * first appearance. */
void cluster_points_join(struct cluster_point *points, int *n);
/* Both: the distinct points.   out [max].   ERR_LIMIT: more than max points. */
MUST int cluster_points_read(struct cluster_point *out, int *n, int max, const char *path,
                             const char *model, const char *hardware,
                             int64_t tensor_parallel);
/* Points made of what the paper prints: Table IV at the traces' median prompts, Fig. 5b's
 * factor of 2 from batch 1 to 64. "a100" or "h100"; ERR_NOTFOUND. */
MUST int cluster_points_printed(struct cluster_point *out, int *n, int max,
                                const char *hardware);

/* Linear between the points and beyond them along the outer segments, never below 0. */
double cluster_interpolate(const double *x, const double *y, int n, double at);
int64_t cluster_perf_step_ns(const struct cluster_perf *p, const struct cluster_work *w);

#endif
