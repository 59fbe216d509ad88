/* Schedules searched for one number of rows after the other, on a modelled machine, and
 * what is said to be particular about one. */
#include <math.h>

#include "experiments/study/support/schedules.h"
#include "tests/support/test.h"
#include "tests/tune/bench_model.h"

struct fixture {
    struct bench_model model;
    struct tune_bench *bench;
    struct tune_opts o;
    struct study_schedules known;
};

static void search(struct fixture *f, const char *key, int64_t m, struct kern_schedule *s,
                   struct tune_cost *cost)
{
    const struct tune_shape shape = {.v = &bench_model_mks, .m = m, .n = 512, .k = 512};

    assert_ok(
        study_schedules_search(&f->known, f->bench, key, &f->o, 2, &shape, s, cost));
    assert_ok(kern_schedule_check(s, shape.v, tune_bench_mat(f->bench), m, 2));
}

/* What was found for fewer rows spares the search of more, for the same matrix only. */
TEST(a_search_begins_with_fewer_rows)
{
    static struct fixture f;
    struct tune_cost first, second, again, other;
    struct kern_schedule s;

    memset(&f, 0, sizeof(f));
    f.model = (struct bench_model){.cache_bytes = 512 << 10, .start_s = 2e-7};
    assert_ok(tune_bench_open_model(&f.bench, bench_model_s, &f.model));
    bench_model_opts(&f.o);
    f.o.sigma = 1;
    search(&f, "a", 128, &s, &first);
    search(&f, "a", 256, &s, &second);
    assert_true(second.n_measurements < first.n_measurements / 2);
    search(&f, "b", 256, &s, &other); /* nothing is known of it */
    assert_true(other.n_measurements > 2 * second.n_measurements);
    search(&f, "a", 128, &s, &again); /* more rows than these do not count */
    assert_int_equal(again.n_measurements, first.n_measurements);
    tune_bench_close(&f.bench);
    opt_free(tune_opt_table, &f.o);
}

TEST(many_rows_and_matrices_fit)
{
    static struct fixture f;
    struct kern_schedule s;
    struct tune_cost cost;
    char key[16];

    memset(&f, 0, sizeof(f));
    f.model = (struct bench_model){.cache_bytes = 512 << 10, .start_s = 2e-7};
    assert_ok(tune_bench_open_model(&f.bench, bench_model_s, &f.model));
    bench_model_opts(&f.o);
    f.o.sigma = 1;
    for (int m = 1; m <= 2 * STUDY_ROWS_MAX; m++)
        search(&f, "rows", m, &s, &cost);
    for (int i = 0; i <= STUDY_MATRICES_MAX; i++) {
        snprintf(key, sizeof(key), "m%d", i);
        search(&f, key, 4, &s, &cost);
    }
    tune_bench_close(&f.bench);
    opt_free(tune_opt_table, &f.o);
}

static void check(int64_t m, int64_t k_unit, struct kern_schedule s, double seconds,
                  const char *expected)
{
    const struct tune_shape shape = {
        .v = &bench_model_mks, .m = m, .n = 48, .k = 1 << 20, .k_unit = k_unit};
    struct kern_mat w;
    struct text text = {0};

    kern_mat_layout(&w, KERN_F32, shape.n, shape.k, k_unit);
    study_schedule_particulars(&shape, &w, &s, seconds, &text);
    assert_ok(text.rc);
    assert_string_equal(text.p, expected);
    text_fini(&text);
}

/* 48 columns are three panels; 192 MB of weights fit no second-level cache. */
TEST(particulars_are_named)
{
    struct kern_schedule s = {
        .mr = 14, .np = 1, .bm = 14, .bn = 1, .bk = 64, .pm = 1, .pn = 3, .pk = 1};

    check(60, 0, s, 1, "");
    check(2, 0, s, 1, "few rows: a micro-kernel takes 30");
    check(60, 64, s, 1, "split along K in units of 64 rows");
    check(60, 0, s, 1e-4, "short: 100 us");
    s.pn = 2; /* two panels and one */
    check(60, 0, s, 1, "uneven parts: threads wait for 25 % of the time");
    s.pn = 1;
    s.pk = 2;
    check(2, 64, s, 1,
          "few rows: a micro-kernel takes 30; split along K in units of 64 rows; "
          "K divided among 2 threads");
}
