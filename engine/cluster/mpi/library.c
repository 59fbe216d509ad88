#include "cluster/mpi/library.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TAG_OPEN 1
#define TAG_DATA 2

struct cluster_mpi_link {
    MPI_Comm comm;
    int other; /* the peer's rank in it */
    MPI_Win data, flags;
    _Atomic uint64_t *flag; /* of the target, in the window */
    MPI_Request request;
};

static int init(int *rank, int *size, char *text, size_t n)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int have, len;

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have) != MPI_SUCCESS ||
        have < MPI_THREAD_SERIALIZED)
        return -1;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    MPI_Get_library_version(version, &len);
    version[strcspn(version, "\n,")] = 0;
    for (char *c = version; *c; c++)
        if (*c == '\t')
            *c = ' ';
    strncpy(text, version, n - 1);
    text[n - 1] = 0;
    return 0;
}

static void finalize(void)
{
    MPI_Finalize();
}

static void bcast(void *buf, int bytes)
{
    MPI_Bcast(buf, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* A communicator of this process and `peer`; the others need not take part in the call. */
static MPI_Comm pair(int peer, int *other)
{
    MPI_Group world, both;
    MPI_Comm comm;
    int rank, ranks[2];

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ranks[0] = rank < peer ? rank : peer;
    ranks[1] = rank < peer ? peer : rank;
    *other = rank < peer;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 2, ranks, &both);
    MPI_Comm_create_group(MPI_COMM_WORLD, both, TAG_OPEN, &comm);
    MPI_Group_free(&both);
    MPI_Group_free(&world);
    return comm;
}

static struct cluster_mpi_link *open_link(int peer, int is_target, void *pool,
                                          size_t bytes)
{
    struct cluster_mpi_link *l = calloc(1, sizeof(*l));
    void *flag;
    int *model, found;

    if (!l)
        return NULL;
    l->comm = pair(peer, &l->other);
    MPI_Win_create(is_target ? pool : NULL, is_target ? (MPI_Aint)bytes : 0, 1,
                   MPI_INFO_NULL, l->comm, &l->data);
    MPI_Win_allocate(is_target ? 64 : 0, 1, MPI_INFO_NULL, l->comm, &flag, &l->flags);
    MPI_Win_get_attr(l->data, MPI_WIN_MODEL, &model, &found);
    if (!found || *model != MPI_WIN_UNIFIED) {
        free(l);
        return NULL;
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, l->data);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, l->flags);
    if (is_target) {
        l->flag = flag;
        atomic_store(l->flag, 0);
        MPI_Win_sync(l->flags);
    }
    MPI_Barrier(l->comm);
    return l;
}

static void close_link(struct cluster_mpi_link *l)
{
    MPI_Win_unlock_all(l->flags);
    MPI_Win_unlock_all(l->data);
    MPI_Win_free(&l->flags);
    MPI_Win_free(&l->data);
    MPI_Comm_free(&l->comm);
    free(l);
}

/* ---- one-sided ---- */

static void put(struct cluster_mpi_link *l, size_t at, const void *from, size_t bytes)
{
    MPI_Put(from, (int)bytes, MPI_BYTE, l->other, (MPI_Aint)at, (int)bytes, MPI_BYTE,
            l->data);
}

/* Puts are unordered: the flag only when they are there. */
static void flag(struct cluster_mpi_link *l, uint64_t value)
{
    MPI_Win_flush(l->other, l->data);
    MPI_Accumulate(&value, 1, MPI_UINT64_T, l->other, 0, 1, MPI_UINT64_T, MPI_REPLACE,
                   l->flags);
    MPI_Win_flush(l->other, l->flags);
}

static uint64_t seen(struct cluster_mpi_link *l)
{
    return atomic_load_explicit(l->flag, memory_order_acquire);
}

static void sync_windows(struct cluster_mpi_link *l)
{
    MPI_Win_sync(l->flags);
    MPI_Win_sync(l->data);
}

static void progress(struct cluster_mpi_link *l)
{
    int found;

    MPI_Iprobe(l->other, TAG_DATA, l->comm, &found, MPI_STATUS_IGNORE);
    MPI_Win_sync(l->flags);
}

/* ---- two-sided ---- */

static int runs_type(const struct cluster_mpi_run *runs, int n, MPI_Datatype *out)
{
    int *lengths = malloc((size_t)n * sizeof(*lengths));
    MPI_Aint *at = malloc((size_t)n * sizeof(*at));
    int rc = lengths && at ? 0 : -1;

    for (int i = 0; rc == 0 && i < n; i++) {
        lengths[i] = (int)runs[i].bytes;
        MPI_Get_address(runs[i].at, &at[i]);
    }
    if (rc == 0) {
        MPI_Type_create_hindexed(n, lengths, at, MPI_BYTE, out);
        MPI_Type_commit(out);
    }
    free(lengths);
    free(at);
    return rc;
}

static int exchange(struct cluster_mpi_link *l, const struct cluster_mpi_run *runs, int n,
                    int sends)
{
    MPI_Datatype type;
    MPI_Request r;

    if (runs_type(runs, n, &type) != 0)
        return -1;
    if (sends)
        MPI_Isend(MPI_BOTTOM, 1, type, l->other, TAG_DATA, l->comm, &r);
    else
        MPI_Irecv(MPI_BOTTOM, 1, type, l->other, TAG_DATA, l->comm, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    return 0;
}

static int send_runs(struct cluster_mpi_link *l, const struct cluster_mpi_run *runs,
                     int n)
{
    return exchange(l, runs, n, 1);
}

static int receive_runs(struct cluster_mpi_link *l, const struct cluster_mpi_run *runs,
                        int n)
{
    return exchange(l, runs, n, 0);
}

/* ---- partitioned ---- */

#if MPI_VERSION >= 4
static int parts_begin(struct cluster_mpi_link *l, int sends, void *buf, int n,
                       size_t bytes)
{
    int rc = sends ? MPI_Psend_init(buf, n, (MPI_Count)bytes, MPI_BYTE, l->other,
                                    TAG_DATA, l->comm, MPI_INFO_NULL, &l->request)
                   : MPI_Precv_init(buf, n, (MPI_Count)bytes, MPI_BYTE, l->other,
                                    TAG_DATA, l->comm, MPI_INFO_NULL, &l->request);

    return rc == MPI_SUCCESS && MPI_Start(&l->request) == MPI_SUCCESS ? 0 : -1;
}

static void part_ready(struct cluster_mpi_link *l, int part)
{
    MPI_Pready(part, l->request);
}

static int part_there(struct cluster_mpi_link *l, int part)
{
    int there;

    MPI_Parrived(l->request, part, &there);
    return there;
}

static void parts_end(struct cluster_mpi_link *l)
{
    MPI_Wait(&l->request, MPI_STATUS_IGNORE);
    MPI_Request_free(&l->request);
}
#endif

extern const struct cluster_mpi_library cluster_mpi_library;
const struct cluster_mpi_library cluster_mpi_library = {
    .version = CLUSTER_MPI_VERSION,
    .init = init,
    .finalize = finalize,
    .bcast = bcast,
    .open = open_link,
    .close = close_link,
    .put = put,
    .flag = flag,
    .seen = seen,
    .sync = sync_windows,
    .progress = progress,
    .send = send_runs,
    .receive = receive_runs,
#if MPI_VERSION >= 4
    .parts_begin = parts_begin,
    .part_ready = part_ready,
    .part_there = part_there,
    .parts_end = parts_end,
#endif
};
