/* fleet: sizes are the least that meet the objectives; costs and energy are those of its machines;
 * a CPU machine keeps to its role; a control whose CPU machines are slow saves less; batch jobs at
 * night; input that cannot be used. */
#include "tests/study/capture.h"

extern const struct study study_fleet;

#define SMALL                                                                            \
    "\"requests_per_day\": 4e5, \"n_pools\": 2, \"hours\": 2, \"size_s\": 60, "          \
    "\"cpus\": 8, "                                                                      \
    "\"mtbf_h\": 20"

static int run(const char *more)
{
    return capture_run(&study_fleet, "{" SMALL "%s}", more);
}

TEST(a_fleet_without_cpu_machines)
{
    double n, usd;

    assert_ok(run(""));
    assert_true(value_of("n_cpu") == 0 && value_of("n_prompt") >= 1 &&
                value_of("n_token") >= 1);
    assert_true(value_of("threads_equal") == 1);
    assert_true(value_of("attained_frac") > 0.9);
    assert_true(value_of("n_failures") >= 0 && value_of("restarted_frac") < 0.1);
    assert_true(isnan(value_of("breakeven_usd_h")) && isnan(value_of("busy_cpu_frac")));
    assert_true(value_of("busy_token_frac") <= 1 && value_of("busy_prompt_frac") <= 1);
    n = value_of("n_machines");
    assert_true(n == 2 * (value_of("n_prompt") + value_of("n_token")));
    usd = value_of("usd_mtok");
    assert_value("gpu_usd_mtok", usd);
    assert_ok(run(", \"cpu_usd_h\": 60"));
    assert_value("usd_mtok", usd); /* there are no CPU machines to pay for */
}

/* The same load; slower CPU machines save no more. */
TEST(cpu_machines_for_tokens_and_the_control)
{
    double saves, gpus;

    assert_ok(run(", \"role\": \"token\""));
    saves = value_of("breakeven_usd_h");
    gpus = value_of("gpu_usd_mtok");
    assert_true(saves >= 0 && value_of("cpu_speed") > 0.1);
    assert_true(value_of("n_cpu") == 8 && value_of("busy_cpu_frac") > 0);
    assert_true(value_of("cpu_prompt_frac") == 0 && value_of("cpu_token_frac") > 0.1);
    assert_true(value_of("usd_mtok") > gpus);
    assert_ok(run(", \"role\": \"token\", \"cpu_usd_h\": 0"));
    assert_value("usd_mtok", gpus);
    assert_ok(run(", \"role\": \"slow\""));
    assert_true(value_of("breakeven_usd_h") <= saves && value_of("cpu_speed") < 0.02);
}

/* On one load and one fleet: who may do both does some of both. */
TEST(a_cpu_machine_keeps_to_its_role)
{
#define FULL ", \"machines\": \"1P,1T\", \"max_seqs\": 4, \"prompt_threshold\": 0"
    assert_ok(run(FULL ", \"role\": \"prompt\""));
    assert_true(value_of("cpu_prompt_frac") > 0 && value_of("cpu_token_frac") == 0);
    assert_ok(run(FULL ", \"role\": \"both\""));
    assert_true(value_of("cpu_prompt_frac") > 0 && value_of("cpu_token_frac") > 0);
}

/* The cost of a machine's hour and its power, over the same tokens. */
TEST(energy_is_that_of_the_machines)
{
    double per_gpu;

    assert_ok(run(", \"machines\": \"2P,2T\""));
    per_gpu = value_of("usd_mtok") / 38;
    assert_value("kwh_mtok", 1.75 * 6.5 * per_gpu);
    assert_ok(run(", \"machines\": \"2P,2T\", \"role\": \"prompt\", \"cpu_kw\": 2, "
                  "\"cpu_usd_h\": 3"));
    assert_value("kwh_mtok",
                 1.75 * 6.5 * value_of("gpu_usd_mtok") / 38 +
                     2 * (value_of("usd_mtok") - value_of("gpu_usd_mtok")) / 3);
}

/* The two hours are of the night: half of the day's requests come, too, in a third of its time. */
TEST(batch_jobs_come_at_night)
{
    double without;

    assert_ok(run(", \"machines\": \"2P,2T\", \"swing\": 0"));
    without = value_of("n_requests");
    assert_ok(run(", \"machines\": \"2P,2T\", \"swing\": 0, \"night_frac\": 0.5"));
    assert_in_range(100 * value_of("n_requests") / without, 240, 260);
}

TEST(machines_are_drained_when_the_load_is_low)
{
    double all, drained;

    assert_ok(run(", \"machines\": \"6P,6T\""));
    all = value_of("usd_mtok");
    assert_true(value_of("drained_frac") == 0);
    assert_ok(run(", \"machines\": \"6P,6T\", \"provision\": \"cost\""));
    drained = value_of("usd_mtok");
    assert_true(value_of("drained_frac") > 0.1 && drained < 0.95 * all);
    assert_value("drained_frac", 1 - drained / all);
    assert_ok(run(", \"machines\": \"6P,6T\", \"provision\": \"power\""));
    assert_value("usd_mtok", drained); /* all machines are of one kind */
    assert_true(value_of("attained_frac") > 0.9);
}

TEST(bad_fleets)
{
    assert_err(run(", \"machines\": \"6P\""), ERR_ARG, "expected such as \"2P,3T\"");
    assert_err(run(", \"tpot_ms\": 1"), ERR_ARG, "takes longer than 1 ms");
    assert_err(run(", \"gpu\": \"no-such\""), ERR_NOTFOUND, "no-such");
    assert_err(run(", \"cpu_memory_gib\": 10"), ERR_ARG, "none is left");
    assert_err(run(", \"ttft_ms\": 1"), ERR_NOTFOUND, "no size up to");
}
TEST_GROUP(NULL, capture_end);
