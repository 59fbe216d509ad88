/* Jobs that study: how they are read, what their headlines and records hold. */
#include "tests/run/script_study.h"

#include "base/stats.h"
#include "base/stats_interval.h"
#include "cpu/energy.h"
#include "tests/support/fake_root.h"

#define HEADLINE(rest)                                                                   \
    "\"study\": {\"name\": \"script\", \"m\": [1, 2, 4], \"k\": [1, 10]}, "              \
    "\"headline\": [{\"name\": \"h\", " rest "}]"

TEST(a_bad_job_is_refused_by_name)
{
    refuse("\"study\": {}", "study.name: expected the name of a study, found none");
    refuse("\"study\": {\"name\": [\"script\"]}", "found another type");
    refuse("\"study\": {\"name\": \"scrip\"}", "did you mean \"script\"");
    refuse("\"study\": {\"name\": \"script\", \"tipe\": \"x\"}", "did you mean \"type\"");
    refuse("\"study\": {\"name\": \"script\", \"m\": [1, \"x\"]}", "an integer");
    refuse("\"study\": {\"name\": \"script\"}, \"load\": {}", "and \"load\" exclude");
    refuse("\"study\": {\"name\": \"script\"}, \"seeds\": {}", "and \"seeds\" exclude");
    refuse("\"studi\": {\"name\": \"script\"}", "did you mean \"study\"");
    refuse(HEADLINE("\"metric\": \"sped\", \"over\": \"max\""), "did you mean \"speed\"");
    refuse(HEADLINE("\"metric\": \"p50_ttft_ms\", \"over\": \"max\""), "no metric");
    refuse(HEADLINE("\"metric\": \"speed\", \"over\": \"geomen\""),
           "did you mean \"geomean\"");
    refuse(HEADLINE("\"metric\": \"speed\", \"over\": \"max\", \"interval\": \"m\""),
           "interval: only of a mean or geomean");
}

TEST(lists_make_axes)
{
    struct job *j =
        job_of("\"study\": {\"name\": \"script\", \"type\": [\"f32\", \"bf16\"], "
               "\"m\": [1, 2]}");
    const json_t *settings;

    assert_ptr_equal(j->study, &study_script);
    assert_int_equal(j->n_cells, 4);
    assert_string_equal(j->cells[1].key, "study.type=f32 study.m=2 repeat=0");
    settings = json_object_get(j->cells[1].settings, "study");
    assert_string_equal(json_string_value(json_object_get(settings, "name")), "script");
    assert_int_equal(json_integer_value(json_object_get(settings, "m")), 2);
    assert_null(json_object_get(j->cells[1].settings, "load"));
    job_free(&j);
}

TEST(a_list_in_where_matches_any)
{
    struct job *j = job_of(HEADLINE("\"metric\": \"speed\", \"over\": \"max\", "
                                    "\"where\": {\"study.m\": [4, 1.0, 99]}"));
    bool chosen[6];

    assert_int_equal(job_headline_cells(j, &j->headlines[0], chosen), 4);
    assert_true(chosen[0] && chosen[1] && !chosen[2] && !chosen[3] && chosen[4]);
    assert_string_equal(job_metric_unit(j, "speed"), "x");
    job_free(&j);
}

TEST(open_axes_make_headlines)
{
    struct job *j = job_of(HEADLINE("\"metric\": \"speed\", \"where\": {\"m\": [1, 4]}"));
    static const char *const names[] = {"h m=1 k=1", "h m=1 k=10", "h m=4 k=1",
                                        "h m=4 k=10"};
    bool chosen[6];

    assert_int_equal(j->n_headlines, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(j->headlines[i].name, names[i]);
        assert_int_equal(job_headline_cells(j, &j->headlines[i], chosen), 1);
    }
    job_free(&j);
}

static void print_study(const struct job *j, FILE *f)
{
    run_plan_print(j, f);
    study_docs(f);
}

TEST(description_has_options_and_metrics)
{
    static const char *const words[] = {"script",    "rows",         "[1,2,4]",
                                        "m times k", "max of speed", NULL};
    struct job *j = job_of(HEADLINE("\"metric\": \"speed\", \"over\": \"max\""));
    char *text = jobs_described(j, words, print_study);

    assert_non_null(strstr(text, "study.m=4 study.k=10 repeat=0\n"));
    assert_non_null(strstr(text, "study, name script"));
    assert_non_null(strstr(text, "| `error` | x | lower | what it gets wrong |"));
    free(text);
    job_free(&j);
}

