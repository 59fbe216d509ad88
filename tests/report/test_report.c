/* The page of all records and the tables in documents: what stands in a record reaches them,
 * escaped; what is damaged is a line; text outside of a table's marks stays as it is. */
#include "tests/report/report_fixture.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "experiments/record/head.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"

static const char *as_text(struct text *t)
{
    assert_ok(t->rc);
    text_put(t, "", 1);
    assert_ok(t->rc);
    return t->p;
}

TEST(texts_are_escaped)
{
    static const struct {
        const char *text, *markdown, *html;
    } cases[] = {
        {"plain 5 %, a-b (c)", "plain 5 %, a-b (c)", "plain 5 %, a-b (c)"},
        {"<script>", "&lt;script&gt;", "&lt;script&gt;"},
        {"a & b &amp;", "a &amp; b &amp;amp;", "a &amp; b &amp;amp;"},
        {"\"' onload=x", "\"' onload=x", "&quot;' onload=x"},
        {"a|b_c*d`e", "a\\|b_c\\*d\\`e", "a|b_c*d`e"},
        {"[x](y) #1 ~ $ \\", "\\[x\\](y) \\#1 \\~ \\$ \\\\", "[x](y) #1 ~ $ \\"},
        {"two\r\nlines\tx", "two  lines x", "two  lines x"},
        {"\x1b[2J", "\\\\x1b\\[2J", "\\x1b[2J"},
        {"\xc2\x9b \xff", "\\\\xc2\\\\x9b \\\\xff", "\\xc2\\x9b \\xff"},
        {"\xc3\xa9", "\xc3\xa9", "\xc3\xa9"},
        {"_a_ b_c _", "\\_a\\_ b_c \\_", "_a_ b_c _"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct text markdown = {0}, html = {0};
        char want[100];

        report_put(&markdown, TEXT(cases[i].text));
        report_html(&html, &markdown, "t", ".");
        assert_string_equal(as_text(&markdown), cases[i].markdown);
        snprintf(want, sizeof(want), "<body>\n<p>%s</p>\n</body>", cases[i].html);
        if (!strstr(as_text(&html), want))
            fail_msg("no \"%s\" in:\n%s", want, html.p);
        text_fini(&html);
        text_fini(&markdown);
    }
}

TEST(pieces_are_escaped)
{
    struct text t = {0};

    report_put(&t, MD("| "), CODE("<`|"), MD("_ | "), LINK("<a>", "a \"_b.h5"),
               MD(" | [f](#"), ID("Fig_1 b"), MD(") | "), TEXT_N("abcd", 3),
               TEXT_N("x_yz", 2), MD(" |"));
    assert_string_equal(as_text(&t), "| `<'\\|`_ | [&lt;a&gt;](a%20%22_b.h5) | "
                                     "[f](#fig_1-b) | abcx\\_ |");
    text_fini(&t);
    report_put(&t, INT(-1), MD(" "), INT((size_t)2), MD(" "), NUM(6, 0.5), MD(" "),
               NUM(4, 1.23456), MD(" 95 %"), MARK(REPORT_BAD, "no"));
    assert_string_equal(as_text(&t), "-1 2 0.5 1.235 95 %***no***");
    text_fini(&t);
}

TEST(pages_become_html)
{
    static const char *const want[] = {
        "<title>a title</title>", "<h2><a id=\"a-b_c\"></a>A b_c</h2>",
        "<td><code>|</code><br>y</td>",
        "<p><strong>a</strong> <strong><em>b</em></strong> <em><strong>c</strong></em> "
        "<em>d</em></p>",
        "<details><summary>2 numbers</summary>"};
    struct text markdown = {0}, html = {0};

    report_put(&markdown, MD("## "), TEXT("A b_c"), MD("\n\n| x |\n|---|\n| "), CODE("|"),
               MD("<br>y |\n\n"));
    report_put(&markdown, MARK(REPORT_GOOD, "a"), MD(" "), MARK(REPORT_FAIR, "b"),
               MD(" "), MARK(REPORT_BAD, "c"), MD(" "), MARK(REPORT_DIM, "d"),
               MD("\n\n"));
    report_put(&markdown, MD("<details><summary>"), INT(2), MD(" numbers</summary>\n"));
    report_html(&html, &markdown, "a title", ".");
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        if (!strstr(as_text(&html), want[i]))
            fail_msg("no \"%s\" in:\n%s", want[i], html.p);
    text_fini(&html);
    text_fini(&markdown);
}

TEST(figures_are_data)
{
    static const struct {
        const char *bytes, *base64;
    } cases[] = {
        {"M", "TQ=="}, {"Ma", "TWE="}, {"Man", "TWFu"}, {"\xff\xfe\xfd\xfc", "//79/A=="}};
    struct text markdown = {0};
    char path[600], want[200];

    report_put(&markdown, MD("[!["), TEXT("\"<"), MD("](f.svg)](f.svg) ![](none.svg)"));
    snprintf(path, sizeof(path), "%s/f.svg", test_dir());
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct text html = {0};

        test_write(path, cases[i].bytes, strlen(cases[i].bytes));
        report_html(&html, &markdown, "t", test_dir());
        snprintf(want, sizeof(want),
                 "<a href=\"f.svg\"><img src=\"data:image/svg+xml;base64,%s\" "
                 "alt=\"&quot;&lt;\" /></a> <img src=\"none.svg\"",
                 cases[i].base64);
        if (!strstr(as_text(&html), want))
            fail_msg("no \"%s\" in:\n%s", want, html.p);
        text_fini(&html);
    }
    text_fini(&markdown);
}

