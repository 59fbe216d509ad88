#include "tests/support/test.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "measure/card.h"

static json_t *card_of(const char *values)
{
    char text[2048];
    json_t *card;

    snprintf(text, sizeof(text), "{\"values\": [%s]}", values);
    assert_ok(json_read_text(&card, text, strlen(text), "card"));
    return card;
}

#define ROW(name, n, median)                                                             \
    "{\"name\": \"" name "\", \"unit\": \"u\", \"n_threads\": " #n                       \
    ", \"estimate\": " #median ", \"lo\": 1, \"hi\": 2, \"n_trials\": 7, \"why\": \"\"}"

static void near(double got, double wanted)
{
    if (isnan(wanted) ? !isnan(got) : !(fabs(got - wanted) < 1e-9))
        fail_msg("got %g, wanted %g", got, wanted);
}

TEST(thread_counts_between)
{
    json_t *card = card_of(ROW("read_gbps", 1, 10) "," ROW("read_gbps", 4, 40) "," ROW(
        "read_gbps", 8, 44) "," ROW("read_gbps", 2, null));

    near(measure_card_read_gbps(card, 1), 10);
    near(measure_card_read_gbps(card, 2), 20); /* its own is unavailable */
    near(measure_card_read_gbps(card, 4), 40);
    near(measure_card_read_gbps(card, 7), 43);
    near(measure_card_read_gbps(card, 100), 44);
    near(measure_card_read_gbps(card, 0), NAN);
    json_decref(card);
}

TEST(peak_of_a_type)
{
    json_t *card = card_of(
        ROW("peak_f32_fma_avx2", 1, 100) "," ROW("peak_f32_fma_avx512", 1, 200) "," ROW(
            "peak_bf16_dot_avx512bf16", 1,
            90) "," ROW("peak_fp16_fma_avx512fp16", 1,
                        400) "," ROW("peak_i8_dot_avx512vnni", 1, 800));

    near(measure_card_peak_gflops(card, "f32", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "bf16", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "f16", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "f32", "relaxed", 1), 200);
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 1), 400);
    near(measure_card_peak_gflops(card, "f16", "relaxed", 1), 400);
    near(measure_card_peak_gflops(card, "q4_0", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "q4_k", "relaxed", 1), 200);
    near(measure_card_peak_gflops(card, "q4_0", "a8", 1), 800);
    near(measure_card_peak_gflops(card, "w4c", "a8", 1), 800);
    near(measure_card_peak_gflops(card, "bf16", "a8", 1), 400);
    near(measure_card_peak_gflops(card, "i4", "exact", 1), NAN);
    near(measure_card_peak_gflops(card, "f32", "sloppy", 1), NAN);
    json_decref(card);
    card = card_of(ROW("peak_f32_fma_avx512", 1, 200) "," ROW(
        "peak_bf16_tile_amxbf16", 1, 1500) "," ROW("peak_i8_dot_avx512vnni", 1, 800));
    near(measure_card_peak_gflops(card, "bf16", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 1), 1500);
    near(measure_card_peak_gflops(card, "f16", "relaxed", 1), 200);
    near(measure_card_peak_gflops(card, "q4_0", "relaxed", 1), 1500);
    near(measure_card_peak_gflops(card, "q4_0", "a8", 1), 800);
    json_decref(card);
    card = card_of(
        ROW("peak_i8_tile_amxint8", 1, 3000) "," ROW("peak_i8_dot_avx512vnni", 1, 800));
    near(measure_card_peak_gflops(card, "q4_0", "a8", 1), 3000);
    json_decref(card);
    card = card_of(ROW("peak_f32_fma_avx512", 1, 200) "," ROW(
        "peak_bf16_dot_avx512bf16", 1, 390) "," ROW("peak_fp16_fma_avx512fp16", 1, null));
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 1), 390);
    near(measure_card_peak_gflops(card, "f16", "relaxed", 1), 200);
    json_decref(card);
}

