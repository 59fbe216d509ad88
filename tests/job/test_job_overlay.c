/* Cases and variants: named settings that are axes. */
#include "tests/job/jobs.h"

#define HEAD                                                                             \
    "{\"about\": \"a test\", \"system\": {\"adapter\": \"scripted\", \"ttft_ms\": 5}, "

static struct job *job_with(const char *text, const struct job_read_opts *o)
{
    struct job *j = NULL;
    json_t *root;

    assert_ok(json_read_text(&root, text, strlen(text), "test"));
    assert_ok(job_from_json(&j, root, "t", "t.json", o));
    json_decref(root);
    return j;
}

static void refuse_with(const char *extra, const char *set, const char *part)
{
    char text[2048], word[256], *sets[] = {word};
    const struct job_read_opts o = {.sets = sets, .n_sets = set ? 1 : 0};
    struct job *j = NULL;
    json_t *root;
    int rc;

    snprintf(text, sizeof(text), HEAD "%s}", extra);
    snprintf(word, sizeof(word), "%s", set ? set : "");
    assert_ok(json_read_text(&root, text, strlen(text), "test"));
    rc = job_from_json(&j, root, "t", "t.json", &o);
    assert_null(j);
    if (rc == OK || !strstr(err_msg(), part) || strncmp(err_msg(), "t.json: ", 8) != 0)
        fail_msg("{%s} --set %s: got %s \"%s\", wanted \"t.json: ... %s\"", extra,
                 set ? set : "-", err_name(rc), err_msg(), part);
    json_decref(root);
}

static void refuse(const char *extra, const char *part)
{
    refuse_with(extra, NULL, part);
}

static double number(const struct job *j, int cell, const char *section, const char *key)
{
    return json_number_value(
        json_object_get(json_object_get(j->cells[cell].settings, section), key));
}

static bool has(const struct job *j, int cell, const char *key)
{
    return json_object_get(json_object_get(j->cells[cell].settings, "system"), key);
}

#define BOTH                                                                             \
    "\"cases\": [{\"name\": \"small\", \"load\": {\"n_requests\": 90}, \"slo\": "        \
    "{\"ttft_ms\": 200}}, {\"name\": \"large\", \"load\": {\"n_requests\": 10}}], "      \
    "\"variants\": [{\"name\": \"ours\"}, {\"name\": \"slow\", \"system\": "             \
    "{\"ttft_ms\": "                                                                     \
    "9}}, {\"name\": \"other\", \"system\": {\"adapter\": \"null\"}}]"

TEST(cells_are_cases_by_axes_by_variants)
{
    static const char *const keys[] = {
        "case=small dataset.fit=lmsys variant=ours repeat=0",
        "case=small dataset.fit=lmsys variant=slow repeat=0",
        "case=small dataset.fit=lmsys variant=other repeat=0",
        "case=small dataset.fit=sharegpt variant=ours repeat=0",
    };
    struct job *j = job_with(
        HEAD BOTH ", \"dataset\": {\"fit\": [\"lmsys\", \"sharegpt\"]}, \"repeats\": 2}",
        NULL);

    assert_int_equal(j->n_cells, 24);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_string_equal(j->cells[i].key, keys[i]);
    assert_string_equal(j->cells[6].key,
                        "case=large dataset.fit=lmsys variant=ours repeat=0");
    assert_string_equal(j->cells[12].key,
                        "case=small dataset.fit=lmsys variant=ours repeat=1");
    assert_string_equal(j->cells[1].label, "case=small fit=lmsys variant=slow repeat=0");
    assert_true(number(j, 1, "load", "n_requests") == 90);
    assert_true(number(j, 7, "load", "n_requests") == 10);
    assert_true(number(j, 1, "slo", "ttft_ms") == 200);
    assert_true(number(j, 7, "slo", "ttft_ms") == 0);
    assert_true(number(j, 0, "system", "ttft_ms") == 5);
    assert_true(number(j, 1, "system", "ttft_ms") == 9);
    assert_int_equal(json_array_size(json_object_get(j->resolved, "variants")), 3);
    assert_int_equal(json_array_size(json_object_get(j->resolved, "cases")), 2);
    job_free(&j);
}

