/* The file of a learned predictor: the same predictions to the bit, the same bytes each time,
 * and every damaged file refused with one line that names it, or a sound predictor. */
#include <jansson.h>

#include "base/json.h"
#include "kv/learn.h"
#include "tests/support/mutate.h"
#include "tests/support/test.h"

#define N_TEXTS   200
#define N_MUTANTS 300

static char texts[N_TEXTS][64];
static struct kv_example examples[N_TEXTS];
static const struct kv_learned_from from = {.format = "alpaca",
                                            .tokens = "4 bytes",
                                            .model_id = "0123456789abcdef",
                                            .n_examples = N_TEXTS,
                                            .fold = 2,
                                            .folds = 5};

static struct kv_learned *learn(void)
{
    struct kv_learned *l;
    struct rng r;

    rng_init(&r, test_seed(), "texts");
    for (int i = 0; i < N_TEXTS; i++) {
        int kind = (int)rng_below(&r, 3);

        snprintf(texts[i], sizeof(texts[i]), "write a %s about %d",
                 kind == 0   ? "haiku"
                 : kind == 1 ? "letter"
                             : "novel",
                 (int)rng_below(&r, 20));
        examples[i] = (struct kv_example){.text = texts[i],
                                          .text_bytes = strlen(texts[i]),
                                          .prompt_tok = 6,
                                          .output_tok = 20 + 100 * kind +
                                                        (int64_t)rng_below(&r, 9)};
    }
    assert_ok(kv_learn(&l, examples, N_TEXTS));
    return l;
}

static const char *path(const char *name)
{
    static char text[2][512];
    static int at;

    at = !at;
    snprintf(text[at], sizeof(text[at]), "%s/%s", test_dir(), name);
    return text[at];
}

static json_t *saved(void)
{
    struct kv_learned *l = learn();
    json_t *j;

    assert_ok(kv_learned_save(l, &from, path("good.json")));
    kv_learned_close(&l);
    assert_ok(json_read_file(&j, path("good.json"), 1 << 20));
    return j;
}

