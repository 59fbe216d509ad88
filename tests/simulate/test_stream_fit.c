/* The fit of a memory node's rates to STREAM figures, and its bootstrap. */
#include "tests/simulate/contention.h"

#include "simulate/stream_fit.h"

static struct simulate_machine_params shipped(void)
{
    struct simulate_machine_params t;
    struct topo_machine *m;
    struct simulate_machine *s;

    open_shipped("kunpeng920x4", &m, &s);
    t = *simulate_params(s);
    simulate_machine_close(&s);
    topo_machine_close(&m);
    return t;
}

TEST(closed_form_equals_the_simulator)
{
    struct topo_machine *m;
    struct simulate_machine *s;

    open_shipped("kunpeng920x4", &m, &s);
    for (int i = 0; i < SIMULATE_STREAM_KUNPENG_N; i++) {
        const struct simulate_stream_point *p = &simulate_stream_kunpeng[i];
        int pus[24], n = 0;

        for (int c = 0; c < SIMULATE_STREAM_CLUSTERS; c++)
            for (int k = 0; k < p->on[c]; k++)
                pus[n++] = c * 4 + k;
        assert_near(simulate_stream_of(simulate_params(s), p), stream(s, pus, n), 1e-9,
                    "a placement");
    }
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

/* Figures made from rates give those rates again, from another start. */
TEST(rates_are_found_again)
{
    struct simulate_stream_point made[SIMULATE_STREAM_KUNPENG_N];
    struct simulate_machine_params t = shipped(), got = t;

    memcpy(made, simulate_stream_kunpeng, sizeof(made));
    for (int i = 0; i < SIMULATE_STREAM_KUNPENG_N; i++)
        made[i].copy = simulate_stream_of(&t, &made[i]);
    got.core_gbps *= 1.2;
    got.domains[0].gbps *= 0.8;
    got.node_gbps *= 1.1;
    got.sharpness *= 1.3;
    got.contention_per_core *= 0.5;
    assert_true(simulate_stream_fit(&got, made, SIMULATE_STREAM_KUNPENG_N) < 1e-4);
    for (int i = 0; i < SIMULATE_STREAM_KUNPENG_N; i++)
        assert_near(simulate_stream_of(&got, &made[i]), made[i].copy, 1e-3,
                    "a placement");
    assert_near(got.core_gbps, t.core_gbps, 0.01, "core_gbps");
    assert_near(got.contention_per_core, t.contention_per_core, 0.05, "contention");
}

/* The shipped rates were fitted by other code: this one is no worse, and near. */
TEST(shipped_rates_are_a_best_fit)
{
    struct simulate_machine_params t = shipped(), fitted = t;
    double rms = simulate_stream_fit(&fitted, simulate_stream_kunpeng,
                                     SIMULATE_STREAM_KUNPENG_N),
           before = 0;

    for (int i = 0; i < SIMULATE_STREAM_KUNPENG_N; i++) {
        double e = log(simulate_stream_of(&t, &simulate_stream_kunpeng[i]) /
                       simulate_stream_kunpeng[i].copy);

        before += e * e / SIMULATE_STREAM_KUNPENG_N;
    }
    assert_true(rms <= sqrt(before) * (1 + 1e-9) && rms > 0.02);
    assert_near(fitted.core_gbps, t.core_gbps, 0.1, "core_gbps");
}

/* Every draw is a machine that the simulator takes; they follow from seed and number, and
 * spread about the fit as its residuals do. */
TEST(bootstrap)
{
    struct simulate_machine_params fitted = shipped(), one, again;
    struct topo_machine *m;
    struct simulate_machine *s;
    double least = INFINITY, most = 0;

    simulate_stream_fit(&fitted, simulate_stream_kunpeng, SIMULATE_STREAM_KUNPENG_N);
    open_shipped("kunpeng920x4", &m, &s);
    simulate_machine_close(&s);
    for (int i = 0; i < 40; i++) {
        simulate_stream_bootstrap(&one, &fitted, simulate_stream_kunpeng,
                                  SIMULATE_STREAM_KUNPENG_N, test_seed(), i);
        simulate_stream_bootstrap(&again, &fitted, simulate_stream_kunpeng,
                                  SIMULATE_STREAM_KUNPENG_N, test_seed(), i);
        assert_true(one.core_gbps == again.core_gbps &&
                    one.node_gbps == again.node_gbps &&
                    one.contention_per_core == again.contention_per_core);
        assert_ok(simulate_machine_new(&s, m, &one));
        simulate_machine_close(&s);
        least = fmin(least, one.core_gbps);
        most = fmax(most, one.core_gbps);
    }
    assert_true(least < fitted.core_gbps && fitted.core_gbps < most);
    assert_true(most < 1.3 * least);
    topo_machine_close(&m);
}