/* An adapter of its own takes the options that it has, and the others' are not its error. */
TEST(an_adapter_takes_its_own_options)
{
    struct job *j = job_with(
        "{\"about\": \"x\", \"system\": {\"adapter\": \"scripted\", \"ttft_ms\": 5, "
        "\"vocab\": 77}, \"variants\": [{\"name\": \"a\"}, {\"name\": \"b\", \"system\": "
        "{\"adapter\": \"null\"}}]}",
        NULL);

    assert_true(has(j, 0, "ttft_ms"));
    assert_true(!has(j, 1, "ttft_ms"));
    assert_true(number(j, 1, "system", "vocab") == 77);
    job_free(&j);
    refuse("\"variants\": [{\"name\": \"b\", \"system\": {\"adapter\": \"null\", "
           "\"ttft_ms\": 1}}]",
           "variant b: system: unknown key \"ttft_ms\"");
    refuse_with("\"variants\": [{\"name\": \"b\", \"system\": {\"adapter\": \"null\"}}]",
                "system.ttfd_ms=1", "variant b: system: unknown key \"ttfd_ms\"");
    refuse_with(
        "\"variants\": [{\"name\": \"b\", \"system\": {\"adapter\": \"null\"}}]",
        "system.ttft_ms=[1,2]",
        "variant b: system.ttft_ms, an axis of this job, is not an option of null");
}

#define AB "\"variants\": [{\"name\": \"a\"}, {\"name\": \"b\"}]"

#define PAIRING                                                                          \
    "pairing: \"request\" needs variants, which change system or slo only, load."

#define RATE                                                                             \
    "pairing: \"rate\" needs variants, which change system or slo only, search.goodput " \
    "and repeats 1"
#define SEARCH                                                                           \
    ", \"search\": {\"goodput\": true}, \"load\": {\"process\": \"poisson\", "           \
    "\"rate_rps\": 1}, \"slo\": {\"ttft_ms\": 1}"

TEST(bad_lists_are_refused)
{
    static const char *const cases[][2] = {
        {"\"variants\": {}", "variants: expected a list"},
        {"\"variants\": []", "variants: the list is empty"},
        {"\"variants\": [3]", "variants 0: expected an object"},
        {"\"variants\": [{}]",
         "variants 0: name: expected a text without blanks, '/' and "
         "'=', found none"},
        {"\"variants\": [{\"name\": 1}]", "found another type"},
        {"\"variants\": [{\"name\": \"\"}]", "found \"\""},
        {"\"variants\": [{\"name\": \"a b\"}]", "found a b"},
        {"\"variants\": [{\"name\": \"a/b\"}]", "found a/b"},
        {"\"variants\": [{\"name\": \"a\"}, {\"name\": \"a\"}]",
         "variants 1: a second one has the name \"a\""},
        {"\"variants\": [{\"name\": \"a\", \"sytem\": {}}]",
         "variants 0: unknown key \"sytem\"; did you mean \"system\""},
        {"\"variants\": [{\"name\": \"a\", \"system\": 1}]",
         "variants 0: system: expected an object"},
        {"\"variants\": [{\"name\": \"a\", \"system\": {\"ttft_ms\": [1, 2]}}]",
         "variants 0: system.ttft_ms: expected a single value; a list makes an axis"},
        {"\"variants\": [{\"name\": \"a\", \"system\": {\"ttf_ms\": 1}}]",
         "variant a: system: unknown key \"ttf_ms\"; did you mean \"ttft_ms\""},
        {"\"variants\": [{\"name\": \"a\", \"system\": {\"adapter\": \"nul\"}}]",
         "variant a: system.adapter: "},
        {"\"cases\": [{\"name\": \"c\", \"load\": {\"process\": \"poisson\"}}]",
         "case c: load"},
        {"\"load\": {\"n_requests\": [1, 2]}, \"cases\": [{\"name\": \"c\", \"load\": "
         "{\"n_requests\": 3}}]",
         "case c sets load.n_requests, which is an axis of this job"},
        {"\"variants\": [{\"name\": \"plan\"}], \"aa\": \"plam\"",
         "aa: no \"plam\"; did you mean \"plan\""},
        {"\"variants\": [{\"name\": \"a\"}, {\"name\": \"a'\"}], \"aa\": \"a\"",
         "values 2 and 3 of the list are equal"},
        {"\"aa\": \"a\"", "aa: the job has no \"variants\""},
        {"\"variant\": \"a\"", "variant: the job has no \"variants\""},
        {"\"variants\": [{\"name\": \"ours\"}], \"variant\": \"our\"",
         "variant: no \"our\"; did you mean \"ours\""},
        {"\"variants\": [{\"name\": \"a\"}], \"variant\": [\"a\", \"a\"]",
         "variant: values 1 and 2 of the list are equal"},
        {"\"variants\": [{\"name\": \"a\"}], \"variant\": []",
         "variant: the list is empty"},
        {"\"variants\": [{\"name\": \"a\"}], \"variant\": 3",
         "variant: expected a name or a list of names"},
        {"\"variant\": \"a\", \"varian\": 1", "did you mean \"variant"},
        {"\"pairing\": \"request\"", PAIRING},
        {AB ", \"pairing\": \"request\", \"load\": {\"process\": \"poisson\", "
            "\"rate_rps\": 1}",
         PAIRING},
        {AB ", \"pairing\": \"request\", \"load\": {\"concurrency\": 2}", PAIRING},
        {AB ", \"pairing\": \"request\", \"search\": {\"goodput\": true}, \"load\": "
            "{\"process\": \"poisson\", \"rate_rps\": 1}, \"slo\": {\"ttft_ms\": 1}",
         PAIRING},
        {AB ", \"pairing\": \"request\", \"dataset\": {\"turns\": \"conversation\"}",
         PAIRING},
        {"\"variants\": [{\"name\": \"a\"}, {\"name\": \"b\", \"dataset\": {\"n\": 3}}], "
         "\"pairing\": \"request\"",
         PAIRING},
        {AB ", \"pairing\": \"rate\"", RATE},
        {"\"pairing\": \"rate\"" SEARCH, RATE},
        {AB ", \"pairing\": \"rate\", \"repeats\": 2" SEARCH, RATE},
        {AB ", \"pairing\": \"requests\"", "pairing"},
    };
    struct job *j = NULL;
    json_t *study =
        json_loads("{\"about\": \"x\", \"study\": {\"name\": \"phase_switch\"}, "
                   "\"variants\": [{\"name\": \"a\"}]}",
                   0, NULL);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuse(cases[i][0], cases[i][1]);
    assert_err(job_from_json(&j, study, "t", "t.json", NULL), ERR_ARG,
               "variants are for jobs that serve, not for a study");
    json_decref(study);
}

