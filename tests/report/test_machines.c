/* Records of several kinds of machines are side by side: numbers, and a drawing that follows from
 * them; and what each page begins with. */
#include "tests/report/report_fixture.h"

#include <unistd.h>

#include "base/file.h"
#include "experiments/report/report.h"

/* Each of the texts, in this order. */
static void assert_order(const char *text, const char *const *parts)
{
    const char *at = text;

    for (int i = 0; parts[i]; i++) {
        at = strstr(at, parts[i]);
        if (!at)
            fail_msg("no \"%s\" behind \"%s\" in:\n%s", parts[i], i ? parts[i - 1] : "",
                     text);
        at += strlen(parts[i]) - 1;
    }
}

/* Of e, whose newest is that of Chip, and one of f. */
static void make_two(void)
{
    struct fixture_record other = fixture_first, more = fixture_first;

    other.cpu = FIXTURE_HOSTILE;
    other.a = 8;
    fixture_record_make(&other);
    fixture_record_make(&fixture_first);
    more.stem = "f";
    fixture_record_make(&more);
}

TEST(findings_come_first_then_papers)
{
    static const char *const parts[] = {
        "# Results of Sandwich Testbed\n",
        "## What was found\n",
        "1. P: It takes 1 s \\[0.5 to 2\\] of 6 s.",
        "[e](#e)",
        "3 of 4 sentences are left out: no record of f;",
        "a number is missing in the record of e; not",
        "by the record of e.",
        "## Machines\n",
        "Chip (family 25, model 17), 4 CPUs",
        "1, 1 of them measured",
        "## Verdicts by paper\n",
        "| [P](#p) | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |\n",
        "| all | 1 |",
        "None that should hold on every machine fails.",
        "<summary>Claims of P</summary>",
        "## What of the papers is tested\n",
        "## Figures by paper\n",
        "### P\n",
        "#### e\n",
        "<details><summary>5 numbers</summary>",
        "<details><summary>1 without a record</summary>",
        "#### f\n",
        "### Other experiments\n",
        "#### g\n",
        NULL};
    char top[600], *text;

    fixture_enter(top);
    fixture_record_make(&fixture_first);
    fixture_save_page();
    text = fixture_page("report.md");
    assert_order(text, parts);
    assert_null(strstr(text, "side by side"));
    assert_int_not_equal(access("page/figures/e-machines.svg", F_OK), 0);
    mem_free(text);
    fixture_leave(top);
}

TEST(machines_are_drawn_side_by_side)
{
    static const char *const parts[] = {
        "1 experiment has records of more than one machine: [side by "
        "side](#machines-side-by-side)",
        "#### e\n",
        "[Numbers of 2 machines side by side](#machines-side-by-side)",
        "## Machines side by side\n",
        "Experiment [e](#e): a job of &lt;b&gt;&amp;\\|\n",
        "![e on each machine](figures/e-machines.svg)",
        "| `a` | s | 1 (0.5 to 2) | 8 (4 to 16), 8 times the first |",
        NULL};
    /* a: from 0 to 16 on 340 pixels from 300 on; of the first, 0.5 to 2 */
    static const char *const drawn[] = {"<svg ",
                                        "Chip (family 25, model 17), 4 CPUs</text>",
                                        "&lt;script&gt;",
                                        ">a, s</text>",
                                        "<path d=\"M310.6 ",
                                        "H342.5\"",
                                        "cx=\"321.2\"",
                                        "<path d=\"M385.0 ",
                                        "H640.0\"",
                                        "cx=\"470.0\"",
                                        ">8</text>",
                                        "</svg>",
                                        NULL};
    char top[600], *text;

    fixture_enter(top);
    make_two();
    fixture_save_page();
    text = fixture_page("report.md");
    assert_order(text, parts);
    mem_free(text);
    text = fixture_page("figures/e-machines.svg");
    assert_order(text, drawn);
    assert_non_null(strstr(text, ">n/a</text>")); /* c has no value */
    assert_null(strstr(text, "<script"));
    assert_null(strchr(text, '\x1b'));
    mem_free(text);
    assert_int_not_equal(access("page/figures/f-machines.svg", F_OK), 0);
    text = fixture_page("index.html");
    assert_non_null(strstr(text, "alt=\"e on each machine\""));
    assert_null(strstr(text, "src=\"figures/e-machines.svg\"")); /* it is in the page */
    mem_free(text);
    fixture_leave(top);
}

TEST(the_readme_is_read_as_it_is)
{
    static const char *const parts[] = {
        "# Results of Sandwich Testbed\n",
        "## What was found\n",
        "1. P: 1 \\[0.5 to 2\\] f",
        "2. P: It takes 1 s \\[0.5 to 2\\] of 6 s.",
        "[e]_\n",
        "## Machines\n",
        "- Chip (family 25, model 17), 4 CPUs, ",
        "2 experiments, 2 of them measured;",
        "## Verdicts by paper\n",
        "| [P](#p) |",
        "## What of the papers is tested\n",
        "## Figures by paper\n",
        "### P\n",
        "- [e] (Fig. 1, measured): a job of &lt;b&gt;&amp;\\|\n",
        "- [f] (Fig. 1, measured)",
        "## Machines side by side\n",
        "Experiment [e]: a job of",
        "On Chip (family 25, model 17), 4 CPUs; ",
        ", in this order:\n",
        "- `a`, s: 1 (0.5 to 2); 8 (4 to 16)\n",
        "\n[e]: ../e\n[f]: ../f\n",
        NULL};
    struct report r;
    char top[600], *text;
    size_t n;

    fixture_enter(top);
    make_two();
    assert_ok(file_make_dirs("results/published"));
    assert_ok(report_read(&r, NULL));
    assert_ok(report_save_readme(&r, "results/published/README.md"));
    assert_err(report_save_readme(&r, "results/none/README.md"), ERR_NOTFOUND,
               "results/none");
    report_fini(&r);
    text = test_read("results/published/README.md", &n);
    assert_order(text, parts);
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "`g`")); /* it has no record, and tests no paper */
    mem_free(text);
    fixture_leave(top);
}
