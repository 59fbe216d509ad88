#include "cluster/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash_stream.h"
#include "base/mem.h"
#include "kv/slot_runs.h"

int cluster_wire_read(int fd, void *to, size_t bytes)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, 0);

        if (n == 0)
            return err_set(ERR_IO, "the other end closed the connection");
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return err_set(ERR_IO, "the other end stopped in the middle of a message");
        if (n < 0)
            return err_set(ERR_IO, "cannot read from the other end: %m");
        at += n;
        bytes -= (size_t)n;
    }
    return OK;
}

int cluster_wire_write(int fd, const void *from, size_t bytes)
{
    const char *at = from;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return err_set(ERR_IO, "the other end does not read what it is sent");
        if (n < 0)
            return err_set(ERR_IO, "cannot write to the other end: %m");
        at += n;
        bytes -= (size_t)n;
    }
    return OK;
}

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int cluster_wire_write_fd(int fd, int file)
{
    char byte = 0;
    union control c = {.bytes = {0}};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = c.bytes,
                       .msg_controllen = sizeof(c.bytes)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &file, sizeof(int));
    if (sendmsg(fd, &m, MSG_NOSIGNAL) != 1)
        return err_set(ERR_IO, "cannot send a file to the other end: %m");
    return OK;
}

int cluster_wire_read_fd(int fd, int *out)
{
    char byte;
    union control c = {.bytes = {0}};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = c.bytes,
                       .msg_controllen = sizeof(c.bytes)};
    struct cmsghdr *h;

    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != 1)
        return err_set(ERR_IO, "no file came from the other end");
    h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN(sizeof(int)))
        return err_set(ERR_FORMAT, "the other end sent no file");
    memcpy(out, CMSG_DATA(h), sizeof(int));
    return OK;
}

int cluster_pool_lend(int fd, const struct kv_pool *pool)
{
    int file = kv_pool_fd(pool);

    if (file < 0)
        return err_set(ERR_STATE, "shared memory: the pool is not in shared memory");
    return cluster_wire_write_fd(fd, file);
}

int cluster_pool_borrow(void **pool, size_t *bytes, int fd)
{
    int file, rc = OK;
    struct stat st;

    *pool = NULL;
    TRY(cluster_wire_read_fd(fd, &file));
    if (fstat(file, &st) != 0) {
        rc = err_set(ERR_IO, "shared memory: the other end's pool: %m");
    } else {
        *bytes = (size_t)st.st_size;
        *pool = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (*pool == MAP_FAILED) {
            *pool = NULL;
            rc = err_set(ERR_NOMEM,
                         "shared memory: cannot map the other end's pool, %zu bytes: %m",
                         *bytes);
        }
    }
    close(file); /* the mapping keeps the memory */
    return rc;
}

void cluster_pool_give_back(void *pool, size_t bytes)
{
    munmap(pool, bytes);
}

static uint64_t hash_of(const void *p, size_t n)
{
    struct hash_stream h;

    hash_stream_init(&h);
    hash_stream_add(&h, p, n);
    return hash_stream_end(&h);
}

int cluster_message_write(int fd, struct cluster_message *m, const void *more)
{
    m->magic = CLUSTER_MAGIC;
    if (m->n_more > 0)
        m->hash = hash_of(more, m->n_more);
    m->check = hash_of(m, offsetof(struct cluster_message, check));
    TRY(cluster_wire_write(fd, m, sizeof(*m)));
    return cluster_wire_write(fd, more, m->n_more);
}

int cluster_message_read(int fd, struct cluster_message *m)
{
    TRY(cluster_wire_read(fd, m, sizeof(*m)));
    if (m->magic != CLUSTER_MAGIC || m->type < CLUSTER_HELLO || m->type > CLUSTER_ALIVE)
        return err_set(ERR_FORMAT,
                       "the other end sent something else than a message: expected %08x "
                       "and a type of 1 to %d, found %08x and %u",
                       CLUSTER_MAGIC, CLUSTER_ALIVE, m->magic, m->type);
    if (m->check != hash_of(m, offsetof(struct cluster_message, check)))
        return err_set(ERR_FORMAT, "a message of type %u has a wrong checksum", m->type);
    return OK;
}

