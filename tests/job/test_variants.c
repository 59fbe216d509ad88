/* A whole run with variants: in turn within each repeat, ratios between cells of the same
 * repeat, a server that is not there, two variants that are the same system. */
#include "tests/support/fixture.h"

#include <math.h>

#include "base/json.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "experiments/job/job.h"
#include "experiments/metrics/compare.h"
#include "experiments/record/export.h"
#include "experiments/record/journal.h"
#include "experiments/record/verify.h"
#include "experiments/run/experiment.h"
#include "experiments/run/session.h"

struct ran {
    struct run_outcome outcome;
    char *report;
    json_t *headline;
};

static void run(const char *name, const char *text, struct ran *r)
{
    struct run_options o = {.progress = PROGRESS_QUIET};
    char dir[300], path[400];
    json_t *root, *latest;
    struct job *j;
    size_t n;

    *r = (struct ran){.report = NULL};
    snprintf(dir, sizeof(dir), "%s/%s", test_dir(), name);
    assert_ok(json_read_text(&root, text, strlen(text), "test"));
    assert_ok(job_from_json(&j, root, name, "t.json", NULL));
    o.out_dir = o.machine_dir = dir;
    o.live = fopen("/dev/null", "w");
    o.report = open_memstream(&r->report, &n);
    assert_ok(run_experiment(&r->outcome, j, &o));
    fclose(o.live);
    fclose(o.report);
    job_free(&j);
    json_decref(root);
    snprintf(path, sizeof(path), "%s/latest.json", dir);
    assert_ok(json_read_file(&latest, path, 1 << 20));
    r->headline = json_incref(json_object_get(latest, "headline"));
    json_decref(latest);
}

static void ran_free(struct ran *r)
{
    mem_free(r->outcome.path);
    free(r->report);
    json_decref(r->headline);
}

