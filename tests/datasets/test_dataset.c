#include <math.h>

#include "tests/datasets/data.h"

#define N_LINES 500

/* A CSV whose prompt lengths are 1, 2, ... so that an item shows the line it came from.
 */
static const char *numbered_csv(bool arrivals)
{
    char *text = mem_new(MEM_TEST, N_LINES, 40);
    const char *path;
    size_t at = (size_t)sprintf(text, "n_prompt_tok,n_output_tok%s\n",
                                arrivals ? ",arrival_s" : "");

    for (int i = 1; i <= N_LINES; i++) {
        at += (size_t)sprintf(text + at, "%d,%d", i, 1000 + i);
        at += (size_t)(arrivals ? sprintf(text + at, ",%d.5\n", 10 + i)
                                : sprintf(text + at, "\n"));
    }
    path = data_text(text);
    mem_free(text);
    return path;
}

static struct dataset *open_n(int64_t n, int64_t seed, bool shuffle, bool arrivals)
{
    struct dataset_opts o = data_opts("lengths_csv", numbered_csv(arrivals));
    struct dataset *d;

    o.n = n;
    o.seed = seed;
    o.shuffle = shuffle;
    assert_ok(dataset_open(&d, &o));
    opt_free(dataset_opt_table, &o);
    return d;
}

static bool same_items(const struct dataset *a, const struct dataset *b)
{
    if (a->n_items != b->n_items)
        return false;
    for (int64_t i = 0; i < a->n_items; i++)
        if (a->items[i].n_prompt != b->items[i].n_prompt)
            return false;
    return true;
}

TEST(all_in_order)
{
    struct dataset *d = open_n(0, 1, false, false);

    assert_int_equal(d->n_items, N_LINES);
    for (int64_t i = 0; i < N_LINES; i++) {
        assert_int_equal(d->items[i].n_prompt, i + 1);
        assert_int_equal(d->items[i].n_output, i + 1001);
        assert_true(isnan(d->items[i].arrival_s));
        assert_null(d->items[i].text);
    }
    dataset_close(&d);
    assert_null(d);
}

TEST(sample_is_seeded_and_ordered)
{
    struct dataset *a = open_n(50, 1, false, false), *b = open_n(50, 1, false, false);
    struct dataset *c = open_n(50, 2, false, false);

    assert_int_equal(a->n_items, 50);
    for (int64_t i = 1; i < 50; i++)
        assert_true(a->items[i].n_prompt > a->items[i - 1].n_prompt);
    assert_true(same_items(a, b));
    assert_false(same_items(a, c));
    dataset_close(&a);
    dataset_close(&b);
    dataset_close(&c);
}

/* Every line is equally likely to be sampled: counts over many seeds stay within five
 * standard deviations of the binomial. */
TEST(sample_is_uniform)
{
    enum { SEEDS = 400, TAKE = 50 };
    double p = (double)TAKE / N_LINES, sd = sqrt(SEEDS * p * (1 - p) * 50);
    int per_tenth[10] = {0};

    for (int64_t seed = 0; seed < SEEDS; seed++) {
        struct dataset *d = open_n(TAKE, seed, false, false);

        for (int64_t i = 0; i < TAKE; i++)
            per_tenth[(d->items[i].n_prompt - 1) / 50]++;
        dataset_close(&d);
    }
    for (int i = 0; i < 10; i++)
        assert_true(fabs(per_tenth[i] - SEEDS * TAKE / 10.0) < 5 * sd);
}

TEST(shuffle_is_a_permutation)
{
    struct dataset *a = open_n(0, 1, true, false), *b = open_n(0, 1, true, false);
    struct dataset *c = open_n(0, 2, true, false);
    bool seen[N_LINES + 1] = {false};
    int fixed = 0;

    for (int64_t i = 0; i < a->n_items; i++) {
        int64_t v = a->items[i].n_prompt;

        assert_false(seen[v]);
        seen[v] = true;
        assert_int_equal(a->items[i].n_output, v + 1000);
        fixed += v == i + 1;
    }
    assert_true(fixed < 20);
    assert_true(same_items(a, b));
    assert_false(same_items(a, c));
    dataset_close(&a);
    dataset_close(&b);
    dataset_close(&c);
}

