#include "tests/support/test.h"

#include <math.h>

#include "base/name.h"
#include "base/opt.h"

/* Regression: help and errors did not name the plug-ins that there are. */

/* Regression: `describe keys` listed flags that `run` does not take, and maxima such as
 * 9.00719925474099e+15; `model --help` printed two help texts. */

struct settings {
    bool warm;
    int64_t threads, bytes, n_prompt_tok;
    double rate;
    char *model, *name;
    int policy;
};

#define AT(member) offsetof(struct settings, member)
static const struct opt_row table[] = {
    {"warm", OPT_BOOL, AT(warm), NULL, 0, 0, "true", NULL, "Touch the pages first.", 'w',
     NULL, 0, NULL},
    {"threads", OPT_INT, AT(threads), NULL, 1, 4096, "2", NULL, "Threads.", 't', NULL, 0,
     NULL},
    {"kv_bytes", OPT_BYTES, AT(bytes), "B", 0, 0, "1GiB", NULL, "Pool.", 0, NULL, 0,
     NULL},
    {"n_prompt_tok", OPT_INT, AT(n_prompt_tok), "tok", 0, 0, "-3", NULL, "Length.", 0,
     NULL, 0, NULL},
    {"rate", OPT_F64, AT(rate), "req/s", 0.5, 8, "1.5", NULL, "Rate.", 'r', NULL, 0,
     NULL},
    {"model", OPT_STR, AT(model), NULL, 0, 0, NULL, NULL, "File.", 'm', NULL, 0, NULL},
    {"name", OPT_STR, AT(name), NULL, 0, 0, "x", NULL, "Name.", 0, NULL, 0, NULL},
    {"policy", OPT_ENUM, AT(policy), NULL, 0, 0, "top_k", "greedy|top_k|top_p", "How.", 0,
     NULL, 0, NULL},
    {0},
};

static struct settings fresh(void)
{
    struct settings s;

    memset(&s, 0xa5, sizeof(s)); /* need not be initialised */
    assert_ok(opt_init(table, &s));
    return s;
}

TEST(defaults)
{
    struct settings s = fresh();

    assert_true(s.warm);
    assert_int_equal(s.threads, 2);
    assert_true(s.bytes == 1 << 30);
    assert_int_equal(s.n_prompt_tok, -3);
    assert_true(s.rate == 1.5);
    assert_null(s.model);
    assert_string_equal(s.name, "x");
    assert_int_equal(s.policy, 1);
    opt_free(table, &s);
    assert_null(s.name);
    opt_free(table, &s); /* twice is fine */
}

TEST(bad_tables)
{
    struct settings s;
    struct opt_row t[3] = {table[6], table[1], {0}};

    t[1].def = "9999";
    assert_err(opt_init(t, &s), ERR_ARG, "threads: expected an integer in [1, 4096]");
    assert_null(s.name); /* what was set before is given back */
    t[1] = table[7];
    t[1].values = NULL;
    assert_err(opt_init(t, &s), ERR_ARG, "bad row \"policy\"");
}

TEST(flags)
{
    char *argv[] = {"run",        "--threads=4", "--n-prompt-tok",
                    "-7",         "a.gguf",      "--no-warm",
                    "-r2",        "-m",          "-",
                    "--kv_bytes", "4MiB",        "--policy",
                    "top_p",      "-",           "--name=",
                    "--",         "--threads",   "9"};
    struct settings s = fresh();
    int n;

    assert_ok(opt_from_argv(table, &s, sizeof(argv) / sizeof(argv[0]), argv, &n));
    assert_int_equal(n, 5);
    assert_string_equal(argv[0], "run");
    assert_string_equal(argv[1], "a.gguf");
    assert_string_equal(argv[2], "-");
    assert_string_equal(argv[3], "--threads");
    assert_string_equal(argv[4], "9");
    assert_int_equal(s.threads, 4);
    assert_int_equal(s.n_prompt_tok, -7);
    assert_false(s.warm);
    assert_true(s.rate == 2);
    assert_string_equal(s.model, "-");
    assert_string_equal(s.name, "");
    assert_true(s.bytes == 4 << 20);
    assert_int_equal(s.policy, 2);
    opt_free(table, &s);
}

