/* mnn_ablation, mnn_tile and mnn_operators on a tiny model: the steps of the ladder give the
 * same results, the tile is the formula's, and counts are those worked out by hand. */
#include "experiments/study/support/engine.h"
#include "experiments/study/support/tile_formula.h"
#include "experiments/study/support/unfused.h"
#include "make/make.h"
#include "tests/study/capture.h"

extern const struct study study_mnn_ablation, study_mnn_tile, study_mnn_operators;

/* tiny-quant: what the arithmetic by hand is about. */
enum { LAYERS = 3, DIM = 256, HIDDEN = 768, HEADS = 8, HEAD_DIM = 32, VOCAB = 601 };

static const char *model(const char *type)
{
    static char path[400];
    struct make_opts o = {
        .arch = "tiny-quant", .seed = 3, .format = "gguf", .out = path, .n_threads = 1};

    snprintf(path, sizeof(path), "%s/%s.gguf", test_dir(), type);
    assert_ok(kern_quant_scheme_find(type, &o.scheme));
    assert_ok(make_model(&o));
    return path;
}

static int run(const struct study *s, const char *more)
{
    return capture_run(s, "{\"model\": \"%s\", %s}", model("q4_0"), more);
}

/* ---- the ladder ---- */

static const char *const steps[] = {"baseline", "fused", "unsigned", "transposed"};

/* A gain is between those of the rounds. */
static void check_gain(const char *gain, int before)
{
    char slow[48], fast[48], name[64];
    double least = INFINITY, most = -INFINITY;

    snprintf(slow, sizeof(slow), "step_s_%s", steps[before]);
    snprintf(fast, sizeof(fast), "step_s_%s", steps[before + 1]);
    for (int i = 0; i < length_of(slow); i++) {
        double ratio = series_at(slow, i) / series_at(fast, i) - 1;

        least = fmin(least, ratio);
        most = fmax(most, ratio);
    }
    snprintf(name, sizeof(name), "gain_%s", gain);
    assert_true(value_of(name) >= least && value_of(name) <= most);
}

static void check_ladder(int n_rounds)
{
    for (int i = 0; i < 4; i++) {
        char name[48];

        snprintf(name, sizeof(name), "step_s_%s", steps[i]);
        assert_int_equal(length_of(name), n_rounds);
        assert_true(series_min(name) > 0);
        snprintf(name, sizeof(name), "attention_s_%s", steps[i]);
        assert_true(value_of(name) > 0);
        snprintf(name, sizeof(name), "linear_s_%s", steps[i]);
        assert_true(value_of(name) > 0);
    }
    check_gain("attention_fuse", 0);
    check_gain("int4_to_uint4", 1);
    check_gain("pre_transpose", 2);
    assert_true(value_of("same_logits") == 1);
    /* a last bit may round an activation to the next of 8 bits */
    assert_true(value_of("unfused_error") < 4 * KERN_ERROR_A8);
    assert_string_equal(evidence_of("bound_tok_s"), "model");
}

TEST(the_ladder_computes_the_same)
{
    assert_ok(run(&study_mnn_ablation,
                  "\"phase\": \"prefill\", \"n_prompt_tok\": 37, \"rounds\": 4"));
    check_ladder(4);
    assert_value("tok_s_transposed", 37 / series_min("step_s_transposed"));
    assert_ok(run(&study_mnn_ablation,
                  "\"n_ctx_tok\": 41, \"n_decoded_tok\": 2, \"rounds\": 3"));
    check_ladder(3);
    assert_value("tok_s_baseline", 1 / series_min("step_s_baseline"));
}

/* Without rounding to 8 bits nothing hides a fault: the same logits to the last bits. */
static void compare_logits(struct model_bench *b, struct model_phase *p,
                           struct study_unfused *u, int64_t n_tok, int64_t ctx_tok)
{
    const int vocab = model_config_of(b->model)->vocab;
    float *want = calloc((size_t)vocab, sizeof(*want));
    double s, sum = 0, most = 0;

