/* cluster/transport.h - keys and values from the machine that computes prompts to the one that
 * computes tokens.
 *
 * The two ends of a connection are in two processes and share a connected stream socket. The
 * receiver offers memory for a prompt, the sender puts layers into it as they are stored, or when
 * the prompt is computed, and says after each what it has put, with a checksum. When the receiver
 * has all layers and the first token, the request goes on there.
 *
 *   sender                                  receiver
 *                                           cluster_receiver_expect(): there is memory
 *   on_offer(): compute the prompt
 *   cluster_sender_stored(), each layer     (each piece is checked)
 *   cluster_sender_computed(), first token
 *   on_end(): the memory is free            on_arrived(): go on
 *
 * A transfer has a number that the receiver chooses and never uses again. Memory that was offered
 * is not to be used otherwise until on_arrived() or on_dropped(). If the connection fails, it is
 * not before the other process has ended: it may still write.
 * How bytes get across is a plug-in: one file in cluster/transport/ ends in one `const struct
 * cluster_transport cluster_transport_<stem>`.
 * Paper: Splitwise IV-C.   Threads: any for the functions. Each end has threads of its own, on
 * which it calls back; a callback may call any function of its end except close(). */
#ifndef CLUSTER_TRANSPORT_H
#define CLUSTER_TRANSPORT_H

#include "kv/kv.h"

/* Tokens [lo, hi) of a layer. */
struct cluster_piece {
    int layer;
    int64_t lo, hi;
};

struct cluster_transport {
    const char *name, *help;
    /* The prompt is computed in the memory that was offered (cluster_sender_slot()), and put() has
     * nothing to do. */
    bool in_place;
    bool mpi; /* only between processes that mpirun has started (cluster/mpi/mpi.h) */
    /* Receiver, once: let the other end reach the pool. NULL: it need not. */
    int (*lend)(int fd, const struct kv_pool *pool);
    /* Sender, once: map what lend() sent, until give_back(). NULL, as lend: it is not lent. */
    int (*borrow)(void **pool, size_t *bytes, int fd);
    void (*give_back)(void *pool, size_t bytes);
    /* Sender: a piece of *from into the same tokens of *to, a slot of the borrowed pool; to NULL:
     * there is none. With get(), behind the message that announces it, to fd or otherwise; else
     * the message follows when the piece is there. */
    int (*put)(int fd, const struct kv_shape *shape, const struct kv_slot *to,
               const struct kv_slot *from, const struct cluster_piece *p);
    /* Receiver: what put() does is done: read from fd into *to. NULL: there is nothing to do. */
    int (*get)(int fd, const struct kv_shape *shape, const struct kv_slot *to,
               const struct cluster_piece *p);
};
extern const struct cluster_transport *const cluster_transports[]; /* NULL-terminated */
MUST int cluster_transport_find(const char *name, const struct cluster_transport **out);

/* ---- a slower link ---- */

/* Emulates a link of this bandwidth and latency, by a token bucket without burst: one piece after
 * the other. */
struct cluster_limiter {
    double bytes_per_s; /* 0: as fast as it goes */
    int64_t latency_ns;
    uint64_t free_ns; /* what was accepted so far has left by then */
};
/* When a piece that is ready at ready_ns is there. The link takes it. */
uint64_t cluster_limiter_due_ns(struct cluster_limiter *l, uint64_t ready_ns,
                                size_t bytes);

/* ---- the end that has computed prompts ---- */

enum cluster_transfer_mode {
    CLUSTER_SERIAL,     /* all layers when the prompt is computed */
    CLUSTER_LAYER_WISE, /* each when it is stored */
    CLUSTER_AUTO        /* layer-wise for prompts of serial_below_tok tokens and more */
};

