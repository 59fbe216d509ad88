/* Tables of options as one: rows that are lost, and names that occur twice. */
#include "tests/support/test.h"

#include "base/opt_join.h"
#include "baselines/sut.h"
#include "roles/roles.h"
#include "serve/serve.h"

struct engine {
    int64_t threads;
    char *policy;
};
struct all {
    bool json;
    struct engine engine;
};

#define OPT_OF struct engine
static const struct opt_row engine_rows[] = {
    OPT_ROW(INT, threads, "0", "Threads.", .letter = 't'),
    OPT_ROW(STR, policy, "fcfs", "Policy."),
    {0},
};
#undef OPT_OF
#define OPT_OF struct all
static const struct opt_row own_rows[] = {OPT_ROW(BOOL, json, NULL, "JSON."), {0}};

TEST(members_are_where_the_parts_are)
{
    const struct opt_change changes[] = {
        {.name = "policy", .def = "continuous"}, {.name = "threads", .as = "n"}, {0}};
    const struct opt_part parts[] = {
        {engine_rows, offsetof(struct all, engine), changes}, {own_rows, 0, NULL}, {0}};
    struct opt_row rows[4];
    struct all all;

    assert_int_equal(opt_join(rows, 4, parts), OK);
    assert_int_equal(opt_init(rows, &all), OK);
    assert_string_equal(all.engine.policy, "continuous");
    assert_int_equal(opt_set(rows, &all, "n", "3", "x"), OK);
    assert_int_equal(opt_set(rows, &all, "json", "true", "x"), OK);
    assert_int_equal(all.engine.threads, 3);
    assert_true(all.json);
    assert_int_equal(opt_set(rows, &all, "threads", "3", "x"), ERR_ARG);
    opt_free(rows, &all);
}

/* Rows past the 64th had been dropped without a word, and with them keys of experiments. */
TEST(a_row_without_a_place_is_an_error)
{
    const struct opt_part parts[] = {
        {engine_rows, offsetof(struct all, engine), NULL}, {own_rows, 0, NULL}, {0}};
    struct opt_row rows[4];

    assert_int_equal(opt_join(rows, 3, parts), ERR_LIMIT);
    assert_non_null(strstr(err_msg(), "json"));
    assert_int_equal(opt_join(rows, 4, parts), OK);
}

TEST(a_name_or_letter_that_occurs_twice_is_an_error)
{
    static const struct opt_row same_name[] = {{.name = "policy"}, {0}},
                                same_letter[] = {{.name = "tok", .letter = 't'}, {0}};
    const struct opt_change none[] = {{.name = "polcy", .def = "x"}, {0}};
    struct opt_row rows[8];

    assert_int_equal(opt_join(rows, 8,
                              (const struct opt_part[]){
                                  {.rows = engine_rows}, {.rows = same_name}, {0}}),
                     ERR_ARG);
    assert_non_null(strstr(err_msg(), "\"policy\" occurs twice"));
    assert_int_equal(opt_join(rows, 8,
                              (const struct opt_part[]){
                                  {.rows = engine_rows}, {.rows = same_letter}, {0}}),
                     ERR_ARG);
    assert_non_null(strstr(err_msg(), "-t"));
    assert_int_equal(
        opt_join(rows, 8, (const struct opt_part[]){{engine_rows, 0, none}, {0}}),
        ERR_ARG);
    assert_non_null(strstr(err_msg(), "polcy"));
}

static bool has(const struct opt_row *rows, const char *name)
{
    for (; rows->name; rows++)
        if (strcmp(rows->name, name) == 0)
            return true;
    return false;
}

/* `testbed describe keys` lists what the adapter has. */
TEST(the_engines_options_are_all_keys_of_an_experiment)
{
    const struct sut_adapter *sandwich = NULL;

    for (int i = 0; sut_adapters[i]; i++)
        if (strcmp(sut_adapters[i]->name, "sandwich") == 0)
            sandwich = sut_adapters[i];
    assert_non_null(sandwich);
    for (const struct opt_row *r = serve_opt_table; r->name; r++)
        assert_true(has(sandwich->opts, r->name));
    for (const struct opt_row *r = roles_opt_table; r->name; r++)
        assert_true(has(sandwich->opts, r->name));
}
