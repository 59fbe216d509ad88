/* Verdicts follow from the numbers of a record and from nothing else; a list that is not as
 * expected gives one line. */
#include "tests/support/fixture.h"

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "experiments/report/claim_null.h"
#include "experiments/report/claim_rule.h"
#include "experiments/report/claims.h"
#include "experiments/job/job.h"

/* {"a": 1, "b": 2, "k =2": 2, "wide": 1.5 in [0.9, 2.1], "noisy": 1.2 in [1.1, 1.3] with
 * an A/A that could have seen a half, "missing": null, "s": 2 and "t": 1.85 of a simulator
 * that errs by a quarter, and by a tenth in ratios} */
static json_t *headline(void)
{
    json_t *h = json_pack(
        "{s:{s:f}, s:{s:f}, s:{s:f}, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f, s:f}, "
        "s:{s:n, s:s}, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f}}",
        "a", "value", 1.0, "b", "value", 2.0, "k =2", "value", 2.0, "wide", "value", 1.5,
        "lo", 0.9, "hi", 2.1, "noisy", "value", 1.2, "lo", 1.1, "hi", 1.3,
        "detectable_frac", 0.5, "missing", "value", "why", "no PMU", "s", "value", 2.0,
        "error_frac", 0.25, "between_frac", 0.1, "t", "value", 1.85, "error_frac", 0.25,
        "between_frac", 0.1);

    assert_non_null(h);
    return h;
}

struct rule_case {
    const char *rule;
    double tolerance;
    enum claim_truth want;
    const char *found;
};

static void check_rule(const struct rule_case *c)
{
    json_t *h = headline();
    struct text found = {0};

    assert_ok(claim_rule_check(c->rule, "here"));
    if (claim_rule_holds(c->rule, h, c->tolerance, &found) != c->want)
        fail_msg("%s with %g", c->rule, c->tolerance);
    assert_ok(found.rc);
    text_put(&found, "", 1);
    assert_string_equal(found.p, c->found);
    text_fini(&found);
    json_decref(h);
}

