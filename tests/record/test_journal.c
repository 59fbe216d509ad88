/* What a journal holds, and for whom it may be gone on with. */
#include "tests/record/toy_journal.h"

#include <unistd.h>
#include <zlib.h>

#include "base/json.h"

TEST(round_trip_and_resume)
{
    const char *dir = fixture_dir("a/b/toy");
    struct journal *j = open_toy(dir);
    enum record_state how;
    json_t *header;
    size_t interrupted;
    int n = 0;

    for (int i = 0; i < 10; i++)
        assert_ok(append_fixture(j, i));
    assert_int_equal(journal_n_finished(j), 10);
    assert_int_equal(read_checked(journal_path(j)), 10); /* while open */
    assert_ok(journal_begin(j, "rate=99/repeat=0"));
    journal_close(&j);
    assert_null(j);

    j = open_toy(dir);
    assert_int_equal(journal_n_finished(j), 10);
    assert_true(journal_finished(j, "rate=6/repeat=0", &how));
    assert_int_equal(how, RECORD_FAILED);
    assert_true(journal_finished(j, "rate=5/repeat=0", &how));
    assert_int_equal(how, RECORD_DONE);
    assert_false(journal_finished(j, "rate=99/repeat=0", NULL));
    assert_ok(append_fixture(j, 3)); /* measured again */
    assert_int_equal(journal_n_finished(j), 10);
    assert_int_equal(journal_n_attempts(j), 11);
    assert_ok(journal_read(journal_path(j), check_cell, &n, &header, &interrupted));
    assert_int_equal(n, 11);
    assert_int_equal(interrupted, 1);
    assert_int_equal(json_array_size(json_object_get(header, "resumes")), 1);
    assert_string_equal(json_string_value(json_object_get(header, "experiment")), "toy");
    json_decref(header);
    assert_ok(journal_remove(&j));
    assert_int_equal(access(dir, F_OK), 0);
}

/* Each line is one JSON object whose CRC anyone can check: jq reads it, and gzip's CRC of
 * what follows the first member is that member. */
TEST(lines_are_json)
{
    const char *dir = fixture_dir("lines");
    struct journal *j = open_toy(dir);
    static const char *const kinds[] = {"header", "begin", "cell"};
    size_t n, at = 0;
    char *text;

    assert_ok(journal_begin(j, "rate=4/repeat=0"));
    assert_ok(append_fixture(j, 4));
    text = test_read(journal_path(j), &n);
    for (int i = 0; i < 3; i++) {
        char *end = memchr(text + at, '\n', n - at);
        unsigned crc;
        json_t *line;

        assert_non_null(end);
        assert_ok(json_read_text(&line, text + at, (size_t)(end - text) - at, "line"));
        assert_int_equal(json_object_size(line), 2);
        assert_non_null(json_object_get(line, kinds[i]));
        assert_int_equal(
            sscanf(json_string_value(json_object_get(line, "crc")), "%x", &crc), 1);
        assert_int_equal(crc, crc32_z(0, (const Bytef *)text + at + 18,
                                      (size_t)(end - text) - at - 18));
        if (i == 2)
            assert_string_equal(json_string_value(json_object_get(
                                    json_object_get(line, "cell"), "state")),
                                "done");
        json_decref(line);
        at = (size_t)(end - text) + 1;
    }
    assert_int_equal(at, n);
    mem_free(text);
    journal_close(&j);
}

struct keep {
    double values[8], series[8];
    struct metrics_row row;
    char why[96];
};

static int keep_cell(void *ctx, const struct record_cell *c)
{
    struct keep *k = ctx;

    for (size_t i = 0; i < c->n_values; i++)
        k->values[i] = c->values[i].value;
    memcpy(k->series, c->series[0].v, c->series[0].n * sizeof(double));
    memcpy(k->why, c->values[1].why, sizeof(k->why));
    k->row = c->rows[0];
    return OK;
}

/* Every double comes back as it was, a NaN with its reason, a time that never came, and
 * the readable part of a text that is not UTF-8. */
TEST(numbers_and_texts_survive)
{
    static const double odd[] = {0.1,       -0.0,     5e-324,    1.7976931348623157e308,
                                 1.0 / 3.0, INFINITY, -INFINITY, 9007199254740993.0};
    struct journal *j = open_toy(fixture_dir("odd"));
    struct fixture_cell f;
    struct metrics_value values[8];
    struct keep got;

    fixture_cell_make(&f, 1);
    for (int i = 0; i < 8; i++) {
        values[i] = (struct metrics_value){.name = "v", .unit = "ms", .value = odd[i]};
        values[i].name[0] = (char)('a' + i);
        f.series_v[i] = odd[7 - i];
    }
    values[1] = (struct metrics_value){
        .name = "nan", .unit = "ms", .value = NAN, .why = "caf\xc3\xa9 caf\xc3"};
    values[2] = (struct metrics_value){
        .name = "caf\xc3\xa9", .unit = "\xc2\xb5s", .value = odd[2]};
    snprintf(f.rows[0].error, sizeof(f.rows[0].error), "bad \xff byte, \xe2\x82\xac");
    f.rows[0].done_ns = METRICS_NEVER;
    f.rows[0].intended_ns = INT64_MAX;
    f.cell.values = values;
    f.cell.n_values = 8;
    f.series[0].n = 8;
    assert_ok(journal_cell(j, &f.cell));
    assert_ok(journal_read(journal_path(j), keep_cell, &got, NULL, NULL));
    for (int i = 0; i < 8; i++) {
        if (i != 1)
            assert_memory_equal(&got.values[i], &odd[i], sizeof(double));
        assert_memory_equal(&got.series[i], &odd[7 - i], sizeof(double));
    }
    assert_true(isnan(got.values[1]));
    assert_string_equal(got.why, "caf\xc3\xa9 caf?");
    assert_string_equal(got.row.error, "bad ? byte, \xe2\x82\xac");
    assert_true(got.row.done_ns == METRICS_NEVER);
    assert_true(got.row.intended_ns == INT64_MAX);
    fixture_cell_free(&f);
    journal_close(&j);
}

