/* The replay of requests through the allocators of keys and values: every request is answered
 * whatever is predicted, limits of the design are other designs, and bounds follow a change
 * of the lengths. */
#include "experiments/study/support/kv_replay.h"
#include "tests/study/capture.h"

extern const struct study study_odma_replay;

#define N       1500
#define LONGEST 512

static struct kv_example requests[N];
static struct kv_outcome outcomes[N];

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
                  .keep_frac = 0.02,
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
        .co_batch = true,
        .migrate = true,
        .clients = 128,
        .patience = 8,
        .max_age = 100,
        .max_step_tok = INT64_MAX,
    };

    assert_ok(sched_policy_find("chunked", &o.policy));
    assert_ok(kv_alloc_find(alloc, &o.alloc));
    assert_ok(kv_predictor_find(predictor, &o.predictor));
    return o;
}

/* Requests of the last replay that outgrew the memory that they got first. */
static int64_t n_outgrown(void)
{
    int64_t n = 0;

    for (int i = 0; i < N; i++)
        n += outcomes[i].prompt_tok + outcomes[i].output_tok > outcomes[i].first_tok;
    return n;
}

static const char *const allocs[] = {"static", "paged", "s3", "odma", "odma_paper"};

/* Every token of every request, also where the predictor always says 1 or the most there is;
 * and the same again. */
TEST(every_request_is_answered)
{
    static const struct {
        const char *predictor;
        double constant_tok, sigma;
    } all[] = {
        {"oracle", 1, 0},   {"noisy", 1, 0.3},        {"noisy", 1, 3},
        {"constant", 1, 0}, {"constant", LONGEST, 0}, {"constant", 30, 0},
    };
    int64_t sum = make_requests(test_seed(), N / 2, 30, 90);

    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 6; k++) {
            struct study_kv_opts o = make_opts(allocs[i], all[k].predictor);
            struct study_kv_result a, b;

            o.arena.large_frac = i == 4 ? 0.125 : 0;
            o.predict.constant_tok = all[k].constant_tok;
            o.predict.sigma = all[k].sigma;
            assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
            assert_ok(study_kv_replay(&b, &o, requests, N, outcomes));
            assert_memory_equal(&a, &b, sizeof(a));
            assert_int_equal(a.output_tok, sum);
            assert_true(a.loaded_tok <= sum && a.n_loaded_steps <= a.n_steps);
            assert_true(a.inner_sum > 0 && a.inner_sum <= (double)a.n_loaded_steps);
            assert_true(a.outer_sum <= a.inner_sum);
            assert_true(a.inner.n > SERIES_POINTS / 2);
            if (i < 2)
                assert_true(a.n_overflow == 0 && a.migrated_tok == 0);
            if (i == 0)
                assert_true(n_outgrown() == 0 && a.n_preempted == 0 &&
                            a.waited_steps == 0);
            if (i == 1)
                assert_true(a.inner_sum > 0.75 * (double)a.n_loaded_steps);
            if (i > 1 && k == 0)
                assert_true(a.n_overflow == 0 && n_outgrown() == 0 && a.n_preempted == 0);
            if (i > 1 && a.n_preempted == 0)
                assert_int_equal(a.n_overflow, n_outgrown());
            if (i > 1 && k == 3)
                assert_true(a.n_overflow > N / 10 && a.migrated_tok > 0);
        }
}

/* In an arena of one sequence, one that outgrows its memory has nowhere to go but to begin
 * again. */
TEST(memory_for_one_is_enough)
{
    int64_t sum = make_requests(test_seed() + 1, N, 30, 30);

    for (int i = 0; i < 5; i++) {
        struct study_kv_opts o = make_opts(allocs[i], "constant");
        struct study_kv_result a;

        o.predict.constant_tok = 1;
        o.arena.n_tok = LONGEST;
        assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
        assert_int_equal(a.output_tok, sum);
    }
}