TEST(rules_are_arithmetic)
{
    static const struct rule_case cases[] = {
        {"a < b", 0, CLAIM_HOLDS, "a (1) < b (2)"},
        {"b < a", 0, CLAIM_FAILS, "b (2) < a (1) [fails]"},
        {"a < a", 0, CLAIM_FAILS, "a (1) < a (1) [fails]"},
        {"a <= a", 0, CLAIM_HOLDS, "a (1) <= a (1)"},
        {"a > a", 0, CLAIM_FAILS, "a (1) > a (1) [fails]"},
        {"a >= a", 0, CLAIM_HOLDS, "a (1) >= a (1)"},
        {"a = 1", 0, CLAIM_HOLDS, "a (1) = 1"},
        {"a = 1.01", 0, CLAIM_FAILS, "a (1) = 1.01 [fails]"},
        {"a = 1.01", 0.02, CLAIM_HOLDS, "a (1) = 1.01"},
        {"b < a", 1, CLAIM_FAILS, "b (2) < a (1) [fails]"},
        {"a < a", 0.05, CLAIM_FAILS, "a (1) < a (1) [fails]"},
        {"a > a", 0.05, CLAIM_FAILS, "a (1) > a (1) [fails]"},
        {"b <= 1.9", 0.06, CLAIM_HOLDS, "b (2) <= 1.9"},
        {"b <= 1.9", 0.05, CLAIM_FAILS, "b (2) <= 1.9 [fails]"},
        {"a >= 1.1", 0.1, CLAIM_HOLDS, "a (1) >= 1.1"},
        {"a >= 1.1", 0.05, CLAIM_FAILS, "a (1) >= 1.1 [fails]"},
        {"b >= 2*a", 0, CLAIM_HOLDS, "b (2) >= 2*a (2)"},
        {"b >= 2.5*a", 0, CLAIM_FAILS, "b (2) >= 2.5*a (2.5) [fails]"},
        {"0 < a < b < 3", 0, CLAIM_HOLDS, "0 < a (1) < b (2) < 3"},
        {"0 < b < a < 3", 0, CLAIM_FAILS, "0 < b (2) < a (1) [fails] < 3"},
        {"a < b and b < 3", 0, CLAIM_HOLDS, "a (1) < b (2), b (2) < 3"},
        {"a < b and b < 2", 0, CLAIM_FAILS, "a (1) < b (2), b (2) < 2 [fails]"},
        {"b < a and a < b", 0, CLAIM_FAILS, "b (2) < a (1) [fails], a (1) < b (2)"},
        {"k~=2 = 2*a", 0, CLAIM_HOLDS, "k =2 (2) = 2*a (2)"},
        {"wide > 0.8", 0, CLAIM_HOLDS, "wide (1.5, 0.9 to 2.1) > 0.8"},
        {"wide > a", 0, CLAIM_UNSURE, "wide (1.5, 0.9 to 2.1) > a (1) [undecided]"},
        {"wide > a", 0.2, CLAIM_UNSURE, "wide (1.5, 0.9 to 2.1) > a (1) [undecided]"},
        {"wide >= a", 0.2, CLAIM_HOLDS, "wide (1.5, 0.9 to 2.1) >= a (1)"},
        {"wide < b", 0, CLAIM_UNSURE, "wide (1.5, 0.9 to 2.1) < b (2) [undecided]"},
        {"wide >= 2.2", 0, CLAIM_FAILS, "wide (1.5, 0.9 to 2.1) >= 2.2 [fails]"},
        {"0.5*a <= 0.5*wide", 0, CLAIM_UNSURE,
         "0.5*a (0.5) <= 0.5*wide (0.75, 0.45 to 1.05) [undecided]"},
        {"-1*wide < 0", 0, CLAIM_HOLDS, "-1*wide (-1.5, -2.1 to -0.9) < 0"},
        {"wide = 1.5", 0, CLAIM_HOLDS, "wide (1.5, 0.9 to 2.1) = 1.5"},
        {"wide = 2", 0, CLAIM_UNSURE, "wide (1.5, 0.9 to 2.1) = 2 [undecided]"},
        {"wide = 2.2", 0, CLAIM_FAILS, "wide (1.5, 0.9 to 2.1) = 2.2 [fails]"},
        {"b < a and wide > a", 0, CLAIM_FAILS,
         "b (2) < a (1) [fails], wide (1.5, 0.9 to 2.1) > a (1) [undecided]"},
        {"wide > a and b < a", 0, CLAIM_FAILS,
         "wide (1.5, 0.9 to 2.1) > a (1) [undecided], b (2) < a (1) [fails]"},
        {"noisy > a", 0, CLAIM_UNSURE, "noisy (1.2, 0.8 to 1.8) > a (1) [undecided]"},
        {"noisy < 1.7", 0, CLAIM_UNSURE, "noisy (1.2, 0.8 to 1.8) < 1.7 [undecided]"},
        {"noisy < b", 0, CLAIM_HOLDS, "noisy (1.2, 0.8 to 1.8) < b (2)"},
        {"0.7 > noisy", 0, CLAIM_FAILS, "0.7 > noisy (1.2, 0.8 to 1.8) [fails]"},
        {"b near 2.4", 0, CLAIM_HOLDS, "b (2) near 2.4"},
        {"b near 2.4*a", 0, CLAIM_HOLDS, "b (2) near 2.4*a (2.4)"},
        {"b near 2.6*a", 0, CLAIM_FAILS, "b (2) near 2.6*a (2.6) [fails]"},
        {"wide near 2.2", 0, CLAIM_UNSURE, "wide (1.5, 0.9 to 2.1) near 2.2 [undecided]"},
        {"b toward 3.9*a", 0, CLAIM_HOLDS, "b (2) toward 3.9*a (3.9)"},
        {"b toward 4.1", 0, CLAIM_FAILS, "b (2) toward 4.1 [fails]"},
        {"b toward 0.9", 0, CLAIM_FAILS, "b (2) toward 0.9 [fails]"},
        {"a toward 0.3*b", 0, CLAIM_HOLDS, "a (1) toward 0.3*b (0.6)"},
        {"wide toward 1.4", 0, CLAIM_UNSURE,
         "wide (1.5, 0.9 to 2.1) toward 1.4 [undecided]"},
        {"b at 2.4", 0, CLAIM_HOLDS, "b (2) at 2.4"},
        {"b at 3.9*a", 0, CLAIM_FAILS, "b (2) at 3.9*a (3.9) [fails]"},
        {"1+a toward 3.9", 0, CLAIM_HOLDS, "1+a (2) toward 3.9"},
        {"-1*b near 2", 0, CLAIM_FAILS, "-1*b (-2) near 2 [fails]"},
        {"a < missing", 0, CLAIM_UNKNOWN, "missing: no PMU"},
        {"b < a and a < missing", 0, CLAIM_UNKNOWN, "missing: no PMU"},
        {"a < other", 0, CLAIM_ABSENT, "other is not in the record"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_rule(&cases[i]);
}

TEST(simulated_numbers_are_as_wide_as_their_error)
{
    static const struct rule_case cases[] = {
        {"s > 1.5", 0, CLAIM_HOLDS, "s (2) > 1.5"},
        {"s > 1.7", 0, CLAIM_UNSURE, "s (2) > 1.7 [undecided]"},
        {"s < 1.7", 0, CLAIM_UNSURE, "s (2) < 1.7 [undecided]"},
        {"s < 1.5", 0, CLAIM_FAILS, "s (2) < 1.5 [fails]"},
        {"2.6 < s", 0, CLAIM_UNSURE, "2.6 < s (2) [undecided]"},
        {"2.7 < s", 0, CLAIM_FAILS, "2.7 < s (2) [fails]"},
        {"s near 2.6", 0, CLAIM_UNSURE, "s (2) near 2.6 [undecided]"},
        {"s near 3.5", 0, CLAIM_FAILS, "s (2) near 3.5 [fails]"},
        {"s toward 2.4", 0, CLAIM_HOLDS, "s (2) toward 2.4"},
        {"0.6*s toward 1.3", 0, CLAIM_UNSURE, "0.6*s (1.2) toward 1.3 [undecided]"},
        {"s > a", 0, CLAIM_HOLDS, "s (2) > a (1)"},
        {"s > t", 0, CLAIM_UNSURE, "s (2) > t (1.85) [undecided]"},
        {"s > 0.9*t", 0, CLAIM_HOLDS, "s (2) > 0.9*t (1.665)"},
        {"s at 1.3*t", 0, CLAIM_UNSURE, "s (2) at 1.3*t (2.405) [undecided]"},
        {"-1*s < -1.5", 0, CLAIM_HOLDS, "-1*s (-2) < -1.5"},
        {"-1*s > -2.6", 0, CLAIM_UNSURE, "-1*s (-2) > -2.6 [undecided]"},
        {"1+s > 2.5", 0, CLAIM_UNSURE, "1+s (3) > 2.5 [undecided]"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_rule(&cases[i]);
}

/* What has a bound in place of a value decides where the bound suffices. */
TEST(bounds_decide_where_they_suffice)
{
    static const struct {
        const char *rule;
        double tolerance;
        enum claim_truth want;
        const char *found;
    } cases[] = {
        {"over > 1", 0, CLAIM_HOLDS, "over (> 46) > 1"},
        {"over > 50", 0, CLAIM_UNSURE, "over (> 46) > 50 [undecided]"},
        {"over >= 50", 0.1, CLAIM_HOLDS, "over (> 46) >= 50"},
        {"over < 40", 0, CLAIM_FAILS, "over (> 46) < 40 [fails]"},
        {"over < 50", 0, CLAIM_UNSURE, "over (> 46) < 50 [undecided]"},
        {"a > over", 0, CLAIM_FAILS, "a (1) > over (> 46) [fails]"},
        {"50 <= over", 0.1, CLAIM_UNSURE, "50 <= over (> 46) [undecided]"},
        {"50 > over", 0.1, CLAIM_UNSURE, "50 > over (> 46) [undecided]"},
        {"over = 46", 0, CLAIM_UNSURE, "over (> 46) = 46 [undecided]"},
        {"over = 40", 0.1, CLAIM_FAILS, "over (> 46) = 40 [fails]"},
        {"40 = over", 0.1, CLAIM_FAILS, "40 = over (> 46) [fails]"},
        {"under < 0.3", 0, CLAIM_HOLDS, "under (< 0.25) < 0.3"},
        {"under > 0.3", 0, CLAIM_FAILS, "under (< 0.25) > 0.3 [fails]"},
        {"under < 0.2", 0, CLAIM_UNSURE, "under (< 0.25) < 0.2 [undecided]"},
        {"2*under < 0.6", 0, CLAIM_HOLDS, "2*under (< 0.5) < 0.6"},
        {"-1*over < -40", 0, CLAIM_HOLDS, "-1*over (< -46) < -40"},
        {"under < over", 0, CLAIM_HOLDS, "under (< 0.25) < over (> 46)"},
        {"over near 50", 0, CLAIM_UNSURE, "over (> 46) near 50 [undecided]"},
        {"over near 30", 0, CLAIM_FAILS, "over (> 46) near 30 [fails]"},
        {"over at 50", 0, CLAIM_UNSURE, "over (> 46) at 50 [undecided]"},
        {"over toward 100", 0, CLAIM_HOLDS, "over (> 46) toward 100"},
        {"over toward 10000", 0, CLAIM_UNSURE, "over (> 46) toward 10000 [undecided]"},
        {"over toward 0.5", 0, CLAIM_FAILS, "over (> 46) toward 0.5 [fails]"},
        {"under toward 0.5*a", 0, CLAIM_HOLDS, "under (< 0.25) toward 0.5*a (0.5)"},
        {"a toward 3*over", 0, CLAIM_FAILS, "a (1) toward 3*over (> 138) [fails]"},
    };
    json_t *h = headline();

    json_object_update_new(h, json_pack("{s:{s:n, s:f, s:s}, s:{s:n, s:f, s:s}}", "over",
                                        "value", "at_least", 46.0, "why", "w", "under",
                                        "value", "at_most", 0.25, "why", "w"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct text found = {0};

        if (claim_rule_holds(cases[i].rule, h, cases[i].tolerance, &found) !=
            cases[i].want)
            fail_msg("%s with %g", cases[i].rule, cases[i].tolerance);
        text_put(&found, "", 1);
        assert_string_equal(found.p, cases[i].found);
        text_fini(&found);
    }
    json_decref(h);
}

TEST(broken_rules_are_refused)
{
    static const char *const rules[] = {
        "",    "a",        "a <",     "< a",     "a < b and", "a and b",
        "a b", "a < b < ", "and < a", "a =< b",  "a < 2*",    "a < 1x*b",
        "a<b", "a < *b",   "a == b",  "a < b c", "a < nan*",  "a < b and and",
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (claim_rule_check(rules[i], "here") != ERR_FORMAT ||
            strncmp(err_msg(), "here: expected ", 15) != 0)
            fail_msg("\"%s\" is taken", rules[i]);
}

/* --- lists */

#define AB   "\"compared\": [\"a b\"], \"experiment\": \"e\""
#define RULE AB ", \"reproduced\": \"a < b\""
#define CLAIM(x)                                                                         \
    "{\"name\": \"n\", \"paper\": \"P\", \"section\": \"1\", \"text\": \"t\"" x "}"
#define LIST(x)          "{\"about\": \"x\", \"claims\": [" x "]}"
#define SOUND            CLAIM(", " RULE)
#define SIMULATOR(of, x) "{\"simulators\": {\"P\": {" of "}}, \"claims\": [" x "]}"

static int read_text(struct claims *c, const char *text)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/claims.json", test_dir());
    test_write(path, text, strlen(text));
    return claims_read(c, path);
}

TEST(broken_lists_give_one_line)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{", "claims.json"},
        {"[]", "claims.json"},
        {"{\"claims\": 1}", "claims"},
        {"{\"claims\": [], \"clams\": 1}", "clams"},
        {LIST("1"), "claim 0"},
        {LIST("{}"), "claim 0: name"},
        {LIST("{\"name\": \"n\"}"), "n: paper"},
        {LIST(CLAIM("")), "n: expected \"why\", or"},
        {LIST(CLAIM(", \"experiment\": \"e\"")), "n: expected \"why\", or"},
        {LIST(CLAIM(", \"reproduced\": \"a < b\"")), "n: expected \"why\", or"},
        {LIST(CLAIM(", \"why\": \"w\", " RULE)), "n: expected \"why\", or"},
        {LIST(CLAIM(", \"why\": \"w\", \"should\": \"shape\"")), "n: should"},
        {LIST(CLAIM(", " AB ", \"reproduced\": \"a\"")),
         "n: reproduced: expected a comparison"},
        {LIST(CLAIM(", " RULE ", \"shape\": \"a << b\"")), "n: shape: expected <"},
        {LIST(CLAIM(", " RULE ", \"accuracy\": \"a\"")),
         "n: accuracy: expected a comparison"},
        {LIST(CLAIM(", " AB ", \"shape\": \"a < b\", \"accuracy\": \"a < c\"")),
         "n: accuracy: expected a rule \"reproduced\""},
        {LIST(CLAIM(", " RULE ", \"should\": \"shape\"")), "has no rule \"shape\""},
        {LIST(CLAIM(", " RULE ", \"should\": \"reproduce\"")),
         "did you mean \"reproduced\""},
        {LIST(CLAIM(", " RULE ", \"tolerance\": 1")), "n: tolerance: expected 0 to 1"},
        {LIST(CLAIM(", " RULE ", \"tolerance\": \"1\"")), "n: tolerance"},
        {LIST(CLAIM(", " RULE ", \"tolerence\": 0.1")), "did you mean \"tolerance\""},
        {LIST(CLAIM(", " RULE ", \"printed\": \"a = 2*b\"")),
         "n: printed: expected no rule \"reproduced\""},
        {LIST(CLAIM(", " AB ", \"printed\": \"a = \"")),
         "n: reproduced: expected a number"},
        {LIST(CLAIM(", \"experiment\": \"e\", \"shape\": \"a < b\"")),
         "n: compared: expected a group with a, "},
        {LIST(CLAIM(", " AB ", \"shape\": \"a < ab\"")),
         "n: compared: expected a group with ab, "},
        {LIST(CLAIM(", \"compared\": [{\"names\": \"a b\", \"form\": 0}], "
                    "\"experiment\": \"e\", \"shape\": \"a < b\"")),
         "did you mean \"from\""},
        {LIST(CLAIM(", \"compared\": [{\"names\": \"a b\", \"from\": 1, \"to\": 0}], "
                    "\"experiment\": \"e\", \"shape\": \"a < b\"")),
         "n: compared: \"a b\": expected names, about > 0, from < to"},
        {LIST(CLAIM(
             ", \"compared\": [\"a b\"], \"experiment\": \"../e\", \"shape\": \"a < "
             "b\"")),
         "experiment: expected a name"},
        {LIST(SOUND ", " SOUND), "n: expected a name of one claim, found two"},
        {SIMULATOR("\"experiment\": \"v\"", SOUND), "simulators: P: error"},
        {SIMULATOR("\"experiment\": \"v\", \"eror\": \"e\"", SOUND),
         "did you mean \"error\""},
    };
    struct claims c;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = read_text(&c, cases[i].text);

        if (rc == OK || !strstr(err_msg(), cases[i].part) || strchr(err_msg(), '\n'))
            fail_msg("%s: \"%s\"", cases[i].text, rc == OK ? "taken" : err_msg());
        claims_fini(&c);
    }
    assert_ok(read_text(&c, LIST(SOUND)));
    assert_int_equal(c.n, 1);
    claims_fini(&c);
}

/* --- records */

/* A record of the experiment "e" below results/ with these two numbers. */
static void make_record(double a, double b)
{
    const struct record_headline h[] = {{.name = "a",
                                         .unit = "s",
                                         .better = "lower",
                                         .value = a,
                                         .has_interval = true,
                                         .lo = a,
                                         .hi = a},
                                        {.name = "b",
                                         .unit = "s",
                                         .better = "lower",
                                         .value = b,
                                         .has_interval = true,
                                         .lo = b,
                                         .hi = b}};
    json_t *header = fixture_header("2026-01-31T23:59:59Z");
    struct journal *j;
    struct fixture_cell f;
    char *path;

    assert_ok(journal_open(&j, "results/e", "e", header, false));
    fixture_cell_make(&f, 0);
    assert_ok(journal_cell(j, &f.cell));
    fixture_cell_free(&f);
    assert_ok(record_finish(&j, h, 2, false, &path));
    assert_int_equal(unlink(path),
                     0); /* its head is changed, which it would contradict */
    mem_free(path);
    json_decref(header);
}

static enum claim_verdict verdict(const struct claim *c)
{
    struct text found = {0};
    enum claim_verdict v;
    json_t *record;

    assert_ok(claim_record(&record, c->experiment));
    v = claim_judge(c, record, &found);
    json_decref(record);
    text_fini(&found);
    return v;
}

/* Change one number of the newest record, and its interval, in its head. */
static void change(const char *name, double value)
{
    static const char *const keys[] = {"value", "lo", "hi"};
    const char *path = "results/e/latest.json";
    json_t *head;

    assert_ok(json_read_file(&head, path, 1 << 20));
    for (int i = 0; i < 3; i++)
        json_object_set_new(json_object_get(json_object_get(head, "headline"), name),
                            keys[i], json_number(value));
    assert_ok(json_write_file(head, path));
    json_decref(head);
}

/* The weaker rule may hold where the stronger one is undecided; what is undecided is told, and
 * is no failure. */
TEST(intervals_leave_verdicts_open)
{
    static const struct {
        double lo, hi;
        enum claim_verdict want;
    } cases[] = {{1.6, 1.9, CLAIM_REPRODUCED},
                 {1.4, 1.9, CLAIM_IN_SHAPE},
                 {0.9, 1.9, CLAIM_UNDECIDED},
                 {0.9, 0.95, CLAIM_NOT_REPRODUCED}};
    const struct claim c = {.name = "n",
                            .experiment = "e",
                            .reproduced = "x > 1.5",
                            .shape = "x > 1",
                            .should = CLAIM_IN_SHAPE};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *record = json_pack("{s:{s:{s:f, s:f, s:f}}}", "headline", "x", "value",
                                   (cases[i].lo + cases[i].hi) / 2, "lo", cases[i].lo,
                                   "hi", cases[i].hi);
        struct text found = {0};
        enum claim_verdict v;

        v = claim_judge(&c, record, &found);
        assert_int_equal(v, cases[i].want);
        assert_int_equal(claim_is_failure(&c, v), v == CLAIM_NOT_REPRODUCED);
        text_fini(&found);
        json_decref(record);
    }
}

/* A bound is an interval: it is measured, and decides, also against chance. */
TEST(a_bound_gives_a_verdict)
{
    static const struct {
        const char *member;
        double at;
        enum claim_verdict want;
    } cases[] = {{"at_least", 11, CLAIM_IN_SHAPE},
                 {"at_least", 0.9, CLAIM_UNDECIDED},
                 {"at_most", 11, CLAIM_UNDECIDED},
                 {"at_most", 0.9, CLAIM_NOT_REPRODUCED}};
    json_t *compared = json_pack("[{s:s, s:f}]", "names", "x", "about", 1.0);
    const struct claim c = {
        .name = "n", .experiment = "e", .shape = "x > 1", .compared = compared};

    json_object_set_new(json_array_get(compared, 0), "none", json_real(0.5));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *record =
            json_pack("{s:{s:s}, s:{s:{s:n, s:f, s:s}}}", "run", "evidence", "measured",
                      "headline", "x", "value", cases[i].member, cases[i].at, "why", "w");
        struct text found = {0};
        enum claim_verdict v = claim_judge(&c, record, &found);

        /* half of what is drawn about 1 is above it */
        assert_int_equal(v, cases[i].want == CLAIM_IN_SHAPE ? CLAIM_CONSISTENT
                                                            : cases[i].want);
        text_fini(&found);
        json_decref(record);
    }
    json_decref(compared);
}

/* A speed-up at a larger error, or at one that nobody measured, is not what a paper claims. */
TEST(faster_at_a_larger_error_is_not_reproduced)
{
    static const struct {
        const char *errors;
        enum claim_verdict want;
        const char *found;
    } cases[] = {
        {"\"err\": {\"value\": 1}", CLAIM_REPRODUCED, "x (2) > 1.5; err (1) <= 1"},
        {"\"err\": {\"value\": 1.4}", CLAIM_IN_SHAPE,
         "x (2) > 1.5; err (1.4) <= 1 [fails]: not at equal accuracy"},
        {"\"err\": {\"value\": 1.1, \"lo\": 0.9, \"hi\": 1.3}", CLAIM_IN_SHAPE,
         "x (2) > 1.5; err (1.1, 0.9 to 1.3) <= 1 [undecided]: not at equal accuracy"},
        {"\"err\": {\"value\": null, \"why\": \"no log probabilities\"}", CLAIM_IN_SHAPE,
         "x (2) > 1.5; err: no log probabilities: whether at equal accuracy is not "
         "known"},
        {"\"other\": {\"value\": 1}", CLAIM_IN_SHAPE,
         "x (2) > 1.5; err is not in the record: whether at equal accuracy is not known"},
    };
    const struct claim c = {
        .name = "n", .experiment = "e", .reproduced = "x > 1.5", .accuracy = "err <= 1"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct text found = {0};
        char text[300];
        json_t *record;

        snprintf(text, sizeof(text), "{\"headline\": {\"x\": {\"value\": 2}, %s}}",
                 cases[i].errors);
        assert_ok(json_read_text(&record, text, strlen(text), "record"));
        assert_int_equal(claim_judge(&c, record, &found), cases[i].want);
        text_put(&found, "", 1);
        assert_string_equal(found.p, cases[i].found);
        text_fini(&found);
        json_decref(record);
    }
}

TEST(one_number_flips_the_verdict)
{
    struct claims c;
    struct text found = {0};
    enum claim_verdict v;
    char top[600];

    assert_non_null(getcwd(top, sizeof(top)));
    assert_ok(read_text(
        &c, LIST(CLAIM(
                ", \"experiment\": \"e\", \"should\": \"shape\", \"reproduced\": \"2*a "
                "< b\", \"shape\": \"a < b\", \"compared\": [{\"names\": \"a b\", "
                "\"cells\": 9}, {\"names\": \"c\", \"fixed\": true}]"))));
    c.v->compared = NULL; /* chance is of the tests below */
    assert_int_equal(chdir(test_dir()), 0);
    assert_err(claim_record(&(json_t *){NULL}, "e"), ERR_NOTFOUND, "results/e");
    v = claim_judge(c.v, NULL, &found);
    assert_int_equal(v, CLAIM_NO_RECORD);
    assert_false(claim_is_failure(c.v, v));
    make_record(1, 3);
    assert_int_equal(verdict(c.v), CLAIM_REPRODUCED);
    change("b", 1.5);
    v = verdict(c.v);
    assert_int_equal(v, CLAIM_IN_SHAPE);
    assert_false(claim_is_failure(c.v, v));
    change("a", 2);
    v = verdict(c.v);
    assert_int_equal(v, CLAIM_NOT_REPRODUCED);
    assert_true(claim_is_failure(c.v, v));
    change("a", NAN);
    assert_int_equal(verdict(c.v), CLAIM_NOT_TESTABLE);
    change("a", 1);
    change("b", 3);
    assert_int_equal(verdict(c.v), CLAIM_REPRODUCED);
    c.v->reproduced = "a < c";
    c.v->shape = NULL;
    assert_int_equal(verdict(c.v), CLAIM_NO_RECORD); /* of an older job */
    assert_int_equal(chdir(top), 0);
    claims_fini(&c);
}

/* --- chance */

static json_t *json_of(const char *text)
{
    json_t *out;

    assert_ok(json_read_text(&out, text, strlen(text), "test"));
    return out;
}

/* x and y: 1 without an interval, w: 1 in [0.9, 1.1]. */
#define NUMBERS                                                                          \
    "{\"x\": {\"value\": 1}, \"y\": {\"value\": 1}, \"z\": {\"value\": 1}, \"v\": "      \
    "{\"value\": "                                                                       \
    "1}, \"w\": {\"value\": 1, \"lo\": 0.9, \"hi\": 1.1}}"

TEST(chance_passes_rules_as_often_as_counted)
{
    static const struct {
        const char *compared, *rule;
        double equal, sized; /* expected, within one and a half hundredths */
    } cases[] = {
        {"[\"x\"]", "x > 1", 0.5, 0.5},
        {"[\"x\"]", "x at 2.15", 0, 0.194},
        {"[\"x\"]", "x toward 1.23", 0.02, 0.455},
        {"[\"x\"]", "x > 0", 1, 1},
        {"[\"w\"]", "w > 1", 0.025, 0.45},
        {"[\"x y\"]", "x > 1 and y > 1", 0.25, 0.25},
        {"[{\"names\": \"x y\", \"together\": true}]", "x > 1 and y > 1", 0.25, 0.48},
        {"[\"x y z v\"]", "x < y < z < v", 1 / 24., 1 / 24.},
        {"[{\"names\": \"y\", \"fixed\": true}, \"x\"]", "x at 2.15*y", 0, 0.194},
        {"[{\"names\": \"x\", \"cells\": 3, \"extreme\": \"min\"}]", "x > 1", 0.125,
         0.125},
        {"[{\"names\": \"x\", \"cells\": 3, \"extreme\": \"max\"}]", "x > 1", 0.875,
         0.875},
        {"[{\"names\": \"x\", \"planted\": 1.5}]", "0.9 < x < 1.1", 0, 0.087},
        {"[{\"names\": \"x\", \"about\": 600}]", "x <= 600", 0.5, 0.5},
        {"[{\"names\": \"x\", \"about\": 2}]", "x < 32", 1, 1},
        {"[{\"names\": \"x\", \"from\": 0, \"to\": 1}]", "x > 0.9", 0.1, 0.1},
        {"[{\"names\": \"x y\", \"from\": 0, \"to\": 1, \"none\": 0.5}]", "x > 2*y", 0,
         0.25},
        {"[{\"names\": \"x\", \"values\": [1, 2, 4, 8]}]", "x = 4", 0.25, 0.25},
    };
    json_t *headline = json_of(NUMBERS);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *compared = json_of(cases[i].compared);
        struct claim_null n, again;

        assert_ok(claim_null_check(compared, cases[i].rule, "here"));
        claim_null_draw(&n, compared, cases[i].rule, 0, headline);
        if (fabs(n.equal - cases[i].equal) > 0.015 ||
            fabs(n.sized - cases[i].sized) > 0.015 ||
            n.never_fails != (cases[i].equal >= 1 && cases[i].sized >= 1))
            fail_msg("%s: %g, %g", cases[i].rule, n.equal, n.sized);
        claim_null_draw(&again, compared, cases[i].rule, 0, headline);
        assert_memory_equal(&n, &again, sizeof(n));
        json_decref(compared);
    }
    json_decref(headline);
}

