/* The program as its users meet it: exit statuses, what stands on the terminal, and a run
 * that is killed and given again. */
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "experiments/record/journal.h"

static const char *testbed(void)
{
    static char path[300];
    const char *build = getenv("BUILD");

    snprintf(path, sizeof(path), "%s/testbed", build ? build : "build");
    if (access(path, X_OK) != 0)
        test_skip("%s is not built", path);
    return path;
}

static pid_t start(char *const *argv, const char *log)
{
    pid_t pid;
    int fd;

    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    fd = open(log, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(argv[0], argv);
    _exit(127);
}

static int wait_for(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Run testbed with up to 6 words; *text is what it printed, lent until the next call. */
static int run(const char **text, const char *const *words)
{
    static char *last;
    char log[300], *argv[8] = {(char *)testbed()};
    size_t n;
    int status;

    for (int i = 0; i < 6 && words[i]; i++)
        argv[i + 1] = (char *)words[i];
    snprintf(log, sizeof(log), "%s/log", test_dir());
    status = wait_for(start(argv, log));
    mem_free(last);
    *text = last = test_read(log, &n);
    return status;
}

static void expect(int wanted, const char *part, const char *const *words)
{
    const char *text;
    int status = run(&text, words);

    if (status != wanted || !strstr(text, part))
        fail_msg("testbed %s: status %d, wanted %d with \"%s\"; printed:\n%s", words[0],
                 status, wanted, part, text);
}
#define EXPECT(status, part, ...)                                                        \
    expect(status, part, (const char *const[7]){__VA_ARGS__})

static const char *write_job(const char *name, const char *text)
{
    static char path[300];

    snprintf(path, sizeof(path), "%s/%s.json", test_dir(), name);
    test_write(path, text, strlen(text));
    return path;
}

static const char *out_dir(const char *name)
{
    static char path[300];

    snprintf(path, sizeof(path), "%s/out_%s", test_dir(), name);
    return path;
}

TEST(usage_is_status_2)
{
    const char *bad = write_job("bad", "{\"about\": \"x\", \"lod\": {}}");

    EXPECT(2, "did you mean \"describe\"", "descrbe");
    EXPECT(2, "(usage: testbed run", "run");
    EXPECT(2, "did you mean", "run", "x", "--smok");
    EXPECT(2, "cannot open", "run", "no/such/job.json");
    EXPECT(2,
           "no experiment \"quikstart\" in experiments/ (testbed list); did you mean "
           "\"quickstart\"?",
           "run", "quikstart");
    EXPECT(2, "no experiment \"zzzzzzzz\" in experiments/ (testbed list)\n", "run",
           "zzzzzzzz");
    EXPECT(2, "did you mean \"load\"", "run", bad);
    EXPECT(2, "KEY=VALUE", "run", bad, "--set");
    EXPECT(2, "csv", "export", "x.h5", "--format", "cvs");
    EXPECT(0, "Usage: testbed", "--help");
}

/* Each verb's help names every option of the verb and shows two examples. */
TEST(help_is_complete)
{
    static const char *const verbs[][11] = {
        {"run", "--smoke", "--dry-run", "--quiet", "--fresh", "--draw", "--tag", "--out",
         "--set", "--help"},
        {"list", "--help"},
        {"describe", "--smoke", "--set", "--help"},
        {"machine", "--force", "--full", "--smoke", "--quiet", "--out", "--help"},
        {"export", "--format", "--out", "--help"},
        {"bench", "--slo-ttft-ms", "--budget-s", "--help"},
        {"compare", "--metric", "--margin", "--strict", "--rounds", "--a-program",
         "--across-machines", "--out", "--help"},
        {"draw", "--record", "--out", "--help"},
        {"check", "--run", "--claims", "--help"},
        {"report", "--out", "--tables", "--[no-]draw", "--claims", "--help"},
        {"artifact", "--budget", "--resume", "--dry-run", "--claims", "--out", "--help"},
    };
    char usage[64], example[64];
    const char *text, *at;

    for (size_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++) {
        snprintf(usage, sizeof(usage), "Usage: testbed %s", verbs[v][0]);
        snprintf(example, sizeof(example), "\n  testbed %s", verbs[v][0]);
        expect(0, usage, (const char *const[7]){verbs[v][0], "--help"});
        assert_int_equal(run(&text, (const char *const[7]){verbs[v][0], "-h"}), 0);
        for (int i = 1; verbs[v][i]; i++)
            assert_non_null(strstr(text, verbs[v][i]));
        at = strstr(text, "\nExamples:");
        assert_non_null(at);
        at = strstr(at, example);
        assert_non_null(at);
        assert_non_null(strstr(at + 1, example));
        assert_non_null(strstr(at, "\nExit status:"));
        expect(0, verbs[v][0], (const char *const[7]){"--help"});
    }
    EXPECT(0, "commit: ", "--version");
    EXPECT(0, "instruction sets: ", "--version");
    EXPECT(2, "expected 1 argument, found 0", "run");
    EXPECT(2, "unknown verb \"qqqq\"", "qqqq");
}

static const char small[] =
    "{\"about\": \"a small job\", \"system\": {\"adapter\": \"scripted\", \"ttft_ms\": "
    "[1, 2]}, \"dataset\": {\"n\": 5, \"max_prompt_tok\": 8, \"max_output_tok\": 3}, "
    "\"load\": {\"n_requests\": 5}, \"headline\": [{\"name\": \"t\", \"metric\": "
    "\"p50_ttft_ms\", \"better\": \"lower\", \"where\": {\"ttft_ms\": 2}}], \"smoke\": "
    "{\"load\": {\"n_requests\": 2}}}";

TEST(words_about_jobs)
{
    const char *path = write_job("small", small);

    EXPECT(0, "2 cells", "run", path, "--dry-run");
    EXPECT(0, "(2 requests)", "run", path, "--dry-run", "--smoke");
    EXPECT(0, "(4 requests)", "run", path, "--dry-run", "--set", "load.n_requests=4");
    EXPECT(0, "warmup_requests", "describe", path);
    EXPECT(0, "time to first token", "describe", "metrics");
    EXPECT(0, "adapter null", "describe", "keys");
    EXPECT(0, "load.rate_rps\n        Open loop", "describe", "keys", "RATE_");
    EXPECT(0, "load.process=gamma\n", "describe", "keys", "gamma");
    EXPECT(2, "no key matches \"qqq\"", "describe", "keys", "qqq");
    EXPECT(2, "unexpected argument \"keys\"", "describe", path, "keys");
    EXPECT(0, "quickstart", "list");
}

static double latest(const char *dir, const char *name)
{
    char path[400];
    const json_t *headline, *h;
    json_t *j;
    double v;

    snprintf(path, sizeof(path), "%s/latest.json", dir);
    assert_ok(json_read_file(&j, path, 1 << 20));
    assert_ok(json_get_obj(j, "headline", &headline, path));
    assert_ok(json_get_obj(headline, name, &h, path));
    v = json_number_value(json_object_get(h, "value"));
    json_decref(j);
    return v;
}

/* The path of the newest record. */
static char *record_in(const char *dir, char path[600])
{
    const char *file;
    json_t *j;

    snprintf(path, 600, "%s/latest.json", dir);
    assert_ok(json_read_file(&j, path, 1 << 20));
    assert_ok(json_get_str(j, "file", &file, path));
    snprintf(path, 600, "%s/%s", dir, file);
    json_decref(j);
    return path;
}

TEST(a_run_leaves_its_headline)
{
    const char *path = write_job("small", small), *dir = out_dir("small");

    EXPECT(0, "TTFT p50", "run", path, "--out", dir, "--quiet");
    assert_true(latest(dir, "t") >= 2); /* what the script waits, in ms */
}

TEST(failed_cells_are_status_3)
{
    static const char text[] =
        "{\"about\": \"one of two systems is broken\", \"system\": {\"adapter\": "
        "\"scripted\", \"max_tok\": [2, 64]}, \"dataset\": {\"n\": 3, \"reader\": "
        "\"lengths_csv\", \"path\": \"no-such-file.csv\"}}";
    const char *path = write_job("broken", text), *dir = out_dir("broken");

    EXPECT(3, "no-such-file.csv", "run", path, "--out", dir);
    EXPECT(3, "no cell could be measured", "run", path, "--out", dir);
}

TEST(an_invalid_run_is_status_3)
{
    static const char text[] =
        "{\"about\": \"nobody answers\", \"system\": {\"adapter\": \"scripted\", "
        "\"hang_request\": 0}, \"dataset\": {\"n\": 1}, \"load\": {\"n_requests\": 1, "
        "\"timeout_s\": 0.05}}";

    EXPECT(3, "no measured request completed", "run", write_job("hang", text), "--out",
           out_dir("hang"));
}

TEST(failed_requests_are_said)
{
    static const char text[] =
        "{\"about\": \"one fails\", \"system\": {\"adapter\": \"scripted\", "
        "\"fail_request\": 2}, \"dataset\": {\"n\": 5, \"max_prompt_tok\": 8, "
        "\"max_output_tok\": 3}, \"load\": {\"n_requests\": 5}}";

    EXPECT(0, "1 of 5 requests failed; the first: failed as scripted", "run",
           write_job("fails", text), "--out", out_dir("fails"));
}

/* --- killed and given again */

#define N_CELLS 16

static const char long_job[] =
    "{\"about\": \"several cells\", \"system\": {\"adapter\": \"scripted\", \"ttft_ms\": "
    "[4, 5, 6, 7], \"itl_ms\": 1}, \"dataset\": {\"n\": 6, \"max_prompt_tok\": 8, "
    "\"max_output_tok\": 4}, \"load\": {\"n_requests\": 6}, \"repeats\": 4, "
    "\"headline\": [{\"name\": \"t\", \"metric\": \"mean_ttft_ms\", \"better\": "
    "\"lower\", "
    "\"where\": {\"ttft_ms\": 7}}]}";

/* A cell as it stands in the journal: its name and a digest of every row and time. */
struct seen {
    char key[N_CELLS + 1][128];
    uint64_t digest[N_CELLS + 1];
    int n;
};

static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static int see(void *ctx, const struct record_cell *c)
{
    struct seen *s = ctx;
    uint64_t h = 14695981039346656037u;

    if (s->n > N_CELLS)
        return err_set(ERR_LIMIT, "more cells than the job has");
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct metrics_row *r = &c->rows[i];

        h = mix(h, &r->intended_ns, sizeof(r->intended_ns));
        h = mix(h, &r->dispatch_ns, sizeof(r->dispatch_ns));
        h = mix(h, &r->done_ns, sizeof(r->done_ns));
        h = mix(h, r->token_ns, (size_t)r->n_tok * sizeof(*r->token_ns));
    }
    for (size_t i = 0; i < c->n_values; i++)
        h = mix(h, &c->values[i].value, sizeof(double));
    snprintf(s->key[s->n], sizeof(s->key[0]), "%s", c->key);
    s->digest[s->n++] = h;
    return OK;
}

static struct seen look(const char *journal)
{
    struct seen s = {.n = 0};

    if (journal_read(journal, see, &s, NULL, NULL) != OK)
        s.n = 0; /* not there yet */
    return s;
}

/* Start the job and kill it the moment at least n cells are finished. */
static struct seen kill_after(int n, char *const *argv, const char *journal,
                              const char *log)
{
    pid_t pid = start(argv, log);
    struct timespec pause = {.tv_nsec = 2000000};
    struct seen s;

    for (s = look(journal); s.n < n; s = look(journal)) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            fail_msg("testbed ended before it had finished %d cells", n);
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    assert_int_equal(wait_for(pid), 128 + SIGKILL);
    return look(journal);
}

static void assert_same_cells(const struct seen *before, const struct seen *after)
{
    for (int i = 0; i < before->n; i++) {
        assert_string_equal(before->key[i], after->key[i]);
        assert_true(before->digest[i] == after->digest[i]);
    }
    for (int i = 0; i < after->n; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(after->key[i], after->key[k]);
}

TEST(a_killed_run_resumes)
{
    char dir[300], journal[400], log[400], part[64];
    const char *path = write_job("long", long_job), *text;
    char *argv[] = {(char *)testbed(), "run", (char *)path, "--out", dir, NULL};
    struct seen first, second;
    size_t n;

    snprintf(dir, sizeof(dir), "%s", out_dir("long"));
    snprintf(journal, sizeof(journal), "%s/long.journal", dir);
    snprintf(log, sizeof(log), "%s/killed", test_dir());
    first = kill_after(2, argv, journal, log);
    assert_in_range(first.n, 2, N_CELLS - 1);
    second = kill_after(first.n + 2, argv, journal, log);
    assert_same_cells(&first, &second);
    assert_true(second.n > first.n && second.n < N_CELLS);

    assert_int_equal(wait_for(start(argv, log)), 0);
    text = test_read(log, &n);
    snprintf(part, sizeof(part), "resuming: %d of %d cells", second.n, N_CELLS);
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
    mem_free((void *)text);
    assert_true(latest(dir, "t") >= 7);
    assert_int_equal(access(journal, F_OK), -1); /* all of it is in the record */
}

/* Its first cell ends soon, its second not before it is interrupted. */
static const char endless_job[] =
    "{\"about\": \"two cells\", \"system\": {\"adapter\": \"scripted\", \"ttft_ms\": "
    "[4, 1000000]}, \"dataset\": {\"n\": 1, \"max_prompt_tok\": 8, "
    "\"max_output_tok\": 4}, \"load\": {\"n_requests\": 1, \"timeout_s\": 1000}}";

/* The line that an interrupt prints is a command that continues the run. */
TEST(an_interrupt_says_how_to_resume)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct timespec pause = {.tv_nsec = 2000000};
    char dir[300], journal[400], log[400], want[900];
    const char *path = write_job("stopped", endless_job);
    char *argv[] = {(char *)testbed(), "run",   (char *)path,     "--out",   dir,
                    "--fresh",         "--set", "dataset.seed=2", "--quiet", NULL};
    char *text;
    size_t n;

    snprintf(dir, sizeof(dir), "%s", out_dir("it's stopped"));
    snprintf(journal, sizeof(journal), "%s/stopped.journal", dir);
    snprintf(log, sizeof(log), "%s/stopped", test_dir());
    snprintf(
        want, sizeof(want),
        "testbed: interrupted; what was measured is kept, and this command continues "
        "the run: %s run %s --out '%s/out_it'\\''s stopped' --set "
        "dataset.seed=2 --quiet\n",
        argv[0], path, test_dir());
    for (int i = 0; i < 2; i++) {
        pid_t pid = start(argv, log);

        while (look(journal).n < 1) {
            if (waitpid(pid, NULL, WNOHANG) == pid)
                fail_msg("testbed ended before it was interrupted");
            nanosleep(&pause, NULL);
        }
        kill(pid, signals[i]);
        assert_int_equal(wait_for(pid), 128 + signals[i]);
        text = test_read(log, &n);
        if (!strstr(text, want))
            fail_msg("no \"%s\" in:\n%s", want, text);
        mem_free(text);
        assert_int_equal(unlink(journal), 0);
    }
}

TEST(fresh_forgets)
{
    char dir[300], journal[400], log[400];
    const char *path = write_job("forget", long_job), *text;
    char *argv[] = {(char *)testbed(), "run", (char *)path, "--out", dir,
                    "--fresh",         NULL};
    struct seen before;
    size_t n;

    snprintf(dir, sizeof(dir), "%s", out_dir("forget"));
    snprintf(journal, sizeof(journal), "%s/forget.journal", dir);
    snprintf(log, sizeof(log), "%s/killed", test_dir());
    before = kill_after(1, argv, journal, log);
    assert_true(before.n >= 1);
    assert_int_equal(wait_for(start(argv, log)), 0);
    text = test_read(log, &n);
    assert_null(strstr(text, "resuming"));
    mem_free((void *)text);
}

/* --fresh while another run of the job goes on: refused, and that run loses nothing. */
TEST(fresh_leaves_a_running_run_alone)
{
    char dir[300], journal[400], log[400], record[600];
    const char *path = write_job("second", long_job);
    char *argv[] = {(char *)testbed(), "run", (char *)path, "--out", dir, NULL};
    struct timespec pause = {.tv_nsec = 2000000};
    pid_t pid;

    snprintf(dir, sizeof(dir), "%s", out_dir("second"));
    snprintf(journal, sizeof(journal), "%s/second.journal", dir);
    snprintf(log, sizeof(log), "%s/first", test_dir());
    pid = start(argv, log);
    while (look(journal).n < 1)
        nanosleep(&pause, NULL);
    kill(pid, SIGSTOP); /* so that it cannot end meanwhile */
    EXPECT(3, "another process is writing it", "run", path, "--out", dir, "--fresh");
    kill(pid, SIGCONT);
    assert_int_equal(wait_for(pid), 0);
    assert_true(latest(dir, "t") >= 7);
    EXPECT(0, "ms | lower", "export", record_in(dir, record), "--format", "markdown");
}

/* What stands at the target of --out stays until a whole export replaces it. */
TEST(export_out_destroys_nothing)
{
    const char *path = write_job("small", small), *dir = out_dir("exported");
    char record[600], out[600], older[] = "an older export";
    void *before, *after;
    size_t n_before, n_after;

    EXPECT(0, "TTFT p50", "run", path, "--out", dir, "--quiet");
    record_in(dir, record);
    snprintf(out, sizeof(out), "%s/export.csv", test_dir());
    before = test_read(record, &n_before);
    EXPECT(2, "another file", "export", record, "--out", record);
    after = test_read(record, &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_before);
    mem_free(after);

    test_write(out, older, sizeof(older));
    EXPECT(3, "HDF5 file", "export", path, "--out", out);
    after = test_read(out, &n_after);
    assert_int_equal(n_after, sizeof(older));
    assert_memory_equal(after, older, sizeof(older));
    mem_free(after);
    mem_free(before);
    EXPECT(0, "", "export", record, "--out", out);
    EXPECT(2, "found a folder", "export", record, "--out", test_dir());
    before = test_read(out, &n_before);
    assert_memory_equal(before, "cell,key,request,", 17);
    mem_free(before);
}

/* Each verb that only prints, to a device that is full. */
TEST(lost_output_is_status_3)
{
    static const char *const words[][3] = {{"list"},
                                           {"describe", "quickstart"},
                                           {"describe", "keys"},
                                           {"run", "quickstart", "--dry-run"},
                                           {"--help"},
                                           {"run", "--help"},
                                           {"--version"}};
    char log[300];

    snprintf(log, sizeof(log), "%s/full", test_dir());
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char command[700], *argv[] = {"/bin/sh", "-c", command, NULL}, *text;
        size_t n;

        snprintf(command, sizeof(command), "%s %s %s %s >/dev/full", testbed(),
                 words[i][0], words[i][1] ? words[i][1] : "",
                 words[i][2] ? words[i][2] : "");
        assert_int_equal(wait_for(start(argv, log)), 3);
        text = test_read(log, &n);
        if (strncmp(text, "testbed: standard output: ", 26) != 0 ||
            memchr(text, '\n', n) != text + n - 1)
            fail_msg("%s: %s", command, text);
        mem_free(text);
    }
}
