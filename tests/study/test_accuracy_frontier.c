/* accuracy_frontier: the goodput follows from the speeds, errors from the weights, and who is on
 * the frontier from both; what is missing says why. Which of two is faster is asserted nowhere. */
#include <math.h>

#include "cpu/cpu.h"
#include "make/make.h"
#include "tests/study/capture.h"

extern const struct study study_accuracy_frontier;

TEST_GROUP(NULL, capture_end);

#define ROUNDS 3

/* The path of all types, with {weights} in it. */
static const char *models(void)
{
    static const char *const types[] = {"q8_0", "w4c"};
    static char path[400];
    char file[500];
    struct make_opts o = {.arch = "tiny-quant",
                          .type = KERN_F32,
                          .seed = 3,
                          .format = "gguf",
                          .out = file,
                          .n_threads = 1};

    if (path[0])
        return path;
    snprintf(file, sizeof(file), "%s/m-f32.gguf", test_dir());
    assert_ok(make_model(&o));
    o.type = KERN_BF16;
    snprintf(file, sizeof(file), "%s/m-bf16.gguf", test_dir());
    assert_ok(make_model(&o));
    for (int i = 0; i < 2; i++) {
        assert_ok(kern_quant_scheme_find(types[i], &o.scheme));
        snprintf(file, sizeof(file), "%s/m-%s.gguf", test_dir(), types[i]);
        assert_ok(make_model(&o));
    }
    snprintf(path, sizeof(path), "%s/m-{weights}.gguf", test_dir());
    return path;
}

static int try(const char *variants, const char *twins, const char *more)
{
    return capture_run(&study_accuracy_frontier,
                       "{\"model\": \"%s\", \"variants\": \"%s\", \"twins\": \"%s\", "
                       "\"n_prompt_tok\": 16, \"n_output_tok\": 5, \"rounds\": %d, "
                       "\"error_prompts\": 6, \"trained_prompts\": 5%s}",
                       models(), variants, twins, ROUNDS, more);
}

static double each(const char *name, int variant, int round)
{
    char full[64];

    snprintf(full, sizeof(full), "%s_each", name);
    return series_at(full, variant * ROUNDS + round);
}

/* By the definitions in the study's head. */
static double goodput_of(int variant, int round, double ttft_s, double tpot_s)
{
    static const char *const decode[] = {"decode_tok_s", "decode2_tok_s", "decode4_tok_s",
                                         "decode8_tok_s", "decode16_tok_s"};
    double prefill_s = 16 / each("prefill_tok_s", variant, round), best = 0;

    for (int k = 0; k < 5; k++) {
        double n = 1 << k, step_s = n / each(decode[k], variant, round);
        double request_s = prefill_s + 4 * step_s / n;

        assert_true(step_s > 0 && prefill_s > 0);
        if (prefill_s + step_s <= ttft_s && step_s + (n - 1) * prefill_s / 4 <= tpot_s)
            best = fmax(best, 1 / request_s);
    }
    return best;
}

TEST(goodput_follows_from_the_speeds)
{
    double of[ROUNDS];

    assert_ok(try("f32/exact/f32 q8_0/a8/f16", "", ""));
    assert_string_equal(note_of("variants"), "f32/exact/f32, q8_0/a8/f16");
    assert_value("n_variants", 2);
    assert_value("n_absent", 0);
    for (int i = 0; i < 2; i++) {
        for (int r = 0; r < ROUNDS; r++)
            of[r] = goodput_of(i, r, 1, 0.1);
        assert_float_equal(series_at("goodput_rps", i), middle_of(of, ROUNDS),
                           1e-9 * of[0]);
    }
    assert_string_equal(evidence_of("goodput_rps"), "model");
    assert_string_equal(evidence_of("decode_tok_s"), "");
}

TEST(no_request_within_the_objectives)
{
    assert_ok(try("f32/exact/f32 w4c/exact/f16 w4c/a8/f16", "", ", \"ttft_ms\": 0.001"));
    for (int i = 0; i < 3; i++)
        assert_true(series_at("goodput_rps", i) == 0);
    assert_true(isnan(value_of("goodput_a8_over_exact")));
    assert_true(strstr(captured("goodput_a8_over_exact")->why, "objectives") != NULL);
    assert_true(value_of("error_a8_over_exact") > 0.5);
}

