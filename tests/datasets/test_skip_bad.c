/* Lists of JSON records of which one is damaged: with dataset.skip_bad all others are read,
 * whatever the damage is, and it is named. Regression: behind a lost quote or bracket the rest of
 * a list was refused. */
#include "base/log.h"
#include "tests/datasets/data.h"
#include "tests/support/faults.h"
#include "tests/support/mutate.h"

#define N 5

struct list {
    char text[4096];
    size_t begin[N], end[N]; /* of each record */
};

static const struct layout {
    const char *before, *between, *after, *colon;
} layouts[] = {
    {"[", ",", "]", ":"}, {"[\n", ",\n", "\n]\n", ": "}, {" [ ", "\n  , ", "]", "\n : "}};
#define N_LAYOUTS ((int)(sizeof(layouts) / sizeof(layouts[0])))

static void write_list(struct list *l, const struct layout *y)
{
    /* Texts that look like other records, brackets and quotes. */
    static const char *const question[N] = {"{\\\"instruction\\\": 1}, ", "a } b { c, [",
                                            "plain", "\\\\", "a\\nb \\\"}, {\\\""};
    size_t at = (size_t)sprintf(l->text, "%s", y->before);

    for (int i = 0; i < N; i++) {
        at += (size_t)sprintf(l->text + at, "%s", i ? y->between : "");
        l->begin[i] = at;
        at += (size_t)sprintf(l->text + at,
                              "{\"instruction\"%s\"%s\", \"tags\": [\"x\", {\"y\": 0}], "
                              "\"output\": \"answer %d\"}",
                              y->colon, question[i], i);
        l->end[i] = at;
    }
    sprintf(l->text + at, "%s", y->after);
}

static int read_list(struct dataset **d, const void *text, size_t n, int64_t skip_bad)
{
    struct dataset_opts o = data_opts("alpaca", test_memory_file());
    int rc;

    test_write(o.path, text, n);
    o.skip_bad = skip_bad;
    rc = dataset_open(d, &o);
    opt_free(dataset_opt_table, &o);
    return rc;
}

static bool has_answer(const struct dataset *d, int k)
{
    char answer[32];

    snprintf(answer, sizeof(answer), "answer %d", k);
    for (int64_t i = 0; i < d->n_items; i++)
        if (strcmp(d->items[i].reply, answer) == 0)
            return true;
    return false;
}

/* Of the damaged record something may be left, but no two requests. */
static void expect_others(const char *text, int damaged)
{
    struct log_warning w[8];
    struct dataset *d;

    (void)log_warnings_take(w, 8);
    if (read_list(&d, text, strlen(text), 4) != OK)
        fail_msg("record %d: %s: %s", damaged, err_msg(), text);
    for (int k = 0; k < N; k++)
        if (k != damaged && !has_answer(d, k))
            fail_msg("record %d is lost with record %d: %s", k, damaged, text);
    assert_in_range(d->n_items, N - 1, N);
    assert_true(d->n_items == N || d->n_bad >= 1);
    assert_int_equal(log_warnings_take(w, 8), d->n_bad);
    for (int i = 0; i < d->n_bad; i++)
        assert_non_null(strstr(w[i].text, ":"));
    dataset_close(&d);
}

/* Each byte of each record, or one in three, is left out, or gets each of these before it. The
 * first record's key must stay: it tells what records begin with. */
TEST(one_byte_is_wrong)
{
    static const char put[] = "\"{}[],\n";
    struct list l;
    char text[sizeof(l.text) + 1];

    for (int y = 0; y < N_LAYOUTS; y++) {
        write_list(&l, &layouts[y]);
        for (int k = 0; k < N; k++) {
            size_t key = k == 0 ? strlen("{\"instruction\"\n : ") : 0;

            for (size_t at = l.begin[k] + key; at < l.end[k]; at += y ? 3 : 1) {
                sprintf(text, "%.*s%s", (int)at, l.text, l.text + at + 1);
                expect_others(text, k);
                for (const char *c = put; *c; c++) {
                    sprintf(text, "%.*s%c%s", (int)at, l.text, *c, l.text + at);
                    expect_others(text, k);
                }
            }
        }
    }
}

