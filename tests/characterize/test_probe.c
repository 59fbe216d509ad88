#include "tests/support/test.h"

#include <math.h>

#include "characterize/peak/peak.h"
#include "characterize/trial.h"
#include "cpu/cpu.h"

static struct probe_ctx open_ctx(int n_threads, int max_values)
{
    struct probe_ctx c = {.n_threads_max = n_threads,
                          .budget_s = 0.02,
                          .buffer_bytes = 1 << 20,
                          .max_values = max_values};

    c.values = mem_new(MEM_TEST, (size_t)max_values, sizeof(*c.values));
    assert_non_null(c.values);
    assert_ok(par_team_open(&c.team, NULL, n_threads, 0));
    return c;
}

static void close_ctx(struct probe_ctx *c)
{
    par_team_close(&c->team);
    mem_free(c->values);
}

/* Every probe: values with names and units, a number or a reason, nothing twice. */
static void every_probe(void **state)
{
    (void)state;
    for (int i = 0; probes[i]; i++) {
        struct probe_ctx c = open_ctx(2, 64);

        assert_true(probes[i]->name[0] && probes[i]->help[0]);
        assert_ok(probes[i]->run(&c));
        assert_true(c.n_values > 0);
        for (int k = 0; k < c.n_values; k++) {
            const struct probe_value *v = &c.values[k];

            assert_true(v->name[0] && v->unit[0]);
            assert_in_range(v->n_threads, 1, 2);
            assert_int_equal(isnan(v->median), v->why[0] != '\0');
            if (!isnan(v->median))
                assert_true(v->median > 0 && v->mad >= 0 && v->n_trials >= 3);
            for (int m = 0; m < k; m++)
                assert_false(c.values[m].n_threads == v->n_threads &&
                             strcmp(c.values[m].name, v->name) == 0);
        }
        close_ctx(&c);
    }
}

static void too_many_values(void **state)
{
    struct probe_ctx c = open_ctx(1, 1);
    int n_refused = 0;

    (void)state;
    for (int i = 0; probes[i]; i++)
        n_refused += probes[i]->run(&c) == ERR_LIMIT;
    assert_true(n_refused > 0);
    assert_int_equal(c.n_values, 1);
    close_ctx(&c);
}

/* Without memory a bandwidth is unavailable, for that reason. */
static void no_memory_for_the_buffer(void **state)
{
    (void)state;
    for (int i = 0; probes[i]; i++) {
        struct probe_ctx c = open_ctx(1, 64);
        int rc;

        mem_fail_after(0, 0);
        rc = probes[i]->run(&c);
        mem_fail_after(-1, 0);
        if (rc != ERR_NOMEM) {
            assert_ok(rc);
            assert_true(c.n_values > 0);
            assert_true(isnan(c.values[0].median) && c.values[0].why[0]);
        }
        close_ctx(&c);
    }
}

/* The reading loops see every byte exactly once: a changed bit changes the sum. */
static void loops_read_everything(void **state)
{
    size_t bytes = 2 * PROBE_CHUNK;
    unsigned char *p = mem_new(MEM_TEST, bytes, 1);
    struct rng r;

    (void)state;
    assert_non_null(p);
    rng_init(&r, test_seed(), "loops");
    for (int i = 0; probe_isas[i]; i++) {
        const struct probe_isa *isa = probe_isas[i];

        if ((isa->isa & ~cpu_isa_detected()) != 0)
            continue;
        for (int k = 0; k < PROBE_READ_MAX && isa->read[k]; k++) {
            for (int flips = 0; flips < 100; flips++) {
                size_t at = rng_below(&r, bytes) / isa->vec_bytes * isa->vec_bytes +
                            rng_below(&r, 16); /* the lanes that the sum looks at */

                p[at] ^= 1;
                if (!isa->read[k](p, bytes))
                    fail_msg("%s read %d misses byte %zu", isa->name, k, at);
                p[at] ^= 1;
            }
            assert_int_equal(isa->read[k](p, bytes), 0);
        }
    }
    mem_free(p);
}

