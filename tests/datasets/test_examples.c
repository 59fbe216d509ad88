/* Examples for a predictor of lengths: the question alone with all its prompt's tokens, and
 * a division in which no conversation is on both sides, whatever the order of the file. */
#include "datasets/examples.h"
#include "tests/datasets/data.h"

#define FOLDS 5
#define N     60 /* conversations, of three parts with two turns each */

/* Conversations in parts, as ShareGPT's collectors divide them: "c7_0", "c7_20", "c7_40". */
static const char *conversations(uint64_t seed)
{
    static char text[N * 3 * 512];
    int order[N * 3];
    size_t at = 1;
    struct rng r;

    rng_init(&r, seed, "order");
    for (int i = 0; i < N * 3; i++)
        order[i] = i;
    for (int i = N * 3 - 1; i > 0; i--) {
        int k = (int)rng_below(&r, (uint64_t)i + 1), was = order[i];

        order[i] = order[k];
        order[k] = was;
    }
    strcpy(text, "[");
    for (int i = 0; i < N * 3; i++)
        at += (size_t)snprintf(
            text + at, sizeof(text) - at,
            "%s{\"id\":\"c%d_%d\",\"conversations\":["
            "{\"from\":\"human\",\"value\":\"first %d\"},"
            "{\"from\":\"gpt\",\"value\":\"%d\"},"
            "{\"from\":\"human\",\"value\":\"second %d\"},"
            "{\"from\":\"gpt\",\"value\":\"an answer of thirty-two letters..\"}]}",
            i ? ",\n" : "", order[i] / 3, order[i] % 3 * 20, order[i] / 3, order[i] / 3,
            order[i] / 3);
    strcpy(text + at, "]");
    return text;
}

static void open_set(struct dataset **d, const char *reader, const char *text, int turns)
{
    struct dataset_opts o = data_opts(reader, data_text(text));

    o.turns = turns;
    assert_ok(dataset_open(d, &o));
    opt_free(dataset_opt_table, &o);
}

/* The number at the end of an example's question is that of its conversation. */
static int number_of(const struct kv_example *e)
{
    char text[64];

    assert_true(e->text_bytes < sizeof(text));
    snprintf(text, sizeof(text), "%.*s", (int)e->text_bytes, e->text);
    return atoi(strchr(text, ' '));
}

/* In which part each conversation is held out. */
static void parts(int part[N], const struct dataset *d, int n_each)
{
    int64_t n_held_out = 0;

    memset(part, 0, N * sizeof(*part));
    for (int fold = 1; fold <= FOLDS; fold++) {
        struct dataset_examples x;

        assert_ok(dataset_examples(&x, d, NULL, fold, FOLDS));
        assert_int_equal(x.n_learn + x.n_held_out, N * n_each);
        assert_true(x.n_held_out > 0 && x.n_held_out % n_each == 0);
        n_held_out += x.n_held_out;
        for (int64_t i = 0; i < x.n_held_out; i++) {
            int *p = &part[number_of(&x.e[x.n_learn + i])];

            assert_true(*p == 0 || *p == fold); /* all of it, or nothing */
            *p = fold;
        }
        for (int64_t i = 0; i < x.n_learn; i++)
            assert_true(part[number_of(&x.e[i])] != fold);
        dataset_examples_fini(&x);
    }
    assert_int_equal(n_held_out, N * n_each);
}

TEST(a_conversation_is_on_one_side)
{
    int one[N], other[N];
    struct dataset *d;

    open_set(&d, "sharegpt", conversations(test_seed()), DATASET_TURNS_EACH);
    parts(one, d, 6);
    dataset_close(&d);
    open_set(&d, "sharegpt", conversations(test_seed() + 1), DATASET_TURNS_CONVERSATION);
    parts(other, d, 6); /* another order, later turns behind the first */
    dataset_close(&d);
    assert_memory_equal(one, other, sizeof(one));
}

TEST(tokens_are_those_of_the_prompt)
{
    struct dataset_examples x;
    struct dataset *d;

    open_set(
        &d, "sharegpt",
        "[{\"conversations\":[{\"from\":\"human\",\"value\":\"12345678\"},"
        "{\"from\":\"gpt\",\"value\":\"123\"},{\"from\":\"human\",\"value\":\"abc\"},"
        "{\"from\":\"gpt\",\"value\":\"123456789\"}]}]",
        DATASET_TURNS_EACH);
    assert_ok(dataset_examples(&x, d, NULL, 0, 1));
    assert_int_equal(x.n_learn, 2);
    assert_int_equal(x.n_held_out, 0);
    assert_int_equal(x.e[0].prompt_tok, 2);
    assert_int_equal(x.e[0].output_tok, 1);
    assert_int_equal(x.e[1].text_bytes, 3);
    assert_memory_equal(x.e[1].text, "abc", 3);
    assert_int_equal(x.e[1].prompt_tok, 4); /* 8 + 3 + 3 letters and two newlines */
    assert_int_equal(x.e[1].output_tok, 3);
    dataset_examples_fini(&x);
    assert_err(dataset_examples(&x, d, NULL, 3, 2), ERR_ARG,
               "fold: expected 0 to 2, found 3");
    dataset_examples_fini(&x);
    mem_fail_after(0, 1);
    assert_int_equal(dataset_examples(&x, d, NULL, 1, 2), ERR_NOMEM);
    mem_fail_after(-1, 0);
    dataset_examples_fini(&x);
    dataset_close(&d);
}

/* Copies of a prompt, which have no name, are in one part. */
TEST(copies_are_on_one_side)
{
    struct dataset_examples x;
    struct dataset *d;

    open_set(&d, "alpaca",
             "[{\"instruction\":\"a\",\"output\":\"1\"},{\"instruction\":\"b\","
             "\"output\":\"2\"},{\"instruction\":\"a\",\"output\":\"3\"}]",
             DATASET_TURNS_FIRST);
    for (int fold = 1; fold <= 2; fold++) {
        int64_t n_a = 0;

        assert_ok(dataset_examples(&x, d, NULL, fold, 2));
        for (int64_t i = 0; i < x.n_learn; i++)
            n_a += x.e[i].text[0] == 'a';
        assert_true(n_a == 0 || n_a == 2);
        dataset_examples_fini(&x);
    }
    dataset_close(&d);
    open_set(&d, "lengths_csv", "prompt_len,output_len\n1,2\n", DATASET_TURNS_FIRST);
    assert_err(dataset_examples(&x, d, NULL, 1, 2), ERR_ARG,
               "request 1: expected a text and its answer");
    dataset_close(&d);
}
