/* experiments/conformance/client.h - requests for completions, and answers as they came:
 * with all that they say of themselves, and all that they leave out. Every wait has an end.
 * Threads: one owner. */
#ifndef CONFORM_CLIENT_H
#define CONFORM_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"
#include "baselines/openai_probe.h"

struct conform_request {
    const int32_t
        *prompt; /* [n_prompt]; numbers of words where the server takes no ids */
    int64_t n_prompt, n_output;
    int64_t seed; /* sampled with it; 0: the likeliest token each time */
    bool stream;
    int64_t
        leave_after; /* the client closes the connection after this many events; 0: never */
};

#define CONFORM_NOT_STATED (-1)

struct conform_answer {
    long status;
    bool ended;          /* the transfer did, well or not */
    bool hung;           /* no end came in time */
    bool left;           /* the client closed the connection, as it was asked to */
    char error[256];     /* what the server or the transfer said; "": none */
    char malformed[160]; /* an answer of status 200 that is none; "": it is well-formed */
    struct text text;    /* NUL at its end, not counted */
    int32_t *ids;        /* [n_ids] */
    int64_t n_ids;
    bool has_ids, has_finish, done, after_done;
    char finish[24];
    int64_t n_events; /* of a stream */
    int64_t usage_prompt, usage_completion, usage_total;
    double seconds;
};
void conform_answer_fini(struct conform_answer *a);
/* It ended well as far as the client can see: its tokens can be compared. */
bool conform_answer_whole(const struct conform_answer *a);

struct conform_client;

/* Find the server at `url`; `ids`: ask it for the token ids of answers. *out:
 * conform_client_close(). ERR_IO: no server, within limit_s. */
MUST int conform_client_open(struct conform_client **out, const char *url,
                             const char *model, const char *api_key, bool ids,
                             double limit_s);
void conform_client_close(struct conform_client **c);
const struct sut_openai_probe *conform_client_probe(const struct conform_client *c);

/* Send n requests at the same time and wait for their ends, no longer than until end_ns
 * (clock_ns()); what has not ended by then is canceled and has `hung` set. a: [n], each to be
 * given back with conform_answer_fini(). ERR_NOMEM. */
MUST int conform_client_ask(struct conform_client *c, const struct conform_request *q,
                            struct conform_answer *a, int n, uint64_t end_ns);
/* The sum of the counters whose name holds "preempt" in /metrics; -1: the server has none. */
double conform_client_preemptions(const struct conform_client *c, uint64_t end_ns);

#endif
