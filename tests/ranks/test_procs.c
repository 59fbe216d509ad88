/* Ranks as processes: the same answers as ranks that are teams, to the last bit where the
 * model is deterministic, over the same pages of weights; a rank that dies or stops in
 * prefill, in decode or between steps is named, and nothing is left of any of them. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "placement/open.h"
#include "ranks/procs.h"
#include "tests/support/leftovers.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

static const int degrees[] = {1, 2, 3, 4, 6, 8};
#define N_DEGREES ((int)(sizeof(degrees) / sizeof(degrees[0])))
#define TEAM      16
#define N_ROUNDS  50

static struct model_opts shared_opts(bool deterministic)
{
    struct model_opts o = step_model_opts();

    o.shared = true;
    o.deterministic = deterministic;
    return o;
}

/* ---- answers ---- */

/* Every step by another degree than the one before: ranks come and go. */
TEST(same_answers)
{
    const struct model_opts o = shared_opts(false);

    for (int t = 0; t < step_n_traits; t++) {
        struct step_model x;

        step_model_open(&x, &step_traits[t], &o, TEAM);
        for (int i = 0; i < 2 * N_DEGREES; i++)
            step_model_phase(&x, degrees[i / 2], 1 + i % 2);
        step_model_multiprocess(&x);
        assert_int_equal(model_procs_n(x.model), 8);
        for (int i = 0; i < 3; i++)
            step_model_run(&x, 1 + 3 * i, o.max_step_tok, 1e-4, test_seed() + (uint64_t)i,
                           step_traits[t].name);
        step_model_close(&x);
        left_no_child();
    }
}

/* The bits of one team, one token at a time, are those of any number of processes, with any
 * allocator and type of keys and values. */
TEST(same_bits)
{
    struct model_opts o = shared_opts(true);

    for (int t = 0; t < step_n_traits; t++) {
        int heads = step_traits[t].n_heads;
        struct step_model x;

        o.kv_type = t % 2 ? KERN_KV_Q8 : KERN_KV_F32;
        step_model_open(&x, &step_traits[t], &o, TEAM);
        for (int i = 0; i < 2 * N_DEGREES; i++)
            if (degrees[i / 2] <= heads)
                step_model_phase(&x, degrees[i / 2], 1 + i % 2);
        step_model_keep_bits(&x);
        step_model_kv(&x, test_kv_alloc((uint64_t)t), true);
        step_model_multiprocess(&x);
        for (int i = 0; i < 3; i++)
            step_model_run(&x, 1 + 3 * i, o.max_step_tok, t % 2 ? STEP_MODEL_Q8_KV : 1e-4,
                           test_seed() + (uint64_t)i, step_traits[t].name);
        step_model_close(&x);
    }
}

/* ---- the same pages ---- */

/* kB of a mapping that no other process has; -1: no such mapping. */
static long private_kb(pid_t pid, const void *at)
{
    char path[64], line[512];
    bool here = false;
    long kb = -1, v;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        uintptr_t lo, hi;

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &lo, &hi) == 2) {
            here = (uintptr_t)at >= lo && (uintptr_t)at < hi;
            kb = here ? 0 : kb;
        } else if (here && sscanf(line, "Private_%*[a-zA-Z]: %ld kB", &v) == 1) {
            kb += v;
        }
    }
    if (f)
        fclose(f);
    return kb;
}

TEST(nobody_has_weights_of_his_own)
{
    const struct model_opts o = shared_opts(false);
    const void *weights;
    struct step_model x;
    size_t bytes;

    step_model_open(&x, &step_traits[0], &o, 4);
    step_model_phase(&x, 1, 2);
    step_model_phase(&x, 3, 1);
    step_model_multiprocess(&x);
    step_model_run(&x, 4, o.max_step_tok, 1e-4, test_seed(), step_traits[0].name);
    model_weights_region(x.model, &weights, &bytes);
    if (private_kb(getpid(), weights) < 0)
        test_skip("no /proc/self/smaps here");
    for (int r = 0; r < 3; r++)
        assert_int_equal(private_kb(model_procs_pid(x.model, r), weights), 0);
    for (int i = 0; i < x.n_phases; i++)
        assert_int_equal(model_phase_moved_bytes(x.phases[0], x.phases[i]), 0);
    step_model_close(&x);
}

/* ---- a rank fails ---- */

enum moment { PREFILL, DECODE, IDLE, N_MOMENTS };
static const char *const moments[] = {"prefill", "decode", "idle"};

static const struct {
    int sig;
    const char *says;
} signals[] = {{SIGKILL, "was killed by SIGKILL"},
               {SIGSTOP, "was stopped by SIGSTOP"},
               {SIGSEGV, "was killed by SIGSEGV"}};

struct hit {
    pid_t pid;
    int sig;
    struct timespec after;
    _Atomic uint64_t at_ns;
};

