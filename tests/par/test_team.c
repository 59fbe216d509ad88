#include "tests/support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "par/team.h"
#include "tests/support/faults.h"

/* test_team_openmp.c tests another kind the same way. */
#ifndef TEAM_KIND
#define TEAM_KIND "pthread"
#endif
#define MAX_THREADS 9

static bool ours(void)
{
    return strcmp(TEAM_KIND, "pthread") == 0;
}

static void skip_unseen(void)
{
    if (!ours() && getenv("SAN") && strstr(getenv("SAN"), "thread"))
        test_skip("the thread sanitizer does not see how OpenMP orders its threads");
}

static int open_kind(struct par_team **out, const int *cpus, int n, int pin)
{
    const struct par_team_kind *kind;

    skip_unseen();
    assert_ok(par_team_find(TEAM_KIND, &kind));
    return par_team_open_by(out, kind, cpus, n, pin);
}

struct work {
    int n_expected;
    int hits[MAX_THREADS]; /* plain on purpose: TSan checks that the hand-out orders them
                            */
    long sum[MAX_THREADS];
    int bad;
};

static void hit(void *arg, struct par_self *self)
{
    struct work *w = arg;

    if (self->n != w->n_expected)
        w->bad = 1;
    w->hits[self->id]++;
}

static struct par_team *open_team(int n, int pin)
{
    struct par_team *t;
    int cpus[MAX_THREADS] = {0};

    for (int i = 0; i < n && pin; i++)
        cpus[i] = cpu_current();
    assert_ok(open_kind(&t, cpus, n, pin));
    assert_int_equal(par_team_size(t), n);
    return t;
}

TEST(every_thread_runs_once)
{
    for (int n = 1; n <= MAX_THREADS; n++) {
        struct par_team *t = open_team(n, 0);

        for (int k = 1; k <= n; k++) {
            struct work w = {.n_expected = k};

            par_team_run(t, k, hit, &w);
            for (int i = 0; i < n; i++)
                assert_int_equal(w.hits[i], i < k);
            assert_int_equal(w.bad, 0);
        }
        par_team_close(&t);
        assert_null(t);
    }
}

/* Phases of changing width: threads that sat out several phases must not run an old one.
 */
TEST(widths_change)
{
    struct par_team *t = open_team(5, 0);
    long expected[MAX_THREADS] = {0};
    struct work w = {0};
    struct rng r;

    rng_init(&r, test_seed(), "widths");
    for (int i = 0; i < 20000; i++) {
        w.n_expected = 1 + (int)rng_below(&r, 5);
        for (int k = 0; k < w.n_expected; k++)
            expected[k]++;
        par_team_run(t, w.n_expected, hit, &w);
    }
    for (int k = 0; k < 5; k++)
        assert_int_equal(w.hits[k], expected[k]);
    assert_int_equal(w.bad, 0);
    par_team_close(&t);
}

TEST(many_runs)
{
    struct work w = {.n_expected = 2};
    struct par_team *t = open_team(2, 0);
    struct par_thread_stat st;
    long n_allocs = mem_n_allocs();

    for (int i = 0; i < 100000; i++)
        par_team_run(t, 2, hit, &w);
    assert_int_equal(w.hits[0], 100000);
    assert_int_equal(w.hits[1], 100000);
    assert_int_equal(mem_n_allocs(), n_allocs);
    par_team_stat(t, 1, &st);
    assert_int_equal(st.n_runs, 100000);
    par_team_close(&t);
}

/* Each round every thread writes its own cell, meets the others, and reads all cells. */
struct rounds {
    int n_rounds;
    int cell[2][MAX_THREADS];
    int bad[MAX_THREADS];
};

static void meet(void *arg, struct par_self *self)
{
    struct rounds *r = arg;

    for (int i = 0; i < r->n_rounds; i++) {
        int *cell = r->cell[i & 1];

        cell[self->id] = i;
        par_barrier(self);
        for (int k = 0; k < self->n; k++)
            r->bad[self->id] += cell[k] != i;
    }
}