#define DOUBTFUL(name, n, estimate, most)                                                \
    "{\"name\": \"" name "\", \"unit\": \"u\", \"n_threads\": " #n                       \
    ", \"estimate\": " #estimate ", \"lo\": 1, \"hi\": " #most                           \
    ", \"n_trials\": 7, \"why\": \"it spread\"}"

static void read_bound(const char *values, int n, double want, const char *want_why)
{
    json_t *card = card_of(values);
    char why[96] = "";

    near(measure_card_read_bound(card, n, why), want);
    assert_non_null(strstr(why, want_why));
    assert_true(want_why[0] || !why[0]);
    json_decref(card);
}

/* More threads never do less: a card that says so was measured while other work ran. */
TEST(a_disturbed_card_is_no_bound)
{
    read_bound(ROW("read_gbps", 1, 44) "," ROW("read_gbps", 2, 86), 2, 86, "");
    read_bound(ROW("read_gbps", 1, 44) "," ROW("read_gbps", 2, 44), 2, 44, "");
    read_bound(DOUBTFUL("read_gbps", 1, 44, 50) "," ROW("read_gbps", 2, 44), 2, 44, "");
    read_bound(ROW("read_gbps", 1, 266) "," ROW("read_gbps", 2, 172), 2, NAN,
               "disturbed: all threads 172, one 266");
    read_bound(ROW("triad_gbps", 1, 266), 2, NAN, "no such number");
    read_bound(ROW("read_gbps", 1, 266) "," DOUBTFUL("read_gbps", 2, 270, 300), 2, NAN,
               "not trusted: it spread");
}

/* What was measured but is not trusted bounds nothing, and neither does a smaller value that
 * it may exceed; a larger one stays. */
TEST(doubtful_values)
{
    const char *why;
    char *text;
    json_t *card =
        card_of(ROW("read_gbps", 1, 30) "," DOUBTFUL("read_gbps", 2, 50, 70) "," ROW(
            "peak_f32_fma_avx2", 1,
            100) "," DOUBTFUL("peak_f32_fma_ref", 1, 40,
                              60) "," ROW("peak_f32_fma_avx2", 2,
                                          200) "," DOUBTFUL("peak_f32_fma_avx512", 2, 150,
                                                            300));

    near(measure_card_read_gbps(card, 1), 30);
    near(measure_card_read_gbps(card, 2), NAN);
    near(measure_card_read_gbps(card, 8), NAN); /* not that of one thread */
    near(measure_card_value(card, "read_gbps", 2, &why), NAN);
    assert_string_equal(why, "it spread");
    near(measure_card_range(card, "read_gbps", 0, NULL).most, 30);
    near(measure_card_peak_gflops(card, "f32", "exact", 1), 100);
    near(measure_card_peak_gflops(card, "f32", "exact", 2), NAN);
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 2), NAN);
    assert_null(measure_card_doubt(card, "read_gbps", 1));
    assert_string_equal(measure_card_doubt(card, "read_gbps", 2), "it spread");
    assert_string_equal(measure_card_doubt(card, "", 0), "it spread");
    assert_ok(measure_card_text(card, &text));
    assert_non_null(
        strstr(text, "50.0 u         1.0 .. 70.0 (7 trials); not a bound: it spread"));
    mem_free(text);
    json_decref(card);
    card = card_of(ROW("peak_f32_fma_avx512", 2,
                       236) "," DOUBTFUL("peak_bf16_dot_avx512bf16", 2, 200, 230));
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 2), 236);
    json_decref(card);
}

/* A card is a file; whatever stands in it, there is an answer. */
TEST(strange_cards)
{
    static const char *const texts[] = {
        "{}",
        "{\"values\": 3}",
        "{\"values\": [1, null, [], {}]}",
        "{\"values\": [{\"name\": 7, \"n_threads\": \"x\", \"estimate\": {}}]}",
        "{\"values\": [{\"name\": \"read_gbps\", \"n_threads\": 1, \"estimate\": null}]}",
        "{\"values\": [{\"name\": \"read_gbps\", \"n_threads\": null, \"estimate\": 3}]}",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *card;
        char *text;

        assert_ok(json_read_text(&card, texts[i], strlen(texts[i]), "card"));
        near(measure_card_read_gbps(card, 1), NAN);
        near(measure_card_peak_gflops(card, "f32", "exact", 1), NAN);
        assert_ok(measure_card_text(card, &text));
        assert_non_null(strstr(text, "threads"));
        mem_free(text);
        json_decref(card);
    }
}

