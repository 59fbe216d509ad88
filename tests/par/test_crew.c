/* Ranks of several threads: every thread sees the serial sum of every slice in its stated
 * order, in one team or as processes, on one CPU too; all threads of a rank get the same
 * answer when another gives up. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "par/crew.h"
#include "par/shm.h"
#include "tests/support/test.h"

#define MAX_RANKS   4
#define MAX_THREADS 3
#define MAX_FLOATS  3000

static const size_t sizes[] = {1, 31, 32, 33, 100, 257, 1000, 3000};
#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

/* Element i of what `rank` sends in message `epoch`: of mixed size and sign. */
static float sent(int rank, long epoch, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)epoch * 40503u +
                 (uint32_t)rank * 2246822519u;

    h ^= h >> 15;
    h *= 2246822519u;
    /* powers of two: exact, so that a fused multiply-add changes nothing */
    return (float)(int32_t)h * (rank % 2 ? 0x1p10f : 0x1p-10f);
}

struct party {
    struct par_crew *crews[MAX_RANKS]; /* those of this process */
    float *x[MAX_RANKS];
    const struct par_coll *coll; /* NULL: by the tables, which are the default ones */
    int n_ranks, n_threads, n_rounds, only; /* only: the process's rank, or -1 */
    void *mem;
    long bad[MAX_RANKS * MAX_THREADS];
};

/* A lane chooses by the length of its slice. */
static const struct par_coll *coll_for(const struct party *p, size_t n)
{
    struct par_rank r = {.n_ranks = 1};

    par_choice_default(&r.choice);
    return p->coll ? p->coll : par_choice_of(&r, n);
}

static float expected(const struct party *p, long epoch, size_t n, size_t i)
{
    size_t lo = 0, hi = 0;
    float sum = 0;

    for (int t = 0; i >= hi; t++)
        par_block(n, p->n_threads, t, &lo, &hi);
    for (int k = 0; k < p->n_ranks; k++) {
        int rank = coll_for(p, hi - lo)->order(p->n_ranks, hi - lo, i - lo, k);

        sum = k ? sum + sent(rank, epoch, i) : sent(rank, epoch, i);
    }
    return sum;
}

static long check(const struct party *p, const float *x, size_t n, long epoch)
{
    long bad = 0;

    for (size_t i = 0; i < n; i++) {
        float want = expected(p, epoch, n, i);

        bad += memcmp(&x[i], &want, sizeof(want)) != 0;
    }
    return bad;
}

static void sum_up(void *arg, struct par_self *self)
{
    struct party *p = arg;
    int rank = p->only < 0 ? self->id / p->n_threads : p->only;
    struct par_crew *c = p->crews[rank];
    int t = par_crew_lane(c, self);
    long *bad = &p->bad[rank * p->n_threads + t], epoch = 0;

    *bad += t != self->id % p->n_threads;
    for (int round = 0; round < p->n_rounds && !*bad; round++)
        for (int k = 0; k < N_SIZES && !*bad; k++, epoch++) {
            size_t n = sizes[k];

            /* not its own slice: the crew must meet before it sums */
            for (size_t i = (size_t)t; i < n; i += (size_t)p->n_threads)
                p->x[rank][i] = sent(rank, epoch, i);
            *bad += par_crew_allreduce(c, self, p->coll, p->x[rank], n) != OK;
            *bad += check(p, p->x[rank], n, epoch);
            par_crew_barrier(c, self); /* all have looked */
        }
}

static void party_open(struct party *p, struct par_shm *shm, int n_ranks, int n_threads,
                       const struct par_coll *coll)
{
    *p = (struct party){.coll = coll,
                        .n_ranks = n_ranks,
                        .n_threads = n_threads,
                        .n_rounds = 4,
                        .only = -1};
    assert_ok(par_shm_open(shm, par_crew_bytes(n_ranks, n_threads, MAX_FLOATS)));
    assert_ok(par_crew_init(shm->base, n_ranks, n_threads, MAX_FLOATS));
    p->mem = shm->base;
    for (int r = 0; r < n_ranks; r++)
        p->x[r] = mem_new(MEM_TEST, MAX_FLOATS, sizeof(float));
}

