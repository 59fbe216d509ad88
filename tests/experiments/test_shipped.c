/* Every experiment we ship can be read, whole and as a smoke run, and says what an
 * experiment must say; its headlines speak of cells that exist. */
#include <glob.h>

#include "experiments/harness/job.h"
#include "tests/support/test.h"

static void check(const char *path, bool smoke)
{
    struct job_read_opts o = {.smoke = smoke};
    bool chosen[1024];
    struct job *j;

    assert_ok(job_read(&j, path, &o));
    assert_non_null(j->head.about);
    assert_non_null(j->head.expect);
    assert_non_null(j->claim.text);
    assert_true(json_array_size(j->needs) > 0);
    assert_true(j->cost.minutes > 0 && j->cost.disk_mb > 0);
    assert_true(j->n_cells > 0 && j->n_cells <= 1024);
    assert_true(smoke || j->n_headlines > 0);
    for (int i = 0; i < j->n_headlines; i++)
        if (job_headline_cells(j, &j->headlines[i], chosen) == 0)
            fail_msg("%s%s: headline %s speaks of no cell", path, smoke ? " (smoke)" : "",
                     j->headlines[i].name);
    job_free(&j);
}

static void shipped(void **s)
{
    glob_t g;

    (void)s;
    assert_int_equal(glob("experiments/*.json", 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= 4);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        check(g.gl_pathv[i], false);
        check(g.gl_pathv[i], true);
    }
    globfree(&g);
}

/* The paper's numbers are well formed: every value says where it stands. */
static void reference_numbers(void **s)
{
    glob_t g;

    (void)s;
    assert_int_equal(glob("results/reference/*.json", 0, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        json_error_t e;
        json_t *j = json_load_file(g.gl_pathv[i], JSON_REJECT_DUPLICATES, &e), *v;
        size_t k;

        if (!j)
            fail_msg("%s:%d: %s", g.gl_pathv[i], e.line, e.text);
        assert_true(json_is_string(json_object_get(j, "paper")));
        assert_true(json_array_size(json_object_get(j, "values")) > 0);
        json_array_foreach(json_object_get(j, "values"), k, v)
        {
            assert_true(json_is_string(json_object_get(v, "where")));
            assert_true(json_is_string(json_object_get(v, "what")));
        }
        json_decref(j);
    }
    globfree(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped),
        cmocka_unit_test(reference_numbers),
    };

    return cmocka_run_group_tests_name("experiments/shipped", tests, NULL, NULL);
}
