/* The studies of machines: the paper's arithmetic to its printed digits, and what a study
 * reports of this host is worked out again from its rounds. */
#include <sys/prctl.h>

#include "experiments/study/support/card.h"
#include "experiments/study/support/roofline.h"
#include "make/make.h"
#include "model/cost.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_characterize, study_mnn_roofline, study_mnn_operators;

static void digits(double got, int n_digits, const char *printed)
{
    char text[32];

    snprintf(text, sizeof(text), "%.*f", n_digits, got);
    if (strcmp(text, printed) != 0)
        fail_msg("%.9g: printed %s", got, printed);
}

/* MNN-LLM cuts some of its digits off where it should round. */
static void cut(double got, int n_digits, const char *printed)
{
    double scale = pow(10, n_digits);

    digits(floor(got * scale) / scale, n_digits, printed);
}

TEST(printed_digits)
{
    assert_ok(capture_run(&study_mnn_roofline, "{}"));
    digits(value_of("linear_prefill_gflop"), 2, "1591.13");
    digits(value_of("linear_decode_gflop"), 2, "2.84");
    cut(value_of("linear_prefill_gb"), 2, "1.74");
    digits(value_of("linear_decode_gb"), 2, "0.71");
    cut(value_of("attention_prefill_gflop"), 2, "57.57");
    digits(value_of("attention_decode_gflop"), 2, "0.11");
    digits(value_of("attention_prefill_gb"), 2, "0.58");
    digits(value_of("attention_decode_gb"), 2, "0.21");
    digits(value_of("other_prefill_gb"), 4, "10.2539");
    digits(value_of("other_decode_gb"), 5, "0.01831");
    digits(value_of("prefill_tok_s"), 0, "668");
    digits(value_of("decode_tok_s"), 0, "105");
    digits(value_of("prefill_tok_s"), 2, "667.95"); /* ours; the paper's is 668.31 */
    digits(value_of("decode_tok_s"), 2, "104.87");  /* 105.26 */
    digits(value_of("digits_linear_prefill_gflop"), 4, "1591.1300");
    digits(value_of("digits_linear_decode_gflop"), 4, "2.8400");
    digits(value_of("digits_prefill_tok_s"), 2, "668.00");
    digits(value_of("digits_decode_tok_s"), 2, "105.00");
    /* "95 % and 94 % of the peak": of its own, and of ours 95.5 and 94.7 */
    digits(638.03 / value_of("printed_prefill_tok_s"), 2, "0.95");
    digits(99.31 / value_of("printed_decode_tok_s"), 2, "0.94");
    assert_true(value_of("reached_prefill_frac") < 1 &&
                value_of("reached_decode_frac") < 1);
}

TEST(slips_are_stated)
{
    json_error_t e;
    json_t *list;

    assert_ok(capture_run(&study_mnn_roofline, "{}"));
    digits(value_of("slip_last_row_gflop"), 2, "1267.14");
    digits(value_of("slip_text_other_gb"), 2, "5.13");
    digits(value_of("slip_one_unit_prefill_tok_s"), 2, "622.08");
    digits(value_of("slip_one_unit_decode_tok_s"), 2, "97.67");
    digits(value_of("n_slips"), 0, "8");
    assert_ok(capture_run(&study_mnn_roofline, "{\"counts\": \"corrected\"}"));
    assert_true(isnan(value_of("n_slips")) && isnan(value_of("digits_prefill_tok_s")));
    digits(value_of("linear_prefill_gflop"), 2, "1267.14");
    digits(value_of("other_prefill_gb"), 2, "5.13");
    /* with work and rates in one unit the paper is faster than it can be */
    assert_true(value_of("reached_decode_frac") > 1);
    list = json_loads(note_of("slips"), 0, &e);
    assert_true(json_array_size(list) >= 7);
    json_decref(list);
    assert_non_null(strstr(note_of("slips"), "1267.14"));
    assert_non_null(strstr(note_of("slips"), "622.08 and 97.67"));
}