TEST(some_variants_are_chosen)
{
    char *sets[] = {(char[]){"variant=[\"other\",\"ours\"]"}, (char[]){"case=large"}};
    struct job_read_opts o = {.sets = sets, .n_sets = 2};
    struct job *j = job_with(HEAD BOTH "}", &o);

    assert_int_equal(j->n_cells, 2);
    assert_string_equal(j->cells[0].key, "case=large variant=other repeat=0");
    assert_string_equal(j->cells[1].key, "case=large variant=ours repeat=0");
    assert_int_equal(json_array_size(j->swept), 0);
    job_free(&j);
    o = (struct job_read_opts){.smoke = true};
    j = job_with(HEAD BOTH
                 ", \"smoke\": {\"cases\": [{\"name\": \"tiny\"}], \"variant\": "
                 "\"slow\"}}",
                 &o);
    assert_int_equal(j->n_cells, 1);
    assert_string_equal(j->cells[0].key, "case=tiny variant=slow repeat=0");
    job_free(&j);
}

static int cells_of(const char *variant)
{
    char set[64], *sets[] = {set};
    const struct job_read_opts o = {.sets = sets, .n_sets = 1};
    struct job *j;
    int n;

    snprintf(set, sizeof(set), "variant=%s", variant);
    j = job_with(HEAD BOTH ", \"aa\": \"slow\"}", &o);
    n = j->n_cells / 2; /* two cases */
    assert_int_equal(j->again != NULL, n == 3);
    assert_int_equal(json_array_size(json_object_get(j->resolved, "variants")),
                     n == 3 ? 2 : n);
    job_free(&j);
    return n;
}

/* Nothing runs twice where there is no ratio that could need it. */
TEST(an_aa_needs_its_variant_and_another)
{
    assert_int_equal(cells_of("[\"ours\",\"slow\"]"), 3);
    assert_int_equal(cells_of("[\"ours\",\"other\"]"), 2);
    assert_int_equal(cells_of("slow"), 1);
    assert_int_equal(cells_of("ours"), 1);
}