static double number(const struct ran *r, const char *name, const char *key)
{
    const json_t *v = json_object_get(json_object_get(r->headline, name), key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static double value(const struct ran *r, const char *name)
{
    return number(r, name, "value");
}

static const char *member(const struct ran *r, const char *name, const char *key)
{
    return json_string_value(json_object_get(json_object_get(r->headline, name), key));
}

static const char *at(const struct ran *r, const char *text)
{
    const char *found = strstr(r->report, text);

    if (!found)
        fail_msg("\"%s\" is not in the report:\n%s", text, r->report);
    return found;
}

/* Of the smallest TTFT of a cell, as the record has it. */
static double ttft_of(const struct ran *r, const char *variant, int repeat)
{
    json_t *all = fixture_exported(r->outcome.path), *c;
    char key[64];
    double v = NAN;
    size_t i;

    snprintf(key, sizeof(key), "variant=%s repeat=%d", variant, repeat);
    json_array_foreach(json_object_get(all, "cells"), i, c)
    {
        const json_t *a = json_object_get(c, "attributes");
        const json_t *m = json_object_get(json_object_get(c, "summary"), "min_ttft_ms");

        if (strcmp(json_string_value(json_object_get(a, "key")), key) == 0)
            v = json_number_value(json_object_get(m, "value"));
    }
    json_decref(all);
    return v;
}

static double ratio_of(const struct ran *r, int repeat)
{
    return ttft_of(r, "slow", repeat) / ttft_of(r, "fast", repeat);
}

static void assert_near(double got, double want)
{
    if (!(fabs(got / want - 1) < 1e-12))
        fail_msg("got %.17g, wanted %.17g", got, want);
}

/* The scripted system is given two speeds; a programmed wait is a lower bound, so that the
 * slow one's numbers are at least these and the ratio is that of the values published. */
TEST(two_variants_and_a_missing_server)
{
    struct ran r;
    double fast, slow;

    run("two",
        "{\"about\": \"x\", \"repeats\": 2, \"system\": {\"adapter\": \"scripted\", "
        "\"ttft_ms\": 1}, \"dataset\": {\"n\": 4, \"max_prompt_tok\": 8, "
        "\"max_output_tok\": 2}, \"load\": {\"n_requests\": 3}, \"variants\": "
        "[{\"name\": "
        "\"fast\"}, {\"name\": \"slow\", \"system\": {\"ttft_ms\": 40}}, {\"name\": "
        "\"absent\", \"system\": {\"adapter\": \"openai_http\", \"system\": "
        "\"llama.cpp\", "
        "\"model\": \"m\", \"program\": \"/no/such/llama-server\"}}], \"headline\": ["
        "{\"name\": \"t\", \"metric\": \"min_ttft_ms\"}, "
        "{\"name\": \"slow_over_fast\", \"metric\": \"min_ttft_ms\", \"where\": "
        "{\"variant\": \"slow\"}, \"relative_to\": {\"variant\": \"fast\"}}, "
        "{\"name\": \"fast_over_absent\", \"metric\": \"min_ttft_ms\", \"where\": "
        "{\"variant\": \"fast\"}, \"relative_to\": {\"variant\": \"absent\"}}, "
        "{\"name\": \"same\", \"metric\": \"min_ttft_ms\", \"where\": {\"variant\": "
        "\"slow\"}, \"relative_to\": {\"variant\": \"slow\"}}]}",
        &r);
    assert_int_equal(r.outcome.n_done, 4);
    assert_int_equal(r.outcome.n_skipped, 2);
    assert_int_equal(r.outcome.n_failed, 0);
    assert_true(at(&r, "variant=fast repeat=0") < at(&r, "variant=slow repeat=0"));
    assert_true(at(&r, "variant=slow repeat=0") < at(&r, "variant=fast repeat=1"));
    at(&r,
       "skipped: variant=absent repeat=0 and others: /no/such/llama-server: not found, "
       "see \"install\" in ");
    assert_null(strstr(r.report, "same configuration"));
    fast = value(&r, "t variant=fast");
    slow = value(&r, "t variant=slow");
    assert_true(fast >= 1 && slow >= 40);
    assert_true(isnan(value(&r, "t variant=absent")));
    assert_near(value(&r, "slow_over_fast"), sqrt(ratio_of(&r, 0) * ratio_of(&r, 1)));
    assert_true(number(&r, "slow_over_fast", "lo") < value(&r, "slow_over_fast"));
    assert_true(number(&r, "slow_over_fast", "hi") > value(&r, "slow_over_fast"));
    at(&r, " (95 % interval ");
    assert_string_equal(member(&r, "slow_over_fast", "unit"), "x");
    assert_true(value(&r, "same") == 1);
    assert_true(number(&r, "same", "lo") == 1 && number(&r, "same", "hi") == 1);
    assert_true(number(&r, "t variant=fast", "lo") <= fast);
    assert_true(number(&r, "t variant=fast", "hi") >= fast);
    assert_true(isnan(value(&r, "fast_over_absent")));
    assert_non_null(strstr(member(&r, "fast_over_absent", "why"), "not found"));
    ran_free(&r);
}

/* By case: what two variants share in one, they need not share in another. */
TEST(equal_variants_are_reported)
{
    struct ran r;

    run("equal",
        "{\"about\": \"x\", \"system\": {\"adapter\": \"scripted\"}, \"dataset\": "
        "{\"n\": 2, "
        "\"max_prompt_tok\": 8, \"max_output_tok\": 2}, \"load\": {\"n_requests\": 1}, "
        "\"cases\": [{\"name\": \"p\"}, {\"name\": \"q\"}], \"variants\": ["
        "{\"name\": \"a\", \"system\": {\"configuration\": \"1 x 2\"}}, "
        "{\"name\": \"b\", \"system\": {\"configuration\": \"2 x 1\"}}, "
        "{\"name\": \"c\", \"system\": {\"configuration\": \"1 x 2\"}}, "
        "{\"name\": \"d\"}, {\"name\": \"e\"}]}",
        &r);
    assert_int_equal(r.outcome.n_done, 10);
    at(&r, "\nsame configuration: case=p a, c (1 x 2)\n");
    at(&r, "\nsame configuration: case=q a, c (1 x 2)\n");
    assert_null(strstr(r.report, ", d"));
    assert_null(strstr(r.report, "a, b"));
    ran_free(&r);
}

/* --- the A/A */

#define WITH_AA(repeats, headlines)                                                      \
    "{\"about\": \"x\", \"repeats\": " repeats ", \"aa\": \"fast\", \"system\": "        \
    "{\"adapter\": \"scripted\", \"ttft_ms\": 1, \"configuration\": \"1 x 2\"}, "        \
    "\"dataset\": {\"n\": 4, \"max_prompt_tok\": 8, \"max_output_tok\": 2}, \"load\": "  \
    "{\"n_requests\": 3}, \"variants\": [{\"name\": \"fast\"}, {\"name\": \"slow\", "    \
    "\"load\": {\"n_requests\": 6}, "                                                    \
    "\"system\": {\"ttft_ms\": 40, \"configuration\": \"2 x 1\"}}], \"headline\": "      \
    "[" headlines "]}"
#define OVER_FAST_OF(metric, name, where, more)                                          \
    "{\"name\": \"" name "\", \"metric\": \"" metric "\", \"where\": {\"variant\": "     \
    "\"" where "\"}, \"relative_to\": {\"variant\": \"fast\"}" more "}"
#define OVER_FAST(name, where, more) OVER_FAST_OF("min_ttft_ms", name, where, more)

/* |difference| + half the width of Student's interval, in the logarithm, from the record. */
static double detectable_of(const struct ran *r, size_t repeats)
{
    double x[8];

    for (size_t i = 0; i < repeats; i++)
        x[i] = log(ttft_of(r, "fast'", (int)i) / ttft_of(r, "fast", (int)i));
    return expm1(fabs(stats_mean(x, repeats)) + stats_mean_half95(x, repeats));
}

TEST(a_variant_runs_twice)
{
    struct ran r;
    double seen;

    run("aa",
        WITH_AA(
            "3",
            "{\"name\": \"t\", \"metric\": \"min_ttft_ms\"}, "
            "{\"name\": \"all\", \"metric\": \"max_ttft_ms\", \"over\": \"min\"}, "
            "{\"name\": \"both\", \"metric\": \"n_requests\", \"over\": "
            "\"sum\"}, " OVER_FAST("ratio", "slow", "") ", " OVER_FAST(
                "worst", "slow",
                ", \"over\": \"max\"") ", " OVER_FAST_OF("n_requests", "count", "slow",
                                                         "") ", " OVER_FAST("itself",
                                                                            "fast", "")),
        &r);
    assert_int_equal(r.outcome.n_done, 9);
    assert_true(at(&r, "variant=slow repeat=0") < at(&r, "variant=fast' repeat=0"));
    assert_true(at(&r, "variant=fast' repeat=0") < at(&r, "variant=fast repeat=1"));
    /* It is in no headline that does not name it, and not a system like another. */
    assert_null(member(&r, "t variant=fast'", "unit"));
    assert_true(value(&r, "t variant=fast") >= 1);
    assert_true(value(&r, "both") == 9);
    assert_null(strstr(r.report, "same configuration"));
    /* By repeats alone, and with requests, of which the wider counts. */
    seen = detectable_of(&r, 3);
    assert_near(number(&r, "worst", "detectable_frac"), seen);
    assert_true(number(&r, "ratio", "detectable_frac") > seen * (1 - 1e-9));
    assert_true(isnan(number(&r, "t variant=slow", "detectable_frac")));
    /* Of what no clock decides: twice as much, of which an A/A sees the least difference. */
    at(&r, "count: 2 x (95 % interval 2 to 2) (detectable from 0 %)");
    at(&r, "itself: 1 x (95 % interval 1 to 1) (not detectable, which begins at ");
    ran_free(&r);
}

static void assert_cell(const json_t *cell, const char *key)
{
    const json_t *attributes = json_object_get(cell, "attributes");
    const json_t *n = json_object_get(json_object_get(cell, "summary"), "n_completed");

    assert_string_equal(json_str_at(attributes, "key", ""), key);
    assert_true(json_number_value(json_object_get(n, "value")) == 2);
}

/* The script answers the first request that it gets with a token too few, so that each cell has
 * one such if it had a system of its own. All three are equal: one would do for the next. */
TEST(variants_change_turns_and_start_anew)
{
    static const char *const keys[] = {
        "variant=fast repeat=0",  "variant=twin repeat=0",  "variant=fast' repeat=0",
        "variant=fast' repeat=1", "variant=twin repeat=1",  "variant=fast repeat=1",
        "variant=twin repeat=2",  "variant=fast' repeat=2", "variant=fast repeat=2",
    };
    json_t *all, *cell;
    struct ran r;
    size_t i;

    run("turns",
        "{\"about\": \"x\", \"repeats\": 3, \"aa\": \"fast\", \"system\": "
        "{\"adapter\": \"scripted\", \"short_request\": 0}, \"dataset\": {\"n\": 4, "
        "\"max_prompt_tok\": 8, \"max_output_tok\": 2}, \"load\": {\"n_requests\": 3}, "
        "\"variants\": [{\"name\": \"fast\"}, {\"name\": \"twin\"}]}",
        &r);
    all = fixture_exported(r.outcome.path);
    assert_int_equal(json_array_size(json_object_get(all, "cells")), 9);
    json_array_foreach(json_object_get(all, "cells"), i, cell) assert_cell(cell, keys[i]);
    json_decref(all);
    ran_free(&r);
}

TEST(an_aa_whose_variant_does_not_run)
{
    struct ran r;

    run("aa_absent",
        "{\"about\": \"x\", \"repeats\": 2, \"aa\": \"c\", \"variant\": [\"a\", \"b\"], "
        "\"system\": {\"adapter\": \"scripted\", \"ttft_ms\": 1}, \"dataset\": {\"n\": "
        "4, "
        "\"max_prompt_tok\": 8, \"max_output_tok\": 2}, \"load\": {\"n_requests\": 3}, "
        "\"variants\": [{\"name\": \"a\"}, {\"name\": \"b\"}, {\"name\": \"c\"}], "
        "\"headline\": [{\"name\": \"ratio\", \"metric\": \"min_ttft_ms\", \"where\": "
        "{\"variant\": \"b\"}, \"relative_to\": {\"variant\": \"a\"}}]}",
        &r);
    assert_int_equal(r.outcome.n_done, 4);
    assert_true(value(&r, "ratio") > 0);
    assert_string_equal(member(&r, "ratio", "detectable_why"),
                        "the variant of the A/A does not run");
    ran_free(&r);
}

TEST(an_aa_that_knows_nothing)
{
    struct ran r;

    run("aa_once", WITH_AA("1", OVER_FAST("ratio", "slow", "")), &r);
    assert_true(isnan(number(&r, "ratio", "detectable_frac")));
    assert_string_equal(member(&r, "ratio", "detectable_why"),
                        "an A/A needs two repeats");
    at(&r, " (detectable: n/a, an A/A needs two repeats)");
    ran_free(&r);
}

/* --- requests in turn */

#define PAIRED(variants, system, headlines)                                              \
    "{\"about\": \"x\", \"pairing\": \"request\", \"aa\": \"fast\", \"system\": "        \
    "{\"adapter\": \"scripted\", \"ttft_ms\": 1" system "}, \"dataset\": {\"n\": 8, "    \
    "\"max_prompt_tok\": 8, \"max_output_tok\": 2}, \"load\": {\"n_requests\": 23, "     \
    "\"warmup_requests\": 2, \"timeout_s\": 2}, \"variants\": [" variants "], "          \
    "\"headline\": [" headlines "]}"
#define FAST_AND_SLOW                                                                    \
    "{\"name\": \"absent\", \"system\": {\"adapter\": \"openai_http\", \"system\": "     \
    "\"llama.cpp\", \"model\": \"m\", \"program\": \"/no/such/llama-server\"}}, "        \
    "{\"name\": \"fast\"}, {\"name\": \"slow\", \"system\": {\"ttft_ms\": 3}}"
#define SLOW_OVER_FAST(metric)                                                           \
    "{\"name\": \"" metric "\", \"metric\": \"" metric "\", \"where\": {\"variant\": "   \
    "\"slow\"}, \"relative_to\": {\"variant\": \"fast\"}}"

enum { N_PAIRED = 25, N_WARMUP = 2 };

/* With every request and series. */
static json_t *all_of(const struct ran *r)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    json_t *all;

    assert_ok(export_print(r->outcome.path, EXPORT_JSON_FULL, f));
    fclose(f);
    assert_ok(json_read_text(&all, text, n, "export"));
    free(text);
    return all;
}

/* The cell of a variant in the record. */
static const json_t *cell_of(const json_t *all, const char *variant)
{
    const json_t *cells = json_object_get(all, "cells");

    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        char key[64];

        snprintf(key, sizeof(key), "variant=%s repeat=0", variant);
        if (strcmp(key, json_str_at(json_object_get(c, "attributes"), "key", "")) == 0)
            return c;
    }
    fail_msg("no cell of %s", variant);
    return NULL;
}