/* Fewer bits err more, on both models; the reference has the least error that is told, and where
 * all others surely err more it is on the frontier, whatever the speeds are. */
TEST(errors_and_the_frontier)
{
    char trained[600];

    snprintf(trained, sizeof(trained), ", \"trained\": \"%s/m-f32.gguf\"", test_dir());
    assert_ok(try("f32/exact/f32 bf16/exact/f16 q8_0/a8/f16 w4c/exact/f16 w4c/a8/f16 "
                  "w4c/a8/q8",
                  "", trained));
    for (int k = 0; k < 2; k++) {
        const char *error = k ? "trained_error" : "error";

        assert_float_equal(series_at(error, 0), 1e-5, 1e-12);
        for (int i = 1; i < 4; i++)
            assert_true(series_at(error, i) > 1.5 * series_at(error, i - 1));
        assert_true(series_at(error, 1) < 0.02 && series_at(error, 3) < 1);
        assert_true(series_at(k ? "trained_agree" : "agree", 0) == 1);
        assert_true(series_at(k ? "trained_frontier" : "frontier", 0) == 1);
        /* Three rounds have no interval, so that nothing is surely slower. */
        assert_true(series_at(k ? "trained_frontier" : "frontier", 4) >= 0);
    }
    assert_value("n_dominated", 0);
    assert_true(value_of("n_on") >= 1 && value_of("trained_n_on") >= 1);
    assert_true(value_of("trained_agree_w16") <= 1 && value_of("trained_agree_w4") >= 0);
    assert_float_equal(value_of("trained_agree_loss"),
                       value_of("trained_agree_w8") - value_of("trained_agree_w4"),
                       1e-12);
    assert_true(value_of("error_kv8_over_kv16") > 0.5);
    assert_true(captured("error_a8_over_exact")->lo <= value_of("error_a8_over_exact"));
}

/* A twin is another point with the same error, which competes with all but its original. */
TEST(twins)
{
    assert_ok(
        try("f32/exact/f32 q8_0/a8/f16 w4c/a8/f16", "f32/exact/f32 w4c/a8/f16", ""));
    assert_value("n_variants", 5);
    assert_true(strstr(note_of("variants"), "f32/exact/f32 again, w4c/a8/f16 again") !=
                NULL);
    assert_true(series_at("error", 3) == series_at("error", 0));
    assert_true(series_at("error", 4) == series_at("error", 2));
    assert_true(series_at("frontier", 3) == 1 && series_at("frontier", 0) == 1);
    assert_true(value_of("over_again") > 0 && value_of("decode_over_again") > 0);
    /* Without intervals nothing is surely faster than its twin. */
    assert_value("n_twins_differ", 0);
}

TEST(what_is_not_here_is_named)
{
    char absent[64], variants[128];
    int i = 0;

    while (cpu_isa_limit(cpu_isa_level_name(i)) == OK) /* no processor has all of them */
        i++;
    assert_ok(cpu_isa_limit("auto"));
    snprintf(absent, sizeof(absent), "w4c/a8/f16@%s", cpu_isa_level_name(i));
    snprintf(variants, sizeof(variants), "f32/exact/f32 w4c/a8/f16@ref %s", absent);
    assert_ok(try(variants, "", ""));
    assert_value("n_absent", 1);
    assert_value("n_variants", 2);
    assert_true(*note_of(absent));
}

TEST(refusals)
{
    assert_err(try("f32/exact/f32 q8_0", "", ""), ERR_ARG, "found \"q8_0\"");
    assert_err(try("f32/exact/f32 q8_0/a9/f16", "", ""), ERR_ARG,
               "found \"q8_0/a9/f16\"");
    assert_err(try("f32/exact/f32 q8_0/a8/q9", "", ""), ERR_ARG, "found \"q8_0/a8/q9\"");
    assert_err(try("q8_0/a8/f16 q8_0/a8/f16", "", ""), ERR_ARG, "there twice");
    assert_err(try("f32/exact/f32", "", ""), ERR_ARG, "found 1");
    assert_err(try("f32/exact/f32 w4c/a8/f16", "q8_0/a8/f16", ""), ERR_ARG,
               "study.twins");
    assert_err(try("f32/exact/f32 q3/a8/f16", "", ""), ERR_IO, "m-q3.gguf");
    assert_err(capture_run(&study_accuracy_frontier, "{\"model\": \"m.gguf\"}"), ERR_ARG,
               "{weights}");
}