static void *hit_later(void *arg)
{
    struct hit *h = arg;

    nanosleep(&h->after, NULL);
    atomic_store(&h->at_ns, clock_ns());
    kill(h->pid, h->sig);
    return NULL;
}

/* Steps of one kind until one fails; of none, until model_procs_check() says so. */
static int step_until(struct step_model *x, enum moment moment)
{
    int64_t n_tok = moment == PREFILL ? STEP_MODEL_TOK : 1;
    float *logits = mem_new(MEM_TEST, (size_t)x->vocab, sizeof(*logits));
    struct kv_slot kv;
    int rc = OK;

    assert_non_null(logits);
    test_kv_reserve(x->pool, STEP_MODEL_TOK, &kv);
    for (int64_t i = 0; rc == OK; i = (i + n_tok) % STEP_MODEL_TOK) {
        const struct model_chunk c = {.kv = &kv,
                                      .ids = x->ids[0] + i,
                                      .n_tok = n_tok,
                                      .pos0 = i,
                                      .want_logits = true};

        if (moment != IDLE)
            rc = model_forward(x->phases[0], &c, 1, logits);
        else if ((rc = model_procs_check(x->model)) == OK)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kv_release(x->pool, &kv);
    mem_free(logits);
    return rc;
}

/* Returns how long it took until the victim was named. */
static uint64_t hit_one(struct rng *g, int round)
{
    const struct model_opts o = shared_opts(rng_below(g, 2));
    enum moment moment = (enum moment)(round / 3 % N_MOMENTS);
    int which = round % 3, n_ranks = 2 + (int)rng_below(g, 3);
    int victim = 1 + (int)rng_below(g, (uint64_t)n_ranks - 1);
    struct hit h = {.sig = signals[which].sig,
                    .after = {.tv_nsec = (long)rng_below(g, 6000000)}};
    struct step_model x;
    void (*was)(int);
    pthread_t t;
    char says[160];

    step_model_open(&x, &step_traits[0], &o, 2 * n_ranks);
    step_model_phase(&x, n_ranks, 1 + (int)rng_below(g, 2));
    was = signal(SIGSEGV, SIG_DFL); /* the ranks would inherit cmocka's */
    step_model_multiprocess(&x);
    signal(SIGSEGV, was);
    h.pid = model_procs_pid(x.model, victim);
    snprintf(says, sizeof(says), "rank %d of %d (process %d) %s", victim, n_ranks,
             (int)h.pid, signals[which].says);
    assert_int_equal(pthread_create(&t, NULL, hit_later, &h), 0);
    assert_err(step_until(&x, moment), ERR_STATE, says);
    h.at_ns = clock_ns() - h.at_ns;
    pthread_join(t, NULL);
    /* and no step after it begins */
    assert_err(step_until(&x, DECODE), ERR_STATE, says);
    step_model_close(&x);
    left_no_child();
    return h.at_ns;
}

TEST(who_dies_or_stops_is_named)
{
    int n_fds = left_fds();
    uint64_t slowest[N_MOMENTS] = {0};
    struct rng g;

    rng_init(&g, test_seed(), "moments");
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t ns = hit_one(&g, round), *most = &slowest[round / 3 % N_MOMENTS];

        *most = ns > *most ? ns : *most;
    }
    for (int i = 0; i < N_MOMENTS; i++)
        printf("# in %s: named after %.0f ms at most\n", moments[i],
               (double)slowest[i] / 1e6);
    assert_int_equal(left_fds(), n_fds);
    left_no_shm();
}

static atomic_int n_told;