/* A trace keeps its first n and its arrival times, shuffled or not. */
TEST(trace_keeps_its_times)
{
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        struct dataset *d = open_n(40, 1, shuffle, true);
        int64_t sum = 0;

        assert_int_equal(d->n_items, 40);
        for (int64_t i = 0; i < 40; i++) {
            assert_true(fabs(d->items[i].arrival_s - (double)i) < 1e-9);
            sum += d->items[i].n_prompt;
        }
        assert_int_equal(sum, 40 * 41 / 2);
        dataset_close(&d);
    }
}

TEST(lengths_are_cut)
{
    struct dataset_opts o = data_opts("lengths_csv", numbered_csv(false));
    struct dataset_item text = {
        .text = "x", .text_bytes = 1, .n_prompt = 3, .n_output = 9999};
    struct dataset *d;

    o.min_prompt_tok = 16;
    o.max_prompt_tok = 100;
    o.max_output_tok = 1200;
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->items[0].n_prompt, 16);
    assert_int_equal(d->items[15].n_prompt, 16);
    assert_int_equal(d->items[16].n_prompt, 17);
    assert_int_equal(d->items[499].n_prompt, 100);
    assert_int_equal(d->items[198].n_output, 1199);
    assert_int_equal(d->items[499].n_output, 1200);
    dataset_cut(&o, &text);
    assert_int_equal(text.n_prompt, 3); /* a text is never made longer */
    assert_int_equal(text.n_output, 1200);
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
}

TEST(bad_options)
{
    struct dataset_opts o = data_opts("lenghts_csv", "x");
    struct dataset *d;

    assert_err(dataset_open(&d, &o), ERR_NOTFOUND, "did you mean \"lengths_csv\"");
    assert_null(d);
    assert_ok(opt_set(dataset_opt_table, &o, "reader", "azure", "test"));
    assert_err(dataset_open(&d, &o), ERR_NOTFOUND, "x: cannot open");
    o.max_prompt_tok = 5;
    o.min_prompt_tok = 6;
    assert_err(dataset_open(&d, &o), ERR_ARG, "found 6 and 5");
    o.min_prompt_tok = 1;
    o.n = -1;
    assert_err(dataset_open(&d, &o), ERR_ARG, "dataset.n");
    opt_free(dataset_opt_table, &o);
    o = data_opts("sharegpt", NULL);
    assert_err(dataset_open(&d, &o), ERR_ARG, "\"sharegpt\" needs a file");
    assert_null(d);
    opt_free(dataset_opt_table, &o);
}

/* 500 requests that come a second apart, from 11.5 s on. */
TEST(a_window_of_a_trace)
{
    struct dataset_opts o = data_opts("lengths_csv", numbered_csv(true));
    struct dataset *d;

    o.start_s = 100;
    o.duration_s = 20;
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->n_items, 20);
    assert_int_equal(d->items[0].n_prompt, 101);
    assert_true(d->items[0].arrival_s == 0 && d->items[19].arrival_s == 19);
    dataset_close(&d);
    o.duration_s = 0;
    o.n = 7; /* its first, from the window's start */
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->n_items, 7);
    assert_int_equal(d->items[0].n_prompt, 101);
    dataset_close(&d);
    o.start_s = 1000;
    assert_err(dataset_open(&d, &o), ERR_FORMAT, "found none");
    opt_free(dataset_opt_table, &o);
    o = data_opts("lengths_csv", numbered_csv(false));
    o.start_s = 1;
    assert_err(dataset_open(&d, &o), ERR_ARG, "need arrival times");
    opt_free(dataset_opt_table, &o);
    o = data_opts("synth", NULL); /* it draws until the window has its requests */
    assert_ok(opt_set(dataset_opt_table, &o, "fit", "azure_conv", "test"));
    o.start_s = 600;
    o.n = 5;
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->n_items, 5);
    assert_true(d->items[0].arrival_s >= 0 && d->items[4].arrival_s < 60);
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
}

/* One row for each clause of the rule, and one that passes at every bound. */
TEST(vllms_rule)
{
    static const char csv[] = "n_prompt_tok,n_output_tok\n3,50\n50,3\n1025,4\n1000,1049\n"
                              "1024,1024\n4,4\n";
    struct dataset_opts o = data_opts("lengths_csv", data_text(csv));
    struct dataset *d;

    assert_ok(opt_set(dataset_opt_table, &o, "filter", "vllm", "test"));
    o.max_output_tok = 10; /* cut after the rule was applied */
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->n_items, 2);
    assert_int_equal(d->items[0].n_prompt, 1024);
    assert_int_equal(d->items[0].n_output, 10);
    assert_int_equal(d->items[1].n_prompt, 4);
    assert_int_equal(d->n_skipped, 4);
    assert_non_null(
        strstr(d->skipped_why, "a prompt below 4 tokens (1), an output below 4"));
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
}