/* What is between records is no record either, and is counted. */
TEST(between_records)
{
    static const struct {
        const char *between;
        int n_bad;
        const char *says;
    } cases[] = {
        {" ", 1, ":1: expected ',' or ']' after a record, found '{'; the next record"},
        {",,", 1, "expected '{' of a record, found ','"},
        {", null, 7,", 1, "expected '{' of a record, found 'n'; the next record"},
        {"},", 1, "expected ',' or ']' after a record, found '}'"},
        {"],", 1, "expected nothing after the list, found ','"},
        {",\n{\"other\": 1},\n", 1, ":2: instruction: expected"},
        {",\n{\"other\": 1, \"in\": [{\"instruction\": 1}]},", 3, ":2: instruction"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct layout y = {"[", cases[i].between, "]", ":"};
        struct log_warning w[64];
        struct dataset *d;
        struct list l;

        write_list(&l, &y);
        (void)log_warnings_take(w, 64);
        assert_err(read_list(&d, l.text, strlen(l.text), 0), ERR_FORMAT, ":");
        assert_ok(read_list(&d, l.text, strlen(l.text), 64));
        assert_int_equal(d->n_items, N);
        assert_int_equal(d->n_bad, (N - 1) * cases[i].n_bad);
        assert_int_equal(log_warnings_take(w, 64), d->n_bad);
        if (!strstr(w[0].text, cases[i].says))
            fail_msg("\"%s\": \"%s\"", cases[i].between, w[0].text);
        dataset_close(&d);
        assert_err(read_list(&d, l.text, strlen(l.text), (N - 1) * cases[i].n_bad - 1),
                   ERR_FORMAT, ":");
    }
}

/* How many records a cut file lacks is not known, so that no number of bad ones is enough. */
TEST(a_cut_list_is_refused)
{
    struct dataset *d;
    struct list l;

    for (int y = 0; y < N_LAYOUTS; y++) {
        write_list(&l, &layouts[y]);
        for (size_t n = l.end[0]; n < l.end[N - 1] + strcspn(l.text + l.end[N - 1], "]");
             n++)
            /* in a text the end of the file looks like a lost quote before the list's ']' */
            if (l.text[n - 1] != ']' && read_list(&d, l.text, n, 100) != ERR_FORMAT)
                fail_msg("read although cut: %.*s", (int)n, l.text);
    }
    assert_err(read_list(&d, "[{\"instruction\": 1, \"tags\": [1]", 32, 9), ERR_FORMAT,
               ":1: expected '}' of a record, found the end of the file");
}

/* A text ends in its line: JSON allows no line's end in it. */
TEST(a_lost_quote_is_named_where_it_is)
{
    static const char text[] = "[{\"instruction\": \"a,\n\"output\": \"b\"},\n"
                               "{\"instruction\": \"c\", \"output\": \"d\"}]";
    struct dataset *d;

    assert_err(read_list(&d, text, strlen(text), 0), ERR_FORMAT,
               ":1: expected '\"' at the end of a string, found byte 0x0a");
}

/* The first record is damaged before its key is known: which begins like it cannot be told. */
TEST(nothing_to_go_by)
{
    static const char text[] = "[{instruction\": \"a\", \"output\": \"b]\"}\n]";
    struct dataset *d;

    assert_err(read_list(&d, text, strlen(text), 9), ERR_FORMAT, ":1: ");
}

TEST(a_line_too_long)
{
    size_t n = ((size_t)64 << 20) + 200;
    static const char good[] = "{\"instruction\": \"a\", \"output\": \"b\"}\n";
    char *text = mem_new(MEM_TEST, n + 100, 1);
    struct dataset *d;

    assert_non_null(text);
    strcpy(text, good);
    memset(text + strlen(good), 'x', n - strlen(good));
    strcpy(text + n, "\n");
    strcat(text + n, good);
    assert_err(read_list(&d, text, n + strlen(text + n), 0), ERR_LIMIT, ":2: ");
    assert_ok(read_list(&d, text, n + strlen(text + n), 1));
    assert_int_equal(d->n_items, 2);
    assert_int_equal(d->n_bad, 1);
    dataset_close(&d);
    mem_free(text);
}

/* Whatever is damaged, reading ends. */
TEST(random_damage)
{
    uint8_t *text = mem_new(MEM_TEST, sizeof(struct list) + MUTATE_EXTRA, 1);
    struct rng r;
    int n_read = 0;

    assert_non_null(text);
    rng_init(&r, test_seed(), "skip_bad");
    for (int i = 0; i < 1000; i++) {
        struct list l;
        struct dataset *d;
        size_t n;

        write_list(&l, &layouts[i % N_LAYOUTS]);
        n = mutate(&r, (const uint8_t *)l.text, strlen(l.text), text);
        if (read_list(&d, text, n, 100) == OK)
            n_read++;
        else
            assert_null(strchr(err_msg(), '\n'));
        dataset_close(&d);
    }
    assert_in_range(n_read, 100, 1000);
    mem_free(text);
}

TEST(short_of_memory)
{
    struct dataset_opts o;
    struct list l;
    struct dataset *d = NULL;
    char text[sizeof(l.text) + 1];

    write_list(&l, &layouts[0]);
    sprintf(text, "%.*s\"%s", (int)l.end[1] - 3, l.text, l.text + l.end[1] - 3);
    o = data_opts("alpaca", data_text(text));
    o.skip_bad = 1;
    assert_true(test_allocations(dataset_open(&d, &o), d == NULL) > 10);
    assert_int_equal(d->n_items, N - 1);
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
}