/* That one correction alone, for the numbers that the slip names. */
TEST(one_unit)
{
    const struct study_roofline_opts o = {560, 400};
    const struct study_roofline_machine m = {2784, 352, 99.274};
    struct study_roofline_work p, d;

    study_roofline_prefill(&p, &study_roofline_qwen_1_8b, 560, &o);
    study_roofline_decode(&d, &study_roofline_qwen_1_8b, 585, &o);
    digits(560 / study_roofline_seconds(&p, &m, 1e9), 2, "622.08");
    digits(1 / study_roofline_seconds(&d, &m, 1e9), 2, "97.67");
    digits(560 / study_roofline_seconds(&p, &m, ROOFLINE_G), 2, "667.95");
}

/* What a decoded token's matrices take is not the paper's own: ours are the same. */
TEST(a_decoded_token_is_not_disputed)
{
    const struct model_cost_types types = {.weight = KERN_BF16, .kv = KERN_KV_F32};
    const struct study_roofline_opts o = {1, 200};
    struct study_roofline_work d;
    struct model_config c;
    struct model_cost x;

    assert_ok(make_config("qwen-1.8b", &c));
    study_roofline_decode(&d, &study_roofline_qwen_1_8b, 585, &o);
    x = model_cost_decode(&c, types, 585, 1);
    assert_true(x.flop - x.attn.flop == d.linear_flop);
}

/* Of a small model by hand: h 2, i 3, v 5, one block, weights and activations of 1 byte. */
TEST(worked_by_hand)
{
    const struct study_roofline_model tiny = {2, 3, 5, 1, 1, 1};
    const struct study_roofline_opts o = {1, 200};
    struct study_roofline_machine m = {1, 1, 1};
    struct study_roofline_work w;

    study_roofline_prefill(&w, &tiny, 4, &o);
    assert_true(w.linear_flop == 8 * 4 * 4 + 6 * 4 * 6 + 2 * 10);
    assert_true(w.linear_bytes ==
                9 * 8 + 3 * 12 + 4 * 4 + 3 * 6 + 20 + 12 + 2 + 5 + 10 + 10);
    assert_true(w.attention_flop == 4 * 16 * 2 + 22 * 16);
    assert_true(w.attention_bytes == 16 * 4 * 2 + 24 * 16);
    assert_true(w.other_bytes == 200 * 4 * 2);
    assert_true(study_roofline_seconds(&w, &m, 1) ==
                292 + fmax(480, 512) + 1600); /* max(292, 201) */
    study_roofline_decode(&w, &tiny, 7, &o);
    assert_true(w.linear_flop == 8 * 4 + 6 * 6 + 20);
    assert_true(w.attention_flop == 4 * 7 * 2 + 22 * 7);
    assert_true(w.attention_bytes == 8 * 7 * 2 + 24 * 7 + 16);
    assert_true(w.other_bytes == 400);
    m.attention_rate = NAN;
    assert_true(isnan(study_roofline_seconds(&w, &m, 1)));
}

static json_t *made_card(const char *values)
{
    char text[4096];
    json_error_t e;
    json_t *card;

    snprintf(text, sizeof(text), "{\"values\": [%s]}", values);
    card = json_loads(text, 0, &e);
    assert_non_null(card);
    return card;
}

/* Without a peak there is no bound, and a reason. */
TEST(this_host_needs_its_card)
{
    capture.card = NULL;
    assert_ok(capture_run(&study_mnn_roofline, "{\"machine\": \"host\"}"));
    assert_true(isnan(value_of("decode_tok_s")) && isnan(value_of("gbps")));
    digits(value_of("linear_prefill_gflop"), 2, "1591.13");
    capture.card = made_card(
        "{\"name\": \"peak_i8_dot_x\", \"n_threads\": 99, \"estimate\": null, \"why\": "
        "\"this processor has no x\"}");
    assert_ok(capture_run(&study_mnn_roofline, "{\"machine\": \"host\"}"));
    assert_true(isnan(value_of("prefill_tok_s")));
    json_decref(capture.card);
    capture.card = NULL;
}