static void party_close(struct party *p, struct par_shm *shm)
{
    for (int r = 0; r < p->n_ranks; r++) {
        par_crew_close(&p->crews[r]);
        mem_free(p->x[r]);
    }
    par_shm_close(shm);
}

static void crews_of_one_team(int n_ranks, int n_threads, const struct par_coll *coll,
                              int pin)
{
    int cpus[MAX_RANKS * MAX_THREADS];
    struct par_team *team;
    struct par_shm shm;
    struct party p;

    for (int i = 0; i < n_ranks * n_threads; i++)
        cpus[i] = cpu_current();
    party_open(&p, &shm, n_ranks, n_threads, coll);
    assert_ok(par_team_open(&team, cpus, n_ranks * n_threads, pin));
    for (int r = 0; r < n_ranks; r++) {
        assert_ok(par_crew_open(&p.crews[r], shm.base, r, team, r * n_threads));
        assert_int_equal(par_crew_rank(p.crews[r]), r);
        assert_int_equal(par_crew_n_ranks(p.crews[r]), n_ranks);
        assert_int_equal(par_crew_n_threads(p.crews[r]), n_threads);
    }
    par_team_run(team, n_ranks * n_threads, sum_up, &p);
    for (int i = 0; i < n_ranks * n_threads; i++)
        if (p.bad[i])
            fail_msg("%s, %d ranks of %d threads: thread %d found %ld faults",
                     coll ? coll->name : "by size", n_ranks, n_threads, i, p.bad[i]);
    par_team_close(&team);
    party_close(&p, &shm);
}

static void all_shapes(int pin)
{
    for (int n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++)
        for (int n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
            crews_of_one_team(n_ranks, n_threads, NULL, pin);
            for (int i = 0; par_colls[i]; i++)
                crews_of_one_team(n_ranks, n_threads, par_colls[i], pin);
        }
}

static void sums_are_the_serial_ones(void **state)
{
    (void)state;
    all_shapes(0);
}

static void one_cpu_is_enough(void **state)
{
    (void)state;
    all_shapes(1);
}

static int one_process(struct party *p, int rank)
{
    struct par_team *team;
    int rc = par_team_open(&team, NULL, p->n_threads, 0);

    if (rc != OK)
        return 2;
    p->only = rank;
    if (par_crew_open(&p->crews[rank], p->mem, rank, team, 0) != OK)
        return 3;
    par_team_run(team, p->n_threads, sum_up, p);
    par_team_close(&team);
    for (int t = 0; t < p->n_threads; t++)
        if (p->bad[rank * p->n_threads + t])
            return 1;
    return 0;
}

static void ranks_can_be_processes(void **state)
{
    (void)state;
    for (int i = 0; par_colls[i]; i++) {
        struct par_shm shm;
        struct party p;
        pid_t pids[3];
        int bad = 0;

        party_open(&p, &shm, 3, 2, par_colls[i]);
        for (int r = 0; r < 3; r++) {
            pids[r] = fork();
            assert_true(pids[r] >= 0);
            if (pids[r] == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                _exit(one_process(&p, r));
            }
        }
        for (int r = 0; r < 3; r++) {
            int status;

            assert_true(wait(&status) > 0);
            if (status) /* the others need not wait for it */
                par_crew_abort(p.mem);
            bad += status != 0;
        }
        assert_int_equal(bad, 0);
        party_close(&p, &shm);
    }
}

/* --- the ways out */

