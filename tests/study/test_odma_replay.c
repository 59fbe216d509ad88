/* The replay of requests through the allocators of keys and values: every request is answered
 * whatever is predicted, limits of the design are other designs, and bounds follow a change
 * of the lengths. */
#include "experiments/study/support/kv_replay.h"
#include "tests/study/capture.h"

extern const struct study study_odma_replay;

#define N       1500
#define LONGEST 512

static struct study_kv_request requests[N];

/* Prompts and outputs of about `before` tokens, of about `after` from request `change` on. The
 * sum of the outputs. */
static int64_t make_requests(uint64_t seed, int64_t change, double before, double after)
{
    int64_t sum = 0;
    struct rng r;

    rng_init(&r, seed, "lengths");
    for (int i = 0; i < N; i++) {
        double typical = i < change ? before : after;
        double output = typical * exp(0.5 * rng_normal(&r));
        double prompt = typical * exp(0.5 * rng_normal(&r));

        requests[i].output_tok = (int64_t)fmin(1 + output, LONGEST / 2.0);
        requests[i].prompt_tok = (int64_t)fmin(1 + prompt, LONGEST / 2.0);
        sum += requests[i].output_tok;
    }
    return sum;
}

static struct study_kv_opts make_opts(const char *alloc, const char *predictor)
{
    struct study_kv_opts o = {
        .arena = {.n_tok = 16 * LONGEST,
                  .max_tok = LONGEST,
                  .align_tok = 16,
                  .block_tok = 16,
                  .max_seqs = 128,
                  .superblock_larges = 1,
                  .n_fixed = 10},
        .buckets = {.max_tok = LONGEST,
                    .align_tok = 16,
                    .window = 256,
                    .every = 64,
                    .of_total = true,
                    .n = 4,
                    .p = {0.5, 0.75, 0.9, 0.97}},
        .predict = {.max_tok = LONGEST, .constant_tok = 30, .sigma = 0.3, .seed = 3},
        .caution = {.alpha = 0.5, .tau = 0.8},
        .clients = 128,
        .patience = 8,
        .max_age = 100,
    };

    assert_ok(kv_alloc_find(alloc, &o.alloc));
    assert_ok(kv_predictor_find(predictor, &o.predictor));
    return o;
}

static const char *const allocs[] = {"static", "paged", "s3", "odma"};

/* Every token of every request, also where the predictor always says 1 or the most there is;
 * and the same again. */
static void every_request_is_answered(void **state)
{
    static const struct {
        const char *predictor;
        double constant_tok, sigma;
    } all[] = {
        {"oracle", 1, 0},   {"noisy", 1, 0.3},        {"noisy", 1, 3},
        {"constant", 1, 0}, {"constant", LONGEST, 0}, {"constant", 30, 0},
    };
    int64_t sum = make_requests(test_seed(), N / 2, 30, 90);

    (void)state;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 6; k++) {
            struct study_kv_opts o = make_opts(allocs[i], all[k].predictor);
            struct study_kv_result a, b;

            o.predict.constant_tok = all[k].constant_tok;
            o.predict.sigma = all[k].sigma;
            assert_ok(study_kv_replay(&a, &o, requests, N));
            assert_ok(study_kv_replay(&b, &o, requests, N));
            assert_memory_equal(&a, &b, sizeof(a));
            assert_int_equal(a.output_tok, sum);
            assert_true(a.loaded_tok <= sum && a.n_loaded_steps <= a.n_steps);
            assert_true(a.inner_sum > 0 && a.inner_sum <= (double)a.n_loaded_steps);
            assert_true(a.outer_sum <= a.inner_sum);
            assert_true(a.series.n > STUDY_KV_POINTS / 2);
            if (i < 2)
                assert_true(a.n_overflow == 0 && a.migrated_tok == 0);
            if (i == 0)
                assert_true(a.n_safe == N && a.n_preempted == 0 && a.waited_steps == 0);
            if (i == 1)
                assert_true(a.inner_sum > 0.75 * (double)a.n_loaded_steps);
            if (i > 1 && k == 0)
                assert_true(a.n_overflow == 0 && a.n_safe == N && a.n_preempted == 0);
            if (i > 1 && k == 3)
                assert_true(a.n_overflow > N / 10 && a.migrated_tok > 0);
        }
}

/* In an arena of one superblock nothing can be kept, and a sequence that outgrows its block
 * has nowhere to go but to begin again. */
static void one_superblock_is_enough(void **state)
{
    int64_t sum = make_requests(test_seed() + 1, N, 30, 30);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct study_kv_opts o = make_opts(allocs[i], "constant");
        struct study_kv_result a;

        o.predict.constant_tok = 1;
        o.arena.n_tok = LONGEST;
        assert_ok(study_kv_replay(&a, &o, requests, N));
        assert_int_equal(a.output_tok, sum);
    }
}

static void no_buckets_are_static(void **state)
{
    struct study_kv_opts o = make_opts("odma", "noisy"),
                         fixed = make_opts("static", "noisy");
    struct study_kv_result a, b;

    (void)state;
    make_requests(test_seed(), N / 2, 30, 90);
    o.buckets.n = 0;
    assert_ok(study_kv_replay(&a, &o, requests, N));
    assert_ok(study_kv_replay(&b, &fixed, requests, N));
    assert_true(a.n_epochs > 0 && b.n_epochs == 0);
    a.n_epochs = a.n_bucketed = a.n_in_bucket = 0;
    assert_memory_equal(&a, &b, sizeof(a));
}