TEST(shares_are_shares)
{
    for (int decode = 0; decode < 2; decode++) {
        static const char *const shares[] = {"share_linear", "share_attention",
                                             "share_memory", "wait_frac"};
        char each[64];

        assert_ok(capture_run(
            &study_mnn_operators,
            "{\"model\": \"%s\", \"phase\": \"%s\", \"n_tok\": 48, \"rounds\": 3}",
            tiny_model(KERN_BF16), decode ? "decode" : "prefill"));
        for (int i = 0; i < 4; i++) {
            snprintf(each, sizeof(each), "%s_each", shares[i]);
            assert_int_equal(length_of(each), 3);
            assert_true(value_of(shares[i]) == series_middle(each));
        }
        for (int r = 0; r < 3; r++) { /* the classes are all of a step's work */
            double sum = 0;

            for (int i = 0; i < 3; i++) {
                snprintf(each, sizeof(each), "%s_each", shares[i]);
                sum += series_of(each)->v[r];
            }
            assert_true(fabs(sum - 1) < 1e-9);
        }
        assert_true(value_of("share_linear") > 0 && value_of("share_attention") > 0);
        assert_true(value_of("timed_frac") > 0 && value_of("timed_frac") <= 1.001);
        assert_value("step_s", series_min("step_s_each"));
        assert_value("tok_s", (decode ? 1 : 48) / series_min("step_s_each"));
        assert_true(isnan(value_of("bound_tok_s"))); /* no card was lent */
        assert_int_equal(length_of("step_s_each"), 3);
    }
    assert_err(capture_run(&study_mnn_operators, "{}"), ERR_ARG, "model");
}

static int characterize_here(const char *dir)
{
    return capture_run(
        &study_characterize,
        "{\"model\": \"%s\", \"dir\": \"%s\", \"n_prompt_tok\": 32, \"n_ctx_tok\": 8, "
        "\"rounds\": 3, \"card_s\": 0.2, \"read_s\": 0.01, \"read_mb\": 32}",
        tiny_model(KERN_BF16), dir);
}

/* Every number of the card that Show 5 names is there or has its reason (capture.h fails
 * otherwise), the card is next to it as JSON, and the tree has this host's CPUs. */
TEST(a_new_cpu)
{
    /* A busy machine has none that are trusted, and says so. */
    static const char *const bounds[] = {"read_gbps_1t", "peak_gflops_f32",
                                         "decode_bandwidth_frac", "prefill_peak_frac"};
    const struct model_cost_types types = {.weight = KERN_BF16, .kv = KERN_KV_F32};
    struct model_cost token, prompt;
    struct model_config c;
    struct cpu_budget b;
    char dir[600];

    assert_ok(cpu_budget_get(&b));
    assert_ok(make_config("tiny", &c));
    snprintf(dir, sizeof(dir), "%s/cards", test_dir());
    assert_ok(characterize_here(dir));
    for (const struct study_metric *m = study_characterize.metrics; m->name; m++)
        captured(m->name);
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        assert_true(value_of(bounds[i]) > 0 || *captured(bounds[i])->why);
    token = model_cost_decode(&c, types, 9, 1); /* after 8 others */
    prompt = model_cost_prefill(&c, types, 32, 0);
    assert_true(value_of("decode_flop_per_byte") == token.flop / token.read_bytes);
    assert_true(value_of("prefill_flop_per_byte") == prompt.flop / prompt.weight_bytes);
    assert_true(length_of("latency_bytes") > 3 && length_of("block_bytes") > 3);
    assert_int_equal(length_of("cpus"), b.n);
    assert_int_equal(length_of("latency_small_ns"), length_of("latency_bytes"));
    assert_true(note_of("root")[0] && note_of("levels")[0]);
}

/* Where the kernel gives no huge pages, those numbers are missing with their reason, and
 * nothing else is. */
TEST(no_huge_pages)
{
    char dir[600];

    snprintf(dir, sizeof(dir), "%s/small", test_dir());
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    assert_ok(characterize_here(dir));
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
    assert_true(isnan(value_of("latency_ns")) && isnan(value_of("random_frac_4k_huge")) &&
                isnan(value_of("fault_huge_ns")));
    assert_non_null(strstr(captured("fault_huge_ns")->why, "huge pages asked for"));
    assert_true(value_of("latency_small_ns") > 0 && value_of("fault_small_ns") > 0);
}

TEST_GROUP(NULL, capture_end);
