#include "cluster/mpi/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/home.h"
#include "base/thread.h"
#include "cluster/mpi/impl.h"
#include "cluster/wire.h"

/* The variable with which each launcher states the rank of a process, and the library that it
 * belongs to. */
static const struct {
    const char *rank, *library;
} launchers[] = {{"OMPI_COMM_WORLD_RANK", "mpi/openmpi.so"},
                 {"PMI_RANK", "mpi/mpich.so"}};

struct job {
    int (*fn)(void *);
    void *arg;
    int rc;
    char why[256];
    bool done;
    struct job *next;
};

const struct cluster_mpi_library *cluster_mpi;

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *jobs, **tail;
    bool closing;
    struct cluster_mpi_end ends[CLUSTER_MPI_LINKS_MAX];
    int n_ends;
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- the communication thread ---- */

static void *communicate(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&mpi.lock);
    while (mpi.jobs || !mpi.closing) {
        struct job *j = mpi.jobs;

        if (!j) {
            pthread_cond_wait(&mpi.changed, &mpi.lock);
            continue;
        }
        mpi.jobs = j->next;
        if (!mpi.jobs)
            mpi.tail = &mpi.jobs;
        pthread_mutex_unlock(&mpi.lock);
        j->rc = j->fn(j->arg);
        if (j->rc != OK)
            snprintf(j->why, sizeof(j->why), "%s", err_msg());
        pthread_mutex_lock(&mpi.lock);
        j->done = true;
        pthread_cond_broadcast(&mpi.changed);
    }
    pthread_mutex_unlock(&mpi.lock);
    return NULL;
}

int cluster_mpi_do(int (*fn)(void *), void *arg)
{
    struct job j = {.fn = fn, .arg = arg};

    pthread_mutex_lock(&mpi.lock);
    *mpi.tail = &j;
    mpi.tail = &j.next;
    pthread_cond_broadcast(&mpi.changed);
    while (!j.done)
        pthread_cond_wait(&mpi.changed, &mpi.lock);
    pthread_mutex_unlock(&mpi.lock);
    return j.rc == OK ? OK : err_set(j.rc, "%s", j.why);
}

/* ---- open and close ---- */

static int launcher(void)
{
    for (int i = 0; i < 2; i++)
        if (getenv(launchers[i].rank))
            return i;
    return -1;
}

int cluster_mpi_rank(void)
{
    int i = launcher();

    return i < 0 ? -1 : atoi(getenv(launchers[i].rank));
}

struct init {
    int rank, size;
    char *text;
    size_t n;
};

static int init(void *arg)
{
    struct init *i = arg;

    return cluster_mpi->init(&i->rank, &i->size, i->text, i->n) == 0
               ? OK
               : err_set(ERR_STATE,
                         "MPI: the library does not let one thread of several call "
                         "it (MPI_THREAD_SERIALIZED)");
}

static int load(void)
{
    char path[PATH_MAX];
    int i = launcher();
    void *h;

    if (i < 0)
        return err_set(ERR_STATE, "MPI: the process was not started by mpirun");
    home_program(path, sizeof(path), launchers[i].library);
    h = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!h)
        return err_set(ERR_STATE, "MPI: %s (made by make where its mpicc is installed)",
                       dlerror());
    cluster_mpi = dlsym(h, CLUSTER_MPI_SYMBOL);
    if (cluster_mpi && cluster_mpi->version == CLUSTER_MPI_VERSION)
        return OK;
    cluster_mpi = NULL;
    return err_set(ERR_STATE, "%s: of another version of this program", path);
}

int cluster_mpi_open(int *rank, int *size, char *text, size_t n)
{
    struct init i = {.text = text, .n = n};
    int rc;

    TRY(load());
    mpi.tail = &mpi.jobs;
    rc = thread_start(&mpi.thread, 0, communicate, NULL, "MPI");
    if (rc != OK) {
        cluster_mpi = NULL;
        return rc;
    }
    TRY(cluster_mpi_do(init, &i));
    *rank = i.rank;
    *size = i.size;
    return OK;
}

static int close_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < mpi.n_ends; i++)
        cluster_mpi->close(mpi.ends[i].link);
    mpi.n_ends = 0;
    cluster_mpi->finalize();
    return OK;
}

