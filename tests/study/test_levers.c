/* levers: elasticities are found again where they are known, of simulated machines and noise; fewer
 * bytes are what the layout says and leave the engine as it was; a run's numbers follow from its
 * rounds. */
#include <math.h>

#include "experiments/study/support/clock_limit.h"
#include "experiments/study/support/elasticity.h"
#include "experiments/study/support/stressors.h"
#include "experiments/study/support/lever_work.h"
#include "tests/study/capture.h"
#include "tests/support/fake_root.h"
#include "tests/support/tiny_model.h"

extern const struct study study_levers;

TEST_GROUP(NULL, capture_end);

static void near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("got %.17g, wanted %.17g within %g", got, want, within);
}

/* ---- the system of equations ---- */

/* Each change has an effect on several resources; speeds are powers of them. */
TEST(elasticities_of_powers)
{
    struct rng r;

    rng_init(&r, test_seed(), "levers");
    for (int n = 1; n <= STUDY_RESOURCES_MAX; n++) {
        double x[STUDY_RESOURCES_MAX][STUDY_RESOURCES_MAX], y[STUDY_RESOURCES_MAX] = {0};
        double want[STUDY_RESOURCES_MAX], got[STUDY_RESOURCES_MAX];

        for (int i = 0; i < n; i++)
            want[i] = rng_f64(&r) - 0.2;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) {
                x[i][k] = 0.1 * rng_f64(&r) + (k == (i + 1) % n ? 0.9 : 0);
                y[i] += x[i][k] * want[k];
            }
        assert_true(study_elasticity_solve(got, n, x, y));
        for (int i = 0; i < n; i++)
            near(got[i], want[i], 1e-9);
    }
}

TEST(changes_that_tell_nothing)
{
    double alike[2][STUDY_RESOURCES_MAX] = {{0.3, 0.3}, {0.6, 0.6}}, y[2] = {0.3, 0.6};
    double none[1][STUDY_RESOURCES_MAX] = {{0}}, unknown[1][STUDY_RESOURCES_MAX] = {{1}};
    double nan[1] = {NAN}, e[2];

    assert_false(study_elasticity_solve(e, 2, alike, y));
    assert_true(isnan(e[0]) && isnan(e[1]));
    assert_false(study_elasticity_solve(e, 1, none, y));
    assert_false(study_elasticity_solve(e, 1, unknown, nan));
    assert_true(isnan(e[0]));
}

/* What is known stands in the equations of the others, also where its own change says otherwise. */
TEST(one_elasticity_is_known)
{
    double x[2][STUDY_RESOURCES_MAX] = {{0.5, 0.2}, {0, 0.4}}, y[2] = {0.6, 0.6}, e[2];

    assert_true(study_elasticity_known(e, 2, 1, 1, x, y));
    near(e[0], (0.6 - 0.2) / 0.5, 1e-12);
    near(e[1], 0.6 / 0.4, 1e-12);
    x[1][1] = 0; /* its change was none: the others are known */
    assert_false(study_elasticity_known(e, 2, 1, 1, x, y));
    near(e[0], 0.8, 1e-12);
    assert_true(isnan(e[1]));
}

TEST(medians_and_their_intervals)
{
    const double v[] = {5, NAN, 1, 4, 2, 3, 7, 6};
    struct study_estimate e = study_estimate_median(v, 8), few;

    near(e.value, 4, 0);
    assert_true(e.lo == 1 && e.hi == 7); /* seven values: smallest and largest */
    few = study_estimate_median(v, 4);
    assert_true(few.value == 4 && isnan(few.lo) && isnan(few.hi));
    assert_true(isnan(study_estimate_median(v + 1, 1).value));
    assert_true(isnan(study_estimate_median(v, 0).value));
}

/* ---- simulated machines ---- */

enum { COMPUTE, BANDWIDTH, CACHE, TIME, N };

/* The time of a step with these amounts of each resource: arithmetic and reading overlap wholly
 * (max) or not at all; what misses the cache is read in addition. */
struct machine {
    double compute_s, read_s, miss_s; /* with 1 of each */
    bool overlap;
};

static double step_s(const struct machine *m, const double has[N])
{
    double c = m->compute_s / has[COMPUTE], b = m->read_s / has[BANDWIDTH];
    double miss = m->miss_s / has[CACHE];

    return ((m->overlap ? fmax(c, b) : c + b) + miss) / has[TIME];
}

