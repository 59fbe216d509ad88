#include "tests/support/test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"

static int run(int (*fn)(void *ctx, FILE *out), void *ctx, size_t foreign_bytes,
               char **text, size_t *n)
{
    const struct child c = {fn, ctx, "FILE", "it is damaged", foreign_bytes};

    return child_run(&c, text, n);
}

static int n_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int print(void *ctx, FILE *out)
{
    for (int i = 0; i < *(int *)ctx; i++)
        fprintf(out, "%07d\n", i);
    return OK;
}

static void text_comes_back(void **state)
{
    static int sizes[] = {0, 1, 511, 512, 513, 300000};
    int before = n_open();
    char *text;
    size_t n;

    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_ok(run(print, &sizes[i], i % 2 ? 1000 : 0, &text, &n));
        assert_int_equal(n, 8 * sizes[i]);
        assert_int_equal(strlen(text), n);
        if (n)
            assert_int_equal(atoi(text + n - 8), sizes[i] - 1);
        mem_free(text);
    }
    assert_int_equal(n_open(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
}

static int refuse(void *ctx, FILE *out)
{
    fputs("half an answer", out);
    return err_set(*(int *)ctx, "expected this, found that");
}

static int leave(void *ctx, FILE *out)
{
    (void)out;
    child_exit(err_set(*(int *)ctx, "deep inside"));
}

static void errors_come_back(void **state)
{
    char *text;
    size_t n;

    (void)state;
    for (int code = ERR_ARG; code >= ERR_CANCELED; code--) {
        assert_err(run(refuse, &code, 0, &text, &n), code, "expected this, found that");
        assert_null(text);
        assert_err(run(leave, &code, 9, &text, &n), code, "deep inside");
    }
}

/* --- crashes and limits: one line that begins with the file */

static int crash(void *ctx, FILE *out)
{
    fputs("half an answer", out);
    fflush(out);
    raise(*(int *)ctx);
    return OK;
}

static int leave_oddly(void *ctx, FILE *out)
{
    (void)ctx;
    (void)out;
    _exit(3);
}

static int spin(void *ctx, FILE *out)
{
    (void)ctx;
    for (volatile unsigned i = 0; out; i++)
        ;
    return OK;
}

static int eat(void *ctx, FILE *out)
{
    (void)ctx;
    (void)out;
    for (int i = 0; i < 64; i++)
        if (mmap(NULL, (size_t)1 << 28, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            return err_set(ERR_NOMEM, "no more than %d", i);
    return OK;
}

static int talk(void *ctx, FILE *out)
{
    (void)ctx;
    while (fputs("0123456789abcdef0123456789abcdef0123456789abcdef\n", out) >= 0)
        ;
    return OK;
}

static void go_on(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* A handler of the parent, such as a test runner's, is not the child's. */
static void faults_are_not_handled(void **state)
{
    static int fault = SIGSEGV;
    void (*before)(int) = signal(SIGSEGV, go_on);
    char *text;
    size_t n;

    (void)state;
    assert_err(run(crash, &fault, 0, &text, &n), ERR_FORMAT, "FILE: ");
    signal(SIGSEGV, before);
}

static void crashes_are_errors(void **state)
{
    static int signals[] = {SIGSEGV, SIGABRT, SIGKILL, SIGBUS};
    char *text;
    size_t n;

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_err(run(crash, &signals[i], 9, &text, &n), ERR_FORMAT, "FILE: ");
        assert_non_null(strstr(err_msg(), "it is damaged"));
        assert_null(text);
    }
    assert_err(run(leave_oddly, NULL, 9, &text, &n), ERR_FORMAT, "status 3");
}

static void foreign_input_has_limits(void **state)
{
    char *text;
    size_t n;

    (void)state;
    assert_err(run(talk, NULL, 9, &text, &n), ERR_FORMAT, "FILE: more than");
    assert_err(run(eat, NULL, 9, &text, &n), ERR_NOMEM, "no more than");
    assert_err(run(spin, NULL, 9, &text, &n), ERR_FORMAT, "CPU time limit exceeded");
}

static void memory_fails(void **state)
{
    static int size = 3000;
    char *text;
    size_t n;

    (void)state;
    for (long k = 0;; k++) {
        int rc;

        mem_fail_after(k, 0);
        rc = run(print, &size, 0, &text, &n);
        mem_fail_after(-1, 0);
        mem_free(text);
        if (rc == OK)
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_true(k < 100);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(errors_come_back),
        cmocka_unit_test(crashes_are_errors),
        cmocka_unit_test(faults_are_not_handled),
        cmocka_unit_test(foreign_input_has_limits),
        cmocka_unit_test(memory_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