void cluster_mpi_close(void)
{
    if (!cluster_mpi)
        return;
    (void)!cluster_mpi_do(close_all, NULL);
    pthread_mutex_lock(&mpi.lock);
    mpi.closing = true;
    pthread_cond_broadcast(&mpi.changed);
    pthread_mutex_unlock(&mpi.lock);
    pthread_join(mpi.thread, NULL);
    cluster_mpi = NULL;
}

struct bcast {
    void *buf;
    int bytes;
};

static int bcast(void *arg)
{
    const struct bcast *b = arg;

    cluster_mpi->bcast(b->buf, b->bytes);
    return OK;
}

int cluster_mpi_bcast(void *buf, int bytes)
{
    struct bcast b = {buf, bytes};

    return cluster_mpi_do(bcast, &b);
}

/* ---- links ---- */

struct cluster_mpi_end *cluster_mpi_end_of(int fd)
{
    struct cluster_mpi_end *e = NULL;

    pthread_mutex_lock(&mpi.lock);
    for (int i = 0; i < mpi.n_ends; i++)
        if (mpi.ends[i].fd == fd)
            e = &mpi.ends[i];
    pthread_mutex_unlock(&mpi.lock);
    if (!e)
        (void)err_set(ERR_STATE, "MPI: the connection has no link");
    return e;
}

struct opening {
    int fd, peer;
    bool is_target;
    void *pool;
    size_t bytes;
};

static int open_link(void *arg)
{
    const struct opening *o = arg;
    struct cluster_mpi_end *e = &mpi.ends[mpi.n_ends];

    if (mpi.n_ends == CLUSTER_MPI_LINKS_MAX)
        return err_set(ERR_LIMIT, "MPI: more than %d links", CLUSTER_MPI_LINKS_MAX);
    *e = (struct cluster_mpi_end){.fd = o->fd};
    e->link = cluster_mpi->open(o->peer, o->is_target, o->pool, o->bytes);
    if (!e->link)
        return err_set(ERR_STATE,
                       "MPI: no window of %zu bytes, or one that is separate from "
                       "memory",
                       o->bytes);
    if (!o->is_target)
        e->base = o->pool;
    pthread_mutex_lock(&mpi.lock);
    mpi.n_ends++;
    pthread_mutex_unlock(&mpi.lock);
    return OK;
}

struct hello {
    int64_t rank;
    uint64_t bytes;
};

static int greet(int fd, size_t bytes, struct hello *other)
{
    struct hello own = {.rank = cluster_mpi_rank(), .bytes = bytes};

    if (!cluster_mpi)
        return err_set(ERR_STATE, "MPI: the process was not started by mpirun");
    TRY(cluster_wire_write(fd, &own, sizeof(own)));
    return cluster_wire_read(fd, other, sizeof(*other));
}

int cluster_mpi_lend(int fd, const struct kv_pool *pool)
{
    struct opening o = {.fd = fd, .is_target = true};
    struct hello other;

    kv_pool_memory(pool, &o.pool, &o.bytes);
    TRY(greet(fd, o.bytes, &other));
    o.peer = (int)other.rank;
    return cluster_mpi_do(open_link, &o);
}

int cluster_mpi_borrow(void **pool, size_t *bytes, int fd)
{
    struct opening o = {.fd = fd};
    struct hello other;
    int rc;

    *pool = NULL;
    TRY(greet(fd, 0, &other));
    o.peer = (int)other.rank;
    o.bytes = *bytes = other.bytes;
    o.pool = mmap(NULL, o.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    if (o.pool == MAP_FAILED)
        return err_set(ERR_NOMEM, "MPI: no addresses for a pool of %zu bytes: %m",
                       o.bytes);
    rc = cluster_mpi_do(open_link, &o);
    if (rc == OK)
        *pool = o.pool;
    else
        munmap(o.pool, o.bytes);
    return rc;
}

static int check_parts(void)
{
    return !cluster_mpi || cluster_mpi->parts_begin
               ? OK
               : err_set(ERR_UNSUPPORTED,
                         "mpi_partitioned: the library has no partitioned "
                         "communication: it is older than MPI 4");
}

int cluster_mpi_lend_parts(int fd, const struct kv_pool *pool)
{
    TRY(check_parts());
    return cluster_mpi_lend(fd, pool);
}

int cluster_mpi_borrow_parts(void **pool, size_t *bytes, int fd)
{
    *pool = NULL;
    TRY(check_parts());
    return cluster_mpi_borrow(pool, bytes, fd);
}

void cluster_mpi_give_back(void *pool, size_t bytes)
{
    munmap(pool, bytes);
}
