#include "tests/support/test.h"

#include <math.h>

#include "make/make.h"
#include "plan/search.h"

/* An evaluator whose best configuration is known: this many threads per rank and ranks. */
static struct wish {
    int n_ranks[2], n_threads[2]; /* of enum topo_phase */
    enum topo_phase phase;
    int n_open, n_placed;
    const struct topo_config *placement;
    int n_pairs, n_steps;
    int pair_rc;
    int64_t n_rows_max;
    double slow_s;
} wish;

static int wish_measure(void *ctx, const struct topo_config *c, int repeat,
                        double *seconds)
{
    const struct wish *w = ctx;
    int p = (int)w->phase;

    (void)repeat;
    *seconds = 1 + 0.1 * abs(c->n_ranks - w->n_ranks[p]) +
               0.01 * abs(c->n_threads - w->n_threads[p]);
    return OK;
}

static int wish_open(struct plan_evaluation *out, const struct plan_evaluator_opts *o)
{
    if (o->workload->phase != o->phase || o->workload->n < 1)
        return err_set(ERR_ARG, "a workload of another phase");
    wish.phase = o->phase;
    wish.n_open++;
    wish.n_placed += o->placement != NULL;
    *out = (struct plan_evaluation){
        .measure = wish_measure, .ctx = &wish, .simulated = true};
    return OK;
}

static void wish_close(struct plan_evaluation *e)
{
    wish.n_open--;
    e->ctx = NULL;
}

static int wish_pair(struct plan_evaluation *e, const struct topo_config *prefill,
                     const struct topo_config *decode, int64_t *n_rows_max)
{
    struct wish *w = e->ctx;

    assert_ptr_not_equal(prefill, decode);
    w->n_pairs++;
    *n_rows_max = w->n_rows_max;
    return w->pair_rc == OK ? OK : err_set(w->pair_rc, "these two never");
}

/* Decode: 1 and 0.1 a row; prefill: 2, of slow_s; a trial in three is far off. */
static int wish_step(struct plan_evaluation *e, const struct plan_step *s, int repeat,
                     double *seconds)
{
    struct wish *w = e->ctx;

    (void)repeat;
    assert_int_equal(s->workload->n, 1);
    assert_true(s->workload->v[0].flop > 0);
    *seconds = w->slow_s * (s->phase == TOPO_DECODE ? 1 + 0.1 * (double)s->n_rows : 2);
    if (w->n_steps++ % 3 == 0 && w->n_steps > 0)
        *seconds *= 50;
    return OK;
}

static const struct plan_evaluator wishes = {.name = "wish",
                                             .evidence = "simulated",
                                             .open = wish_open,
                                             .close = wish_close,
                                             .pair = wish_pair,
                                             .step = wish_step};

static const int64_t prompt[] = {100}, output[] = {10};

/* Two memory nodes of 4 cores. */
static void opts(struct plan_search_opts *o, struct topo_machine **m,
                 struct model_config *c)
{
    assert_ok(topo_machine_open(m, "synthetic:numa:2 core:4 pu:1"));
    assert_ok(make_config("llama-160m", c));
    *o = (struct plan_search_opts){.evaluator = &wishes,
                                   .e = {.machine = *m},
                                   .model = c,
                                   .types = {KERN_BF16, KERN_KV_F32},
                                   .batch = 1};
    assert_ok(plan_trace_of(&o->trace, &(struct plan_lengths){prompt, output, 1}, 0));
    assert_ok(opt_init(plan_tree_search_opt_table, &o->search));
}

struct told {
    char what[128]; /* the parts in their order */
    int64_t n, n_decode, n_prefill;
};

static void on_progress(void *ctx, const struct plan_progress *p)
{
    struct told *t = ctx;

    if (!strstr(t->what, p->what)) {
        assert_int_equal(p->n_measurements, 0);
        strcat(t->what, p->what);
        t->n = 0;
    }
    assert_true(p->n_measurements >= t->n && p->elapsed_s >= 0);
    t->n = p->n_measurements;
    *(strcmp(p->what, "decode") ? &t->n_prefill : &t->n_decode) += t->n > 0;
}

