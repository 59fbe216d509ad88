/* http/metrics.h - what the server counts, as Prometheus reads it (text format 0.0.4).
 *   Threads: any. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "serve/serve.h"

#define HTTP_N_BUCKETS  18
#define HTTP_STATUS_MIN 100
#define HTTP_STATUS_MAX 599

struct http_histogram {
    int64_t
        bucket[HTTP_N_BUCKETS + 1]; /* not cumulative; the last one has no upper end */
    int64_t n;
    double sum_s;
};

/* Why the server closed a connection by itself. */
enum http_closed {
    HTTP_SLOW_HEAD,
    HTTP_SLOW_BODY,
    HTTP_SLOW_READER,
    HTTP_GONE,
    HTTP_N_CLOSED
};

struct http_metrics {
    pthread_mutex_t lock;
    int64_t n_status[HTTP_STATUS_MAX - HTTP_STATUS_MIN + 1];
    int64_t n_closed[HTTP_N_CLOSED];
    int64_t n_prompt_tok, n_new_tok, n_canceled;
    /* wait for the first step, first token, gap between tokens, request */
    struct http_histogram queued, first, next, whole;
    double step_s[2]; /* of the engine in prefill and decode */
};

/* Values that are read when the metrics are asked for. */
struct http_gauges {
    int64_t n_requests, max_seqs, n_connections; /* requests: running or waiting */
    int64_t started_s;                           /* since 1970 */
    struct serve_kv_stat kv;
    struct serve_draft_stat draft;
};

MUST int http_metrics_init(struct http_metrics *m);
void http_metrics_fini(struct http_metrics *m);
void http_metrics_status(struct http_metrics *m, int status);
void http_metrics_closed(struct http_metrics *m, enum http_closed why);
void http_metrics_accepted(struct http_metrics *m, int64_t n_prompt);
/* A request waited `ns` for the first step that computes it. */
void http_metrics_queued(struct http_metrics *m, uint64_t ns);
/* A token came `ns` after the one before it, or after its request if it is the first. */
void http_metrics_token(struct http_metrics *m, bool first, uint64_t ns);
void http_metrics_ended(struct http_metrics *m, bool canceled, uint64_t ns);
void http_metrics_steps(struct http_metrics *m, double prefill_s, double decode_s);
/* Append all to *out. */
void http_metrics_text(struct http_metrics *m, const struct http_gauges *g,
                       struct text *out);

#endif
