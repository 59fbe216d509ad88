/* kv/learn.h - a length predictor that is learned from answered requests.
 *
 * A request is described by features of its prompt: hashed words and pairs of words, its length,
 * signs of code, lists and questions, and the word that it begins with, which shows what is asked
 * for. Ridge regression on them gives the logarithm of the output's length, and for each of
 * KV_LEARN_CLASSES classes of equally many training outputs a score. The uncertainty is the entropy
 * of the scores, 1 where all classes are equally likely. How strongly weights are shrunk is what
 * predicts the last fifth of the examples best from the others. The same examples give the same
 * predictor.   Paper: ODMA 3.2, with ridge regression in place of a small Transformer.   Threads: a
 * predictor is immutable once trained. */
#ifndef KV_LEARN_H
#define KV_LEARN_H

#include "kv/predict.h"

#define KV_LEARN_CLASSES 8

struct kv_example {
    const char *text; /* the prompt, or its first part; not NUL-terminated */
    size_t text_bytes;
    int64_t prompt_tok, output_tok;
};

struct kv_learned;

/* *out is the caller's; NULL on error. ERR_ARG: too few examples. */
MUST int kv_learn(struct kv_learned **out, const struct kv_example *examples, int64_t n);
void kv_learned_close(struct kv_learned **l);
void kv_learned_predict(const struct kv_learned *l, const struct kv_example *request,
                        struct kv_prediction *out);

/* The data that a predictor was learned from, for those who evaluate or use it. */
struct kv_learned_from {
    char format[32];   /* of the data */
    char tokens[64];   /* how their tokens were counted */
    char model_id[17]; /* format_identity() of the model that answered; "" unknown */
    int64_t n_examples;
    int64_t fold, folds; /* the part that was held out; fold 0: none was */
};

/* Write what was learned as JSON. Errors of json_write_file(). */
MUST int kv_learned_save(const struct kv_learned *l, const struct kv_learned_from *from,
                         const char *path);
/* Read it: predictions are the same to the bit. *out is the caller's, NULL on error; `from`
 * may be NULL. ERR_FORMAT: the file is not whole, was changed, or is of another version; the
 * message names the key. ERR_NOTFOUND, ERR_IO, ERR_LIMIT, ERR_NOMEM. */
MUST int kv_learned_load(struct kv_learned **out, struct kv_learned_from *from,
                         const char *path);

#endif