static double column(const json_t *cell, const char *name, size_t i)
{
    const json_t *c = json_object_get(json_object_get(cell, "requests"), name);

    assert_int_equal(json_array_size(c), N_PAIRED);
    return json_number_value(json_array_get(c, i));
}

static double turn_s(const json_t *cell, size_t i)
{
    const json_t *series = json_object_get(json_object_get(cell, "series"), "turn_s");

    return json_number_value(json_array_get(json_object_get(series, "v"), i));
}

/* The time of an entry goes on in its own turns only. */
static void check_own_clock(const json_t *cell)
{
    assert_true(column(cell, "intended_ns", 0) == 0);
    for (size_t i = 1; i < N_PAIRED; i++)
        assert_true(column(cell, "intended_ns", i) == column(cell, "done_ns", i - 1));
}

/* By the columns: the median of the pairs without the warm-up, which is one of them. */
static double paired_ttft(const json_t *fast, const json_t *slow)
{
    double logs[N_PAIRED / 2];
    size_t n = 0;

    for (size_t i = N_WARMUP; i + 1 < N_PAIRED; i += 2) {
        logs[n] = 0;
        for (size_t k = i; k < i + 2; k++)
            logs[n] +=
                log(column(slow, "first_token_ns", k) - column(slow, "intended_ns", k)) -
                log(column(fast, "first_token_ns", k) - column(fast, "intended_ns", k));
        logs[n++] /= 2;
    }
    return exp(stats_median(logs, n));
}

