/* tests/report/report_fixture.h - a folder with jobs, claims, findings and records of a made-up
 * kind, which the tests of pages share. Include it once in a test. */
#ifndef TESTS_REPORT_REPORT_FIXTURE_H
#define TESTS_REPORT_REPORT_FIXTURE_H

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "experiments/report/report.h"
#include "tests/support/fixture.h"

/* What has no meaning on any page. */
#define FIXTURE_HOSTILE "<script>alert(1)</script>|`\x1b[2J\"'&"

/* a in [a/2, 2*a], "b 1" = b, c missing for FIXTURE_HOSTILE, and the share of a bound. Seven cells,
 * of which the last failed and 3 warn of `code`. */
struct fixture_record {
    const char *stem, *cpu, *utc, *host, *code;
    double a, b, share;
};

static const char job[] =
    "{\"about\": \"a job of <b>&|\", \"claim\": {\"paper\": \"P\", \"section\": \"1\", "
    "\"figure\": \"Fig. 1\", \"text\": \"it holds\"}, \"expect\": \"much\", \"cost\": "
    "{\"minutes\": 2}, \"system\": {\"adapter\": \"scripted\"}, \"dataset\": {\"n\": 5}}";
static const char claims[] =
    "{\"claims\": [{\"name\": \"order\", \"paper\": \"P\", \"section\": \"1\", \"text\": "
    "\"a is below b\", \"experiment\": \"e\", \"reproduced\": \"a < b\", \"should\": "
    "\"reproduced\", \"compared\": [{\"names\": \"a\", \"cells\": 9}, \"b\"]}]}";
/* No record; the record says otherwise; a number is missing; shown. */
static const char findings[] = "{\"findings\": ["
                               "{\"paper\": \"P\", \"experiment\": \"f\", \"text\": "
                               "\"{a} f\", \"holds\": \"a < b\"},"
                               "{\"paper\": \"P\", \"experiment\": \"e\", \"text\": "
                               "\"{a} e\", \"holds\": \"b < a\"},"
                               "{\"paper\": \"P\", \"experiment\": \"e\", \"text\": "
                               "\"{c} e\", \"holds\": \"a < b\"},"
                               "{\"paper\": \"P\", \"experiment\": \"e\", \"text\": \"It "
                               "takes {a s} of {2*b~1 s}.\", "
                               "\"holds\": \"a < b\"}]}";

static inline void fixture_record_make(const struct fixture_record *m)
{
    const struct record_headline h[] = {
        {.name = "a",
         .unit = "s",
         .better = "lower",
         .value = m->a,
         .has_interval = true,
         .lo = m->a / 2,
         .hi = m->a * 2},
        {.name = "b 1", .unit = "s", .better = "lower", .value = m->b},
        {.name = "b",
         .unit = "s",
         .better = "lower",
         .value = m->b,
         .has_interval = true,
         .lo = m->b,
         .hi = m->b},
        {.name = "c",
         .unit = "s",
         .better = "lower",
         .value = NAN,
         .why = FIXTURE_HOSTILE},
        {.name = "read_bandwidth_frac",
         .unit = "",
         .better = "higher",
         .value = m->share}};
    json_t *header = fixture_header(m->utc), *warning;
    char dir[100], *path;
    struct fixture_cell f;
    struct journal *j;

    snprintf(dir, sizeof(dir), "results/%s", m->stem);
    json_object_update_new(
        header, json_pack("{s:s s:i s:s s:s}", "cpu_model", m->cpu, "n_cpus", 4, "host",
                          m->host, "hwloc_xml",
                          "<info name=\"CPUFamilyNumber\" value=\"25\"/>\n<info "
                          "name=\"CPUModelNumber\" value=\"17\"/>"));
    assert_ok(journal_open(&j, dir, m->stem, header, false));
    for (int i = 0; i < 7; i++) { /* the last one failed */
        fixture_cell_make(&f, i);
        f.cell.n_rows = f.cell.n_values = 0; /* which cannot be true */
        warning = json_pack("[{s:s s:f s:f s:s}]", "code", m->code, "observed",
                            0.01 * (i + 1), "threshold", 0.02, "text", FIXTURE_HOSTILE);
        assert_non_null(warning);
        if (i > 3)
            assert_int_equal(
                json_object_set_new((json_t *)f.cell.attributes, "warnings", warning), 0);
        else
            json_decref(warning);
        assert_int_equal(json_object_set_new((json_t *)f.cell.attributes, "error",
                                             json_string(FIXTURE_HOSTILE)),
                         0);
        assert_ok(journal_cell(j, &f.cell));
        fixture_cell_free(&f);
    }
    assert_ok(record_finish(&j, h, 5, false, &path));
    mem_free(path);
    json_decref(header);
}

/* Of e, with a < b. */
static const struct fixture_record fixture_first = {
    "e", "Chip", "2026-01-31T23:59:59Z", "n1", "steal", 1, 3, 0.8};

/* Go to a folder with the jobs e, f and g, which cannot be read; the claim "order", a < b of e; and
 * four findings, one shown and one of each reason why not. `top`: for fixture_leave(). */
static inline void fixture_enter(char top[600])
{
    char here[600];

    assert_non_null(getcwd(top, 600));
    assert_int_equal(chdir(test_dir()), 0);
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(setenv(HOME_ENV, here, 1), 0);
    assert_ok(file_write("experiments/e.json", job, strlen(job)));
    assert_ok(file_write("experiments/f.json", job, strlen(job)));
    assert_ok(file_write("experiments/g.json", "{", 1));
    assert_ok(file_write("results/claims.json", claims, strlen(claims)));
    assert_ok(file_write("results/findings.json", findings, strlen(findings)));
}

static inline void fixture_leave(const char *top)
{
    assert_int_equal(system("rm -rf experiments results page doc.md"), 0);
    assert_int_equal(unsetenv(HOME_ENV), 0);
    assert_int_equal(chdir(top), 0);
}

/* page/NAME as a text, mem_free(). */
static inline char *fixture_page(const char *name)
{
    char path[100];
    size_t n;

    snprintf(path, sizeof(path), "page/%s", name);
    return test_read(path, &n);
}

/* The page made of all records there are. */
static inline void fixture_save_page(void)
{
    struct report r;

    assert_ok(report_read(&r, NULL));
    assert_ok(report_draw(&r, "page", false));
    assert_ok(report_save(&r, "page"));
    report_fini(&r);
}

#endif