/* A sharp pair is passed by half of the exchanges, and what is inverted is the opposite. */
TEST(exchanged_numbers_pass_a_pair_half_of_the_time)
{
    json_t *pair = json_of("[\"x y\"]"), *ratio = json_of("[\"x\"]"),
           *headline = json_of("{\"x\": {\"value\": 0.1}, \"y\": {\"value\": 9}}");
    struct claim_null n;

    claim_null_draw(&n, pair, "x < y", 0, headline);
    assert_true(fabs(n.exchanged - 0.5) < 0.015);
    assert_false(n.is_opposite);
    claim_null_draw(&n, pair, "x > y", 0, headline);
    assert_true(n.is_opposite);
    claim_null_draw(&n, ratio, "x > 1", 0, headline);
    assert_true(n.is_opposite);
    json_decref(pair);
    json_decref(ratio);
    json_decref(headline);
}

/* What chance passes often is consistent at most, and what was measured once decides nothing. */
TEST(chance_and_missing_intervals_take_verdicts)
{
    static const struct {
        const char *rule, *number;
        enum claim_verdict want;
        const char *found;
    } cases[] = {
        {"x > 1", "{\"value\": 2, \"lo\": 1.9, \"hi\": 2.1}", CLAIM_CONSISTENT,
         "x (2, 1.9 to 2.1) > 1; chance alone passes 48 %"},
        {"x at 2.15", "{\"value\": 2, \"lo\": 1.9, \"hi\": 2.1}", CLAIM_REPRODUCED,
         "x (2, 1.9 to 2.1) at 2.15"},
        {"x > 1", "{\"value\": 0.5, \"lo\": 0.4, \"hi\": 0.6}", CLAIM_NOT_REPRODUCED,
         "x (0.5, 0.4 to 0.6) > 1 [fails]; the opposite holds"},
        {"x at 2.15", "{\"value\": 2}", CLAIM_NO_INTERVAL,
         "x (2) at 2.15; x has no interval"},
        {"x at 2.15", "{\"value\": 9}", CLAIM_NO_INTERVAL,
         "x (9) at 2.15 [fails]; x has no interval"},
        {"x at 2.15", "{\"value\": 2, \"evidence\": \"simulated\"}", CLAIM_REPRODUCED,
         "x (2) at 2.15"},
    };
    json_t *compared = json_of("[\"x\"]");

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct claim c = {.name = "n",
                                .experiment = "e",
                                .reproduced = cases[i].rule,
                                .compared = compared,
                                .should = CLAIM_REPRODUCED};
        struct text found = {0};
        char text[200];
        json_t *record;
        enum claim_verdict v;

        snprintf(
            text, sizeof(text),
            "{\"run\": {\"evidence\": \"measured_small\"}, \"headline\": {\"x\": %s}}",
            cases[i].number);
        record = json_of(text);
        v = claim_judge(&c, record, &found);
        text_put(&found, "", 1);
        assert_string_equal(found.p, cases[i].found);
        assert_int_equal(v, cases[i].want);
        assert_int_equal(claim_is_failure(&c, v), v == CLAIM_NOT_REPRODUCED);
        text_fini(&found);
        json_decref(record);
    }
    json_decref(compared);
}