TEST(paths_are_relative)
{
    static const struct {
        const char *from, *to, *want;
    } cases[] = {
        {"r/page", "r/e/x.h5", "../e/x.h5"}, {"r", "r/e/x.h5", "e/x.h5"},
        {"r/e", "r/e/x.h5", "x.h5"},         {"r/ee", "r/e/x.h5", "../e/x.h5"},
        {"r/page/deep", "r/e", "../../e"},   {"r/page/../ee", "r/./e/x.h5", "../e/x.h5"},
    };
    char from[600], to[600];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct text t = {0};

        snprintf(from, sizeof(from), "%s/r/page/deep", test_dir());
        assert_ok(file_make_dirs(from));
        snprintf(from, sizeof(from), "%s/r/ee", test_dir());
        assert_ok(file_make_dirs(from));
        snprintf(to, sizeof(to), "%s/r/e/x.h5", test_dir());
        assert_ok(file_write(to, "x", 1));
        snprintf(from, sizeof(from), "%s/%s", test_dir(), cases[i].from);
        snprintf(to, sizeof(to), "%s/%s", test_dir(), cases[i].to);
        assert_ok(report_put_relative(&t, from, to));
        assert_string_equal(as_text(&t), cases[i].want);
        text_fini(&t);
    }
    assert_err(report_put_relative(&(struct text){0}, test_dir(), "no/such"),
               ERR_NOTFOUND, "no/such");
}

TEST(notes_name_what_speaks_against_a_record)
{
    struct text warnings = {0}, machine = {0};
    char top[600];
    json_t *head;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    assert_ok(claim_record(&head, "e"));
    export_put_warnings(&warnings, head);
    assert_string_equal(as_text(&warnings),
                        "steal in 3 of 7 cells (0.07, threshold 0.02)");
    export_put_machine(&machine, head);
    assert_string_equal(as_text(&machine), "Chip (family 25, model 17), 4 CPUs");
    assert_true(export_is_noisy(head));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(head, "cells"), "failed")), 1);
    for (int i = 0; i < 2; i++) { /* noise of this machine does not matter */
        const char *kind = i ? "simulated" : "published";
        json_object_set_new(json_object_get(head, "run"), "evidence", json_string(kind));
        assert_false(export_is_noisy(head));
    }
    json_object_del(json_object_get(head, "run"), "evidence");
    assert_true(export_is_noisy(head));
    json_object_del(json_object_get(head, "warnings"), "steal");
    assert_false(export_is_noisy(head));
    json_decref(head);
    text_fini(&warnings);
    text_fini(&machine);
    fixture_leave(top);
}

TEST(pages_hold_what_records_hold)
{
    static const char *const names[] = {"index.html", "report.md"};
    static const char *const both[] = {"order",
                                       "reproduced",
                                       "from a noisy record",
                                       "steal in 3 of 7 cells",
                                       "1 (0.5 to 2)",
                                       "make experiment NAME=f",
                                       "2 minutes",
                                       "no record",
                                       "it holds",
                                       "much",
                                       "0123456789, 2026-01-31",
                                       "1 not measured: ",
                                       "Chip (family 25, model 17), 4 CPUs",
                                       "g.json",
                                       "../results/e/20260131T235959Z-0123456.h5"};
    char top[600], *again;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    fixture_save_page();
    for (int i = 0; i < 2; i++) {
        char *text = fixture_page(names[i]);

        for (size_t k = 0; k < sizeof(both) / sizeof(both[0]); k++)
            if (!strstr(text, both[k]))
                fail_msg("%s: no \"%s\":\n%s", names[i], both[k], text);
        assert_null(strstr(text, "<script"));
        assert_null(strstr(text, "<b>&|"));
        assert_null(strchr(text, '\x1b'));
        assert_non_null(strstr(text, "&lt;script&gt;"));
        fixture_save_page();
        again = fixture_page(names[i]);
        assert_string_equal(text, again); /* the same records, the same page */
        mem_free(again);
        mem_free(text);
    }
    fixture_leave(top);
}