TEST(no_buckets_are_static)
{
    struct study_kv_opts o = make_opts("odma", "noisy"),
                         fixed = make_opts("static", "noisy");
    struct study_kv_result a, b;

    make_requests(test_seed(), N / 2, 30, 90);
    o.buckets.n = 0;
    assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
    assert_ok(study_kv_replay(&b, &fixed, requests, N, outcomes));
    assert_true(a.n_epochs > 0 && b.n_epochs == 0);
    a.n_epochs = 0;
    assert_memory_equal(&a, &b, sizeof(a));
}

/* Inner utilization of the last quarter of the run. */
static double late_utilization(const struct study_kv_result *r)
{
    double sum = 0;
    int n = r->inner.n / 4;

    for (int i = r->inner.n - n; i < r->inner.n; i++)
        sum += r->inner.mean[i] / n;
    return sum;
}

/* Lengths become a quarter of what they were. Bounds that are learned again use memory
 * about as well as if it had always been so, those learned once do not. */
TEST(bounds_follow_a_change)
{
    struct study_kv_opts o = make_opts("odma", "oracle");
    struct study_kv_result again, once, always;

    make_requests(test_seed(), N, 30, 30);
    assert_ok(study_kv_replay(&always, &o, requests, N, outcomes));
    make_requests(test_seed(), N / 3, 120, 30);
    assert_ok(study_kv_replay(&again, &o, requests, N, outcomes));
    o.bounds = STUDY_KV_ONCE;
    assert_ok(study_kv_replay(&once, &o, requests, N, outcomes));
    assert_int_equal(once.n_epochs, 1);
    assert_true(again.n_epochs > 10 && again.n_epochs <= N / 64);
    assert_true(late_utilization(&again) > late_utilization(&once) + 0.05);
    /* nearer to what there would have been without a change */
    assert_true(late_utilization(&always) - late_utilization(&again) <
                late_utilization(&again) - late_utilization(&once));
}

TEST(nobody_passes_the_limits)
{
    struct study_kv_opts o = make_opts("odma", "oracle");
    struct study_kv_result a;
    int rc = ERR_NOMEM;

    make_requests(test_seed(), N, 30, 30);
    requests[7] = (struct kv_example){.prompt_tok = LONGEST, .output_tok = 1};
    assert_err(study_kv_replay(&a, &o, requests, N, outcomes), ERR_LIMIT,
               "request 7 has 513 tokens, the longest is 512");
    requests[7].prompt_tok--;
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = study_kv_replay(&a, &o, requests, N, outcomes);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
    }
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* What parts of the design are worth: with any of them missing every request is answered, and
 * what is missing does not happen. */
TEST(parts_can_be_left_out)
{
    int64_t sum = make_requests(test_seed(), N / 2, 30, 90);
    struct study_kv_opts o = make_opts("odma", "noisy"), all = o;
    struct study_kv_result a;

    o.migrate = false;
    assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
    assert_true(a.output_tok == sum && a.migrated_tok == 0 && a.n_moved == 0);
    assert_true(a.n_preempted > 0 && a.recomputed_tok > 0);
    o = all;
    o.co_batch = false;
    assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
    assert_int_equal(a.output_tok, sum);
    o = all;
    o.bounds = STUDY_KV_NEVER;
    o.buckets.n_first = 4;
    assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
    assert_true(a.output_tok == sum && a.n_epochs == 0);
    for (int i = 0; i < N; i++)
        assert_true(outcomes[i].bucket_tok[1] % (LONGEST / 4) == 0);
}

/* Earlier requests of other lengths are what the first bounds are made from. */
TEST(the_window_can_begin_filled)
{
    static struct kv_example earlier[200];
    struct study_kv_opts o = make_opts("odma", "oracle");
    struct study_kv_result a;

    make_requests(test_seed(), N, 30, 30);
    for (int i = 0; i < 200; i++)
        earlier[i] = (struct kv_example){.prompt_tok = 100, .output_tok = 1 + i};
    o.earlier = earlier;
    o.n_earlier = 200;
    o.bounds = STUDY_KV_ONCE;
    assert_ok(study_kv_replay(&a, &o, requests, N, outcomes));
    assert_int_equal(a.n_epochs, 1);
    for (int i = 0; i < N; i++) /* quantiles of 101 .. 300, aligned */
        assert_true(
            outcomes[i].bucket_tok[1] == 208 || outcomes[i].bucket_tok[1] == 256 ||
            outcomes[i].bucket_tok[1] == 288 || outcomes[i].bucket_tok[1] == 304 ||
            outcomes[i].bucket_tok[1] == LONGEST);
}