TEST(requests_are_served_in_turn)
{
    static const char *const names[] = {"fast", "slow", "fast'"};
    const json_t *cells[3], *attributes;
    struct ran r;
    json_t *all;

    run("paired",
        PAIRED(FAST_AND_SLOW, "",
               SLOW_OVER_FAST("mean_ttft_ms") ", " SLOW_OVER_FAST("max_ttft_ms")),
        &r);
    assert_int_equal(r.outcome.n_done, 3);
    assert_int_equal(r.outcome.n_skipped, 1);
    all = all_of(&r);
    for (int k = 0; k < 3; k++)
        check_own_clock(cells[k] = cell_of(all, names[k]));
    /* A B C, C B A, B C A, A C B, C A B, B A C, and again */
    for (size_t i = 0; i < N_PAIRED; i++)
        for (int turn = 0; turn < 3; turn++) {
            size_t next = turn < 2 ? i : i + 1;
            int now = compare_turn((int64_t)i, turn, 3);
            int then = compare_turn((int64_t)next, (turn + 1) % 3, 3);

            if (next < N_PAIRED)
                assert_true(turn_s(cells[now], i) < turn_s(cells[then], next));
        }
    assert_near(value(&r, "mean_ttft_ms"), paired_ttft(cells[0], cells[1]));
    assert_true(number(&r, "mean_ttft_ms", "lo") <= value(&r, "mean_ttft_ms"));
    assert_true(number(&r, "mean_ttft_ms", "detectable_frac") >= 0); /* of one repeat */
    attributes = json_object_get(cells[1], "attributes");
    assert_string_equal(json_str_at(attributes, "pairing.by", ""), "request");
    assert_true(json_f64_at(attributes, "pairing.idle_s") > 0.02);
    assert_null(json_object_get(attributes, "pairing.idle_cpu_s"));
    /* of no single request: as without pairs */
    assert_near(
        value(&r, "max_ttft_ms"),
        json_f64_at(json_object_get(json_object_get(cells[1], "summary"), "max_ttft_ms"),
                    "value") /
            json_f64_at(
                json_object_get(json_object_get(cells[0], "summary"), "max_ttft_ms"),
                "value"));
    json_decref(all);
    ran_free(&r);
}

