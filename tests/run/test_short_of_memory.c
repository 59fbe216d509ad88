/* A run that finds no memory ends with one line and a documented status, wherever it is; what it
 * has measured is kept, and the same command continues. */
#include "tests/support/test.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "experiments/job/job.h"
#include "experiments/run/experiment.h"
#include "experiments/run/resume.h"

#define N_CELLS  4
#define N_TRIALS 40
#define STATUS   3

static const char text[] =
    "{\"about\": \"t\", \"system\": {\"adapter\": \"scripted\", \"vocab\": [8, 9, 10, "
    "11]}, \"dataset\": {\"n\": 2, \"max_prompt_tok\": 8, \"max_output_tok\": 3}, "
    "\"load\": {\"n_requests\": 2}, \"headline\": [{\"name\": \"t\", \"metric\": "
    "\"p50_ttft_ms\", \"better\": \"lower\", \"over\": \"max\"}]}";

static const char *report_path = "/dev/null";

static int run(const char *dir, struct run_outcome *outcome)
{
    struct run_options o = {
        .out_dir = dir, .machine_dir = dir, .progress = PROGRESS_QUIET};
    struct job *j = NULL;
    json_t *root = NULL;
    int rc = json_read_text(&root, text, strlen(text), "t");

    *outcome = (struct run_outcome){0};
    o.live = o.report = fopen(report_path, "a");
    if (rc == OK)
        rc = job_from_json(&j, root, "t", "t.json", NULL);
    if (rc == OK)
        rc = run_experiment(outcome, j, &o);
    fclose(o.live);
    job_free(&j);
    json_decref(root);
    return rc;
}

/* What main() and `testbed run` do, and then the n-th allocation and all later ones fail; or the
 * n-th thread or lock. *n_allocs: how many there are with memory. Returns the exit status. */
static int run_short(const char *dir, long n, bool of_threads, const char *log,
                     long *n_allocs)
{
    static char *words[] = {"testbed", "run", "t"};
    struct run_outcome outcome;
    int ends[2], status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (!freopen(log, "w", stderr))
            _exit(99);
        process_exit_when_short("testbed", STATUS);
        run_resume_remember(3, words);
        process_at_signal(run_resume_report);
        long before = mem_n_allocs();
        if (of_threads) {
            report_path = log;
            thread_fail_after(n);
        } else
            mem_fail_after(n, 0);
        int rc = run(dir, &outcome);
        mem_fail_after(-1, 0);
        before = mem_n_allocs() - before;
        if (write(ends[1], &before, sizeof(before)) != sizeof(before))
            _exit(99);
        if (rc != OK) /* of a process of its own, or of a large region */
            dprintf(STDERR_FILENO, "testbed: %s\n", err_msg());
        _exit(rc == OK && outcome.n_failed == 0 ? 0 : STATUS);
    }
    close(ends[1]);
    if (read(ends[0], n_allocs, sizeof(*n_allocs)) != sizeof(*n_allocs))
        *n_allocs = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void no_temporary_is_left(const char *dir)
{
    const struct dirent *e;
    DIR *d = opendir(dir);

    while (d && (e = readdir(d)) != NULL)
        assert_null(strstr(e->d_name, ".tmp"));
    if (d)
        closedir(d);
}

TEST(ends_with_a_line_and_resumes)
{
    char dir[300], log[300], *said;
    int n_resumed = 0, n_continued = 0;
    struct run_outcome outcome;
    long n_allocs, ignored;
    size_t n;

    snprintf(dir, sizeof(dir), "%s/whole", test_dir());
    snprintf(log, sizeof(log), "%s/log", test_dir());
    assert_int_equal(run_short(dir, -1, false, log, &n_allocs), 0);
    assert_true(n_allocs > N_TRIALS);
    for (int i = 0; i < N_TRIALS; i++) {
        snprintf(dir, sizeof(dir), "%s/%d", test_dir(), i);
        if (run_short(dir, n_allocs * i / N_TRIALS, false, log, &ignored) != STATUS)
            fail_msg("allocation %ld of %ld", n_allocs * i / N_TRIALS, n_allocs);
        said = test_read(log, &n);
        if (!strstr(said, "testbed: out of memory: "))
            fail_msg("allocation %ld of %ld: it wrote \"%s\"", n_allocs * i / N_TRIALS,
                     n_allocs, said);
        n_continued += strstr(said, "continues the run: testbed run t\n") != NULL;
        mem_free(said);
        no_temporary_is_left(dir);
        assert_ok(run(dir, &outcome));
        assert_int_equal(outcome.n_resumed + outcome.n_done, N_CELLS);
        n_resumed += outcome.n_resumed;
        mem_free(outcome.path);
    }
    assert_true(n_resumed > 0);
    assert_true(n_continued > N_TRIALS / 2);
}

TEST(without_a_thread_it_says_so_and_resumes)
{
    char dir[300], log[300], *said;
    struct run_outcome outcome;
    int n = 0, status = STATUS;
    long ignored;
    size_t len;

    snprintf(log, sizeof(log), "%s/log", test_dir());
    for (; status != 0; n++) {
        snprintf(dir, sizeof(dir), "%s/thread%d", test_dir(), n);
        status = run_short(dir, n, true, log, &ignored);
        if (status == 0)
            break;
        assert_int_equal(status, STATUS);
        said = test_read(log, &len);
        if (!strstr(said, "cannot ") || n > 200)
            fail_msg("thread or lock %d: it wrote \"%s\"", n, said);
        mem_free(said);
        no_temporary_is_left(dir);
        assert_ok(run(dir, &outcome));
        assert_int_equal(outcome.n_resumed + outcome.n_done, N_CELLS);
        mem_free(outcome.path);
    }
    assert_true(n > 5 * N_CELLS);
}