/* All that a cell says of predictions, from its requests, by the definitions in the metrics'
 * texts. */
static void accuracy_by_definition(void)
{
    int n = length_of("request_output_tok"), n_in = 0, n_safe = 0, n_within = 0,
        n_large = 0, n_outgrew = 0, agree = 0, in_x = 0, in_y = 0;
    double error = 0, used = 0, memory = 0, longest = value_of("max_tok");

    assert_true(n == value_of("n_requests") && n > 100);
    for (int i = 0; i < n; i++) {
        double total =
            series_at("request_prompt_tok", i) + series_at("request_output_tok", i);
        double output = series_at("request_output_tok", i);
        double predicted = series_at("request_predicted_tok", i);
        double bound = series_at("request_bucket_tok", i);

        assert_true(bound > 0 && fmod(bound, 16) == 0 && total <= longest);
        n_in += total <= bound && total > series_at("request_bucket_above_tok", i);
        n_safe += total <= bound;
        n_within += predicted >= 0.9 * output && predicted <= 1.1 * output;
        n_large += series_at("request_first_tok", i) == longest;
        n_outgrew += total > series_at("request_first_tok", i);
        error += fabs(log(fmax(predicted, 1)) - log(output));
        used += total;
        memory += series_at("request_last_tok", i);
        for (int k = 0; k < i; k++) {
            double dx = predicted - series_at("request_predicted_tok", k);
            double dy = output - series_at("request_output_tok", k);

            agree += (dx > 0) == (dy > 0) ? dx != 0 && dy != 0 : -(dx != 0 && dy != 0);
            in_x += dx != 0;
            in_y += dy != 0;
        }
    }
    assert_value("bucket_accuracy_frac", (double)n_in / n);
    assert_value("safe_frac", (double)n_safe / n);
    assert_value("within_frac", (double)n_within / n);
    assert_value("large_frac", (double)n_large / n);
    assert_value("overflow_frac", (double)n_outgrew / n);
    assert_value("log_mae", error / n);
    assert_value("utilization_end", used / memory);
    if (in_x > 0)
        assert_value("kendall_tau", agree / sqrt((double)in_x * in_y));
    else
        assert_true(isnan(value_of("kendall_tau")));
}

TEST(accuracies_follow_from_the_requests)
{
    static const char *const predictors[] = {"learned", "constant", "noisy"};
    static const char *const of[] = {"s3", "odma"};

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            assert_ok(capture_run(
                &study_odma_replay,
                "{\"n_requests\": 500, \"n_learn\": 500, \"clients\": 64, "
                "\"stream\": \"alpaca+sharegpt\", \"max_tok\": 1024, \"raw\": "
                "true, \"budget_seqs\": 8, \"tau\": 1, \"predictor\": \"%s\", "
                "\"alloc\": \"%s\", \"primed\": true}",
                predictors[i], of[k]));
            accuracy_by_definition();
        }
}

/* Texts that tell more make better predictions; texts that tell nothing make none. */
TEST(texts_tell_what_they_should)
{
    static const double tells[] = {0, 0.5, 1}, bits[] = {0, 0.783, 3};
    double over[3];

    for (int i = 0; i < 3; i++) {
        assert_ok(capture_run(
            &study_odma_replay,
            "{\"stream\": \"sharegpt\", \"predictor\": \"learned\", \"tells\": %g, "
            "\"n_requests\": 1000, \"clients\": 64}",
            tells[i]));
        assert_true(fabs(value_of("text_bits") - bits[i]) < 0.001);
        over[i] = value_of("log_mae_over_constant");
    }
    assert_true(over[0] > 0.95 && over[0] > over[1] && over[1] > over[2]);
    assert_true(over[2] < 0.4);
}

