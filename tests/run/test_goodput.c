/* A search for the goodput through the program: the scripted adapter is a queue with a known
 * answer, every trial is in the record, and a killed search goes on where it was. Delays of
 * the script are lower bounds, so a busy machine can only lower the answer. */
#include "tests/metrics/rows.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/record/journal.h"

/* One server that takes 20 ms, arrivals at fixed intervals: it keeps up to 50 a second. A trial
 * of 1 s at 60 leaves the last request 200 ms behind; the objective is 90 ms. */
static const char job[] =
    "{\"about\": \"a queue\", \"system\": {\"adapter\": \"scripted\", \"slots\": 1, "
    "\"ttft_ms\": 20}, \"dataset\": {\"n\": 5, \"max_prompt_tok\": 8, "
    "\"max_output_tok\": 1}, \"load\": {\"process\": \"constant\", \"rate_rps\": 20, "
    "\"timeout_s\": 5}, \"slo\": {\"ttft_ms\": %s}, \"search\": {\"goodput\": true, "
    "\"trial_s\": 0.8, \"seeds\": 2, \"precision_frac\": 0.2, \"min_rps\": 2, "
    "\"max_rps\": %s}, "
    "\"headline\": [{\"name\": \"g\", \"metric\": \"goodput_rps\", \"better\": "
    "\"higher\"}]}";

static const char *testbed(void)
{
    static char path[300];
    const char *build = getenv("BUILD");

    snprintf(path, sizeof(path), "%s/testbed", build ? build : "build");
    if (access(path, X_OK) != 0)
        test_skip("%s is not built", path);
    return path;
}

static const char *write_job(const char *ttft_ms, const char *max_rps)
{
    const char *path = test_path("queue.json");
    char text[1024];

    snprintf(text, sizeof(text), job, ttft_ms, max_rps);
    test_write(path, text, strlen(text));
    return path;
}