/* It is canceled after its time; the others go on. */
TEST(a_request_in_turn_that_hangs)
{
    struct ran r;
    json_t *all;

    run("hangs",
        PAIRED("{\"name\": \"fast\"}, {\"name\": \"slow\", \"system\": "
               "{\"hang_request\": 3}}",
               "", SLOW_OVER_FAST("mean_ttft_ms")),
        &r);
    assert_int_equal(r.outcome.n_done, 3);
    all = all_of(&r);
    for (size_t i = 0; i < N_PAIRED; i++)
        assert_true(turn_s(cell_of(all, "slow"), i) >= 0);
    assert_true(
        json_f64_at(json_object_get(json_object_get(cell_of(all, "slow"), "summary"),
                                    "n_timeout"),
                    "value") >= 1);
    check_own_clock(cell_of(all, "slow"));
    assert_true(value(&r, "mean_ttft_ms") > 0);
    json_decref(all);
    ran_free(&r);
}

/* --- searches on one ladder of rates */

/* `fast` keeps up with all rates, and `never` takes longer than the objective even alone. */
#define LADDER                                                                           \
    "{\"about\": \"x\", \"pairing\": \"rate\", \"aa\": \"fast\", \"system\": "           \
    "{\"adapter\": \"scripted\", \"slots\": 1, \"ttft_ms\": 1}, \"dataset\": {\"n\": "   \
    "50, \"max_prompt_tok\": 8, \"max_output_tok\": 1}, \"load\": {\"process\": "        \
    "\"poisson\", \"rate_rps\": 50, \"n_requests\": 20, \"timeout_s\": 2}, \"slo\": "    \
    "{\"ttft_ms\": 400}, \"search\": {\"goodput\": true, \"min_rps\": 25, \"max_rps\": " \
    "110, \"precision_frac\": 1, \"requests\": 40, \"trial_s\": 0}, \"variants\": ["     \
    "{\"name\": \"fast\"}, {\"name\": \"never\", \"system\": {\"ttft_ms\": 401, "        \
    "\"slots\": 64}}, "                                                                  \
    "{\"name\": \"absent\", \"system\": {\"adapter\": \"openai_http\", \"system\": "     \
    "\"llama.cpp\", \"model\": \"m\", \"program\": \"/no/such/llama-server\"}}], "       \
    "\"headline\": [" RATIO("over", "fast", "never") ", " RATIO(                         \
        "under", "never",                                                                \
        "fast") ", " RATIO("equal", "fast",                                              \
                           "fast'") ", " RATIO("of_absent", "fast",                      \
                                               "absent") ", {\"name\": \"g\", "          \
                                                         "\"metric\": "                  \
                                                         "\"goodput_rps\", \"where\": "  \
                                                         "{\"variant\": \"never\"}}]}"