/* The requests until the latest 256 use memory nearly as well as they could, worked out from
 * the requests; only where the lengths change, and bounds follow. */
TEST(recovery_is_counted)
{
    static const char *const bounds[] = {"again", "never"};

    for (int i = 0; i < 2; i++) {
        double wanted, used, memory;
        int at, n;

        assert_ok(capture_run(
            &study_odma_replay,
            "{\"n_requests\": 4000, \"clients\": 64, \"stream\": \"sharegpt+alpaca\", "
            "\"predictor\": \"oracle\", \"raw\": true, \"budget_seqs\": 8, "
            "\"window\": 512, \"n_first\": 4, \"bounds\": \"%s\"}",
            bounds[i]));
        n = length_of("request_output_tok");
        wanted = 0.95 * value_of("utilization_ideal");
        for (at = 2000 + 256; at <= n; at++) {
            used = memory = 0;
            for (int k = at - 256; k < at; k++) {
                used += series_at("request_prompt_tok", k) +
                        series_at("request_output_tok", k);
                memory += series_at("request_last_tok", k);
            }
            if (used / memory >= wanted)
                break;
        }
        if (i == 0)
            assert_value("recovery_requests", at - 2000);
        else
            assert_true(at > n && isnan(value_of("recovery_requests")));
    }
    assert_ok(capture_run(&study_odma_replay, "{\"n_requests\": 500}"));
    assert_true(isnan(value_of("recovery_requests")) &&
                isnan(value_of("utilization_after")));
}

TEST(one_option_is_changed)
{
    double usual, inflated;

    assert_ok(capture_run(&study_odma_replay, "{\"n_requests\": 500, \"alpha\": 3}"));
    inflated = value_of("overflow_frac");
    assert_ok(capture_run(&study_odma_replay, "{\"n_requests\": 500}"));
    usual = value_of("overflow_frac");
    assert_true(inflated < usual);
    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 500, \"change\": \"alpha=3\"}"));
    assert_true(value_of("overflow_frac") == inflated);
    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 500, \"change\": \"quantiles=0.5 0.9\"}"));
    assert_err(capture_run(&study_odma_replay, "{\"change\": \"alhpa=3\"}"), ERR_ARG,
               "alpha");
    assert_err(capture_run(&study_odma_replay, "{\"change\": \"alpha\"}"), ERR_ARG,
               "expected option=value");
}

TEST(several_options_are_changed)
{
    double both;

    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 500, \"alpha\": 3, \"bounds\": \"never\"}"));
    both = value_of("utilization_end");
    assert_true(isnan(value_of("over_never")));
    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 500, \"change\": \"alpha=3;bounds=never\"}"));
    assert_true(value_of("utilization_end") == both);
    assert_err(capture_run(&study_odma_replay, "{\"change\": \"alpha=3;\"}"), ERR_ARG,
               "expected option=value, found \"\"");
}

/* Bounds of the output, as in the paper: the memory of a request is its prompt and a bound. */
TEST(bounds_can_be_of_the_output)
{
    for (int i = 0; i < 2; i++) {
        int n = 0;

        assert_ok(capture_run(&study_odma_replay,
                              "{\"n_requests\": 500, \"n_learn\": 500, \"clients\": 64, "
                              "\"raw\": true, \"tau\": 1, \"primed\": true, \"max_tok\": "
                              "1024, \"bounds\": \"once\", \"lengths\": \"output\", "
                              "\"predictor\": \"oracle\", \"alloc\": \"%s\"}",
                              i ? "odma_paper" : "odma"));
        for (int k = 0; k < length_of("request_bucket_tok"); k++) {
            double bound = series_at("request_bucket_tok", k),
                   size = series_at("request_prompt_tok", k) + bound;

            assert_true(series_at("request_output_tok", k) <= bound);
            size = fmin(1024, 16 * ceil(size / 16));
            if (i == 0 && bound < 1024)
                assert_true(series_at("request_first_tok", k) == size);
            assert_true(series_at("request_first_tok", k) >= size);
            n += bound < 1024;
        }
        assert_true(n > 250 && value_of("overflow_frac") == 0);
    }
}

