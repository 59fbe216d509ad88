/* The pipeline from candidates to one tuned plan, with scripted tuning and replays: what is
 * kept, and that a run that was interrupted at any moment repeats nothing that was done. */
#include "tests/support/test.h"

#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "make/make.h"
#include "plan/pipeline.h"

#define MACHINES   "engine/simulate/machines"
#define CANDIDATES 3 /* 1, 2 and 4 ranks of eight cores, for 12 heads */

/* What the caller's functions do, and what they were asked. */
static struct script {
    double seconds[5][2]; /* of a replay by the number of ranks; with tuned schedules */
    double noise_frac;    /* by trial and alternative, the same in every run */
    bool tunes;           /* tuning finds schedules */
    int stop_after;       /* set `stop` in this call of any function, from 1; 0: never */
    int fail_after;       /* fail in this call */
    int n_calls, n_methods, n_tuned[5], n_replays[5][2], n_sizes;
} script;
static volatile sig_atomic_t stop;

static const int64_t prompt[] = {8, 33, 819}, output[] = {38, 285, 671};
static char state_path[600];

struct bed {
    struct topo_machine *machine;
    struct model_config model;
    char params[512];
    struct plan_search_opts search;
    json_t *key;
    struct plan_pipeline_opts o;
};

static int called(void)
{
    script.n_calls++;
    if (script.n_calls == script.stop_after)
        stop = 1;
    if (script.n_calls == script.fail_after)
        return err_set(ERR_IO, "scripted");
    return OK;
}

static int method_run(struct plan_search_result *out, const struct plan_search_opts *o)
{
    const struct plan_method *m;
    int rc = called();

    assert_ok(plan_method_find("vllmpp", &m));
    script.n_methods++;
    memset(out, 0, sizeof(*out));
    return rc == OK ? m->run(out, o) : rc;
}

static const struct plan_method method = {"scripted", "", method_run};

static int tune(void *ctx, struct plan *p, double budget_s)
{
    const struct kern_variant *v = kern_variants[0];
    const struct kern_schedule s = {
        .mr = 1, .np = 1, .bm = 1, .bn = 1, .bk = 16, .pm = 1, .pn = 1, .pk = 1};
    int rc = called();

    (void)ctx;
    assert_true(budget_s > 0);
    for (int i = 0; kern_variants[i]; i++)
        if (kern_variants[i]->op == KERN_GEMM_F32)
            v = kern_variants[i];
    if (rc != OK || !script.tunes)
        return rc;
    if (!p->schedules)
        rc = tune_cache_of_json(&p->schedules, NULL, "none");
    if (rc == OK)
        rc = tune_cache_use(p->schedules, p->cpus, 1);
    if (rc == OK)
        rc = tune_cache_put(p->schedules,
                            &(struct tune_shape){.v = v, .m = 1, .n = 64, .k = 32}, &s,
                            NULL);
    if (rc == OK && stop)
        return err_set(ERR_CANCELED, "interrupted"); /* as the tuner does */
    script.n_tuned[p->decode.n_ranks] += rc == OK;
    return rc;
}

static int replay_size(void *ctx, const struct plan *p, double budget_s)
{
    (void)ctx;
    assert_true(p->decode.expected_s > 0 && budget_s > 0);
    script.n_sizes++;
    return 4;
}

static int replay(void *ctx, struct plan *p, int size, double *seconds)
{
    bool tuned = p->schedules != NULL;
    int ranks = p->decode.n_ranks, *n = &script.n_replays[ranks][tuned];
    int rc = called();

    (void)ctx;
    assert_int_equal(size, 4);
    assert_true(ranks == 1 || ranks == 2 || ranks == 4);
    if (rc != OK)
        return rc;
    assert_true(p->decode.allreduce.n == 0 || *n > 0 ||
                script.n_replays[ranks][!tuned] > 0);
    if (ranks > 1)
        rc = par_choice_one(&p->decode.allreduce, "rank_shifted");
    *seconds = script.seconds[ranks][tuned] *
               (1 + script.noise_frac * ((*n * 5 + ranks * 3 + 2 * tuned) % 7 - 3) / 3);
    ++*n;
    return rc;
}

/* Two ranks with tuned schedules are the fastest, by a tenth. */
static const struct script usual = {
    .seconds = {[1] = {1.2, 1.1}, [2] = {1.1, 1}, [4] = {1.3, 1.25}},
    .noise_frac = 0.002,
    .tunes = true};

static struct bed bed;

