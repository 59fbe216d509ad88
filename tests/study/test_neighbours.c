/* neighbours: a thief takes what it says and its dose is counted; a run's numbers follow from its
 * rounds. */
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "experiments/study/support/stressors.h"
#include "tests/study/capture.h"
#include "tests/support/tiny_model.h"

extern const struct study study_neighbours;

TEST_GROUP(NULL, capture_end);

static const char *const thieves[] = {"cpu", "bandwidth", "cache", "page_cache"};
static const char *const strengths[] = {"0", "25", "50", "100"};
enum { N_THIEVES = 4, N_STRENGTHS = 4, ROUNDS = 6, N_REQUESTS = 6 };

/* ---- thieves ---- */

#define FOOTPRINT  (1 << 20)
#define FILE_BYTES 200000 /* three pieces and a part of one */

static struct study_stressors *open_thief(int fd)
{
    struct study_stressors *h;
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    assert_ok(study_stressors_open(
        &h, &(struct study_stressors_opts){.cpus = &b.cpus[b.n - 1],
                                           .n = 1,
                                           .share = 0.5,
                                           .period_s = 0.001,
                                           .footprint_bytes = FOOTPRINT,
                                           .fd = fd}));
    return h;
}

static struct study_stressors_dose dose_of(const struct study_stressors *h)
{
    struct study_stressors_dose d;

    study_stressors_dose(h, &d);
    return d;
}

/* Without strength a thief wakes, and takes nothing but that. */
TEST(no_strength_reads_nothing)
{
    struct study_stressors *h = open_thief(-1);

    for (int mode = STUDY_STRESSORS_SPIN; mode <= STUDY_STRESSORS_EVICT; mode++) {
        struct study_stressors_dose d;

        study_stressors_begin(h, mode, 0, FOOTPRINT);
        clock_sleep_until_ns(clock_ns() + 20000000, 0);
        d = dose_of(h);
        assert_true(d.read_bytes == 0 && d.disk_bytes == 0 && d.cpu_s >= 0);
    }
    study_stressors_close(&h);
}

/* All of the strength never sleeps; CPU time and bytes go up, and begin at 0 with a mode. */
TEST(doses_are_counted_from_the_beginning_of_a_mode)
{
    struct study_stressors *h = open_thief(-1);
    struct study_stressors_dose d;
    double before;

    study_stressors_begin(h, STUDY_STRESSORS_TOUCH, 1, FOOTPRINT);
    do
        d = dose_of(h);
    while (d.read_bytes < 8.0 * FOOTPRINT || d.cpu_s < 0.2);
    assert_true(study_stressors_touched_bytes(h) <= FOOTPRINT);
    before = d.read_bytes;
    study_stressors_set(h, STUDY_STRESSORS_OFF);
    d = dose_of(h);
    assert_true(d.read_bytes >= before); /* of the mode that was last */
    study_stressors_begin(h, STUDY_STRESSORS_SPIN, 0, FOOTPRINT);
    d = dose_of(h);
    assert_true(d.read_bytes == 0 && d.cpu_s < 0.2); /* it has only waked */
    study_stressors_close(&h);
}

/* A part of the buffers is no more than that part, and all of them no more than there is. */
TEST(a_footprint_is_a_part_of_the_buffers)
{
    static const size_t wanted[] = {FOOTPRINT / 4, 4 * FOOTPRINT, 1};
    static const size_t most[] = {FOOTPRINT / 4, FOOTPRINT, 64};
    struct study_stressors *h = open_thief(-1);

    for (int i = 0; i < 3; i++) {
        study_stressors_begin(h, STUDY_STRESSORS_TOUCH, 1, wanted[i]);
        while (dose_of(h).read_bytes < 8.0 * FOOTPRINT)
            ;
        assert_true(study_stressors_touched_bytes(h) > 0);
        assert_true(study_stressors_touched_bytes(h) <= (double)most[i]);
    }
    study_stressors_close(&h);
}

