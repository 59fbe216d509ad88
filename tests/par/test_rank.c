/* Ranks as processes: they sum; one that is killed, stopped or faults at any moment is
 * named with its signal, the others leave cleanly, and nothing is left behind: no
 * process, no descriptor, no name in /dev/shm. They end with the process that opened
 * them, and by SIGINT in order. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "par/coll.h"
#include "par/rank.h"
#include "par/shm.h"
#include "tests/support/faults.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"

#define MAX_RANKS 4
#define N_FLOATS  3000
#define SPIN_NS   2000
#define N_ROUNDS  50
#define PATIENCE  20000 /* ms: only a hang takes so long */

/* In shared memory, before the communicator: each rank writes its own. */
struct notes {
    _Alignas(PAR_LINE) atomic_int left_cleanly[MAX_RANKS];
    atomic_long sums[MAX_RANKS];
    atomic_int pids[MAX_RANKS];
};

struct crowd {
    struct par_shm shm;
    struct notes *notes;
    void *comm;
    int n_ranks;
    long n_sums; /* 0: until somebody gives up */
    bool naps;
};

static void crowd_open(struct crowd *c, int n_ranks, long n_sums)
{
    *c = (struct crowd){.n_ranks = n_ranks, .n_sums = n_sums};
    assert_ok(
        par_shm_open(&c->shm, sizeof(*c->notes) + par_comm_bytes(n_ranks, N_FLOATS)));
    c->notes = c->shm.base;
    c->comm = c->notes + 1;
    assert_ok(par_comm_init(c->comm, n_ranks, N_FLOATS));
}

static int sum_on(void *arg, int rank)
{
    static float x[N_FLOATS];
    struct crowd *c = arg;
    struct par_rank r;
    struct rng g;
    int rc = par_comm_join(&r, c->comm, rank, SPIN_NS);

    rng_init(&g, (uint64_t)rank, "naps");
    atomic_store(&c->notes->pids[rank], (int)getpid());
    for (long i = 0; rc == OK && (!c->n_sums || i < c->n_sums); i++) {
        struct timespec nap = {.tv_nsec = (long)rng_below(&g, 3000000)};

        for (size_t k = 0; k < N_FLOATS; k++)
            x[k] = (float)(rank + 1);
        rc = par_allreduce(&r, NULL, x, 1 + (size_t)(i % N_FLOATS));
        if (rc == OK && x[0] != (float)(c->n_ranks * (c->n_ranks + 1) / 2))
            rc = err_set(ERR_STATE, "a wrong sum");
        atomic_fetch_add(&c->notes->sums[rank], 1);
        if (c->naps && rng_below(&g, 20) == 0)
            nanosleep(&nap, NULL);
    }
    if (rc == ERR_STATE && strstr(err_msg(), "aborted"))
        atomic_store(&c->notes->left_cleanly[rank], 1);
    return rc;
}

static struct par_ranks_opts opts_of(struct crowd *c)
{
    return (struct par_ranks_opts){.n_ranks = c->n_ranks,
                                   .fn = sum_on,
                                   .arg = c,
                                   .abort = par_comm_abort,
                                   .mem = c->comm};
}

TEST(processes_sum)
{
    for (int n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++)
        for (int first = 0; first <= (n_ranks > 1); first++) {
            struct par_ranks_opts o;
            struct par_ranks *p;
            struct crowd c;

            crowd_open(&c, n_ranks, 200);
            o = opts_of(&c);
            o.first = first;
            assert_ok(par_ranks_open(&p, &o));
            if (first) {
                assert_int_equal(par_ranks_pid(p, 0), 0);
                assert_ok(sum_on(&c, 0));
            }
            assert_ok(par_ranks_wait(p, PATIENCE));
            assert_ok(par_ranks_check(p));
            for (int r = 0; r < n_ranks; r++)
                assert_int_equal(c.notes->sums[r], 200);
            par_ranks_close(&p);
            assert_null(p);
            left_no_child();
            par_shm_close(&c.shm);
        }
}

/* --- at any moment, to any rank */

static const struct {
    int sig;
    const char *says;
} signals[] = {{SIGKILL, "was killed by SIGKILL"},
               {SIGSTOP, "was stopped by SIGSTOP"},
               {SIGSEGV, "was killed by SIGSEGV"}};