TEST(a_damaged_record_is_a_line)
{
    struct report r;
    char top[600], *text;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    assert_ok(file_write("results/e/bad.h5", "no record", 9));
    assert_ok(file_write("results/e/bad.json", "no head", 7));
    assert_ok(file_write("results/e/lone.h5", "no record", 9));
    assert_ok(file_write("results/f/latest.json", "{", 1));
    assert_ok(report_read(&r, NULL));
    assert_int_equal(json_array_size(report_find(&r, "e")->problems), 2);
    assert_non_null(report_record(&r, report_find(&r, "e")));
    assert_int_equal(json_array_size(report_find(&r, "f")->problems), 1);
    assert_int_equal(json_array_size(report_find(&r, "g")->problems), 1);
    assert_null(report_find(&r, "h"));
    report_fini(&r);
    fixture_save_page();
    text = fixture_page("index.html");
    assert_non_null(strstr(text, "results/e/bad.json: "));
    assert_non_null(strstr(text, "results/e/lone.h5: expected its head next to it"));
    assert_non_null(strstr(text, "results/f/latest.json"));
    mem_free(text);
    fixture_leave(top);
}

/* 1.2 of what memory can do: on the page and in a document the number is missing, the claim has
 * no verdict, and the record is flagged. */
TEST(more_than_a_bound_is_no_headline)
{
    static const char rule[] =
        "{\"claims\": [{\"name\": \"n\", \"paper\": \"P\", \"section\": \"1\", \"text\": "
        "\"t\", \"experiment\": \"e\", \"reproduced\": \"read_bandwidth_frac > 0.5\", "
        "\"compared\": [{\"names\": \"read_bandwidth_frac\", \"from\": 0, \"to\": 1}]}]}";
    const char *reason = "1.2 of its bound, above 1.02: the bound is wrong";
    struct text found = {0};
    struct claims list;
    char top[600], *text;
    json_t *head;

    fixture_enter(top);
    fixture_record_make(&(struct fixture_record){"e", "Chip", "2026-01-31T23:59:59Z",
                                                 "n1", "steal", 1, 3, 1.2});
    test_write("results/claims.json", rule, strlen(rule));
    assert_ok(claims_read(&list, "results/claims.json"));
    assert_ok(claim_record(&head, "e"));
    assert_int_equal(claim_judge(&list.v[0], head, &found), CLAIM_NOT_TESTABLE);
    assert_non_null(strstr(as_text(&found), reason));
    text_fini(&found);
    json_decref(head);
    claims_fini(&list);
    fixture_save_page();
    text = fixture_page("report.md");
    assert_non_null(strstr(text, reason));
    assert_non_null(strstr(text, "exceeded (1.2, threshold 1.02)"));
    mem_free(text);
    fixture_leave(top);
}

TEST(machines_are_side_by_side)
{
    struct fixture_record other = fixture_first, older = fixture_first;
    struct report r;
    char top[600], *text;

    fixture_enter(top);
    older.utc = "2025-01-01T00:00:00Z";
    older.a = 5511;
    fixture_record_make(&older);
    other.cpu = "Other";
    other.a = 8;
    other.host = FIXTURE_HOSTILE;
    fixture_record_make(&other);
    fixture_record_make(&fixture_first);
    fixture_record_make(&(struct fixture_record){"f", "Chip", "2026-02-01T00:00:00Z",
                                                 "n2", "lateness", 1, 2, 0.8});
    assert_ok(report_read(&r, NULL));
    assert_int_equal(json_array_size(r.hosts), 2);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(r.hosts, 0), "label")),
        "Chip (family 25, model 17), 4 CPUs");
    report_fini(&r);
    fixture_save_page();
    text = fixture_page("report.md");
    assert_non_null(
        strstr(text, "| `a` | s | 1 (0.5 to 2) | 8 (4 to 16), 8 times the first |"));
    assert_null(strstr(text, "5511"));
    assert_non_null(strstr(text, "n1, n2"));
    /* its own verdict: 8 < 3 fails */
    assert_non_null(strstr(text, "**not reproduced, but should hold"));
    assert_null(strstr(text, "<script"));
    mem_free(text);
    fixture_leave(top);
}

/* --- tables in documents */

#define BEGIN(x) "<!-- testbed report: " x " -->\n"
#define END      "<!-- end of testbed report -->\n"

static int tables(struct text *out, const char *text, const struct report *r, int *n_kept)
{
    *out = (struct text){0};
    return report_tables_text(out, text, strlen(text), r, "doc", n_kept);
}