TEST(text_says_why)
{
    json_t *card =
        card_of("{\"name\": \"peak_x\", \"unit\": \"GFLOP/s\", \"n_threads\": 2,"
                " \"estimate\": null, \"lo\": null, \"hi\": null, \"n_trials\": 0,"
                " \"why\": \"this processor has no x\"}," ROW("read_gbps", 1, 10.25));
    char *text;

    assert_ok(measure_card_text(card, &text));
    assert_non_null(strstr(text, "unavailable: this processor has no x"));
    assert_non_null(strstr(text, "10.2"));
    assert_null(strstr(text, "nan"));
    mem_free(text);
    mem_fail_after(0, 1);
    assert_int_equal(measure_card_text(card, &text), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_null(text);
    json_decref(card);
}

TEST(value_by_name)
{
    const char *why = NULL;
    json_t *card = card_of(ROW("a_ns", 1, 3) "," ROW("a_ns_more", 1, 4) "," ROW(
        "a_ns", 2, 5) ",{\"name\": \"b\", \"n_threads\": 1, \"estimate\": null,"
                      " \"why\": \"no b here\"}");

    near(measure_card_value(card, "a_ns", 1, NULL), 3);
    near(measure_card_value(card, "a_ns", 2, &why), 5);
    near(measure_card_value(card, "a_n", 1, &why), NAN);
    near(measure_card_value(card, "b", 1, &why), NAN);
    assert_string_equal(why, "no b here");
    json_decref(card);
}

TEST(range_of_a_prefix)
{
    json_t *card = card_of("{\"name\": \"p_a\", \"n_threads\": 2, \"estimate\": 3},"
                           "{\"name\": \"p_b\", \"n_threads\": 2, \"estimate\": 5},"
                           "{\"name\": \"p_c\", \"n_threads\": 4, \"estimate\": 9},"
                           "{\"name\": \"q\", \"n_threads\": 2, \"estimate\": null, "
                           "\"why\": \"no q\"}, 7, {}");
    const char *why;

    near(measure_card_range(card, "p_", 2, NULL).most, 5);
    near(measure_card_range(card, "p_", 2, NULL).least, 3);
    near(measure_card_range(card, "p_", 0, NULL).most, 9);
    near(measure_card_range(card, "q", 2, &why).most, NAN);
    assert_string_equal(why, "no q");
    near(measure_card_range(card, "r", 2, &why).most, NAN);
    assert_true(why[0] != '\0');
    json_decref(card);
}

/* A sealed card of this machine with these rows. */
static json_t *sealed(const char *values)
{
    json_t *card = card_of(values);
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    assert_ok(measure_card_seal(card, &b));
    return card;
}

/* The checksum again, as someone who edits a card with care would write it. */
static void seal_again(json_t *card)
{
    char sum[17];

    json_object_del(card, "checksum");
    assert_ok(json_checksum(card, sum));
    json_object_set_new(card, "checksum", json_string(sum));
}

#define ROW_GBPS(n, lo, v, hi)                                                           \
    "{\"name\": \"read_gbps\", \"unit\": \"GB/s\", \"n_threads\": " #n                   \
    ", \"estimate\": " #v ", \"lo\": " #lo ", \"hi\": " #hi                              \
    ", \"n_trials\": 7, \"why\": \"\"}"
#define ROW_NONE(lo, why)                                                                \
    "{\"name\": \"peak\", \"unit\": \"GFLOP/s\", \"n_threads\": 1, \"estimate\": null, " \
    "\"lo\": " #lo ", \"hi\": null, \"n_trials\": 0, \"why\": \"" why "\"}"
#define ROW_OF(unit, v)                                                                  \
    "{\"name\": \"a\", \"unit\": \"" unit "\", \"n_threads\": 2, \"estimate\": " #v      \
    ", \"lo\": " #v ", \"hi\": " #v ", \"n_trials\": 7, \"why\": \"\"}"

/* Values that no machine has, with a checksum that is right.
 * Regression: `--machine-card` took any file for this machine's limits, and an absent
 * one for none. */
TEST(values_of_no_machine)
{
    static const struct {
        const char *row, *why; /* why NULL: a sound row */
    } rows[] = {
        {ROW_GBPS(2, 29, 30, 31), NULL},
        {ROW_GBPS(2, 30, 30, 30), NULL},
        {ROW_NONE(null, "none here"), NULL},
        {ROW_OF("ns/s", 0), NULL},
        {ROW_OF("1", 0), NULL},
        {ROW_OF("ns", 0.5), NULL},
        {ROW_OF("GFLOP/s", 150000), NULL},
        {ROW_OF("GFLOP/s", 250000), "expected 0.001 <= lo <= estimate <= hi <= 200000"},
        {ROW_OF("GOP/s", 1e300), "GOP/s, found 1e+300"},
        {ROW_OF("ns", 0), "expected 0.001 <="},
        {ROW_OF("furlong", 1), "unit"},
        {ROW_GBPS(2, 29, 300, 31), "found 29, 300, 31"},
        {ROW_GBPS(2, 31, 30, 32), "found 31, 30, 32"},
        {ROW_GBPS(2, 32, 30, 31), "found 32, 30, 31"},
        {ROW_GBPS(2, -1, 30, 31), "found -1, 30, 31"},
        {ROW_GBPS(2, 0, 0, 0), "found 0, 0, 0"},
        {ROW_GBPS(2, -30, -30, -30), "found -30, -30, -30"},
        {ROW_GBPS(2, null, 30, 31), "lo: expected a number"},
        {ROW_GBPS(2, 29, 30, "31"), "hi: expected a number"},
        {ROW_GBPS(2, 29, true, 31), "estimate: expected a number"},
        {ROW_GBPS(0, 29, 30, 31), "n_threads: expected an integer in [1, "},
        {ROW_GBPS(1.5, 29, 30, 31), "n_threads: expected an integer in [1, "},
        {ROW_GBPS(1000000, 29, 30, 31), "n_threads: expected an integer in [1, "},
        {ROW_NONE(1, "none here"), "no estimate, but"},
        {ROW_NONE(null, ""), "no estimate, but"},
        {"7", "name: expected a string"},
        {"[]", "name: expected a string"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char two[1024];
        json_t *card;

        snprintf(two, sizeof(two), ROW_GBPS(1, 10, 10, 10) ", %s", rows[i].row);
        card = sealed(two);
        if (!rows[i].why) {
            assert_ok(measure_card_check(card, "card.json"));
        } else {
            assert_err(measure_card_check(card, "card.json"), ERR_FORMAT, rows[i].why);
            assert_memory_equal(err_msg(), "card.json: values[1]: ", 22);
        }
        json_decref(card);
    }
}

/* Any member of the identity differs: another machine's, even if it is sealed. */
TEST(cards_of_other_machines)
{
    json_t *card = sealed(ROW_GBPS(1, 10, 10, 10)), *value, *id;
    const char *key;
    int n = 0;

    id = json_deep_copy(json_object_get(card, "identity"));
    json_object_foreach(id, key, value)
    {
        json_t *other = json_deep_copy(card);
        char words[100];

        json_object_set_new(json_object_get(other, "identity"), key,
                            json_string("another \"one\""));
        seal_again(other);
        snprintf(words, sizeof(words), "%s \"another \\\"one\\\"\", here ", key);
        assert_err(measure_card_check(other, "c"), ERR_STATE, words);
        json_object_del(json_object_get(other, "identity"), key);
        seal_again(other);
        assert_err(measure_card_check(other, "c"), ERR_STATE, "null, here ");
        json_decref(other);
        n++;
    }
    assert_true(n >= 8); /* model, CPUs, instruction sets ... */
    json_decref(id);
    json_decref(card);
}

/* Members that are gone or of another kind, and edits that leave each value plausible. */
TEST(changed_cards)
{
    static const char *const needed[] = {"format", "version", "identity", "values",
                                         "checksum"};
    json_t *card = sealed(ROW_GBPS(1, 10, 10.5, 11) "," ROW_GBPS(2, 10, 12, 13)), *row;

    for (int i = 0; i < 5; i++) {
        json_t *other = json_deep_copy(card);

        json_object_del(other, needed[i]);
        if (strcmp(needed[i], "checksum") != 0)
            seal_again(other);
        assert_err(measure_card_check(other, "c"), ERR_FORMAT, needed[i]);
        json_object_set_new(other, needed[i], json_integer(99));
        if (strcmp(needed[i], "checksum") != 0)
            seal_again(other);
        assert_err(measure_card_check(other, "c"), ERR_FORMAT, needed[i]);
        json_decref(other);
    }
    row = json_array_get(json_object_get(card, "values"), 0);
    json_object_set_new(row, "estimate", json_real(10.9));
    assert_err(measure_card_check(card, "c"), ERR_FORMAT,
               "changed after it was measured");
    json_object_set_new(row, "estimate", json_real(10.5));
    assert_ok(measure_card_check(card, "c"));
    json_object_set_new(card, "host", json_string("elsewhere"));
    assert_err(measure_card_check(card, "c"), ERR_FORMAT,
               "changed after it was measured");
    json_object_del(card, "host");
    json_array_remove(json_object_get(card, "values"), 1);
    assert_err(measure_card_check(card, "c"), ERR_FORMAT,
               "changed after it was measured");
    json_decref(card);
    card = json_array();
    assert_err(measure_card_check(card, "c"), ERR_FORMAT, "format");
    json_decref(card);
}

/* Is the text in this file refused? */
static bool refused(const char *path, const char *text, size_t n)
{
    json_t *card;
    int rc;

    test_write(path, text, n);
    rc = measure_card_read(&card, path);
    if (rc == OK)
        json_decref(card);
    else if (card || strncmp(err_msg(), path, strlen(path)) != 0)
        fail_msg("%s", err_msg());
    return rc != OK;
}

/* The card in a file, or this host's; a host's name cannot leave the folder. */
TEST(card_in_a_file)
{
    char path[600], small[8], *text;
    size_t n;
    json_t *card = sealed(ROW_GBPS(2, 29, 30, 31));
    int here;

    assert_ok(measure_card_path(path, sizeof(path), test_dir(), "-full"));
    assert_true(strncmp(path, test_dir(), strlen(test_dir())) == 0);
    assert_string_equal(path + strlen(path) - 10, "-full.json");
    assert_null(strchr(path + strlen(test_dir()) + 1, '/'));
    assert_err(measure_card_path(small, sizeof(small), "folder", ""), ERR_ARG,
               "too long");
    assert_ok(json_write_file(card, path));
    json_decref(card);
    assert_ok(measure_card_read(&card, path));
    near(measure_card_read_gbps(card, 2), 30);
    json_decref(card);
    text = test_read(path, &n);
    for (size_t cut = 0; cut + 2 < n; cut++) /* without the last line's end it is whole */
        assert_true(refused(path, text, cut));
    for (size_t i = 0; i < n; i++) /* a digit more or less */
        if (text[i] >= '0' && text[i] <= '8') {
            text[i]++;
            assert_true(refused(path, text, n));
            text[i]--;
        }
    assert_false(refused(path, text, n));
    mem_free(text);
    here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(test_dir()), 0);
    assert_err(measure_card_read(&card, NULL), ERR_NOTFOUND, MEASURE_CARD_DIR);
    assert_null(card);
    near(measure_card_read_gbps(card, 2), NAN); /* no card, no bound */
    assert_int_equal(fchdir(here), 0);
    close(here);
}

TEST(a_share_of_a_wrong_bound_is_none)
{
    assert_true(measure_share(51, 50) == 1.02);
    assert_true(isnan(measure_share(51.1, 50)));
    assert_true(isnan(measure_share(50, NAN)));
    assert_true(isnan(measure_share(NAN, 50)));
}
