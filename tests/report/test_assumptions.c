/* What the papers leave open: a claim's own rule judges every setting, and the list that is shipped
 * names headlines that its experiments have. */
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "experiments/job/job.h"
#include "experiments/report/assumptions.h"
#include "experiments/report/claim_rule.h"

/* "few" holds at patience=never, and "many" in each setting; "none" cannot be tested. */
static const char claims_text[] =
    "{\"claims\": ["
    "{\"name\": \"few\", \"paper\": \"P\", \"section\": \"1\", \"text\": \"t\", "
    "\"experiment\": \"e\", \"shape\": \"share > 0.95\", \"compared\": [{\"names\": "
    "\"share\", \"from\": 0.01, \"to\": 1, \"none\": 0.5}]},"
    "{\"name\": \"many\", \"paper\": \"P\", \"section\": \"1\", \"text\": \"t\", "
    "\"experiment\": \"e\", \"shape\": \"share > 0\", \"compared\": [{\"names\": "
    "\"share\", \"from\": 0.01, \"to\": 1, \"none\": 0.5}]},"
    "{\"name\": \"none\", \"paper\": \"P\", \"section\": \"1\", \"text\": \"t\", "
    "\"why\": \"no machine\"}]}";

#define LIST(claims)                                                                     \
    "{\"papers\": [{\"paper\": \"P\", \"parameters\": {\"patience\": {\"printed\": "     \
    "\"no value\", \"values\": {\"1\": \"e:share_1\", \"never\": \"e:share\", \"7\": "   \
    "null}}}, \"sets\": {\"as printed\": {\"patience\": \"never\"}, \"strict\": "        \
    "{\"patience\": \"7\"}}, \"claims\": [" claims "]}]}"
#define SETTINGS                                                                         \
    "\"settings\": [{\"at\": {\"patience\": \"never\"}}, {\"at\": {\"patience\": "       \
    "\"1\"}, \"headlines\": {\"share$\": \"share_1\"}}]"

static int read_text(json_t **list, struct claims *claims, const char *text)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/claims.json", test_dir());
    test_write(path, claims_text, strlen(claims_text));
    assert_ok(claims_read(claims, path));
    snprintf(path, sizeof(path), "%s/assumptions.json", test_dir());
    test_write(path, text, strlen(text));
    return assumptions_read(list, path, claims);
}

static const json_t *lend(void *ctx, const char *experiment)
{
    return strcmp(experiment, "e") == 0 ? ctx : NULL;
}

TEST(every_setting_is_judged_by_the_claim_s_rule)
{
    json_t *record = json_pack("{s:{s:{s:f}, s:{s:f}}}", "headline", "share", "value",
                               1.0, "share_1", "value", 0.66);
    json_t *list = NULL, *matrix;
    const json_t *rows, *row;
    struct text page = {0};
    struct claims claims;

    assert_ok(read_text(&list, &claims,
                        LIST("{\"names\": [\"few\", \"many\"], " SETTINGS "}")));
    matrix = assumptions_judge(list, &claims, lend, record);
    rows = json_object_get(json_array_get(matrix, 0), "claims");
    row = json_array_get(rows, 0);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(row, "verdicts"), 0)),
        "reproduced in shape");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(row, "verdicts"), 1)),
        "not reproduced");
    assert_true(
        json_is_true(json_object_get(json_object_get(row, "turned_by"), "patience")));
    row = json_array_get(rows, 1);
    assert_int_equal(json_object_size(json_object_get(row, "turned_by")), 0);
    assumptions_print(&page, matrix);
    text_put(&page, "", 1);
    assert_non_null(strstr(page.p, "1 of 2; turned by patience\n"));
    assert_non_null(strstr(page.p, "2 of 2\n"));
    assert_non_null(strstr(page.p, "as printed: 2 of 2 hold\n"));
    assert_non_null(strstr(page.p, "strict: not tried for few, many; 0 of 0 hold\n"));
    assert_non_null(strstr(page.p, "tried: 1 never 7 (not tried)\n"));
    text_fini(&page);
    json_decref(matrix);

    /* without a record nothing is judged */
    matrix = assumptions_judge(list, &claims, lend, NULL);
    row = json_array_get(json_object_get(json_array_get(matrix, 0), "claims"), 0);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(row, "verdicts"), 0)),
        "no record yet");
    json_decref(matrix);
    json_decref(list);
    json_decref(record);
    claims_fini(&claims);
}

