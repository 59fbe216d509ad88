/* experiments/study/support/kv_requests.h - requests as lengths, for studies of the memory of
 * keys and values.   Threads: any. */
#ifndef STUDY_KV_REQUESTS_H
#define STUDY_KV_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct study_kv_request {
    int64_t prompt_tok, output_tok; /* at least 1 each, together at most the longest */
    const char *text;               /* of the prompt; NULL: only lengths are known */
    size_t text_bytes;
};

/* Draw out[n] from a fit of a published trace, by name. Errors of dataset_open(). */
MUST int study_kv_draw(struct study_kv_request *out, int64_t n, const char *fit,
                       int64_t seed);
/* Cut the requests to *max_tok tokens, prompt and output together. 0: to what holds fit_frac of
 * them, a multiple of align_tok, which is set. ERR_NOMEM. */
MUST int study_kv_cut(struct study_kv_request *r, int64_t n, double fit_frac,
                      int64_t align_tok, int64_t *max_tok);

#endif