    assert_non_null(want);
    assert_ok(study_unfused_set(p, NULL));
    assert_ok(model_bench_steps_piece(&b->steps, p, n_tok, ctx_tok, &s));
    memcpy(want, b->steps.logits, (size_t)vocab * sizeof(*want));
    assert_ok(study_unfused_set(p, u));
    assert_ok(model_bench_steps_piece(&b->steps, p, n_tok, ctx_tok, &s));
    for (int i = 0; i < vocab; i++) {
        sum += (double)want[i] * want[i];
        most = fmax(most, fabs((double)want[i] - b->steps.logits[i]));
    }
    free(want);
    assert_true(sum > 0 && most < 1e-5 * sqrt(sum / vocab));
}

TEST(separate_operators_attend_alike)
{
    static const char *const archs[] = {"tiny", "tiny-quant", "tiny-qwen2"};

    for (int i = 0; i < 3; i++) {
        char path[400];
        const struct make_opts o = {.arch = archs[i],
                                    .type = KERN_F32,
                                    .seed = 3,
                                    .format = "gguf",
                                    .out = path,
                                    .n_threads = 1};
        struct study_unfused *u;
        struct model_phase *p = NULL;
        struct model_bench b;

        snprintf(path, sizeof(path), "%s/%s-f32.gguf", test_dir(), archs[i]);
        assert_ok(make_model(&o));
        assert_ok(study_engine_open(
            &b, path, &(struct model_bench_opts){.n_seqs = 1, .max_tok = 64, .seed = 1}));
        assert_ok(study_engine_phase(&b, &p, 1, b.budget.n));
        u = study_unfused_open(b.model, 37, 64, b.budget.n);
        compare_logits(&b, p, u, 37, 0);
        compare_logits(&b, p, u, 5, 37);
        compare_logits(&b, p, u, 1, 42);
        study_unfused_close(&u);
        model_phase_close(&p);
        model_bench_close(&b);
    }
}

TEST(other_weights_are_refused)
{
    assert_err(capture_run(&study_mnn_ablation, "{\"model\": \"%s\", \"n_ctx_tok\": 8}",
                           model("q8_0")),
               ERR_ARG, "expected weights in q4_0, found q8_0");
    assert_err(capture_run(&study_mnn_ablation, "{}"), ERR_ARG, "model");
}

/* ---- the tile ---- */

/* By hand, with one column in a register: (ep + 1)(hp + 1) <= R + 1. 5 x 4 and 4 x 5 both move
 * 40 (40 / 5 + 40 / 4 + 1) 40 numbers, and nothing that fits into 32 moves less. */
TEST(the_formula_by_hand)
{
    const struct study_tile_product p = {40, 40, 40, 32, 1};
    int64_t ep, hp;

    study_tile_best(&p, &ep, &hp);
    assert_true(ep == 5 && hp == 4);
    assert_true(study_tile_moved(&p, 5, 4) == 40 * (8 + 10 + 1) * 40);
    assert_true(study_tile_fits(&p, 5, 4) && study_tile_fits(&p, 3, 7));
    assert_false(study_tile_fits(&p, 6, 4));
}

TEST(nothing_that_fits_moves_less)
{
    for (int registers = 3; registers <= 64; registers++)
        for (int vec = 1; vec <= 16; vec *= 4) {
            const struct study_tile_product p = {560, 2048, 5504, registers, vec};
            int64_t ep, hp;

            study_tile_best(&p, &ep, &hp);
            assert_true(ep * (hp / vec) + ep + hp / vec <= registers && hp % vec == 0);
            for (int64_t x = 1; x <= 64; x++)
                for (int64_t y = 1; y <= 64; y++)
                    if (x * y + x + y <= registers)
                        assert_true(study_tile_moved(&p, ep, hp) <=
                                    study_tile_moved(&p, x, y * vec));
        }
}

static void tile_run(const char *type)
{
    assert_ok(capture_run(
        &study_mnn_tile,
        "{\"matrix\": \"tiny-quant/qkv\", \"type\": \"%s\", \"m\": 24, \"rounds\": "
        "3, \"budget_s\": 0.02, \"cache_mb\": 1}",
        type));
}