TEST(names_are_replaced_once_and_at_the_end)
{
    json_t *s =
        json_pack("{s:{s:s, s:s}}", "headlines", "_paper$", "_sim", "rate_", "r_");
    char name[64];

    assumptions_headline(name, sizeof(name), s, "rate_of_rate_paper");
    assert_string_equal(name, "r_of_rate_sim");
    assumptions_headline(name, sizeof(name), s, "rate_paper_x");
    assert_string_equal(name, "r_paper_x");
    json_decref(s);
}

TEST(broken_lists_give_one_line)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[]", "assumptions.json"},
        {"{\"papers\": 1}", "papers"},
        {LIST("{\"names\": [\"fwe\"], " SETTINGS "}"),
         "claim of the paper, found \"fwe\""},
        {LIST("{\"names\": [\"none\"], " SETTINGS "}"), "testable claim"},
        {LIST("{\"names\": [\"few\"]}"), "settings"},
        {LIST("{\"names\": [\"few\"], \"settings\": [{\"at\": {\"patience\": \"2\"}}]}"),
         "few: expected a listed value of the paper, found \"patience\"=\"2\""},
        {LIST("{\"names\": [\"few\"], \"settings\": [{\"at\": {\"pat\": \"1\"}}]}"),
         "few: expected a parameter of the paper, found \"pat\""},
        {LIST("{\"names\": [\"few\"], \"settings\": [{\"at\": {}, \"headline\": {}}]}"),
         "did you mean \"headlines\""},
        {LIST("{\"names\": [\"few\"], \"settings\": [{\"at\": {}, \"headlines\": {\"a\": "
              "1}}]}"),
         "headlines: expected"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct claims claims;
        json_t *list = NULL;
        int rc = read_text(&list, &claims, cases[i].text);

        if (rc == OK || !strstr(err_msg(), cases[i].part) || strchr(err_msg(), '\n'))
            fail_msg("%s: \"%s\"", cases[i].text, rc == OK ? "taken" : err_msg());
        json_decref(list);
        claims_fini(&claims);
    }
}

/* --- the list that is shipped */

static bool has_headline(const char *experiment, const char *name)
{
    struct job *j = NULL;
    bool found = false;

    assert_ok(job_read(&j, experiment, NULL));
    for (int i = 0; i < j->n_headlines; i++)
        found |= strcmp(j->headlines[i].name, name) == 0;
    job_free(&j);
    return found;
}

struct asked {
    const struct claim *claim;
    const json_t *setting;
};

static void name_is_known(void *ctx, const char *name)
{
    const struct asked *a = ctx;
    const char *experiment = json_str_at(a->setting, "experiment", a->claim->experiment);
    char at[256];

    assumptions_headline(at, sizeof(at), a->setting, name);
    if (!has_headline(experiment, at))
        fail_msg("assumptions.json: %s: %s has no headline %s", a->claim->name,
                 experiment, at);
}

static void check_claim(const struct claims *claims, const char *name,
                        const json_t *settings)
{
    const json_t *s;
    size_t i, k;

    for (k = 0; strcmp(claims->v[k].name, name) != 0;)
        k++;
    json_array_foreach(settings, i, s)
    {
        struct asked a = {&claims->v[k], s};

        if (a.claim->reproduced)
            claim_rule_names(a.claim->reproduced, name_is_known, &a);
        if (a.claim->shape)
            claim_rule_names(a.claim->shape, name_is_known, &a);
    }
}

TEST(the_shipped_list_names_headlines)
{
    const json_t *paper, *group, *name;
    struct claims claims;
    const char *key, *value;
    json_t *list = NULL, *p, *v;
    size_t i, k, n;

    assert_ok(claims_read(&claims, "results/claims.json"));
    assert_ok(assumptions_read(&list, "results/assumptions.json", &claims));
    json_array_foreach(json_object_get(list, "papers"), i, paper)
    {
        json_array_foreach(json_object_get(paper, "claims"), k, group)
            json_array_foreach(json_object_get(group, "names"), n, name) check_claim(
                &claims, json_string_value(name), json_object_get(group, "settings"));
        json_object_foreach(json_object_get(paper, "parameters"), key, p)
            json_object_foreach(json_object_get(p, "values"), value, v)
        {
            char experiment[128];
            const char *at = json_string_value(v);

            if (json_is_null(v)) /* not tried */
                continue;
            snprintf(experiment, sizeof(experiment), "%.*s", (int)strcspn(at, ":"), at);
            if (!has_headline(experiment, at + strlen(experiment) + 1))
                fail_msg("assumptions.json: %s=%s: no headline %s", key, value, at);
        }
    }
    json_decref(list);
    claims_fini(&claims);
}