TEST(bad_flags)
{
    static const struct {
        char *argv[2];
        const char *message;
    } cases[] = {
        {{"--thread", "3"}, "unknown option --thread; did you mean --threads?"},
        {{"--n-promt-tok", "3"}, "did you mean --n-prompt-tok?"},
        {{"--polcy=x", NULL}, "unknown option --polcy; did you mean --policy?"},
        {{"--zzzzzzzz", NULL}, "unknown option --zzzzzzzz"},
        {{"-z", NULL}, "unknown option -z"},
        {{"--threads", NULL}, "--threads: expected a value, found nothing"},
        {{"--threads", "--warm"}, "--threads: expected a value, found --warm"},
        {{"--threads", "0"}, "--threads: expected an integer in [1, 4096], found \"0\""},
        {{"--threads", "4097"}, "found \"4097\""},
        {{"--threads", "3x"}, "found \"3x\""},
        {{"--threads", ""}, "found \"\""},
        {{"--threads", " 3"}, "found \" 3\""},
        {{"--threads", "99999999999999999999"}, "found"},
        {{"--rate", "nan"}, "--rate: expected a number in [0.5, 8], found \"nan\""},
        {{"--rate", "1e999"}, "found \"1e999\""},
        {{"--rate=0x", NULL}, "found \"0x\""},
        {{"--policy", "topp"}, "did you mean \"top_p\"?"},
        {{"--no-threads", NULL}, "only switches can be negated"},
        {{"--no-warm=1", NULL}, "takes no value"},
        {{"--warm=maybe", NULL}, "--warm: expected true or false, found \"maybe\""},
        {{"--kv-bytes", "-1"}, "expected a size"},
        {{"--kv-bytes", "3 GB"}, "expected a size"},
        {{"--kv-bytes", "9e30GB"}, "expected a size"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct settings s = fresh();
        char *argv[] = {cases[i].argv[0], cases[i].argv[1]};
        int n;
        assert_err(opt_from_argv(table, &s, 1 + (argv[1] != NULL), argv, &n), ERR_ARG,
                   cases[i].message);
        opt_free(table, &s);
    }
}

TEST(long_flags_are_refused)
{
    char flag[300] = "--", *argv[] = {flag};
    struct settings s = fresh();
    int n;

    for (size_t len = 3; len < sizeof(flag); len++) {
        memset(flag + 2, 'a', len - 2);
        flag[len] = 0;
        assert_err(opt_from_argv(table, &s, 1, argv, &n), ERR_ARG, "unknown option");
    }
    opt_free(table, &s);
}

TEST(sizes)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0},
        {"512", 512},
        {"512B", 512},
        {"64KiB", 65536},
        {"1.5GB", 1500000000},
        {"1.5GiB", 1610612736},
        {"2kB", 2000},
        {"1TiB", INT64_C(1) << 40},
        {"9223372036854775807", INT64_MAX},
        {"9007199254740993", INT64_C(9007199254740993)}, /* 2^53 + 1 is exact */
    };
    struct settings s = fresh();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(opt_set(table, &s, "kv_bytes", cases[i].text, "x"));
        assert_true(s.bytes == cases[i].bytes);
    }
    assert_err(opt_set(table, &s, "kv_bytes", "9223372036854775808", "x"), ERR_ARG,
               "x: ");
    assert_err(opt_set(table, &s, "kv_byte", "1", "x"), ERR_ARG,
               "x: unknown key \"kv_byte\"; did you mean \"kv_bytes\"?");
    opt_free(table, &s);
}

static json_t *parse(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    return j;
}

TEST(json_round_trip)
{
    struct settings s = fresh(), t = fresh();
    json_t *a =
        parse("{\"threads\": 7, \"rate\": 2, \"model\": \"m\", \"policy\": \"greedy\","
              "\"kv_bytes\": \"2KiB\", \"warm\": false, \"name\": null}");
    json_t *b, *c;

    assert_ok(opt_from_json(table, &s, a, "x.json"));
    assert_int_equal(s.threads, 7);
    assert_true(s.rate == 2);
    assert_true(s.bytes == 2048);
    assert_null(s.name);
    b = opt_to_json(table, &s);
    assert_non_null(b);
    assert_ok(opt_from_json(table, &t, b, "b"));
    c = opt_to_json(table, &t);
    assert_true(json_equal(b, c));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    opt_free(table, &s);
    opt_free(table, &t);
}