TEST(the_same_to_the_bit)
{
    struct kv_learned *l = learn(), *again = learn(), *loaded;
    struct kv_learned_from got;
    uint8_t *a, *b;
    size_t n_a, n_b;

    assert_ok(kv_learned_save(l, &from, path("a.json")));
    assert_ok(kv_learned_save(again, &from, path("b.json")));
    a = test_read(path("a.json"), &n_a);
    b = test_read(path("b.json"), &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    assert_ok(kv_learned_load(&loaded, &got, path("a.json")));
    assert_string_equal(got.format, from.format);
    assert_string_equal(got.tokens, from.tokens);
    assert_string_equal(got.model_id, from.model_id);
    assert_true(got.n_examples == N_TEXTS && got.fold == 2 && got.folds == 5);
    for (int i = 0; i < N_TEXTS; i++) {
        struct kv_prediction p, q;

        kv_learned_predict(l, &examples[i], &p);
        kv_learned_predict(loaded, &examples[i], &q);
        assert_true(p.gen_tok == q.gen_tok && p.uncertainty == q.uncertainty);
    }
    kv_learned_close(&loaded);
    assert_ok(kv_learned_load(&loaded, NULL, path("b.json")));
    kv_learned_close(&loaded);
    kv_learned_close(&l);
    kv_learned_close(&again);
    mem_free(a);
    mem_free(b);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* Load it; what is loaded predicts, what is refused is named in one line. */
static bool reads(const void *data, size_t n)
{
    const char *file = path("mutant.json");
    struct kv_learned_from got;
    struct kv_learned *l;
    int rc;

    test_write(file, data, n);
    rc = kv_learned_load(&l, &got, file);
    if (rc != OK) {
        assert_null(l);
        if (!strstr(err_msg(), file) || strchr(err_msg(), '\n'))
            fail_msg("not one line that names the file: %s", err_msg());
        return false;
    }
    assert_true(got.fold <= got.folds && memchr(got.format, 0, sizeof(got.format)));
    for (int i = 0; i < N_TEXTS; i += 20) {
        struct kv_prediction p;

        kv_learned_predict(l, &examples[i], &p);
        if (!(p.gen_tok >= 1 && p.gen_tok < 1e9 && p.uncertainty >= 0 &&
              p.uncertainty <= 1))
            fail_msg("predicts %g tokens, uncertainty %g", p.gen_tok, p.uncertainty);
    }
    kv_learned_close(&l);
    return true;
}

/* As text, with the checksum that its predictor has. */
static char *with_checksum(json_t *root)
{
    char sum[17];

    assert_ok(json_checksum(json_object_get(root, "predictor"), sum));
    assert_int_equal(json_object_set_new(root, "checksum", json_string(sum)), 0);
    return json_text(root, JSON_COMPACT);
}

TEST(every_cut_is_refused)
{
    json_t *j = saved();
    size_t n;
    uint8_t *good = test_read(path("good.json"), &n);

    assert_true(reads(good, n));
    for (size_t k = 0; k < n - 1; k += k < 300 || k + 300 > n ? 1 : 499)
        if (reads(good, k))
            fail_msg("cut to %zu of %zu bytes: read", k, n);
    mem_free(good);
    json_decref(j);
}

TEST(mutants)
{
    json_t *root = saved();
    char *good = json_text(root, JSON_COMPACT);
    size_t n = strlen(good);
    uint8_t *bad = mem_new(MEM_TEST, n + MUTATE_EXTRA, 1);
    int n_read = 0, n_repaired = 0;
    struct rng r;

    rng_init(&r, test_seed(), "mutate");
    for (int i = 0; i < N_MUTANTS; i++) {
        size_t m = mutate(&r, (const uint8_t *)good, n, bad);
        json_t *j = json_loadb((const char *)bad, m, 0, NULL);

        (void)reads(bad, m);
        if (json_is_object(j) && json_is_object(json_object_get(j, "predictor"))) {
            char *text = with_checksum(j);

            n_repaired++;
            n_read += reads(text, strlen(text));
            mem_free(text);
        }
        json_decref(j);
    }
    assert_true(n_repaired > 0 && n_read > 0);
    mem_free(bad);
    mem_free(good);
    json_decref(root);
}

/* Each value in turn becomes another one, and the checksum is right: the line says which. */
TEST(each_field_is_named)
{
    static const struct {
        const char *object, *key, *value, *message;
    } all[] = {
        {"", "version", "2", "version: expected"},
        {"", "version", "null", "version: expected"},
        {"", "more", "1", "more"},
        {"predictor", "log_length", "[1]",
         "log_length: expected a list of 512 numbers, "
         "found 1"},
        {"predictor", "log_length", "{}", "log_length"},
        {"predictor", "classes", "[]", "classes: expected a list of 8, found 0"},
        {"predictor", "classes", "[1,2,3,4,5,6,7,8]",
         "classes[0]: expected a list of 512"},
        {"predictor", "longest_log", "21", "longest_log: expected a number from 0 to 20"},
        {"predictor", "longest_log", "-1", "longest_log: expected a number from 0 to 20"},
        {"predictor", "longest_log", "\"x\"", "longest_log"},
        {"predictor", "longer", "1", "longer"},
        {"from", "fold", "6", "fold: expected an integer in [0, 5]"},
        {"from", "folds", "0", "folds: expected"},
        {"from", "n_examples", "1.5", "n_examples: expected"},
        {"from", "tokens", "3", "tokens"},
        {"from", "model", "3", "model"},
        {"from", "model", "\"0123456789abcdef0\"",
         "model: expected below 17 bytes, found 17"},
        {"from", "format", "\"abcdefghijklmnopqrstuvwxyzabcdef\"",
         "format: expected below 32 bytes, found 32"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        json_t *root = saved(), *o = root;
        char *text;

        if (all[i].object[0])
            o = json_object_get(root, "predictor");
        if (strcmp(all[i].object, "from") == 0)
            o = json_object_get(o, "from");
        assert_int_equal(json_object_set_new(
                             o, all[i].key, json_loads(all[i].value, JSON_DECODE_ANY, 0)),
                         0);
        text = with_checksum(root);
        assert_false(reads(text, strlen(text)));
        if (!strstr(err_msg(), all[i].message))
            fail_msg("%s = %s: \"%s\", expected \"%s\"", all[i].key, all[i].value,
                     err_msg(), all[i].message);
        mem_free(text);
        json_decref(root);
    }
}

TEST(numbers_are_checked)
{
    static const char *const bad[] = {"1e7", "-1e300", "null", "\"1\"", "[]"};
    json_t *root = saved();
    json_t *p = json_object_get(root, "predictor");
    char *text;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(
            json_array_set_new(json_array_get(json_object_get(p, "classes"), 3), 511,
                               json_loads(bad[i], JSON_DECODE_ANY, 0)),
            0);
        text = with_checksum(root);
        assert_false(reads(text, strlen(text)));
        assert_non_null(strstr(err_msg(), "classes[3][511]: expected a number"));
        mem_free(text);
    }
    json_decref(root);
    root = saved();
    json_array_set_new(json_object_get(json_object_get(root, "predictor"), "log_length"),
                       0, json_real(0.25)); /* plausible, but not what was written */
    text = json_text(root, JSON_COMPACT);
    assert_false(reads(text, strlen(text)));
    assert_non_null(strstr(err_msg(), "checksum"));
    mem_free(text);
    json_decref(root);
    assert_false(reads("[]", 2));
    assert_err(kv_learned_load(&(struct kv_learned *){0}, NULL, path("none.json")),
               ERR_NOTFOUND, "none.json");
}

/* Numbers at their bounds are read. */
TEST(bounds_are_read)
{
    static const struct {
        double longest, weight;
        int n_examples, folds, fold;
    } all[] = {{0, 1e6, 1, 1, 0}, {20, -1e6, 1, 1, 1}, {3, 0, 2, 1000, 1000}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        json_t *root = saved(), *p = json_object_get(root, "predictor");
        json_t *f = json_object_get(p, "from"), *first = json_object_get(p, "log_length");
        char *text;

        json_object_set_new(p, "longest_log", json_real(all[i].longest));
        json_array_set_new(first, 0, json_real(all[i].weight));
        json_object_set_new(f, "n_examples", json_integer(all[i].n_examples));
        json_object_set_new(f, "folds", json_integer(all[i].folds));
        json_object_set_new(f, "fold", json_integer(all[i].fold));
        text = with_checksum(root);
        if (!reads(text, strlen(text)))
            fail_msg("row %zu: %s", i, err_msg());
        mem_free(text);
        json_decref(root);
    }
}

TEST(memory_fails)
{
    struct kv_learned *l = learn(), *loaded;
    int rc = ERR_NOMEM;

    for (long n = 0; rc != OK; n += 1 + n / 8) {
        mem_fail_after(n, 1);
        rc = kv_learned_save(l, &from, path("short.json"));
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
    }
    rc = ERR_NOMEM;
    for (long n = 0; rc != OK; n += 1 + n / 8) {
        mem_fail_after(n, 1);
        rc = kv_learned_load(&loaded, NULL, path("short.json"));
        mem_fail_after(-1, 0);
        assert_true(rc == OK || (rc == ERR_NOMEM && !loaded));
    }
    kv_learned_close(&loaded);
    kv_learned_close(&l);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}
