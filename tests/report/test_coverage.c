/* What of the papers is tested: a list that is not as expected gives one line. */
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/report/coverage.h"

#define LIST(x) "{\"about\": \"x\", \"rows\": [" x "]}"
#define ROW(covers)                                                                      \
    "{\"paper\": \"P\", \"where\": \"Fig. 1\", \"covers\": \"" covers "\", "
#define EMPTY  "\"experiments\": [], \"evidence\": []"
#define TESTED "\"experiments\": [\"e\", \"f\"], \"evidence\": [\"measured\", \"model\"]"

static int read_text(struct coverage *c, const char *text)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/coverage.json", test_dir());
    test_write(path, text, strlen(text));
    return coverage_read(c, path);
}

TEST(rows_are_read)
{
    struct coverage c;
    char names[16];

    assert_ok(read_text(&c, LIST(ROW("full") TESTED "}, " ROW("none") EMPTY
                                 ", \"why\": \"a diagram\"}")));
    assert_int_equal(c.n, 2);
    assert_int_equal(c.v[0].kind, COVERAGE_FULL);
    assert_null(c.v[0].why);
    coverage_join(names, sizeof(names), c.v[0].experiments);
    assert_string_equal(names, "e, f");
    coverage_join(names, 4, c.v[0].evidence);
    assert_string_equal(names, "mea");
    assert_int_equal(c.v[1].kind, COVERAGE_NONE);
    assert_string_equal(c.v[1].why, "a diagram");
    coverage_join(names, sizeof(names), c.v[1].experiments);
    assert_string_equal(names, "");
    coverage_fini(&c);
}

TEST(broken_lists_give_one_line)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[]", "coverage.json"},
        {"{\"rows\": 1}", "rows"},
        {"{\"rows\": [], \"row\": 1}", "row"},
        {LIST("1"), "row 0"},
        {LIST("{\"paper\": \"P\"}"), "row 0: where"},
        {LIST(ROW("ful") TESTED "}"),
         "P, Fig. 1: covers: \"ful\"; did you mean \"full\"?"},
        {LIST(ROW("full") "\"evidence\": []}"), "P, Fig. 1: experiments"},
        {LIST(ROW("full") EMPTY "}"), "experiments: expected some for \"full\""},
        {LIST(ROW("none") TESTED ", \"why\": \"w\"}"),
         "experiments: expected none for \"none\""},
        {LIST(ROW("full") TESTED ", \"why\": \"w\"}"), "why: expected none for \"full\""},
        {LIST(ROW("partial") TESTED "}"),
         "why: expected what is missing for \"partial\""},
        {LIST(ROW("none") EMPTY "}"), "why: expected what is missing for \"none\""},
        {LIST(ROW("full") "\"experiments\": [\"e\"], \"evidence\": []}"),
         "evidence: expected that"},
        {LIST(ROW("full") "\"experiments\": [\"e\"], \"evidence\": [\"guessed\"]}"),
         "found \"guessed\""},
        {LIST(ROW("full") "\"experiments\": [\"../e\"], \"evidence\": [\"model\"]}"),
         "experiments: expected a name"},
        {LIST(ROW("full") "\"experiments\": [1], \"evidence\": [\"model\"]}"),
         "found \"no text\""},
        {LIST(ROW("full") TESTED ", \"whi\": \"w\"}"), "did you mean \"why\""},
    };
    struct coverage c;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = read_text(&c, cases[i].text);

        if (rc == OK || !strstr(err_msg(), cases[i].part) || strchr(err_msg(), '\n'))
            fail_msg("%s: \"%s\"", cases[i].text, rc == OK ? "taken" : err_msg());
        coverage_fini(&c);
    }
}