/* Before every measurement, and as the steps of both phases begin.
 * Regression: `plan` computed for a minute without a word. */
TEST(test_progress)
{
    struct told told = {0};
    struct plan_search_opts o;
    struct topo_machine *m;
    struct model_config c;
    struct plan_search_result f;

    opts(&o, &m, &c);
    wish = (struct wish){
        .n_ranks = {1, 2}, .n_threads = {8, 3}, .n_rows_max = 1, .slow_s = 0x1p-16};
    o.progress = on_progress;
    o.progress_ctx = &told;
    assert_ok(plan_search(&f, &o));
    assert_string_equal(told.what, "decodeprefillsteps of both phases");
    assert_true(told.n_decode + 1 >= f.decode.counts.n_measurements);
    assert_true(told.n_prefill + 1 >= f.prefill.counts.n_measurements);
    plan_search_result_free(&f);
    topo_machine_close(&m);
}

TEST(test_both_phases)
{
    struct plan_search_opts o;
    struct topo_machine *m;
    struct model_config c;
    struct plan_search_result f;

    opts(&o, &m, &c);
    wish = (struct wish){
        .n_ranks = {1, 2}, .n_threads = {8, 3}, .n_rows_max = 1, .slow_s = 0x1p-16};
    assert_ok(plan_search(&f, &o));
    assert_int_equal(wish.n_open, 0);
    assert_int_equal(wish.n_placed, 1); /* prefill knows where decode put the weights */
    assert_int_equal(f.plan.decode.n_ranks, 2);
    assert_int_equal(f.plan.decode.n_threads, 3);
    assert_int_equal(f.plan.prefill.n_ranks, 1);
    assert_int_equal(f.plan.prefill.n_threads, 8);
    assert_int_equal(f.plan.n_cpus, 8);
    assert_memory_equal(f.plan.cpus, f.plan.decode.cpus, 6 * sizeof(int));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(f.plan.decode.cpus[i] / 4, i / 3);
        assert_int_equal(f.plan.decode.nodes[i], i / 3);
    }
    assert_true(fabs(f.plan.decode.expected_s - 1) < 1e-9);
    assert_string_equal(f.plan.evidence, "simulated");
    assert_non_null(strstr(f.plan.machine, "numa:2"));
    assert_non_null(strstr(f.plan.decode.why, "measurements"));
    assert_non_null(strstr(f.plan.decode.why, "remove("));
    plan_search_result_free(&f);
    plan_search_result_free(&f);
    topo_machine_close(&m);
}

/* The tables: powers of two up to what the evaluator allows, medians; none where both
 * phases are one, or cannot be run by one team; another error is the search's. */
TEST(test_costs)
{
    struct plan_search_opts o;
    struct topo_machine *m;
    struct model_config c;
    struct plan_search_result f;

    opts(&o, &m, &c);
    wish = (struct wish){
        .n_ranks = {1, 2}, .n_threads = {8, 3}, .n_rows_max = 100, .slow_s = 0x1p-16};
    assert_ok(plan_search(&f, &o));
    assert_int_equal(wish.n_pairs, 1);
    assert_int_equal(f.plan.decode.costs.n, 7);
    assert_int_equal(f.plan.prefill.costs.n, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(f.plan.decode.costs.rows[i], 1 << i);
        assert_int_equal(f.plan.prefill.costs.rows[i], 1 << i);
        assert_true(f.plan.decode.costs.seconds[i] == wish.slow_s * (1 + 0.1 * (1 << i)));
        assert_true(f.plan.prefill.costs.seconds[i] == wish.slow_s * 2);
    }
    plan_search_result_free(&f);

    wish.n_rows_max = 100000; /* more than anybody asks for */
    assert_ok(plan_search(&f, &o));
    assert_int_equal(f.plan.decode.costs.rows[f.plan.decode.costs.n - 1],
                     PLAN_STEP_ROWS_MAX);
    plan_search_result_free(&f);

    wish.slow_s = 0.25;      /* 4 rows take 0.35 s, 32 rows 1.05 s: that is long enough */
    wish.n_steps = -1000000; /* none is far off */
    assert_ok(plan_search(&f, &o));
    assert_int_equal(f.plan.prefill.costs.n, 6);
    assert_int_equal(f.plan.decode.costs.rows[5], 32);
    plan_search_result_free(&f);

    wish.pair_rc = ERR_UNSUPPORTED;
    assert_ok(plan_search(&f, &o));
    assert_int_equal(wish.n_pairs, 4);
    assert_int_equal(f.plan.decode.costs.n, 0);
    plan_search_result_free(&f);

    wish.pair_rc = ERR_IO;
    assert_err(plan_search(&f, &o), ERR_IO, "these two never");
    assert_int_equal(wish.n_open, 0);

    wish = (struct wish){.n_ranks = {1, 1}, .n_threads = {8, 8}};
    assert_ok(plan_search(&f, &o));
    assert_true(plan_is_one(&f.plan));
    assert_int_equal(wish.n_pairs, 0);
    assert_int_equal(f.plan.prefill.costs.n, 0);
    plan_search_result_free(&f);
    topo_machine_close(&m);
}