TEST(barrier_orders)
{
    for (int n = 1; n <= MAX_THREADS; n += 2) {
        struct par_team *t = open_team(n, 0);

        for (int k = 1; k <= n; k++) {
            struct rounds r = {.n_rounds = 1000};

            par_team_run(t, k, meet, &r);
            for (int i = 0; i < MAX_THREADS; i++)
                assert_int_equal(r.bad[i], 0);
        }
        par_team_close(&t);
    }
}

TEST(one_cpu_for_all)
{
    struct par_team *t = open_team(4, 1);
    struct rounds r = {.n_rounds = 2000};
    struct par_thread_stat st;

    par_team_run(t, 4, meet, &r);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r.bad[i], 0);
        par_team_stat(t, i, &st);
        assert_int_equal(st.cpu_seen, st.cpu_wanted);
    }
    par_team_close(&t);
}

/* The slow thread makes all others park in the barrier and the opener in the run. */
static void dawdle(void *arg, struct par_self *self)
{
    struct rounds *r = arg;

    for (int i = 0; i < 3; i++) {
        if (self->id == i)
            nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        meet(r, self);
    }
    if (self->id == self->n - 1)
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

TEST(parked_threads_wake)
{
    struct par_team *t = open_team(3, 0);
    struct par_thread_stat st;

    for (int i = 0; i < 10; i++) {
        struct rounds r = {.n_rounds = 2};

        par_team_run(t, 3, dawdle, &r);
        for (int k = 0; k < 3; k++)
            assert_int_equal(r.bad[k], 0);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* workers park here */
    }
    for (int i = 0; i < 3; i++) {
        par_team_stat(t, i, &st);
        assert_int_equal(st.n_runs, 10);
        assert_true(st.n_parks >= 1 || !ours());
    }
    par_team_close(&t);
}

/* Two groups of one team meet among themselves, one more often than the other. */
struct two {
    struct par_group group[2];
    struct rounds rounds[2];
};

static void meet_in_groups(void *arg, struct par_self *self)
{
    struct two *two = arg;
    int which = self->id >= two->group[1].first;
    struct par_group *g = &two->group[which];
    struct rounds *r = &two->rounds[which];
    int me = self->id - g->first;

    for (int i = 0; i < r->n_rounds; i++) {
        r->cell[i & 1][me] = i;
        par_group_barrier(g, self);
        for (int k = 0; k < g->n; k++)
            r->bad[me] += r->cell[i & 1][k] != i;
    }
}

TEST(groups_meet_among_themselves)
{
    for (int n = 1; n <= 3; n++) {
        struct par_team *t = open_team(2 + n, n == 3); /* on one CPU too */
        struct two *two = mem_new(MEM_TEST, 1, sizeof(*two));

        par_group_init(&two->group[0], 0, 2);
        par_group_init(&two->group[1], 2, n);
        two->rounds[0].n_rounds = 1000;
        two->rounds[1].n_rounds = 3000;
        par_team_run(t, 2 + n, meet_in_groups, two);
        par_team_run(t, 2 + n, meet_in_groups, two); /* and once more */
        for (int k = 0; k < MAX_THREADS; k++)
            assert_int_equal(two->rounds[0].bad[k] + two->rounds[1].bad[k], 0);
        mem_free(two);
        par_team_close(&t);
    }
}

/* A parked team uses no processor time: its threads are asleep, not spinning. */
TEST(idle_team_sleeps)
{
    struct par_team *t = open_team(4, 0);
    struct par_thread_stat st[2];

    if (!ours()) {
        par_team_close(&t);
        test_skip("how OpenMP's threads wait is not counted");
    }
    for (int tries = 0; tries < 1000; tries++) {
        par_team_stat(t, 3, &st[0]);
        if (st[0].n_parks)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_true(st[0].n_parks > 0);
    /* work for others does not wake it */
    for (int i = 0; i < 1000; i++) {
        struct work w = {.n_expected = 3};

        par_team_run(t, 3, hit, &w);
    }
    par_team_stat(t, 3, &st[1]);
    assert_int_equal(st[1].n_parks, st[0].n_parks);
    assert_int_equal(st[1].n_runs, 0);
    par_team_close(&t);
}

/* Threads that never wait, as another program's on the same CPUs. */
struct neighbours {
    pthread_t threads[2];
    int cpus[2]; /* the same twice where this program may use only one */
    atomic_bool stop;
};

static void *compute_for_ever(void *arg)
{
    struct neighbours *b = arg;

    while (!atomic_load_explicit(&b->stop, memory_order_relaxed))
        ;
    return NULL;
}

static void start_neighbours(struct neighbours *b)
{
    cpu_set_t may, one;
    int n = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &may))
            b->cpus[n++] = cpu;
    if (n == 1)
        b->cpus[1] = b->cpus[0];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&b->threads[i], NULL, compute_for_ever, b), 0);
        CPU_ZERO(&one);
        CPU_SET(b->cpus[i], &one);
        assert_int_equal(pthread_setaffinity_np(b->threads[i], sizeof(one), &one), 0);
    }
}

