#include "tests/support/test.h"

#include <math.h>
#include <sys/prctl.h>

#include "characterize/pages.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"
#include "cpu/cpu.h"
#include "measure/card.h"

static struct probe_ctx open_ctx(int n_threads, int max_values)
{
    struct probe_ctx c = {.n_threads_max = n_threads,
                          .full = true,
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

#define VALUES_MAX 512

/* A number or a reason; what is counted may be nothing, what is timed never is. */
static void check_value(const struct measure_card_row *v, int n_threads_max)
{
    bool counted = strncmp(v->name, "noise_", 6) == 0;

    assert_true(v->name[0] && v->unit[0]);
    assert_in_range(v->n_threads, 1, n_threads_max);
    assert_int_equal(isnan(v->estimate), v->why[0] != '\0');
    if (isnan(v->estimate))
        return;
    if (!(counted ? v->estimate >= 0 : v->estimate > 0) ||
        !(v->lo <= v->estimate && v->estimate <= v->hi))
        fail_msg("%s: %g in %g to %g", v->name, v->estimate, v->lo, v->hi);
    assert_true(v->n_trials >= (counted ? 1 : 3));
}

/* Runs one probe by itself; what it found stays in *c, which the caller closes. */
static int run_probe(struct probe_ctx *c, const char *name, int n_threads)
{
    *c = open_ctx(n_threads, VALUES_MAX);
    for (int i = 0; probes[i]; i++)
        if (strcmp(probes[i]->name, name) == 0)
            return probes[i]->run(c);
    fail_msg("no probe %s", name);
    return ERR_NOTFOUND;
}

static int available(const struct probe_ctx *c, const char *prefix)
{
    int n = 0;

    for (int i = 0; i < c->n_values; i++)
        n += strncmp(c->values[i].name, prefix, strlen(prefix)) == 0 &&
             !isnan(c->values[i].estimate);
    return n;
}

/* Who wants the bandwidth of all threads alone does not wait for that of fewer. */
TEST(only_as_many_threads)
{
    for (int least = 0; least <= 5; least++) {
        struct probe_ctx c = open_ctx(4, VALUES_MAX);

        c.n_threads_min = least;
        for (int i = 0; probes[i]; i++)
            if (strcmp(probes[i]->name, "read") == 0)
                assert_ok(probes[i]->run(&c));
        assert_int_equal(c.n_values, least <= 1 ? 4 : least >= 4 ? 1 : 5 - least);
        assert_int_equal(c.values[c.n_values - 1].n_threads, 4);
        close_ctx(&c);
    }
}

/* What the machine does now is read as a card is, but holds one probe's values alone. */
TEST(now)
{
    struct probe_ctx c = open_ctx(2, 1); /* no room is needed: it brings its own */
    struct cpu_budget b;
    json_t *card;

    c.n_threads_min = 2;
    assert_ok(probe_now(&card, &c, "peak"));
    assert_int_equal(c.n_values, 0);
    assert_true(measure_card_peak_gflops(card, "f32", "exact", 2) > 0);
    assert_true(isnan(measure_card_range(card, "peak_", 1, NULL).most));
    assert_true(isnan(measure_card_read_gbps(card, 2)));
    json_decref(card);
    assert_ok(probe_now(&card, &c, "read"));
    assert_true(measure_card_read_gbps(card, 2) > 0);
    json_decref(card);
    assert_ok(cpu_budget_get(&b));
    assert_ok(probe_now(&card, &(struct probe_ctx){.budget_s = 0.01}, "peak"));
    assert_true(measure_card_peak_gflops(card, "f32", "exact", b.n) > 0);
    json_decref(card);
    assert_err(probe_now(&card, &c, "reed"), ERR_NOTFOUND, "reed");
    assert_null(card);
    close_ctx(&c);
}

/* Every probe, with a CPU for each of two threads and with one: values with names and
 * units, a number or a reason, nothing twice. */
TEST(every_probe)
{
    for (int i = 0; probes[i]; i++) {
        for (int n = 1; n <= 2; n++) {
            struct probe_ctx c;

            assert_true(probes[i]->name[0] && probes[i]->help[0]);
            assert_ok(run_probe(&c, probes[i]->name, n));
            assert_true(c.n_values > 0);
            for (int k = 0; k < c.n_values; k++) {
                check_value(&c.values[k], n);
                for (int m = 0; m < k; m++)
                    assert_false(c.values[m].n_threads == c.values[k].n_threads &&
                                 strcmp(c.values[m].name, c.values[k].name) == 0);
            }
            close_ctx(&c);
        }
    }
}

/* What needs two CPUs says so where there is one, and measures where there are two. */
TEST(one_cpu)
{
    static const char *const pairs[] = {"handoff", "barrier", "allreduce", "share"};
    struct probe_ctx c;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        assert_ok(run_probe(&c, pairs[i], 1));
        assert_int_equal(c.n_values, 1);
        assert_non_null(strstr(c.values[0].why, "one CPU"));
        close_ctx(&c);
        assert_ok(run_probe(&c, pairs[i], 2));
        assert_true(available(&c, pairs[i]) > 0);
        close_ctx(&c);
    }
}

/* A kernel that gives no huge pages: small ones are measured, huge ones are not claimed. */
TEST(no_huge_pages)
{
    struct probe_ctx c;

    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    assert_ok(run_probe(&c, "latency", 1));
    assert_int_equal(available(&c, "latency_ns_huge"), 0);
    assert_true(available(&c, "latency_ns_small") > 0);
    assert_non_null(strstr(c.values[0].why, "huge pages asked for"));
    close_ctx(&c);
    assert_ok(run_probe(&c, "blocks", 2));
    assert_int_equal(available(&c, "random_gbps_huge"), 0);
    assert_true(available(&c, "random_gbps_small") > 0);
    close_ctx(&c);
    assert_ok(run_probe(&c, "fault", 1));
    assert_int_equal(available(&c, "fault_huge"), 0);
    assert_int_equal(available(&c, "fault_small"), 1);
    close_ctx(&c);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

TEST(pages_by_their_file)
{
    struct probe_pages m = {(char *)0x200000, PROBE_HUGE_BYTES * 2};
    char path[600], text[512];
    static const struct {
        const char *from;
        int kib, expect;
    } cases[] = {
        {"200000-600000", 4096, OK},
        {"200000-600000", 2048, ERR_UNSUPPORTED}, /* the half */
        {"200000-600000", 0, ERR_UNSUPPORTED},
        {"600000-a00000", 4096, ERR_UNSUPPORTED}, /* somebody else's */
        {"1ff000-800000", 6144, OK},              /* merged with its neighbours */
    };

    snprintf(path, sizeof(path), "%s/smaps", test_dir());
    assert_int_equal(probe_pages_check_huge_at(&m, path), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_msg(), "cannot read"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text),
                 "1000-2000 rw-p 00000000 00:00 0\nAnonHugePages:    8192 kB\n"
                 "%s rw-p 00000000 00:00 0\nRss: 4 kB\nAnonHugePages: %7d kB\n",
                 cases[i].from, cases[i].kib);
        test_write(path, text, strlen(text));
        assert_int_equal(probe_pages_check_huge_at(&m, path), cases[i].expect);
    }
}

