/* A sentence has the numbers of its record, and is there only while the record bears it out; a
 * list that is not as expected gives one line. */
#include "tests/support/test.h"

#include "base/text.h"
#include "experiments/job/job.h"
#include "experiments/report/findings.h"

/* "a" = 0.5 in [0.25, 0.75], "b 1" = 2451.4, "c" missing, "d" = 0 in [0, 0]. */
static json_t *record(void)
{
    json_t *h = json_pack(
        "{s:{s:s}, s:{s:{s:f, s:f, s:f, s:s}, s:{s:f, s:s}, s:{s:n, s:s}, s:{s:f, s:f, "
        "s:f}}}",
        "run", "evidence", "model", "headline", "a", "value", 0.5, "lo", 0.25, "hi", 0.75,
        "evidence", "measured, simulated", "b 1", "value", 2451.4, "evidence",
        "simulated", "c", "value", "why", "no PMU", "d", "value", 0.0, "lo", 0.0, "hi",
        0.0);

    assert_non_null(h);
    return h;
}

TEST(sentences_take_their_numbers_from_the_record)
{
    static const struct {
        const char *text, *holds;
        double tolerance;
        enum finding_state state;
        const char *want;
    } cases[] = {
        {"{a}", "a < 1", 0, FINDING_SHOWN, "0.5 \\[0.25 to 0.75\\]"},
        {"On {100*a %} of *them*.", "a < 1", 0, FINDING_SHOWN,
         "On 50 % \\[25 to 75\\] of \\*them\\*."},
        {"{b~1 tok/s} and {-1*a}", "a < 1", 0, FINDING_SHOWN,
         "2451 tok/s and -0.5 \\[-0.75 to -0.25\\]"},
        {"{0.001*b~1}, {d}", "a < 1", 0, FINDING_SHOWN, "2.45, 0"},
        {"{a}", "a > 1", 0, FINDING_NOT_SO, ""},
        {"{a}", "a < 0.6", 0, FINDING_NOT_SO, ""},   /* undecided */
        {"{a}", "a < 0.6", 0.5, FINDING_NOT_SO, ""}, /* a tolerance loosens no < */
        {"{a}", "a <= 0.6", 0.5, FINDING_SHOWN, "0.5 \\[0.25 to 0.75\\]"},
        {"{a} {c}", "a < 1", 0, FINDING_NO_NUMBER, ""},
        {"{a}", "c < 1", 0, FINDING_NO_NUMBER, ""},
        {"{a} {none}", "a < 1", 0, FINDING_NO_NUMBER, ""},
    };
    json_t *head = record();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct finding f = {.text = cases[i].text,
                                  .holds = cases[i].holds,
                                  .tolerance = cases[i].tolerance};
        struct text out = {0};

        assert_int_equal(finding_put(&out, &f, head), cases[i].state);
        text_put(&out, "", 1);
        assert_ok(out.rc);
        assert_string_equal(out.p, cases[i].want);
        text_fini(&out);
        assert_int_equal(finding_put(&out, &f, NULL), FINDING_NO_RECORD);
        assert_int_equal(out.n, 0);
    }
    json_decref(head);
}

TEST(evidence_is_that_of_the_numbers)
{
    struct finding f = {.text = "{a} {b~1} {a}", .holds = "d < 1"};
    json_t *head = record();
    char evidence[96];

    finding_evidence(&f, head, evidence);
    assert_string_equal(evidence, "measured, simulated");
    f.text = "{d}"; /* which names none: the record's */
    finding_evidence(&f, head, evidence);
    assert_string_equal(evidence, "model");
    json_decref(head);
}

#define LIST(x) "{\"about\": \"x\", \"findings\": [" x "]}"
#define ROW(text, holds)                                                                 \
    LIST("{\"paper\": \"P\", \"experiment\": \"e\", \"text\": \"" text                   \
         "\", \"holds\": \"" holds "\"}")

static int read_text(struct findings *f, const char *text)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/findings.json", test_dir());
    test_write(path, text, strlen(text));
    return findings_read(f, path);
}

TEST(broken_lists_give_one_line)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[]", "findings.json"},
        {"{\"finding\": []}", "did you mean \"findings\""},
        {LIST("1"), "finding 0"},
        {LIST("{\"paper\": \"P\"}"), "finding 0: experiment"},
        {ROW("no number", "a < 1"), "finding 0: text: expected {a headline}"},
        {ROW("{a", "a < 1"), "found \"{a\""},
        {ROW("a}", "a < 1"), "found \"a}\""},
        {ROW("{}", "a < 1"), "expected {a headline}"},
        {ROW("{2}", "a < 1"), "expected {a headline}"},
        {ROW("{a }", "a < 1"), "expected {a headline}"},
        {ROW("{a} {b<}", "a < 1"), "found \" {b<}\""},
        {ROW("{a}", "a"), "finding 0: holds: expected a comparison"},
        {LIST("{\"paper\": \"P\", \"experiment\": \"e\", \"text\": \"{a}\", \"holds\": "
              "\"a < 1\", \"tolerance\": 1}"),
         "tolerance: expected 0 to 1, found 1"},
        {LIST("{\"paper\": \"P\", \"experiment\": \"e\", \"text\": \"{a}\", \"holds\": "
              "\"a < 1\", \"tolerence\": 0}"),
         "did you mean \"tolerance\""},
    };
    struct findings f;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = read_text(&f, cases[i].text);

        if (rc == OK || !strstr(err_msg(), cases[i].part) || strchr(err_msg(), '\n'))
            fail_msg("%s: %s", cases[i].text, rc == OK ? "accepted" : err_msg());
        findings_fini(&f);
    }
    assert_ok(read_text(&f, ROW("{a}", "a < 1")));
    assert_int_equal(f.n, 1);
    findings_fini(&f);
}

/* --- the list that is shipped */

/* The state is FINDING_NO_NUMBER where the job has no headline of a name. */
static void names_headlines_of(const struct finding *f, const struct job *j)
{
    json_t *of = json_object(), *head = json_pack("{s:o}", "headline", of);
    struct text out = {0};

    for (int i = 0; i < j->n_headlines; i++)
        json_object_set_new(of, j->headlines[i].name, json_pack("{s:f}", "value", 1.0));
    if (finding_put(&out, f, head) == FINDING_NO_NUMBER)
        fail_msg("results/findings.json: a headline that %s does not have: %s, %s",
                 j->stem, f->text, f->holds);
    text_fini(&out);
    json_decref(head);
}

/* About ten, each of one paper, with numbers that its experiment has. */
TEST(shipped_findings_name_headlines)
{
    struct findings f;

    assert_ok(findings_read(&f, "results/findings.json"));
    assert_in_range(f.n, 8, 16);
    for (size_t i = 0; i < f.n; i++) {
        struct finding text = f.v[i];
        struct job *j = NULL;

        text.holds = "1 = 1";
        assert_ok(job_read(&j, f.v[i].experiment, NULL));
        names_headlines_of(&f.v[i], j);
        names_headlines_of(&text, j);
        if (j->claim.paper) /* else it is a question of the testbed's own */
            assert_string_equal(j->claim.paper, f.v[i].paper);
        job_free(&j);
    }
    findings_fini(&f);
}
