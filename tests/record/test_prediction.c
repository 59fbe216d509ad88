/* A prediction is read back as it was made, or refused by what is wrong with it; a run takes only
 * one that was made and given before its first cell; scores are counted by hand. */
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/prediction.h"

static const char *const text_of_job = "{\"about\": \"x\", \"n\": [1, 2.5]}";

static json_t *parse(const char *text)
{
    json_t *j;

    assert_ok(json_read_text(&j, text, strlen(text), "test"));
    return j;
}

static json_t *make(void)
{
    json_t *job = parse(text_of_job), *p,
           *headline = parse("{\"a\": {\"value\": 2, \"unit\": \"x\", \"model\": \"m\", "
                             "\"50\": [1.9, 2.1], \"80\": [1.5, 2.5], \"95\": [1, 4]}, "
                             "\"b\": {\"unit\": \"\", \"why\": \"no record\"}, "
                             "\"c\": {\"value\": 5, \"unit\": \"\", \"model\": \"m\", "
                             "\"50\": [5, 5], \"80\": [5, 5], \"95\": [4.9, 5.1]}}");

    assert_ok(prediction_new(&p, "e", job, "records", headline));
    json_decref(job);
    json_decref(headline);
    return p;
}

static const char *path(void)
{
    static char at[600];

    snprintf(at, sizeof(at), "%s/p.json", test_dir());
    return at;
}

static void refused(json_t *p, const char *part)
{
    json_t *back;

    assert_ok(json_write_file(p, path()));
    assert_int_equal(prediction_read(&back, path()), ERR_FORMAT);
    assert_null(back);
    if (!strstr(err_msg(), part))
        fail_msg("expected \"%s\" in: %s", part, err_msg());
    json_decref(p);
}

TEST(what_is_written_is_read)
{
    json_t *p = make(), *back;

    assert_ok(json_write_file(p, path()));
    assert_ok(prediction_read(&back, path()));
    assert_true(json_equal(p, back));
    json_decref(back);
    json_decref(p);
}

/* Each member is changed in turn. */
TEST(any_change_is_found_by_the_hash)
{
    static const char *const texts[] = {
        "experiment", "job_sha256", "machine", "predictor", "commit", "utc", "sha256"};
    json_t *p;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        p = make();
        json_object_set_new(p, texts[i], json_string("other"));
        refused(p, "sha256: expected ");
    }
    p = make();
    json_array_set_new(
        json_object_get(json_object_get(json_object_get(p, "headline"), "a"), "95"), 1,
        json_real(4.0000001));
    refused(p, "it was changed after it was made");
}

TEST(missing_members_are_named)
{
    static const char *const members[] = {
        "format",    "version", "experiment", "job_sha256", "machine",
        "predictor", "commit",  "utc",        "headline",   "sha256"};
    json_t *p;

    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        p = make();
        json_object_del(p, members[i]);
        refused(p, members[i]);
    }
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        p = make();
        json_object_del(json_object_get(json_object_get(p, "headline"), "a"),
                        prediction_level_names[l]);
        refused(p, prediction_level_names[l]);
    }
    p = make();
    json_object_set_new(p, "headlin", json_true());
    refused(p, "did you mean \"headline\"");
    p = make();
    json_object_set_new(json_object_get(json_object_get(p, "headline"), "a"), "80",
                        json_pack("[f, f]", 1.95, 2.05));
    refused(p, "expected an interval round that of the level below");
}

static json_t *header_of(const char *experiment, const char *utc)
{
    return json_pack("{s:s s:o s:s}", "experiment", experiment, "job", parse(text_of_job),
                     "utc", utc);
}

static void not_admitted(json_t *p, json_t *header, size_t n_cells, const char *part)
{
    assert_int_equal(prediction_admit(p, header, n_cells, "file"), ERR_STATE);
    if (!strstr(err_msg(), part))
        fail_msg("expected \"%s\" in: %s", part, err_msg());
    json_decref(header);
}

TEST(a_run_takes_only_its_own_and_only_before_its_first_cell)
{
    const char *const later = "2999-01-01T00:00:00Z", *const earlier =
                                                          "2000-01-01T00:00:00Z";
    json_t *p = make(), *header = header_of("e", later), *other;

    assert_ok(prediction_admit(p, header, 0, "file")); /* no cell has begun */
    json_object_set(header, "prediction", p);
    assert_ok(prediction_admit(p, header, 3, "file")); /* the run began with it */
    json_decref(header);
    not_admitted(p, header_of("e", earlier), 1,
                 "utc: expected a time before the run began");
    not_admitted(p, header_of("e", later), 1, "given before the first cell");
    not_admitted(p, header_of("f", later), 0, "experiment: expected that of this run, f");
    header = header_of("e", later);
    json_object_set_new(json_object_get(header, "job"), "about", json_string("y"));
    not_admitted(p, header, 0, "job_sha256: expected");
    header = header_of("e", later);
    other = json_copy(p);
    json_object_set_new(other, "sha256", json_string("another"));
    json_object_set_new(header, "prediction", other);
    not_admitted(p, header, 1, "sha256: expected that of this run, another");
    other = json_copy(p);
    json_object_set_new(other, "machine", json_string("elsewhere"));
    not_admitted(other, header_of("e", later), 0, "machine: expected");
    json_object_set(other, "machine", json_object_get(p, "machine"));
    json_object_set_new(other, "utc", json_string(later));
    not_admitted(other, header_of("e", earlier), 0, "utc: expected a time before");
    json_decref(other);
    json_decref(p);
}

TEST(scores_by_hand)
{
    json_t *p = make(), *headline = json_object_get(p, "headline"), *note;
    struct prediction_score s = {0}, back;
    struct text t = {0};

    prediction_score_add(&s, json_object_get(headline, "a"), 2.5); /* inside 80 and 95 */
    prediction_score_add(&s, json_object_get(headline, "b"), 1);   /* was not predicted */
    prediction_score_add(&s, json_object_get(headline, "c"), 5);   /* in all, narrow */
    prediction_score_add(&s, json_object_get(headline, "c"), NAN);
    prediction_score_add(&s, json_object_get(headline, "not there"), 1);
    assert_int_equal(s.n[PREDICTION_N], 2);
    assert_int_equal(s.n[PREDICTION_INSIDE], 1);
    assert_int_equal(s.n[PREDICTION_INSIDE + 1], 2);
    assert_int_equal(s.n[PREDICTION_INSIDE + 2], 2);
    assert_int_equal(s.n[PREDICTION_NARROW], 1);
    assert_int_equal(s.n[PREDICTION_MISSING], 1);
    note = prediction_note(p, &s);
    assert_true(prediction_score_of(&back, note));
    assert_memory_equal(&s, &back, sizeof(s));
    prediction_put(&t, note);
    assert_non_null(
        strstr(t.p, "of 2 headlines 2 inside 95 %, 2 inside 80 %, 1 inside 50 %"));
    assert_false(prediction_score_of(&back, headline));
    text_fini(&t);
    json_decref(note);
    json_decref(p);
}

TEST(half_of_an_interval)
{
    assert_true(fabs(prediction_half_frac(1, 4, 2) - 1) < 1e-12);
    assert_true(fabs(prediction_half_frac(-4, -1, -2) - 1) < 1e-12);
    assert_true(fabs(prediction_half_frac(-1, 3, 4) - 0.5) < 1e-12);
    assert_true(prediction_half_frac(0, 0, 0) == 0);
}