TEST(headlines_over_many_cells)
{
    static const struct {
        const char *name;
        double value;
    } want[] = {{"geomean", 2}, {"min", 1},  {"max", 4},      {"mean", 7.0 / 3},
                {"sum", 7},     {"two", 60}, {"just_one", 20}};
    struct ran r;

    run("over",
        "\"study\": {\"name\": \"script\", \"m\": [1, 2, 4], \"k\": [1, 10]}, "
        "\"repeats\": 2, \"headline\": ["
        "{\"name\": \"geomean\", \"metric\": \"speed\", \"over\": \"geomean\", "
        "\"where\": {\"k\": 1}},"
        "{\"name\": \"min\", \"metric\": \"speed\", \"over\": \"min\"},"
        "{\"name\": \"max\", \"metric\": \"speed\", \"over\": \"max\", \"where\": "
        "{\"k\": 1}},"
        "{\"name\": \"mean\", \"metric\": \"speed\", \"over\": \"mean\", \"where\": "
        "{\"k\": 1}},"
        "{\"name\": \"sum\", \"metric\": \"speed\", \"over\": \"sum\", \"where\": "
        "{\"k\": 1}},"
        "{\"name\": \"two\", \"metric\": \"speed\", \"over\": \"sum\", \"where\": "
        "{\"k\": 10, \"m\": [2, 4]}},"
        "{\"name\": \"just_one\", \"metric\": \"speed\", \"where\": {\"k\": 10, "
        "\"m\": 2}},"
        "{\"name\": \"share\", \"metric\": \"speed\", \"over\": \"share\", "
        "\"where\": {\"k\": 1, \"m\": [1]}},"
        "{\"name\": \"no_share\", \"metric\": \"speed\", \"over\": \"share\", "
        "\"where\": {\"k\": 1}},"
        "{\"name\": \"error\", \"metric\": \"error\", \"over\": \"max\"}]",
        &r);
    assert_int_equal(r.outcome.n_done, 12);
    assert_true(value(&r, "share") == 1);
    assert_string_equal(why(&r, "no_share"), "a share needs values of 0 or 1, found 2");
    assert_true(fabs(json_number_value(
                         json_object_get(json_object_get(r.latest, "share"), "lo")) -
                     0.2065) < 1e-4);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        if (fabs(value(&r, want[i].name) - want[i].value) > 1e-9)
            fail_msg("%s: %g, wanted %g", want[i].name, value(&r, want[i].name),
                     want[i].value);
    assert_string_equal(why(&r, "error"), "this cell does not measure it");
    assert_non_null(strstr(r.table, "speed")); /* what has a direction is a column */
    assert_null(strstr(r.table, "m_seen"));
    assert_non_null(strstr(r.table, "sum: 7 x"));
    ran_free(&r);
}

/* Each m is a measurement of its own. */
TEST(a_mean_has_its_interval_over_an_axis)
{
    struct ran r;

    run("interval",
        "\"study\": {\"name\": \"script\", \"m\": [1, 2, 4], \"k\": [1, 100]}, "
        "\"repeats\": 2, \"headline\": ["
        "{\"name\": \"mean\", \"metric\": \"speed\", \"over\": \"mean\", "
        "\"interval\": \"m\", \"where\": {\"k\": 1}},"
        "{\"name\": \"geomean\", \"metric\": \"speed\", \"over\": \"geomean\", "
        "\"interval\": \"study.m\"}]",
        &r);
    assert_true(fabs(end_of(&r, "mean", "lo") - (7.0 / 3 - 3.79459)) < 1e-3);
    assert_true(fabs(end_of(&r, "geomean", "lo") - 20 / 5.5958) < 1e-3);
    assert_true(fabs(end_of(&r, "geomean", "hi") - 20 * 5.5958) < 1e-2);
    ran_free(&r);
}

/* What a headline makes of a ratio it makes of its A/A: one cell has the interval of that, several
 * that over an axis, the least of them no other than its value. */
