/* Every experiment we ship can be read, whole and as a smoke run, and says what an
 * experiment must say; its headlines speak of cells that exist. */
#include <ctype.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/name.h"
#include "experiments/job/job.h"
#include "experiments/metrics/metrics.h"
#include "experiments/report/coverage.h"
#include "tests/support/test.h"

static void check(const char *path, bool smoke)
{
    struct job_read_opts o = {.smoke = smoke};
    bool chosen[1024];
    struct job *j;

    assert_ok(job_read(&j, path, &o));
    assert_non_null(j->head.about);
    assert_non_null(j->head.expect);
    assert_true(!j->claim.text ==
                !j->claim.paper); /* without: the testbed's own question */
    assert_true(json_array_size(j->needs) > 0);
    assert_true(j->cost.minutes > 0 && j->cost.disk_mb > 0);
    assert_true(j->n_cells > 0 && j->n_cells <= 1024);
    assert_true(smoke || j->n_headlines > 0);
    for (int i = 0; i < j->n_headlines; i++) {
        const struct job_headline *h = &j->headlines[i];
        char why[96];

        if (job_headline_cells(j, h, chosen) == 0)
            fail_msg("%s%s: headline %s speaks of no cell", path, smoke ? " (smoke)" : "",
                     h->name);
        /* what reads a record has only the headline's name */
        if (!h->relative_to && metrics_exceeds_bound(h->metric, "", 2, why) !=
                                   metrics_exceeds_bound(h->name, "", 2, why))
            fail_msg("%s: %s does not say that it is a share of a bound, as %s does",
                     path, h->name, h->metric);
    }
    job_free(&j);
}

TEST(shipped)
{
    glob_t g;

    assert_int_equal(glob("experiments/*.json", 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= 4);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        check(g.gl_pathv[i], false);
        check(g.gl_pathv[i], true);
    }
    globfree(&g);
}

/* What compares systems runs one of them twice, in repeats or pairs that can show the noise. */
TEST(comparisons_have_an_aa)
{
    static const char *const names[] = {"fig09_slo_scale",   "fig10_ttft",
                                        "fig11_throughput",  "fig12_goodput",
                                        "fig13_latency_cdf", "mnn_vs_engines"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[128];
        struct job *j;
        int n_ratios = 0;

        snprintf(path, sizeof(path), "experiments/%s.json", names[i]);
        assert_ok(job_read(&j, path, NULL));
        assert_non_null(j->again);
        assert_true(j->head.repeats >= 3 || j->head.pairing);
        for (int k = 0; k < j->n_headlines; k++)
            n_ratios += json_object_get(j->headlines[k].relative_to, "variant") != NULL;
        assert_true(n_ratios > 0);
        job_free(&j);
    }
}

/* --- the papers' printed numbers */

/* How many figures and tables each paper numbers; Roman numerals are those of its tables. */
static const struct paper {
    const char *file;
    int n_figures, n_tables;
    bool is_roman;
} papers[] = {
    {"sandwich", 14, 4, false}, {"mnn_llm", 0, 1, true},   {"odma", 5, 0, false},
    {"splitwise", 20, 6, true}, {"scheinfer", 7, 1, true},
};

static const char *text_at(const char *path, const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    if (!s || !*s)
        fail_msg("%s: a place or value has no \"%s\"", path, key);
    return s;
}

/* Its name is new in `names`, which it joins. */
static void check_once(const char *path, json_t *names, const char *name)
{
    if (json_object_get(names, name))
        fail_msg("%s: %s is there twice", path, name);
    assert_int_equal(json_object_set_new(names, name, json_true()), 0);
}

static void check_value(const char *path, const char *where, const json_t *v,
                        json_t *names)
{
    static const char *const keys[] = {"metric", "unit", "value", "at", "read_off", NULL};
    const json_t *value = json_object_get(v, "value"), *at = json_object_get(v, "at"), *e;
    json_t *name =
        json_pack("{s:O, s:O?}", "metric", json_object_get(v, "metric"), "at", at);
    char *text = json_dumps(name, JSON_COMPACT | JSON_SORT_KEYS);
    size_t i;

    assert_ok(json_check_keys(v, keys, where));
    text_at(path, v, "metric");
    assert_true(json_is_string(json_object_get(v, "unit")));
    assert_true(json_is_number(value) || json_array_size(value) > 0);
    json_array_foreach(value, i, e) assert_true(json_is_number(e));
    assert_true(!at || json_object_size(at) > 0);
    assert_non_null(text);
    check_once(path, names, text);
    free(text);
    json_decref(name);
}

