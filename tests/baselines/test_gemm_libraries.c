/* Each GEMM library that is built: every setting the library takes computes odd shapes
 * right, and its child sleeps between runs, dies when told, and with its parent. Sound
 * answers to a child's death and to nonsense are in test_gemm_baseline.c. */
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "baselines/gemm.h"
#include "cpu/cpu.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"

#define MAX_BASELINES 32
#define BUDGET_S      1e6 /* every setting */

static char last_warning[600];
static int n_lines, n_warnings;

/* Words of what libraries call themselves where they compute with more than AVX2. */
static const char *const beyond_avx2[] = {
    "512", "skx", "SkylakeX", "Cooperlake", "SapphireRapids", "cpx", "clx", "zen4"};
static bool only_avx2; /* settings are watched for those */

/* "GEMM library NAME: shape: setting: time, error": the digits of a time are not a name. */
static bool is_beyond_avx2(const char *line)
{
    const char *end = strrchr(line, ':');

    for (size_t i = 0; i < sizeof beyond_avx2 / sizeof *beyond_avx2; i++) {
        const char *at = strstr(line, beyond_avx2[i]);

        if (at && (!end || at < end))
            return true;
    }
    return false;
}

static void on_log(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    n_lines++;
    if (only_avx2 && is_beyond_avx2(line))
        level = LOG_WARN;
    if (level > LOG_WARN)
        return;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static struct cpu_budget budget;

static struct gemm_baseline_opts opts(int n_threads)
{
    assert_ok(cpu_budget_get(&budget));
    return (struct gemm_baseline_opts){
        .cpus = budget.cpus,
        .n_threads = n_threads < budget.n ? n_threads : budget.n,
        .cache_bytes = 64 << 10, /* some copies, and not for long */
        .seed = (int64_t)test_seed()};
}

static char mask[32]; /* CPU_ISA_ENV as this program was started */
static struct gemm_baseline
    *opened; /* by the running test; close_baseline() is its teardown */

static struct gemm_baseline *open_baseline(const char *name, int n_threads)
{
    struct gemm_baseline_opts o = opts(n_threads);
    int rc = gemm_baseline_open(&opened, name, &o);

    if (rc == ERR_NOTFOUND)
        test_skip("%s", err_msg());
    assert_ok(rc);
    assert_true(strlen(gemm_baseline_version(opened)) > 0);
    return opened;
}

/* A test may have failed anywhere: the next one finds no child, and no mask but ours. */
static int close_baseline(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    log_set_level(LOG_INFO);
    only_avx2 = false;
    if (mask[0])
        setenv(CPU_ISA_ENV, mask, 1);
    else
        unsetenv(CPU_ISA_ENV);
    gemm_baseline_close(&opened);
    left_no_child();
    return 0;
}

/* Skips where the library has no such type. */
static void check_shape(struct gemm_baseline *r, const char *type, int64_t m, int64_t n,
                        int64_t k, bool warm)
{
    const bool bf16 = strcmp(type, "bf16") == 0;
    double seconds, error;

    n_lines = n_warnings = 0;
    log_set_sink(on_log, NULL);
    int rc = gemm_baseline_shape(r, type, m, n, k, warm, BUDGET_S);
    log_set_sink(NULL, NULL);
    if (rc == ERR_NOTFOUND && bf16)
        test_skip("%s", err_msg());
    assert_ok(rc);
    if (n_warnings) /* a setting crashed, hung or computed wrong */
        fail_msg("seed %d: %d warnings, the last: %s", (int)test_seed(), n_warnings,
                 last_warning);
    error = gemm_baseline_error(r);
    if (!(error >= 0.0 && error < (bf16 ? 5e-3 : 1e-5)))
        fail_msg("seed %d: %s: error %g", (int)test_seed(), gemm_baseline_setting(r),
                 error);
    assert_true(strlen(gemm_baseline_setting(r)) > 0);
    assert_null(strstr(gemm_baseline_setting(r), "tried"));
    for (int i = 0; i < 3; i++) {
        assert_ok(gemm_baseline_run(r, &seconds));
        assert_true(seconds > 0.0);
    }
}

static void shapes(const char *name, const char *type)
{
    struct gemm_baseline *r = open_baseline(name, 2);

    check_shape(r, type, 1, 1, 1, true);
    check_shape(r, type, 1, 333, 129, false);
    check_shape(r, type, 70, 161, 300, false); /* more than a block of each */
    check_shape(r, type, 3, 70, 4501, true);   /* ... than a level 2 cache likes */
}

static void test_f32(void **state)
{
    shapes(*state, "f32");
}

static void test_bf16(void **state)
{
    shapes(*state, "bf16");
}

static void test_one_thread(void **state)
{
    struct gemm_baseline *r = open_baseline(*state, 1);

    check_shape(r, "f32", 13, 97, 65, true);
}

/* The only child of this thread; 0: none. */
static pid_t child_of_ours(void)
{
    DIR *d = opendir("/proc");
    pid_t found = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[300], text[512] = "";
        int parent;
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = '\0';
        const char *after = strrchr(text, ')');
        if (after && sscanf(after, ") %*c %d", &parent) == 1 && parent == getpid())
            found = (pid_t)atoi(e->d_name);
    }
    closedir(d);
    return found;
}

