/* Roles as processes next to their simulation, and the cores of a simulated machine as roles or as
 * one engine: what the numbers must satisfy, whatever the machine. */
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

#include "experiments/study/support/pair_steps.h"
#include "experiments/study/support/step_times.h"

extern const struct study study_roles_vs_sim, study_split_simulated,
    study_plans_simulated;

TEST_GROUP(NULL, capture_end);

/* Step times of a busy machine are no profile, so both are measured here and then given: 1 ms for
 * each token of a prompt, .5 ms for a step of tokens and .1 ms for each of its sequences. */
static const double slowdowns[2][2] = {{1.5, 1.25}, {2, 1.75}};

int __real_study_step_times(struct cluster_point *points, int n, double *spread,
                            const struct step_times_opts *o, struct study_cell *cell);
int __wrap_study_step_times(struct cluster_point *points, int n, double *spread,
                            const struct step_times_opts *o, struct study_cell *cell);
int __wrap_study_step_times(struct cluster_point *points, int n, double *spread,
                            const struct step_times_opts *o, struct study_cell *cell)
{
    assert_ok(__real_study_step_times(points, n, spread, o, cell));
    for (int i = 0; i < n; i++) {
        assert_true(points[i].prompt_ms > 0 && points[i].token_ms > 0);
        points[i].prompt_ms = (double)(points[i].batch * points[i].prompt_tok);
        points[i].token_ms = 0.5 + 0.1 * (double)points[i].batch;
    }
    return OK;
}

int __real_study_pair_steps(double slowdown[2][2], const struct pair_steps_opts *o,
                            struct study_cell *cell);
int __wrap_study_pair_steps(double slowdown[2][2], const struct pair_steps_opts *o,
                            struct study_cell *cell);
int __wrap_study_pair_steps(double slowdown[2][2], const struct pair_steps_opts *o,
                            struct study_cell *cell)
{
    assert_ok(__real_study_pair_steps(slowdown, o, cell));
    for (int i = 0; i < 4; i++)
        assert_true(slowdown[i / 2][i % 2] >= 1);
    memcpy(slowdown, slowdowns, sizeof(slowdowns));
    return OK;
}

static void run_roles(const char *machines, const char *steps)
{
    assert_ok(capture_run(
        &study_roles_vs_sim,
        "{\"%s\": \"%s\", \"machines\": \"%s\", \"steps\": \"%s\", \"n_requests\": 12, "
        "\"n_seeds\": 2, "
        "\"max_prompt_tok\": 16, \"load\": 0.2, \"max_output_tok\": 4, \"max_seqs\": 4, "
        "\"batches\": \"1 4\", \"contexts\": \"4 16\", \"prompts\": \"32\", \"rounds\": "
        "1, "
        "\"pair_rounds\": 1}",
        strcmp(steps, "paced") == 0 ? "paced_model" : "model", tiny_model(KERN_BF16),
        machines, steps));
}

static void check_errors(const char *of, const char *worst)
{
    static const char *const latencies[] = {"ttft_p50", "ttft_p90", "tpot_p50",
                                            "tpot_p90"};
    double most = 0;
    char name[40];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%s_real_ms", latencies[i]);
        assert_true(value_of(name) > 0);
        snprintf(name, sizeof(name), "%s_sim_ms", latencies[i]);
        assert_true(value_of(name) > 0);
        snprintf(name, sizeof(name), "%s_%s", latencies[i], of);
        most = fmax(most, fabs(value_of(name) - 1));
    }
    assert_value(worst, 100 * most);
}

TEST(machines_and_their_simulation)
{
    static const char *const machines[] = {"one", "two", "two+transfer"};
    double between = NAN;

    for (int i = 0; i < 3; i++) {
        run_roles(machines[i], "engine");
        check_errors("ratio", "worst_error");
        check_errors("queue_ratio", "worst_queue_error");
        assert_true(value_of("prompt_in_place") > 0);
        assert_true(value_of("token_in_place") > 0);
        assert_value("n_requests", 24);
        assert_int_equal(length_of("ttft_real"), 12);
        assert_int_equal(length_of("ttft_sim"), 12);
        assert_value("slow_prompt_by_token", slowdowns[0][1]);
        assert_value("slow_token_by_prompt", slowdowns[1][0]);
        assert_int_equal(isnan(value_of("between_error")), i == 0);
        assert_true(i < 2 || value_of("between_error") >= between); /* of more pairs */
        between = value_of("between_error");
    }
    assert_err(capture_run(&study_roles_vs_sim, "{}"), ERR_ARG, "study.model");
}