TEST(too_many_values)
{
    struct probe_ctx c = open_ctx(1, 1);
    int n_refused = 0;

    for (int i = 0; probes[i]; i++)
        n_refused += probes[i]->run(&c) == ERR_LIMIT;
    assert_true(n_refused > 0);
    assert_int_equal(c.n_values, 1);
    close_ctx(&c);
}

/* The n-th allocation and all after it fail: a value is unavailable for that reason, or
 * the probe ends with the error; nothing is left behind, and nothing is claimed. */
TEST(no_memory)
{
    for (int i = 0; probes[i]; i++) {
        for (int n = 0; n < 4; n++) {
            struct probe_ctx c = open_ctx(2, VALUES_MAX);
            size_t used = mem_used_bytes(MEM_HARNESS);
            int rc;

            mem_fail_after(n, 0);
            rc = probes[i]->run(&c);
            mem_fail_after(-1, 0);
            assert_true(rc == OK || rc == ERR_NOMEM);
            assert_true(rc == ERR_NOMEM || c.n_values > 0);
            for (int k = 0; k < c.n_values; k++)
                check_value(&c.values[k], 2);
            assert_int_equal(mem_used_bytes(MEM_HARNESS), used);
            close_ctx(&c);
        }
    }
}

/* Without memory a bandwidth is unavailable, for that reason. */
TEST(no_memory_for_the_buffer)
{
    static const char *const names[] = {"read", "stream", "latency", "blocks", "fault"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct probe_ctx c = open_ctx(1, VALUES_MAX);

        mem_fail_after(0, 0);
        for (int k = 0; probes[k]; k++)
            if (strcmp(probes[k]->name, names[i]) == 0)
                assert_ok(probes[k]->run(&c));
        mem_fail_after(-1, 0);
        assert_true(c.n_values > 0);
        assert_true(isnan(c.values[0].estimate) && c.values[0].why[0]);
        close_ctx(&c);
    }
}

/* The reading loops see every byte exactly once: a changed bit changes the sum. */
TEST(loops_read_everything)
{
    size_t bytes = 2 * PROBE_CHUNK;
    unsigned char *p = mem_new(MEM_TEST, bytes, 1);
    struct rng r;

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

TEST(loops_write_everything)
{
    size_t n = PROBE_CHUNK / sizeof(float);
    float *a = mem_new(MEM_TEST, 3 * n, sizeof(float)), *b = a + n, *c = b + n;

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

TEST(thread_counts)
{
    static const int expected[][12] = {
        {1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 6},
    };
    int counts[PROBE_COUNTS_MAX];

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

/* Ten operations of a trial that takes 2, 1 or 4 seconds, or cannot be made. */
static int made_up(void *arg, int i, struct measure_trial *t)
{
    static const double seconds[] = {2, 1, 4, NAN};

    (void)arg;
    t->seconds = seconds[i];
    return OK;
}

TEST(rates_and_times)
{
    struct probe_ctx c = open_ctx(1, 8);
    struct measure *m = NULL;

    assert_ok(probe_measure(&m, 4, 1e-9, made_up, NULL));
    assert_ok(probe_report_rate(&c, "fastest", "u", 1, m, 0, 4, 10e9));
    assert_ok(probe_report_rate(&c, "third", "u", 1, m, 2, 2, 10e9));
    assert_ok(probe_report_ns(&c, "first", 1, m, 0, 10));
    assert_ok(probe_report_rate(&c, "none", "u", 1, m, 3, 1, 10e9));
    measure_close(&m);
    assert_true(c.values[0].estimate == 10 && c.values[1].estimate == 2.5);
    assert_true(fabs(c.values[2].estimate - 0.2e9) < 1);
    assert_string_equal(c.values[2].unit, "ns");
    for (int i = 0; i < 3; i++)
        check_value(&c.values[i], 1);
    assert_true(isnan(c.values[3].estimate) && c.values[3].why[0]);
    close_ctx(&c);
}