/* Of the same bounds it is 1; of others what two cells say. */
TEST(bounds_are_compared_with_equal_parts)
{
    double again, never;

    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 1000, \"over_never\": true, \"bounds\": "
                          "\"never\"}"));
    assert_true(value_of("over_never") == 1);
    never = value_of("tokens_per_step");
    assert_ok(
        capture_run(&study_odma_replay, "{\"n_requests\": 1000, \"over_never\": true}"));
    again = value_of("tokens_per_step");
    assert_value("over_never", again / never);
}

/* Equal parts for s3, equally many lengths for odma. */
TEST(both_have_as_many_buckets)
{
    for (int i = 0; i < 2; i++) {
        bool seen[1025] = {false};
        int n = 0;

        assert_ok(capture_run(
            &study_odma_replay,
            "{\"n_requests\": 1000, \"n_buckets\": 4, \"raw\": true, \"max_tok\": 1024, "
            "\"primed\": true, \"bounds\": \"once\", \"predictor\": \"oracle\", "
            "\"alloc\": \"%s\"}",
            i ? "odma" : "s3"));
        for (int k = 0; k < length_of("request_bucket_tok"); k++)
            seen[(int)series_at("request_bucket_tok", k)] = true;
        for (int k = 0; k <= 1024; k++)
            n += seen[k];
        assert_int_equal(n, 4);
        assert_true(seen[1024] && (i == 1 || (seen[256] && seen[512] && seen[768])));
    }
}

/* A predictor that is wrong by a factor is corrected by what came out. */
TEST(predictions_are_calibrated)
{
    struct study_kv_opts o = make_opts("odma", "constant");
    struct study_kv_result wrong, right;

    make_requests(test_seed(), N, 60, 60);
    o.predict.constant_tok = 2;
    assert_ok(study_kv_replay(&wrong, &o, requests, N, outcomes));
    o.calibrate = 64;
    assert_ok(study_kv_replay(&right, &o, requests, N, outcomes));
    assert_true(3 * right.n_overflow < 2 * wrong.n_overflow);
    assert_true(outcomes[N - 1].predicted_tok > 30 &&
                outcomes[N - 1].predicted_tok < 120);
}

/* Every request is answered however they are divided; one device of all the memory is the same
 * as no devices; where devices differ, the memory of each is used as much. */
TEST(devices_divide_the_requests)
{
    int64_t sum = make_requests(test_seed(), N / 2, 30, 90);
    struct study_kv_opts o = make_opts("odma", "noisy");
    struct study_kv_result one, a[3];

    assert_ok(study_kv_replay(&one, &o, requests, N, outcomes));
    o.n_devices = 1;
    o.device_tok[0] = o.arena.n_tok;
    assert_ok(study_kv_replay(&a[0], &o, requests, N, outcomes));
    assert_memory_equal(&a[0], &one, sizeof(one));
    o.n_devices = 4;
    for (int i = 0; i < 4; i++)
        o.device_tok[i] = LONGEST * (i < 1 ? 10 : 2);
    for (int own = 0; own < 2; own++)
        for (o.route = 0; o.route < 3; o.route++) {
            o.own_bounds = own;
            assert_ok(study_kv_replay(&a[o.route], &o, requests, N, outcomes));
            assert_int_equal(a[o.route].output_tok, sum);
            assert_true(a[o.route].least_sum < a[o.route].most_sum);
        }
    assert_true(
        a[STUDY_KV_CLUSTER].least_sum / (double)a[STUDY_KV_CLUSTER].n_loaded_steps >
        a[STUDY_KV_IN_TURN].least_sum / (double)a[STUDY_KV_IN_TURN].n_loaded_steps);
    assert_err(capture_run(&study_odma_replay, "{\"devices\": \"4 0\"}"), ERR_ARG,
               "at least 1");
    assert_err(capture_run(&study_odma_replay, "{\"devices\": \"1 1 1 1 1 1 1 1 1\"}"),
               ERR_ARG, "at most 8");
}