/* A step that is paced takes its time, in each process, and the simulator knows it. */
TEST(machines_whose_steps_are_paced)
{
    static const char *const machines[] = {"one", "two", "two+transfer"};

    for (int i = 0; i < 3; i++) {
        run_roles(machines[i], "paced");
        check_errors("ratio", "worst_error");
        assert_true(value_of("ttft_p50_real_ms") >= 2.5);
        assert_true(value_of("tpot_p50_real_ms") >= 8);
        assert_true(value_of("ttft_p50_sim_ms") >= 2.5);
        assert_true(value_of("tpot_p50_sim_ms") >= 8);
        assert_value("slow_prompt_by_token", 1);
        assert_int_equal(isnan(value_of("between_error")), i == 0);
    }
    assert_err(capture_run(&study_roles_vs_sim, "{\"steps\": \"paced\"}"), ERR_ARG,
               "study.paced_model");
}

static void run_split(const char *rest)
{
    assert_ok(capture_run(&study_split_simulated,
                          "{\"nodes\": 1, \"n_seeds\": 2, \"n_requests\": 40, %s}",
                          rest));
}

/* Both roles have all cores and no more, are slower than the whole, and what slows both lowers
 * their goodput. */
TEST(the_cores_of_a_simulated_machine)
{
    double prompt_ms, token_ms, goodput;

    run_split("\"system\": \"one_configuration\"");
    prompt_ms = value_of("prompt_ms");
    token_ms = value_of("token_ms");
    assert_value("prompt_cores", 24);
    assert_value("token_cores", 24);
    assert_value("slowdown", 1);
    assert_true(value_of("goodput_rps") > 0);
    run_split("\"system\": \"switch\"");
    assert_value("prompt_ms", prompt_ms);
    assert_true(value_of("token_ms") <= token_ms && value_of("token_cores") <= 24);
    run_split("\"prompt_lanes\": 1, \"ttft_factor\": 20, \"tpot_factor\": 20");
    assert_value("prompt_cores", 6);
    assert_value("token_cores", 18);
    assert_true(value_of("prompt_ms") > 2 * prompt_ms);
    goodput = value_of("goodput_rps");
    run_split("\"prompt_lanes\": 1, \"ttft_factor\": 20, \"tpot_factor\": 20, "
              "\"contention\": 10");
    assert_true(value_of("slowdown") > 1);
    assert_true(value_of("goodput_rps") < goodput);
    run_split("\"ttft_factor\": 20, \"tpot_factor\": 20");
    assert_true(value_of("goodput_rps") >= goodput); /* the best division */
    assert_err(capture_run(&study_split_simulated, "{\"prompt_lanes\": 4}"), ERR_ARG,
               "less than study.cluster, 4");
    assert_err(capture_run(&study_split_simulated, "{\"nodes\": 8, \"cluster\": 5}"),
               ERR_ARG, "24 cores of a memory node are not clusters");
}

static double plans_goodput(const char *method)
{
    assert_ok(
        capture_run(&study_plans_simulated,
                    "{\"model\": \"llama-160m\", \"type\": \"bf16\", \"method\": \"%s\", "
                    "\"n_seeds\": 2, \"n_requests\": 60, \"search_s\": 3}",
                    method));
    return value_of("goodput_rps");
}

/* One plan is what all are compared with; the search finds a better one where ranks on their own
 * memory nodes read more. */
TEST(plans_on_a_simulated_machine)
{
    double one = plans_goodput("one_plan"), one_scale, one_tpot_ms;

    assert_value("over_one_plan", 1);
    assert_value("prefill_threads", 52);
    assert_value("decode_ranks", 1);
    one_scale = value_of("slo_scale_p90");
    one_tpot_ms = value_of("tpot_ms");
    assert_true(plans_goodput("even_split") > one);
    assert_value("prefill_ranks", 2);
    assert_true(value_of("tpot_ms") < one_tpot_ms);
    assert_true(plans_goodput("search") > one);
    assert_true(value_of("slo_scale_p90") <= one_scale);
    assert_err(capture_run(&study_plans_simulated, "{\"model\": \"llama-3-8b\"}"),
               ERR_ARG, "the paper has no objectives for llama-3-8b");
    assert_int_equal(capture_run(&study_plans_simulated, "{\"method\": \"serch\"}"),
                     ERR_NOTFOUND);
}
