/* Length predictors: the oracle knows, the noisy one errs as stated, and what is needed
 * follows from a prediction however wrong it is. */
#include <math.h>

#include "kv/predict.h"
#include "tests/support/faults.h"

static void open_predictor(const struct kv_predictor **p, void **state, const char *name,
                           const struct kv_predict_opts *o)
{
    assert_ok(kv_predictor_find(name, p));
    assert_ok((*p)->open(state, o));
}

TEST(the_oracle_knows)
{
    const struct kv_query q = {.prompt_tok = 5, .true_tok = 77},
                          unknown = {.true_tok = -1};
    const struct kv_predict_opts o = {.max_tok = 100};
    const struct kv_predictor *p;
    struct kv_prediction out;
    void *predictor;

    open_predictor(&p, &predictor, "oracle", &o);
    assert_ok(p->predict(predictor, &q, &out));
    assert_true(out.gen_tok == 77 && out.uncertainty == 0);
    assert_err(p->predict(predictor, &unknown, &out), ERR_ARG, "not known");
    p->close(predictor);
    assert_err(kv_predictor_find("oracel", &p), ERR_NOTFOUND, "oracle");
}

/* With bias b, and s uniform in [0, 2 sigma], log(predicted / true) has mean b and variance
 * E s^2 = 4/3 sigma^2; the larger the stated uncertainty, the larger the error. */
TEST(the_noise_is_as_stated)
{
    const struct kv_predict_opts o = {
        .max_tok = 1 << 30, .sigma = 0.3, .bias = -0.2, .seed = 5};
    const struct kv_query q = {.prompt_tok = 5, .true_tok = 1000};
    double sum = 0, squares = 0, sure = 0, unsure = 0;
    const struct kv_predictor *p;
    struct kv_prediction out, again;
    void *predictor, *same;
    int n = 20000, n_sure = 0;

    open_predictor(&p, &predictor, "noisy", &o);
    open_predictor(&p, &same, "noisy", &o);
    for (int i = 0; i < n; i++) {
        double e;

        assert_ok(p->predict(predictor, &q, &out));
        assert_ok(p->predict(same, &q, &again));
        assert_true(out.gen_tok == again.gen_tok && out.uncertainty == again.uncertainty);
        assert_true(out.uncertainty >= 0 && out.uncertainty <= 1);
        e = log(out.gen_tok / 1000) + 0.2;
        sum += e;
        squares += e * e;
        n_sure += out.uncertainty < 0.3;
        *(out.uncertainty < 0.3 ? &sure : &unsure) += fabs(e);
    }
    assert_true(fabs(sum / n) < 0.01);
    assert_true(fabs(squares / n - 4.0 / 3 * 0.09) < 0.01);
    assert_true(sure / n_sure < unsure / (n - n_sure) / 2);
    p->close(predictor);
    p->close(same);
}

TEST(options_are_checked)
{
    const struct kv_predict_opts bad = {.max_tok = 100, .sigma = -1, .constant_tok = 101};
    const struct kv_predict_opts good = {.max_tok = 100, .sigma = 1, .constant_tok = 100};
    const struct kv_predictor *p;
    struct kv_prediction out;
    void *predictor;

    assert_ok(kv_predictor_find("noisy", &p));
    assert_err(p->open(&predictor, &bad), ERR_ARG, "sigma -1");
    assert_ok(kv_predictor_find("constant", &p));
    assert_err(p->open(&predictor, &bad), ERR_ARG, "101 tokens: expected 1 to 100");
    assert_ok(p->open(&predictor, &good));
    assert_ok(p->predict(predictor, &(struct kv_query){.true_tok = -1}, &out));
    assert_true(out.gen_tok == 100 && out.uncertainty == 0);
    p->close(predictor);
    for (int i = 0; kv_predictors[i]; i++) {
        if (strcmp(kv_predictors[i]->name, "learned") == 0)
            continue; /* test_learn.c */
        (void)test_allocations(kv_predictors[i]->open(&predictor, &good), true);
        kv_predictors[i]->close(predictor);
    }
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* The bounds of the options are options, and what is beyond them is none. */
TEST(options_at_their_bounds)
{
    static const struct {
        double sigma, bias;
        bool ok;
    } all[] = {{0, 0, true},      {10, 10, true},   {10, -10, true},
               {-0.1, 0, false},  {10.5, 0, false}, {1, 10.5, false},
               {1, -10.5, false}, {NAN, 0, false},  {0, NAN, false}};
    struct kv_predict_opts o = {.max_tok = 100, .constant_tok = 1};
    const struct kv_predictor *p;
    struct kv_prediction out;
    void *predictor;

    assert_ok(kv_predictor_find("noisy", &p));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        o.sigma = all[i].sigma;
        o.bias = all[i].bias;
        if ((p->open(&predictor, &o) == OK) != all[i].ok)
            fail_msg("sigma %g, bias %g", o.sigma, o.bias);
        if (all[i].ok)
            p->close(predictor);
        err_clear();
    }
    assert_ok(kv_predictor_find("constant", &p));
    assert_ok(p->open(&predictor, &o));
    assert_ok(p->predict(predictor, &(struct kv_query){.true_tok = -1}, &out));
    assert_true(out.gen_tok == 1);
    p->close(predictor);
    o.constant_tok = 0.5;
    assert_err(p->open(&predictor, &o), ERR_ARG, "0.5 tokens: expected 1 to 100");
}