/* Returns how long it took until it was named. */
static uint64_t hit_one(struct rng *g, int round)
{
    struct timespec moment = {.tv_nsec = (long)rng_below(g, 4000000)};
    int which = round % 3, n_ranks = 2 + (int)rng_below(g, MAX_RANKS - 1);
    int victim = (int)rng_below(g, (uint64_t)n_ranks);
    struct par_ranks_opts o;
    struct par_ranks *p;
    struct crowd c;
    char name[64];
    void (*was)(int);
    uint64_t start;
    pid_t pid;

    crowd_open(&c, n_ranks, 0);
    c.naps = rng_below(g, 2);
    o = opts_of(&c);
    was = signal(SIGSEGV, SIG_DFL); /* the ranks would inherit cmocka's */
    assert_ok(par_ranks_open(&p, &o));
    signal(SIGSEGV, was);
    nanosleep(&moment, NULL);
    pid = par_ranks_pid(p, victim);
    assert_true(pid > 0);
    start = clock_ns();
    assert_int_equal(kill(pid, signals[which].sig), 0);
    snprintf(name, sizeof(name), "rank %d of %d (process %d) %s", victim, n_ranks,
             (int)pid, signals[which].says);
    assert_err(par_ranks_wait(p, PATIENCE), ERR_STATE, name);
    start = clock_ns() - start;
    assert_err(par_ranks_check(p), ERR_STATE, name);
    par_ranks_close(&p);
    for (int r = 0; r < n_ranks; r++)
        if (r != victim)
            assert_int_equal(c.notes->left_cleanly[r], 1);
    left_no_child();
    par_shm_close(&c.shm);
    return start;
}

TEST(who_dies_or_stops_is_named)
{
    int n_fds = left_fds();
    uint64_t slowest = 0;
    struct rng g;

    rng_init(&g, test_seed(), "moments");
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t ns = hit_one(&g, round);

        slowest = ns > slowest ? ns : slowest;
    }
    printf("# named after %.0f ms at most\n", (double)slowest / 1e6);
    assert_int_equal(left_fds(), n_fds);
    left_no_shm();
}

static int ends_badly(void *arg, int rank)
{
    if (rank != 2)
        return sum_on(arg, rank);
    return err_set(ERR_FORMAT, "model.gguf: byte 12: expected 3, found 4");
}

TEST(an_error_comes_with_its_words)
{
    struct par_ranks_opts o;
    struct par_ranks *p;
    struct crowd c;

    crowd_open(&c, 3, 0);
    o = opts_of(&c);
    o.fn = ends_badly;
    assert_ok(par_ranks_open(&p, &o));
    assert_err(par_ranks_wait(p, PATIENCE), ERR_STATE,
               "ended: model.gguf: byte 12: expected 3, found 4");
    assert_err(par_ranks_check(p), ERR_STATE, "rank 2 of 3");
    par_ranks_close(&p);
    left_no_child();
    par_shm_close(&c.shm);
}

/* Stopped and at once continued, as a terminal may: it goes on. */
TEST(who_goes_on_is_not_lost)
{
    struct par_ranks_opts o;
    struct par_ranks *p;
    struct crowd c;
    uint64_t start, took;
    long before;

    crowd_open(&c, 2, 0);
    o = opts_of(&c);
    assert_ok(par_ranks_open(&p, &o));
    start = clock_ns();
    kill(par_ranks_pid(p, 0), SIGSTOP);
    kill(par_ranks_pid(p, 0), SIGCONT);
    took = clock_ns() - start;
    before = c.notes->sums[0];
    while (c.notes->sums[0] < before + 10 && par_ranks_check(p) == OK)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (took < 50000000) /* else the machine itself stopped us for too long */
        assert_ok(par_ranks_check(p));
    par_ranks_close(&p);
    left_no_child();
    par_shm_close(&c.shm);
}

static int stay_there(void *arg, int rank)
{
    cpu_set_t set;

    (void)arg, (void)rank;
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) != 1)
        return err_set(ERR_STATE, "%d CPUs", CPU_COUNT(&set));
    return OK;
}