#define RATIO(name, of, to)                                                              \
    "{\"name\": \"" name                                                                 \
    "\", \"metric\": \"goodput_rps\", \"where\": {\"variant\": \"" of                    \
    "\"}, \"relative_to\": {\"variant\": \"" to "\"}}"

/* The trials of a cell. */
static size_t trials_of(const json_t *all, const char *variant, const json_t **out,
                        size_t max)
{
    const json_t *cells = json_object_get(all, "cells");
    char key[64];
    size_t n = 0;

    snprintf(key, sizeof(key), "variant=%s repeat=0", variant);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i), *a = json_object_get(c, "attributes");

        if (strcmp(json_str_at(a, "trial.of", ""), key) == 0 && n < max)
            out[n++] = c;
    }
    return n;
}

static double setting(const json_t *cell, const char *name)
{
    return json_f64_at(json_object_get(cell, "attributes"), name);
}

/* Trials of the same block have the same arrivals and seeds, whoever serves them. */
static void check_same_arrivals(const json_t *a, const json_t *b)
{
    static const char *const seeds[] = {"seeds.arrival", "seeds.sample", "seeds.order",
                                        "seeds.output", "dataset.seed"};
    const json_t *x = json_object_get(json_object_get(a, "requests"), "intended_ns");
    const json_t *y = json_object_get(json_object_get(b, "requests"), "intended_ns");

    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
        assert_true(setting(a, seeds[i]) == setting(b, seeds[i]));
    assert_true(json_equal(x, y) && json_array_size(x) == 20);
}

