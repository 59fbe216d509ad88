/* tests/roles/machines.h - machines behind the engine's API, the answers of one engine, and those
 * of the machines. */
#ifndef TESTS_ROLES_MACHINES_H
#define TESTS_ROLES_MACHINES_H

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/router.h"
#include "cluster/transport.h"
#include "kernels/kv_type.h"
#include "roles/roles.h"
#include "tests/serve/handoff.h"
#include "tests/support/faults.h"
#include "tests/support/leftovers.h"
#include "tests/support/tiny_model.h"

#define N_REQUESTS 12

static int64_t budget_tok; /* 0: no limit */
static int kv_type;

static inline struct serve_opts engine_opts(void)
{
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)tiny_model(KERN_F32);
    o.pin = false;
    o.deterministic = true;
    o.max_tok = 64;
    o.max_seqs = 4;
    o.max_step_tok = 20;
    o.kv_type = kv_type;
    o.kv_budget_tok = budget_tok;
    assert_ok(opt_set(serve_opt_table, &o, "policy", "mixed", "test"));
    assert_ok(opt_set(serve_opt_table, &o, "kv_alloc", "paged", "test"));
    return o;
}

static inline void free_opts(struct serve_opts *o)
{
    o->model = NULL;
    opt_free(serve_opt_table, o);
}

static inline struct roles_opts roles_opts(const char *roles)
{
    struct roles_opts o;

    assert_ok(opt_init(roles_opt_table, &o));
    assert_ok(opt_set(roles_opt_table, &o, "roles", roles, "test"));
    return o;
}

static inline struct serve *open_roles(struct roles_opts *o)
{
    struct serve_opts so = engine_opts();
    struct serve *s;

    assert_ok(roles_open(&s, &so, o));
    opt_free(roles_opt_table, o);
    free_opts(&so);
    return s;
}

static inline void alone(struct pair_answer *want)
{
    struct serve_opts so = engine_opts();
    struct serve *s;

    assert_ok(serve_open(&s, &so));
    free_opts(&so);
    for (int i = 0; i < N_REQUESTS; i++)
        want[i] = pair_alone(s, i);
    serve_close(&s);
}

struct got {
    int32_t ids[PAIR_NEW_MAX];
    int n;
    enum serve_finish finish;
    int64_t id;
    char why[300]; /* it ended with SERVE_ERROR */
};

static inline void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                            enum serve_finish finish)
{
    struct got *g = ctx;

    (void)request;
    assert_null(logits);
    assert_int_equal(g->finish, SERVE_RUNNING);
    if (finish == SERVE_ERROR)
        snprintf(g->why, sizeof(g->why), "%.*s", (int)sizeof(g->why) - 1, err_msg());
    g->finish = finish;
    if (id >= 0)
        g->ids[g->n++] = id;
}

static uint64_t began_ns; /* the present wait */

/* The i-th request, or its first token only. */
static inline void submit(struct serve *s, int i, struct got *g, bool one)
{
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(i, serve_vocab(s), ids);

    *g = (struct got){.n = 0};
    began_ns = clock_ns();
    r.max_new = one ? 1 : r.max_new;
    r.on_token = on_token;
    r.ctx = g;
    assert_ok(serve_submit(s, &r, &g->id));
}

/* How many are. A test that hangs says so. */
static inline int n_running(const struct got *g)
{
    int n = 0;

    if (clock_ns() - began_ns > UINT64_C(30000000000))
        fail_msg("requests do not end");

    for (int i = 0; i < N_REQUESTS; i++)
        n += g[i].finish == SERVE_RUNNING;
    return n;
}

static inline void go_on(struct serve *s)
{
    bool busy;

    assert_ok(serve_step(s, &busy));
    if (!busy)
        serve_wait(s, 50000000);
}

/* What needs logits, or another request's answer, is not offered. */
static inline void check_refusals(struct serve *s)
{
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(0, serve_vocab(s), ids);
    int64_t id;
    json_t *d;

    r.on_token = on_token;
    r.n_scored = 2;
    assert_err(serve_submit(s, &r, &id), ERR_UNSUPPORTED, "2 prompt tokens scored");
    r.n_scored = 0;
    r.max_new = 1000;
    assert_err(serve_submit(s, &r, &id), ERR_LIMIT, "expected at most 64");
    assert_err(serve_describe(s, &d), ERR_UNSUPPORTED, "not described");
    assert_null(d);
}

/* No machine crashes on the way, or outlives it. */
static inline void close_soundly(struct serve **s)
{
    serve_close(s);
    assert_false(test_warned("machine_failed_at_close"));
    left_no_child();
}

/* No machine has memory any more, as far as it said, and what was computed is known. */
static inline void wait_for_memory(struct serve *s)
{
    struct serve_kv_stat kv;

    began_ns = clock_ns();
    for (;;) {
        go_on(s);
        serve_kv_stat(s, &kv);
        if (kv.pool_bytes > 0 && kv.reserved_bytes == 0 &&
            serve_totals_of(s, SERVE_PREFILL)->n_tok > 0 &&
            serve_totals_of(s, SERVE_DECODE)->n_tok > 0)
            return;
        if (clock_ns() - began_ns > UINT64_C(30000000000))
            fail_msg("%lld bytes stay reserved", (long long)kv.reserved_bytes);
    }
}

#endif