TEST(a_ratio_has_its_aa)
{
    double logs[3] = {log(1.02), log(1.04), log(1.08)};
    double mean = fabs(stats_mean(logs, 3)), half = stats_mean_half95(logs, 3);
    struct ran r;

    run("study_aa",
        "\"study\": {\"name\": \"script\", \"m\": [1, 2, 4], \"k\": 1.05, \"again\": "
        "0.02}, \"headline\": ["
        "{\"name\": \"one\", \"metric\": \"ratio\", \"where\": {\"m\": 1}}, "
        "{\"name\": \"least\", \"metric\": \"ratio\", \"over\": \"min\"}, "
        "{\"name\": \"all\", \"metric\": \"ratio\", \"over\": \"geomean\", \"interval\": "
        "\"m\"}, {\"name\": \"speed\", \"metric\": \"speed\", \"where\": {\"m\": 1}}]",
        &r);
    assert_true(fabs(end_of(&r, "one", "detectable_frac") - 0.122) < 1e-9);
    assert_true(fabs(end_of(&r, "least", "detectable_frac") - 0.02) < 1e-9);
    assert_true(fabs(end_of(&r, "all", "detectable_frac") - expm1(mean + half)) < 1e-9);
    assert_true(isnan(end_of(&r, "speed", "detectable_frac")));
    assert_non_null(
        strstr(r.table, "one: 1.05 x (not detectable, which begins at 12 %)\n"));
    assert_non_null(strstr(r.table, "least: 1.05 x (detectable from 2 %)\n"));
    ran_free(&r);
    run("study_no_aa",
        "\"study\": {\"name\": \"script\", \"m\": [1, 2]}, \"headline\": ["
        "{\"name\": \"speed\", \"metric\": \"speed\", \"where\": {\"m\": 1}}]",
        &r);
    assert_true(value(&r, "speed") == 1);
    ran_free(&r);
}

/* An interval without two finite ends is none; a headline over several cells has not theirs. */
TEST(a_value_has_its_interval)
{
    struct ran r;
    json_t *all, *cells, *v;

    run("values",
        "\"study\": {\"name\": \"script\", \"m\": [1, 2], \"type\": [\"f32\", "
        "\"open\"]}, \"headline\": ["
        "{\"name\": \"one\", \"metric\": \"speed\", \"where\": {\"m\": 2, "
        "\"type\": \"f32\"}},"
        "{\"name\": \"open\", \"metric\": \"speed\", \"where\": {\"m\": 2, "
        "\"type\": \"open\"}},"
        "{\"name\": \"sum\", \"metric\": \"speed\", \"over\": \"sum\"}]",
        &r);
    all = fixture_exported(r.outcome.path);
    cells = json_object_get(all, "cells");
    v = json_object_get(json_object_get(json_array_get(cells, 2), "summary"), "speed");
    assert_true(json_number_value(json_object_get(v, "value")) == 2);
    assert_true(json_number_value(json_object_get(v, "lo")) == 1);
    assert_true(json_number_value(json_object_get(v, "hi")) == 4);
    v = json_object_get(json_object_get(json_array_get(cells, 3), "summary"), "speed");
    assert_true(json_number_value(json_object_get(v, "value")) == 2);
    assert_null(json_object_get(v, "lo"));
    assert_true(end_of(&r, "one", "lo") == 1 && end_of(&r, "one", "hi") == 4);
    assert_true(value(&r, "open") == 2 && isnan(end_of(&r, "open", "lo")));
    assert_true(value(&r, "sum") == 6 && isnan(end_of(&r, "sum", "lo")));
    assert_non_null(strstr(r.table, "one: 2 x (95 % interval 1 to 4)\n"));
    json_decref(all);
    ran_free(&r);
}

#define TYPES                                                                            \
    "\"study\": {\"name\": \"script\", \"m\": 8, \"type\": [\"f32\", \"bf16\", "         \
    "\"f16\"], "
#define SUM(name, more)                                                                  \
    "{\"name\": \"" name "\", \"metric\": \"speed\", \"over\": \"sum\"" more "}"

TEST(missing_values)
{
    struct ran r;

    run("missing",
        TYPES "\"missing\": \"bf16\", \"skips\": \"f16\"}, \"headline\": [" SUM(
            "spoilt",
            "") ", " SUM("rest",
                         ", \"needs_finite\": true") ", " SUM("none",
                                                              ", \"needs_finite\": true, "
                                                              "\"where\": {\"type\": "
                                                              "\"bf16\"}") ", " SUM("skip"
                                                                                    "ped",
                                                                                    ", "
                                                                                    "\"wh"
                                                                                    "ere"
                                                                                    "\": "
                                                                                    "{\"t"
                                                                                    "ype"
                                                                                    "\": "
                                                                                    "\"f1"
                                                                                    "6\""
                                                                                    "}") "]",
        &r);
    assert_int_equal(r.outcome.n_done, 2);
    assert_int_equal(r.outcome.n_skipped, 1);
    assert_true(isnan(value(&r, "spoilt")));
    assert_string_equal(why(&r, "spoilt"), "the script has none");
    assert_true(value(&r, "rest") == 8);
    assert_int_equal(left_out(&r, "rest"), 2);
    assert_true(isnan(value(&r, "none")));
    assert_string_equal(why(&r, "none"), "the script has none");
    assert_int_equal(left_out(&r, "none"), 1);
    assert_string_equal(why(&r, "skipped"), "no such unit in this machine");
    assert_non_null(strstr(r.table, "rest: 8 x (2 cells left out)"));
    ran_free(&r);
}