/* Threads of `pid` that run, but its main one; -1: no such process, or it is dead. */
static int count_running(pid_t pid)
{
    char path[300], text[512];
    int n_running = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    d = opendir(path);
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, e->d_name);
        FILE *f = fopen(path, "r");
        if (!f)
            continue;
        size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = '\0';
        const char *after = strrchr(text, ')');
        if (after && after[2] == 'Z') {
            n_running = -1;
            break;
        }
        n_running += after && after[2] == 'R' && atoi(e->d_name) != pid;
    }
    closedir(d);
    return n_running;
}

/* Whoever computes next finds the CPUs idle; the main thread waits for its next command
 * as soon as it has answered. */
static void test_sleeps_between_runs(void **state)
{
    struct gemm_baseline *r = open_baseline(*state, 2);
    double seconds;

    assert_ok(gemm_baseline_shape(r, "f32", 64, 256, 256, true, 0.0));
    for (int i = 0; i < 20; i++) {
        assert_ok(gemm_baseline_run(r, &seconds));
        assert_int_equal(count_running(child_of_ours()), 0);
    }
}

/* The CPU that this thread alone may use; -1: several. */
static int only_cpu(pid_t pid, const char *thread)
{
    char path[300], line[300];
    int first = -1, n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, thread);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Cpus_allowed_list: %d%n", &first, &n) == 1)
            break;
    if (f)
        fclose(f);
    return n > 0 && line[n] == '\n' ? first : -1;
}

static void test_threads_are_pinned(void **state)
{
    struct gemm_baseline *r = open_baseline(*state, 2);
    struct gemm_baseline_opts o = opts(2);
    bool seen[2] = {false};
    char path[64];
    pid_t child;
    DIR *d;

    assert_ok(gemm_baseline_shape(r, "f32", 64, 256, 256, true, 0.0));
    child = child_of_ours();
    snprintf(path, sizeof path, "/proc/%d/task", (int)child);
    d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        for (int i = 0; i < o.n_threads; i++)
            seen[i] |= isdigit((unsigned char)e->d_name[0]) &&
                       only_cpu(child, e->d_name) == o.cpus[i];
    closedir(d);
    for (int i = 0; i < o.n_threads; i++)
        assert_true(seen[i]);
}

static void test_killed(void **state)
{
    struct gemm_baseline *r = open_baseline(*state, 2);
    double seconds;

    assert_ok(gemm_baseline_shape(r, "f32", 3, 40, 50, true, 0.0));
    assert_int_equal(kill(child_of_ours(), SIGKILL), 0);
    assert_err(gemm_baseline_run(r, &seconds), ERR_IO, "ended by signal 9");
    assert_err(gemm_baseline_run(r, &seconds), ERR_STATE, "no shape");
    assert_ok(gemm_baseline_shape(r, "f32", 3, 40, 50, true, 0.0)); /* it goes on */
    assert_ok(gemm_baseline_run(r, &seconds));
}

