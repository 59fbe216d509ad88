#include "tests/support/test.h"

#include "plan/lengths.h"

static int read_text(struct plan_lengths *l, const char *text, size_t n)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/lengths.csv", test_dir());
    test_write(path, text, n);
    return plan_lengths_read(l, path);
}

static void test_good(void **state)
{
    static const char text[] = "prompt,output\r\n100,10\r\n\n 7 , 8 \n1,268435456";
    struct plan_lengths l;

    (void)state;
    assert_ok(read_text(&l, text, sizeof(text) - 1));
    assert_int_equal(l.n, 3);
    assert_int_equal(l.n_prompt[0], 100);
    assert_int_equal(l.n_output[0], 10);
    assert_int_equal(l.n_prompt[1], 7);
    assert_int_equal(l.n_output[1], 8);
    assert_int_equal(l.n_output[2], 1 << 28);
    plan_lengths_free(&l);
    plan_lengths_free(&l);
    assert_ok(read_text(&l, "5,6\n", 4)); /* without a header */
    assert_int_equal(l.n, 1);
    plan_lengths_free(&l);
}

static void test_many(void **state)
{
    char *text = mem_new(MEM_TEST, 5000, 8);
    size_t at = 0;
    struct plan_lengths l;

    (void)state;
    assert_non_null(text);
    for (int i = 1; i <= 3000; i++)
        at += (size_t)sprintf(text + at, "%d,2\n", i);
    assert_ok(read_text(&l, text, at));
    assert_int_equal(l.n, 3000);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(l.n_prompt[i], i + 1);
    plan_lengths_free(&l);
    mem_free(text);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "found none"},
        {"prompt,output\n", "found none"},
        {"1,2\nx,3\n", "line 2: expected PROMPT,OUTPUT"},
        {"a,b\n1\n", "line 2: expected PROMPT,OUTPUT"},
        {"1,2,3\n", "found \"1,2,3\""},
        {"0,2\n", "line 1"},
        {"1,-2\n", "line 1"},
        {"1,268435457\n", "1 to 268435456"},
        {"99999999999999999999,1\n", "line 1"},
        {"1;2\n", "line 1"},
    };
    struct plan_lengths l;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_err(read_text(&l, rows[i].text, strlen(rows[i].text)), ERR_FORMAT,
                   rows[i].part);
        assert_non_null(strstr(err_msg(), "lengths.csv"));
        assert_null(l.n_prompt);
    }
    assert_err(read_text(&l, "1,2\0\n", 5), ERR_FORMAT, "zero byte");
    assert_err(plan_lengths_read(&l, "/nonexistent/l.csv"), ERR_NOTFOUND, "l.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests_name("lengths", tests, NULL, NULL);
}
