/* Rounds in turn, with scripted baselines and a bench whose times are known. */
#include <math.h>

#include "experiments/study/support/comparison.h"
#include "experiments/study/support/variant.h"
#include "tests/study/scripted_baselines.h"

/* What the bench says a run of ours takes: one of these after the other. */
static double ours_s[] = {9, 4e-3, 1e-3, 2e-3}; /* the first warms up */
static int n_ours_runs;

static double model(void *arg, const struct tune_shape *shape,
                    const struct kern_schedule *s, int n_threads)
{
    (void)arg, (void)shape, (void)s, (void)n_threads;
    return ours_s[n_ours_runs++ % 4];
}

struct fixture {
    struct study_baselines baselines;
    struct study_comparison *c;
    struct tune_bench *bench;
    struct tune_shape shape;
    int ours;
};

static void begin(struct fixture *f)
{
    static const int cpus[] = {0};
    struct gemm_baseline_opts o = {.cpus = cpus, .n_threads = 1, .cache_bytes = 1};
    struct kern_schedule s;

    memset(f, 0, sizeof(*f));
    n_ours_runs = 0;
    f->c = calloc(1, sizeof(*f->c));
    assert_non_null(f->c);
    study_baselines_open(&f->baselines, &o);
    f->c->baselines = &f->baselines;
    f->c->n_threads = 1;
    f->shape = (struct tune_shape){
        .v = study_variant_exact(STUDY_F32), .m = 4, .n = 64, .k = 64};
    assert_ok(tune_bench_open_model(&f->bench, model, NULL));
    assert_ok(tune_bench_shape(f->bench, &f->shape));
    kern_schedule_default(&s, f->shape.v, tune_bench_mat(f->bench), 4, 1);
    f->ours = study_comparison_add(f->c, "default", f->bench, &s);
}

static void end(struct fixture *f)
{
    study_baselines_close(&f->baselines);
    study_baselines_close(&f->baselines);
    assert_int_equal(baselines_open, 0);
    study_comparison_close(f->c);
    tune_bench_close(&f->bench);
    free(f->c);
}

static int add_all(struct fixture *f, const char *type)
{
    int n = 0;

    for (int i = 0; gemm_baseline_names[i]; i++)
        n += study_comparison_add_baseline(f->c, i, type, &f->shape, false, 0);
    return n;
}

static void rounds_give_times_and_ratios(void **state)
{
    struct measure_report ratio;
    struct fixture f;

    (void)state;
    begin(&f);
    assert_int_equal(add_all(&f, "f32"), 3);
    assert_ok(study_comparison_run(f.c, 3, 1e9));
    assert_int_equal(f.c->n_rounds, 3);
    assert_int_equal(n_ours_runs, 4); /* one warms up */
    assert_true(f.c->entries[f.ours].time.estimate == 1e-3);
    assert_true(study_comparison_times(f.c, f.ours)[0] == 4e-3);
    /* libxsmm would be the fastest, but died; oneDNN's 2 ms are 0.5, 2 and 1 of ours. */
    assert_int_equal(study_comparison_best_baseline(f.c), 1);
    study_comparison_ratio(f.c, f.ours, 1, &ratio);
    assert_true(ratio.estimate == 1 && ratio.lo == 0.5 && ratio.hi == 2);
    assert_true(isnan(f.c->entries[3].time.estimate));
    assert_string_equal(f.baselines.why[3], "libxsmm died");
    assert_null(f.baselines.b[3]);
    assert_string_equal(f.baselines.why[1], "openblas was not built: no library");
    end(&f);
}

static void one_without_the_type_stays_for_the_next_shape(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    assert_int_equal(add_all(&f, "bf16"), 2);
    assert_string_equal(f.baselines.why[2], "blis has no bf16");
    assert_non_null(f.baselines.b[2]);
    end(&f);
}

static void without_baselines_there_is_no_best(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    assert_ok(study_comparison_run(f.c, 99, 0)); /* no time: three all the same */
    assert_int_equal(f.c->n_rounds, 3);
    assert_int_equal(study_comparison_best_baseline(f.c), -1);
    end(&f);
}

static void when_ours_fails_so_does_the_comparison(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    f.c->entries[f.ours].schedule.mr = 0;
    assert_true(study_comparison_run(f.c, 3, 0) != OK);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_give_times_and_ratios),
        cmocka_unit_test(one_without_the_type_stays_for_the_next_shape),
        cmocka_unit_test(without_baselines_there_is_no_best),
        cmocka_unit_test(when_ours_fails_so_does_the_comparison),
    };

    return cmocka_run_group_tests_name("study/comparison", tests, NULL, NULL);
}
