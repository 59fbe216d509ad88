/* Machines on which the time of every schedule is known: what changes it, and what is the best. */
#include <math.h>

#include "experiments/study/support/kernel_machine.h"
#include "tests/tune/bench_model.h"
#include "tune/space.h"

#define N_KINDS 5
#define PLAIN   0
#define CROWDED 1
#define RUGGED  3

static const struct tune_shape shape = {
    .v = &bench_model_mks, .m = 96, .n = 1024, .k = 512};

static struct kern_mat mat(void)
{
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, shape.n, shape.k, 0);
    return w;
}

TEST(no_schedule_is_faster_than_the_best)
{
    const struct kern_mat w = mat();
    struct rng rng;

    rng_init(&rng, test_seed(), "schedules");
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct study_kernel_machine m;
        double best, least = INFINITY, most = 0;

        study_kernel_machine_draw(&m, kind, 0, test_seed() + (uint64_t)kind);
        best = study_kernel_machine_best(&m, &shape);
        assert_true(best > 0 && isfinite(best));
        for (int i = 0; i < 3000; i++) {
            struct kern_schedule s;
            double t;

            tune_random(&s, &shape, &w, m.n_threads, true, &rng);
            if (kern_schedule_check(&s, shape.v, &w, shape.m, m.n_threads) != OK)
                continue;
            t = study_kernel_machine_s(&m, &shape, &s, m.n_threads);
            least = fmin(least, t);
            most = fmax(most, t);
        }
        if (least < (kind == RUGGED ? 0.9 : 0.99) * best)
            fail_msg("kind %d: %g s, the best known is %g s", kind, least, best);
        assert_true(most > 2 * best); /* there is something to find */
    }
}

/* The same time again; a machine of another seed or kind has another. */
TEST(times_follow_from_the_seed)
{
    const struct kern_mat w = mat();
    struct study_kernel_machine m, same, other, crowded;
    struct kern_schedule s;
    struct rng rng;

    rng_init(&rng, 1, "schedules");
    study_kernel_machine_draw(&m, PLAIN, 0, 5);
    study_kernel_machine_draw(&same, PLAIN, 0, 5);
    study_kernel_machine_draw(&other, PLAIN, 0, 6);
    study_kernel_machine_draw(&crowded, CROWDED, 0, 5);
    assert_memory_equal(&m, &same, sizeof(m));
    assert_memory_equal(&m.shown, &crowded.shown, sizeof(m.shown));
    assert_in_range(m.n_threads, 2, 16);
    study_kernel_machine_draw(&same, PLAIN, 2 * m.n_threads, 5);
    assert_int_equal(same.n_threads, 2 * m.n_threads);
    assert_true(same.ghz == m.ghz && same.memory_gbps > m.memory_gbps);
    same = m;
    for (int i = 0; i < 3; i++)
        assert_true(i == 0 ? crowded.cache_bytes[i] == m.cache_bytes[i]
                           : crowded.cache_bytes[i] < m.cache_bytes[i]);
    for (int i = 0; i < 200; i++) {
        double t;

        tune_random(&s, &shape, &w, 1, true, &rng);
        t = study_kernel_machine_s(&m, &shape, &s, 1);
        assert_true(t == study_kernel_machine_s(&same, &shape, &s, 1));
        assert_true(t != study_kernel_machine_s(&other, &shape, &s, 1));
        assert_true(t <= study_kernel_machine_s(&crowded, &shape, &s, 1));
    }
}

/* Of otherwise equal schedules, without what is particular to one. */
TEST(what_costs_time)
{
    struct kern_schedule
        s = {.mr = 14, .np = 2, .bm = 98, .bn = 64, .bk = 512, .pm = 1, .pn = 1, .pk = 1},
        x;
    struct study_kernel_machine m, slow;
    double t;

    study_kernel_machine_draw(&m, PLAIN, 0, 3);
    m.tile_sd = m.schedule_sd = 0;
    t = study_kernel_machine_s(&m, &shape, &s, 1);
    x = s;
    x.mr = 1, x.np = 1, x.bm = 98;
    assert_true(study_kernel_machine_s(&m, &shape, &x, 1) > 2 * t); /* few sums */
    x = s;
    x.bm = 14, x.bn = 2, x.bk = 8;
    assert_true(study_kernel_machine_s(&m, &shape, &x, 1) > 1.2 * t); /* many slices */
    x = s;
    x.pn = 4;
    assert_true(study_kernel_machine_s(&m, &shape, &x, 4) < t / 2);
    slow = m;
    slow.memory_gbps = slow.core_gbps = 1;
    assert_true(study_kernel_machine_s(&slow, &shape, &s, 1) > 1.5 * t);
    slow = m;
    slow.barrier_s += 1;
    x = s;
    x.pk = 2;
    assert_true(study_kernel_machine_s(&slow, &shape, &s, 1) == t); /* one thread */
    t = study_kernel_machine_s(&slow, &shape, &x, 2);
    assert_true(t > 2 && t < 2.1); /* and before the reduction */
}

TEST(noise_is_what_the_machine_says)
{
    struct study_kernel_machine m;
    double sum = 0, squares = 0;
    int n = 20000, n_spikes = 0;
    struct rng rng;

    study_kernel_machine_draw(&m, PLAIN, 0, 1);
    m.noise_frac = 0.02;
    m.spike_chance = 0;
    rng_init(&rng, test_seed(), "noise");
    for (int i = 0; i < n; i++) {
        double x = log(study_kernel_machine_noise(&m, &rng));

        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / n) < 0.001);
    assert_true(fabs(sqrt(squares / n) - 0.02) < 0.001);
    m.noise_frac = 0;
    m.spike_chance = 0.1;
    m.spike_frac = 0.5;
    for (int i = 0; i < n; i++)
        n_spikes += study_kernel_machine_noise(&m, &rng) > 1;
    assert_in_range(n_spikes, 1700, 2300);
}
