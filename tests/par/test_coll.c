/* Collectives: every rank gets the serial sum in the stated order, bit for bit, whatever
 * the sizes, numbers of ranks, delays, and whether ranks are threads or processes; and an
 * abort ends every wait. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/par/sums.h"

static void delay(struct rng *g)
{
    struct timespec t = {.tv_nsec = (long)rng_below(g, 200000)};

    if (rng_below(g, 8) == 0)
        nanosleep(&t, NULL);
}

/* One rank: `sizes` messages in turn, all elements checked. Returns how many were wrong,
 * -1 on an error. */
struct member {
    const struct shared *s;
    const struct par_coll *c;
    const size_t *sizes;
    int n_sizes, n_rounds, rank;
    long wrong;
    uint64_t seed;
};

static void *work(void *arg)
{
    struct member *m = arg;
    float *x = malloc(m->s->max_floats * sizeof(*x));
    struct par_rank r;
    struct rng g;
    uint64_t epoch = 0;

    rng_init(&g, m->seed + (uint64_t)m->rank, "delay");
    m->wrong = par_comm_join(&r, m->s->shm.base, m->rank, SPIN_NS) == OK && x ? 0 : -1;
    for (int round = 0; round < m->n_rounds && m->wrong == 0; round++)
        for (int k = 0; k < m->n_sizes && m->wrong == 0; k++, epoch++) {
            size_t n = m->sizes[k];

            for (size_t i = 0; i < n; i++)
                x[i] = sent(m->rank, epoch, i);
            delay(&g);
            if (par_allreduce(&r, m->c, x, n) != OK)
                m->wrong = -1;
            for (size_t i = 0; i < n && m->wrong >= 0; i++) {
                float want = expected(m->c, m->s->n_ranks, epoch, n, i);

                m->wrong += memcmp(&x[i], &want, sizeof(want)) != 0;
            }
        }
    free(x);
    return NULL;
}

static void run_threads(const struct shared *s, const struct par_coll *c,
                        const size_t *sizes, int n_sizes, int n_rounds)
{
    pthread_t threads[PAR_RANKS_MAX];
    struct member m[PAR_RANKS_MAX];

    for (int i = 0; i < s->n_ranks; i++) {
        m[i] = (struct member){.s = s,
                               .c = c,
                               .sizes = sizes,
                               .n_sizes = n_sizes,
                               .n_rounds = n_rounds,
                               .rank = i,
                               .seed = test_seed()};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &m[i]), 0);
    }
    for (int i = 0; i < s->n_ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < s->n_ranks; i++)
        if (m[i].wrong)
            fail_msg("%s, %d ranks: rank %d has %ld wrong elements (-1: an error)",
                     c->name, s->n_ranks, i, m[i].wrong);
}

static const size_t sizes[] = {1, 2, 15, 16, 17, 64, 100, 257, 1000, 4096, 4097, 9000};
#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

TEST(sums_are_the_serial_ones)
{
    for (int i = 0; par_colls[i]; i++)
        for (int n_ranks = 1; n_ranks <= 8; n_ranks++) {
            struct shared s;

            open_shared(&s, n_ranks, 9000);
            run_threads(&s, par_colls[i], sizes, N_SIZES, n_ranks < 4 ? 2 : 1);
            par_shm_close(&s.shm);
        }
}

TEST(ranks_can_be_processes)
{
    for (int i = 0; par_colls[i]; i++)
        for (int n_ranks = 2; n_ranks <= 5; n_ranks += 3) {
            pid_t pids[8];
            struct shared s;

            open_shared(&s, n_ranks, 9000);
            for (int k = 0; k < n_ranks; k++) {
                struct member m = {.s = &s,
                                   .c = par_colls[i],
                                   .sizes = sizes,
                                   .n_sizes = N_SIZES,
                                   .n_rounds = 2,
                                   .rank = k,
                                   .seed = test_seed()};

                pids[k] = fork();
                assert_true(pids[k] >= 0);
                if (pids[k] == 0) { /* its own mapping, at its own address */
                    struct shared copy = s;

                    copy.shm.base = mmap(NULL, s.shm.bytes, PROT_READ | PROT_WRITE,
                                         MAP_SHARED, s.shm.fd, 0);
                    if (copy.shm.base == MAP_FAILED)
                        _exit(2);
                    m.s = &copy;
                    work(&m);
                    _exit(m.wrong ? 1 : 0);
                }
            }
            for (int k = 0; k < n_ranks; k++) {
                int status;

                assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
                assert_int_equal(status, 0);
            }
            par_shm_close(&s.shm);
        }
}