static int bed_open(void **state)
{
    struct bed *b = &bed;

    (void)state;
    script = usual;
    snprintf(state_path, sizeof(state_path), "%s/plan.json.unfinished", test_dir());
    unlink(state_path);
    stop = 0;
    assert_ok(topo_machine_open(&b->machine, "synthetic:numa:2 core:4 pu:1"));
    snprintf(b->params, sizeof(b->params), "%s/params/xeon6230x2.json", MACHINES);
    assert_ok(make_config("llama-160m", &b->model));
    b->search = (struct plan_search_opts){
        .e = {.machine = b->machine, .machine_params_path = b->params},
        .model = &b->model,
        .types = {KERN_BF16, KERN_KV_F32},
        .batch = 1,
        .stop = &stop};
    assert_ok(plan_evaluator_find("contention", &b->search.evaluator));
    assert_ok(
        plan_trace_of(&b->search.trace, &(struct plan_lengths){prompt, output, 3}, 0));
    assert_ok(opt_init(plan_tree_search_opt_table, &b->search.search));
    b->key = json_pack("{s:s}", "model", "a");
    b->o = (struct plan_pipeline_opts){.method = &method,
                                       .search = &b->search,
                                       .top_k = CANDIDATES,
                                       .state_path = state_path,
                                       .key = b->key,
                                       .tune = tune,
                                       .replay_size = replay_size,
                                       .replay = replay,
                                       .clock = &measure_no_clock};
    return 0;
}

static int bed_close(void **state)
{
    (void)state;
    unlink(state_path);
    json_decref(bed.key);
    topo_machine_close(&bed.machine);
    return 0;
}

static void run(struct plan_pipeline_result *f)
{
    assert_ok(plan_pipeline(f, &bed.o));
    assert_int_equal(f->plan.n_tries, script.tunes ? 2 * CANDIDATES : CANDIDATES);
    assert_in_range(f->plan.chosen_try, 0, f->plan.n_tries - 1);
    assert_true(strlen(f->plan.why) > 10);
    for (int i = 0; i < f->plan.n_tries; i++) {
        assert_true(f->plan.tries[i].n > 0 && f->plan.tries[i].seconds > 0.9);
        assert_true(strstr(f->plan.tries[i].name, "both phases") != NULL);
    }
}

static void test_fastest(void **state)
{
    struct plan_pipeline_result f;

    (void)state;
    run(&f);
    assert_int_equal(f.plan.decode.n_ranks, 2);
    assert_non_null(f.plan.schedules);
    assert_true(f.plan.tries[f.plan.chosen_try].tuned);
    assert_non_null(strstr(f.plan.why, "the fastest"));
    assert_int_equal(f.plan.decode.allreduce.n, 1); /* as the engine chose it */
    assert_string_equal(f.plan.method, "vllmpp");
    assert_int_equal(f.n_known, 0);
    assert_non_null(f.explain);
    plan_pipeline_result_free(&f);
    plan_pipeline_result_free(&f);
    assert_int_equal(access(state_path, F_OK), 0);
    plan_pipeline_done(&bed.o);
    assert_int_equal(access(state_path, F_OK), -1);
}

/* What the fastest is not surely faster than counts as equal: fewer ranks, then default
 * schedules are kept. */
static void test_simplest(void **state)
{
    struct plan_pipeline_result f;

    (void)state;
    script.noise_frac = 0.05;
    script.seconds[1][0] = 1.004, script.seconds[1][1] = 1.002, script.seconds[2][1] = 1;
    run(&f);
    assert_int_equal(f.plan.decode.n_ranks, 1);
    assert_null(f.plan.schedules);
    assert_non_null(strstr(f.plan.why, "not surely"));
    plan_pipeline_result_free(&f);
}

static void test_nothing_tuned(void **state)
{
    struct plan_pipeline_result f;

    (void)state;
    script.tunes = false;
    run(&f);
    assert_int_equal(f.plan.decode.n_ranks, 2);
    assert_null(f.plan.schedules);
    plan_pipeline_result_free(&f);
    unlink(state_path);
    script = usual; /* one candidate that cannot be tuned: nothing to compare */
    script.tunes = false;
    bed.o.top_k = 1;
    assert_ok(plan_pipeline(&f, &bed.o));
    assert_int_equal(f.plan.n_tries, 1);
    assert_int_equal(script.n_sizes, 0);
    assert_non_null(strstr(f.plan.why, "only this one"));
    plan_pipeline_result_free(&f);
}

/* Interrupted in every call in turn: the next run does what is left, and both together do no
 * more than one run would, but for the schedules that were being tuned. */
