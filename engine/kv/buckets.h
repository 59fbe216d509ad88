/* kv/buckets.h - which sizes of memory sequences get: bounds that are learned again and again
 * from the lengths of finished requests.
 *
 * A window holds the lengths of the latest requests that finished. Each bound is a quantile
 * of the window, the smallest length x with F(x) >= p, aligned up; equal bounds are one. Bounds
 * are published as an epoch, which affects only sequences that get memory after it. The
 * window is a histogram of aligned lengths: adding a request takes constant time, new bounds
 * as many steps as there are aligned lengths, so no thread is needed to keep them off a step.
 * The window is in order of completion: after the lengths change, short requests enter it
 * first, until the first long ones end. A canceled request has no length and must not be
 * added.   Paper: ODMA 3.3.   Threads: one owner. */
#ifndef KV_BUCKETS_H
#define KV_BUCKETS_H

#include "kv/alloc.h"

#define KV_BUCKETS_MAX 16

/* Quantiles at which buckets end, where nothing else is asked for. More of them waste less
 * memory in sequences that are shorter than their bucket, and predictions fall short of more
 * of them (experiments/odma_ablation.json). */
#define KV_N_QUANTILES 10
#define KV_QUANTILES                                                                     \
    {                                                                                    \
        0.2, 0.4, 0.55, 0.65, 0.75, 0.8, 0.85, 0.9, 0.94, 0.97                           \
    }

struct kv_bounds {
    int64_t epoch; /* how often they have been learned */
    int n;         /* the large bucket comes after these */
    bool of_total; /* of prompt and output together, not of the output */
    int64_t align_tok;
    int64_t tok[KV_BUCKETS_MAX]; /* ascending, multiples of align_tok, at most max_tok */
};

/* The bucket of a sequence: the first that holds what is predicted, or the large one, whose
 * number is b->n. */
int kv_bounds_bucket(const struct kv_bounds *b, const struct kv_need *need);
/* Tokens of memory that it gets there, at most max_tok. */
int64_t kv_bounds_size(const struct kv_bounds *b, const struct kv_need *need,
                       int64_t max_tok);

/* Bounds that are not learned: n equal parts of max_tok, n at most KV_BUCKETS_MAX. */
void kv_bounds_equal(struct kv_bounds *out, int n, int64_t max_tok, int64_t align_tok);

struct kv_bucket_opts {
    int64_t max_tok;   /* the longest sequence */
    int64_t align_tok; /* bounds are multiples of it */
    int64_t window;    /* requests that the window holds */
    int64_t every;     /* learn again after this number of requests */
    int64_t half_life; /* requests after which one of the window counts half; 0: all count
                          the same, as in the paper */
    bool detect; /* where the latest `every` lengths differ from those before by the test
                          of Kolmogorov and Smirnov, the window forgets those before. The
                          paper's slides. After a change batches are larger by 8 % with
                          it (experiments/odma_ablation.json) */
    bool least;  /* bounds with which the window's requests would take least memory, as
                          many as there are quantiles (kv/least.h); else the quantiles */
    bool
        of_total; /* see struct kv_bounds; the paper's are of the output alone, which gives
                      larger batches (experiments/odma_ablation.json) */
    bool
        steps; /* above the last quantile, further buckets of twice the size each, as far as
                   KV_BUCKETS_MAX allows. The paper has the large bucket only, which wastes
                   most of it where predictions are above the lengths of late (3.3) */
    int n_first; /* until lengths have been learned: equal parts of max_tok; 0: only the
                    large bucket */
    int n;       /* number of quantiles; 0: only the large bucket */
    double p[KV_BUCKETS_MAX]; /* ascending, in (0, 1] */
};

struct kv_buckets;
/* *out is the caller's; NULL on error. ERR_ARG: a member is out of range. */
MUST int kv_buckets_open(struct kv_buckets **out, const struct kv_bucket_opts *o);
void kv_buckets_close(struct kv_buckets **b);
/* The present bounds, lent. They change in kv_buckets_learn() only. */
const struct kv_bounds *kv_buckets_bounds(const struct kv_buckets *b);
/* A request finished. */
void kv_buckets_add(struct kv_buckets *b, int64_t prompt_tok, int64_t output_tok);
/* Whether `every` requests finished since the bounds were learned. */
bool kv_buckets_due(const struct kv_buckets *b);
/* Publish the bounds of the window as the next epoch; nothing where it is empty. */
void kv_buckets_learn(struct kv_buckets *b);

#endif
