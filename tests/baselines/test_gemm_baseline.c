/* The client of the GEMM libraries against programs made here, which die, hang, lie and
 * talk nonsense: each is one error that says so, and leaves no process and no file open.
 * What real libraries answer is in test_gemm_libraries.c. */
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "baselines/gemm.h"
#include "baselines/gemm/support/data.h"
#include "baselines/gemm_case.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"

#define LIMIT_S 20.0 /* far above what a shell needs, and below the patience of people */
#define SEED    7

/* What a program prints, in the shell. */
#define SETTING(label, more)                                                             \
    "{\"label\": \"" label "\", \"types\": \"f32\", \"m_max\": 0" more "}"
#define LIST(settings) "echo '{\"version\": \"Fake 1\", \"settings\": [" settings "]}'"
#define T(seconds)     ", \"env\": \"T=" seconds "\""

/* Shell commands; NULL: what a sound baseline with two settings would do. `answer SECONDS
 * [VALUES]` is that of a run, `error WHY` a refusal. */
struct fake {
    const char *list, *hello, *shape, *run;
};

static char last_warning[600];
static int n_warnings;

static void on_log(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    if (level > LOG_WARN)
        return;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static double right_value(void)
{
    return (double)gemm_value(SEED, GEMM_A, 0) * (double)gemm_value(SEED, GEMM_W, 0);
}

static void write_fake(const char *name, const struct fake *f)
{
    char path[600], text[6000];
    size_t n;

    snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    n = (size_t)snprintf(text, sizeof text, "#!/bin/sh\nright='[");
    for (int i = 0; i < GEMM_N_SAMPLES; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.9g", i ? "," : "",
                              right_value());
    n += (size_t)snprintf(
        text + n, sizeof text - n,
        "]'\n"
        "answer() { echo \"{\\\"seconds\\\": $1, \\\"values\\\": ${2-$right}}\"; }\n"
        "error() { echo \"{\\\"error\\\": \\\"$1\\\"}\"; }\n"
        "if [ \"$1\" = list ]; then %s; exit 0; fi\n"
        "%s\nread -r line && { %s; }\n"
        "while read -r line; do %s; done\n",
        f->list ? f->list : LIST(SETTING("a", "") "," SETTING("b", "")),
        f->hello ? f->hello : "echo \"{\\\"setting\\\": \\\"setting $1\\\"}\"",
        f->shape ? f->shape : "echo '{\"ready\": true}'",
        f->run ? f->run : "answer 1e-9");
    assert_in_range(n, 1, sizeof text - 1);
    test_write(path, text, n);
    assert_int_equal(chmod(path, 0755), 0);
}

static struct gemm_baseline_opts opts(void)
{
    static int cpu;
    struct gemm_baseline_opts o = {.n_threads = 1,
                                   .cpus = &cpu,
                                   .cache_bytes = 1 << 20,
                                   .seed = SEED,
                                   .limit_s = LIMIT_S,
                                   .dir = test_dir()};
    cpu = sched_getcpu();
    return o;
}

static int n_files;
static cpu_set_t affinity;

static int before(void **state)
{
    (void)state;
    n_files = left_fds();
    n_warnings = 0;
    last_warning[0] = '\0';
    assert_int_equal(sched_getaffinity(0, sizeof affinity, &affinity), 0);
    log_set_sink(on_log, NULL);
    return 0;
}

/* Whatever happened: no child, no zombie, no open file, and our own CPUs are ours. */
static int after(void **state)
{
    cpu_set_t now;

    (void)state;
    log_set_sink(NULL, NULL);
    left_no_child();
    assert_int_equal(left_fds(), n_files);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &affinity));
    return 0;
}

static struct gemm_baseline *open_fake(const struct fake *f)
{
    struct gemm_baseline_opts o = opts();
    struct gemm_baseline *r;

    write_fake("fake", f);
    assert_ok(gemm_baseline_open(&r, "fake", &o));
    return r;
}

/* --- who is there */

