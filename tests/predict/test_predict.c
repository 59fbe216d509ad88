/* Predictions from records with planted components hold as often as they say; those that must not
 * hold do not; nothing of the record that is predicted is seen. */
#include "tests/support/test.h"

#include <math.h>

#include "base/json.h"
#include "base/rng.h"
#include "experiments/predict/predictor.h"

static const struct predict_options usual = {.is_known = true, .pool = PREDICT_POOL};

/* 60 experiments of 4 headlines on `n_machines`: the logarithm of each is drawn, and each machine's
 * differs from it by a normal deviate times sd, which is 10 times as large in one of 10. */
static void plant(struct predict_data *d, int n_machines, double sd, const char *evidence,
                  uint64_t seed)
{
    struct rng r;

    *d = (struct predict_data){0};
    rng_init(&r, seed, "planted");
    for (int e = 0; e < 60; e++) {
        double mean[4];

        for (int h = 0; h < 4; h++)
            mean[h] = 3 * rng_normal(&r);
        for (int m = 0; m < n_machines; m++) {
            json_t *head = json_pack("{s:s s:{}}", "evidence", evidence, "headline");
            char machine[32], experiment[32];

            for (int h = 0; h < 4; h++) {
                const double tail = rng_below(&r, 10) == 0 ? 10 : 1;
                char name[16];

                snprintf(name, sizeof(name), "h%d", h);
                json_object_set_new(json_object_get(head, "headline"), name,
                                    json_pack("{s:f s:s}", "value",
                                              exp(mean[h] + tail * sd * rng_normal(&r)),
                                              "unit", "x"));
            }
            snprintf(machine, sizeof(machine), "m%d", m);
            snprintf(experiment, sizeof(experiment), "e%d", e);
            assert_ok(predict_data_add(d, machine, experiment, head));
        }
    }
    predict_data_sort(d);
}

static struct predict_calibration calibrate(const struct predict_data *d, bool is_known,
                                            int control)
{
    struct predict_options o = usual;
    struct predict_calibration c;

    o.is_known = is_known;
    predict_calibrate(&c, d, &o, true, control);
    return c;
}

/* Pairs of machines miss each other alike: no more than 240 of the numbers are independent. */
static void expect_share(double share, double level)
{
    if (fabs(share - level) > 4 * sqrt(level * (1 - level) / 240))
        fail_msg("%g of intervals of %g hold", share, level);
}

TEST(intervals_hold_as_often_as_they_say)
{
    for (int n_machines = 2; n_machines <= 4; n_machines += 2)
        for (int known = 0; known < (n_machines > 2 ? 2 : 1); known++) {
            struct predict_data d;
            struct predict_calibration c;

            plant(&d, n_machines, 0.1, "measured", 7);
            c = calibrate(&d, n_machines == 2 || known, PREDICT_AS_IT_IS);
            assert_int_equal(c.n, 240 * n_machines);
            assert_int_equal(c.n_experiments, 60);
            assert_int_equal(c.n_two, 60);
            assert_int_equal(c.n_machines, n_machines);
            for (int l = 0; l < PREDICTION_LEVELS; l++) {
                expect_share(c.inside[l].value, prediction_levels[l] / 100.0);
                assert_true(c.inside[l].lo <= c.inside[l].value &&
                            c.inside[l].hi >= c.inside[l].value);
            }
            assert_true(c.half_frac[0] < c.half_frac[1] &&
                        c.half_frac[1] < c.half_frac[2]);
            predict_data_fini(&d);
        }
}

TEST(controls_do_not_hold)
{
    struct predict_data d;

    plant(&d, 3, 0.1, "measured", 8);
    assert_true(calibrate(&d, true, PREDICT_HALVED).inside[2].value < 0.93);
    assert_true(calibrate(&d, true, PREDICT_EXCHANGED).inside[2].hi < 0.8);
    predict_data_fini(&d);
}

TEST(what_is_equal_everywhere_is_predicted_narrowly)
{
    struct predict_data d;
    struct predict_calibration c;

    plant(&d, 2, 0, "simulated", 9);
    c = calibrate(&d, true, PREDICT_AS_IT_IS);
    assert_true(c.narrow.value == 1 && c.half_frac[2] < 1e-6);
    assert_true(c.inside[0].value == 1);
    predict_data_fini(&d);
}

/* With another number in the record that is predicted, the prediction is the same. */
TEST(the_record_itself_is_not_seen)
{
    struct predict_interval i[2];

    for (int changed = 0; changed < 2; changed++) {
        struct predict_data d;
        struct predict_errors *e;
        struct predict_view v;
        size_t k = 0;

        plant(&d, 2, 0.1, "measured", 3);
        while (d.of[k].experiment != 5 || d.of[k].machine != 1)
            k++;
        if (changed)
            d.of[k].value *= 1000;
        e = predict_errors_new(&d, -1);
        v = predict_view_of(e, k);
        predict_one(&i[changed], e, &v, &usual);
        assert_int_equal(i[changed].n_hosts, 1);
        assert_string_equal(i[changed].predictor, "records");
        assert_true(fabs(i[changed].value / d.of[k - 1].value - 1) < 1e-9);
        predict_errors_free(&e);
        predict_data_fini(&d);
    }
    assert_true(i[0].value <= i[1].value && i[0].value >= i[1].value);
    assert_true(i[0].hi[2] <= i[1].hi[2] && i[0].hi[2] >= i[1].hi[2]);
}

/* A rate is the share of the roof that another host reaches, by this machine's card. */
TEST(roof_takes_the_card)
{
    struct predict_data d = {0};
    struct predict_view v;
    const struct predictor *const *roof = predictors;

    for (int m = 0; m < 2; m++) {
        json_t *head =
            json_pack("{s:s s:{s:{s:f s:s}} s:{s:s s:[{s:s s:i s:f s:f s:f s:s}]}}",
                      "evidence", "measured", "headline", "decode", "value", 10.0, "unit",
                      "tok/s", "machine_card", "measured_utc", "2026", "values", "name",
                      "read_gbps", "n_threads", 2, "estimate", m ? 60.0 : 20.0, "lo",
                      m ? 60.0 : 20.0, "hi", m ? 60.0 : 20.0, "why", "");

        assert_ok(predict_data_add(&d, m ? "fast" : "slow", "e", head));
    }
    predict_data_sort(&d);
    while (*roof && strcmp((*roof)->name, "roof") != 0)
        roof++;
    assert_non_null(*roof);
    v = (struct predict_view){.data = &d,
                              .name = "decode",
                              .unit = "tok/s",
                              .machine = 1,
                              .hidden = -1,
                              .is_timed = true,
                              .card = d.cards[1]};
    assert_true(fabs((*roof)->value(&v) - 30) < 1e-9);
    v.unit = "ms";
    assert_true(fabs((*roof)->value(&v) - 10 / 3.0) < 1e-9);
    v.card = NULL;
    assert_true(isnan((*roof)->value(&v)));
    predict_data_fini(&d);
}