/* --- which rank waits for which */

#define N_MESSAGES 6
#define LOG_MAX    1000

struct entry {
    const struct par_flag *word;
    uint64_t v;
    bool set;
};

/* What a rank looked at and set, in its own order. */
struct witness {
    const struct shared *s;
    const struct par_coll *c;
    int rank, n;
    long bad;
    struct entry log[LOG_MAX];
};

static void note(void *arg, const struct par_flag *w, uint64_t v, bool set)
{
    struct witness *m = arg;

    if (m->n < LOG_MAX)
        m->log[m->n++] = (struct entry){w, v, set};
}

static void *sum_and_note(void *arg)
{
    struct witness *m = arg;
    size_t n = m->s->max_floats;
    float *x = calloc(n, sizeof(*x));
    struct par_rank r;

    m->bad = !x || par_comm_join(&r, m->s->shm.base, m->rank, SPIN_NS) != OK;
    r.trace = note;
    r.trace_arg = m;
    for (int i = 0; i < N_MESSAGES && !m->bad; i++)
        m->bad = par_allreduce(&r, m->c, x, n) != OK;
    free(x);
    return NULL;
}

/* The rank whose set ends a wait for `v`: the lowest value that is enough. */
static int who_ends(const struct witness *all, int n_ranks, const struct entry *wait)
{
    uint64_t least = UINT64_MAX;
    int who = -1;

    for (int k = 0; k < n_ranks; k++)
        for (int i = 0; i < all[k].n; i++) {
            const struct entry *e = &all[k].log[i];

            if (e->set && e->word == wait->word && e->v >= wait->v && e->v < least)
                least = e->v, who = k;
        }
    return who;
}

static int n_writers(const struct witness *all, int n_ranks, const struct par_flag *w)
{
    int n = 0;

    for (int k = 0; k < n_ranks; k++)
        for (int i = 0; i < all[k].n; i++)
            if (all[k].log[i].set && all[k].log[i].word == w) {
                n++;
                break;
            }
    return n;
}

static void witnesses_run(struct witness *m, const struct shared *s,
                          const struct par_coll *c)
{
    pthread_t threads[8];

    for (int k = 0; k < s->n_ranks; k++) {
        m[k] = (struct witness){.s = s, .c = c, .rank = k};
        assert_int_equal(pthread_create(&threads[k], NULL, sum_and_note, &m[k]), 0);
    }
    for (int k = 0; k < s->n_ranks; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < s->n_ranks; k++) {
        assert_int_equal(m[k].bad, 0);
        assert_in_range(m[k].n, 1, LOG_MAX - 1);
    }
}

/* To add, a rank waits for its right neighbour only; to collect, for each other rank
 * once a piece, the right neighbour first. No word is one rank's alone. */
static void check_neighbours(const struct witness *all, int n_ranks, int rank)
{
    const struct witness *m = &all[rank];
    int n_sets = 0, n_added = 0, n_collected = 0;

    for (int i = 0; i < m->n; i++) {
        const struct entry *e = &m->log[i];

        assert_int_equal(n_writers(all, n_ranks, e->word), n_ranks);
        if (e->set) {
            n_sets++;
        } else if (e->v % (uint64_t)n_ranks) {
            assert_int_equal(who_ends(all, n_ranks, e), (rank + 1) % n_ranks);
            n_added++;
        } else {
            int step = 1 + n_collected++ % (n_ranks - 1);

            assert_int_equal(who_ends(all, n_ranks, e), (rank + step) % n_ranks);
        }
    }
    assert_in_range(n_sets, N_MESSAGES * n_ranks, LOG_MAX);
    assert_int_equal(n_sets % n_ranks, 0);
    assert_int_equal(n_added, n_sets / n_ranks * (n_ranks - 1));
    assert_int_equal(n_collected, n_added);
}