/* What the study would find in `rounds` rounds: other programs take up to half of the time, a
 * stressor a quarter of what is left, and times err by some percent. */
static void simulate(const struct machine *m, double noise, int n_rounds,
                     struct study_estimate found[N])
{
    double e[N][64], one[N];
    struct rng r;

    rng_init(&r, test_seed(), "simulated");
    for (int round = 0; round < n_rounds; round++) {
        double base[N] = {1, 1, 1, 1 - 0.5 * rng_f64(&r)}, base_s = step_s(m, base);
        double x[N][STUDY_RESOURCES_MAX], y[N];

        for (int i = 0; i < N; i++) {
            double has[N] = {1, 1, 1, 1 - 0.5 * rng_f64(&r)};
            static const double levers[N] = {4.0 / 3, 4.0 / 3, 0.75, 0.75};

            has[i] *= levers[i];
            if (i == COMPUTE)
                has[BANDWIDTH] *= 1.02; /* fewer sequences: fewer keys and values */
            for (int k = 0; k < N; k++)
                x[i][k] = log(has[k] / base[k]);
            y[i] = log(base_s / step_s(m, has)) + noise * (rng_f64(&r) - 0.5);
        }
        assert_true(study_elasticity_known(one, N, TIME, 1, x, y));
        for (int i = 0; i < N; i++)
            e[i][round] = one[i];
    }
    for (int i = 0; i < N; i++)
        found[i] = study_estimate_median(e[i], n_rounds);
}

static void expect(const struct machine *m, double compute, double bandwidth,
                   double cache, double within)
{
    struct study_estimate found[N];

    simulate(m, 0, 9, found);
    near(found[COMPUTE].value, compute, within);
    near(found[BANDWIDTH].value, bandwidth, within);
    near(found[CACHE].value, cache, within);
    near(found[TIME].value, 1, 1e-9);
}

/* The controls: arithmetic in registers, reads from memory, and a cache that others displace. */
TEST(controls_on_simulated_machines)
{
    expect(&(struct machine){.compute_s = 1}, 1, 0, 0, 1e-9);
    expect(&(struct machine){.read_s = 1}, 0, 1, 0, 1e-9);
    expect(&(struct machine){.compute_s = 0.1, .read_s = 1, .overlap = true}, 0, 1, 0,
           1e-9);
    expect(&(struct machine){.miss_s = 1}, 0, 0, 1, 1e-9);
    /* Shares of what does not overlap are arcs over a third more, not slopes:
     * ln(0.5 + 0.5 * 3 / 4) / ln(3 / 4). */
    expect(&(struct machine){.compute_s = 0.5, .read_s = 0.5}, 0.464, 0.464, 0, 0.01);
    expect(&(struct machine){.compute_s = 0.9, .read_s = 0.1}, 0.886, 0.088, 0, 0.01);
}

/* Errors of a trial by some percent leave the known answers within the intervals' reach. */
TEST(noise_on_simulated_machines)
{
    struct study_estimate found[N];

    simulate(&(struct machine){.compute_s = 1}, 0.1, 51, found);
    assert_true(found[COMPUTE].lo < 1 && found[COMPUTE].hi > 1);
    near(found[COMPUTE].value, 1, 0.05);
    near(found[BANDWIDTH].value, 0, 0.05);
    near(found[TIME].value, 1, 0.1);
    assert_true(found[BANDWIDTH].hi - found[BANDWIDTH].lo < 0.2);
}

/* ---- work ---- */

static void step(struct study_lever_work *w, float *logits)
{
    size_t n =
        (size_t)w->engine.steps.n_seqs * (size_t)model_config_of(w->engine.model)->vocab;
    double seconds;

    assert_ok(study_lever_step(w, LEVER_BASE, &seconds));
    memcpy(logits, w->engine.steps.logits, n * sizeof(*logits));
    for (size_t i = 0; i < n; i++)
        assert_true(isfinite(logits[i]));
}