/* Rank 1 never sums: one of its threads gives up instead. */
static void give_up(void *arg, struct par_self *self)
{
    struct party *p = arg;
    struct timespec a_moment = {.tv_nsec = 2000000};
    int rank = self->id / p->n_threads;

    if (rank == 0) { /* 100 floats are slices for the first lanes only */
        int rc = par_crew_allreduce(p->crews[0], self, p->coll, p->x[0], 100);

        p->bad[self->id] = rc != ERR_STATE || !strstr(err_msg(), "gave up");
        rc = par_crew_allreduce(p->crews[0], self, p->coll, p->x[0], 100);
        p->bad[self->id] += rc != ERR_STATE;
    } else if (par_crew_lane(p->crews[1], self) == 0) {
        nanosleep(&a_moment, NULL);
        par_crew_abort(p->mem);
    }
}

static void an_abort_reaches_every_thread(void **state)
{
    (void)state;
    for (int i = 0; par_colls[i]; i++) {
        struct par_team *team;
        struct par_shm shm;
        struct party p;

        party_open(&p, &shm, 2, 3, par_colls[i]);
        assert_ok(par_team_open(&team, NULL, 6, 0));
        for (int r = 0; r < 2; r++)
            assert_ok(par_crew_open(&p.crews[r], shm.base, r, team, 3 * r));
        par_team_run(team, 6, give_up, &p);
        for (int t = 0; t < 3; t++)
            assert_int_equal(p.bad[t], 0);
        par_team_close(&team);
        party_close(&p, &shm);
    }
}

static void too_long(void *arg, struct par_self *self)
{
    float x[1];

    if (par_crew_allreduce(arg, self, NULL, x, 101) != ERR_ARG ||
        !strstr(err_msg(), "101 floats, at most 100"))
        abort();
}

static void what_makes_no_sense_is_refused(void **state)
{
    struct par_crew *c;
    struct par_team *team;
    struct par_shm shm;

    (void)state;
    assert_int_equal(par_crew_bytes(0, 1, 1), 0);
    assert_int_equal(par_crew_bytes(2, 0, 1), 0);
    assert_int_equal(par_crew_bytes(2, 1, 0), 0);
    assert_int_equal(par_crew_bytes(2, 1, SIZE_MAX), 0);
    assert_ok(par_shm_open(&shm, par_crew_bytes(2, 2, 100)));
    assert_ok(par_team_open(&team, NULL, 2, 0));
    assert_err(par_crew_open(&c, shm.base, 0, team, 0), ERR_STATE, "no ranks");
    assert_err(par_crew_init(shm.base, 65, 2, 100), ERR_ARG, "65 ranks");
    assert_err(par_crew_init(shm.base, 2, -1, 100), ERR_ARG, "-1 threads");
    assert_err(par_crew_init((char *)shm.base + 8, 2, 1, 1), ERR_ARG, "multiple of");
    assert_ok(par_crew_init(shm.base, 2, 2, 100));
    assert_err(par_crew_open(&c, shm.base, 0, team, 1), ERR_ARG, "threads 1 to 2");
    assert_null(c);
    assert_err(par_crew_open(&c, shm.base, 2, team, 0), ERR_ARG, "rank 2 of 2");
    assert_null(c);
    mem_fail_after(0, 1);
    assert_int_equal(par_crew_open(&c, shm.base, 0, team, 0), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_null(c);
    assert_ok(par_crew_open(&c, shm.base, 0, team, 0));
    par_team_run(team, 2, too_long, c);
    par_crew_close(&c);
    par_crew_close(&c);
    par_team_close(&team);
    par_shm_close(&shm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: ThreadSanitizer wants no thread before a fork that starts threads */
        cmocka_unit_test(ranks_can_be_processes),
        cmocka_unit_test(sums_are_the_serial_ones),
        cmocka_unit_test(one_cpu_is_enough),
        cmocka_unit_test(an_abort_reaches_every_thread),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };

    return cmocka_run_group_tests_name("par/crew", tests, NULL, NULL);
}