/* Two, four and eight threads on two CPUs that others use, too: they meet in order, and what
 * they waited for one another is counted, at most the time that has passed.
 * Regression: how long threads waited for one another was recorded for thread 0 at
 * barriers only: not where another process took the CPU of thread 0, nor among
 * ranks. */
TEST(cpus_are_shared_with_others)
{
    struct neighbours b = {.stop = false};

    skip_unseen();
    start_neighbours(&b);
    for (int n = 2; n <= 8; n *= 2) {
        int cpus[8] = {b.cpus[0], b.cpus[1], b.cpus[0], b.cpus[1],
                       b.cpus[0], b.cpus[1], b.cpus[0], b.cpus[1]};
        struct par_thread_stat st, before[8];
        struct par_team *t;
        uint64_t start, sum = 0;

        assert_ok(open_kind(&t, cpus, n, 1));
        for (int i = 0; i < n; i++)
            par_team_stat(t, i, &before[i]);
        start = clock_ns();
        for (int tries = 0; tries < 1000 && sum == 0; tries++) {
            struct rounds r = {.n_rounds = 50};

            par_team_run(t, n, meet, &r);
            for (int i = 0; i < n; i++) {
                assert_int_equal(r.bad[i], 0);
                par_team_stat(t, i, &st);
                assert_true(st.wait_ns - before[i].wait_ns <= clock_ns() - start);
                sum += st.wait_ns - before[i].wait_ns;
            }
        }
        assert_true(sum > 0);
        par_team_close(&t);
    }
    atomic_store(&b.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(b.threads[i], NULL);
}

TEST(affinity_is_put_back)
{
    cpu_set_t before, during, after;
    struct par_team *t;
    int cpu;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (cpu = CPU_SETSIZE - 1; !CPU_ISSET(cpu, &before);)
        cpu--;
    assert_ok(open_kind(&t, (int[]){cpu, cpu}, 2, 1));
    assert_int_equal(sched_getaffinity(0, sizeof(during), &during), 0);
    assert_int_equal(CPU_COUNT(&during), 1);
    assert_int_equal(cpu_current(), cpu);
    par_team_close(&t);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void where(void *arg, struct par_self *self)
{
    if (self->id == 0)
        *(int *)arg = cpu_current();
}

/* Of several teams of a thread, whichever is closed last puts its affinity back, and none changes
 * how many CPUs the process may use.
 * Regression: a second engine in a process, or the first one after several were closed,
 * had one CPU: it took the affinity of a thread that another team had pinned. */
TEST(teams_of_one_thread)
{
    struct cpu_budget whole, now;
    cpu_set_t before, after;
    struct par_team *t[3];
    int cpu;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_ok(cpu_budget_get(&whole));
    for (int order = 0; order < 2; order++) {
        for (int i = 0; i < 3; i++) {
            assert_ok(open_kind(&t[i], &whole.cpus[i % whole.n_cores], 1, 1));
            assert_ok(cpu_budget_get(&now));
            assert_memory_equal(now.cpus, whole.cpus, sizeof(now.cpus));
        }
        for (int i = 0; i < 3; i++) {
            par_team_run(t[i], 1, where, &cpu);
            assert_int_equal(cpu, whole.cpus[i % whole.n_cores]);
        }
        for (int i = 0; i < 3; i++)
            par_team_close(&t[order ? 2 - i : i]);
        assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

TEST(bad_arguments)
{
    cpu_set_t before, after;
    struct par_team *t;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_err(open_kind(&t, NULL, 0, 0), ERR_ARG, "found 0");
    assert_null(t);
    assert_err(open_kind(&t, NULL, 1, 1), ERR_ARG, "list of CPUs");
    assert_err(open_kind(&t, (int[]){1000}, 1, 1), ERR_IO, "CPU 1000");
    assert_null(t);
    assert_err(open_kind(&t, (int[]){cpu_current(), 1000}, 2, 1), ERR_IO,
               "thread 1 cannot be pinned to CPU 1000");
    assert_null(t);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    mem_fail_after(0, 1);
    assert_int_equal(open_kind(&t, NULL, 2, 0), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_null(t);
    par_team_close(&t); /* NULL is fine */
}

TEST(several_teams)
{
    struct par_team *a = open_team(3, 0), *b = open_team(2, 0);

    for (int i = 0; i < 100; i++) {
        struct rounds ra = {.n_rounds = 3}, rb = {.n_rounds = 3};

        par_team_run(a, 3, meet, &ra);
        par_team_run(b, 2, meet, &rb);
        for (int k = 0; k < 3; k++)
            assert_int_equal(ra.bad[k] + rb.bad[k], 0);
    }
    par_team_close(&a);
    par_team_close(&b);
}

TEST(shares_nest)
{
    int64_t lo, hi, lo2, hi2;

    for (int64_t n = 0; n < 70; n++) {
        int64_t end = 0;

        for (int id = 0; id < 6; id++) {
            par_share(n, id, 6, &lo, &hi);
            assert_int_equal(lo, end);
            end = hi;
            par_share(n, id / 2, 3, &lo2, &hi2);
            assert_true(lo2 <= lo && hi <= hi2);
        }
        assert_int_equal(end, n);
    }
}

/* No address space holds these stacks. */
TEST(no_thread_can_be_started)
{
    struct par_team *t = (void *)1;
    pthread_attr_t usual, huge;

    if (!ours())
        test_skip("OpenMP ends the program");
    pthread_getattr_default_np(&usual);
    pthread_attr_init(&huge);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    assert_err(open_kind(&t, NULL, 4, 0), ERR_NOMEM,
               "thread 1 of 4: team: cannot start a thread");
    assert_null(t);
    pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    t = open_team(4, 0);
    par_team_close(&t);
}

/* Those that were started before the one that cannot be end. */
TEST(a_thread_cannot_be_had)
{
    struct par_team *t = NULL;

    if (!ours())
        test_skip("OpenMP ends the program");
    assert_int_equal(test_thread_faults(open_kind(&t, NULL, 4, 0), !t), 6);
    par_team_close(&t);
    thread_fail_after(5);
    assert_err(open_kind(&t, NULL, 4, 0), ERR_NOMEM,
               "thread 3 of 4: team: cannot start a thread: ");
}

/* The threads of a team that is closed have ended, and a phase of one thread needs no other. */
TEST(no_thread_is_left)
{
    struct par_team *t = open_team(1, 0);
    struct work w = {.n_expected = 1};
    int n;

    par_team_run(t, 1, hit, &w);
    assert_int_equal(w.hits[0], 1);
    par_team_close(&t);
    test_one_thread();
    n = left_files("/proc/self/task");
    t = open_team(5, 1);
    assert_string_equal(par_team_name(t), TEAM_KIND);
    assert_true(left_files("/proc/self/task") >= n + 4);
    par_team_close(&t);
    test_no_more_threads(n);
}

TEST(a_kind_that_is_none)
{
    const struct par_team_kind *kind;

    assert_err(par_team_find("openmq", &kind), ERR_NOTFOUND, "openmp");
}