static int open_work(struct study_lever_work *w, const char *work, const char *model)
{
    return study_lever_open(w, &(struct study_lever_opts){.work = work,
                                                          .model = model,
                                                          .n_prompt_tok = 16,
                                                          .n_output_tok = 10,
                                                          .n_ctx_tok = 8,
                                                          .stream_bytes = 4 << 20});
}

static void bytes_of(enum kern_type type)
{
    struct study_lever_work w;
    static float before[1 << 16], fewer[1 << 16], after[1 << 16];
    struct model_cost cost;
    size_t n;

    assert_ok(open_work(&w, "decode_4", tiny_model(type)));
    n = 4 * (size_t)model_config_of(w.engine.model)->vocab * sizeof(float);
    assert_true(n <= sizeof(before));
    step(&w, before);
    study_lever_bytes_set(&w, true);
    step(&w, fewer);
    study_lever_bytes_set(&w, false);
    step(&w, after);
    assert_memory_equal(before, after, n);
    assert_memory_not_equal(before, fewer, n);
    cost = model_cost_decode(model_config_of(w.engine.model),
                             model_cost_types_of(w.engine.model), 9, 4);
    near(w.cost[LEVER_BASE].bytes, cost.read_bytes, 0);
    near(w.cost[LEVER_BASE].flop, cost.flop, 0);
    assert_true(w.n[LEVER_FEWER] == 3 && w.cost[LEVER_FEWER].flop < cost.flop);
    /* A quarter of the weights, but for the last panel of each matrix, at most. */
    assert_true(w.fewer_bytes >= cost.read_bytes - cost.weight_bytes / 2);
    assert_true(w.fewer_bytes < cost.read_bytes);
    study_lever_close(&w);
    study_lever_close(&w);
}

TEST(fewer_bytes_leave_the_model_as_it_was)
{
    bytes_of(KERN_BF16);
    bytes_of(KERN_F32);
}

/* By hand: panels of 16 columns begin 3/4 of a panel apart, the last one is whole. */
TEST(fewer_bytes_by_the_layout)
{
    struct study_lever_work w;
    const struct model_config *c;
    struct model_shape shapes[MODEL_N_MATS];
    double packed = 0, saved = 0;
    struct model_cost cost;

    assert_ok(open_work(&w, "decode_1", tiny_model(KERN_BF16)));
    c = model_config_of(w.engine.model);
    model_shapes(c, shapes);
    model_shapes_join(shapes);
    for (int i = 0; i < MODEL_N_MATS; i++) {
        double panels = (double)((shapes[i].n + 15) / 16),
               k = (double)((shapes[i].k + 1) / 2 * 2);
        double times = i == MODEL_MAT_HEAD ? 1 : c->n_layers;

        if (shapes[i].n == 0)
            continue;
        packed += times * panels * 32 * k;
        saved += times * (panels - 1) * 32 * (k - floor(k * 3 / 4 / 2) * 2);
    }
    cost = model_cost_decode(c, model_cost_types_of(w.engine.model), 9, 1);
    near(w.fewer_bytes / (cost.read_bytes - saved / packed * cost.weight_bytes), 1, 1e-3);
    assert_true(w.n[LEVER_FEWER] == 2);
    study_lever_close(&w);
}

/* A closed loop of four sequences with outputs of ten tokens has three decode steps for a prompt:
 * its work is that of this prefill and of these steps, and so is what fewer bytes leave of it. */
TEST(serving_is_a_prompt_and_its_decode_steps)
{
    static const char *const words[] = {"serving_4", "prefill", "decode_4"};
    struct study_lever_work w[3];
    double seconds, saved[3];

    for (int i = 0; i < 3; i++) {
        assert_ok(study_lever_open(
            &w[i], &(struct study_lever_opts){.work = words[i],
                                              .model = tiny_model(KERN_BF16),
                                              .n_prompt_tok = 16,
                                              .n_output_tok = 10,
                                              .n_ctx_tok = 21}));
        saved[i] = w[i].cost[LEVER_BASE].bytes - w[i].fewer_bytes;
    }
    assert_true(w[0].n_decode == 3 && w[0].n_tok == 12 && w[0].n_ctx_tok == 21);
    for (int size = 0; size < LEVER_N_SIZES; size++) {
        near(w[0].cost[size].flop / (w[1].cost[size].flop + 3 * w[2].cost[size].flop), 1,
             1e-12);
        near(w[0].cost[size].bytes / (w[1].cost[size].bytes + 3 * w[2].cost[size].bytes),
             1, 1e-12);
    }
    near(saved[0] / (saved[1] + 3 * saved[2]), 1, 1e-9);
    for (int few = 0; few < 2; few++)
        for (int size = 0; size < LEVER_N_SIZES; size++) {
            study_lever_bytes_set(&w[0], few);
            assert_ok(study_lever_step(&w[0], size, &seconds));
        }
    for (int i = 0; i < 3; i++)
        study_lever_close(&w[i]);
}

