/* Collectives stay within the memory that they asked for, and a flag wakes only who sleeps. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/par/sums.h"

/* --- memory: each algorithm stays in its own, which ends where a page cannot be touched */

struct neighbour {
    void *comm,
        *region; /* region: of `only`, not in the communicator; NULL: all in turn */
    const struct par_coll *only;
    int rank, n_ranks;
    size_t n;
    long bad;
};

static void *sum_in_turn(void *arg)
{
    struct neighbour *m = arg;
    float *x = malloc(m->n * sizeof(*x));
    uint64_t count = 0, epoch = 0;
    struct par_rank r;

    m->bad = !x || par_comm_join(&r, m->comm, m->rank, SPIN_NS) != OK;
    for (int round = 0; round < 3; round++)
        for (int k = 0; par_colls[k] && !m->bad; k++, epoch++) {
            const struct par_coll *c = m->only ? m->only : par_colls[k];

            for (size_t i = 0; i < m->n; i++)
                x[i] = sent(m->rank, epoch, i);
            m->bad = (m->only ? c->allreduce(&r, m->region, &count, x, m->n)
                              : par_allreduce(&r, c, x, m->n)) != OK;
            for (size_t i = 0; i < m->n && !m->bad; i++)
                m->bad = x[i] != expected(c, m->n_ranks, epoch, m->n, i);
        }
    free(x);
    return NULL;
}

struct fenced {
    char *pages, *base;
    size_t n_pages, bytes;
};

static void fence(struct fenced *f, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    assert_int_equal(bytes % PAR_LINE, 0);
    *f = (struct fenced){.n_pages = (bytes + page - 1) / page + 1, .bytes = bytes};
    f->pages = mmap(NULL, f->n_pages * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->pages != MAP_FAILED);
    assert_int_equal(mprotect(f->pages + (f->n_pages - 1) * page, page, PROT_NONE), 0);
    f->base = f->pages + (f->n_pages - 1) * page - bytes;
}

static void unfence(struct fenced *f)
{
    munmap(f->pages, f->n_pages * (size_t)sysconf(_SC_PAGESIZE));
}

/* Of each algorithm's memory the end is written as well, but for a line that is not full and a
 * page after the last of rank_shifted's slots. */
static void check_used(const struct fenced *f)
{
    size_t n_unused = 0;

    while (n_unused < f->bytes && f->base[f->bytes - 1 - n_unused] == 0)
        n_unused++;
    assert_in_range(n_unused, 0, 4096 + PAR_LINE);
}

static void sum_fenced(int n_ranks, size_t n, const struct par_coll *only)
{
    struct neighbour m[4];
    pthread_t threads[4];
    struct fenced comm, region = {0};

    fence(&comm, par_comm_bytes(n_ranks, n));
    assert_ok(par_comm_init(comm.base, n_ranks, n));
    if (only)
        fence(&region, only->bytes(n_ranks, n));
    for (int k = 0; k < n_ranks; k++) {
        m[k] = (struct neighbour){comm.base, region.base, only, k, n_ranks, n, 0};
        assert_int_equal(pthread_create(&threads[k], NULL, sum_in_turn, &m[k]), 0);
    }
    for (int k = 0; k < n_ranks; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < n_ranks; k++)
        assert_int_equal(m[k].bad, 0);
    unfence(&comm);
    if (only) {
        if (n <= 5000) /* where each slot of rank_shifted had all of a message */
            check_used(&region);
        unfence(&region);
    }
}

TEST(each_stays_in_its_memory)
{
    static const size_t lengths[] = {1, 16, 17, 5000, 40000};

    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            sum_fenced(n_ranks, lengths[i], NULL);
            for (int k = 0; par_colls[k]; k++)
                sum_fenced(n_ranks, lengths[i], par_colls[k]);
        }
}

/* --- flags */

struct sleeper {
    struct par_rank r;
    struct par_flag *flag;
    int rc;
};

static void *sleep_at_flag(void *arg)
{
    struct sleeper *s = arg;

    s->rc = par_flag_wait(&s->r, s->flag, 2);
    return NULL;
}

/* A flag that nobody sleeps at costs no system call. */
TEST(a_flag_wakes_who_sleeps)
{
    struct par_flag flag = {0};
    struct sleeper w = {.flag = &flag};
    struct par_rank r;
    struct shared s;
    pthread_t t;
    unsigned n_wakes;

    open_shared(&s, 2, 1);
    assert_ok(par_comm_join(&r, s.shm.base, 0, 0));
    assert_ok(par_comm_join(&w.r, s.shm.base, 1, 0));
    par_flag_set(&r, &flag, 1);
    assert_int_equal(atomic_load(&flag.wakes), 0);
    assert_int_equal(pthread_create(&t, NULL, sleep_at_flag, &w), 0);
    while (atomic_load(&flag.sleepers) == 0)
        sched_yield();
    par_flag_set(&r, &flag, 2);
    pthread_join(t, NULL);
    n_wakes = atomic_load(&flag.wakes);
    assert_true(w.rc == OK && w.r.n_waits == 1 && w.r.n_sleeps > 0 && w.r.wait_ns > 0);
    assert_true(n_wakes <= 1 && atomic_load(&flag.sleepers) == 0);
    par_flag_set(&r, &flag, 3);
    assert_int_equal(atomic_load(&flag.wakes), n_wakes);
    assert_ok(par_flag_wait(&w.r, &flag, 3)); /* it is there already */
    assert_int_equal(w.r.n_waits, 1);
    par_shm_close(&s.shm);
}