TEST_WITH(test_absent, before, after)
{
    struct gemm_baseline_opts o = opts();
    struct gemm_baseline *r;

    assert_err(gemm_baseline_open(&r, "nobody", &o), ERR_NOTFOUND, "nobody is not built");
    assert_null(r);
    o.dir = NULL;
    o.n_threads = 0;
    assert_err(gemm_baseline_open(&r, "openblas", &o), ERR_ARG, "0 threads");
    o = opts();
    o.limit_s = NAN;
    assert_err(gemm_baseline_open(&r, "fake", &o), ERR_ARG, "limit_s");
    o = opts();
    o.cpus = (int[]){CPU_SETSIZE};
    write_fake("fake", &(struct fake){0});
    assert_err(gemm_baseline_open(&r, "fake", &o), ERR_ARG, "CPU 1024");
    o.cpus = (int[]){CPU_SETSIZE - 1};
    assert_err(gemm_baseline_open(&r, "fake", &o), ERR_IO, "CPUs");
}

/* A program that the system cannot run, as one whose library went away after the build. */
TEST_WITH(test_not_a_program, before, after)
{
    struct gemm_baseline_opts o = opts();
    struct gemm_baseline *r;
    char path[600];

    snprintf(path, sizeof path, "%s/broken", test_dir());
    test_write(path,
               "\x7f"
               "ELF",
               4);
    assert_int_equal(chmod(path, 0755), 0);
    assert_err(gemm_baseline_open(&r, "broken", &o), ERR_IO, "cannot start");
    write_fake("fake", &(struct fake){.list = "echo libx.so: missing >&2; exit 127"});
    assert_err(gemm_baseline_open(&r, "fake", &o), ERR_IO,
               "status 127: libx.so: missing");
}

TEST_WITH(test_bad_lists, before, after)
{
    static const struct {
        const char *list, *said;
        int code;
    } bad[] = {
        {":", "exited with status 0", ERR_IO},
        {"kill -SEGV $$", "signal 11 (Segmentation fault)", ERR_IO},
        {"echo hello", "fake: line 1", ERR_FORMAT},
        {"echo '{}'", "version: expected a string", ERR_FORMAT},
        {"echo '{\"version\": \"\001\"}'", "control character 0x1", ERR_FORMAT},
        {"printf '{}'", "exited", ERR_IO}, /* half a line */
        {"printf '{}\\n{}\\n'", "fake: line 2", ERR_FORMAT},
        {"yes x | tr -d '\\n'", "longer than", ERR_FORMAT},
        {LIST(""), "Fake 1 has no setting", ERR_NOTFOUND},
        {LIST("{}"), "label: expected a string", ERR_FORMAT},
        {LIST("{\"label\": \"a\", \"types\": \"f32\", \"m_max\": -1}"),
         "m_max: expected an integer", ERR_FORMAT},
    };
    struct gemm_baseline_opts o = opts();
    struct gemm_baseline *r;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_fake("fake", &(struct fake){.list = bad[i].list});
        assert_err(gemm_baseline_open(&r, "fake", &o), bad[i].code, bad[i].said);
        assert_null(r);
    }
    o.limit_s = 0.2;
    write_fake("fake", &(struct fake){.list = "sleep 60"});
    assert_err(gemm_baseline_open(&r, "fake", &o), ERR_LIMIT, "no answer in 0.2 s");
}

/* The child has its own settings, not the user's, and none of our files. */
TEST_WITH(test_environment, before, after)
{
    struct gemm_baseline_opts o = opts();
    struct gemm_baseline *r;
    char list[400], wanted[96];
    int file = open("/dev/null", O_RDONLY); /* left open for any child, on purpose */

    assert_true(file > 2);
    setenv("OMP_WAIT_POLICY", "active", 1);
    setenv("BLIS_ARCH_TYPE", "0", 1);
    snprintf(list, sizeof list,
             "[ -e /proc/$$/fd/%d ] && f=open; echo '{\"version\": \"'$OMP_NUM_THREADS "
             "\"$OMP_PLACES\" ${OMP_WAIT_POLICY-none} ${BLIS_ARCH_TYPE-none} ${f-shut} "
             "$(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)'\", \"settings\": "
             "[" SETTING("a", "") "]}'",
             file);
    write_fake("fake", &(struct fake){.list = list});
    assert_ok(gemm_baseline_open(&r, "fake", &o));
    snprintf(wanted, sizeof wanted, "1 {%d} none none shut %d", o.cpus[0], o.cpus[0]);
    assert_string_equal(gemm_baseline_version(r), wanted);
    gemm_baseline_close(&r);
    assert_null(r);
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("BLIS_ARCH_TYPE");
    close(file);
}