static void tell(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

TEST(the_failure_is_told_once)
{
    const struct model_opts o = shared_opts(false);
    struct model_procs_opts po = {
        .n_phases = 1, .max_chunks = STEP_MODEL_SEQS, .on_fail = tell, .ctx = &n_told};
    struct step_model x;

    for (int hit = 0; hit < 2; hit++) {
        n_told = 0;
        step_model_open(&x, &step_traits[0], &o, 3);
        step_model_phase(&x, 3, 1);
        par_team_close(&x.team);
        po.phases = x.phases;
        assert_ok(model_procs_open(x.model, &po));
        if (hit) {
            kill(model_procs_pid(x.model, 2), SIGKILL);
            kill(model_procs_pid(x.model, 1), SIGSTOP);
            while (!n_told)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        }
        step_model_close(&x);
        assert_int_equal(n_told, hit);
        left_no_child();
    }
}

/* ---- rank 0 fails: it is the program ---- */

/* Opens ranks, says who they are, steps until it ends; does not return. */
static void program_main(int fd)
{
    const struct model_opts o = shared_opts(false);
    struct step_model x;

    step_model_open(&x, &step_traits[0], &o, 3);
    step_model_phase(&x, 3, 1);
    step_model_multiprocess(&x);
    for (int r = 1; r < 3; r++) {
        pid_t pid = model_procs_pid(x.model, r);

        if (write(fd, &pid, sizeof(pid)) != sizeof(pid))
            _exit(3);
    }
    step_until(&x, DECODE);
    _exit(4);
}

static bool alive(pid_t pid)
{
    char path[64], state = 'Z';
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    if (f)
        fclose(f);
    return f && state != 'Z'; /* nobody may be there to wait for it */
}

TEST(ranks_end_with_the_program)
{
    pid_t pid, ranks[2];
    int fds[2], status;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        program_main(fds[1]);
    assert_int_equal(read(fds[0], &ranks[0], sizeof(pid_t)), sizeof(pid_t));
    assert_int_equal(read(fds[0], &ranks[1], sizeof(pid_t)), sizeof(pid_t));
    assert_true(alive(ranks[0]) && alive(ranks[1]));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (alive(ranks[0]) || alive(ranks[1])) /* a hang here is the failure */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    close(fds[0]);
    close(fds[1]);
}

/* ---- between steps ---- */

static uint64_t cpu_ns(pid_t pid)
{
    struct timespec t = {0};
    clockid_t clock;

    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A rank that a phase does not use, and every rank between steps, sleeps sooner or later: less
 * than 1 % of a CPU, whatever else runs here. One that spins on never does. */
TEST(parked_ranks_sleep)
{
    const struct model_opts o = shared_opts(false);
    struct step_model x;

    step_model_open(&x, &step_traits[0], &o, 4);
    step_model_phase(&x, 4, 1);
    step_model_multiprocess(&x);
    step_model_run(&x, 4, o.max_step_tok, 1e-4, test_seed(), step_traits[0].name);
    for (int r = 1, n = 0; r < 4; n++) {
        uint64_t start = clock_ns(), before = cpu_ns(model_procs_pid(x.model, r));
        double frac;

        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        frac = (double)(cpu_ns(model_procs_pid(x.model, r)) - before) /
               (double)(clock_ns() - start);
        r += frac < 0.01;
        if (n == 50)
            fail_msg("rank %d still takes %.2f %% of a CPU", r, 100 * frac);
    }
    step_model_close(&x);
}

/* ---- what makes no sense ---- */

TEST(the_order_is_kept)
{
    struct model_procs_opts po = {.n_phases = 1, .max_chunks = 1};
    const struct model_phase_opts ph = {.n_ranks = 1, .n_threads = 1};
    struct model_opts o = step_model_opts();
    struct model_chunk two[2];
    struct model_phase *more;
    struct kv_slot kv;
    struct step_model x;
    float logits[2];

    step_model_open(&x, &step_traits[0], &o, 2);
    step_model_phase(&x, 2, 1);
    po.phases = x.phases;
    assert_err(model_procs_open(x.model, &po), ERR_STATE, "not opened for ranks");
    step_model_close(&x);

    o.shared = true;
    step_model_open(&x, &step_traits[0], &o, 2);
    step_model_phase(&x, 2, 1);
    assert_int_equal(model_procs_n(x.model), 0);
    assert_ok(model_procs_check(x.model));
    par_team_close(&x.team);
    assert_ok(model_procs_open(x.model, &po));
    assert_err(model_procs_open(x.model, &po), ERR_STATE, "already");
    assert_err(model_phase_open(&more, x.model, &ph), ERR_STATE, "do not know");
    test_kv_reserve(x.pool, 4, &kv);
    for (int i = 0; i < 2; i++)
        two[i] = (struct model_chunk){.kv = &kv, .ids = x.ids[0], .n_tok = 1, .pos0 = i};
    assert_err(model_forward(x.phases[0], two, 2, logits), ERR_ARG, "at most 1");
    assert_ok(model_forward(x.phases[0], two, 1, logits));
    step_model_close(&x);
    left_no_child();
}

/* Memory runs out at every allocation of the opening in turn: an error, and nothing
 * left. */
TEST(opening_fails_cleanly)
{
    const struct model_opts o = shared_opts(false);
    struct model_procs_opts po = {.n_phases = 1, .max_chunks = 1};
    bool opened = false;

    for (long n = 0; !opened; n++) {
        struct step_model x;
        int rc;

        step_model_open(&x, &step_traits[0], &o, 2);
        step_model_phase(&x, 2, 1);
        po.phases = x.phases;
        par_team_close(&x.team);
        mem_fail_after(n, 1);
        rc = model_procs_open(x.model, &po);
        mem_fail_after(-1, 0);
        opened = rc == OK;
        if (!opened)
            assert_true(rc == ERR_NOMEM || rc == ERR_STATE);
        step_model_close(&x);
        left_no_child();
    }
}
