/* serve/handoff.h - requests whose prompt is computed by one engine and whose tokens by another.
 *
 * A request is submitted to both. The prompt side computes the prompt and the first token. The
 * token side reserves memory, is notified when the prompt's keys and values are in it, computes
 * those of the first token and goes on. How they get there is a transport's affair: both sides only
 * lend it their slots. Plans, ranks, threads and allocators may differ; the model and the type of
 * keys and values are the same.
 *
 *   prompt side                             token side
 *   serve_submit(max_new = 1)               serve_submit(max_new of the whole request)
 *   on_layer() as layers are stored         on_memory(), when its turn has come
 *   on_token(first token, SERVE_LENGTH      (copy)
 *     or SERVE_EOS: there is no more)
 *   serve_release()                         serve_arrived(first token)
 *                                           on_token() from the second token on
 *
 * Submit to the prompt side in on_memory(). Earlier, a prompt that waits for the token side has
 * memory that others wait for, and where the two sides give memory in different orders, as
 * allocators with buckets do, each may wait for the other.
 * Memory that a transport may still read or write is never given to another request: on the
 * prompt side it stays until serve_release(), whatever the request's end; on the token side until
 * serve_arrived() or serve_release(), though serve_cancel() ends the request at once. Requests
 * have as much memory as they need on the prompt side, and are not preempted there.
 * Paper: Splitwise IV.   Threads: any for the functions; see each callback. */
#ifndef SERVE_HANDOFF_H
#define SERVE_HANDOFF_H

#include "kv/kv.h"
#include "serve/serve.h"

enum serve_side { SERVE_PROMPT_SIDE = 1, SERVE_TOKEN_SIDE };

struct serve_handoff {
    int side; /* enum serve_side */
    /* Prompt side. Keys and values of tokens [lo, hi) of `layer` are in *slot, for good. In
     * ascending order of hi, then of layers; a prompt in several pieces has several calls for
     * each layer. On one of the threads of a step, which must not block and may not call the
     * engine. *slot is lent until serve_release(). NULL: nobody wants to know. */
    void (*on_layer)(void *ctx, int64_t request, const struct kv_slot *slot, int layer,
                     int64_t lo, int64_t hi);
    /* Token side. *slot has memory for the prompt. On the stepping thread, which must not block.
     * *slot is lent until serve_arrived() or serve_release(). */
    void (*on_memory)(void *ctx, int64_t request, const struct kv_slot *slot);
    void *ctx;
    /* Prompt side: compute into this memory, for the prompt at least, in place of the engine's
     * own: plain data, what it points to is lent until the request has ended. Its layout may be
     * another than the pool's. NULL: the engine's own. Not where ranks are processes, which do
     * not map it. */
    const struct kv_slot *slot;
};

/* Token side: keys and values of the whole prompt are in the request's memory, and `first_id` is
 * its first token. If it was canceled meanwhile, its memory is released. ERR_NOTFOUND: there is no
 * such request (any more); ERR_STATE: it has no memory yet, or they have arrived before; ERR_ARG:
 * the id is outside the vocabulary. */
MUST int serve_arrived(struct serve *s, int64_t request, int32_t first_id);
/* The request's memory is not read or written by others any more. Prompt side: it is released
 * when the request has ended, or now. Token side, before serve_arrived(): the request ends with
 * SERVE_CANCELED unless it was canceled. ERR_NOTFOUND: as above. ERR_STATE: a request of the token
 * side has gone on. */
MUST int serve_release(struct serve *s, int64_t request);

/* The memory that slots are in, and its shape. Lent until serve_close(). */
const struct kv_pool *serve_pool(const struct serve *s);
void serve_kv_shape(const struct serve *s, struct kv_shape *out);

#endif