/* --- which setting is kept */

TEST_WITH(test_fastest_is_kept, before, after)
{
    struct gemm_baseline *r = open_fake(&(struct fake){
        .list =
            LIST("{\"label\": \"a\", \"types\": \"f32 bf16\", \"m_max\": 0}, " SETTING(
                "b", T("1e-9")) ", " SETTING("c",
                                             "") ", {\"label\": \"d\", \"types\": "
                                                 "\"f32\", \"m_max\": 1" T("5e-10") "}"),
        .run = "answer ${T-2e-9}"});
    double seconds;

    assert_string_equal(gemm_baseline_setting(r), "");
    assert_err(gemm_baseline_run(r, &seconds), ERR_STATE, "no shape");
    assert_true(isnan(seconds));
    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    assert_string_equal(gemm_baseline_setting(r), "setting 3");
    assert_true(gemm_baseline_error(r) < 1e-6);
    assert_ok(gemm_baseline_run(r, &seconds));
    assert_true(seconds == 5e-10);
    /* Setting d knows one row only; the fake's result for two is wrong. */
    assert_err(gemm_baseline_shape(r, "f32", 2, 1, 1, true, LIMIT_S), ERR_STATE,
               "none of 3 settings computes f32 2 x 1 x 1");
    assert_string_equal(gemm_baseline_setting(r), "");
    assert_true(isnan(gemm_baseline_error(r)));
    gemm_baseline_close(&r);
}

/* Without time one setting is tried, and the record says so: the best of the last shape. */
TEST_WITH(test_budget, before, after)
{
    struct gemm_baseline *r = open_fake(&(struct fake){
        .list = LIST(SETTING("a", "") "," SETTING("b", T("1e-9")) "," SETTING("c", "")),
        .run = "answer ${T-2e-9}"});

    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, 0.0));
    assert_string_equal(gemm_baseline_setting(r), "setting 0 (1 of 3 settings tried)");
    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    assert_string_equal(gemm_baseline_setting(r), "setting 1");
    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, 0.0));
    assert_string_equal(gemm_baseline_setting(r), "setting 1 (1 of 3 settings tried)");
    assert_int_equal(n_warnings, 0);
    gemm_baseline_close(&r);
}

