/* baselines/sse.h - server-sent events: the stream in which an HTTP server sends tokens.
 *
 * Bytes come in pieces of any size, which may end inside of a line or a character; each
 * event is delivered whole, once. Of an event's fields only its data matter here.
 * Threads: one owner. */
#ifndef BASELINES_SSE_H
#define BASELINES_SSE_H

#include "base/text.h"

/* The longest event; an answer that never ends an event is refused. */
#define SUT_SSE_MAX_BYTES (1 << 20)

struct sut_sse { /* all zero: at the beginning of a stream */
    struct text line, data;
};

/* `data` is n bytes and a NUL, which the receiver may change. What it returns other than OK
 * ends the feeding. */
typedef int (*sut_sse_fn)(void *ctx, char *data, size_t n);

/* Take n more bytes and deliver the events that they complete. ERR_LIMIT: an event is longer
 * than SUT_SSE_MAX_BYTES. ERR_NOMEM. Else what the receiver returned. */
MUST int sut_sse_feed(struct sut_sse *s, const char *p, size_t n, sut_sse_fn on_event,
                      void *ctx);
void sut_sse_fini(struct sut_sse *s);

#endif