/* A place has values, or says why not; what does not add up is a sentence. */
static void check_place(const char *path, const json_t *p)
{
    static const char *const keys[] = {"where",  "what",      "machine", "source",
                                       "values", "no_values", "slips",   NULL};
    const json_t *values = json_object_get(p, "values"),
                 *slips = json_object_get(p, "slips");
    const char *where = text_at(path, p, "where");
    json_t *names = json_object(), *v;
    size_t i;

    assert_ok(json_check_keys(p, keys, where));
    text_at(path, p, "what");
    if ((json_array_size(values) > 0) == json_is_string(json_object_get(p, "no_values")))
        fail_msg("%s: %s: expected \"values\" or \"no_values\"", path, where);
    json_array_foreach(values, i, v) check_value(path, where, v, names);
    json_array_foreach(slips, i, v) assert_true(json_string_length(v) > 20);
    assert_true(!slips || json_array_size(slips) > 0);
    json_decref(names);
}

static void check_numbered(const char *path, const json_t *names, const struct paper *p)
{
    static const char *const roman[] = {"I", "II", "III", "IV", "V", "VI"};
    char name[32];

    for (int i = 1; i <= p->n_figures; i++) {
        snprintf(name, sizeof(name), "Fig. %d", i);
        if (!json_object_get(names, name))
            fail_msg("%s: %s is missing", path, name);
    }
    for (int i = 1; i <= p->n_tables; i++) {
        if (p->is_roman)
            snprintf(name, sizeof(name), "Table %s", roman[i - 1]);
        else
            snprintf(name, sizeof(name), "Table %d", i);
        if (!json_object_get(names, name))
            fail_msg("%s: %s is missing", path, name);
    }
}

/* Every figure and table of every paper is there, once, and every number once. */
TEST(reference_numbers)
{
    for (size_t i = 0; i < sizeof(papers) / sizeof(papers[0]); i++) {
        char path[64];
        json_t *root, *place, *names = json_object();
        const json_t *places;
        size_t k;

        snprintf(path, sizeof(path), "results/reference/%s.json", papers[i].file);
        assert_ok(json_read_file(&root, path, 1 << 20));
        text_at(path, root, "about");
        text_at(path, root, "paper");
        text_at(path, root, "short");
        assert_ok(json_get_arr(root, "places", &places, path));
        json_array_foreach(places, k, place)
        {
            check_place(path, place);
            check_once(path, names, text_at(path, place, "where"));
        }
        check_numbered(path, names, &papers[i]);
        json_decref(names);
        json_decref(root);
    }
}

/* --- what is claimed of the papers */

static bool is_printed(const json_t *root, double v)
{
    json_t *place, *value, *one;
    size_t i, k, l;

    json_array_foreach(json_object_get(root, "places"), i, place)
        json_array_foreach(json_object_get(place, "values"), k, value)
    {
        const json_t *x = json_object_get(value, "value");

        if (json_is_number(x) && json_number_value(x) == v)
            return true;
        json_array_foreach(x, l, one) if (json_number_value(one) == v) return true;
    }
    return false;
}

/* Is it the number of a machine or a model? */
static bool is_name(const char *text, const char *p)
{
    static const char *const before[] = {"Kunpeng ", "Xeon ", "Llama "};

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        size_t n = strlen(before[i]);

        if ((size_t)(p - text) >= n && strncmp(p - n, before[i], n) == 0)
            return true;
    }
    return false;
}

/* Every number with a point, and every one of three digits, that stands by itself in a claim's
 * text is one that the paper prints. Shorter ones are also counts and types. */