/* Inner utilization of the last quarter of the run. */
static double late_utilization(const struct study_kv_result *r)
{
    double sum = 0;
    int n = r->series.n / 4;

    for (int i = r->series.n - n; i < r->series.n; i++)
        sum += r->series.inner[i] / n;
    return sum;
}

/* Lengths become a quarter of what they were. Bounds that are learned again use memory
 * about as well as if it had always been so, those learned once do not. */
static void bounds_follow_a_change(void **state)
{
    struct study_kv_opts o = make_opts("odma", "oracle");
    struct study_kv_result again, once, always;

    (void)state;
    make_requests(test_seed(), N, 30, 30);
    assert_ok(study_kv_replay(&always, &o, requests, N));
    make_requests(test_seed(), N / 3, 120, 30);
    assert_ok(study_kv_replay(&again, &o, requests, N));
    o.learn_once = true;
    assert_ok(study_kv_replay(&once, &o, requests, N));
    assert_int_equal(once.n_epochs, 1);
    assert_true(again.n_epochs > 10 && again.n_epochs <= N / 64);
    assert_true(late_utilization(&again) > late_utilization(&once) + 0.05);
    /* nearer to what there would have been without a change */
    assert_true(late_utilization(&always) - late_utilization(&again) <
                late_utilization(&again) - late_utilization(&once));
}

static void nobody_passes_the_limits(void **state)
{
    struct study_kv_opts o = make_opts("odma", "oracle");
    struct study_kv_result a;
    int rc = ERR_NOMEM;

    (void)state;
    make_requests(test_seed(), N, 30, 30);
    requests[7] = (struct study_kv_request){.prompt_tok = LONGEST, .output_tok = 1};
    assert_err(study_kv_replay(&a, &o, requests, N), ERR_LIMIT,
               "request 7 has 513 tokens, the longest is 512");
    requests[7].prompt_tok--;
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = study_kv_replay(&a, &o, requests, N);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
    }
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

static void a_cell_reports(void **state)
{
    (void)state;
    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 400, \"clients\": 64, \"fit\": "
                          "\"alpaca+sharegpt\", \"max_tok\": 1024, \"budget_seqs\": 8}"));
    assert_true(value_of("over_static") > 1);
    assert_true(value_of("utilization_outer") < value_of("utilization_inner"));
    assert_true(value_of("bucket_accuracy_frac") < value_of("safe_frac"));
    assert_true(value_of("n_epochs") >= 2);
    assert_int_equal(length_of("step"), length_of("utilization_inner_over_time"));
    assert_ok(capture_run(&study_odma_replay, "{\"n_requests\": 400, \"clients\": 64, "
                                              "\"alloc\": \"static\"}"));
    assert_true(value_of("over_static") == 1);
    assert_true(isnan(value_of("bucket_accuracy_frac")));
    assert_ok(capture_run(&study_odma_replay, "{\"n_requests\": 10}"));
    assert_true(isnan(value_of("tokens_per_step")));
    assert_err(capture_run(&study_odma_replay, "{\"alloc\": \"odam\"}"), ERR_NOTFOUND,
               "odma");
    assert_err(capture_run(&study_odma_replay, "{\"predictor\": \"oracel\"}"),
               ERR_NOTFOUND, "oracle");
    assert_err(capture_run(&study_odma_replay, "{\"fit\": \"alpacca+sharegpt\"}"),
               ERR_NOTFOUND, "alpaca");
    assert_err(capture_run(&study_odma_replay, "{\"quantiles\": \"0.5 x\"}"), ERR_ARG,
               "0.5 x");
    assert_err(capture_run(&study_odma_replay, "{\"quantiles\": \"0.9 0.5\"}"), ERR_ARG,
               "quantile 2");
    assert_err(capture_run(&study_odma_replay, "{\"max_tok\": 1000}"), ERR_ARG, "1000");
}

/* Real instructions: half of them to learn from, the other half replayed. With learned lengths
 * more of them fit the memory that they get first, which is used as well. */
static void conversations_are_learned_from(void **state)
{
    const char *path = test_need_data("alpaca/alpaca_sample_dev.json"),
               *tokenizer = test_need_data("tokenizers/ggml-vocab-llama-spm.gguf");
    double used[2], safe[2];
    char options[1024];

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof(options),
                 "{\"path\": \"%s\", \"tokenizer\": \"%s\", \"predictor\": \"%s\", "
                 "\"max_tok\": 1024, \"budget_seqs\": 8, \"clients\": 64, \"tau\": 1}",
                 path, tokenizer, i ? "learned" : "constant");
        assert_ok(capture_run(&study_odma_replay, options));
        used[i] = value_of("utilization_inner");
        safe[i] = value_of("safe_frac");
    }
    print_message("# inner utilization %.3f, learned %.3f; safe %.3f, %.3f\n", used[0],
                  used[1], safe[0], safe[1]);
    assert_true(safe[1] > safe[0] + 0.01);
    assert_true(used[1] > used[0] - 0.02); /* with as much memory */
    snprintf(options, sizeof(options), "{\"path\": \"%s\"}", path);
    assert_err(capture_run(&study_odma_replay, options), ERR_ARG, "study.tokenizer");
    assert_err(capture_run(&study_odma_replay, "{\"predictor\": \"learned\"}"), ERR_ARG,
               "nothing has been learned");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_answered),
        cmocka_unit_test(one_superblock_is_enough),
        cmocka_unit_test(no_buckets_are_static),
        cmocka_unit_test(bounds_follow_a_change),
        cmocka_unit_test(nobody_passes_the_limits),
        cmocka_unit_test(a_cell_reports),
        cmocka_unit_test(conversations_are_learned_from),
    };

    return cmocka_run_group_tests_name("study/odma_replay", tests, NULL, capture_end);
}
