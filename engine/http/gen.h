/* http/gen.h - the generation of one request, which may have several sequences (prompts times
 * choices): between the thread that steps the engine, which must never wait for a client, and the
 * one that writes to the client.
 *
 * The stepping thread appends tokens to arrays that were taken when the request was accepted
 * and have a place for every token that it may generate: it takes no memory, and the queue
 * cannot overflow. It computes what needs the logits, and searches stop strings, so that
 * generation ends with the token that completes one. All text is made by the reader.
 * Threads: the one that steps calls on_token() of gen.c, as a callback of the engine; the
 * reader the rest. Two owners: the engine, until the last token, and the reader. */
#ifndef HTTP_GEN_H
#define HTTP_GEN_H

#include <pthread.h>

#include "http/metrics.h"
#include "http/request.h"
#include "tokenizer/tokenizer.h"

struct http_token {
    int32_t id;
    float logprob; /* NAN: of a prompt's first token */
    size_t n_safe; /* bytes of all text so far that no stop string can take back */
};
struct http_top {
    int32_t id;
    float logprob;
};

enum http_finish {
    HTTP_RUNNING,
    HTTP_LENGTH,   /* as many tokens as asked for */
    HTTP_EOS,      /* the last token ends the text and is not a part of it */
    HTTP_STOPPED,  /* a stop string */
    HTTP_CANCELED, /* by the server, or since the client has gone */
    HTTP_FAILED
};

/* What the reader may take of a sequence. */
struct http_progress {
    int64_t n; /* tokens so far */
    enum http_finish finish;
    size_t text_end; /* HTTP_STOPPED: bytes of the text before the stop string */
};

/* One of the sequences: a choice of the answer. */
struct http_seq {
    struct http_gen *g;

    /* Constant once submitted. */
    int64_t id, n_prompt, max_new;
    int64_t n_reused; /* of the prompt, taken from a sequence before it */
    int64_t n_echo;   /* the first tokens are the prompt's: n_prompt, or 0 */

    /* Under the lock. The tokens before n are constant and may be read without it. */
    struct http_token *tokens; /* [n_prompt with echo, + max_new] */
    struct http_top *top;      /* [as many, n_top] most likely first; NULL: none */
    struct http_progress now;

    /* Used by the stepping thread only. */
    struct http_stop stop;
    struct tok_stream stream;
    char *piece; /* [capacity] text of one token; only with stop strings */
    size_t capacity;
    uint64_t t_submit_ns, t_start_ns,
        t_last_ns; /* start: of its first step; 0: unknown */

    /* The reader's. */
    struct http_progress seen; /* by http_gen_ready() */
    int64_t n_told;            /* tokens that it has written */
    bool told_end;
};

struct http_gen {
    pthread_mutex_t lock;
    int n_owners;
    struct http_gen *next, **link; /* in the server's list, under its lock */

    /* Constant once submitted. */
    struct serve *serve;
    const struct tok *tok; /* NULL: ids only */
    int vocab;
    int64_t n_top;
    bool logprobs, wake_at_end;
    void (*wake)(void *ctx); /* the reader's; once after a false http_gen_ready() */
    void (*on_end)(struct http_gen *g); /* with the last token of all */
    void *ctx;
    void *list_owner; /* the server, for on_end() */
    struct http_metrics *metrics;
    int n_seqs;
    struct http_seq *seqs; /* [n_seqs] */

    /* Under the lock. */
    int n_live; /* sequences that have not ended */
    bool waiting, hung_up;
    char why[256]; /* of the first that is HTTP_FAILED */
};

/* n_seqs sequences without prompts yet. *out has one owner: the caller. ERR_NOMEM. */
MUST int http_gen_new(struct http_gen **out, const struct http_request *r, int n_seqs,
                      const struct tok *tok, int vocab);
/* Give the i-th its size: n_prompt prompt tokens, max_new tokens at most. ERR_NOMEM. */
MUST int http_gen_size(struct http_gen *g, int i, const struct http_request *r,
                       int64_t n_prompt, int64_t max_new);
struct http_prompt {
    int32_t *ids;
    size_t n;
};
/* Submit all; the engine is then a second owner until on_end(), which is called after an error,
 * too, when those that were submitted have ended. The i-th sequence has the prompt i / r->n, and
 * choices of a prompt have seeds that follow each other. Where r asks for echo, a sequence begins
 * with the prompt's tokens, with log probabilities of all but the first where r asks for them.
 * Errors of serve_submit(). */
MUST int http_gen_submit(struct http_gen *g, const struct http_request *r,
                         struct serve *s, const struct http_prompt *prompts);
void http_gen_unref(struct http_gen *g); /* NULL is fine */

/* Whether there is anything for the reader: tokens or ends that it has not written, or
 * (wake_at_end) the end of all; their state is in `seen` of each sequence. If not, park(g->ctx) is
 * called, and then g->wake() once there is. After http_gen_hang_up() it is always true, and
 * *hung_up is set. */
bool http_gen_ready(struct http_gen *g, void (*park)(void *ctx), bool *hung_up);
/* The client has gone: cancel, and wake the reader. Any thread. */
void http_gen_hang_up(struct http_gen *g);
/* Cancel only. Any thread. */
void http_gen_cancel(struct http_gen *g);
/* End what goes on with HTTP_FAILED for this reason. Any thread. */
void http_gen_fail(struct http_gen *g, const char *why);

#endif