TEST(a_cell_reports)
{
    assert_ok(capture_run(&study_odma_replay,
                          "{\"n_requests\": 400, \"clients\": 64, \"stream\": "
                          "\"alpaca+sharegpt\", \"max_tok\": 1024, \"budget_seqs\": 8}"));
    assert_true(value_of("over_static") > 1 && value_of("utilization_gain") > 0);
    assert_true(value_of("predict_us") > 0 && value_of("predict_frac") > 0);
    assert_true(value_of("utilization_outer") < value_of("utilization_inner"));
    assert_true(value_of("bucket_accuracy_frac") < value_of("safe_frac"));
    assert_true(value_of("n_epochs") >= 2);
    assert_int_equal(length_of("step"), length_of("utilization_inner_over_time"));
    assert_int_equal(length_of("request_output_tok"), 0);
    assert_ok(
        capture_run(&study_odma_replay,
                    "{\"n_requests\": 400, \"clients\": 64, \"over_time\": false}"));
    assert_int_equal(length_of("step"), 0);
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
    assert_err(capture_run(&study_odma_replay, "{\"stream\": \"alpacca+sharegpt\"}"),
               ERR_NOTFOUND, "alpaca");
    assert_err(capture_run(&study_odma_replay, "{\"stream\": \"no/such.json\"}"),
               ERR_NOTFOUND, "data.md says where to get it");
    assert_err(capture_run(&study_odma_replay, "{\"stream\": \"a+b+c+d+e\"}"), ERR_ARG,
               "at most 4 sources, found 5");
    assert_err(capture_run(&study_odma_replay, "{\"quantiles\": \"0.5 x\"}"), ERR_ARG,
               "0.5 x");
    assert_err(capture_run(&study_odma_replay, "{\"quantiles\": \"0.9 0.5\"}"), ERR_ARG,
               "quantile 2");
    assert_err(capture_run(&study_odma_replay, "{\"max_tok\": 1000}"), ERR_ARG, "1000");
    assert_err(
        capture_run(&study_odma_replay, "{\"predictor\": \"learned\", \"n_learn\": 0}"),
        ERR_ARG, "nothing has been learned");
}

/* Real instructions: each part replayed in turn, with what was learned from the others. With
 * learned lengths more of them fit the memory that they get first. */
TEST(conversations_are_learned_from)
{
    const char *path = test_need_data("alpaca/alpaca_sample_dev.json"),
               *tokenizer = test_need_data("tokenizers/ggml-vocab-llama-spm.gguf");
    double safe[2], n = 0;

    for (int i = 0; i < 2; i++) {
        assert_ok(capture_run(
            &study_odma_replay,
            "{\"stream\": \"%s\", \"tokenizer\": \"%s\", \"predictor\": \"%s\", "
            "\"max_tok\": 1024, \"budget_seqs\": 8, \"clients\": 64, \"tau\": 1, "
            "\"folds\": 2}",
            path, tokenizer, i ? "learned" : "constant"));
        safe[i] = value_of("safe_frac");
    }
    print_message("# safe %.3f, learned %.3f\n", safe[0], safe[1]);
    assert_true(safe[1] > safe[0] + 0.01);
    assert_true(isnan(value_of("text_bits")));
    for (int seed = 1; seed <= 3; seed++) {
        assert_ok(capture_run(
            &study_odma_replay,
            "{\"stream\": \"%s\", \"folds\": 3, \"seed\": %d, \"clients\": 64}", path,
            seed));
        n += value_of("n_requests");
        assert_true(value_of("n_learned") > value_of("n_requests"));
    }
    assert_true(n == value_of("n_requests") + value_of("n_learned"));
}

TEST_GROUP(NULL, capture_end);