/* --fresh: what is there is forgotten, but never what another run is writing. */
/* What is known at the end only stands in the header all the same, and is no cell, no resumption
 * and no interruption. */
TEST(notes_join_the_header)
{
    const char *dir = fixture_dir("notes");
    struct journal *j = open_toy(dir);
    size_t n_interrupted;
    json_t *header;
    char path[400];
    int n = 0;

    assert_ok(append_fixture(j, 0));
    assert_ok(
        journal_note(j, json_pack("{s:s s:i}", "stopped", "not yet", "n_repeats", 3)));
    assert_ok(journal_note(j, json_pack("{s:s}", "stopped", "known")));
    snprintf(path, sizeof(path), "%s", journal_path(j));
    journal_close(&j);
    j = open_toy(dir); /* and does not disturb who goes on */
    assert_int_equal(journal_n_finished(j), 1);
    assert_ok(append_fixture(j, 1));
    journal_close(&j);
    assert_ok(journal_read(path, check_cell, &n, &header, &n_interrupted));
    assert_int_equal(n, 2);
    assert_int_equal(n_interrupted, 0);
    assert_string_equal(json_string_value(json_object_get(header, "stopped")), "known");
    assert_int_equal(json_integer_value(json_object_get(header, "n_repeats")), 3);
    assert_int_equal(json_array_size(json_object_get(header, "resumes")), 1);
    json_decref(header);
}

TEST(fresh_waits_for_the_lock)
{
    const char *dir = fixture_dir("fresh");
    struct journal *j = open_toy(dir), *second;
    json_t *h = fixture_header(UTC);

    assert_ok(append_fixture(j, 1));
    assert_err(journal_open(&second, dir, "toy", h, true), ERR_STATE, "another process");
    assert_ok(append_fixture(j, 2));
    assert_int_equal(read_checked(journal_path(j)), 2);
    journal_close(&j);
    assert_ok(journal_open(&j, dir, "toy", h, true));
    assert_int_equal(journal_n_finished(j), 0);
    assert_ok(append_fixture(j, 3));
    assert_int_equal(read_checked(journal_path(j)), 1);
    journal_close(&j);
    json_decref(h);
}

TEST(refuses_bad_input)
{
    static const char *const not_keys[] = {
        "\xff\xfe",         "a\nb",     "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xe2\x82", "\x80",
    };
    const char *dir = fixture_dir("refuses");
    struct journal *j, *second;
    struct fixture_cell f;
    json_t *h = fixture_header(UTC);

    json_object_set_new(h, "evidence", json_string("mesured"));
    assert_err(journal_open(&j, dir, "toy", h, false), ERR_ARG,
               "did you mean \"measured\"?");
    json_object_del(h, "evidence");
    assert_err(journal_open(&j, dir, "toy", h, false), ERR_ARG, "evidence");

    json_decref(h);

    j = open_toy(dir);
    h = fixture_header(UTC);
    assert_err(journal_open(&second, "", "toy", h, false), ERR_IO, "cannot make");
    assert_err(journal_open(&second, dir, "toy", h, false), ERR_STATE, "another process");
    assert_null(second);
    json_decref(h);
    assert_err(journal_begin(j, ""), ERR_ARG, "key");
    for (size_t i = 0; i < sizeof(not_keys) / sizeof(not_keys[0]); i++)
        assert_err(journal_begin(j, not_keys[i]), ERR_ARG, "printable");
    assert_ok(journal_begin(j, "model=\u00fc \u20ac \U0001f600"));
    fixture_cell_make(&f, 1);
    snprintf(f.values[0].name, sizeof(f.values[0].name), "a/b");
    assert_err(journal_cell(j, &f.cell), ERR_ARG, "a/b");
    f.cell.n_values = 0;
    f.rows[0].token_ns = NULL;
    assert_err(journal_cell(j, &f.cell), ERR_ARG, "without times");
    assert_int_equal(journal_n_finished(j), 0);
    assert_int_equal(read_checked(journal_path(j)), 0);
    fixture_cell_free(&f);
    journal_close(&j);
}

TEST(other_job_is_set_aside)
{
    const char *dir = fixture_dir("aside");
    struct log_warning w[4];
    char aside[600];
    struct journal *j = open_toy(dir);
    json_t *h = fixture_header("2026-02-01T00:00:00Z");

    assert_ok(append_fixture(j, 1));
    journal_close(&j);
    while (log_warnings_take(w, 4) > 0)
        ;
    log_set_sink(ignore_line, NULL);
    json_object_set_new(json_object_get(h, "job"), "n", json_integer(4));
    for (int i = 0; i < 2; i++) {
        assert_ok(journal_open(&j, dir, "toy", h, false));
        assert_int_equal(journal_n_finished(j), 0);
        journal_close(&j);
        json_object_set_new(json_object_get(h, "job"), "n", json_integer(5 + i));
    }
    log_set_sink(NULL, NULL);
    assert_int_equal(log_warnings_take(w, 4), 2);
    assert_string_equal(w[0].code, "journal_set_aside");
    snprintf(aside, sizeof(aside), "%s/toy.journal." UTC, dir);
    assert_int_equal(read_checked(aside), 1);
    json_decref(h);
}