static void loops_write_everything(void **state)
{
    size_t n = PROBE_CHUNK / sizeof(float);
    float *a = mem_new(MEM_TEST, 3 * n, sizeof(float)), *b = a + n, *c = b + n;

    (void)state;
    assert_non_null(a);
    for (size_t i = 0; i < n; i++)
        b[i] = (float)i, c[i] = (float)(i % 97);
    for (int i = 0; probe_isas[i]; i++) {
        const struct probe_isa *isa = probe_isas[i];

        if ((isa->isa & ~cpu_isa_detected()) != 0)
            continue;
        for (int k = 0; k < PROBE_WRITE_MAX && isa->copy[k]; k++) {
            memset(a, 0, n * sizeof(float));
            isa->copy[k](a, b, n * sizeof(float));
            assert_memory_equal(a, b, n * sizeof(float));
            isa->triad[k](a, b, c, n);
            for (size_t m = 0; m < n; m++)
                assert_true(a[m] == b[m] + 3.0f * c[m]);
        }
    }
    mem_free(a);
}

/* Arithmetic loops: more rounds, another sum; never a special value. */
static void arithmetic_is_done(void **state)
{
    (void)state;
    for (int i = 0; probe_isas[i]; i++) {
        const struct probe_isa *isa = probe_isas[i];

        if ((isa->isa & ~cpu_isa_detected()) != 0)
            continue;
        for (int k = 0; k < PROBE_ARITH_MAX && isa->arith[k].run; k++) {
            double one = isa->arith[k].run(1), two = isa->arith[k].run(2);

            assert_true(isfinite(one) && isfinite(two) && one != two);
            assert_true(isfinite(isa->arith[k].run(100000)));
            assert_true(isa->arith[k].ops > 0);
        }
    }
}

static void thread_counts(void **state)
{
    static const int expected[][12] = {
        {1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 6},
    };
    int counts[PROBE_COUNTS_MAX];

    (void)state;
    for (int n = 1; n <= 6; n++) {
        int k = probe_thread_counts(n, counts);

        for (int i = 0; i < k; i++)
            assert_int_equal(counts[i], expected[n - 1][i]);
        assert_int_equal(expected[n - 1][k], 0);
    }
    for (int n = 1; n <= 1 << 14; n++) {
        int k = probe_thread_counts(n, counts);

        assert_in_range(k, 1, PROBE_COUNTS_MAX);
        assert_int_equal(counts[k - 1], n);
        for (int i = 1; i < k; i++)
            assert_true(counts[i - 1] < counts[i]);
    }
}

/* Disturbed trials are set aside while there are others. */
static void disturbed_trials(void **state)
{
    struct probe_series s[2] = {0};
    struct probe_ctx c = open_ctx(1, 4);

    (void)state;
    for (int i = 1; i <= 3; i++) {
        probe_series_add(&s[0], 10e9, &(struct probe_time){1.0, 0});
        probe_series_add(&s[0], 10e9, &(struct probe_time){5.0, 1});
    }
    probe_series_add(&s[1], 7e9, &(struct probe_time){1.0, 0});
    probe_series_add(&s[1], 5e9, &(struct probe_time){1.0, 1});
    probe_series_add(&s[1], 6e9, &(struct probe_time){1.0, 1});
    assert_ok(probe_report_best(&c, "a", "u", 1, s, 2));
    assert_true(c.values[0].median == 10 && c.values[0].n_trials == 3);
    assert_ok(probe_report_best(&c, "b", "u", 1, s + 1, 1));
    assert_true(c.values[1].median == 6 && c.values[1].n_trials == 3);
    memset(s, 0, sizeof(s));
    assert_ok(probe_report_best(&c, "c", "u", 1, s, 2));
    assert_true(isnan(c.values[2].median) && c.values[2].why[0]);
    close_ctx(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_probe),
        cmocka_unit_test(too_many_values),
        cmocka_unit_test(no_memory_for_the_buffer),
        cmocka_unit_test(loops_read_everything),
        cmocka_unit_test(loops_write_everything),
        cmocka_unit_test(arithmetic_is_done),
        cmocka_unit_test(thread_counts),
        cmocka_unit_test(disturbed_trials),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