static pid_t start(const char *path, const char *out)
{
    pid_t pid;
    int fd;

    testbed();
    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    fd = open(test_path("log"), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    dup2(fd, 1);
    dup2(fd, 2);
    execl(testbed(), testbed(), "run", path, "--out", out, (char *)NULL);
    _exit(127);
}

static void finish(pid_t pid)
{
    size_t n;
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("status %d:\n%s", status, (char *)test_read(test_path("log"), &n));
}

/* The export of the newest record. */
static json_t *record(const char *out)
{
    char command[1200], path[320];
    const char *file;
    json_t *j;

    snprintf(path, sizeof(path), "%s/latest.json", out);
    assert_ok(json_read_file(&j, path, 1 << 20));
    assert_ok(json_get_str(j, "file", &file, path));
    snprintf(command, sizeof(command), "%s export %s/%s --format json --out %s",
             testbed(), out, file, test_path("record.json"));
    json_decref(j);
    assert_int_equal(system(command), 0);
    assert_ok(json_read_file(&j, test_path("record.json"), 1 << 24));
    return j;
}

static double number(const json_t *cell, const char *metric)
{
    const json_t *v = json_object_get(
        json_object_get(json_object_get(cell, "summary"), metric), "value");

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static const json_t *attribute(const json_t *cell, const char *name)
{
    return json_object_get(json_object_get(cell, "attributes"), name);
}

TEST(a_queue_is_searched)
{
    const char *out = test_path("out_queue");
    int n_trials = 0, n_cells = 0, wanted = 0;
    const json_t *cells;
    json_t *j, *c;
    size_t i, n;

    finish(start(write_job("90", "400"), out));
    j = record(out);
    cells = json_object_get(j, "cells");
    json_array_foreach((json_t *)cells, i, c)
    {
        if (attribute(c, "trial.of")) {
            n_trials++;
            assert_string_equal(json_string_value(attribute(c, "trial.of")), "repeat=0");
            assert_true(number(c, "n_requests") >= 10);
            /* faster than the queue: the script cannot meet the objective */
            if (json_number_value(attribute(c, "load.rate_rps")) >= 70)
                assert_true(number(c, "slo_attainment_frac") < 0.9);
            continue;
        }
        n_cells++;
        wanted = (int)number(c, "goodput_n_trials");
        assert_true(number(c, "goodput_rps") > 0 && number(c, "goodput_rps") < 70);
        assert_true(number(c, "goodput_low_rps") <= number(c, "goodput_rps"));
        assert_true(number(c, "goodput_high_rps") > number(c, "goodput_rps"));
        /* its other metrics are those of a trial at that rate */
        assert_near(number(c, "offered_rate_rps"), number(c, "goodput_rps"), 1e-6);
        assert_true(number(c, "p50_ttft_ms") >= 20);
    }
    assert_int_equal(n_cells, 1);
    assert_true(n_trials >= 8);
    assert_int_equal(n_trials, wanted);
    json_decref(j);
    assert_non_null(strstr(test_read(test_path("log"), &n), "g: "));
}

/* Both variants and the second run of one reach the limit, 200 a second: their goodputs are equal,
 * but no search is more precise than the precision_frac of its case. Each repeat has arrivals of
 * its own. */
static const char twins[] =
    "{\"about\": \"twins\", \"repeats\": 2, \"aa\": \"a\", \"system\": {\"adapter\": "
    "\"scripted\"}, \"variants\": [{\"name\": \"a\"}, {\"name\": \"b\"}], \"cases\": "
    "[{\"name\": \"narrow\"}, {\"name\": \"wide\", \"search\": {\"precision_frac\": "
    "0.25}}], \"dataset\": "
    "{\"n\": 5, \"max_prompt_tok\": 8, \"max_output_tok\": 1}, \"load\": {\"process\": "
    "\"poisson\", \"rate_rps\": 100}, \"slo\": {\"ttft_ms\": 9000}, \"search\": "
    "{\"goodput\": true, \"trial_s\": 0, \"seeds\": 1, \"verify\": 1, "
    "\"precision_frac\": "
    "0.1, \"max_rps\": 200}, \"headline\": [{\"name\": \"g\", \"metric\": "
    "\"goodput_rps\", "
    "\"better\": \"higher\", \"where\": {\"case\": \"wide\", \"variant\": \"b\"}, "
    "\"relative_to\": "
    "{\"variant\": \"a\"}}]}";

TEST(a_search_sees_no_less_than_its_precision)
{
    const char *path = test_path("twins.json"), *out = test_path("out_twins");
    int n_trials[2] = {0};
    const json_t *g;
    json_t *j, *c;
    size_t i;

    test_write(path, twins, strlen(twins));
    finish(start(path, out));
    j = record(out);
    g = json_object_get(json_object_get(j, "headline"), "g");
    assert_true(json_f64_at(g, "detectable_frac") > 0.25 - 1e-9);
    assert_true(json_f64_at(g, "hi") > 1.25 * json_f64_at(g, "value") - 1e-9);
    assert_true(1.25 * json_f64_at(g, "lo") < json_f64_at(g, "value") + 1e-9);
    json_array_foreach(json_object_get(j, "cells"), i, c)
    {
        json_int_t repeat = json_integer_value(attribute(c, "repeat"));

        if (!attribute(c, "trial.of"))
            continue;
        n_trials[repeat]++;
        assert_int_equal(json_integer_value(attribute(c, "seeds.arrival")), 1 + repeat);
        assert_int_equal(json_integer_value(attribute(c, "dataset.seed")), 1 + repeat);
    }
    assert_true(n_trials[0] >= 3 && n_trials[1] >= 3);
    json_decref(j);
}

/* The bracket's end is not passed off as an answer. */
TEST(the_limit_is_a_warning)
{
    size_t n;

    finish(start(write_job("3000", "20"), test_path("out_limit")));
    assert_non_null(
        strstr(test_read(test_path("log"), &n),
               "the objectives still hold at search.max_rps, 20: the goodput is at least "
               "that"));
}

/* --- killed and given again */

struct seen {
    char key[64][160];
    int n;
};

static int see(void *ctx, const struct record_cell *c)
{
    struct seen *s = ctx;

    if (s->n < 64)
        snprintf(s->key[s->n++], sizeof(s->key[0]), "%s", c->key);
    return OK;
}

static struct seen look(const char *journal)
{
    struct seen s = {.n = 0};

    if (journal_read(journal, see, &s, NULL, NULL) != OK)
        s.n = 0; /* not there yet */
    return s;
}

TEST(a_killed_search_goes_on)
{
    const char *path = write_job("90", "400"), *out = test_path("out_killed");
    struct timespec pause = {.tv_nsec = 5000000};
    char journal[400];
    struct seen before, after;
    size_t n;
    pid_t pid;

    snprintf(journal, sizeof(journal), "%s/queue.journal", out);
    pid = start(path, out);
    for (before = look(journal); before.n < 4; before = look(journal)) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            fail_msg("it ended before four trials");
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    before = look(journal);
    pid = start(path, out);
    do { /* the journal goes when the record is there */
        struct seen now = look(journal);

        if (now.n)
            after = now;
        nanosleep(&pause, NULL);
    } while (waitpid(pid, NULL, WNOHANG) != pid);
    assert_non_null(strstr(test_read(test_path("log"), &n), "resuming the search: "));
    assert_true(after.n > before.n);
    for (int i = 0; i < before.n; i++)
        assert_string_equal(before.key[i], after.key[i]);
    for (int i = before.n; i < after.n; i++) /* none is measured twice */
        for (int k = 0; k < before.n; k++)
            assert_string_not_equal(after.key[i], before.key[k]);
}