/* Four times 0.3 of a bound: the bound is wrong. */
TEST(more_than_a_bound_is_no_result)
{
    struct ran r;
    json_t *all, *cell;

    run("bound",
        "\"study\": {\"name\": \"script\", \"m\": [2, 4]}, \"headline\": ["
        "{\"name\": \"low\", \"metric\": \"roof_frac\", \"where\": {\"m\": 2}}, "
        "{\"name\": \"high\", \"metric\": \"roof_frac\", \"where\": {\"m\": 4}}]",
        &r);
    assert_true(value(&r, "low") == 0.6);
    assert_true(isnan(value(&r, "high")));
    assert_string_equal(why(&r, "high"),
                        "1.2 of its bound, above 1.02: the bound is wrong");
    all = fixture_exported(r.outcome.path);
    cell = json_array_get(json_object_get(all, "cells"), 1);
    cell = json_object_get(cell, "attributes");
    assert_non_null(
        strstr(json_string_value(json_object_get(cell, "warned")), "bound_exceeded"));
    json_decref(all);
    ran_free(&r);
}

/* The second of two types fails: its cells are counted, named, and no others. */
TEST(a_failed_cell_is_not_the_run)
{
    struct ran r;
    int before = n_closed, runs = n_runs;

    run("fails", TYPES "\"fails\": \"bf16\"}", &r);
    assert_int_equal(r.outcome.n_done, 2);
    assert_int_equal(r.outcome.n_failed, 1);
    assert_int_equal(n_closed, before + 1);
    assert_int_equal(n_kept_at_close, n_runs - runs); /* one block for all cells */
    ran_free(&r);
}

/* The same job again measures that cell only, and adds a record of all cells. With nothing left to
 * mend, once more measures all of them. */
TEST(a_failed_cell_is_measured_again)
{
    static const char job[] = TYPES "\"fails\": \"bf16\"}";
    char dir[300];
    struct ran r;
    int before;

    snprintf(dir, sizeof(dir), "%s/mended", test_dir());
    for (int i = 0; i < 2; i++) {
        before = n_runs;
        assert_ok(run_into(dir, job, &r));
        assert_int_equal(r.outcome.n_failed, 1);
        assert_int_equal(r.outcome.n_resumed, i ? 2 : 0);
        assert_int_equal(n_runs - before, i ? 1 : 3);
        ran_free(&r);
    }
    is_mended = true;
    for (int i = 0; i < 2; i++) {
        before = n_runs;
        assert_ok(run_into(dir, job, &r));
        assert_int_equal(r.outcome.n_failed, 0);
        assert_int_equal(r.outcome.n_resumed, i ? 0 : 2);
        assert_int_equal(n_runs - before, i ? 3 : 1);
        ran_free(&r);
    }
    is_mended = false;
}