/* A file is read from its beginning to its end, again and again, and stays as it is. */
TEST(a_file_is_read_and_left_as_it_is)
{
    static char bytes[FILE_BYTES], after[FILE_BYTES];
    struct study_stressors *h;
    char path[512];
    int fd;

    memset(bytes, 7, sizeof(bytes));
    snprintf(path, sizeof(path), "%s/pages", test_dir());
    assert_true((fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(fdatasync(fd), 0);
    h = open_thief(fd);
    study_stressors_begin(h, STUDY_STRESSORS_EVICT, 1, FOOTPRINT);
    while (dose_of(h).read_bytes < 10.0 * FILE_BYTES)
        ;
    study_stressors_set(h, STUDY_STRESSORS_OFF);
    assert_true(dose_of(h).disk_bytes >= 0); /* 0 where the file is in memory anyway */
    study_stressors_close(&h);
    assert_int_equal(pread(fd, after, sizeof(after), 0), sizeof(after));
    assert_memory_equal(bytes, after, sizeof(bytes));
    close(fd);
}

/* A file that is not there gives no dose, and no thief that hangs. */
TEST(a_file_that_cannot_be_read)
{
    struct study_stressors *h = open_thief(-1);

    study_stressors_begin(h, STUDY_STRESSORS_EVICT, 1, FOOTPRINT);
    clock_sleep_until_ns(clock_ns() + 5000000, 0);
    assert_true(dose_of(h).read_bytes == 0);
    study_stressors_close(&h);
}

/* ---- the study ---- */

static int run(const char *rest)
{
    return capture_run(&study_neighbours,
                       "{\"model\": \"%s\", \"rounds\": %d, \"n_requests\": %d, "
                       "\"clients\": 3, \"n_prompt_tok\": 8, \"n_output_tok\": 32, "
                       "\"stream_mb\": 1, \"ttft_ms\": 1e6, \"tpot_ms\": 1e6%s}",
                       tiny_model(KERN_BF16), ROUNDS, N_REQUESTS, rest);
}

static double round_of(const char *value, int thief, int strength, int round)
{
    char name[64];

    snprintf(name, sizeof(name), "%s_%s_%s", value, thieves[thief], strengths[strength]);
    return series_at(name, round);
}

/* By hand: the others' speed at 0 % in this round. */
static double alone(int round, int but)
{
    double product = 1;
    int n = 0;

    for (int k = 0; k < N_THIEVES; k++)
        if (k != but) {
            product *= round_of("tok_s", k, 0, round);
            n++;
        }
    return pow(product, 1.0 / n);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

static void check_round(int thief, int round, double *slope, bool *rises)
{
    double xy = 0, xx = 0;

    *rises = true;
    for (int s = 0; s < N_STRENGTHS; s++) {
        double x = strtod(strengths[s], NULL) / 100;
        double left = round_of("left", thief, s, round);

        near(left, round_of("tok_s", thief, s, round) / alone(round, s ? -1 : thief));
        /* All requests meet objectives of a quarter of an hour: the same tokens in that time. */
        near(round_of("attained", thief, s, round), 1);
        near(round_of("goodput_rps", thief, s, round) / N_REQUESTS /
                 round_of("tok_s", thief, s, round),
             round_of("goodput_rps", 0, 0, 0) / N_REQUESTS / round_of("tok_s", 0, 0, 0));
        assert_true(round_of("itl_p95_ms", thief, s, round) > 0);
        assert_true(round_of("taken", thief, s, round) >= 0);
        xy += x * log(left) * (s > 0);
        xx += x * x;
        if (s > 0)
            *rises &=
                round_of("dose", thief, s, round) > round_of("dose", thief, s - 1, round);
    }
    *slope = -xy / xx;
}

static void check_thief(int thief)
{
    double slopes[ROUNDS], n_rises = 0;
    char name[64];
    bool rises;

    snprintf(name, sizeof(name), "slope_%s", thieves[thief]);
    for (int i = 0; i < ROUNDS; i++) {
        check_round(thief, i, &slopes[i], &rises);
        n_rises += rises;
        if (!isnan(value_of(name)))
            near(series_at(name, i), slopes[i]);
    }
    if (n_rises >= ROUNDS / 2.0)
        near(value_of(name), middle_of(slopes, ROUNDS));
    else
        assert_true(strstr(captured(name)->why, "dose does not rise") != NULL);
    snprintf(name, sizeof(name), "rises_%s", thieves[thief]);
    near(value_of(name), n_rises / ROUNDS);
}

TEST(numbers_follow_from_the_rounds)
{
    static const char *const policies[] = {"continuous", "chunked"};

    for (int i = 0; i < 2; i++) {
        char rest[64];

        snprintf(rest, sizeof(rest), ", \"policy\": \"%s\"", policies[i]);
        assert_ok(run(rest));
        for (int k = 0; k < N_THIEVES; k++)
            check_thief(k);
        near(value_of("tok_s_cpu_100"), series_middle("tok_s_cpu_100"));
        assert_true(captured("left_cache_50")->lo == series_min("left_cache_50"));
        near(value_of("dose_cpu_100"), value_of("taken_cpu_100"));
    }
}

/* What levers say: less time of all CPUs, less bandwidth by what the thief reads. */
TEST(predictions_follow_from_doses)
{
    struct cpu_budget b;
    double left;

    assert_ok(cpu_budget_get(&b));
    assert_ok(run(""));
    assert_true(isnan(value_of("predicted_cpu"))); /* there is no card */
    capture.card = json_pack("{s:[{s:s, s:i, s:f}]}", "values", "name", "read_gbps",
                             "n_threads", b.n, "estimate", 1000.0);
    assert_ok(run(""));
    json_decref(capture.card);
    capture.card = NULL;
    near(value_of("predicted_cpu"), 1 - value_of("taken_cpu_100") / b.n);
    left = 1 - value_of("dose_bandwidth_100") / 1000;
    near(value_of("predicted_bandwidth"),
         (1 - value_of("taken_bandwidth_100") / b.n) *
             pow(left, value_of("elasticity_bandwidth")));
    assert_string_equal(evidence_of("predicted_cpu"), "model");
    assert_string_equal(evidence_of("slope_cpu"), "");
}

TEST(objectives_that_nobody_meets)
{
    assert_ok(capture_run(&study_neighbours,
                          "{\"model\": \"%s\", \"rounds\": 1, \"n_requests\": 2, "
                          "\"clients\": 1, \"stream_mb\": 1, \"ttft_ms\": 0}",
                          tiny_model(KERN_BF16)));
    assert_true(value_of("attained_cpu_0") == 0 && value_of("goodput_rps_cache_50") == 0);
    assert_true(value_of("tok_s_cpu_0") > 0);
    assert_true(isnan(captured("tok_s_cpu_0")->lo));  /* one round has no interval */
    assert_true(isnan(value_of("itl_p95_ms_cpu_0"))); /* of 60 tokens */
}

TEST(fewer_threads_have_no_levers)
{
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    if (b.n < 2)
        test_skip("one CPU");
    assert_ok(run(", \"threads\": 1"));
    assert_true(isnan(value_of("elasticity_bandwidth")));
    assert_true(isnan(value_of("predicted_bandwidth")));
}

TEST(options_that_are_refused)
{
    assert_err(capture_run(&study_neighbours, "{\"rounds\": 1}"), ERR_ARG, "study.model");
    assert_err(run(", \"policy\": \"unfair\""), ERR_NOTFOUND, "unfair");
}