/* Settings that fail in their own way are left out, said once, and another is kept. */
TEST_WITH(test_wrong_is_dropped, before, after)
{
    static const struct {
        struct fake fake;
        const char *said; /* NULL: that the library does not take it is not a warning */
    } bad[] = {
        {{.run = "[ $1 = 0 ] && right=$(echo \"$right\" | sed 's/,-*/,9/'); answer 1e-9"},
         "computes wrong"},
        {{.run = "[ $1 = 0 ] && right=$(echo \"$right\" | sed 's/,[^,]*/,null/'); "
                 "answer 1e-9"},
         "computes wrong"},
        {{.run = "[ $1 = 0 ] && right='[1]'; answer 1e-9"}, "1 values, expected 96"},
        {{.run = "[ $1 = 0 ] && error idea || answer 1e-9"}, NULL},
        {{.hello = "[ $1 = 0 ] && error 'no such core' || "
                   "echo '{\"setting\": \"setting 1\"}'"},
         NULL},
        {{.hello = "[ $1 = 0 ] && echo hello; echo '{\"setting\": \"setting 1\"}'"},
         "fake: line 1"},
        {{.hello = "[ $1 = 0 ] && echo '{}' || echo '{\"setting\": \"setting 1\"}'"},
         "setting: expected a string"},
        {{.shape = "[ $1 = 0 ] && error 'no way' || echo '{\"ready\": true}'"}, NULL},
        {{.shape = "[ $1 = 0 ] && echo '{}' || echo '{\"ready\": true}'"},
         "expected {\"ready\": true}"},
        {{.shape = "[ $1 = 0 ] && kill -ABRT $$; echo '{\"ready\": true}'"},
         "signal 6 (Aborted)"},
        {{.run = "[ $1 = 0 ] && exit 3; answer 1e-9"}, "exited with status 3"},
        {{.run = "[ $1 = 0 ] && answer '\"soon\"' || answer 1e-9"},
         "seconds: expected a number"},
        {{.run = "[ $1 = 0 ] && answer 0 || answer 1e-9"}, "reported 0 s for a run"},
        {{.run = "[ $1 = 0 ] && answer -1 || answer 1e-9"}, "reported -1 s for a run"},
        {{.run = "[ $1 = 0 ] && answer 1e9 || answer 1e-9"}, "reported 1e+09 s for"},
        {{.run = "[ $1 = 0 ] && answer nan || answer 1e-9"}, "fake: line 1"},
        {{.run = "answer 1e-9; [ $1 = 0 ] && sleep 0.05 && answer 1e-9"}, "fake: "},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gemm_baseline *r = open_fake(&bad[i].fake);
        n_warnings = 0;
        assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
        assert_string_equal(gemm_baseline_setting(r), "setting 1");
        if (n_warnings != (bad[i].said ? 1 : 0))
            fail_msg("row %zu: %d warnings, the last \"%s\"", i, n_warnings,
                     last_warning);
        if (bad[i].said && !strstr(last_warning, bad[i].said))
            fail_msg("row %zu: \"%s\", wanted \"%s\"", i, last_warning, bad[i].said);
        gemm_baseline_close(&r);
    }
}

TEST_WITH(test_no_setting, before, after)
{
    struct gemm_baseline *r = open_fake(&(struct fake){.shape = "error 'no such thing'"});
    double seconds;

    assert_err(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S), ERR_NOTFOUND,
               "none of 2 settings");
    assert_err(gemm_baseline_run(r, &seconds), ERR_STATE, "no shape");
    assert_err(gemm_baseline_shape(r, "bf16", 1, 1, 1, true, LIMIT_S), ERR_NOTFOUND,
               "Fake 1 has no bf16");
    assert_err(gemm_baseline_shape(r, "f16", 1, 1, 1, true, LIMIT_S), ERR_NOTFOUND,
               "\"f16\"");
    assert_err(gemm_baseline_shape(r, "f32", 0, 1, 1, true, LIMIT_S), ERR_ARG,
               "0 x 1 x 1");
    assert_err(gemm_baseline_shape(r, "f32", 1, 1, INT64_MAX, true, LIMIT_S), ERR_ARG,
               "expected 1 to 2147483647");
    gemm_baseline_close(&r);
}

/* Two settings that the library takes as the same are one. */
TEST_WITH(test_doubles, before, after)
{
    char hello[700], path[600];
    char *log;
    size_t n;

    snprintf(path, sizeof path, "%s/shapes", test_dir());
    unlink(path);
    snprintf(hello, sizeof hello, "echo '{\"setting\": \"the same\"}'; log=%s", path);
    struct gemm_baseline *r = open_fake(&(struct fake){
        .hello = hello, .shape = "echo x >>$log; echo '{\"ready\": true}'"});
    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    gemm_baseline_close(&r);
    log = test_read(path, &n);
    assert_int_equal(n, 4); /* one line a shape */
    mem_free(log);
}

/* Weights larger together than four caches when cold, one copy when warm. */
TEST_WITH(test_copies, before, after)
{
    struct gemm_baseline *r = open_fake(&(struct fake){
        .shape = "n=$(echo \"$2\" | sed 's/.*n_copies\":\\([0-9]*\\).*/\\1/'); "
                 "[ \"$n\" = $((1048576 * 4 / 4096)) ] && echo '{\"ready\": true}' || "
                 "error \"$n\"",
    });

    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, false, LIMIT_S));
    assert_err(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S), ERR_NOTFOUND,
               "the last: 1");
    gemm_baseline_close(&r);
}

