/* Joules by token and phase, from readings of a counter whose course is known. */
#include "tests/metrics/rows.h"

static struct metrics_input input(const struct metrics_row *r, size_t n)
{
    return (struct metrics_input){.rows = r,
                                  .n_rows = n,
                                  .read_gbps = NAN,
                                  .peak_gflops = NAN,
                                  .read_why = "none given",
                                  .peak_why = "none given"};
}

static void check_why(const struct metrics_input *in, const char *name, const char *text)
{
    struct metrics m;

    metrics_compute(&m, in);
    assert_string_equal(why(&m, name), text);
    metrics_fini(&m);
}

/* 10 W until 10 ms, 20 W after: a prompt of 10 tokens from 2 ms to 10 ms, two tokens by 20 ms. */
TEST(energy_by_phase)
{
    const int64_t t[] = {10 * MS, 14 * MS, 20 * MS};
    const double s[] = {-0.01, 0.010, 0.030}, joules[] = {0, 0.2, 0.6};
    struct metrics_row r = row_at(0, 2 * MS, t, 3);
    struct metrics_input in = input(&r, 1);
    struct metrics m;

    check_why(&in, "joules_per_tok", "energy was not read");
    in.energy_why = "no counter";
    check_why(&in, "joules_per_tok", "no counter");
    check_why(&in, "decode_joules_per_tok", "no counter");
    in.energy_s = s;
    in.energy_joules = joules;
    in.n_energy = 3;
    metrics_compute(&m, &in);
    assert_near(metric(&m, "joules_per_tok"), (0.1 + 0.2) / 13, 1e-12);
    assert_near(metric(&m, "prefill_joules_per_tok"), 0.08 / 10, 1e-12);
    assert_near(metric(&m, "decode_joules_per_tok"), 0.2 / 2, 1e-12);
    assert_true(m.n_series == 2 && m.series[0].n == 3 && m.series[1].v[2] == 0.6);
    assert_string_equal(m.series[0].name, "energy_s");
    assert_string_equal(m.series[1].unit, "J");
    metrics_fini(&m);
    in.n_energy = 2; /* the last reading is before the last token */
    check_why(&in, "decode_joules_per_tok",
              "energy was read for a part of the time only");
    check_why(&in, "joules_per_tok", "energy was read for a part of the time only");
    metrics_compute(&m, &in);
    assert_near(metric(&m, "prefill_joules_per_tok"), 0.08 / 10, 1e-12);
    metrics_fini(&m);
}

/* Two at once have energy together, and none by phase; the warm-up has none. */
TEST(energy_of_several_requests)
{
    const int64_t t[] = {10 * MS, 20 * MS}, u[] = {15 * MS, 30 * MS}, v[] = {40 * MS};
    const double s[] = {0, 0.1}, joules[] = {0, 1};
    struct metrics_row r[] = {row_at(0, 0, t, 2), row_at(5 * MS, 5 * MS, u, 2),
                              row_at(30 * MS, 30 * MS, v, 1)};
    struct metrics_input in = input(r, 3);
    struct metrics m;

    in.energy_s = s;
    in.energy_joules = joules;
    in.n_energy = 2;
    check_why(&in, "prefill_joules_per_tok",
              "requests overlapped: a phase has no energy of its own");
    metrics_compute(&m, &in);
    assert_near(metric(&m, "joules_per_tok"), 0.4 / 35, 1e-12);
    metrics_fini(&m);
    r[0].warmup = true;
    metrics_compute(&m, &in);
    assert_near(metric(&m, "joules_per_tok"), 0.35 / 23, 1e-12);
    metrics_fini(&m);
    in.rows = r + 2; /* one token: no decode */
    in.n_rows = 1;
    check_why(&in, "decode_joules_per_tok", "no request made such tokens");
    metrics_compute(&m, &in);
    assert_near(metric(&m, "prefill_joules_per_tok"), 0.1 / 10, 1e-12);
    metrics_fini(&m);
    in.n_rows = 0;
    check_why(&in, "joules_per_tok", "no request made such tokens");
}

/* Many readings: what is between two of them is on their line. */
TEST(energy_between_readings)
{
    double s[100], joules[100];
    struct rng rng;

    rng_init(&rng, test_seed(), "energy");
    for (int round = 0; round < 300; round++) {
        int n = 2 + (int)rng_below(&rng, 99);
        int64_t at = 1 + (int64_t)rng_below(&rng, 1000 * MS), t[2];
        struct metrics_row r;
        struct metrics_input in = input(&r, 1);
        double want[2] = {0, 0}, one;

        t[0] = at;
        t[1] = at + 1 + (int64_t)rng_below(&rng, 1000 * MS);
        r = row_at(0, 0, t, 2);
        s[0] = joules[0] = 0;
        for (int i = 1; i < n; i++) {
            s[i] = s[i - 1] + 2.1 / (n - 1);
            joules[i] = joules[i - 1] + rng_f64(&rng);
        }
        for (int k = 0; k < 2; k++)
            for (int i = 1; i < n; i++) /* the part of each piece that is before t[k] */
                want[k] +=
                    (joules[i] - joules[i - 1]) *
                    fmin(1, fmax(0, ((double)t[k] / 1e9 - s[i - 1]) / (s[i] - s[i - 1])));
        in.energy_s = s;
        in.energy_joules = joules;
        in.n_energy = (size_t)n;
        assert_ok(metrics_one(&one, &in, "decode_joules_per_tok"));
        assert_near(one, want[1] - want[0], 1e-9);
        assert_ok(metrics_one(&one, &in, "prefill_joules_per_tok"));
        assert_near(one, want[0] / 10, 1e-9);
    }
}