/* --set comes last: it holds for every case and variant. */
TEST(set_overrides_them)
{
    char *sets[] = {(char[]){"load.n_requests=7"}, (char[]){"system.ttft_ms=[1,2]"},
                    (char[]){"variant=[\"ours\",\"slow\"]"}};
    struct job_read_opts o = {.sets = sets, .n_sets = 1};
    struct job *j = job_with(HEAD BOTH "}", &o);

    for (int i = 0; i < j->n_cells; i++)
        assert_true(number(j, i, "load", "n_requests") == 7);
    assert_true(number(j, 1, "system", "ttft_ms") == 9);
    job_free(&j);
    o.n_sets = 3;
    j = job_with(HEAD BOTH "}", &o);
    assert_int_equal(j->n_cells, 8);
    assert_string_equal(j->cells[3].key,
                        "case=small system.ttft_ms=2 variant=slow repeat=0");
    assert_true(number(j, 3, "system", "ttft_ms") == 2);
    job_free(&j);
}

TEST(headlines_name_variants)
{
    const char *text = HEAD BOTH
        ", \"repeats\": 2, \"headline\": ["
        "{\"name\": \"ttft\", \"metric\": \"p50_ttft_ms\", \"where\": {\"variant\": "
        "\"slow\", \"case\": \"large\"}}, "
        "{\"name\": \"over\", \"metric\": \"p50_ttft_ms\", \"where\": {\"variant\": "
        "[\"slow\", \"other\"]}, \"relative_to\": {\"variant\": \"ours\"}}]}";
    static const char *const names[] = {
        "ttft", "over case=small variant=slow", "over case=small variant=other",
        "over case=large variant=slow", "over case=large variant=other"};
    char *sets[] = {(char[]){"variant=slow"}};
    const struct job_read_opts o = {.sets = sets, .n_sets = 1};
    struct job *j = job_with(text, NULL);
    bool chosen[12];

    assert_int_equal(j->n_headlines, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(j->headlines[i].name, names[i]);
    assert_int_equal(job_headline_cells(j, &j->headlines[0], chosen), 2);
    assert_true(chosen[4] && chosen[10]);
    assert_null(j->headlines[0].relative_to);
    /* The same case, the same repeat. */
    assert_int_equal(job_headline_cells(j, &j->headlines[4], chosen), 2);
    assert_true(chosen[5] && chosen[11]);
    assert_int_equal(job_headline_reference(j, &j->headlines[4], 5), 3);
    assert_int_equal(job_headline_reference(j, &j->headlines[4], 11), 9);
    job_free(&j);
    j = job_with(text, &o);
    assert_int_equal(job_headline_reference(j, &j->headlines[1], 0), -1);
    job_free(&j);
    refuse("\"headline\": [{\"name\": \"a\", \"metric\": \"n_failed\", \"relative_to\": "
           "{\"variant\": \"x\"}}]",
           "headline 0.relative_to: \"variant\" is neither an axis nor an option");
    refuse(BOTH ", \"headline\": [{\"name\": \"a\", \"metric\": \"n_failed\", "
                "\"relative_to\": {\"variant\": [\"ours\"]}}]",
           "headline 0.relative_to: variant: expected a single value");
    refuse("\"headline\": [{\"name\": \"a\", \"metric\": \"n_failed\", \"relative_to\": "
           "{}}]",
           "expected at least one setting");
    refuse("\"headline\": [{\"name\": \"a\", \"metric\": \"n_failed\", \"relative_to\": "
           "3}]",
           "relative_to: expected an object");
}

TEST(they_are_described)
{
    static const char *const words[] = {"2 case x 3 variant",
                                        "cases: settings laid over those below",
                                        "load.n_requests=90 slo.ttft_ms=200",
                                        "system.adapter=null",
                                        "divided by that where {\"variant\":\"ours\"}",
                                        NULL};
    struct job *j =
        job_with(HEAD BOTH ", \"headline\": [{\"name\": \"a\", \"metric\": \"n_failed\", "
                           "\"where\": {\"case\": \"small\", \"variant\": \"slow\"}, "
                           "\"relative_to\": {\"variant\": \"ours\"}}]}",
                 NULL);
    char *text = jobs_described(j, words, NULL);

    assert_non_null(strstr(text, "## variants"));
    assert_non_null(strstr(text, "## cases"));
    assert_non_null(strstr(text, "relative_to"));
    free(text);
    job_free(&j);
}

TEST(short_of_memory)
{
    const char *text = HEAD BOTH ", \"variant\": [\"slow\", \"other\"], \"headline\": "
                                 "[{\"name\": \"a\", \"metric\": \"n_failed\", "
                                 "\"relative_to\": {\"variant\": \"slow\"}}]}";
    json_t *root;

    assert_ok(json_read_text(&root, text, strlen(text), "test"));
    assert_true(jobs_short_of_memory(root) > 50);
    json_decref(root);
}
