/* Jobs with repeats "auto": when they end, with which interval, and what the record says. */
#include "tests/run/script_study.h"

#include "base/stats.h"
#include "base/stats_sequence.h"

#define NOISY(noise, settings, headlines)                                                \
    "\"repeats\": \"auto\", \"study\": {\"name\": \"script\", \"m\": [1, 2], "           \
    "\"noise\": " noise "}, " settings "\"headline\": [" headlines "]"
#define ONE "{\"name\": \"one\", \"metric\": \"speed\", \"where\": {\"m\": 1}}"
#define RATIO                                                                            \
    "{\"name\": \"ratio\", \"metric\": \"speed\", \"where\": {\"m\": 2}, "               \
    "\"relative_to\": {\"m\": 1}}"
#define MEAN "{\"name\": \"mean\", \"metric\": \"speed\", \"over\": \"mean\"}"

static void assert_near(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance))
        fail_msg("found %.12g, wanted %.12g within %g", found, wanted, tolerance);
}

/* --- reading */

TEST(bad_keys)
{
    struct job *j;

    refuse("\"repeats\": \"auto\", \"study\": {\"name\": \"script\"}",
           "\"auto\" needs a headline");
    refuse(NOISY("0", "\"repeats_min\": 3, ", ONE), "repeats_min");
    refuse(NOISY("0", "\"repeats_min\": 12, \"repeats_max\": 11, ", ONE),
           "expected at most repeats_max, 11, found 12");
    refuse("\"repeats\": \"many\", \"study\": {\"name\": \"script\"}",
           "expected a number or \"auto\", found \"many\"");
    refuse(NOISY("0", "\"repeats_precision_frac\": 0, ", ONE), "repeats_precision_frac");
    j = job_of(NOISY("0", "\"repeats_max\": 9, ", ONE));
    assert_true(j->head.repeats_auto);
    assert_int_equal(j->n_cells, 18);
    assert_string_equal(json_string_value(json_object_get(j->resolved, "repeats")),
                        "auto");
    job_free(&j);
    j = job_of("\"repeats\": 2, \"repeats_min\": 9, \"repeats_max\": 8, "
               "\"study\": {\"name\": \"script\"}"); /* which are of "auto" only */
    assert_int_equal(j->n_cells, 2);
    job_free(&j);
}

TEST(the_description_states_the_range)
{
    static const char *const words[] = {"2 study.m x 6 to 30 repeats", NULL};
    struct job *j = job_of(NOISY("0", "", ONE));
    char *text = jobs_described(j, words, run_plan_print);

    assert_non_null(strstr(text, "t: at most 60 cells\n"));
    free(text);
    job_free(&j);
}

/* --- running */

/* The header of the record, and of each repeat that was run the speed of both cells. */
struct recorded {
    char stopped[300];
    int n_repeats;
    size_t n;
    double speed[2][40];
};

static void read_record(struct recorded *out, const struct ran *r)
{
    json_t *all = fixture_exported(r->outcome.path), *cell;
    const json_t *head = json_object_get(all, "run");
    size_t i;

    *out = (struct recorded){.n_repeats = (int)json_int_at(head, "n_repeats")};
    snprintf(out->stopped, sizeof(out->stopped), "%s", json_str_at(head, "stopped", ""));
    json_array_foreach(json_object_get(all, "cells"), i, cell)
    {
        const json_t *v = json_object_get(json_object_get(cell, "summary"), "speed");

        assert_true(i < 80);
        out->speed[i % 2][i / 2] = json_number_value(json_object_get(v, "value"));
        out->n = i / 2 + 1;
    }
    json_decref(all);
}

/* `kind`: 0 and 1 are the logarithms of a cell, 2 those of their ratio, 3 those of their mean. */
static double log_of(const struct recorded *r, int kind, size_t i)
{
    double a = r->speed[0][i], b = r->speed[1][i];

    return kind < 2 ? log(r->speed[kind][i]) : kind == 2 ? log(b / a) : log((a + b) / 2);
}

/* Half of the interval of the first n repeats, and their mean. */
static double half_of(const struct recorded *r, int kind, size_t n, double *mean)
{
    double x[40];

    for (size_t i = 0; i < n; i++)
        x[i] = log_of(r, kind, i);
    *mean = stats_mean(x, n);
    return stats_sequence_half95(x, n);
}

static void check_interval(const struct ran *r, const struct recorded *record, int kind,
                           const char *name)
{
    double mean, half = half_of(record, kind, record->n, &mean);

    assert_near(value(r, name), exp(mean), 1e-9 * exp(mean));
    assert_near(end_of(r, name, "lo"), exp(mean - half), 1e-9 * exp(mean));
    assert_near(end_of(r, name, "hi"), exp(mean + half), 1e-9 * exp(mean));
}

TEST(without_noise_the_fewest_repeats)
{
    struct recorded record;
    struct ran r;

    run("quiet", NOISY("0", "", ONE ", " RATIO), &r);
    read_record(&record, &r);
    assert_int_equal(record.n, 6);
    assert_int_equal(record.n_repeats, 6);
    assert_int_equal(r.outcome.n_done, 12);
    assert_non_null(strstr(record.stopped, "known after 6 repeats: "));
    assert_non_null(strstr(r.table, record.stopped));
    assert_true(value(&r, "one") == 1 && value(&r, "ratio") == 2);
    assert_true(end_of(&r, "ratio", "lo") == 2 && end_of(&r, "ratio", "hi") == 2);
    ran_free(&r);
    run("fewest", NOISY("0", "\"repeats_min\": 4, ", ONE), &r);
    assert_int_equal(r.outcome.n_done, 8);
    ran_free(&r);
}