TEST(controls_read_what_they_say)
{
    static const char *const names[] = {"fma", "stream", "cache"};

    for (int i = 0; i < 3; i++) {
        struct study_lever_work w;
        double seconds, chunks;

        assert_ok(open_work(&w, names[i], NULL));
        chunks = (double)(w.part_bytes / w.chunk_bytes);
        near(w.fewer_bytes / w.cost[LEVER_BASE].bytes, (3 * chunks + 1) / (4 * chunks),
             1e-12);
        near(w.cost[LEVER_BASE].flop / w.cost[LEVER_BASE].bytes,
             (double)w.n[LEVER_BASE] / 2, 1e-12);
        for (int few = 0; few < 2; few++)
            for (int size = 0; size < LEVER_N_SIZES; size++) {
                study_lever_bytes_set(&w, few);
                assert_ok(study_lever_step(&w, size, &seconds));
                assert_true(seconds > 0 && w.sum == 0); /* of zeros */
            }
        study_lever_close(&w);
    }
}

TEST(work_that_is_refused)
{
    struct study_lever_work w;

    assert_err(open_work(&w, "decode_0", tiny_model(KERN_BF16)), ERR_ARG, "decode_0");
    study_lever_close(&w);
    assert_err(open_work(&w, "decode_4x", tiny_model(KERN_BF16)), ERR_ARG, "decode_4x");
    study_lever_close(&w);
    assert_err(open_work(&w, "serving_257", tiny_model(KERN_BF16)), ERR_ARG,
               "of 1 to 256 sequences, found \"serving_257\"");
    study_lever_close(&w);
    assert_err(open_work(&w, "prefill", NULL), ERR_ARG, "study.model");
    study_lever_close(&w);
}

/* ---- stressors and clocks ---- */

TEST(stressors_touch_no_more_than_their_footprint)
{
    struct cpu_budget b;
    struct study_stressors *h;

    assert_ok(cpu_budget_get(&b));
    assert_ok(study_stressors_open(
        &h, &(struct study_stressors_opts){.cpus = b.cpus,
                                           .n = b.n,
                                           .share = 0.25,
                                           .period_s = 0.002,
                                           .footprint_bytes = 1 << 20}));
    assert_true(study_stressors_touched_bytes(h) == 0);
    study_stressors_set(h, STUDY_STRESSORS_TOUCH);
    while (study_stressors_touched_bytes(h) == 0)
        ;
    assert_true(study_stressors_touched_bytes(h) <= 1 << 20);
    study_stressors_set(h, STUDY_STRESSORS_SPIN);
    study_stressors_set(h, STUDY_STRESSORS_OFF);
    assert_true(study_stressors_touched_bytes(h) == 0); /* of the mode that was last */
    study_stressors_close(&h);
    study_stressors_close(&h);
}

#define LIMIT(cpu, khz)                                                                  \
    {                                                                                    \
        "/sys/devices/system/cpu/cpu" #cpu "/cpufreq/scaling_max_freq", khz "\n"         \
    }

static long limit_of(const char *root, int cpu)
{
    char path[512];
    long khz = -1;
    FILE *f;

    snprintf(path, sizeof(path),
             "%s/sys/devices/system/cpu/cpu%d/cpufreq/scaling_max_freq", root, cpu);
    assert_non_null(f = fopen(path, "r"));
    assert_int_equal(fscanf(f, "%ld", &khz), 1);
    fclose(f);
    return khz;
}