/* A large error is cut at the longest sequence, and its uncertainty at 1; nothing is what a
 * request may generate, too. */
TEST(noise_has_bounds)
{
    const struct kv_predict_opts o = {.max_tok = 100, .sigma = 2, .seed = 3};
    const struct kv_query none = {.true_tok = 0}, some = {.true_tok = 50},
                          unknown = {.true_tok = -1};
    int n_longest = 0, n_unsure = 0;
    const struct kv_predictor *p;
    struct kv_prediction out;
    void *predictor;

    open_predictor(&p, &predictor, "noisy", &o);
    for (int i = 0; i < 300; i++) {
        assert_ok(p->predict(predictor, &some, &out));
        assert_true(out.gen_tok > 0 && out.gen_tok <= 100 && out.uncertainty <= 1);
        n_longest += out.gen_tok == 100;
        n_unsure += out.uncertainty == 1;
    }
    assert_in_range(n_longest, 50, 200); /* of 300 errors, a normal of deviation 2 */
    assert_in_range(n_unsure, 200, 250); /* s is above 1 in 3 of 4 */
    assert_ok(p->predict(predictor, &none, &out));
    assert_true(out.gen_tok == 0);
    assert_err(p->predict(predictor, &unknown, &out), ERR_ARG, "not known");
    p->close(predictor);
    open_predictor(&p, &predictor, "oracle", &o);
    assert_ok(p->predict(predictor, &none, &out));
    assert_true(out.gen_tok == 0);
    p->close(predictor);
}

TEST(predictors_say_what_they_need)
{
    for (int i = 0; kv_predictors[i]; i++) {
        const char *name = kv_predictors[i]->name;

        assert_int_equal(kv_predictors[i]->learns, strcmp(name, "learned") == 0);
        assert_int_equal(kv_predictors[i]->reads_truth,
                         strcmp(name, "noisy") == 0 || strcmp(name, "oracle") == 0);
    }
}

TEST(needs_follow_from_predictions)
{
    static const struct {
        double gen_tok, uncertainty;
        int64_t want;
        bool large;
    } all[] = {
        {100, 0, 100, false},     {100, 0.5, 125, false}, {100.2, 0, 101, false},
        {100, 0.9, 145, true},    {0, 0, 1, false},       {-5, 0, 1, false},
        {100, 0.8, 140, false},   {1.5, 0, 2, false},     {900, 0, 900, false},
        {1e300, 0.1, 900, false}, {NAN, 0, 900, false},   {INFINITY, 1, 900, true},
    };
    const struct kv_caution c = {.alpha = 0.5, .tau = 0.8};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct kv_prediction p = {all[i].gen_tok, all[i].uncertainty};
        struct kv_need need = kv_need_predicted(124, &p, &c, 1024);

        assert_int_equal(need.prompt_tok, 124);
        assert_int_equal(need.gen_tok, all[i].want);
        assert_int_equal(need.large, all[i].large);
    }
}
