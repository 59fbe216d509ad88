/* agent_sessions: draws have the distributions that they are given; times are those of the roofs;
 * with memory for all, what is computed again is known; one seed gives one result; reuse, eviction
 * and sessions that hold memory do what their names say. */
#include "experiments/study/support/agent_session.h"
#include "tests/study/capture.h"

extern const struct study study_agent_sessions;

#define SMALL "\"hours\": 0.3, \"turns\": 8, \"max_tok\": 32768, \"first\": 1024"

static int run(const char *more)
{
    return capture_run(&study_agent_sessions, "{" SMALL "%s}", more);
}

#define AMPLE ", \"system_tok\": 2048, \"memory_tok\": 1048576, \"agents\": 4"
#define SHORT ", \"system_tok\": 2048, \"memory_tok\": 65536, \"agents\": 8"

static int run_policy(const char *policy, const char *more)
{
    char text[512];

    snprintf(text, sizeof(text), ", \"policy\": \"%s\"%s", policy, more);
    return run(text);
}

/* ---- draws ---- */

static const struct study_agent_opts fitted = {.pause = 5.2,
                                               .pause_sigma = 1.18,
                                               .pause_between = 0.5,
                                               .turns = 33,
                                               .turns_sigma = 0.5,
                                               .first = 4096,
                                               .first_sigma = 0.5,
                                               .add = 886,
                                               .add_sigma = 1.2,
                                               .answer = 184,
                                               .answer_sigma = 1.27,
                                               .fork_frac = 0.1,
                                               .system_tok = 8192,
                                               .forks = 3,
                                               .max_tok = 1 << 20};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void near(const char *what, double got, double want, double within)
{
    if (fabs(got / want - 1) > within)
        fail_msg("%s: %g, wanted %g (TEST_SEED=%llu)", what, got, want,
                 (unsigned long long)test_seed());
}

/* What was published of agents that write code: docs/agent-sessions.md. */
TEST(draws_fit_what_was_published)
{
    enum { N = 120000 };
    static double pause[N], answer[N], added[N], turns[N];
    struct study_agent_session s;
    int n = 0, n_sessions = 0, n_forks = 0;
    double growth = 0;

    rng_init(&s.rng, test_seed(), "agent");
    while (n + 2000 < N) {
        study_agent_begin(&fitted, &s);
        assert_true(s.ctx_tok == 8192 && s.n_forks == 0);
        turns[n_sessions++] = (double)s.n_turns;
        while (n < N && study_agent_next(&fitted, &s)) {
            pause[n] = s.pause_s;
            answer[n] = (double)s.out_tok;
            added[n] = s.n_forks ? 886 : (double)s.add_tok;
            growth += (double)(s.add_tok + s.out_tok);
            n_forks += s.n_forks > 0;
            n++;
        }
    }
    qsort(pause, (size_t)n, sizeof(double), ascending);
    qsort(answer, (size_t)n, sizeof(double), ascending);
    qsort(added, (size_t)n, sizeof(double), ascending);
    qsort(turns, (size_t)n_sessions, sizeof(double), ascending);
    near("pause, median", pause[n / 2], 5.2, 0.1);
    near("pause, P99", pause[n * 99 / 100], 81.4, 0.2);
    near("answer, median", answer[n / 2], 184, 0.03);
    near("answer, P90", answer[n * 9 / 10], 939, 0.05);
    near("answer, P99", answer[n * 99 / 100], 3508, 0.1);
    near("added, median", added[n / 2], 886, 0.03);
    near("turns, median", turns[n_sessions / 2], 33, 0.06);
    near("growth of a turn", growth / n, 2242, 0.05);
    near("forks", (double)n_forks / n, 0.1, 0.1);
}

TEST(a_session_ends_before_the_longest_context)
{
    struct study_agent_opts o = fitted;
    struct study_agent_session s;

    o.max_tok = 32768;
    rng_init(&s.rng, test_seed(), "agent");
    for (int i = 0; i < 500; i++) {
        study_agent_begin(&o, &s);
        do {
            assert_true(s.ctx_tok + s.add_tok + s.out_tok <= o.max_tok);
            for (int k = 0; k < s.n_forks; k++)
                assert_true(s.ctx_tok + s.fork_add[k] + s.fork_out[k] <= o.max_tok);
        } while (study_agent_next(&o, &s));
        assert_true(s.ctx_tok <= o.max_tok);
    }
}

/* ---- the study ---- */

TEST(with_memory_for_all_nothing_is_computed_again)
{
    double held;

    assert_ok(run_policy("lru", AMPLE));
    assert_true(value_of("recomputed_frac") < 0.05); /* sessions that began before */
    assert_true(value_of("kept_frac") > 0 && value_of("used_frac") > 0);
    assert_true(value_of("ttft_first_p50_ms") > 0);
    assert_value("over_lru", 1);
    assert_ok(run_policy("odma_session", AMPLE));
    held = value_of("recomputed_frac");
    assert_true(held < 0.5 && value_of("kept_frac") > 0);
    /* Without reuse all of a context, of which little is new. */
    for (int i = 0; i < 4; i++) {
        static const char *const each[] = {"static", "s3", "odma", "paged"};

        assert_ok(run_policy(each[i], AMPLE));
        assert_true(value_of("recomputed_frac") > 0.6 &&
                    value_of("recomputed_frac") > held);
        assert_true(value_of("kept_frac") == 0);
    }
}