TEST(clocks_are_limited_and_restored)
{
    static const struct fake_file files[] = {
        LIMIT(0, "3000000"), LIMIT(2, "2000000"), {0}};
    static const struct fake_file odd[] = {LIMIT(0, "fast"), {0}};
    const int cpus[] = {0, 2};
    const char *root = fake_root(files);
    struct study_clock_limit l;

    assert_ok(study_clock_limit_open(&l, root, cpus, 2));
    assert_ok(study_clock_limit_set(&l, 0.8));
    assert_true(limit_of(root, 0) == 2400000 && limit_of(root, 2) == 1600000 &&
                l.lowered);
    assert_ok(study_clock_limit_set(&l, 1));
    assert_true(limit_of(root, 0) == 3000000 && limit_of(root, 2) == 2000000 &&
                !l.lowered);
    assert_err(study_clock_limit_open(&l, root, (const int[]){1}, 1), ERR_UNSUPPORTED,
               "CPU 1 shows no limit");
    assert_err(study_clock_limit_open(&l, fake_root(odd), cpus, 1), ERR_UNSUPPORTED,
               "expected a number of kHz");
}

/* ---- the study ---- */

static int run(const char *rest)
{
    return capture_run(&study_levers,
                       "{\"model\": \"%s\", \"rounds\": 7, \"n_prompt_tok\": 16, "
                       "\"n_ctx_tok\": 8, \"trial_s\": 0.005, \"stream_mb\": 4, "
                       "\"time_share\": 0.2, \"period_ms\": 1, %s}",
                       tiny_model(KERN_BF16), rest);
}

static void numbers_follow_from_the_rounds(void)
{
    static const char *const summed[] = {"elasticity_compute", "elasticity_bandwidth",
                                         "elasticity_cache"};
    double best = -INFINITY;
    int lever = -1;

    for (int i = 0; i < 3; i++) {
        const struct captured *v = captured(summed[i]);

        assert_value(summed[i], series_middle(summed[i]));
        assert_true(v->lo == series_min(summed[i]) && v->hi == series_max(summed[i]));
        if (v->value > best) {
            best = v->value;
            lever = i;
        }
    }
    for (int i = 0; i < 7; i++) {
        double sum = 0;

        for (int k = 0; k < 3; k++)
            sum += series_at(summed[k], i);
        if (isnan(sum)) { /* a round that other programs disturbed says nothing */
            assert_true(isnan(series_at("sum", i)) && isnan(series_at("rest", i)));
            continue;
        }
        near(series_at("sum", i), sum, 1e-9 * (1 + fabs(sum)));
        near(series_at("rest", i), 1 - sum, 1e-9 * (1 + fabs(sum)));
        /* The lever `time` changes nothing else. */
        near(series_at("elasticity_time", i) * log(series_at("change_time", i)),
             log(series_at("speed_time", i)), 1e-9);
    }
    assert_value("lever", lever);
    assert_true(isnan(value_of("elasticity_frequency")));
    assert_true(captured("elasticity_frequency")->why[0] != 0);
    assert_int_equal(length_of("elasticity_frequency"), 0);
}

TEST(the_engine_under_levers)
{
    struct study_lever_work w;

    assert_ok(run("\"work\": \"decode_4\""));
    numbers_follow_from_the_rounds();
    assert_ok(open_work(&w, "decode_4", tiny_model(KERN_BF16)));
    assert_value("change_compute", w.cost[LEVER_BASE].flop / w.cost[LEVER_FEWER].flop);
    assert_value("change_bandwidth", w.cost[LEVER_BASE].bytes / w.fewer_bytes);
    assert_value("tokens_per_s", 4e3 / value_of("step_ms"));
    assert_value("step_gflops", w.cost[LEVER_BASE].flop / value_of("step_ms") * 1e-6);
    study_lever_close(&w);
    assert_ok(run("\"work\": \"prefill\""));
    numbers_follow_from_the_rounds();
    assert_value("tokens_per_s", 16e3 / value_of("step_ms"));
}

TEST(a_control_under_levers)
{
    assert_ok(run("\"work\": \"fma\""));
    numbers_follow_from_the_rounds();
    assert_true(isnan(value_of("tokens_per_s")));
    assert_value("change_compute", 64.0 / 48);
}

TEST(options_that_are_refused)
{
    assert_err(run("\"work\": \"encode\""), ERR_ARG, "study.work");
    assert_err(run("\"work\": \"fma\", \"cache_mb\": 1000000"), ERR_ARG,
               "study.cache_mb");
}