TEST(the_tile_is_the_formulas)
{
    static const char *const types[] = {"w4a8", "bf16", "f32"};

    for (int i = 0; i < 3; i++) {
        double least = INFINITY, at = NAN;
        int n;

        tile_run(types[i]);
        n = length_of("tile_moved");
        assert_true(n > 0 && n == value_of("n_tiles") && n == length_of("tile_gflops"));
        for (int k = 0; k < n; k++) {
            bool mine = series_at("tile_rows", k) == value_of("formula_rows") &&
                        series_at("tile_cols", k) == value_of("formula_cols");

            if (series_at("tile_fits", k))
                least = fmin(least, series_at("tile_moved", k));
            at = mine ? series_at("tile_moved", k) : at;
        }
        assert_true(at == least);
        assert_true(value_of("formula_over_best") > 0 &&
                    value_of("formula_over_best") <= 1);
        assert_value("formula_over_tuned",
                     value_of("formula_gflops") / value_of("tuned_gflops"));
        assert_true(value_of("ideal_rows") >= 1 && value_of("ideal_cols") >= 1);
    }
}

TEST(no_tile_fits_into_two_registers)
{
    assert_err(capture_run(&study_mnn_tile,
                           "{\"matrix\": \"tiny-quant/o\", \"m\": 8, \"registers\": 2}"),
               ERR_UNSUPPORTED, "fits into 2 registers");
}

/* ---- the counts ---- */

TEST(counts_by_hand)
{
    const double n = 24, g = 1 << 30, matrices = 4.0 * DIM * DIM + 3.0 * DIM * HIDDEN;
    const double kv = 2.0 * DIM / 4; /* 2 of 8 heads */
    const double mine = 2.0 * DIM * DIM + DIM * kv + 3.0 * DIM * HIDDEN;

    assert_ok(run(
        &study_mnn_operators,
        "\"precision\": \"a8\", \"phase\": \"prefill\", \"n_tok\": 24, \"rounds\": 3"));
    assert_value("linear_paper_gflop",
                 (LAYERS * 2 * n * matrices + 2 * n * DIM * VOCAB) / g);
    assert_value("attention_paper_gflop", LAYERS * (4 * n * n * DIM + 22 * n * n) / g);
    /* the last layer's output and feed-forward, and the head, of one row */
    assert_value("linear_gflop", 2e-9 * ((LAYERS - 1) * n * mine + n * DIM * (DIM + kv) +
                                         DIM * DIM + 3.0 * DIM * HIDDEN + DIM * VOCAB));
    assert_value("attention_gflop",
                 4e-9 * HEADS * HEAD_DIM * ((LAYERS - 1) * n * (n + 1) / 2 + n));
    assert_value("linear_gflops", value_of("linear_gflop") / value_of("linear_s"));
    assert_value("attention_gbps", value_of("attention_gb") / value_of("attention_s"));
    assert_true(isnan(value_of("linear_roof_gflops")) && isnan(value_of("roof_frac")));
    assert_string_equal(evidence_of("linear_gflop"), "model");
    assert_ok(run(&study_mnn_operators,
                  "\"precision\": \"a8\", \"n_ctx_tok\": 40, \"rounds\": 3"));
    assert_value("linear_gflop", 2e-9 * (LAYERS * mine + DIM * VOCAB));
    assert_value("attention_gflop", 4e-9 * LAYERS * HEADS * HEAD_DIM * 41);
    assert_value("attention_paper_gb", LAYERS * (8.0 * 40 * DIM + 24 * 40 + 8 * DIM) / g);
    assert_value("linear_gb", 1e-9 * (18.0 / 32 * (LAYERS * mine + DIM * VOCAB) +
                                      4.0 * (LAYERS * (5 * DIM + kv + 3 * HIDDEN + DIM) +
                                             DIM + VOCAB)));
}

TEST_GROUP(NULL, capture_end);
