/* The learned length predictor: what the text tells is found, what it does not tell is not, and
 * real prompts are predicted better than by their mean. */
#include <math.h>

#include "base/json.h"
#include "kv/learn.h"
#include "tests/support/test.h"

/* --- texts that are made up: with probability `tells` a word gives the length away */

#define N_TEXTS 600

struct texts {
    char text[N_TEXTS][96];
    struct kv_example e[N_TEXTS];
};

static void make_texts(struct texts *t, uint64_t seed, double tells)
{
    static const char *const words[] = {"haiku", "sentence", "paragraph", "essay"};
    struct rng r;

    rng_init(&r, seed, "texts");
    for (int i = 0; i < N_TEXTS; i++) {
        int kind = (int)rng_below(&r, 4), told = kind;

        if (rng_f64(&r) >= tells)
            told = (int)rng_below(&r, 4);
        snprintf(t->text[i], sizeof(t->text[i]), "Write a%s %s about topic%d, please",
                 told == 3 ? "n" : "", words[told], (int)rng_below(&r, 50));
        t->e[i] = (struct kv_example){
            .text = t->text[i],
            .text_bytes = strlen(t->text[i]),
            .prompt_tok = 8,
            .output_tok = 1 + (int64_t)(20 * exp(1.2 * kind + 0.1 * rng_normal(&r)))};
    }
}

/* Root mean square of log(predicted / true) over the examples, and the mean uncertainty. */
static double error_of(const struct kv_learned *l, const struct kv_example *e, int64_t n,
                       double *uncertainty)
{
    double squares = 0;

    *uncertainty = 0;
    for (int64_t i = 0; i < n; i++) {
        struct kv_prediction p;
        double d;

        kv_learned_predict(l, &e[i], &p);
        assert_true(p.gen_tok >= 1 && p.uncertainty >= 0 && p.uncertainty <= 1);
        d = log(p.gen_tok / (double)e[i].output_tok);
        squares += d * d / (double)n;
        *uncertainty += p.uncertainty / (double)n;
    }
    return sqrt(squares);
}

/* The same for the best constant, which knows the lengths that it is tested on. */
static double error_of_constant(const struct kv_example *e, int64_t n)
{
    double mean = 0, squares = 0;

    for (int64_t i = 0; i < n; i++)
        mean += log((double)e[i].output_tok) / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += pow(log((double)e[i].output_tok) - mean, 2) / (double)n;
    return sqrt(squares);
}

TEST(what_the_text_tells_is_found)
{
    static const double tells[] = {1, 0.5, 0};
    static struct texts known, held_out;
    double error[3], uncertainty[3], constant = 0;

    for (int i = 0; i < 3; i++) {
        struct kv_learned *l;

        make_texts(&known, test_seed(), tells[i]);
        make_texts(&held_out, test_seed() + 1, tells[i]);
        assert_ok(kv_learn(&l, known.e, N_TEXTS));
        error[i] = error_of(l, held_out.e, N_TEXTS, &uncertainty[i]);
        constant = error_of_constant(held_out.e, N_TEXTS);
        kv_learned_close(&l);
    }
    assert_true(error[0] < 0.25 * constant);
    assert_true(error[0] < error[1] && error[1] < error[2]);
    assert_true(error[2] > 0.97 * constant); /* there is nothing to find */
    assert_true(uncertainty[0] < uncertainty[1] && uncertainty[1] < uncertainty[2]);
}

TEST(the_same_examples_give_the_same)
{
    static struct texts t;
    struct kv_learned *a, *b;
    struct kv_prediction p, q;
    int rc = ERR_NOMEM;

    make_texts(&t, test_seed(), 0.7);
    assert_ok(kv_learn(&a, t.e, N_TEXTS));
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = kv_learn(&b, t.e, N_TEXTS);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || (rc == ERR_NOMEM && !b));
    }
    for (int i = 0; i < N_TEXTS; i++) {
        kv_learned_predict(a, &t.e[i], &p);
        kv_learned_predict(b, &t.e[i], &q);
        assert_true(p.gen_tok == q.gen_tok && p.uncertainty == q.uncertainty);
    }
    kv_learned_close(&a);
    kv_learned_close(&b);
    kv_learned_close(&b);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
    assert_err(kv_learn(&a, t.e, 15), ERR_ARG, "15 examples: expected at least 16");
    assert_null(a);
}

/* Any bytes are a prompt. */
TEST(any_text_is_predicted)
{
    static struct texts t;
    static char bytes[10000];
    const struct kv_predictor *p;
    struct kv_predict_opts o = {.max_tok = 100};
    struct kv_prediction out;
    struct kv_learned *l;
    struct rng r;
    void *none;

    make_texts(&t, test_seed(), 1);
    assert_ok(kv_learn(&l, t.e, N_TEXTS));
    assert_ok(kv_predictor_find("learned", &p));
    assert_err(p->open(&none, &o), ERR_ARG, "nothing has been learned");
    o.learned = l;
    assert_ok(p->open(&none, &o));
    assert_err(p->predict(none, &(struct kv_query){.prompt_tok = 1}, &out), ERR_ARG,
               "no text");
    rng_init(&r, test_seed(), "bytes");
    for (size_t n = 0; n < sizeof(bytes); n = 2 * n + 1) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)rng_u64(&r);
        assert_ok(p->predict(none,
                             &(struct kv_query){.prompt_tok = 1 + (int64_t)n,
                                                .text = bytes,
                                                .text_bytes = n},
                             &out));
        assert_true(out.gen_tok >= 1 && out.gen_tok < 1e6);
    }
    p->close(none);
    kv_learned_close(&l);
}

/* Stanford Alpaca: trained on one half of the records, tested on the other. Lengths are
 * counted in words here. */
TEST(real_prompts_are_predicted)
{
    const char *path = test_need_data("alpaca/alpaca_sample_dev.json");
    static struct kv_example e[4000];
    static char texts[4000][1024];
    double uncertainty, error;
    struct kv_learned *l;
    json_t *all, *record;
    size_t i, n;

    assert_ok(json_read_file(&all, path, 1 << 24));
    n = json_array_size(all);
    assert_true(n > 500 && n < 4000);
    json_array_foreach(all, i, record)
    {
        const char *output = json_string_value(json_object_get(record, "output"));

        snprintf(texts[i], sizeof(texts[i]), "%s\n%s",
                 json_string_value(json_object_get(record, "instruction")),
                 json_string_value(json_object_get(record, "input")));
        e[i] = (struct kv_example){.text = texts[i],
                                   .text_bytes = strlen(texts[i]),
                                   .prompt_tok = (int64_t)strlen(texts[i]) / 4 + 1,
                                   .output_tok = 1};
        for (; *output; output++)
            e[i].output_tok += *output == ' ';
    }
    assert_ok(kv_learn(&l, e, (int64_t)n / 2));
    error = error_of(l, e + n / 2, (int64_t)(n - n / 2), &uncertainty);
    print_message("# alpaca: error of the log %.3f, of the best constant %.3f\n", error,
                  error_of_constant(e + n / 2, (int64_t)(n - n / 2)));
    assert_true(error < 0.9 * error_of_constant(e + n / 2, (int64_t)(n - n / 2)));
    kv_learned_close(&l);
    json_decref(all);
}
