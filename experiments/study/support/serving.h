/* experiments/study/support/serving.h - the engine by its public API, with requests of random
 * tokens that run to a set length.   Threads: one; the engine has its own. */
#ifndef STUDY_SERVING_H
#define STUDY_SERVING_H

#include "serve/serve.h"

/* All zero before study_serving_open(). */
struct study_serving {
    /* Set by the study before the first request, or NULL: called as well for each token. */
    serve_token_fn on_token;
    void *ctx;                     /* of on_token */
    const struct serve_pace *pace; /* of steps; lent until it is closed; NULL: none */
    /* Set here. */
    struct serve *serve;
    int64_t n_submitted, n_live; /* requests; live: not ended yet */
    int32_t *prompt;             /* [max_tok of serve], private */
};

/* The defaults of the engine's options with a model and a policy, which study_serving_open()
 * gives back. The members that are numbers may be changed in between, those that are text by
 * opt_set(). ERR_ARG: `model` is NULL. Then there is nothing to give back. */
MUST int study_serving_opts(struct serve_opts *out, const char *model,
                            const char *policy);
/* Open the engine and give *o back, also after an error. study_serving_close() in any case. */
MUST int study_serving_open(struct study_serving *s, struct serve_opts *o);
void study_serving_close(struct study_serving *s); /* twice is fine */

/* A request of n_prompt tokens that the seed chooses and max_new further ones.
 *   id  NULL, or its number, for serve_cancel() and on_token */
MUST int study_serving_submit(struct study_serving *s, uint64_t seed, int64_t n_prompt,
                              int64_t max_new, int64_t *id);
MUST int study_serving_step(struct study_serving *s);
/* Step until n_tok more tokens of prompts are computed. */
MUST int study_serving_prefill(struct study_serving *s, int64_t n_tok);
/* Step until all requests have ended. */
MUST int study_serving_finish(struct study_serving *s);
/* The same, after canceling these requests. */
MUST int study_serving_cancel(struct study_serving *s, const int64_t *ids, int64_t n);

#endif
