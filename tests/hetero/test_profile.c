/* A profile of an accelerator that takes given times gives them back; what is written is read
 * again; what is wrong in a file is named. */
#include <math.h>

#include "base/json.h"
#include "hetero/profile.h"
#include "tests/support/test.h"

static const struct hetero_machine given = {.launch_s = 5e-5,
                                            .link_start_s = 4e-6,
                                            .link_s_per_byte = 1.25e-10,
                                            .accel_start_s = 2e-6,
                                            .accel_s_per_mac = 4e-12,
                                            .accel_macs_per_s = 5e12};

/* Kept for all tests: it takes a second. */
static const struct hetero_profile *profile(void)
{
    static struct hetero_profile p;
    static const enum kern_type types[] = {KERN_BF16};
    static const int threads[] = {1};
    struct hetero_profile_opts o = {.types = types,
                                    .n_types = 1,
                                    .threads = threads,
                                    .n_threads = 1,
                                    .max_tok = 8,
                                    .copy_bytes = 1 << 20,
                                    .machines = &given};

    if (p.n_cpu == 0) {
        assert_ok(accel_find("sim", &o.kind));
        assert_ok(hetero_profile_measure(&p, &o));
    }
    return &p;
}

static bool near(double a, double b)
{
    return fabs(a / b - 1) < 0.02;
}

TEST(given_times_are_found)
{
    const struct hetero_profile *p = profile();
    struct hetero_machine m;
    double p95;

    assert_true(near(p->launch_s, given.launch_s));
    assert_true(near(p->link.start_s, given.link_start_s));
    assert_true(near(p->link.s_per_unit, given.link_s_per_byte));
    assert_true(p->link.r2 > 0.999);
    assert_ok(hetero_profile_machine(&m, &p95, p, KERN_BF16, 1, 1));
    assert_true(near(m.accel_start_s, given.accel_start_s));
    assert_true(near(m.accel_s_per_mac, given.accel_s_per_mac));
    assert_true(near(m.accel_macs_per_s, given.accel_macs_per_s));
    assert_true(m.launch_s == p->launch_s && m.link_s_per_byte == p->link.s_per_unit);
    assert_true(m.cpu_contention == 0 && m.link_contention == 0); /* virtual time */
    /* The CPU's own times are real: on a loaded machine they may show no slope. */
    assert_true(isfinite(m.cpu_s_per_mac) && m.cpu_s_per_mac >= 0 && p95 > 0);
}

TEST(what_was_not_measured)
{
    struct hetero_machine m;
    double p95;

    assert_err(hetero_profile_machine(&m, &p95, profile(), KERN_F32, 1, 1), ERR_NOTFOUND,
               "no products of f32 with 1 threads; it has bf16 with 1 threads");
    assert_err(hetero_profile_machine(&m, &p95, profile(), KERN_BF16, 2, 1), ERR_NOTFOUND,
               "with 2 threads");
}

TEST(written_and_read)
{
    const struct hetero_profile *p = profile();
    struct hetero_machine a, b;
    struct hetero_profile q;
    double p95_a, p95_b;
    const char *path = test_path("profile.json");
    char *text;
    json_t *j;

    assert_ok(hetero_profile_write(p, path));
    assert_ok(hetero_profile_read(&q, path));
    assert_ok(hetero_profile_machine(&a, &p95_a, p, KERN_BF16, 1, 64));
    assert_ok(hetero_profile_machine(&b, &p95_b, &q, KERN_BF16, 1, 64));
    assert_memory_equal(&a, &b, sizeof(a));
    assert_true(p95_a == p95_b);
    assert_string_equal(q.accel_name, "sim");
    assert_ok(hetero_profile_text(&q, &text));
    assert_non_null(strstr(text, "sim: launch"));
    mem_free(text);

    /* Regression: a rate below 0, of a noisy machine, was written, and refused by who read it. */
    q.cpu[0].fit.line.s_per_unit = -1e-12;
    assert_err(hetero_profile_write(&q, path), ERR_STATE,
               "cpu[0]: line.s_per_mac: expected at least 0, found -1e-12");
    assert_ok(hetero_profile_read(&q, path)); /* the older one is still there */

    assert_ok(hetero_profile_json(p, &j));
    json_object_set_new(json_array_get(json_object_get(j, "cpu"), 0), "n_threads",
                        json_integer(0));
    assert_ok(json_write_file(j, path));
    assert_err(hetero_profile_read(&q, path), ERR_FORMAT, "cpu[0]: n_threads");
    json_object_set_new(json_array_get(json_object_get(j, "cpu"), 0), "type",
                        json_string("bf17"));
    assert_ok(json_write_file(j, path));
    assert_err(hetero_profile_read(&q, path), ERR_FORMAT, "bf17");
    json_object_set_new(j, "sandwich_profile", json_integer(2));
    assert_ok(json_write_file(j, path));
    assert_err(hetero_profile_read(&q, path), ERR_FORMAT, "sandwich_profile");
    json_decref(j);
}

TEST(too_much_is_asked_for)
{
    static const enum kern_type types[] = {KERN_BF16};
    const int threads[] = {5000};
    struct hetero_profile p;
    struct hetero_profile_opts o = {
        .types = types, .n_types = 1, .threads = threads, .n_threads = 1, .max_tok = 1};

    assert_err(hetero_profile_measure(&p, &o), ERR_ARG, "5000 threads");
    hetero_profile_fini(&p);
    o.n_types = 17;
    assert_err(hetero_profile_measure(&p, &o), ERR_ARG, "at most 16");
}