/* --- a child that is lost */

TEST_WITH(test_killed_in_a_run, before, after)
{
    struct gemm_baseline *r = open_fake(&(struct fake){
        .list = LIST(SETTING("a", "")),
        .run = "n=$((n + 1)); [ $n -gt 9 ] && { echo no way on >&2; kill -KILL $$; }; "
               "answer 1e-9"});
    double seconds;
    int rc = OK;

    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    for (int i = 0; i < 10 && rc == OK; i++)
        rc = gemm_baseline_run(r, &seconds);
    assert_err(
        rc, ERR_IO,
        "GEMM library fake (setting 0): fake: ended by signal 9 (Killed): no way on");
    assert_true(isnan(seconds));
    assert_err(gemm_baseline_run(r, &seconds), ERR_STATE, "no shape");
    assert_string_equal(gemm_baseline_setting(r), "");
    gemm_baseline_close(&r);
}

TEST_WITH(test_stopped, before, after)
{
    struct gemm_baseline_opts o = opts();
    struct gemm_baseline *r;
    double seconds;
    int rc = OK;

    o.limit_s = 1.0;
    write_fake("fake",
               &(struct fake){.run = "n=$((n + 1)); [ $n -gt 9 ] && kill -STOP $$; "
                                     "answer 1e-9"});
    assert_ok(gemm_baseline_open(&r, "fake", &o));
    rc = gemm_baseline_shape(r, "f32", 1, 1, 1, true, 0.0);
    for (int i = 0; i < 10 && rc == OK; i++)
        rc = gemm_baseline_run(r, &seconds);
    assert_err(rc, ERR_LIMIT, "no answer in 1 s: stopped by signal 19");
    gemm_baseline_close(&r);
}

/* A newcomer that loses the best so far in their duel takes its place. */
TEST_WITH(test_best_dies_in_duel, before, after)
{
    struct gemm_baseline *r = open_fake(&(struct fake){
        .run = "n=$((n + 1)); [ $1 = 0 ] && [ $n -gt 8 ] && kill -KILL $$; answer 1e-9"});

    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    assert_string_equal(gemm_baseline_setting(r), "setting 1");
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(last_warning, "signal 9"));
    gemm_baseline_close(&r);
}

/* A slow newcomer is not waited for: that is neither a fault nor a warning. */
TEST_WITH(test_slow_newcomer, before, after)
{
    struct gemm_baseline *r =
        open_fake(&(struct fake){.run = "[ $1 = 1 ] && sleep 60; answer 1e-9"});

    assert_ok(gemm_baseline_shape(r, "f32", 1, 1, 1, true, LIMIT_S));
    assert_string_equal(gemm_baseline_setting(r), "setting 0");
    assert_int_equal(n_warnings, 0);
    gemm_baseline_close(&r);
}

/* --- the rest */

TEST_WITH(test_samples, before, after)
{
    struct gemm_case c = {.m = 5, .n = 301, .k = 37, .seed = SEED};
    bool corner[4] = {false};

    gemm_case_sample(&c);
    for (int i = 0; i < GEMM_N_SAMPLES; i++) {
        int64_t row = c.samples[i].row, column = c.samples[i].column;
        double sum = 0.0;
        assert_in_range(row, 0, c.m - 1);
        assert_in_range(column, 0, c.n - 1);
        for (int64_t k = 0; k < c.k; k++)
            sum += (double)gemm_value(SEED, GEMM_A, row * c.k + k) *
                   (double)gemm_value(SEED, GEMM_W, k * c.n + column);
        assert_true(fabs(sum - c.samples[i].expected) < 1e-12 * c.result_rms);
        for (int j = 0; j < 4; j++)
            corner[j] |= row == (j % 2 ? c.m - 1 : 0) && column == (j / 2 ? c.n - 1 : 0);
    }
    assert_true(corner[0] && corner[1] && corner[2] && corner[3]);
    /* Sums of 37 products of numbers with variance 1. */
    assert_true(c.result_rms > 3.0 && c.result_rms < 12.0);
}