TEST(a_killed_study_resumes)
{
    static const char job[] = HEADLINE("\"metric\": \"speed\", \"over\": \"sum\"");
    char dir[300];
    struct ran r;
    int status, before;
    pid_t pid;

    snprintf(dir, sizeof(dir), "%s/killed", test_dir());
    pid = fork();
    if (pid == 0) {
        dies_at_4 = true;
        _exit(run_into(dir, job, &r) == OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    before = n_runs;
    assert_ok(run_into(dir, job, &r));
    assert_int_equal(r.outcome.n_resumed, 4);
    assert_int_equal(n_runs - before, 2);
    assert_true(value(&r, "h") == 77);
    ran_free(&r);
}

TEST(a_study_that_breaks_its_contract_fails_its_cell)
{
    static const char *const ways[] = {"unknown", "no reason", "twice",
                                       "no such evidence", "evidence of nothing"};
    char text[256], dir[300];
    struct ran r;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        snprintf(text, sizeof(text),
                 "\"study\": {\"name\": \"script\", \"misbehaves\": \"%s\"}", ways[i]);
        snprintf(dir, sizeof(dir), "%s/breaks%zu", test_dir(), i);
        assert_err(run_into(dir, text, &r), ERR_STATE, "no cell could be measured");
        assert_int_equal(r.outcome.n_failed, 1);
        ran_free(&r);
    }
}

/* --- the record */

TEST(the_record_says_what_the_study_said)
{
    struct ran r;
    json_t *all, *cell, *a, *speed;

    run("record", HEADLINE("\"metric\": \"speed\", \"over\": \"max\""), &r);
    all = fixture_exported(r.outcome.path);
    cell = json_array_get(json_object_get(all, "cells"), 5);
    a = json_object_get(cell, "attributes");
    assert_int_equal(json_integer_value(json_object_get(a, "study.m")), 4);
    assert_string_equal(json_string_value(json_object_get(a, "study.name")), "script");
    assert_string_equal(json_string_value(json_object_get(a, "notes.rival.version")),
                        "script 1.0");
    speed = json_object_get(json_object_get(cell, "summary"), "speed");
    assert_true(json_number_value(json_object_get(speed, "value")) == 40);
    assert_string_equal(json_string_value(json_object_get(speed, "unit")), "x");
    assert_string_equal(json_string_value(json_object_get(speed, "meaning")),
                        "m times k");
    assert_string_equal(json_string_value(json_object_get(speed, "better")), "higher");
    json_decref(all);
    ran_free(&r);
}

/* The energy attributes of the first cell, where the machine has these files. */
static void energy_of(const char *name, const struct fake_file *files, const char *moves,
                      double *joules, char why[96])
{
    const char *root = fake_root(files);
    char path[1024];
    struct ran r;
    json_t *all, *a;

    snprintf(path, sizeof(path), "%s%s", root, moves);
    energy_file = moves[0] ? path : NULL;
    cpu_energy_set_root(root);
    run(name, "\"study\": {\"name\": \"script\"}", &r);
    cpu_energy_set_root(NULL);
    energy_file = NULL;
    all = fixture_exported(r.outcome.path);
    a = json_object_get(json_array_get(json_object_get(all, "cells"), 0), "attributes");
    *joules = json_f64_at(a, "energy.joules");
    snprintf(why, 96, "%s", json_str_at(a, "energy.why", ""));
    json_decref(all);
    ran_free(&r);
}

#define PACKAGE "/sys/class/powercap/intel-rapl:0"

TEST(a_study_has_its_energy)
{
    static const struct fake_file package[] = {
        {PACKAGE "/name", "package-0\n"},
        {PACKAGE "/energy_uj", "7000000\n"},
        {PACKAGE "/max_energy_range_uj", "99999999\n"},
        {0}};
    static const struct fake_file none[] = {{"/sys/class/net/lo/name", "lo\n"}, {0}};
    char why[96];
    double joules;

    energy_of("energy", package, PACKAGE "/energy_uj", &joules, why);
    assert_true(fabs(joules - 2.5) < 1e-9 && why[0] == 0);
    energy_of("no_energy", none, "", &joules, why);
    assert_true(isnan(joules));
    assert_non_null(strstr(why, "shows no counter"));
}

static const char *text_at(const json_t *all, size_t cell, const char *part,
                           const char *name)
{
    const json_t *c = json_array_get(json_object_get(all, "cells"), cell);
    const char *kind = json_string_value(
        json_object_get(json_object_get(json_object_get(c, part), name), "evidence"));

    return kind ? kind : "";
}

/* Of the job, unless the study names another for the cell or for a number or list of it.
 * Regression: a record called measured, computed and simulated numbers by one kind of
 * evidence. */
TEST(each_series_has_its_evidence)
{
    struct ran r;
    json_t *all, *v;
    char *text;
    size_t n;

    run("evidence",
        "\"evidence\": \"measured_small\", " TYPES
        "\"simulates\": \"bf16\"}, \"headline\": [" SUM("all", "") ", " SUM(
            "f32", ", \"where\": {\"type\": \"f32\"}") "]",
        &r);
    assert_ok(export_text(r.outcome.path, EXPORT_JSON_FULL, &text, &n));
    assert_ok(json_read_text(&all, text, n, "export"));
    assert_string_equal(text_at(all, 0, "summary", "speed"), "measured_small");
    assert_string_equal(text_at(all, 1, "summary", "speed"), "simulated");
    assert_string_equal(text_at(all, 2, "summary", "error"), "measured_small");
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(text_at(all, i, "summary", "m_seen"), "published");
        assert_string_equal(text_at(all, i, "series", "both"), "model");
    }
    v = json_object_get(
        json_object_get(
            json_object_get(json_array_get(json_object_get(all, "cells"), 1), "series"),
            "both"),
        "v");
    assert_true(json_number_value(json_array_get(v, 0)) == 8);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(r.latest, "all"), "evidence")),
        "measured_small, simulated");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(r.latest, "f32"), "evidence")),
        "measured_small");
    assert_non_null(strstr(r.table, "all: 24 x (measured_small, simulated)\n"));
    assert_non_null(strstr(r.table, "f32: 8 x (95 % interval 7 to 10)\n"));
    json_decref(all);
    mem_free(text);
    ran_free(&r);
}