TEST(a_fit_stands_in_for_an_absent_file)
{
    struct dataset_opts o = data_opts("azure", "no/such/trace.csv");
    struct dataset *d;

    o.n = 5;
    assert_err(dataset_open(&d, &o), ERR_NOTFOUND, "no/such/trace.csv");
    assert_ok(opt_set(dataset_opt_table, &o, "stand_in", "azure_conv", "test"));
    assert_ok(dataset_open(&d, &o));
    assert_true(d->stands_in);
    assert_string_equal(d->name, "synth azure_conv (stand-in)");
    assert_int_equal(d->n_items, 5);
    dataset_close(&d);
    assert_ok(opt_set(dataset_opt_table, &o, "path",
                      data_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                "2023-01-02 00:00:00,1,1\n"),
                      "test"));
    assert_ok(dataset_open(&d, &o)); /* it is there */
    assert_false(d->stands_in);
    assert_int_equal(d->n_items, 1);
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
}

/* A name that is not there is looked for below $SANDWICH_DATA. */
TEST(data_have_a_folder)
{
    const char *before = getenv("SANDWICH_DATA");
    char *old = before ? strdup(before) : NULL;
    struct dataset_opts o = data_opts("lengths_csv", "in");
    struct dataset *d;

    data_text("n_prompt_tok,n_output_tok\n1,2\n");
    setenv("SANDWICH_DATA", test_dir(), 1);
    assert_ok(dataset_open(&d, &o));
    assert_non_null(strstr(d->source, "/in"));
    dataset_close(&d);
    setenv("SANDWICH_DATA", "/no/such/folder", 1);
    assert_err(dataset_open(&d, &o), ERR_NOTFOUND, "in: ");
    if (old)
        setenv("SANDWICH_DATA", old, 1);
    else
        unsetenv("SANDWICH_DATA");
    free(old);
    opt_free(dataset_opt_table, &o);
}

TEST(every_reader_is_listed)
{
    int n = 0;

    for (; dataset_readers[n]; n++) {
        assert_true(dataset_readers[n]->needs_path ==
                    (dataset_readers[n]->keys || dataset_readers[n]->columns));
        assert_non_null(dataset_readers[n]->name);
        assert_non_null(dataset_readers[n]->help);
        assert_non_null(dataset_readers[n]->open);
    }
    assert_true(n >= 5);
}

/* Each allocation fails in turn: a clean error and nothing leaked (ASan looks). */
TEST(out_of_memory)
{
    static const char *const texts[][2] = {
        {"lengths_csv", "n_prompt_tok,n_output_tok\n1,2\n3,4\n5,6\n"},
        {"sharegpt", "[{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},"
                     "{\"from\":\"gpt\",\"value\":\"a\"}]}]"},
        {"mooncake", "{\"timestamp\":0,\"input_length\":9,\"output_length\":1,"
                     "\"hash_ids\":[7]}"},
        {"alpaca", "[{\"instruction\":\"x\",\"output\":\"y\"}]"},
        {"auto", "[{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},"
                 "{\"from\":\"gpt\",\"value\":\"a\"},{\"from\":\"human\","
                 "\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}]}]"},
        {"synth", NULL},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *path = texts[i][1] ? data_text(texts[i][1]) : NULL;
        struct dataset_opts o = data_opts(texts[i][0], path);
        struct dataset *d;
        int rc = ERR_NOMEM;
        long n = 0;

        o.n = 2;
        o.turns = DATASET_TURNS_CONVERSATION;
        for (; rc != OK; n++) {
            mem_fail_after(n, 1);
            rc = dataset_open(&d, &o);
            mem_fail_after(-1, 1);
            if (rc != OK && (rc != ERR_NOMEM || d))
                fail_msg("%s: allocation %ld: %s", texts[i][0], n, err_msg());
            assert_true(n < 2000);
        }
        assert_true(n > 4);
        dataset_close(&d);
        opt_free(dataset_opt_table, &o);
    }
}