TEST(rank_shifted_waits_for_the_right_neighbour)
{
    static const size_t lengths[] = {1000, 40000}; /* one piece and several */
    struct witness *m = calloc(8, sizeof(*m));
    const struct par_coll *c;

    assert_non_null(m);
    assert_ok(par_coll_find("rank_shifted", &c));
    for (int n_ranks = 2; n_ranks <= 8; n_ranks++)
        for (int i = 0; i < 2; i++) {
            struct shared s;

            open_shared(&s, n_ranks, lengths[i]);
            witnesses_run(m, &s, c);
            for (int k = 0; k < n_ranks; k++)
                check_neighbours(m, n_ranks, k);
            par_shm_close(&s.shm);
        }
    free(m);
}

/* --- many epochs: the buffers are used again before all ranks have looked around */

#define N_EPOCHS 10000

struct counter {
    const struct shared *s;
    const struct par_coll *c;
    int rank;
    long bad;
};

static void *count(void *arg)
{
    struct counter *m = arg;
    struct par_rank r;
    float x[3];

    m->bad = par_comm_join(&r, m->s->shm.base, m->rank, SPIN_NS) != OK;
    for (long e = 0; e < N_EPOCHS && !m->bad; e++) {
        float want = 0;

        for (int k = 0; k < m->s->n_ranks; k++)
            want += (float)(e % 1000 + k);
        for (int i = 0; i < 3; i++)
            x[i] = (float)(e % 1000 + m->rank);
        m->bad = par_allreduce(&r, m->c, x, 3) != OK || x[0] != want || x[1] != want ||
                 x[2] != want;
    }
    return NULL;
}

TEST(buffers_are_used_again_and_again)
{
    for (int i = 0; par_colls[i]; i++)
        for (int n_ranks = 2; n_ranks <= 3; n_ranks++) {
            pthread_t threads[3];
            struct counter m[3];
            struct shared s;

            open_shared(&s, n_ranks, 3);
            for (int k = 0; k < n_ranks; k++) {
                m[k] = (struct counter){.s = &s, .c = par_colls[i], .rank = k};
                assert_int_equal(pthread_create(&threads[k], NULL, count, &m[k]), 0);
            }
            for (int k = 0; k < n_ranks; k++)
                pthread_join(threads[k], NULL);
            for (int k = 0; k < n_ranks; k++)
                assert_int_equal(m[k].bad, 0);
            par_shm_close(&s.shm);
        }
}

/* --- meetings */

#define N_MEETINGS 2000

struct meeter {
    const struct shared *s;
    long *round; /* of each rank, written by it alone, not atomic: meetings order it */
    int rank;
    long bad;
};

static void *meet(void *arg)
{
    struct meeter *m = arg;
    struct par_rank r;

    m->bad = par_comm_join(&r, m->s->shm.base, m->rank, SPIN_NS) != OK;
    for (long e = 1; e <= N_MEETINGS && !m->bad; e++) {
        m->round[m->rank] = e;
        m->bad = par_rank_barrier(&r) != OK;
        for (int k = 0; k < m->s->n_ranks; k++)
            m->bad |= m->round[k] != e;
        m->bad |= par_rank_barrier(&r) != OK; /* all have looked */
    }
    return NULL;
}

TEST(meetings_order_what_was_written)
{
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++) {
        pthread_t threads[4];
        struct meeter m[4];
        long round[4] = {0};
        struct shared s;

        open_shared(&s, n_ranks, 1);
        for (int k = 0; k < n_ranks; k++) {
            m[k] = (struct meeter){.s = &s, .round = round, .rank = k};
            assert_int_equal(pthread_create(&threads[k], NULL, meet, &m[k]), 0);
        }
        for (int k = 0; k < n_ranks; k++)
            pthread_join(threads[k], NULL);
        for (int k = 0; k < n_ranks; k++)
            assert_int_equal(m[k].bad, 0);
        par_shm_close(&s.shm);
    }
}

/* --- the ways out */

static void *wait_alone(void *arg)
{
    struct member *m = arg;
    struct par_rank r;
    float x[1] = {1};

    m->wrong = par_comm_join(&r, m->s->shm.base, m->rank, SPIN_NS) == OK &&
                       par_allreduce(&r, m->c, x, 1) == ERR_STATE
                   ? 0
                   : 1;
    return NULL;
}

TEST(an_abort_ends_every_wait)
{
    struct timespec a_moment = {.tv_nsec = 3000000};

    for (int i = 0; par_colls[i]; i++)
        for (int rank = 0; rank < 2; rank++) { /* the other one never comes */
            struct shared s;
            struct member m = {.s = &s, .c = par_colls[i], .rank = rank};
            pthread_t t;

            open_shared(&s, 2, 1);
            assert_int_equal(pthread_create(&t, NULL, wait_alone, &m), 0);
            nanosleep(&a_moment, NULL); /* by now it sleeps, or will see it at once */
            par_comm_abort(s.shm.base);
            pthread_join(t, NULL);
            assert_int_equal(m.wrong, 0);
            par_shm_close(&s.shm);
        }
}