/* It ends in the first repeat in which the widest interval of all headlines is narrow enough. */
TEST(repeats_until_all_headlines_are_known)
{
    static const char *const names[] = {"one", "", "ratio", "mean"};
    struct recorded record;
    struct ran r;

    run("noisy",
        NOISY("0.04", "\"repeats_precision_frac\": 0.06, ", ONE ", " RATIO ", " MEAN),
        &r);
    read_record(&record, &r);
    assert_true(record.n > 6 && record.n < 30);
    assert_int_equal(record.n_repeats, record.n);
    assert_int_equal(r.outcome.n_done, 2 * record.n);
    assert_non_null(strstr(record.stopped, "6 % were asked for"));
    for (size_t n = 6; n <= record.n; n++) {
        double widest = 0, mean;

        for (int k = 0; k < 4; k++)
            if (names[k][0])
                widest = fmax(widest, half_of(&record, k, n, &mean));
        assert_true((widest <= log(1.06)) == (n == record.n));
    }
    for (int k = 0; k < 4; k++)
        if (names[k][0])
            check_interval(&r, &record, k, names[k]);
    ran_free(&r);
}

TEST(the_most_repeats)
{
    struct recorded record;
    struct ran r;

    run("cap", NOISY("0.5", "\"repeats_max\": 8, ", ONE), &r);
    read_record(&record, &r);
    assert_int_equal(record.n, 8);
    assert_non_null(strstr(record.stopped,
                           "not known after 8 repeats: the widest interval, of "
                           "one, reaches "));
    check_interval(&r, &record, 0, "one");
    ran_free(&r);
}

/* A headline without a value is not waited for. Of values below 0 the interval is a plain mean's.
 * Regression: such a one, however wide, was taken for narrow enough. */
TEST(what_has_no_interval)
{
    struct recorded record;
    struct ran r;

    run("missing",
        NOISY("0.001", "",
              ONE ", {\"name\": \"no_value\", \"metric\": \"error\", \"over\": \"max\"}"),
        &r);
    read_record(&record, &r);
    assert_int_equal(record.n, 6);
    assert_string_equal(why(&r, "no_value"), "this cell does not measure it");
    assert_int_equal(left_out(&r, "one"), 0);
    ran_free(&r);
    run("none",
        NOISY("0", "",
              "{\"name\": \"no_value\", \"metric\": \"error\", "
              "\"over\": \"max\"}"),
        &r);
    read_record(&record, &r);
    assert_string_equal(record.stopped, "after 6 repeats no headline has a value");
    ran_free(&r);
    run("negative",
        "\"repeats\": \"auto\", \"repeats_max\": 7, \"study\": {\"name\": \"script\", "
        "\"k\": -1, \"noise\": 0.01}, \"headline\": [{\"name\": \"below\", \"metric\": "
        "\"speed\"}]",
        &r);
    read_record(&record, &r);
    assert_non_null(strstr(record.stopped, "known after 6 repeats: the widest interval, "
                                           "of below, reaches 1.5 % to each side"));
    assert_near(value(&r, "below"), -1, 0.1);
    assert_true(end_of(&r, "below", "lo") < value(&r, "below"));
    assert_true(end_of(&r, "below", "hi") > value(&r, "below"));
    ran_free(&r);
    run("wide",
        "\"repeats\": \"auto\", \"repeats_max\": 7, \"study\": {\"name\": \"script\", "
        "\"k\": -1, \"noise\": 0.5}, \"headline\": [{\"name\": \"below\", \"metric\": "
        "\"speed\"}]",
        &r);
    read_record(&record, &r);
    assert_non_null(strstr(record.stopped, "not known after 7 repeats: the widest"));
    ran_free(&r);
    run("zero", /* all of them */
        "\"repeats\": \"auto\", \"study\": {\"name\": \"script\", \"k\": 0}, "
        "\"headline\": [{\"name\": \"zero\", \"metric\": \"speed\"}]",
        &r);
    assert_int_equal(r.outcome.n_done, 6);
    assert_true(end_of(&r, "zero", "lo") == 0 && end_of(&r, "zero", "hi") == 0);
    ran_free(&r);
}

/* Killed in its second repeat, it goes on, and ends where its own interval is narrow enough. */
TEST(a_killed_run_resumes)
{
    static const char job[] =
        "\"repeats\": \"auto\", \"study\": {\"name\": \"script\", \"m\": [1, 4]}, "
        "\"headline\": [{\"name\": \"h\", \"metric\": \"speed\", \"over\": \"sum\"}]";
    char dir[300];
    struct ran r;
    int status;
    pid_t pid;

    snprintf(dir, sizeof(dir), "%s/killed", test_dir());
    pid = fork();
    if (pid == 0) {
        dies_at_4 = true;
        _exit(run_into(dir, job, &r) == OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    assert_ok(run_into(dir, job, &r));
    assert_int_equal(r.outcome.n_resumed, 1);
    assert_int_equal(r.outcome.n_done, 11);
    assert_true(value(&r, "h") == 5);
    ran_free(&r);
}

/* A fixed number of repeats ends by none of this. The mean of the logarithms is its value. */
TEST(a_fixed_number_of_repeats)
{
    struct recorded record;
    struct ran r;

    run("fixed",
        "\"repeats\": 3, \"study\": {\"name\": \"script\", \"m\": [1, 2], \"noise\": "
        "0.1}, "
        "\"headline\": [" ONE "]",
        &r);
    read_record(&record, &r);
    assert_string_equal(record.stopped, "");
    assert_int_equal(record.n, 3);
    assert_near(value(&r, "one"),
                cbrt(record.speed[0][0] * record.speed[0][1] * record.speed[0][2]),
                1e-12);
    ran_free(&r);
}