static void test_interrupted(void **state)
{
    struct plan_pipeline_result whole, f;
    struct script once;

    (void)state;
    run(&whole);
    once = script;
    for (int k = 1; k < once.n_calls; k++) {
        int n_tuned = 0, rc;

        unlink(state_path);
        script = usual;
        script.stop_after = k;
        stop = 0;
        rc = plan_pipeline(&f, &bed.o);
        assert_int_equal(rc, ERR_CANCELED);
        assert_int_equal(access(state_path, F_OK), k > 1 ? 0 : -1);
        script.stop_after = stop = 0;
        assert_ok(plan_pipeline(&f, &bed.o));
        assert_int_equal(f.n_known > 0, k > 1);
        assert_int_equal(script.n_methods, k > 1 ? 1 : 2);
        for (int i = 0; i < 5; i++) {
            n_tuned += script.n_tuned[i];
            assert_int_equal(script.n_replays[i][0], once.n_replays[i][0]);
            assert_int_equal(script.n_replays[i][1], once.n_replays[i][1]);
        }
        assert_int_equal(n_tuned, CANDIDATES);
        assert_int_equal(f.plan.chosen_try, whole.plan.chosen_try);
        assert_string_equal(f.plan.why, whole.plan.why);
        for (int i = 0; i < f.plan.n_tries; i++)
            assert_true(f.plan.tries[i].seconds == whole.plan.tries[i].seconds);
        plan_pipeline_result_free(&f);
    }
    plan_pipeline_result_free(&whole);
}

/* Finished parts of other options, and files that are no such thing, are not used. */
static void test_other_state(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"version\":1}",
        "{\"key\":{\"model\":\"a\"}}",
        "{\"version\":1,\"key\":{\"model\":\"a\"},\"candidates\":[7],\"trials\":[],"
        "\"n_tuned\":0,\"replay_size\":1}",
        "{\"version\":1,\"key\":{\"model\":\"a\"},\"candidates\":[{\"version\":2,"
        "\"prefill\":{\"ranks\":[\"0\"]},\"decode\":{\"ranks\":[\"0\"]}}],"
        "\"trials\":[[9,1]],\"n_tuned\":0,\"replay_size\":1}"};
    struct plan_pipeline_result f;

    (void)state;
    run(&f);
    plan_pipeline_result_free(&f);
    json_object_set_new(bed.key, "model", json_string("b"));
    run(&f);
    assert_int_equal(script.n_methods, 2);
    assert_int_equal(f.n_known, 0);
    plan_pipeline_result_free(&f);
    json_object_set_new(bed.key, "model", json_string("a"));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        test_write(state_path, bad[i], strlen(bad[i]));
        script = usual;
        run(&f);
        assert_int_equal(script.n_methods, 1);
        assert_int_equal(f.n_known, 0);
        plan_pipeline_result_free(&f);
    }
}

static void test_errors(void **state)
{
    struct plan_pipeline_result f;
    struct script once;

    (void)state;
    run(&f);
    once = script;
    plan_pipeline_result_free(&f);
    for (int k = 1; k <= once.n_calls; k++) {
        unlink(state_path);
        script = usual;
        script.fail_after = k;
        assert_err(plan_pipeline(&f, &bed.o), ERR_IO, "scripted");
        assert_null(f.plan.schedules);
    }
    unlink(state_path);
    script = usual;
    script.seconds[2][0] = 0;
    assert_err(plan_pipeline(&f, &bed.o), ERR_ARG, "a replay of 0 s");
    bed.o.state_path = "/proc/no/such/folder/x";
    script = usual;
    assert_int_equal(plan_pipeline(&f, &bed.o), ERR_IO);
}

static void test_memory_short(void **state)
{
    struct plan_pipeline_result f;
    int rc = ERR_NOMEM;

    (void)state;
    bed.o.top_k = 2;
    for (long n = 0; rc != OK; n += 1 + n / 20) {
        unlink(state_path);
        script = usual;
        mem_fail_after(n, 1);
        rc = plan_pipeline(&f, &bed.o);
        mem_fail_after(-1, 0);
        if (rc != OK && rc != ERR_NOMEM)
            fail_msg("allocation %ld: %s", n, err_msg());
        plan_pipeline_result_free(&f);
        assert_true(n < 100000);
    }
}

#define BED_TEST(f) cmocka_unit_test_setup_teardown(f, bed_open, bed_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_TEST(test_fastest),       BED_TEST(test_simplest),
        BED_TEST(test_nothing_tuned), BED_TEST(test_interrupted),
        BED_TEST(test_other_state),   BED_TEST(test_errors),
        BED_TEST(test_memory_short),
    };

    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