TEST(bad_json)
{
    static const char *const cases[][2] = {
        {"{\"thread\": 1}", "j: unknown key \"thread\"; did you mean \"threads\"?"},
        {"{\"threads\": \"3\"}", "j: threads: expected an integer, found a string"},
        {"{\"threads\": 1.5}", "expected an integer, found a fraction"},
        {"{\"threads\": 0}", "j: threads: expected an integer in [1, 4096]"},
        {"{\"threads\": null}", "found null"},
        {"{\"rate\": \"fast\"}", "expected a number, found a string"},
        {"{\"warm\": 1}", "expected true or false"},
        {"{\"policy\": 1}", "expected a string"},
        {"{\"model\": [1]}", "expected a string, found an array"},
        {"{\"kv_bytes\": 1.5}", "expected bytes or a size"},
        {"[]", "j: expected an object"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct settings s = fresh();
        json_t *j = parse(cases[i][0]);
        assert_err(opt_from_json(table, &s, j, "j"), ERR_ARG, cases[i][1]);
        json_decref(j);
        opt_free(table, &s);
    }
}

TEST(memory_fails)
{
    json_t *j = parse("{\"model\": \"m\", \"name\": \"n\"}");

    for (int once = 0; once < 2; once++)
        for (long k = 0;; k++) {
            struct settings s = {0};
            json_t *out = NULL;
            int rc;
            mem_fail_after(k, once);
            rc = opt_init(table, &s);
            if (rc == OK)
                rc = opt_from_json(table, &s, j, "j");
            if (rc == OK && !(out = opt_to_json(table, &s)))
                rc = ERR_NOMEM;
            mem_fail_after(-1, 0);
            json_decref(out);
            opt_free(table, &s);
            if (rc == OK)
                break;
            assert_int_equal(rc, ERR_NOMEM);
            assert_true(k < 100);
        }
    json_decref(j);
}

TEST(nearest)
{
    static const char *const words[] = {"greedy", "top_k", "top_p", "continuous", NULL};
    static const char *const none[] = {NULL};
    char longest[5000];

    assert_string_equal(name_nearest("gredy", words), "greedy");
    assert_string_equal(name_nearest("grede", words), "greedy");
    assert_string_equal(name_nearest("tpo_k", words), "top_k");
    assert_string_equal(name_nearest("cont", words), "continuous");
    assert_string_equal(name_nearest("top_k", words), "top_k");
    assert_null(name_nearest("elephant", words));
    assert_null(name_nearest("", words));
    assert_null(name_nearest("x", words));
    assert_null(name_nearest("greedy", none));
    memset(longest, 'g', sizeof(longest));
    longest[sizeof(longest) - 1] = 0;
    assert_null(name_nearest(longest, words));
}

static char *printed(void (*print)(const struct opt_row *t, FILE *f),
                     const struct opt_row *rows)
{
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    print(rows, f);
    fclose(f);
    return text;
}

TEST(help)
{
    static const struct opt_row seed[] = {
        {"seed", OPT_INT, AT(threads), NULL, 0, 9007199254740991, "1", NULL, "Seed.", 0,
         NULL, 0, NULL},
        {0},
    };
    char *text = printed(opt_help, table), *markdown = printed(opt_help_markdown, table);
    int rows = 0;

    for (const struct opt_row *r = table; r->name; r++)
        assert_non_null(strstr(text, r->help));
    assert_non_null(strstr(text, "-t, --threads N\n"));
    assert_non_null(strstr(text, "Range: 1 to 4096. Default: 2.\n"));
    assert_non_null(strstr(text, "--n-prompt-tok N\n"));
    assert_non_null(strstr(text, "Unit: tok. Default: -3.\n"));
    assert_non_null(strstr(markdown, "greedy\\|top_k\\|top_p"));
    for (char *p = markdown; (p = strchr(p, '\n')); p++)
        rows++;
    assert_int_equal(rows, 2 + 8);
    assert_null(strstr(markdown, "--n-prompt-tok"));
    free(text);
    free(markdown);
    text = printed(opt_help, seed);
    markdown = printed(opt_help_markdown, seed);
    assert_non_null(strstr(text, "At least 0. Default: 1.\n"));
    assert_non_null(strstr(markdown, "| at least 0 | 1 |"));
    free(text);
    free(markdown);
}

static const char *fruit(int i)
{
    static const char *const names[] = {"apple", "pear", NULL};

    return names[i];
}

struct list_opts {
    char *sizes, *kind;
};
static const struct opt_row lists[] = {
    {.name = "sizes",
     .type = OPT_STR,
     .offset = offsetof(struct list_opts, sizes),
     .def = "512",
     .help = "Sizes.",
     .letter = 's',
     .joins = ','},
    {.name = "kind",
     .type = OPT_STR,
     .offset = offsetof(struct list_opts, kind),
     .help = "Kind.",
     .names = fruit},
    {0},
};

/* A default is replaced, a flag given again is added. */
TEST(repeated_flags_make_a_list)
{
    char *argv[] = {(char[]){"-s"},     (char[]){"16"}, (char[]){"--sizes=32,64"},
                    (char[]){"--kind"}, (char[]){"x"},  (char[]){"--kind=y"},
                    (char[]){"-s8"}};
    struct list_opts o;
    int n;

    assert_ok(opt_init(lists, &o));
    assert_string_equal(o.sizes, "512");
    assert_ok(opt_from_argv(lists, &o, 7, argv, &n));
    assert_string_equal(o.sizes, "16,32,64,8");
    assert_string_equal(o.kind, "y");
    opt_free(lists, &o);
}

/* Words of other programs: letters behind one dash are one word, not a letter and a value. */
TEST(aliases)
{
    static const struct opt_row rows[] = {
        {.name = "n_new", .type = OPT_INT, .letter = 'n', .alias = "max_tokens"},
        {.name = "max_seqs",
         .type = OPT_INT,
         .offset = sizeof(int64_t),
         .help = "Sequences.",
         .alias = "np|parallel"},
        {0}};
    char *argv[] = {(char[]){"-np"}, (char[]){"4"}, (char[]){"-n5"}, (char[]){"x"},
                    (char[]){"--parallel=6"}};
    char *more[] = {(char[]){"--max-tokens"}, (char[]){"7"}, (char[]){"-np=8"}};
    char *wrong[] = {(char[]){"-np"}};
    char *half[] = {(char[]){"--para"}, (char[]){"1"}};
    int64_t o[2];
    char *text;
    int n;

    assert_ok(opt_init(rows, o));
    assert_ok(opt_from_argv(rows, o, 5, argv, &n));
    assert_true(o[0] == 5 && o[1] == 6 && n == 1);
    assert_ok(opt_from_argv(rows, o, 3, more, &n));
    assert_true(o[0] == 7 && o[1] == 8 && n == 0);
    assert_err(opt_from_argv(rows, o, 1, wrong, &n), ERR_ARG, "-np: expected a value");
    assert_err(opt_from_argv(rows, o, 2, half, &n), ERR_ARG, "unknown option --para");
    text = printed(opt_help, rows);
    assert_non_null(strstr(text, "Also: -np, --parallel.\n"));
    free(text);
}

TEST(help_lists_the_names_of_plugins)
{
    char *text = printed(opt_help, lists), *markdown = printed(opt_help_markdown, lists);

    assert_non_null(strstr(text, "Kind.\n        One of: apple, pear.\n"));
    assert_non_null(strstr(markdown, "| Kind. One of: apple, pear. |"));
    free(text);
    free(markdown);
}

/* An error about a name shows the nearest, and then all. */
TEST(errors_list_the_names_of_plugins)
{
    static const struct plugin {
        const char *name;
        int more;
    } a = {"apple", 1}, b = {"pear", 2};
    static const struct plugin *const registry[] = {&a, &b, NULL};

    assert_ptr_equal(name_find(registry, "pear", "fruit"), &b);
    assert_null(name_find(registry, "aple", "fruit"));
    assert_string_equal(
        err_msg(), "no fruit \"aple\"; did you mean \"apple\"? (known: apple, pear)");
    assert_null(name_find(registry, "", "fruit"));
    assert_string_equal(err_msg(), "no fruit \"\" (known: apple, pear)");
}

/* Regression: a list that is longer than the line was cut within a name, in help and in errors. */
TEST(long_lists_end_in_dots)
{
    char word[40][16];
    const char *words[41] = {NULL};

    for (int i = 0; i < 40; i++) {
        snprintf(word[i], sizeof(word[i]), "a-long-name-%02d", i);
        words[i] = word[i];
    }
    assert_int_equal(name_not_in("b", words, "no fruit"), ERR_NOTFOUND);
    assert_non_null(strstr(err_msg(), "a-long-name-22, ...)"));
    err_clear();
}

TEST(times_have_units)
{
    static const struct {
        const char *word;
        double s;
    } cases[] = {{"90", 90}, {"90s", 90}, {"10m", 600}, {"1.5min", 90}, {"2h", 7200}};
    static const char *const bad[] = {"", "m", "10x", "-1m", "0", "1h ", "nan", "1e9h"};
    double s = 0;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(opt_seconds(&s, cases[i].word, "--budget"));
        assert_true(s == cases[i].s);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_err(opt_seconds(&s, bad[i], "--budget"), ERR_ARG,
                   "--budget: expected a time such as 90s");
}