static int check_numbers(const char *where, const char *text, const json_t *reference)
{
    int n = 0;

    for (const char *p = text; *p; p++) {
        bool begins =
            isdigit((unsigned char)*p) && (p == text || strchr(" (,", p[-1]) != NULL);
        char *end;
        double v;

        if (!begins)
            continue;
        v = strtod(p, &end);
        if ((memchr(p, '.', (size_t)(end - p)) || end - p >= 3) &&
            !isalpha((unsigned char)*end) && !is_name(text, p)) {
            if (!is_printed(reference, v))
                fail_msg("%s: the paper's reference does not have %.*s, in \"%s\"", where,
                         (int)(end - p), p, text);
            n++;
        }
        p = end - 1;
    }
    return n;
}

static int check_claim(const char *where, const char *paper, const char *text)
{
    static const char *const names[][2] = {
        {"Sandwich", "sandwich"},
        {"MNN-LLM", "mnn_llm"},
        {"ODMA", "odma"},
        {"Splitwise", "splitwise"},
        {"ScheInfer", "scheinfer"},
        {"Azure LLM inference trace (Splitwise)", "splitwise"}};
    char path[64];
    json_t *root;
    int n;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(paper, names[i][0]) == 0) {
            snprintf(path, sizeof(path), "results/reference/%s.json", names[i][1]);
            assert_ok(json_read_file(&root, path, 1 << 20));
            n = check_numbers(where, text, root);
            json_decref(root);
            return n;
        }
    fail_msg("%s: no reference of the paper \"%s\"", where, paper);
    return 0;
}

TEST(claims_print_reference_numbers)
{
    json_t *root, *c;
    size_t i;
    glob_t g;
    int n = 0;

    assert_ok(json_read_file(&root, "results/claims.json", 1 << 20));
    json_array_foreach(json_object_get(root, "claims"), i, c) n +=
        check_claim(text_at("claims.json", c, "name"), text_at("claims.json", c, "paper"),
                    text_at("claims.json", c, "text"));
    json_decref(root);
    assert_int_equal(glob("experiments/*.json", 0, NULL, &g), 0);
    for (i = 0; i < g.gl_pathc; i++) {
        assert_ok(json_read_file(&root, g.gl_pathv[i], 1 << 20));
        c = json_object_get(root, "claim");
        if (c)
            n += check_claim(g.gl_pathv[i], text_at(g.gl_pathv[i], c, "paper"),
                             text_at(g.gl_pathv[i], c, "text"));
        json_decref(root);
    }
    globfree(&g);
    assert_true(n > 60);
}

/* --- what is tested of the papers */

static bool is_in(const json_t *list, const char *text)
{
    json_t *e;
    size_t i;

    json_array_foreach(list, i,
                       e) if (strcmp(json_string_value(e), text) == 0) return true;
    return false;
}

static bool in_a_row(const json_t *rows, const char *experiment)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows, i, row) if (is_in(json_object_get(row, "experiments"),
                                               experiment)) return true;
    return false;
}

static void check_experiments_exist(const json_t *row)
{
    json_t *e;
    size_t k;

    json_array_foreach(json_object_get(row, "experiments"), k, e)
    {
        char path[128];

        snprintf(path, sizeof(path), "experiments/%s.json", json_string_value(e));
        if (access(path, R_OK) != 0)
            fail_msg("coverage.json: there is no %s", path);
    }
}

/* The first place of a paper's reference that has no row; NULL: each has one. */
static const char *place_without_row(const json_t *reference, const json_t *rows,
                                     const char *paper)
{
    json_t *place, *row;
    size_t i, k;

    json_array_foreach(json_object_get(reference, "places"), i, place)
    {
        const char *where = json_string_value(json_object_get(place, "where"));

        json_array_foreach(
            rows, k, row) if (strcmp(json_string_value(json_object_get(row, "paper")),
                                     paper) == 0 &&
                              strcmp(json_string_value(json_object_get(row, "where")),
                                     where) == 0) break;
        if (k == json_array_size(rows))
            return where;
    }
    return NULL;
}

