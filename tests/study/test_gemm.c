/* What studies of GEMMs share: how a job names a matrix, shapes that are drawn, bounds. */
#include <math.h>

#include "experiments/study/support/gemm.h"
#include "experiments/study/support/tuning.h"
#include "experiments/study/support/variant.h"
#include "measure/card.h"
#include "measure/compare.h"
#include "tests/support/test.h"

TEST(a_matrix_is_read)
{
    struct tune_shape m;

    assert_ok(study_matrix_parse("sheared-llama-1.3b/qkv 6144x2048", 7, &m));
    assert_int_equal(m.m, 7);
    assert_int_equal(m.n, 6144);
    assert_int_equal(m.k, 2048);
    assert_int_equal(m.k_unit, 0);
    assert_ok(study_matrix_parse("o 2048x2048/128", 1, &m));
    assert_int_equal(m.k_unit, 128);
}

TEST(a_bad_matrix_is_refused)
{
    static const char *const bad[] = {
        "",        "o",      "o 12",      "o 12x",          "o 0x4",
        "o -4x4",  "o 4x4/", "o 4x4/3",   "o 4x4/8",        "o 4x4/2 x",
        "o 4x4 4", "12x4",   "o 4x4/2/2", "o 9999999999x4", "o 4y4"};
    struct tune_shape m;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (study_matrix_parse(bad[i], 1, &m) != ERR_ARG)
            fail_msg("\"%s\" was taken for a matrix", bad[i]);
    assert_non_null(strstr(err_msg(), "NAME NxK/UNIT"));
}

TEST(numbers_ascend)
{
    int64_t v[4];
    int n;

    assert_ok(study_numbers_parse("1 2 40", "ms", v, 4, &n));
    assert_int_equal(n, 3);
    assert_int_equal(v[2], 40);
    assert_ok(study_numbers_parse("1..3 7", "ms", v, 4, &n));
    assert_int_equal(n, 4);
    assert_int_equal(v[2], 3);
    assert_int_equal(v[3], 7);
    assert_err(study_numbers_parse("1..5", "ms", v, 4, &n), ERR_LIMIT, "ms: more than 4");
    assert_err(study_numbers_parse("1 2..4 4", "ms", v, 4, &n), ERR_ARG, "ascending");
    assert_err(study_numbers_parse("3..2", "ms", v, 4, &n), ERR_ARG, "ascending");
    assert_err(study_numbers_parse("1..", "ms", v, 4, &n), ERR_ARG, "found \"1..\"");
    assert_err(study_numbers_parse("1...3", "ms", v, 4, &n), ERR_ARG, "ascending");
    assert_err(study_numbers_parse("1..99999999999999999999", "ms", v, 4, &n), ERR_LIMIT,
               "more than 4");
    assert_err(study_numbers_parse("", "ms", v, 4, &n), ERR_ARG, "ms: expected numbers");
    assert_err(study_numbers_parse("2 2", "ms", v, 4, &n), ERR_ARG, "ascending");
    assert_err(study_numbers_parse("0 2", "ms", v, 4, &n), ERR_ARG, "ascending");
    assert_err(study_numbers_parse("1 x", "ms", v, 4, &n), ERR_ARG, "found \"x\"");
    assert_err(study_numbers_parse("1 2 3 4 5", "ms", v, 4, &n), ERR_LIMIT,
               "more than 4");
}

TEST(a_roof_is_the_lower_bound)
{
    /* 30 GB/s of f32 weights are 7.5 G weights, each used for a multiplication and an
     * addition a row. */
    assert_true(study_memory_roof_gflops(STUDY_F32, 1, 30) == 15);
    assert_true(study_memory_roof_gflops(STUDY_F32, 8, 30) == 120);
    assert_true(study_memory_roof_gflops(STUDY_BF16, 8, 30) == 240);
    assert_true(study_memory_roof_gflops(STUDY_BF16_RELAXED, 8, 30) == 240);
    assert_true(study_roof_gflops(400, 120) == 120);
    assert_true(study_roof_gflops(400, 4000) == 400);
    assert_true(isnan(study_roof_gflops(NAN, 120)));
    assert_true(isnan(study_roof_gflops(400, NAN)));
    assert_true(isnan(study_memory_roof_gflops(STUDY_F32, 8, NAN)));
}

TEST(a_rate_counts_both_operations)
{
    struct tune_shape s = {.m = 10, .n = 1000, .k = 100000};

    assert_true(fabs(study_gflops(&s, 0.5) - 4) < 1e-12);
}

static json_t *card_of(double one, double two)
{
    const char *name = "peak_f32_fma_any";

    return json_pack("{s:[{s:s, s:i, s:f}, {s:s, s:i, s:f}]}", "values", "name", name,
                     "n_threads", 1, "estimate", one, "name", name, "n_threads", 2,
                     "estimate", two);
}

TEST(a_peak_that_falls_with_threads_is_not_believed)
{
    json_t *busy = card_of(200, 150), *quiet = card_of(200, 390);

    assert_true(isnan(study_peak_gflops(NULL, STUDY_F32, 2)));
    if (isnan(measure_card_peak_gflops(quiet, "f32", "exact", 2)))
        fail_msg("the made-up card is not a card");
    assert_true(study_peak_gflops(quiet, STUDY_F32, 2) == 390);
    assert_true(isnan(study_peak_gflops(busy, STUDY_F32, 2)));
    assert_true(study_peak_gflops(busy, STUDY_F32, 1) == 200);
    json_decref(busy);
    json_decref(quiet);
}

