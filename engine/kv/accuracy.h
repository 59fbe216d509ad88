/* kv/accuracy.h - how good predictions of lengths were, and the memory that was given by them.
 *
 * "Accuracy" has no one meaning: a single bucket of the longest sequence is right every time.
 * So four are stated together, with the memory that was used and how often it was outgrown.
 * The error of the logarithm and Kendall's tau are those of the predictor alone, the others
 * those of predictor, caution and buckets together.
 * Paper: ODMA 5.1, which does not define its accuracy.   Threads: stateless. */
#ifndef KV_ACCURACY_H
#define KV_ACCURACY_H

#include "kv/buckets.h"
#include "kv/predict.h"

/* A request that has ended: its prediction, the memory that it got, and its lengths. */
struct kv_outcome {
    double predicted_tok; /* the output, before it is inflated */
    int64_t prompt_tok, output_tok;
    int64_t bucket_tok[2]; /* its bucket is for lengths above [0] and up to [1]; [1] 0: it
                              got none */
    bool of_total;         /* lengths of prompt and output together */
    int64_t first_tok;     /* tokens of the memory that it got first */
    int64_t last_tok;      /* and of that which it had at its end */
};

/* The bucket of a request by the present bounds. */
void kv_outcome_bucket(struct kv_outcome *q, const struct kv_bounds *b,
                       const struct kv_need *need, int64_t max_tok);

/* Shares of requests; NaN where there is nothing to judge. */
struct kv_accuracy {
    double log_mae;       /* mean of |ln(predicted / true)| */
    double kendall_tau;   /* predicted and true outputs; NaN: all predictions are equal */
    double within_frac;   /* predicted within 10 % of the true output */
    double bucket_frac;   /* in the bucket that was chosen: of those with a bucket */
    double safe_frac;     /* no longer than that bucket's bound: of those with a bucket */
    double overflow_frac; /* outgrew the memory that they got first */
    double utilization_frac; /* tokens / tokens of memory, at the requests' ends */
    double large_frac;       /* got memory for the longest sequence at once */
};

/* ERR_NOMEM. n 0: all are NaN. */
MUST int kv_accuracy(struct kv_accuracy *out, const struct kv_outcome *q, int64_t n,
                     int64_t max_tok);

#endif