static const json_t *validation(void *ctx, const char *experiment)
{
    assert_string_equal(experiment, "v");
    return ctx;
}

/* The verdict of one rule on {"a": 1, "b": 1.15} simulated, "r_b": 1.15 simulated, "x_b": 1.15
 * simulated and "m": 1.15 measured, by a simulator whose errors a record has as `errors`. */
static void judge_simulated(const char *rule, const char *errors, enum claim_verdict want,
                            const char *found)
{
    json_t *record = json_of(
        "{\"run\": {\"evidence\": \"simulated\"}, \"headline\": {\"a\": {\"value\": 1}, "
        "\"b\": {\"value\": 1.15}, \"r_b\": {\"value\": 1.15}, \"x_b\": {\"value\": "
        "1.15}, "
        "\"m\": {\"value\": 1.15, \"lo\": 1.14, \"hi\": 1.16, \"evidence\": "
        "\"measured_small\"}}}");
    json_t *errs = json_of(errors), *headline;
    struct text got = {0};
    struct claims c;
    char text[600];

    snprintf(
        text, sizeof(text),
        SIMULATOR("\"experiment\": \"v\", \"error\": \"e\", \"between\": \"f\", "
                  "\"ratios\": \"r_\", \"exact\": \"x_ y_\"",
                  CLAIM(", \"experiment\": \"e\", \"reproduced\": \"%s\", \"compared\": "
                        "[{\"names\": \"a\", \"fixed\": true}, {\"names\": \"b r_b x_b "
                        "m\", \"about\": 100}]")),
        rule);
    assert_ok(read_text(&c, text));
    claims_find_errors(&c, validation, errs);
    assert_int_equal(claim_judge(c.v, record, &got), want);
    text_put(&got, "", 1);
    assert_string_equal(got.p, found);
    headline = claim_headline(c.v, record);
    assert_int_equal(json_object_size(headline), 5);
    assert_null(json_object_get(json_object_get(headline, "m"), "error_frac"));
    assert_null(json_object_get(json_object_get(json_object_get(record, "headline"), "b"),
                                "error_frac"));
    json_decref(headline);
    text_fini(&got);
    claims_fini(&c);
    json_decref(errs);
    json_decref(record);
}