struct cluster_sender_opts {
    const struct cluster_transport *transport;
    int fd; /* connected; the sender's after success */
    struct kv_shape shape;
    int max_transfers; /* at once, at least as many as the other end offers */
    enum cluster_transfer_mode mode;
    int64_t serial_below_tok;
    bool no_checksums;
    struct cluster_limiter limiter;
    int silence_ms; /* the connection fails where the other end is silent for so long; 0: never */
    /* There is memory for a prompt of n_tok tokens; tag: what the receiver calls it. Nothing
     * else is called for this transfer before it returns. */
    void (*on_offer)(void *ctx, uint64_t transfer, int64_t n_tok, int64_t tag);
    /* The slot is not read any more. rc: OK: all was sent. Else why not: one of both ends has
     * dropped it, ERR_STATE, or the connection failed. Once for each offer. */
    void (*on_end)(void *ctx, uint64_t transfer, int rc);
    /* With a transport in place: the receiver has dropped it. Nobody may write to its memory any
     * more when this end says so too, with cluster_sender_drop(). */
    void (*on_forget)(void *ctx, uint64_t transfer);
    /* Once: the connection failed, err_msg() says why. on_end() of all that have not ended
     * follows. */
    void (*on_fail)(void *ctx);
    void *ctx;
};
struct cluster_sender;
struct cluster_sender_stat {
    int64_t n_transfers, n_pieces, bytes;
    int64_t put_ns, hash_ns; /* time spent */
};

/* Returns when the other end has opened, too; *out is set before the first callback. ERR_STATE: it
 * has another model, version or transport. ERR_IO, ERR_NOMEM. */
MUST int cluster_sender_open(struct cluster_sender **out,
                             const struct cluster_sender_opts *o);
/* Ends all transfers. NULL is fine. */
void cluster_sender_close(struct cluster_sender **s);
/* Where the transport is in place: the memory that was offered, as *out; its table of blocks is
 * the caller's: mem_free(). ERR_NOTFOUND: the transfer has ended. ERR_NOMEM. */
MUST int cluster_sender_slot(struct cluster_sender *s, uint64_t transfer,
                             struct kv_slot *out);
/* Tokens below hi of a layer are stored in *slot, which is lent until on_end(). Does not wait for
 * a transfer. Of a transfer that has ended: nothing happens. */
void cluster_sender_stored(struct cluster_sender *s, uint64_t transfer,
                           const struct kv_slot *slot, int layer, int64_t hi);
/* The prompt is computed, and this is its first token. All tokens of all layers are stored, or it
 * is dropped, with an error in the log. */
void cluster_sender_computed(struct cluster_sender *s, uint64_t transfer,
                             int32_t first_id);
/* There is nothing more to come. on_end() follows, with ERR_STATE. */
void cluster_sender_drop(struct cluster_sender *s, uint64_t transfer);
/* From now on: prompts of serial_below_tok tokens and more go layer-wise, others serially, over an
 * emulated link of this bandwidth and latency. */
void cluster_sender_link(struct cluster_sender *s, int64_t serial_below_tok,
                         const struct cluster_limiter *l);
void cluster_sender_stat(struct cluster_sender *s, struct cluster_sender_stat *out);

/* ---- the end that goes on ---- */

struct cluster_receiver_opts {
    const struct cluster_transport *transport;
    int fd; /* connected; the receiver's after success */
    struct kv_shape shape;
    const struct kv_pool *pool; /* of all slots; lent */
    int max_transfers;          /* at once */
    int silence_ms;             /* as of the sender, of which it is the same */
    /* Memory is lent for as long: it is asked for where nothing came for its transfer meanwhile,
     * and the connection fails where it is not given back in the same time. 0: for ever. */
    int lease_ms;
    /* All keys and values are in the slot, and every checksum was right. */
    void (*on_arrived)(void *ctx, uint64_t transfer, int32_t first_id);
    /* Nobody writes to the slot any more. rc: ERR_STATE: one of both ends has dropped it;
     * ERR_FORMAT: not all that came was right, ERR_LIMIT: its lease was over; err_msg() says
     * more. */
    void (*on_dropped)(void *ctx, uint64_t transfer, int rc);
    /* Once: the connection failed, err_msg() says why. No callback follows: transfers that have
     * not ended have lost their sender, but see above. */
    void (*on_fail)(void *ctx);
    void *ctx;
};
struct cluster_receiver;

MUST int cluster_receiver_open(struct cluster_receiver **out,
                               const struct cluster_receiver_opts *o);
void cluster_receiver_close(struct cluster_receiver **r);
/* Offer *slot for a prompt of n_tok tokens; lent until on_arrived() or on_dropped(). ERR_LIMIT:
 * more than max_transfers. ERR_STATE: the connection has failed. */
MUST int cluster_receiver_expect(struct cluster_receiver *r, uint64_t *transfer,
                                 const struct kv_slot *slot, int64_t n_tok, int64_t tag);
/* It is not wanted any more. on_dropped() follows, also where it has just arrived. */
void cluster_receiver_drop(struct cluster_receiver *r, uint64_t transfer);

#endif