/* In a process of its own: a baseline whose child is stopped, so that it cannot see the end
 * of its input, and a parent that is killed. */
static void parent(const char *name, int tell)
{
    struct gemm_baseline_opts o = opts(2);
    struct gemm_baseline *r;
    pid_t child = 0;

    if (gemm_baseline_open(&r, name, &o) == OK &&
        gemm_baseline_shape(r, "f32", 3, 40, 50, true, 0.0) == OK) {
        child = child_of_ours();
        kill(child, SIGSTOP);
    }
    if (write(tell, &child, sizeof child) == sizeof child)
        raise(SIGKILL);
    _exit(1);
}

static void test_dies_with_its_parent(void **state)
{
    int ends[2], status, waits = 0;
    pid_t child, middle;

    open_baseline(*state, 2); /* or skip */
    gemm_baseline_close(&opened);
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    middle = fork();
    assert_true(middle >= 0);
    if (middle == 0)
        parent(*state, ends[1]);
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    assert_int_equal(waitpid(middle, &status, 0), middle);
    assert_true(WIFSIGNALED(status));
    assert_true(child > 0);
    while (count_running(child) >= 0 && waits++ < 10000)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(count_running(child), -1);
    close(ends[0]);
    close(ends[1]);
}

/* Under a mask a library computes with no more than we do: every setting that is tried says
 * what the library runs as. */
static void test_mask(void **state)
{
    struct gemm_baseline *r;

    test_needs_isa("avx2");
    setenv(CPU_ISA_ENV, "avx2", 1); /* for the children: ours is found out already */
    r = open_baseline(*state, 1);
    only_avx2 = true;
    log_set_level(LOG_DEBUG);
    check_shape(r, "f32", 13, 97, 65, true);
    assert_true(n_lines > 1);
}

/* No library computes in plain C: none takes part. */
static void test_no_isa(void **state)
{
    struct gemm_baseline_opts o = opts(1);

    open_baseline(*state, 1);
    gemm_baseline_close(&opened);
    setenv(CPU_ISA_ENV, "ref", 1);
    assert_err(gemm_baseline_open(&opened, *state, &o), ERR_NOTFOUND, "no setting for");
}

int main(void)
{
    static const struct {
        const char *word;
        CMUnitTestFunction run;
    } all[] = {
        {"f32", test_f32},
        {"bf16", test_bf16},
        {"one_thread", test_one_thread},
        {"sleeps_between_runs", test_sleeps_between_runs},
        {"threads_are_pinned", test_threads_are_pinned},
        {"killed", test_killed},
        {"dies_with_its_parent", test_dies_with_its_parent},
        {"mask", test_mask},
        {"no_isa", test_no_isa},
    };
    enum { N = sizeof all / sizeof all[0] };
    static char names[MAX_BASELINES * N][64];
    struct CMUnitTest tests[MAX_BASELINES * N];
    size_t n = 0;

    if (getenv(CPU_ISA_ENV))
        snprintf(mask, sizeof mask, "%s", getenv(CPU_ISA_ENV));
    for (int r = 0; gemm_baseline_names[r] && r < MAX_BASELINES; r++)
        for (size_t i = 0; i < N; i++, n++) {
            snprintf(names[n], sizeof names[n], "%s_%s", gemm_baseline_names[r],
                     all[i].word);
            tests[n] =
                (struct CMUnitTest){.name = names[n],
                                    .test_func = all[i].run,
                                    .teardown_func = close_baseline,
                                    .initial_state = (void *)gemm_baseline_names[r]};
        }
    return _cmocka_run_group_tests("gemm_libraries", tests, n, NULL, NULL);
}
