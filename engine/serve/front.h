/* serve/front.h - the public API in front of engines that are elsewhere.
 *
 * serve_submit(), serve_cancel(), serve_step(), serve_wait(), serve_wake(), serve_kv_stat() and
 * serve_totals_of() of such a `struct serve` are answered by what it is opened with; the tokenizer
 * and the model's head are this process's own. Callbacks of requests get no logits.
 * Threads: as of serve.h. */
#ifndef SERVE_FRONT_H
#define SERVE_FRONT_H

#include "serve/serve.h"

struct serve_front {
    int64_t max_tok; /* of a request */
    /* The request is as serve_submit() wants it. */
    int (*submit)(void *ctx, const struct serve_request *r, int64_t *id);
    void (*cancel)(void *ctx, int64_t id);
    int (*step)(void *ctx, bool *busy);
    void (*wait)(void *ctx, uint64_t timeout_ns);
    void (*wake)(void *ctx);
    void (*kv_stat)(void *ctx, struct serve_kv_stat *out);
    const struct serve_totals *(*totals)(void *ctx, enum serve_phase phase);
    void (*close)(
        void *ctx); /* ends all requests; also after an error of serve_open_front() */
    void *ctx;
};

/* *out: closed with serve_close(). Of the options it reads model, tokenizer and pre_tokenizer.
 * ERR_UNSUPPORTED, later: serve_describe(). */
MUST int serve_open_front(struct serve **out, const struct serve_opts *o,
                          const struct serve_front *f);

/* What it was opened with; lent. NULL: its engine is in this process. */
const struct serve_front *serve_front_of(const struct serve *s);

#endif
