/* The engine under valgrind's cache simulation: a decoded token misses the last level for
 * each line of its weights, the same to the count in every run. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "characterize/counters/program.h"
#include "format/format.h"
#include "make/make.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "tests/support/test.h"

enum { LINE = 64, DIM = 512, HIDDEN = 1408, LAYERS = 2, HEADS = 8, VOCAB = 2048 };

static char path[700];

/* A llama2c file of 6.6 M parameters, f32: its sides are whole panels, so that what is
 * packed is what arithmetic counts. */
static int open_model(void **state)
{
    const int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, HEADS, VOCAB, 64};
    size_t n = VOCAB * DIM + LAYERS * (2 * DIM + 4 * DIM * DIM) +
               3 * LAYERS * DIM * HIDDEN + DIM + 64 * DIM / HEADS;
    char *buf = mem_new(MEM_TEST, 1, sizeof(header) + n * 4);
    struct rng rng;

    (void)state;
    if (!buf)
        return -1;
    rng_init(&rng, test_seed(), "weights");
    memcpy(buf, header, sizeof(header));
    for (size_t i = 0; i < n; i++) {
        float x = (float)(rng_f64(&rng) - 0.5);

        memcpy(buf + sizeof(header) + 4 * i, &x, 4);
    }
    snprintf(path, sizeof(path), "%s/model.bin", test_dir());
    test_write(path, buf, sizeof(header) + n * 4);
    mem_free(buf);
    return 0;
}

static struct counters_program program(const char *const *argv)
{
    static char files[700];

    snprintf(files, sizeof(files), "%s/files/callgrind", test_dir());
    return (struct counters_program){.argv = argv,
                                     .function = "model_forward",
                                     .ll_bytes = 1 << 20,
                                     .ll_ways = 16,
                                     .line_bytes = LINE,
                                     .files = files,
                                     .limit_s = 100};
}

static const char *sandwich(void)
{
    static char exe[700];
    const char *build = getenv("BUILD");

    snprintf(exe, sizeof(exe), "%s/sandwich", build ? build : "build");
    return exe;
}

static bool near(int64_t a, int64_t b, double frac)
{
    return llabs(a - b) <= 8 || fabs((double)a / (double)b - 1) < frac;
}

TEST_WITH(decode_misses_its_weights, open_model, NULL)
{
    const char *const argv[] = {
        sandwich(),     "run",         "--model", path, "--threads", "1", "--no-pin",
        "--prompt-ids", "1,2,3,4,5,6", "-n",      "4",  "--ids",     NULL};
    const struct counters_program p = program(argv);
    struct counters_call *calls[2];
    struct format_file *f;
    int n[2] = {0}, rc = OK;
    double lines;

    if (getenv("SAN") && *getenv("SAN"))
        test_skip("valgrind does not run a program built with a sanitizer");
    for (int i = 0; i < 2; i++) {
        rc = counters_program_run(&p, &calls[i], &n[i]);
        if (rc == ERR_NOTFOUND && strstr(err_msg(), "no valgrind"))
            test_skip("%s", err_msg());
        assert_ok(rc);
        assert_int_equal(n[i], 4); /* the prompt, and three tokens */
    }
    assert_ok(format_open(&f, path));
    lines = model_cost_decode(&f->config,
                              (struct model_cost_types){KERN_F32, KERN_KV_F32}, 0, 1)
                .weight_bytes /
            LINE;
    format_close(&f);
    for (int i = 1; i < 4; i++) {
        double misses = (double)calls[0][i].ll_read_misses;

        if (fabs(misses / lines - 1) > 0.1)
            fail_msg("token %d: %g misses, %g lines of weights", i, misses, lines);
        assert_true(calls[0][i].instructions > calls[0][i].reads);
    }
    for (int i = 0; i < 4; i++) {
        const struct counters_call *a = &calls[0][i], *b = &calls[1][i];

        assert_true(a->instructions == b->instructions && a->reads == b->reads);
        assert_true(a->writes == b->writes);
        /* What is in the caches when a step begins differs by a few lines: tables are filled
         * under other keys in each process (base/hash.h). The first level has 512. */
        assert_true(near(a->l1_misses, b->l1_misses, 0.01));
        assert_true(near(a->ll_read_misses, b->ll_read_misses, 0.001));
        assert_true(near(a->ll_write_misses, b->ll_write_misses, 0.001));
    }
    printf("# %.0f lines of weights a token, %lld misses\n", lines,
           (long long)calls[0][3].ll_read_misses);
    mem_free(calls[0]);
    mem_free(calls[1]);
}

TEST(failures_are_told)
{
    const char *const none[] = {"/nonexistent/program", NULL};
    const char *const bad[] = {"false", NULL};
    const char *const no_call[] = {"true", NULL};
    const char *const slow[] = {"sleep", "100", NULL};
    struct counters_program p = program(bad);
    struct counters_call *calls;
    char folder[800];
    int n, rc = counters_program_run(&p, &calls, &n);

    if (rc == ERR_NOTFOUND && strstr(err_msg(), "no valgrind"))
        test_skip("%s", err_msg());
    assert_int_equal(rc, ERR_IO);
    assert_non_null(strstr(err_msg(), "exited with status 1"));
    assert_null(calls);
    p.argv = none;
    assert_err(counters_program_run(&p, &calls, &n), ERR_IO, "/nonexistent/program");
    p.argv = no_call;
    assert_err(counters_program_run(&p, &calls, &n), ERR_NOTFOUND, "was never called");
    p.argv = slow;
    p.limit_s = 0.5;
    assert_err(counters_program_run(&p, &calls, &n), ERR_IO, "not done after 0.5 s");
    snprintf(folder, sizeof(folder), "%s/files", test_dir());
    assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
}

/* Without valgrind in the path the reason names the package. */
TEST(no_valgrind)
{
    const char *const argv[] = {"true", NULL};
    struct counters_program p = program(argv);
    struct counters_call *calls;
    char *old = mem_strdup(MEM_TEST, getenv("PATH") ? getenv("PATH") : "");
    int n, rc;

    setenv("PATH", "/nonexistent", 1);
    rc = counters_program_run(&p, &calls, &n);
    setenv("PATH", old, 1);
    mem_free(old);
    assert_int_equal(rc, ERR_NOTFOUND);
    assert_non_null(strstr(err_msg(), "install the package valgrind"));
}
