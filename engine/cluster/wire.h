/* cluster/wire.h - what both ends of a transport write to their socket.
 *
 * The ends are processes of one program on machines of one byte order: the first message says
 * so.   Threads: one reader and one writer for each socket. */
#ifndef CLUSTER_WIRE_H
#define CLUSTER_WIRE_H

#include <pthread.h>

#include "cluster/transport.h"

enum cluster_message_type {
    CLUSTER_HELLO = 1, /* version, shape; the transport's name follows */
    CLUSTER_OFFER,     /* receiver: n_tok; the layout of the slot follows */
    CLUSTER_FORGET,    /* receiver: it is not wanted any more */
    CLUSTER_PIECE,     /* sender: a piece is there, or follows */
    CLUSTER_END,       /* sender: that was all; first token */
    CLUSTER_DROPPED,   /* sender: that is all there will be */
    CLUSTER_ALIVE      /* either: nothing, but it is there */
};

struct cluster_message {
    uint32_t magic, type;
    uint64_t transfer;
    int32_t layer, first_id;
    int64_t lo, hi;            /* of an offer: 0, n_tok */
    int64_t tag;               /* of an offer */
    uint64_t hash;             /* of a piece, or of the bytes that follow */
    uint32_t has_hash, n_more; /* n_more: bytes that follow */
    uint64_t check;            /* of the other fields */
};
#define CLUSTER_MAGIC   0x4b565357u
#define CLUSTER_VERSION 4

/* All bytes or an error. ERR_IO: "the other end closed the connection", or why not. */
MUST int cluster_wire_read(int fd, void *to, size_t bytes);
MUST int cluster_wire_write(int fd, const void *from, size_t bytes);
/* An open file, with one byte, over a Unix socket. *out: owned by the caller, closed when a
 * program is executed. ERR_FORMAT: something else came. */
MUST int cluster_wire_write_fd(int fd, int file);
MUST int cluster_wire_read_fd(int fd, int *out);
/* A pool of keys and values in shared memory that the other end maps, over a Unix socket: members
 * lend, borrow and give_back of struct cluster_transport. ERR_STATE: the pool is not in shared
 * memory. ERR_NOMEM: it cannot be mapped. */
MUST int cluster_pool_lend(int fd, const struct kv_pool *pool);
MUST int cluster_pool_borrow(void **pool, size_t *bytes, int fd);
void cluster_pool_give_back(void *pool, size_t bytes);
/* A message and `n_more` bytes, with their checksums. */
MUST int cluster_message_write(int fd, struct cluster_message *m, const void *more);
/* ERR_FORMAT: it is not a message, or another one than was sent. */
MUST int cluster_message_read(int fd, struct cluster_message *m);
/* The m->n_more bytes that follow. ERR_FORMAT: others were sent. */
MUST int cluster_message_read_more(int fd, const struct cluster_message *m, void *more);
/* The reading side of a connection. While nothing comes it says four times in silence_ms that this
 * end is alive; where the other end is silent for so long, it is not. Of the thread that reads. */
struct cluster_line {
    int fd;
    int silence_ms;           /* 0: it may be silent for ever */
    pthread_mutex_t *writing; /* held by who writes to fd */
    int n_silent;             /* fourths */
    uint64_t said_ns;
};
/* Reads and writes that take longer than silence_ms fail. */
void cluster_line_init(struct cluster_line *l, int fd, int silence_ms,
                       pthread_mutex_t *writing);
/* As cluster_message_read(). *none: nothing came for a fourth of the time; call it again.
 * ERR_IO: the other end was silent. */
MUST int cluster_line_read(struct cluster_line *l, struct cluster_message *m, bool *none);
/* Both ends say who they are. ERR_STATE: they do not fit. */
MUST int cluster_hello(int fd, const char *transport, const struct kv_shape *shape);

/* The layout of a slot, for a process that maps its pool somewhere else. */
struct cluster_layout {
    uint64_t base_at; /* from the beginning of the pool */
    int64_t cap_tok, block_tok;
    uint64_t run_bytes, head_stride, layer_stride, block_bytes;
    uint32_t n_blocks, reserved; /* that many numbers of blocks follow, int32_t */
};
/* Write the layout and its blocks for the first n_tok tokens; *out: mem_free(). */
MUST int cluster_layout_pack(void **out, size_t *bytes, const struct kv_slot *slot,
                             int64_t n_tok, const struct kv_pool *pool);
/* The slot that packed bytes describe, in a pool that begins at `pool`. It points into them.
 * ERR_FORMAT: they are not a layout of n_tok tokens. pool_bytes 0: there is none. */
MUST int cluster_layout_unpack(struct kv_slot *out, const void *packed, size_t bytes,
                               int64_t n_tok, const struct kv_shape *shape, void *pool,
                               size_t pool_bytes);

#endif