/* With one rank, or without a number, there is nothing to wait for. */
TEST(nothing_to_add)
{
    struct shared s;
    struct par_rank r;
    float x[2] = {3, 4};

    for (int n_ranks = 1; n_ranks <= 2; n_ranks++) {
        open_shared(&s, n_ranks, 2);
        assert_ok(par_comm_join(&r, s.shm.base, n_ranks - 1, 0));
        for (int i = 0; par_colls[i]; i++) {
            assert_ok(par_allreduce(&r, par_colls[i], x, n_ranks == 1 ? 2 : 0));
            assert_true(r.epoch[i] == 0 && x[0] == 3 && x[1] == 4);
        }
        par_shm_close(&s.shm);
    }
}

TEST(limits_of_a_communicator)
{
    assert_true(par_comm_bytes(1, 1) > 0 && par_comm_bytes(PAR_RANKS_MAX, 1) > 0);
    assert_true(par_comm_bytes(1, PAR_FLOATS_MAX) > 4 * PAR_FLOATS_MAX);
    assert_int_equal(par_comm_bytes(0, 1), 0);
    assert_int_equal(par_comm_bytes(PAR_RANKS_MAX + 1, 1), 0);
    assert_int_equal(par_comm_bytes(1, 0), 0);
    assert_int_equal(par_comm_bytes(1, PAR_FLOATS_MAX + 1), 0);
}

TEST(what_makes_no_sense_is_refused)
{
    const struct par_coll *c, unknown = {.name = "unknown"};
    struct par_rank r;
    struct shared s;
    float x[5] = {0};

    assert_ok(par_coll_find("rank_shifted", &c));
    assert_string_equal(c->name, "rank_shifted");
    assert_err(par_coll_find("rank_shift", &c), ERR_NOTFOUND, "rank_shifted");
    open_shared(&s, 2, 4);
    assert_err(par_comm_join(&r, s.shm.base, 2, 0), ERR_ARG, "expected 0 to 1, found 2");
    assert_err(par_comm_join(&r, s.shm.base, -1, 0), ERR_ARG,
               "expected 0 to 1, found -1");
    assert_ok(par_comm_join(&r, s.shm.base, 0, 0));
    assert_err(par_allreduce(&r, par_colls[0], x, 5), ERR_ARG, "5 floats, at most 4");
    assert_err(par_comm_init(s.shm.base, 0, 4), ERR_ARG, "0 ranks");
    assert_err(par_comm_init(s.shm.base, PAR_RANKS_MAX + 1, 4), ERR_ARG, "expected 1 to");
    par_shm_close(&s.shm);
    par_shm_close(&s.shm);
    assert_err(par_shm_open(&s.shm, 0), ERR_ARG, "0 bytes");
    open_shared(&s, 2, 4);
    assert_err(par_comm_init((char *)s.shm.base + 4, 2, 4), ERR_ARG, "multiple of");
    assert_err(par_comm_init(s.shm.base, 2, PAR_FLOATS_MAX + 1), ERR_ARG, "floats");
    assert_int_equal(par_comm_bytes(2, PAR_FLOATS_MAX + 1), 0);
    assert_int_equal(par_comm_bytes(PAR_RANKS_MAX, 1) % PAR_LINE, 0);
    assert_ok(par_comm_join(&r, s.shm.base, 0, 0));
    assert_err(par_allreduce(&r, &unknown, x, 1), ERR_ARG, "not in the list");
    par_shm_close(&s.shm);
    {
        char *mem = mem_new(MEM_TEST, 1, 4 * PAR_LINE + 8);
        size_t off = PAR_LINE - (uintptr_t)mem % PAR_LINE;

        assert_err(par_comm_join(&r, mem + off, 0, 0), ERR_STATE,
                   "expected a communicator");
        memcpy(mem + off + 8, "LOCWDNAS", 8); /* looks like one, at a wrong address */
        assert_err(par_comm_join(&r, mem + off + 8, 0, 0), ERR_STATE,
                   "expected a communicator");
        mem_free(mem);
    }
}