/* The simulator's error is part of the interval of every number that it gave, and of no other. */
TEST(a_simulator_errs)
{
    static const char both[] =
        "{\"headline\": {\"e\": {\"value\": 22}, \"f\": {\"value\": 5}}}";
    static const char one[] = "{\"headline\": {\"e\": {\"value\": 22}}}";
    static const char none[] = "{\"headline\": {\"f\": {\"value\": null}}}";

#define ERRS(x) "; the simulator errs by 22 %, in ratios by " x " % (v)"
    judge_simulated("b < 1.5", both, CLAIM_REPRODUCED, "b (1.15) < 1.5" ERRS("5"));
    judge_simulated("b < 1.4", both, CLAIM_UNDECIDED,
                    "b (1.15) < 1.4 [undecided]" ERRS("5"));
    judge_simulated("b < 0.8", both, CLAIM_NOT_REPRODUCED,
                    "b (1.15) < 0.8 [fails]" ERRS("5"));
    judge_simulated("b < 0.95", both, CLAIM_UNDECIDED,
                    "b (1.15) < 0.95 [undecided]" ERRS("5"));
    judge_simulated("b < 1.25*a", both, CLAIM_REPRODUCED,
                    "b (1.15) < 1.25*a (1.25)" ERRS("5"));
    judge_simulated("b < 1.2*a", both, CLAIM_UNDECIDED,
                    "b (1.15) < 1.2*a (1.2) [undecided]" ERRS("5"));
    judge_simulated("b < 1.25*a", one, CLAIM_UNDECIDED,
                    "b (1.15) < 1.25*a (1.25) [undecided]" ERRS("22"));
    judge_simulated("r_b < 1.25", both, CLAIM_REPRODUCED, "r_b (1.15) < 1.25" ERRS("5"));
    judge_simulated("x_b < 1.16", both, CLAIM_REPRODUCED, "x_b (1.15) < 1.16" ERRS("5"));
    judge_simulated("m < 1.17", both, CLAIM_REPRODUCED, "m (1.15, 1.14 to 1.16) < 1.17");
    judge_simulated("b < 1.16", none, CLAIM_REPRODUCED,
                    "b (1.15) < 1.16; how far the simulator errs is not known");
}

