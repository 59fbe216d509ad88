/* baselines/http.h - HTTP requests whose answers arrive in pieces.
 *
 * One thread runs libcurl's multi interface for all of them, so that a thousand streams
 * cost one thread, and a token's time is taken when its bytes arrive. Connections are
 * kept and used again.
 * Threads: open, post, cancel and close from any one thread at a time; the callbacks come
 * from the one thread of this module. sut_http_fetch(): any. */
#ifndef BASELINES_HTTP_H
#define BASELINES_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

struct sut_http;

/* The head of an answer. */
struct sut_http_head {
    long status;        /* 200; 0: none came */
    const char *type;   /* its content type, or ""; valid during the call */
    long retry_after_s; /* -1: not stated */
};

struct sut_http_end {
    struct sut_http_head head;
    const char *error; /* NULL: the answer is complete; valid during the call */
    bool canceled;
    /* From the post until its connection was ready for the first byte: how late this
     * program and the network's set-up were. 0 where none was sent. */
    int64_t lag_ns;
};

struct sut_http_call {
    int64_t id;
    const char *path; /* appended to the base URL */
    const char *body; /* JSON, copied */
    size_t n_body;
    /* More of the body; what it returns other than OK ends the transfer, and its message
     * becomes the error. */
    int (*on_body)(void *ctx, const struct sut_http_head *h, const char *p, size_t n);
    /* Exactly once, after the last on_body. */
    void (*on_end)(void *ctx, const struct sut_http_end *e);
    void *ctx;
};

struct sut_http_opts {
    const char *url;     /* "http://127.0.0.1:8080/v1", without a slash at its end */
    const char *api_key; /* NULL: none */
    double connect_timeout_s;
    double timeout_s; /* of a whole request; 0: none */
    uint64_t end_ns;  /* clock_ns() by which sut_http_fetch() has ended; 0: any time */
};

/* *out: sut_http_close(). Nothing is sent yet. */
MUST int sut_http_open(struct sut_http **out, const struct sut_http_opts *o);
/* Ends every open call as canceled, through its on_end. */
void sut_http_close(struct sut_http **h);
/* Begin a call. After an error no callback follows. */
MUST int sut_http_post(struct sut_http *h, const struct sut_http_call *c);
/* End a call by closing its connection; its on_end says that it was canceled, unless it
 * was just ending. An unknown id is ignored. */
void sut_http_cancel(struct sut_http *h, int64_t id);

/* Longest answer of sut_http_fetch(). */
#define SUT_HTTP_FETCH_BYTES (4 << 20)

/* One request, waiting for its whole answer: GET, or POST where there is a body. *status:
 * of the answer, whose body is appended to `out`. ERR_IO: no answer came, in one line.
 * ERR_LIMIT: it is longer than SUT_HTTP_FETCH_BYTES. */
MUST int sut_http_fetch(const struct sut_http_opts *o, const char *path, const char *body,
                        struct text *out, long *status);

#endif