int cluster_message_read_more(int fd, const struct cluster_message *m, void *more)
{
    TRY(cluster_wire_read(fd, more, m->n_more));
    if (m->hash != hash_of(more, m->n_more))
        return err_set(ERR_FORMAT,
                       "the %u bytes of a message of type %u have a wrong "
                       "checksum",
                       m->n_more, m->type);
    return OK;
}

/* ---- whether the other end is alive ---- */

#define PARTS 4 /* of silence_ms: the other end says as often that it is alive */

void cluster_line_init(struct cluster_line *l, int fd, int silence_ms,
                       pthread_mutex_t *writing)
{
    const struct timeval t = {.tv_sec = silence_ms / 1000,
                              .tv_usec = silence_ms % 1000 * 1000};

    *l = (struct cluster_line){.fd = fd, .silence_ms = silence_ms, .writing = writing};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)); /* 0: none */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* Somebody who writes says it as well. */
static int say_alive(struct cluster_line *l)
{
    struct cluster_message m = {.type = CLUSTER_ALIVE};
    int rc;

    if (pthread_mutex_trylock(l->writing) != 0)
        return OK;
    rc = cluster_message_write(l->fd, &m, NULL);
    pthread_mutex_unlock(l->writing);
    l->said_ns = clock_ns();
    return rc;
}

int cluster_line_read(struct cluster_line *l, struct cluster_message *m, bool *none)
{
    int part_ms = l->silence_ms > 0 ? (l->silence_ms + PARTS - 1) / PARTS : -1, n;
    struct pollfd p = {.fd = l->fd, .events = POLLIN};

    *none = false;
    do {
        n = poll(&p, 1, part_ms);
    } while (n < 0 && errno == EINTR);
    if (part_ms > 0 && (n == 0 || clock_ns() - l->said_ns > (uint64_t)part_ms * 1000000))
        TRY(say_alive(l));
    if (n == 0) {
        *none = true;
        if (++l->n_silent < PARTS)
            return OK;
        return err_set(ERR_IO, "the other end was silent for %d ms", l->silence_ms);
    }
    l->n_silent = 0;
    TRY(cluster_message_read(l->fd, m));
    *none = m->type == CLUSTER_ALIVE;
    return OK;
}

/* ---- who they are ---- */

struct hello {
    int32_t version, n_layers, n_kv_heads, vec_bytes;
    char transport[32];
};

int cluster_hello(int fd, const char *transport, const struct kv_shape *shape)
{
    struct cluster_message m = {.type = CLUSTER_HELLO, .n_more = sizeof(struct hello)};
    struct hello own = {.version = CLUSTER_VERSION,
                        .n_layers = shape->n_layers,
                        .n_kv_heads = shape->n_kv_heads,
                        .vec_bytes = (int32_t)shape->vec_bytes};
    struct hello other;

    snprintf(own.transport, sizeof(own.transport), "%s", transport);
    TRY(cluster_message_write(fd, &m, &own));
    TRY(cluster_message_read(fd, &m));
    if (m.type != CLUSTER_HELLO || m.n_more != sizeof(other))
        return err_set(ERR_FORMAT, "the other end did not say hello first");
    TRY(cluster_message_read_more(fd, &m, &other));
    other.transport[sizeof(other.transport) - 1] = 0;
    if (memcmp(&own, &other, sizeof(own)) == 0)
        return OK;
    return err_set(ERR_STATE,
                   "the two ends differ: version %d, %d layers, %d KV heads, %d bytes a "
                   "key, transport %s here; %d, %d, %d, %d, %s there",
                   own.version, own.n_layers, own.n_kv_heads, own.vec_bytes,
                   own.transport, other.version, other.n_layers, other.n_kv_heads,
                   other.vec_bytes, other.transport);
}

/* ---- layouts ---- */