/* No choice is to be made where nothing is given up: to the bit the same. */
TEST(policies_of_eviction_are_equal_where_memory_is_enough)
{
    static const char *const each[] = {"lru_ended", "expected_return", "oracle"};
    double ttft, used;

    assert_ok(run_policy("lru", AMPLE));
    ttft = value_of("ttft_later_p50_ms");
    used = value_of("used_frac");
    for (int i = 0; i < 3; i++) {
        assert_ok(run_policy(each[i], AMPLE));
        assert_true(value_of("ttft_later_p50_ms") == ttft &&
                    value_of("used_frac") == used);
    }
}

TEST(one_seed_gives_one_result)
{
    double first[3];

    for (int i = 0; i < 2; i++) {
        assert_ok(run_policy("expected_return", SHORT));
        if (i == 0) {
            first[0] = value_of("goodput_per_h");
            first[1] = value_of("used_frac");
            first[2] = value_of("ttft_later_p95_ms");
        }
    }
    assert_true(value_of("goodput_per_h") == first[0] &&
                value_of("used_frac") == first[1] &&
                value_of("ttft_later_p95_ms") == first[2]);
    assert_ok(run_policy("expected_return", SHORT ", \"seed\": 2"));
    assert_true(value_of("used_frac") != first[1]);
    assert_ok(run_policy("lru_again", SHORT));
    assert_true(value_of("over_lru") > 0 && value_of("over_lru") != 1);
}

/* One agent, and all lengths as their medians: the times of its turns follow from the roofs. Steps
 * are single here, many at once in the study. */
TEST(times_are_those_of_the_roofs)
{
    const double params = 8.03e9, attn = 2.0 * 32 * 4096 / 1e11, tok = 2 * params / 1e11;
    const double weights = params * 8.5 / 8 / 1e9, kv = 131072 / 1e9 + 2 * attn;
    double ctx = 2048, hour_ms = 3.6e6, ms = 0, first = 0;

    for (int turn = 0; turn < 8; turn++) {
        double to = ctx + (turn ? 500 : 1000), from = turn ? ctx - 1 : ctx;
        double ttft = weights + tok * (to - from) + attn * (to * to - from * from);

        first = turn ? first : ttft;
        ms += ttft + (turn ? 3000 : 0);
        for (int i = 0; i < 99; i++)
            ms += weights + tok + kv * (to + i);
        ctx = to + 100;
    }
    assert_ok(
        capture_run(&study_agent_sessions,
                    "{\"agents\": 1, \"turns\": 8, \"turns_sigma\": 0, \"first\": 1000, "
                    "\"first_sigma\": 0, \"add\": 500, \"add_sigma\": 0, "
                    "\"answer\": 100, \"answer_sigma\": 0, \"pause\": 3, "
                    "\"pause_sigma\": 0, \"fork_frac\": 0, \"system_tok\": 2048, "
                    "\"max_tok\": 32768, \"hours\": 1, \"target_frac\": 0.999}"));
    near("TTFT of first turns", value_of("ttft_first_p50_ms"), first, 1e-6);
    near("sessions per hour", value_of("sessions_per_h"), hour_ms / ms, 0.003);
    assert_true(value_of("attained_frac") == 1 && value_of("recomputed_frac") == 0);
}

/* Shorter memory makes all compute more again; who knows more, less. */
TEST(short_memory)
{
    double lru, knows;

    assert_ok(run_policy("lru", SHORT));
    lru = value_of("recomputed_frac");
    assert_true(lru > 0.1);
    assert_ok(run_policy("oracle", SHORT));
    knows = value_of("recomputed_frac");
    assert_true(knows < lru);
    assert_ok(run_policy(
        "lru", ", \"system_tok\": 2048, \"agents\": 8, \"memory_tok\": 262144"));
    assert_true(value_of("recomputed_frac") < lru);
}

/* What a session holds cannot be used by others: with slow tools fewer turns run. */
TEST(held_memory_waits_for_tools)
{
    double fast;

    assert_ok(run_policy("odma_session", SHORT ", \"pause\": 0, \"fork_frac\": 0"));
    fast = value_of("sessions_per_h");
    assert_true(value_of("kept_frac") < 0.1);
    assert_ok(run_policy("odma_session", SHORT ", \"pause\": 60, \"fork_frac\": 0"));
    assert_true(value_of("sessions_per_h") < fast && value_of("kept_frac") > 0.1);
}

TEST(objectives_decide)
{
    assert_ok(run_policy("lru", SHORT ", \"ttft_ms\": 1"));
    assert_true(value_of("goodput_per_h") == 0 && value_of("goodput_agents") == 0);
    assert_true(value_of("attained_frac") == 0 && isnan(value_of("over_lru")));
    assert_ok(run_policy("lru", SHORT ", \"ttft_ms\": 30000"));
    assert_true(value_of("goodput_agents") > 0);
    assert_true(value_of("goodput_per_h") > 0);
}

TEST(bad_options)
{
    assert_err(run(", \"memory_tok\": 32768"), ERR_ARG, "expected memory_tok");
    assert_err(run(", \"system_tok\": 20000"), ERR_ARG, "expected memory_tok");
}
TEST_GROUP(NULL, capture_end);
