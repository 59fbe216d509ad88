/* What the learned predictor sees in a text and makes of it, held by numbers that a program of a
 * few lines gave: weights in a file mean nothing once another feature has another place. */
#include <math.h>

#include "kv/learn_model.h"
#include "tests/support/test.h"

static void near(double got, double want, const char *what, int i)
{
    if (!(fabs(got - want) <= 1e-4 * want))
        fail_msg("%s %d: %.9g, expected %.9g", what, i, got, want);
}

struct seen {
    const char *text;
    int64_t prompt_tok;
    double gen_tok, uncertainty;
};

/* Weights that differ for each feature and class. */
static void make_weights(struct kv_learned *l)
{
    for (int k = 0; k <= KV_LEARN_CLASSES; k++) {
        for (int i = 0; i < KV_LEARN_N_FEATURES; i++)
            l->weights[k][i] = (float)((k * 7919 + i * 104729) % 2003 - 1001) / 4000;
        l->weights[k][KV_LEARN_N_HASHED] += k == 0 ? 3 : 0.3f;
    }
    l->longest = 7;
}

static struct kv_prediction predict(const struct kv_learned *l, const char *text,
                                    int64_t prompt_tok)
{
    const struct kv_example e = {
        .text = text, .text_bytes = strlen(text), .prompt_tok = prompt_tok};
    struct kv_prediction p;

    kv_learned_predict(l, &e, &p);
    return p;
}

TEST(features_have_their_places)
{
    static const struct seen all[] = {
        {"", 1, 18.4083884, 0.866271282},
        {"What is 2 + 2?", 9, 12.545501, 0.96453592},
        {"Write a list: {a=1; b<2}\nof  three\nthings", 30, 19.715669, 0.895815703},
        {"\xc3\x89"
         "crire na\xc3\xafve \x80\x80 b",
         12, 15.7556935, 0.736108716},
        {"whatever they say, WHY?", 7, 9.78169594, 0.875145859},
        {"summarize this: x", 100, 15.8795783, 0.577249358},
        {"Compare compare COMPARE.", 3, 24.0033241, 0.92462042},
        {"is", 1, 15.5888583, 0.897408465},
        {"7", 2, 14.736093, 0.754036946},
        {"tell me; {why} <b> = 3?\n\n", 2000, 14.7293626, 0.931456559},
    };
    static char text[5000] = "name every word ";
    struct kv_learned l;
    struct kv_prediction p;

    make_weights(&l);
    for (int i = 0; i < 10; i++) {
        p = predict(&l, all[i].text, all[i].prompt_tok);
        near(p.gen_tok, all[i].gen_tok, "length", i);
        near(p.uncertainty, all[i].uncertainty, "uncertainty", i);
    }
    for (int i = 0; i < 511; i++)
        strcat(text, "abc def ");
    strcat(text, "ghi jkl 1?"); /* of 4114 bytes the last are not looked at */
    p = predict(&l, text, 1000);
    near(p.gen_tok, 17.6467798, "length", -1);
    near(p.uncertainty, 0.923232065, "uncertainty", -1);
    l.longest = 2; /* no longer than was ever seen */
    assert_true(fabs(predict(&l, "is", 1).gen_tok - exp(2)) < 1e-5);
    l.weights[0][KV_LEARN_N_HASHED] = -9; /* and at least one token */
    assert_true(predict(&l, "is", 1).gen_tok == 1);
    for (int k = 1; k <= KV_LEARN_CLASSES; k++)
        for (int i = 0; i < KV_LEARN_N_FEATURES; i++)
            l.weights[k][i] = 0;
    near(predict(&l, "is", 1).uncertainty, 1, "equal scores", 0);
}

/* ---- training */

#define N 43 /* no multiple of the fifths or of the classes */

static char texts[N][64];
static struct kv_example examples[N];

/* Set 0: the text tells the length. 1: it does not. 2: it tells that of the first three
 * quarters, and another one for the rest. */
static void make_examples(int set)
{
    static const char *const kinds[] = {"haiku", "letter", "essay", "novel"};
    static const int64_t lengths[] = {2, 15, 90, 700};

    for (int i = 0; i < N; i++) {
        int kind = i * 7 % 4, told = kind;

        if (set == 1)
            told = (i * i * 5 + i / 3) % 4;
        if (set == 2 && i >= 32)
            told = (kind + 1) % 4;
        snprintf(texts[i], sizeof(texts[i]), "write a %s about topic%d, please",
                 kinds[told], i * 13 % 11);
        examples[i] =
            (struct kv_example){.text = texts[i],
                                .text_bytes = strlen(texts[i]),
                                .prompt_tok = 6 + i % 3,
                                .output_tok = lengths[kind] + (kind > 0 ? i * 5 % 7 : 0)};
    }
}

/* By ridge regression on the same features, with the penalty that does best for the last fifth:
 * 0.001, 1 and 1; were it the last sixth, the third would be 0.3. */
TEST(weights_are_those_of_the_best_penalty)
{
    static const double want[3][5][2] = {
        {{2.2515411, 0.50778069},
         {656.80743, 0.63331404},
         {87.817303, 0.63277253},
         {16.103733, 0.60987872},
         {30.87744, 0.82784121}},
        {{39.076405, 0.92995888},
         {39.605597, 0.92589892},
         {38.994131, 0.92952675},
         {40.27644, 0.93381598},
         {39.855979, 0.92968505}},
        {{35.978166, 0.91873579},
         {46.189407, 0.93513079},
         {42.43586, 0.93592857},
         {35.386431, 0.92950579},
         {39.625879, 0.9295058}},
    };

    for (int set = 0; set < 3; set++) {
        struct kv_learned *l;

        make_examples(set);
        assert_ok(kv_learn(&l, examples, N));
        for (int i = 0; i < 5; i++) {
            struct kv_prediction p = i < 4 ? predict(l, texts[i], examples[i].prompt_tok)
                                           : predict(l, "describe an orange", 200);

            near(p.gen_tok, want[set][i][0], "length", 10 * set + i);
            near(p.uncertainty, want[set][i][1], "uncertainty", 10 * set + i);
        }
        assert_true(l->longest == logf(706));
        kv_learned_close(&l);
    }
}

TEST(as_few_examples_as_can_be)
{
    struct kv_learned *l;

    make_examples(0);
    assert_ok(kv_learn(&l, examples, 16));
    kv_learned_close(&l);
    assert_err(kv_learn(&l, examples, 15), ERR_ARG, "15 examples: expected at least 16");
    assert_null(l);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}