/* The rows of one paper: its name there, and in the names of files. Returns how many. */
static size_t check_coverage(const json_t *rows, const char *name, const struct paper *p)
{
    json_t *reference, *row, *names = json_object();
    char path[128];
    size_t i, n;

    json_array_foreach(rows, i, row)
    {
        if (strcmp(text_at("coverage.json", row, "paper"), name) != 0)
            continue;
        check_once("coverage.json", names, text_at("coverage.json", row, "where"));
        check_experiments_exist(row);
    }
    n = json_object_size(names);
    check_numbered("coverage.json", names, p);
    snprintf(path, sizeof(path), "results/reference/%s.json", p->file);
    assert_ok(json_read_file(&reference, path, 1 << 20));
    if (place_without_row(reference, rows, name))
        fail_msg("coverage.json: no row of %s, %s, which is in %s", name,
                 place_without_row(reference, rows, name), path);
    json_array_foreach(json_object_get(reference, "places"), i, row)
        json_object_del(names, text_at(path, row, "where"));
    if (json_object_size(names) > 0)
        fail_msg("coverage.json: %s is not in %s",
                 json_object_iter_key(json_object_iter(names)), path);
    json_decref(names);
    json_decref(reference);
    return n;
}

/* Every experiment about a paper is in a row. */
static void check_all_in_rows(const json_t *rows, const char *const *names)
{
    glob_t g;

    assert_int_equal(glob("experiments/*.json", 0, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char stem[128];
        json_t *job;
        const json_t *claim;

        assert_ok(json_read_file(&job, g.gl_pathv[i], 1 << 20));
        claim = json_object_get(job, "claim");
        snprintf(stem, sizeof(stem), "%s", strrchr(g.gl_pathv[i], '/') + 1);
        *strrchr(stem, '.') = '\0';
        if (claim && name_index(names, text_at(stem, claim, "paper")) >= 0 &&
            !in_a_row(rows, stem))
            fail_msg("coverage.json: %s is in no row", stem);
        json_decref(job);
    }
    globfree(&g);
}

/* Every place of every paper's reference has a row, and every experiment about one is in one. */
TEST(coverage_follows_the_experiments)
{
    static const char *const names[] = {"Sandwich",  "MNN-LLM",   "ODMA",
                                        "Splitwise", "ScheInfer", NULL};
    struct coverage c;
    const json_t *rows;
    size_t n = 0;

    assert_ok(coverage_read(&c, "results/coverage.json"));
    rows = json_object_get(c.root, "rows");
    for (int i = 0; names[i]; i++)
        n += check_coverage(rows, names[i], &papers[i]);
    assert_int_equal(json_array_size(rows), n); /* none is of another paper */
    check_all_in_rows(rows, names);
    coverage_fini(&c);
}

/* Of a reference with one more place that one is found. */
TEST(a_place_without_a_row_is_found)
{
    struct coverage c;
    json_t *reference;

    assert_ok(coverage_read(&c, "results/coverage.json"));
    assert_ok(json_read_file(&reference, "results/reference/splitwise.json", 1 << 20));
    json_array_append_new(json_object_get(reference, "places"),
                          json_pack("{s:s}", "where", "Sec. IV-Z"));
    assert_string_equal(
        place_without_row(reference, json_object_get(c.root, "rows"), "Splitwise"),
        "Sec. IV-Z");
    json_decref(reference);
    coverage_fini(&c);
}

static bool is_published(const char *experiment)
{
    char pattern[256];
    glob_t g;
    int rc;

    snprintf(pattern, sizeof(pattern), "results/published/*/%s/*.h5.xz", experiment);
    rc = glob(pattern, 0, NULL, &g);
    globfree(&g);
    return rc == 0;
}

/* Every experiment has a published record, or says why not. */
TEST(a_missing_record_has_a_reason)
{
    glob_t g;

    assert_int_equal(glob("experiments/*.json", 0, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        struct job *j;

        assert_ok(job_read(&j, g.gl_pathv[i], NULL));
        if (is_published(j->stem) == (j->head.published != NULL))
            fail_msg("%s: published: %s", g.gl_pathv[i],
                     j->head.published ? "it has a record" : "no record and no reason");
        job_free(&j);
    }
    globfree(&g);
}