TEST(ranks_stay_on_their_cpus)
{
    int here = cpu_current(), nowhere = 1023;
    const int *cpus[2] = {&here, &here};
    struct par_ranks_opts o = {
        .n_ranks = 2, .fn = stay_there, .cpus = cpus, .n_cpus = (int[]){1, 1}};
    struct par_ranks *p;

    assert_ok(par_ranks_open(&p, &o));
    assert_ok(par_ranks_wait(p, PATIENCE));
    par_ranks_close(&p);
    cpus[1] = &nowhere;
    assert_ok(par_ranks_open(&p, &o));
    assert_err(par_ranks_wait(p, PATIENCE), ERR_STATE, "rank 1 of 2");
    assert_err(par_ranks_check(p), ERR_STATE, "cannot run on its 1 CPUs");
    par_ranks_close(&p);
    left_no_child();
}

/* --- the end of the process that opened them */

static atomic_int interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    atomic_store(&interrupted, 1);
}

/* A program of its own group, as a shell would start it; does not return. */
static void middle_main(struct crowd *c)
{
    struct par_ranks_opts o = opts_of(c);
    struct par_ranks *p;
    int rc;

    setpgid(0, 0);
    signal(SIGINT, on_interrupt);
    if (par_ranks_open(&p, &o) != OK)
        _exit(3);
    while (!interrupted)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    rc = par_ranks_check(p);
    par_ranks_close(&p);
    _exit(rc == OK ? 0 : 4);
}

/* Returns the program's status; its ranks, if any outlive it, become our children. */
static int end_middle(struct crowd *c, int sig)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        middle_main(c);
    for (int r = 0; r < c->n_ranks; r++)
        while (c->notes->sums[r] == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(kill(sig == SIGINT ? -pid : pid, sig), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(ranks_die_with_their_parent)
{
    struct crowd c;
    int status;

    crowd_open(&c, 3, 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    status = end_middle(&c, SIGKILL);
    assert_true(WIFSIGNALED(status));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(waitpid(c.notes->pids[r], &status, 0), c.notes->pids[r]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    left_no_child();
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    par_shm_close(&c.shm);
}

TEST(an_interrupt_ends_all_in_order)
{
    struct crowd c;

    crowd_open(&c, 3, 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(end_middle(&c, SIGINT), 0); /* to the whole group, as Ctrl-C does */
    for (int r = 0; r < 3; r++)
        assert_int_equal(c.notes->left_cleanly[r], 1);
    left_no_child();
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    par_shm_close(&c.shm);
}

static int hang(void *arg, int rank)
{
    (void)arg, (void)rank;
    pause();
    return OK;
}

TEST(who_does_not_listen_is_killed)
{
    struct par_ranks_opts o = {.n_ranks = 2, .fn = hang};
    struct par_ranks *p;

    assert_ok(par_ranks_open(&p, &o));
    assert_err(par_ranks_wait(p, 5), ERR_LIMIT, "2 ranks still run after 5 ms");
    par_ranks_close(&p);
    left_no_child();
    par_ranks_close(&p);
}

TEST(what_makes_no_sense_is_refused)
{
    struct par_ranks_opts o = {.n_ranks = 0, .fn = hang};
    struct par_ranks *p;

    assert_err(par_ranks_open(&p, &o), ERR_ARG, "0 ranks");
    o.n_ranks = PAR_RANKS_MAX + 1;
    assert_err(par_ranks_open(&p, &o), ERR_ARG, "expected 1 to");
    o.n_ranks = 1;
    o.first = 2;
    assert_err(par_ranks_open(&p, &o), ERR_ARG, "from 2");
    o.first = 0;
    mem_fail_after(0, 1);
    assert_int_equal(par_ranks_open(&p, &o), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_null(p);
    left_no_child();
}

static int sleep_until_killed(void *arg, int rank)
{
    (void)arg;
    (void)rank;
    pause();
    return OK;
}

static bool nothing_is_left(const struct par_ranks *p)
{
    left_no_child();
    left_no_shm();
    return !p;
}

TEST(a_thread_or_lock_cannot_be_had)
{
    struct par_ranks_opts o = {.n_ranks = 2, .first = 1, .fn = sleep_until_killed};
    struct par_ranks *p = NULL;

    assert_int_equal(test_thread_faults(par_ranks_open(&p, &o), nothing_is_left(p)), 5);
    par_ranks_close(&p);
    assert_true(nothing_is_left(p));
}
