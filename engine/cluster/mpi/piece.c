/* Pieces by MPI. All of this but cluster_mpi_*() runs on the communication thread. */
#include <string.h>
#include <sched.h>
#include <sys/socket.h>
#include <errno.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/mpi/impl.h"
#include "kv/slot_runs.h"

#define OUTSIDE_NS UINT64_C(200000) /* how long a target polls before it helps MPI on */

struct piece {
    struct cluster_mpi_end *e;
    const struct kv_shape *shape;
    const struct kv_slot *to, *from;
    const struct cluster_piece *p;
};

static int on_thread(int (*fn)(void *), int fd, const struct kv_shape *shape,
                     const struct kv_slot *to, const struct kv_slot *from,
                     const struct cluster_piece *p)
{
    struct piece x = {cluster_mpi_end_of(fd), shape, to, from, p};

    return x.e ? cluster_mpi_do(fn, &x) : ERR_STATE;
}

/* ---- one-sided ---- */

static struct cluster_mpi_end *putting; /* kv_copy_fn has no context */

static void put_run(void *to, const void *from, size_t bytes)
{
    cluster_mpi->put(putting->link, (size_t)((char *)to - putting->base), from, bytes);
}

static int put(void *arg)
{
    const struct piece *x = arg;

    putting = x->e;
    kv_slot_copy(x->to, x->from, x->shape, x->p->layer, x->p->lo, x->p->hi, put_run);
    cluster_mpi->flag(x->e->link, ++x->e->n_flags);
    return OK;
}

int cluster_mpi_put(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                    const struct kv_slot *from, const struct cluster_piece *p)
{
    return on_thread(put, fd, shape, to, from, p);
}

static int help_on(void *arg)
{
    struct cluster_mpi_end *e = arg;

    cluster_mpi->progress(e->link);
    return OK;
}

static int sync_windows(void *arg)
{
    struct cluster_mpi_end *e = arg;

    cluster_mpi->sync(e->link);
    return OK;
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* The flag of a piece that was announced. MPI may need a target that calls it. */
int cluster_mpi_wait(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                     const struct cluster_piece *p)
{
    struct cluster_mpi_end *e = cluster_mpi_end_of(fd);
    uint64_t began = clock_ns();

    (void)shape, (void)to, (void)p;
    if (!e)
        return ERR_STATE;
    e->n_flags++;
    for (int i = 1; cluster_mpi->seen(e->link) < e->n_flags; i++) {
        if (clock_ns() - began < OUTSIDE_NS)
            sched_yield();
        else
            TRY(cluster_mpi_do(help_on, e));
        if (i % 1024 == 0 && is_closed(fd))
            return err_set(ERR_IO, "the other end closed the connection");
    }
    return cluster_mpi_do(sync_windows, e);
}

/* ---- two-sided ---- */

/* *runs: mem_free(). */
static int runs_of(const struct piece *x, const struct kv_slot *slot,
                   struct cluster_mpi_run **runs, int *n)
{
    int64_t blocks = slot->blocks ? slot->cap_tok / slot->block_tok : 1;
    size_t most = (size_t)x->shape->n_kv_heads * 2 * (size_t)(blocks + 1);
    struct kv_slot_runs r;
    struct kv_run run;

    *n = 0;
    *runs = mem_new(MEM_KV, most, sizeof(**runs));
    if (!*runs)
        return ERR_NOMEM;
    for (int head = 0; head < x->shape->n_kv_heads; head++) {
        kv_slot_runs(&r, slot, x->shape->vec_bytes, x->p->layer, head, x->p->lo,
                     x->p->hi);
        while (kv_slot_runs_next(&r, &run))
            (*runs)[(*n)++] = (struct cluster_mpi_run){run.at, run.bytes};
    }
    return OK;
}

static int exchange(const struct piece *x, bool sends)
{
    struct cluster_mpi_run *runs;
    int n, rc;

    TRY(runs_of(x, sends ? x->from : x->to, &runs, &n));
    rc = sends ? cluster_mpi->send(x->e->link, runs, n)
               : cluster_mpi->receive(x->e->link, runs, n);
    mem_free(runs);
    return rc == 0 ? OK : ERR_NOMEM;
}

static int send_piece(void *arg)
{
    return exchange(arg, true);
}

static int receive_piece(void *arg)
{
    return exchange(arg, false);
}

int cluster_mpi_send(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                     const struct kv_slot *from, const struct cluster_piece *p)
{
    return on_thread(send_piece, fd, shape, to, from, p);
}

int cluster_mpi_receive(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                        const struct cluster_piece *p)
{
    return on_thread(receive_piece, fd, shape, to, NULL, p);
}

/* ---- partitioned ---- */

static void pack_head(const struct piece *x, const struct kv_slot *slot, int head,
                      char *buf, bool pack)
{
    struct kv_slot_runs r;
    struct kv_run run;

    kv_slot_runs(&r, slot, x->shape->vec_bytes, x->p->layer, head, x->p->lo, x->p->hi);
    for (; kv_slot_runs_next(&r, &run); buf += run.bytes)
        memcpy(pack ? buf : run.at, pack ? run.at : buf, run.bytes);
}

static int parts(const struct piece *x, bool sends)
{
    size_t bytes = (size_t)(x->p->hi - x->p->lo) * 2 * x->shape->vec_bytes;
    int n = x->shape->n_kv_heads;
    char *buf;

    buf = mem_new(MEM_KV, (size_t)n, bytes);
    if (!buf)
        return ERR_NOMEM;
    if (cluster_mpi->parts_begin(x->e->link, sends, buf, n, bytes) != 0) {
        mem_free(buf);
        return err_set(ERR_STATE, "mpi_partitioned: cannot begin");
    }
    for (int head = 0; head < n && sends; head++) {
        pack_head(x, x->from, head, buf + (size_t)head * bytes, true);
        cluster_mpi->part_ready(x->e->link, head);
    }
    for (int head = 0; head < n && !sends; head++) {
        while (!cluster_mpi->part_there(x->e->link, head))
            sched_yield();
        pack_head(x, x->to, head, buf + (size_t)head * bytes, false);
    }
    cluster_mpi->parts_end(x->e->link);
    mem_free(buf);
    return OK;
}

static int send_parts(void *arg)
{
    return parts(arg, true);
}

static int receive_parts(void *arg)
{
    return parts(arg, false);
}

int cluster_mpi_send_parts(int fd, const struct kv_shape *shape, const struct kv_slot *to,
                           const struct kv_slot *from, const struct cluster_piece *p)
{
    return on_thread(send_parts, fd, shape, to, from, p);
}

int cluster_mpi_receive_parts(int fd, const struct kv_shape *shape,
                              const struct kv_slot *to, const struct cluster_piece *p)
{
    return on_thread(receive_parts, fd, shape, to, NULL, p);
}
