/* The studies of slices, by themselves on tiny products: what they report is worked out again
 * from the rates of all slices. */
#include "experiments/study/support/variant.h"
#include "tests/study/capture.h"

extern const struct study study_block_thread, study_block_growth;

/* The place of the largest value. */
static size_t best_at(const char *series)
{
    const struct captured_series *s = series_of(series);
    size_t at = 0;

    while (s->v[at] < series_max(series))
        at++;
    return at;
}

/* The slice that a sweep names, and how many of it the product has. */
static void check_best(const char *sweep, const char *of)
{
    static const char *const sides[] = {"bm", "bn", "bk"};
    size_t at = best_at(sweep);
    char name[32];

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "%s_%s", sides[i], of);
        assert_value(name, series_of(sides[i])->v[at]);
    }
    snprintf(name, sizeof(name), "n_slices_%s", of);
    assert_value(name,
                 ceil(24 / series_of("bm")->v[at]) * ceil(96 / series_of("bn")->v[at]));
}

TEST(every_slice_is_measured_on_one_thread_and_all)
{
    static const char *const dealings[] = {"slices", "m", "n", "k"};

    for (int i = 0; i < 4; i++) {
        assert_ok(capture_run(
            &study_block_thread,
            "{\"matrix\": \"x 96x64\", \"m\": 24, \"mr\": 4, \"np\": 1, \"bms\": "
            "\"8 16\", \"bns\": \"32 48\", \"bks\": \"32\", \"runs\": 1, "
            "\"rounds\": 3, \"dealing\": \"%s\"}",
            dealings[i]));
        assert_int_equal(length_of("sweep_gflops_n"), 4);
        assert_int_equal(length_of("bm"), 4);
        /* 24 rows and 96 columns in slices of (8 or 16) x (32 or 48) */
        check_best("sweep_gflops_1", "1");
        check_best("sweep_gflops_n", "n");
        assert_value("gflops_1", series_max("sweep_gflops_1"));
        assert_value("gflops_n", 2e-9 * 24 * 96 * 64 / series_min("again_s_n"));
        assert_value("gflops_n_of_1", 2e-9 * 24 * 96 * 64 / series_min("again_s_1"));
        if (best_at("sweep_gflops_1") == best_at("sweep_gflops_n"))
            assert_true(value_of("loss_frac") == 0);
        else
            assert_true(fabs(value_of("loss_frac") -
                             (1 - ratio_middle("again_s_n", "again_s_1"))) < 1e-12);
        assert_string_equal(note_of("precision"), "exact");
        assert_true(note_of("variant")[0] && note_of("cpu")[0]);
    }
}

TEST(bad_slices_are_refused)
{
    assert_err(capture_run(&study_block_thread,
                           "{\"matrix\": \"x 96x64\", \"m\": 24, \"bns\": \"32 40\"}"),
               ERR_ARG, "40 is not a multiple of 16");
    assert_err(capture_run(&study_block_thread, "{}"), ERR_ARG, "study.matrix");
    assert_err(capture_run(&study_block_growth, "{}"), ERR_ARG, "study.matrix");
    assert_err(
        capture_run(&study_block_growth,
                    "{\"matrix\": \"x 96x64\", \"m\": 8, \"step\": 64, \"max\": 8, "
                    "\"along\": \"n\"}"),
        ERR_ARG, "no multiple of it up to 8");
}

/* Of every variant that this processor runs, and only those that it has. */
TEST(micro_kernels_come_from_the_kernel)
{
    for (int i = 0; kern_variants[i]; i++) {
        const struct kern_variant *v = kern_variants[i];
        int64_t mr = 0, np = 0, mr_of_1 = 0, one = 1, too_many = 64;

        if (v->op != KERN_GEMM_F32 && v->op != KERN_GEMM_F16 && v->op != KERN_GEMM_BF16)
            continue;
        assert_ok(study_tile(v, &mr, &np));
        assert_true(mr >= 1 && mr <= kern_gemm_rows(v, (int)np));
        assert_ok(study_tile(v, &mr_of_1, &one));
        assert_int_equal(one, 1);
        assert_true(mr * np >= mr_of_1 && 8 % mr == 0);
        assert_err(study_tile(v, &too_many, &np), ERR_UNSUPPORTED, "rows fit");
    }
    assert_ok(capture_run(&study_block_thread,
                          "{\"matrix\": \"x 96x64\", \"m\": 24, \"bms\": \"8\", \"bns\": "
                          "\"32\", \"bks\": \"32\", \"runs\": 1, \"rounds\": 3}"));
    assert_err(capture_run(&study_block_growth,
                           "{\"matrix\": \"x 96x64\", \"m\": 8, \"mr\": 64, \"np\": 2, "
                           "\"step\": 64, \"max\": 64}"),
               ERR_UNSUPPORTED, "at most");
}

TEST(growth_goes_by_whole_tiles)
{
    const double *rate;
    double best;
    size_t knee = 0;

    assert_ok(capture_run(
        &study_block_growth,
        "{\"matrix\": \"x 96x64\", \"m\": 32, \"cache_mb\": 1, \"mr\": 4, \"step\": 2, "
        "\"max\": 32, \"other\": 32, \"bk\": 32}"));
    assert_int_equal(length_of("side"), 8); /* 4, 8, ... 32 */
    assert_int_equal(length_of("gflops"), 8);
    rate = series_of("gflops")->v;
    best = series_max("gflops");
    while (rate[knee] < 0.95 * best)
        knee++;
    assert_value("gflops_first", rate[0]);
    assert_value("gflops_best", best);
    assert_value("growth", best / rate[0]);
    assert_value("knee", series_of("side")->v[knee]);
    assert_value("best_side", series_of("side")->v[best_at("gflops")]);
    assert_ok(capture_run(
        &study_block_growth,
        "{\"matrix\": \"x 96x64\", \"m\": 32, \"cache_mb\": 1, \"mr\": %d, \"np\": 2, "
        "\"step\": 16, \"max\": 96, \"along\": \"n\"}",
        kern_gemm_rows(study_variant_exact(STUDY_F32), 2)));
    assert_int_equal(length_of("side"), 3); /* 32, 64, 96 columns */
}

TEST_GROUP(NULL, capture_end);
