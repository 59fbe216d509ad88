#include "tests/support/test.h"

#include "plan/plan.h"

static const struct cpu_budget budget = {.n = 4, .cpus = {2, 3, 6, 7}, .reason = "test"};

static void test_default(void **state)
{
    struct plan p;

    (void)state;
    assert_ok(plan_default(&p, &budget, 0));
    assert_int_equal(p.n_cpus, 4);
    assert_int_equal(p.cpus[3], 7);
    assert_int_equal(p.prefill.n_threads, 4);
    assert_int_equal(p.decode.n_threads, 4);
    assert_string_equal(p.source, "default");
    assert_ok(plan_default(&p, &budget, 2));
    assert_int_equal(p.n_cpus, 2);
    assert_int_equal(p.decode.n_threads, 2);
    assert_string_equal(p.source, "--threads");
    assert_err(plan_default(&p, &budget, 5), ERR_ARG, "5 asked for, 4 allowed (test)");
    assert_err(plan_default(&p, &budget, -1), ERR_ARG, "found -1");
}

static void test_round_trip(void **state)
{
    struct plan a, b;
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/plan.json", test_dir());
    assert_ok(plan_default(&a, &budget, 0));
    a.decode.n_threads = 2;
    snprintf(a.decode.why, sizeof(a.decode.why), "bandwidth saturates at 2");
    assert_ok(plan_write(&a, path));
    assert_ok(plan_read(&b, path));
    assert_int_equal(b.n_cpus, a.n_cpus);
    assert_memory_equal(a.cpus, b.cpus, sizeof(a.cpus));
    assert_int_equal(b.prefill.n_threads, 4);
    assert_int_equal(b.decode.n_threads, 2);
    assert_string_equal(b.decode.why, a.decode.why);
}

/* Decode's cores come first, so the order of the list must survive the file. */
static void test_order_kept(void **state)
{
    static const int order[] = {5, 4, 0, 1};
    struct plan a, b;
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/order.json", test_dir());
    assert_ok(plan_default(&a, &budget, 0));
    memcpy(a.cpus, order, sizeof(order));
    assert_ok(plan_write(&a, path));
    assert_ok(plan_read(&b, path));
    assert_memory_equal(b.cpus, order, sizeof(order));
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"[]", "expected an object"},
        {"{\"version\":2,\"cpus\":\"0\",\"prefill\":{\"n_threads\":1},"
         "\"decode\":{\"n_threads\":1}}",
         "version"},
        {"{\"version\":1,\"cpus\":\"0-1\",\"prefill\":{\"n_threads\":3},"
         "\"decode\":{\"n_threads\":1}}",
         "prefill: n_threads"},
        {"{\"version\":1,\"cpus\":\"0-1\",\"prefill\":{\"n_threads\":2}}", "decode"},
        {"{\"version\":1,\"cpus\":\"0-x\",\"prefill\":{\"n_threads\":2},"
         "\"decode\":{\"n_threads\":1}}",
         "cpus"},
        {"{\"version\":1,\"cpus\":\"0,1,0\",\"prefill\":{\"n_threads\":2},"
         "\"decode\":{\"n_threads\":1}}",
         "cpus"},
        {"{\"version\":1,\"cpu\":\"0\"}", "unknown key \"cpu\""},
    };
    char path[512];
    struct plan p;

    (void)state;
    snprintf(path, sizeof(path), "%s/bad.json", test_dir());
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rc;

        test_write(path, rows[i].text, strlen(rows[i].text));
        rc = plan_read(&p, path);
        assert_int_not_equal(rc, OK);
        assert_non_null(strstr(err_msg(), rows[i].part));
        assert_non_null(strstr(err_msg(), "bad.json"));
    }
    assert_int_not_equal(plan_read(&p, "/nonexistent/plan.json"), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_order_kept),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