/* "printed" is one text for both rules. */
TEST(a_printed_number_is_two_rules)
{
    struct claims c;

    assert_ok(read_text(
        &c, LIST(CLAIM(", " AB ", \"printed\": \"a = 2*b and b <= 3 and a = 0.9\""))));
    assert_string_equal(c.v->reproduced, "a at 2*b and b <= 3 and a at 0.9");
    assert_string_equal(c.v->shape, "a toward 2*b and b <= 3 and a toward 0.9");
    claims_fini(&c);
}

static void write_text(const char *path, const char *text)
{
    test_write(path, text, strlen(text));
}

/* Published numbers are as they are on a busy machine, also within a record of measured ones. */
TEST(a_verdict_rests_on_its_own_numbers)
{
    static const char text[] =
        "{\"run\": {\"evidence\": \"measured_small\"}, \"warnings\": {\"noisy_machine\": "
        "{}}, "
        "\"headline\": {\"a\": {\"value\": 1, \"evidence\": \"published\"}, \"b\": "
        "{\"value\": 2}, "
        "\"c\": {\"value\": 3, \"evidence\": \"measured_small, model\"}}}";
    static const struct {
        const char *reproduced, *shape, *evidence;
        bool noisy;
    } cases[] = {{"a < 2", NULL, "published", false},
                 {"a < 2", "a < b", "measured_small, published", true},
                 {"c > a", NULL, "measured_small, model, published", true},
                 {"b > 1", NULL, "measured_small", true},
                 {NULL, NULL, "measured_small", true}};
    json_t *record;
    char got[96];

    assert_ok(json_read_text(&record, text, strlen(text), "record"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct claim c = {.reproduced = cases[i].reproduced,
                                .shape = cases[i].shape};

        claim_evidence(&c, record, got);
        assert_string_equal(got, cases[i].evidence);
        assert_int_equal(claim_is_noisy(&c, record), cases[i].noisy);
    }
    json_object_del(json_object_get(record, "warnings"), "noisy_machine");
    assert_false(claim_is_noisy(&(struct claim){.reproduced = "b > 1"}, record));
    json_decref(record);
}

TEST(damaged_records_are_reported)
{
    json_t *record;
    char top[600];

    assert_non_null(getcwd(top, sizeof(top)));
    assert_int_equal(chdir(test_dir()), 0);
    assert_ok(file_make_dirs("results/bad"));
    assert_err(claim_record(&record, "bad"), ERR_NOTFOUND, "results/bad/latest.json");
    write_text("results/bad/latest.json", "{\"file\": \"x.h5\"}");
    assert_err(claim_record(&record, "bad"), ERR_FORMAT,
               "latest.json: run.schema_version: expected 2, found 0");
    write_text("results/bad/latest.json",
               "{\"file\": \"x.h5\", \"run\": {\"schema_version\": 2}}");
    assert_err(claim_record(&record, "bad"), ERR_FORMAT, "latest.json: headline");
    write_text("results/bad/latest.json", "{\"file\": \"../e/x.h5\"}");
    assert_err(claim_record(&record, "bad"), ERR_FORMAT,
               "the name of a record in this folder");
    write_text("results/bad/latest.json", "{}");
    assert_err(claim_record(&record, "bad"), ERR_FORMAT, "latest.json: file");
    assert_int_equal(chdir(top), 0);
}

/* --- the list that is shipped */

struct known {
    const struct job *job;
    const char *claim;
};

static void draws_can_fail(const struct claim *c, const char *rule)
{
    struct claim_null n;

    if (!rule)
        return;
    claim_null_draw(&n, c->compared, rule, c->tolerance, NULL);
    if (n.never_fails)
        fail_msg("results/claims.json: %s: no draw fails %s", c->name, rule);
}

static void name_is_known(void *ctx, const char *name)
{
    const struct known *k = ctx;

    for (int i = 0; i < k->job->n_headlines; i++)
        if (strcmp(k->job->headlines[i].name, name) == 0)
            return;
    fail_msg("results/claims.json: %s: %s has no headline %s", k->claim, k->job->stem,
             name);
}

/* Each rule names headlines that the experiment has and that a draw can fail; both name one
 * paper. */
TEST(shipped_claims_name_headlines)
{
    struct claims c;

    assert_ok(claims_read(&c, "results/claims.json"));
    assert_true(c.n > 30);
    for (size_t i = 0; i < c.n; i++) {
        struct known k = {.claim = c.v[i].name};
        struct job *j = NULL;

        if (!c.v[i].experiment)
            continue;
        assert_ok(job_read(&j, c.v[i].experiment, NULL));
        k.job = j;
        draws_can_fail(&c.v[i], c.v[i].reproduced);
        draws_can_fail(&c.v[i], c.v[i].shape);
        if (c.v[i].reproduced)
            claim_rule_names(c.v[i].reproduced, name_is_known, &k);
        if (c.v[i].shape)
            claim_rule_names(c.v[i].shape, name_is_known, &k);
        if (c.v[i].accuracy)
            claim_rule_names(c.v[i].accuracy, name_is_known, &k);
        if (strcmp(j->claim.paper, c.v[i].paper) != 0)
            fail_msg("%s: %s is an experiment of %s", c.v[i].name, j->stem,
                     j->claim.paper);
        /* of one figure, the paper has one section */
        if (c.v[i].figure && strcmp(j->claim.figure, c.v[i].figure) == 0 &&
            !strstr(j->claim.section, c.v[i].section))
            fail_msg("%s: %s is said to be in section %s", c.v[i].name, j->stem,
                     j->claim.section);
        job_free(&j);
    }
    claims_fini(&c);
}