/* What one team shall run: decode on some of prefill's CPUs, though prefill would rather
 * have fewer. */
TEST(test_one_team)
{
    const struct cpu_budget budget = {.n = 8, .cpus = {0, 1, 2, 3, 4, 5, 6, 7}};
    struct plan_search_opts o;
    struct topo_machine *m;
    struct model_config c;
    struct plan_search_result f;

    opts(&o, &m, &c);
    wish = (struct wish){.n_ranks = {1, 1}, .n_threads = {2, 6}};
    assert_ok(plan_search(&f, &o)); /* without the condition */
    assert_int_equal(f.plan.prefill.n_threads, 2);
    assert_err(plan_runnable(&f.plan, &budget), ERR_UNSUPPORTED, "not one of prefill's");
    plan_search_result_free(&f);
    o.one_team = true;
    assert_ok(plan_search(&f, &o));
    assert_int_equal(f.plan.decode.n_threads, 6);
    assert_true(f.plan.prefill.n_threads >= 6);
    assert_ok(plan_runnable(&f.plan, &budget));
    plan_search_result_free(&f);
    topo_machine_close(&m);
}

/* The model's heads limit the ranks; an evaluator that cannot open ends the search. */
static int refuse_open(struct plan_evaluation *out, const struct plan_evaluator_opts *o)
{
    (void)out, (void)o;
    return err_set(ERR_IO, "no such machine today");
}

TEST(test_limits_and_errors)
{
    static const struct plan_evaluator refuses = {.open = refuse_open, .evidence = ""};
    struct plan_search_opts o;
    struct topo_machine *m;
    struct model_config c;
    struct plan_search_result f;

    opts(&o, &m, &c);
    wish = (struct wish){.n_ranks = {8, 8}, .n_threads = {1, 1}};
    o.strict_tp = true; /* 8 ranks do not divide 12 heads */
    assert_ok(plan_search(&f, &o));
    assert_int_equal(12 % f.plan.decode.n_ranks, 0);
    plan_search_result_free(&f);
    o.batch = 0;
    assert_err(plan_search(&f, &o), ERR_ARG, "batch");
    o.batch = 1;
    o.evaluator = &refuses;
    assert_err(plan_search(&f, &o), ERR_IO, "no such machine today");
    assert_null(f.fundamental);
    plan_search_result_free(&f);
    topo_machine_close(&m);
}

TEST(test_memory_short)
{
    struct plan_search_opts o;
    struct topo_machine *m;
    struct model_config c;
    struct plan_search_result f;
    int rc = ERR_NOMEM;
    long n;

    opts(&o, &m, &c);
    o.search.k = 2;
    o.search.group = false;
    wish = (struct wish){.n_ranks = {1, 2}, .n_threads = {4, 3}};
    for (n = 0; rc != OK && n < 3000; n++) {
        mem_fail_after(n, 1);
        rc = plan_search(&f, &o);
        mem_fail_after(-1, 0);
        if (rc != OK && rc != ERR_NOMEM)
            fail_msg("allocation %ld: %s", n, err_msg());
        assert_int_equal(wish.n_open, 0);
        plan_search_result_free(&f);
    }
    assert_true(n > 10 && n < 3000);
    topo_machine_close(&m);
}
