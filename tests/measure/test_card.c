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

static void thread_counts_between(void **state)
{
    json_t *card = card_of(ROW("read_gbps", 1, 10) "," ROW("read_gbps", 4, 40) "," ROW(
        "read_gbps", 8, 44) "," ROW("read_gbps", 2, null));

    (void)state;
    near(measure_card_read_gbps(card, 1), 10);
    near(measure_card_read_gbps(card, 2), 20); /* its own is unavailable */
    near(measure_card_read_gbps(card, 4), 40);
    near(measure_card_read_gbps(card, 7), 43);
    near(measure_card_read_gbps(card, 100), 44);
    near(measure_card_read_gbps(card, 0), NAN);
    json_decref(card);
}

static void peak_of_a_type(void **state)
{
    json_t *card = card_of(
        ROW("peak_f32_fma_avx2", 1, 100) "," ROW("peak_f32_fma_avx512", 1, 200) "," ROW(
            "peak_bf16_dot_avx512bf16", 1,
            90) "," ROW("peak_fp16_fma_avx512fp16", 1,
                        400) "," ROW("peak_i8_dot_avx512vnni", 1, 800));

    (void)state;
    near(measure_card_peak_gflops(card, "f32", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "bf16", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "f16", "exact", 1), 200);
    near(measure_card_peak_gflops(card, "f32", "relaxed", 1), 200);
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 1), 400);
    near(measure_card_peak_gflops(card, "f16", "relaxed", 1), 400);
    near(measure_card_peak_gflops(card, "q4_0", "exact", 1), NAN);
    near(measure_card_peak_gflops(card, "f32", "sloppy", 1), NAN);
    json_decref(card);
    card = card_of(ROW("peak_f32_fma_avx512", 1, 200) "," ROW(
        "peak_bf16_dot_avx512bf16", 1, 390) "," ROW("peak_fp16_fma_avx512fp16", 1, null));
    near(measure_card_peak_gflops(card, "bf16", "relaxed", 1), 390);
    near(measure_card_peak_gflops(card, "f16", "relaxed", 1), 200);
    json_decref(card);
}

/* A card is a file; whatever stands in it, there is an answer. */
static void strange_cards(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{\"values\": 3}",
        "{\"values\": [1, null, [], {}]}",
        "{\"values\": [{\"name\": 7, \"n_threads\": \"x\", \"estimate\": {}}]}",
        "{\"values\": [{\"name\": \"read_gbps\", \"n_threads\": 1, \"estimate\": null}]}",
        "{\"values\": [{\"name\": \"read_gbps\", \"n_threads\": null, \"estimate\": 3}]}",
    };

    (void)state;
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

static void text_says_why(void **state)
{
    json_t *card =
        card_of("{\"name\": \"peak_x\", \"unit\": \"GFLOP/s\", \"n_threads\": 2,"
                " \"estimate\": null, \"lo\": null, \"hi\": null, \"n_trials\": 0,"
                " \"why\": \"this processor has no x\"}," ROW("read_gbps", 1, 10.25));
    char *text;

    (void)state;
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

static void value_by_name(void **state)
{
    const char *why = NULL;
    json_t *card = card_of(ROW("a_ns", 1, 3) "," ROW("a_ns_more", 1, 4) "," ROW(
        "a_ns", 2, 5) ",{\"name\": \"b\", \"n_threads\": 1, \"estimate\": null,"
                      " \"why\": \"no b here\"}");

    (void)state;
    near(measure_card_value(card, "a_ns", 1, NULL), 3);
    near(measure_card_value(card, "a_ns", 2, &why), 5);
    near(measure_card_value(card, "a_n", 1, &why), NAN);
    near(measure_card_value(card, "b", 1, &why), NAN);
    assert_string_equal(why, "no b here");
    json_decref(card);
}

static void range_of_a_prefix(void **state)
{
    json_t *card = card_of("{\"name\": \"p_a\", \"n_threads\": 2, \"estimate\": 3},"
                           "{\"name\": \"p_b\", \"n_threads\": 2, \"estimate\": 5},"
                           "{\"name\": \"p_c\", \"n_threads\": 4, \"estimate\": 9},"
                           "{\"name\": \"q\", \"n_threads\": 2, \"estimate\": null, "
                           "\"why\": \"no q\"}, 7, {}");
    const char *why;

    (void)state;
    near(measure_card_range(card, "p_", 2, NULL).most, 5);
    near(measure_card_range(card, "p_", 2, NULL).least, 3);
    near(measure_card_range(card, "p_", 0, NULL).most, 9);
    near(measure_card_range(card, "q", 2, &why).most, NAN);
    assert_string_equal(why, "no q");
    near(measure_card_range(card, "r", 2, &why).most, NAN);
    assert_true(why[0] != '\0');
    json_decref(card);
}

/* The card in a file, or this host's; a host's name cannot leave the folder. */
static void card_in_a_file(void **state)
{
    static const char text[] = "{\"values\": [" ROW("read_gbps", 2, 30) "]}";
    static const char other[] =
        "{\"identity\": {\"isa\": \"none we have\"}, \"values\": []}";
    char path[600], small[8];
    json_t *card;
    int here;

    (void)state;
    assert_ok(measure_card_path(path, sizeof(path), test_dir(), "-full"));
    assert_true(strncmp(path, test_dir(), strlen(test_dir())) == 0);
    assert_string_equal(path + strlen(path) - 10, "-full.json");
    assert_null(strchr(path + strlen(test_dir()) + 1, '/'));
    assert_err(measure_card_path(small, sizeof(small), "folder", ""), ERR_ARG,
               "too long");
    test_write(path, text, strlen(text));
    assert_ok(measure_card_read(&card, path));
    near(measure_card_read_gbps(card, 2), 30);
    json_decref(card);
    test_write(path, "{", 1);
    assert_int_equal(measure_card_read(&card, path), ERR_FORMAT);
    assert_null(card);
    near(measure_card_read_gbps(card, 2), NAN); /* no card, no bound */
    test_write(path, other, strlen(other));
    assert_err(measure_card_read(&card, path), ERR_STATE,
               "sets \"none we have\", this run");
    assert_null(card);
    here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(test_dir()), 0);
    assert_err(measure_card_read(&card, NULL), ERR_NOTFOUND, MEASURE_CARD_DIR);
    assert_null(card);
    assert_int_equal(fchdir(here), 0);
    close(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_counts_between), cmocka_unit_test(peak_of_a_type),
        cmocka_unit_test(strange_cards),         cmocka_unit_test(text_says_why),
        cmocka_unit_test(value_by_name),         cmocka_unit_test(range_of_a_prefix),
        cmocka_unit_test(card_in_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