int cluster_layout_pack(void **out, size_t *bytes, const struct kv_slot *slot,
                        int64_t n_tok, const struct kv_pool *pool)
{
    struct cluster_layout *l;
    size_t pool_bytes, n = 0;
    void *base;

    if (slot->blocks)
        n = (size_t)((n_tok + slot->block_tok - 1) / slot->block_tok);
    *bytes = sizeof(*l) + n * sizeof(int32_t);
    *out = l = mem_new(MEM_KV, 1, *bytes);
    if (!l)
        return ERR_NOMEM;
    kv_pool_memory(pool, &base, &pool_bytes);
    *l = (struct cluster_layout){.base_at = (uint64_t)((char *)slot->base - (char *)base),
                                 .cap_tok = slot->cap_tok,
                                 .block_tok = slot->block_tok,
                                 .run_bytes = slot->run_bytes,
                                 .head_stride = slot->head_stride,
                                 .layer_stride = slot->layer_stride,
                                 .block_bytes = slot->block_bytes,
                                 .n_blocks = (uint32_t)n};
    if (n > 0)
        memcpy(l + 1, slot->blocks, n * sizeof(int32_t));
    return OK;
}

#define TOK_MAX (INT64_C(1) << 32) /* of a slot */

/* Every byte that will be written is the pool's. */
static bool is_inside(const struct kv_slot *s, int64_t n_tok,
                      const struct kv_shape *shape, const char *pool, size_t pool_bytes)
{
    for (int l = 0; l < shape->n_layers; l++)
        for (int h = 0; h < shape->n_kv_heads; h++) {
            struct kv_slot_runs runs;
            struct kv_run r;

            kv_slot_runs(&runs, s, shape->vec_bytes, l, h, 0, n_tok);
            while (kv_slot_runs_next(&runs, &r))
                if (r.at < pool || r.bytes > pool_bytes ||
                    (size_t)(r.at - pool) > pool_bytes - r.bytes)
                    return false;
        }
    return true;
}

int cluster_layout_unpack(struct kv_slot *out, const void *packed, size_t bytes,
                          int64_t n_tok, const struct kv_shape *shape, void *pool,
                          size_t pool_bytes)
{
    const struct cluster_layout *l = packed;
    int64_t n_blocks;

    if (bytes < sizeof(*l) || bytes != sizeof(*l) + l->n_blocks * sizeof(int32_t))
        return err_set(ERR_FORMAT, "an offer with a layout of %zu bytes", bytes);
    n_blocks = l->block_tok > 0 ? (n_tok - 1) / l->block_tok + 1 : 0;
    if (n_tok < 1 || n_tok > TOK_MAX || l->cap_tok < n_tok || l->cap_tok > TOK_MAX ||
        l->block_tok > TOK_MAX || l->n_blocks != n_blocks)
        return err_set(
            ERR_FORMAT,
            "an offer of %lld tokens in a slot of %lld tokens and %u blocks of "
            "%lld",
            (long long)n_tok, (long long)l->cap_tok, l->n_blocks,
            (long long)l->block_tok);
    if (pool_bytes > 0 && (l->base_at > pool_bytes || l->run_bytes > pool_bytes ||
                           l->head_stride > pool_bytes || l->layer_stride > pool_bytes ||
                           l->block_bytes > pool_bytes))
        return err_set(ERR_FORMAT, "an offer of memory outside of the pool of %zu bytes",
                       pool_bytes);
    *out = (struct kv_slot){.base = pool ? (char *)pool + l->base_at : NULL,
                            .n_tok = n_tok,
                            .cap_tok = l->cap_tok,
                            .run_bytes = l->run_bytes,
                            .head_stride = l->head_stride,
                            .layer_stride = l->layer_stride,
                            .blocks = n_blocks > 0 ? (const int32_t *)(l + 1) : NULL,
                            .block_tok = l->block_tok,
                            .block_bytes = l->block_bytes};
    if (pool_bytes > 0 && !is_inside(out, n_tok, shape, pool, pool_bytes))
        return err_set(ERR_FORMAT, "an offer of memory outside of the pool of %zu bytes",
                       pool_bytes);
    return OK;
}
