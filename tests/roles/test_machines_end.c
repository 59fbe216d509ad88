/* Machines that end or stop, at any time: they are named and started again, and each request gets
 * the ids of one undisturbed engine, each once. */
#include <sys/types.h>

#include "tests/roles/machines.h"

static int children(pid_t of, pid_t pids[8])
{
    char path[64];
    int n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)of, (int)of);
    f = fopen(path, "r");
    assert_non_null(f);
    while (n < 8 && fscanf(f, "%d", &pids[n]) == 1)
        n++;
    fclose(f);
    return n;
}

/* The process of a machine ("prompt 1"), a child of the one that starts them; 0: it has none. */
static pid_t machine(const char *name)
{
    pid_t starter[8], pids[8];
    int n;

    assert_int_equal(children(getpid(), starter), 1);
    n = children(starter[0], pids);
    for (int i = 0; i < n; i++) {
        char path[64], comm[32] = "";
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pids[i]);
        f = fopen(path, "r");
        if (!f)
            continue;
        if (fgets(comm, sizeof(comm), f))
            comm[strcspn(comm, "\n")] = 0;
        fclose(f);
        if (strcmp(comm, name) == 0)
            return pids[i];
    }
    return 0;
}

static const struct end {
    int sig;
    const char *name, *says;
} ends[] = {
    {SIGKILL, "prompt 1", "prompt machine 1 of %d (process %d) was killed by SIGKILL"},
    {SIGKILL, "token 1", "token machine 1 of %d (process %d) was killed by SIGKILL"},
    {SIGSTOP, "prompt 1", "prompt machine 1 of %d (process %d) was stopped by SIGSTOP"},
    {SIGSTOP, "token 1", "token machine 1 of %d (process %d) was stopped by SIGSTOP"}};

static void says(const struct end *e, pid_t pid, int n, char text[120])
{
    snprintf(text, 120, e->says, n, (int)pid);
}

static void check_all(const struct got *g, const struct pair_answer *want)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        if (g[i].finish != SERVE_LENGTH)
            fail_msg("request %d ended with %d: %s", i, g[i].finish, g[i].why);
        assert_int_equal(g[i].n, want[i].n);
        assert_memory_equal(g[i].ids, want[i].ids, (size_t)g[i].n * sizeof(g[i].ids[0]));
    }
}

static int step_until_error(struct serve *s)
{
    uint64_t t0 = clock_ns();
    bool busy;
    int rc = OK;

    while (rc == OK && clock_ns() - t0 < UINT64_C(20000000000)) {
        rc = serve_step(s, &busy);
        if (rc == OK && !busy)
            serve_wait(s, 50000000);
    }
    return rc;
}

/* Not to be started again: the other machine computes all. When it ends too, requests end with an
 * error that names it, and so do all steps. */
TEST(the_last_machine_is_named)
{
    struct pair_answer want[N_REQUESTS];

    alone(want);
    for (int k = 0; k < 8; k++) {
        const struct end *e = &ends[k % 4], *last = &ends[k % 4 ^ 1];
        struct roles_opts o = roles_opts("prompt=1,token=1");
        int32_t ids[PAIR_PROMPT_MAX];
        struct serve_request r;
        struct got g[N_REQUESTS];
        struct serve *s;
        bool busy, idle = k >= 4;
        char text[120];
        int64_t id;
        pid_t pid;

        o.restarts = 0;
        s = open_roles(&o);
        for (int i = 0; i < N_REQUESTS; i++)
            submit(s, i, &g[i], false);
        for (int i = 0; i < 5; i++)
            go_on(s);
        assert_true(machine(e->name) > 0);
        kill(machine(e->name), e->sig);
        while (n_running(g) > 0)
            go_on(s);
        check_all(g, want);
        for (int i = 0; i < N_REQUESTS; i++)
            if (!idle)
                submit(s, i, &g[i], false);
        pid = machine(last->name);
        says(last, pid, 1, text);
        kill(pid, last->sig);
        assert_err(step_until_error(s), ERR_STATE, text);
        for (int i = 0; i < N_REQUESTS && !idle; i++)
            assert_true(g[i].finish == SERVE_LENGTH || g[i].finish == SERVE_ERROR);
        assert_err(serve_step(s, &busy), ERR_STATE, text);
        r = pair_request(0, serve_vocab(s), ids);
        r.on_token = on_token;
        assert_err(serve_submit(s, &r, &id), ERR_STATE, text);
        serve_close(&s);
        left_no_child();
    }
}

static bool warned_of(const char *code, const char *text)
{
    struct log_warning w[256];
    int n = log_warnings_take(w, 256);
    bool any = false;

    for (int i = 0; i < n; i++)
        any = any || (strcmp(w[i].code, code) == 0 && strstr(w[i].text, text));
    return any;
}

/* Machines end at any time: each request gets the ids of one undisturbed engine, each once. */
TEST(machines_end_and_are_started_again)
{
    static const char *const kinds[] = {"prompt=1,token=1", "prompt=2,token=2",
                                        "prompt=1,token=2", "prompt=2,token=1"};
    static const char *const names[] = {"shm", "socket", "map"};
    struct pair_answer want[N_REQUESTS];
    struct rng r;

    alone(want);
    rng_init(&r, test_seed(), "ends");
    for (int round = 0; round < 16; round++) {
        const struct end *e = &ends[round % 4];
        struct roles_opts o = roles_opts(kinds[round / 4]);
        int at = (int)rng_below(&r, 60);
        struct got g[N_REQUESTS];
        struct serve *s;
        char text[120];
        pid_t pid;

        assert_ok(
            opt_set(roles_opt_table, &o, "transport", names[rng_below(&r, 3)], "test"));
        o.transfer = (int)rng_below(&r, 3);
        s = open_roles(&o);
        pid = machine(e->name);
        assert_true(pid > 0);
        says(e, pid,
             e->name[0] == 'p' ? kinds[round / 4][7] - '0' : kinds[round / 4][15] - '0',
             text);
        (void)warned_of("", "");
        for (int i = 0; i < N_REQUESTS; i++)
            submit(s, i, &g[i], false);
        for (int i = 0; i < at; i++)
            go_on(s);
        kill(pid, e->sig);
        while (n_running(g) > 0)
            go_on(s);
        check_all(g, want);
        began_ns = clock_ns();
        while (machine(e->name) == pid || machine(e->name) == 0) {
            go_on(s);
            if (clock_ns() - began_ns > UINT64_C(30000000000))
                fail_msg("%s is not started again", e->name);
        }
        assert_true(warned_of("machine_ended", text));
        for (int i = 0; i < N_REQUESTS; i++)
            submit(s, i, &g[i], false);
        while (n_running(g) > 0)
            go_on(s);
        check_all(g, want);
        wait_for_memory(s);
        close_soundly(&s);
    }
}