TEST(text_outside_stays)
{
    static const char before[] =
        "# A\r\n\x01\xff | x |\n  <!-- testbed report: e -->\n"; /* indented: text */
    char top[600], doc[1000];
    struct text out, again;
    struct report r;
    int n_kept;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    assert_ok(report_read(&r, NULL));
    snprintf(doc, sizeof(doc), "%s" BEGIN("e:b*,a,zz f") "stale\nlines\n" END "tail",
             before);
    assert_ok(tables(&out, doc, &r, &n_kept));
    assert_int_equal(n_kept, 0);
    assert_non_null(strstr(
        as_text(&out),
        BEGIN("e:b*,a,zz f") "\n`e`: a job of &lt;b&gt;&amp;\\|\n\n| | Chip "
                             "(family 25, model 17), 4 "
                             "CPUs |\n|---|---|\n| `b`, s | 3 (3 to 3) |\n| `b 1`, s | 3 "
                             "|\n| `a`, s | 1 (0.5 to 2) |\n"
                             "| `zz` | n/a (not in the record) |\n| commit, date "
                             "| 0123456789, 2026-01-31 |\n"
                             "| evidence | measured |\n| warnings | steal in 3 of "
                             "7 cells (0.07, threshold "
                             "0.02) |\n\n`f`: no record; run: `make experiment "
                             "NAME=f`, 2 minutes\n\n" END "tail"));
    assert_memory_equal(out.p, before, strlen(before));
    assert_null(strstr(out.p, "stale"));
    assert_ok(tables(&again, out.p, &r, &n_kept));
    assert_string_equal(as_text(&again), out.p);
    text_fini(&again);
    text_fini(&out);
    /* without a record it stays, too */
    snprintf(doc, sizeof(doc), "%s" BEGIN("f") "old\n" END "%s" BEGIN("e:a") END, before,
             "between\n");
    assert_ok(tables(&out, doc, &r, &n_kept));
    assert_int_equal(n_kept, 1);
    assert_non_null(
        strstr(as_text(&out), BEGIN("f") "old\n" END "between\n" BEGIN("e:a") "\n`e`"));
    text_fini(&out);
    report_fini(&r);
    fixture_leave(top);
}

TEST(broken_documents_are_refused)
{
    static const struct {
        const char *text, *part;
        int rc;
    } cases[] = {
        {"", "doc: expected a line \"<!-- testbed report: EXPERIMENT... -->\"",
         ERR_FORMAT},
        {"# no marks\n", "found none", ERR_FORMAT},
        {BEGIN("e") "x\n", "doc: line 1: the block is not closed", ERR_FORMAT},
        {"a\n" END,
         "doc: line 2: \""
         "<!-- end of testbed report -->\" without",
         ERR_FORMAT},
        {BEGIN("e") "x\n" BEGIN("e") END, "line 3: expected", ERR_FORMAT},
        {BEGIN("e") END END, "line 3:", ERR_FORMAT},
        {"\n" BEGIN("") END, "line 2: expected experiments", ERR_FORMAT},
        {BEGIN("ee") END, "no experiment \"ee\"; did you mean \"e\"", ERR_NOTFOUND},
    };
    char top[600];
    struct report r;
    struct text out;
    struct stat st;
    int n_kept;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    assert_ok(report_read(&r, NULL));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = tables(&out, cases[i].text, &r, &n_kept);

        if (rc != cases[i].rc || !strstr(err_msg(), cases[i].part) ||
            strchr(err_msg(), '\n'))
            fail_msg("%s: %s", cases[i].text, rc == OK ? "taken" : err_msg());
        text_fini(&out);
    }
    assert_err(report_tables_save("doc.md", &r, &n_kept), ERR_NOTFOUND, "doc.md");
    test_write("doc.md", "# no marks\n", 11);
    assert_err(report_tables_save("doc.md", &r, &n_kept), ERR_FORMAT,
               "doc.md: expected a line");
    assert_int_equal(stat("doc.md", &st), 0);
    assert_int_equal(st.st_size, 11);
    report_fini(&r);
    fixture_leave(top);
}

static void end_3(void)
{
    _exit(3);
}

/* Wherever memory is short, the program ends as it was told to. */
TEST(memory_fails)
{
    static const char doc[] = BEGIN("e f") END;
    int n_kept, status = 3 << 8;
    struct text t = {0};
    char top[600];
    struct report r;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    assert_ok(report_read(&r, NULL));
    for (long k = 0; WEXITSTATUS(status) == 3; k += 23) {
        const pid_t pid = fork();
        if (pid == 0) {
            mem_when_short(end_3);
            mem_fail_after(k, 0);
            _exit(report_put_page(&t, &r, ".") != OK ||
                  report_tables_text(&t, doc, strlen(doc), &r, "doc", &n_kept));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && k < 10000);
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    report_fini(&r);
    fixture_leave(top);
}