TEST(drawn_shapes_differ_ascend_and_repeat)
{
    struct study_shapes *a = calloc(2, sizeof(*a)), *b = a + 1;

    assert_non_null(a);
    assert_ok(study_shapes_make(a, "x 64x32", STUDY_F32, NULL, 12, 16, 7));
    assert_ok(study_shapes_make(b, "x 64x32", STUDY_F32, NULL, 12, 16, 7));
    assert_int_equal(a->n, 12);
    for (int i = 0; i < 12; i++) {
        assert_true(a->v[i].m >= 1 && a->v[i].m <= 16);
        assert_true(i == 0 || a->v[i].m > a->v[i - 1].m);
        assert_int_equal(a->v[i].m, b->v[i].m);
        assert_ptr_equal(a->v[i].v, study_variant_exact(STUDY_F32));
    }
    assert_ok(study_shapes_make(a, "x 64x32/8", STUDY_BF16, "3 5", 12, 16, 7));
    assert_int_equal(a->n, 2);
    assert_int_equal(a->v[1].m, 5);
    assert_int_equal(a->v[1].k_unit, 8);
    assert_err(study_shapes_make(a, "x 64x32", STUDY_F32, NULL, 17, 16, 7), ERR_LIMIT,
               "17 different numbers of rows up to 16");
    assert_err(study_shapes_make(a, NULL, STUDY_F32, NULL, 1, 16, 7), ERR_ARG,
               "study.matrix");
    free(a);
}

TEST(more_threads_than_cpus_are_refused)
{
    struct study_threads t;

    assert_err(study_threads_open(&t, CPU_MAX, 0), ERR_ARG, "threads:");
    study_threads_close(&t);
}

/* The exact kernel errs by roundings of f32 sums, the relaxed one by no more than rounding
 * activations to bf16 does. */
TEST(errors_are_those_of_the_precision)
{
    static const struct {
        int mode;
        double low, high;
    } all[] = {
        {STUDY_F32, 0, 2e-6}, {STUDY_BF16, 0, 2e-6}, {STUDY_BF16_RELAXED, 0, 4e-3}};
    struct tune_bench_opts o = {.warm = true, .seed = 3};
    struct study_threads t;
    struct tune_bench *b;

    assert_ok(study_threads_open(&t, 0, 1));
    assert_ok(tune_bench_open(&b, t.team, &o));
    for (size_t i = 0; i < 3; i++) {
        struct tune_shape s = {.m = 9, .n = 200, .k = 300};
        struct kern_schedule plan;
        double seconds, error = NAN;

        assert_ok(study_variant_choose(&s, all[i].mode));
        assert_non_null(s.v);
        assert_ok(tune_bench_shape(b, &s));
        kern_schedule_default(&plan, s.v, tune_bench_mat(b), s.m, t.n);
        assert_ok(tune_run_once(b, &plan, t.n, &seconds));
        assert_ok(study_gemm_error(b, &s, 5, &error));
        if (!(error >= all[i].low && error <= all[i].high))
            fail_msg("%s %s: error %g", study_mode_type(all[i].mode),
                     study_mode_precision(all[i].mode), error);
    }
    tune_bench_close(&b);
    study_threads_close(&t);
}

TEST(the_variant_depends_on_the_rows)
{
    const struct kern_variant *const *k = kern_variants;
    const struct model_variants v = {.v = {k[0], k[1], k[2]}};

    assert_ptr_equal(model_variants_at(&v, 7), k[0]);
    assert_ptr_equal(model_variants_at(&v, 8), k[1]);
    assert_ptr_equal(model_variants_at(&v, 63), k[1]);
    assert_ptr_equal(model_variants_at(&v, 64), k[2]);
    assert_ptr_equal(model_variants_at(&v, INT64_MAX), k[2]);
}

static int one_second(void *arg, int alternative, struct measure_trial *t)
{
    (void)alternative;
    ++*(int *)arg;
    t->seconds = 1;
    return OK;
}

static double no_run(void *arg, const struct tune_shape *shape,
                     const struct kern_schedule *s, int n_threads)
{
    (void)arg, (void)shape, (void)s, (void)n_threads;
    fail_msg("a choice of variants needs no bench");
    return 1;
}

TEST(a_choice_is_made_once_a_matrix)
{
    struct tune_shape s = {.m = 2, .n = 64, .k = 64};
    struct study_choices *c = calloc(1, sizeof(*c));
    struct tune_bench *b;
    int n_runs = 0, n_first;

    assert_non_null(c);
    assert_ok(tune_bench_open_model(&b, no_run, NULL));
    measure_script(one_second, &n_runs);
    assert_ok(study_choices_apply(c, b, STUDY_BF16, "a", &s));
    assert_int_equal(n_runs, 0); /* exact: nothing to choose among */
    assert_ptr_equal(s.v, study_variant_exact(STUDY_BF16));
    assert_ok(study_choices_apply(c, b, STUDY_BF16_RELAXED, "a", &s));
    n_first = n_runs;
    s.m = 100;
    s.v = NULL;
    assert_ok(study_choices_apply(c, b, STUDY_BF16_RELAXED, "a", &s));
    assert_int_equal(n_runs, n_first);
    assert_true(s.v && s.v->op == KERN_GEMM_BF16);
    assert_ok(study_choices_apply(c, b, STUDY_BF16_RELAXED, "b", &s));
    assert_int_equal(n_runs, 2 * n_first);
    for (int i = 0; i < 2 * STUDY_CHOICES_MAX; i++) { /* more than are kept */
        char name[16];

        snprintf(name, sizeof(name), "m%d", i);
        assert_ok(study_choices_apply(c, b, STUDY_F32, name, &s));
    }
    assert_ok(study_choices_apply(c, b, STUDY_BF16_RELAXED, "a", &s));
    assert_int_equal(n_runs, 3 * n_first);
    measure_script(NULL, NULL);
    tune_bench_close(&b);
    free(c);
}
