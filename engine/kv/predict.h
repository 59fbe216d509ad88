/* kv/predict.h - how many tokens a request will generate: plug-ins in kv/predict/.
 *
 * A prediction is made once, before the request gets memory: a length and its uncertainty.
 * One file ends in one `const struct kv_predictor kv_predictor_<stem>`.
 * Paper: ODMA 3.2.   Threads: one owner. */
#ifndef KV_PREDICT_H
#define KV_PREDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "kv/alloc.h"

struct kv_learned;

struct kv_query {
    int64_t prompt_tok;
    const char *text; /* the prompt, not NUL-terminated; NULL: not known */
    size_t text_bytes;
    int64_t
        true_tok; /* what it will generate, for predictors that stand for a good or a bad
                         one; -1: not known */
};

struct kv_prediction {
    double gen_tok;     /* tokens to be generated */
    double uncertainty; /* 0 to 1 */
};

struct kv_predict_opts {
    int64_t max_tok;     /* the longest sequence, which bounds every prediction */
    double constant_tok; /* constant: what it always predicts */
    double sigma, bias;  /* noisy: see predict/noisy.c */
    int64_t seed;        /* noisy */
    const struct kv_learned *learned; /* learned: see kv/learn.h; lent while it is open */
};

struct kv_predictor {
    const char *name, *help;
    bool learns;      /* it needs kv_predict_opts.learned */
    bool reads_truth; /* it needs kv_query.true_tok */
    /* ERR_ARG: an option is out of range. */
    int (*open)(void **state, const struct kv_predict_opts *o);
    void (*close)(void *state);
    /* ERR_ARG: the query lacks what this predictor needs. */
    int (*predict)(void *state, const struct kv_query *q, struct kv_prediction *out);
};
extern const struct kv_predictor *const kv_predictors[];
/* ERR_NOTFOUND names the nearest. */
MUST int kv_predictor_find(const char *name, const struct kv_predictor **out);

/* How cautious a prediction is used. */
struct kv_caution {
    double alpha; /* the length is inflated by 1 + alpha * uncertainty */
    double tau;   /* above this uncertainty a sequence gets the large bucket */
};
/* The need of a request that has prompt_tok tokens: at least one more. */
struct kv_need kv_need_predicted(int64_t prompt_tok, const struct kv_prediction *p,
                                 const struct kv_caution *c, int64_t max_tok);

#endif