TEST(rates_are_tried_in_turn)
{
    const json_t *fast[64], *again[64], *never[64];
    size_t n_fast, n_again, n_never, n_equal = 0;
    const json_t *attributes;
    struct ran r;
    json_t *all, *faults;

    run("ladder", LADDER, &r);
    assert_int_equal(r.outcome.n_done, 3);
    assert_int_equal(r.outcome.n_skipped, 1);
    /* 25, 50, 100: the least is the bound of what holds, the lowest of what fails */
    assert_true(isnan(value(&r, "over")) && number(&r, "over", "at_least") >= 1);
    assert_true(number(&r, "over", "at_least") <= 4);
    assert_string_equal(member(&r, "g", "why"),
                        "never: the objectives fail at the lowest rate, 25 req/s");
    assert_string_equal(member(&r, "over", "why"), member(&r, "g", "why"));
    assert_near(number(&r, "under", "at_most") * number(&r, "over", "at_least"), 1);
    assert_true(isnan(number(&r, "under", "at_least")));
    assert_true(isnan(value(&r, "g")) && number(&r, "g", "at_most") == 25);
    assert_true(isnan(number(&r, "of_absent", "at_least")));
    assert_true(isnan(number(&r, "of_absent", "at_most")));
    assert_non_null(strstr(member(&r, "of_absent", "why"), "absent: /no/such/llama"));
    at(&r, "over: > ");
    at(&r, "g: < 25 req/s (never: the objectives fail at the lowest rate, 25 req/s)");

    all = all_of(&r);
    n_fast = trials_of(all, "fast", fast, 64);
    n_again = trials_of(all, "fast'", again, 64);
    n_never = trials_of(all, "never", never, 64);
    assert_true(n_fast >= 2 && n_again >= 2 && n_never >= 2);
    for (size_t i = 0; i < n_fast; i++)
        for (size_t k = 0; k < n_again; k++)
            if (setting(fast[i], "trial.rate_rps") ==
                    setting(again[k], "trial.rate_rps") &&
                setting(fast[i], "trial.seed") == setting(again[k], "trial.seed")) {
                check_same_arrivals(fast[i], again[k]);
                n_equal++;
            }
    assert_true(n_equal >= 2);
    /* the first block: A B C, before anybody has a second one */
    assert_true(setting(fast[0], "trial.turn") < 3 &&
                setting(never[0], "trial.turn") < 3 &&
                setting(again[0], "trial.turn") < 3);
    attributes = json_object_get(cell_of(all, "never"), "attributes");
    assert_string_equal(json_str_at(attributes, "pairing.by", ""), "rate");
    assert_true(json_f64_at(attributes, "pairing.idle_s") > 0);
    json_decref(all);
    assert_ok(export_verify(&faults, r.outcome.path));
    assert_int_equal(json_array_size(json_object_get(faults, "faults")), 0);
    json_decref(faults);
    ran_free(&r);
}
