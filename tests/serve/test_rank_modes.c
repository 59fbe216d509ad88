/* Ranks as processes behind the public API: the tokens of ranks that are threads, with a plan
 * whose phases differ; described; and when one of them dies, at work or while nothing is
 * to be done, the engine says which and closes. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "plan/plan.h"
#include "serve/serve.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

#define N_SEQS   3
#define N_PROMPT 45 /* and 40 and 35: more rows than are decode's without a table */
#define N_NEW    12

static char plan_path[600];

/* Prefill by one rank of two threads, decode by two ranks of one; false: one CPU only. */
static bool write_plan(void)
{
    struct cpu_budget b;
    struct plan p;

    assert_ok(cpu_budget_get(&b));
    if (b.n < 2)
        return false;
    assert_ok(plan_default(&p, &b, 2));
    p.decode.n_ranks = 2;
    p.decode.n_threads = 1;
    snprintf(plan_path, sizeof(plan_path), "%s/plan.json", test_dir());
    assert_ok(plan_write(&p, plan_path));
    return true;
}

static struct serve *open_mode(int rank_mode, const char *alloc)
{
    struct serve_opts o;
    struct serve *s;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)tiny_model(KERN_F32);
    o.plan = plan_path;
    o.deterministic = true;
    o.max_seqs = N_SEQS;
    o.rank_mode = rank_mode;
    o.max_tok = 64;
    /* Too little is predicted, so that each request outgrows the memory that it gets first. */
    assert_ok(opt_set(serve_opt_table, &o, "kv_alloc", alloc, "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_predict", "constant", "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_predict_tok", "1", "test"));
    assert_ok(serve_open(&s, &o));
    o.model = o.plan = NULL;
    opt_free(serve_opt_table, &o);
    return s;
}

struct got {
    int32_t ids[N_NEW];
    int n;
    enum serve_finish finish;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct got *g = ctx;

    (void)request, (void)logits;
    g->finish = finish;
    if (id >= 0 && g->n < N_NEW)
        g->ids[g->n++] = id;
}

static int64_t submit(struct serve *s, int i, struct got *g)
{
    int32_t prompt[N_PROMPT];
    struct serve_request r = {.prompt = prompt,
                              .n_prompt = N_PROMPT - 5 * i,
                              .max_new = N_NEW,
                              .ignore_eos = true,
                              .sampling = {.top_p = 1},
                              .on_token = on_token,
                              .ctx = g};
    int64_t id;

    memset(g, 0, sizeof(*g));
    for (int k = 0; k < N_PROMPT; k++)
        prompt[k] = (i * 31 + k * 7) % serve_vocab(s);
    assert_ok(serve_submit(s, &r, &id));
    return id;
}

/* The process of a rank that describes itself; 0: ranks are threads. */
static pid_t process_of(struct serve *s, int rank)
{
    json_t *d, *thread;
    pid_t pid = 0;
    size_t i;

    assert_ok(serve_describe(s, &d));
    json_array_foreach(json_object_get(json_object_get(d, "placement"), "threads"), i,
                       thread)
    {
        if (json_integer_value(json_object_get(thread, "rank")) == rank)
            pid = (pid_t)json_integer_value(json_object_get(thread, "process"));
    }
    json_decref(d);
    return pid;
}

/* The ranks of a step wait for one another, if only for the step to reach them: in each phase
 * for a share of its time. */
static void waits_are_counted(struct serve *s)
{
    static const char *const phases[] = {"prefill", "decode"};
    json_t *d;

    assert_ok(serve_describe(s, &d));
    for (int i = 0; i < 2; i++) {
        const json_t *phase = json_object_get(json_object_get(d, "work"), phases[i]);
        double share = json_number_value(json_object_get(phase, "wait_frac"));

        assert_true(json_integer_value(json_object_get(phase, "n_steps")) > 0);
        assert_true(share > 0 && share <= 1);
    }
    json_decref(d);
}

TEST(same_tokens)
{
    struct got got[2][N_SEQS];

    if (!write_plan())
        test_skip("one CPU only");
    for (int mode = 0; mode < 2; mode++) {
        struct serve *s = open_mode(mode, "static");
        bool busy = true;

        for (int i = 0; i < N_SEQS; i++)
            submit(s, i, &got[mode][i]);
        while (busy)
            assert_ok(serve_step(s, &busy));
        assert_int_equal(process_of(s, 1) != 0, mode == SERVE_RANKS_PROCESSES);
        waits_are_counted(s);
        serve_close(&s);
        left_no_child();
        for (int i = 0; i < N_SEQS; i++) {
            assert_int_equal(got[mode][i].n, N_NEW);
            assert_int_equal(got[mode][i].finish, SERVE_LENGTH);
            assert_memory_equal(got[mode][i].ids, got[0][i].ids, sizeof(got[0][i].ids));
        }
    }
}

TEST(a_dead_rank_ends_the_steps)
{
    static const char *const allocs[] = {"static", "paged", "odma"};

    if (!write_plan())
        test_skip("one CPU only");
    for (int round = 0; round < 6; round++) {
        struct serve *s = open_mode(SERVE_RANKS_PROCESSES, allocs[round / 2]);
        int idle = round % 2;
        pid_t victim = process_of(s, 1);
        struct got got;
        bool busy = true;
        struct serve_kv_stat kv;
        int64_t request;
        int rc = OK;
        char says[80];

        assert_true(victim > 0 && victim != getpid());
        snprintf(says, sizeof(says), "rank 1 of 2 (process %d) was killed by SIGKILL",
                 (int)victim);
        request = submit(s, 0, &got);
        assert_ok(serve_step(s, &busy)); /* the prompt */
        assert_ok(serve_step(s, &busy));
        if (idle) {
            while (busy)
                assert_ok(serve_step(s, &busy));
            kill(victim, SIGKILL);
            serve_wait(s, UINT64_MAX); /* for ever, were it not for the rank */
            rc = serve_step(s, &busy);
        } else {
            kill(victim, SIGKILL);
            while (rc == OK) {
                rc = serve_step(s, &busy);
                if (!busy)
                    request = submit(s, 0, &got);
            }
        }
        assert_err(rc, ERR_STATE, says);
        serve_cancel(s, request);
        assert_err(serve_step(s, &busy), ERR_STATE, says);
        assert_false(busy); /* requests still end */
        assert_int_equal(got.finish, idle ? SERVE_LENGTH : SERVE_CANCELED);
        serve_kv_stat(s, &kv); /* and their memory comes back */
        assert_true(kv.used_bytes == 0 && kv.reserved_bytes == 0);
        request = submit(s, 0, &got);
        serve_close(&s);
        assert_int_equal(got.finish, SERVE_CANCELED);
        assert_int_equal(mem_used_bytes(MEM_KV), 0);
        left_no_child();
    }
}
