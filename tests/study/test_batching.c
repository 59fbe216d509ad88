/* Batched decode and its roof, on a tiny model: the numbers follow from the times of the rounds
 * and from the arithmetic of a step. */
#include "cpu/cpu.h"
#include "format/format.h"
#include "model/cost.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_batching;

static int run(const char *rest)
{
    return capture_run(
        &study_batching,
        "{\"model\": \"%s\", \"rounds\": 3, \"n_prompt_tok\": 9, \"n_steps\": 5, "
        "\"read_s\": 0.01, \"read_mb\": 16, \"peak_s\": 0.01, %s}",
        tiny_model(KERN_BF16), rest);
}

/* The roof of each round is that of the peak and the bandwidth measured in it. */
static void check_roofs(double flop, double bytes)
{
    const struct captured_series *peak = series_of("peak_gflops");
    const struct captured_series *gbps = series_of("read_gbps");
    const struct captured_series *roof = series_of("roof_s");

    assert_int_equal(peak->n, roof->n);
    assert_int_equal(gbps->n, roof->n);
    for (size_t i = 0; i < roof->n; i++) {
        double least = 1e-9 * fmax(flop / peak->v[i], bytes / gbps->v[i]);

        assert_true(fabs(roof->v[i] / least - 1) < 1e-9);
    }
}

/* A step of `batch` sequences, on the average over the timed ones: the model's arithmetic. */
static void check_intensity(int64_t batch)
{
    /* The prompt and the mean of six further tokens, one of which warms up. */
    double ctx_tok = 9 + (1 + 6) / 2.0;
    struct format_file *f;
    struct model_cost cost;

    assert_ok(format_open(&f, tiny_model(KERN_BF16)));
    cost = model_cost_decode(
        &f->config, (struct model_cost_types){KERN_BF16, KERN_KV_F32}, ctx_tok, batch);
    format_close(&f);
    assert_value("flop_per_byte", cost.flop / cost.read_bytes);
    assert_value("kv_bytes_frac", cost.kv_read_bytes / cost.read_bytes);
    assert_value("step_gflops", cost.flop / series_min("step_s") * 1e-9);
    assert_value("step_gbps", cost.read_bytes / series_min("step_s") * 1e-9);
    assert_value("memory_roof_tokens_per_s",
                 (double)batch * value_of("read_gbps") * 1e9 / cost.read_bytes);
    assert_value("compute_roof_tokens_per_s",
                 (double)batch * value_of("peak_gflops") * 1e9 / cost.flop);
    check_roofs(cost.flop, cost.read_bytes);
}

TEST(numbers_follow_from_the_rounds)
{
    static const char *const shares[] = {"linear_frac", "attn_frac", "head_frac",
                                         "norm_rope_frac"};

    for (int64_t batch = 1; batch <= 3; batch += 2) {
        double sum = 0;

        assert_ok(run(batch == 1 ? "\"batch\": 1" : "\"batch\": 3"));
        check_intensity(batch);
        assert_int_equal(length_of("step_s"), 3);
        assert_value("tokens_per_s", (double)batch / series_min("step_s"));
        assert_value("step_ms", 1e3 * series_min("step_s"));
        assert_value("read_gbps", series_middle("read_gbps"));
        assert_value("peak_gflops", series_middle("peak_gflops"));
        assert_value("roof_tokens_per_s", (double)batch / series_min("roof_s"));
        assert_value("batch_roof_frac", ratio_middle("roof_s", "step_s"));
        for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
            sum += value_of(shares[i]);
        assert_true(sum > 0 && sum <= 1); /* waiting and the rest are not in it */
        assert_true(value_of("sched_overhead_frac") + value_of("sample_frac") < 1);
    }
}

TEST(every_policy)
{
    assert_ok(run("\"batch\": 3, \"policy\": \"phase_priority\""));
    assert_ok(run("\"batch\": 3, \"policy\": \"chunked\""));
    assert_err(run("\"policy\": \"none\""), ERR_NOTFOUND, "none");
    assert_err(capture_run(&study_batching, "{}"), ERR_ARG, "study.model");
}

TEST_GROUP(NULL, capture_end);
