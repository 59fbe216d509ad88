/* Regret at equal budgets: every tuner of kernels measures noisy runs of products on a machine on
 * which the time of every schedule is known. After each measurement the fastest so far is what
 * would be chosen for a product if the tuner ended there, the cost model's where it has measured
 * none; how much slower that is than the fastest known, without noise, is the regret. By
 * measurements, and by the time that they take on the machine.   Paper: Sandwich 6, 8.2, Fig. 8. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "cpu/assume.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/kernel_machine.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/tuning.h"
#include "tune/search.h"

#define SHAPES_MAX 64

#define OPTIONS(X)                                                                       \
    X(ENUM, machine, "plain", "What the machine hides, which is drawn with `seed`.",     \
      .values = STUDY_KERNEL_MACHINES)                                                   \
    OPTION_THREADS(X, "0", "Number of its threads. 0: 2 to 16, drawn.")                  \
    OPTION_MATRIX(X)                                                                     \
    X(INT, n_shapes, "12", "Number of random M, each octave equally likely.", .min = 1,  \
      .max = SHAPES_MAX)                                                                 \
    X(INT, m_max, "512", "Largest M.", .min = 1, .max = 65536)                           \
    X(STR, tuner, "sandwich",                                                            \
      "A tuning policy, or random: `trials` random schedules of each shape. With _N: N " \
      "trials, of sandwich a window of N shapes. With _again: another seed of all "      \
      "chance.")                                                                         \
    X(INT, trials, "800", "Measurements per shape of policies that sample.", .min = 1,   \
      .max = 100000)                                                                     \
    X(INT, seed, "1", "Seed of the machine, its noise, the shapes and the tuner.")

#define RESULTS(X)                                                                       \
    X(regret_0, "", LOWER, "regret of the cost model's schedules, which measures none")  \
    X(regret_30, "", LOWER, "regret after 30 measurements of all shapes together")       \
    X(regret_100, "", LOWER, "... after 100")                                            \
    X(regret_300, "", LOWER, "... after 300")                                            \
    X(regret_1000, "", LOWER, "... after 1,000")                                         \
    X(regret_3000, "", LOWER, "... after 3,000")                                         \
    X(regret_10000, "", LOWER, "... after 10,000")                                       \
    X(regret_30000, "", LOWER,                                                           \
      "... after 30,000, or when the tuner ended, as for all numbers above and below")   \
    X(regret_1s, "", LOWER, "regret after 1 s of the machine's time")                    \
    X(regret_3s, "", LOWER, "... after 3 s")                                             \
    X(regret_10s, "", LOWER, "... after 10 s")                                           \
    X(regret_30s, "", LOWER, "... after 30 s")                                           \
    X(regret_100s, "", LOWER, "... after 100 s")                                         \
    X(regret_300s, "", LOWER, "... after 300 s")                                         \
    X(regret_chosen, "", LOWER, "regret of what the tuner itself chooses in the end")    \
    X(best_s, "s", 0, "time of the fastest schedules known, geometric mean")             \
    X(n_measurements, "", LOWER, "schedules that were measured")                         \
    X(tuning_s, "s", LOWER, "time of all their runs on the machine")

FRAME_TYPES;

static const int marks[] = {0, 30, 100, 300, 1000, 3000, 10000, 30000};
static const int marks_s[] = {1, 3, 10, 30, 100, 300};
#define N_MARKS   ((int)(sizeof(marks) / sizeof(marks[0])))
#define N_MARKS_S ((int)(sizeof(marks_s) / sizeof(marks_s[0])))

/* Micro-kernels of 512 bits and 32 registers; nothing is executed. */
static const struct kern_variant variant = {.name = "simulated",
                                            .op = KERN_GEMM_F32,
                                            .rows = {30, 14, 9, 6, 5, 4, 3, 2},
                                            .vec_cols = 16,
                                            .a_format = KERN_A_F32};

/* The machine, the shapes and their fastest schedules: they stay from tuner to tuner. */
struct table {
    char key[200];
    struct study_kernel_machine machine;
    struct tune_shape shapes[SHAPES_MAX];
    int n;
    double best_s[SHAPES_MAX];
};

struct tuner_regret {
    FRAME_CELL;
    struct table *k;
    struct tune_bench *bench;
    struct tune_opts tune;
    struct rng noise;
    double seen_s[SHAPES_MAX];   /* the fastest measurement */
    double chosen_s[SHAPES_MAX]; /* without noise, of what would be chosen */
};

/* ---- what is watched ---- */

static double exact_s(const struct tuner_regret *c, int i, const struct kern_schedule *s)
{
    return study_kernel_machine_s(&c->k->machine, &c->k->shapes[i], s,
                                  c->k->machine.n_threads);
}

/* The marks that have not been passed get the regret of what is chosen now. */
static void mark(struct tuner_regret *c)
{
    struct tune_cost cost;
    double sum = 0;

    for (int i = 0; i < c->k->n; i++)
        sum += log(c->chosen_s[i] / c->k->best_s[i]);
    tune_cost_of(c->bench, &cost);
    c->r->regret_chosen = exp(sum / c->k->n) - 1;
    for (int i = 0; i < N_MARKS; i++)
        if (cost.n_measurements <= marks[i])
            *frame_named(c->f, "regret_%d", marks[i]) = c->r->regret_chosen;
    for (int i = 0; i < N_MARKS_S; i++)
        if (cost.seconds <= marks_s[i])
            *frame_named(c->f, "regret_%ds", marks_s[i]) = c->r->regret_chosen;
    c->r->n_measurements = (double)cost.n_measurements;
    c->r->tuning_s = cost.seconds;
}

static double run_s(void *arg, const struct tune_shape *shape,
                    const struct kern_schedule *s, int n_threads)
{
    struct tuner_regret *c = arg;

    return study_kernel_machine_s(&c->k->machine, shape, s, n_threads) *
           study_kernel_machine_noise(&c->k->machine, &c->noise);
}

static void shape_tried(void *arg, const struct tune_shape *shape,
                        const struct kern_schedule *s, int n_threads,
                        const struct measure_report *t)
{
    struct tuner_regret *c = arg;
    const struct table *k = c->k;

    for (int i = 0; i < k->n && n_threads == k->machine.n_threads; i++) {
        const struct tune_shape *x = &k->shapes[i];

        if (x->m != shape->m || x->n != shape->n || x->k != shape->k ||
            t->estimate >= c->seen_s[i])
            continue;
        c->seen_s[i] = t->estimate;
        c->chosen_s[i] = exact_s(c, i, s);
    }
    mark(c);
}

static int shape_done(void *arg, int i, const struct kern_schedule *s,
                      const struct measure_report *t)
{
    struct tuner_regret *c = arg;

    (void)t;
    c->chosen_s[i] = exact_s(c, i, s);
    mark(c);
    return OK;
}

/* ---- tuners ---- */

static int random_one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
                      struct measure_report *t)
{
    const struct tune_opts *o = q->c->o;
    struct rng r;

    (void)arg;
    rng_init(&r, (uint64_t)o->seed + 1000003 * (uint64_t)i, "random schedules");
    for (int64_t tries = 0; q->n_seen < o->trials && tries < 8 * o->trials; tries++) {
        struct kern_schedule x;
        double seconds;

        tune_random(&x, &q->shape, q->w, q->c->n_threads, o->split_k, &r);
        TRY(tune_search_try(q, &x, q->c->n_threads, &seconds));
    }
    *s = q->best;
    *t = q->best_t;
    return OK;
}

static int random_run(struct tune_ctx *c, struct kern_schedule *out)
{
    static const struct tune_steps steps = {.one = random_one};

    return tune_search_run(c, out, &steps, NULL);
}
static const struct tune_policy random_policy = {.name = "random", .run = random_run};

/* "ansor_100_again": the policy, its trials or window, and its seed. */
static int choose_tuner(struct tuner_regret *c, const struct tune_policy **out)
{
    const struct opts *o = c->o;
    char name[64], *again, *n;

    TRY(opt_init(tune_opt_table, &c->tune));
    snprintf(name, sizeof(name), "%s", o->tuner);
    again = strstr(name, "_again");
    if (again)
        *again = 0;
    c->tune.trials = o->trials;
    n = strrchr(name, '_');
    if (n && strtol(n + 1, NULL, 10) > 0) {
        *(strncmp(name, "sandwich", 8) ? &c->tune.trials : &c->tune.sigma) =
            strtol(n + 1, NULL, 10);
        *n = 0;
    }
    c->tune.seed = o->seed + (again ? 1000 : 0);
    c->tune.start_default = false;
    *out = &random_policy;
    if (strcmp(name, random_policy.name) != 0 && tune_policy_find(name, out) != OK)
        return err_prefix(ERR_ARG, "study.tuner");
    return OK;
}

/* ---- a cell ---- */

static int open_table(struct table *k, const struct opts *o)
{
    struct tune_shape shape;
    int64_t m[SHAPES_MAX];
    char key[sizeof(k->key)];

    TRY(study_matrix_parse(o->matrix, 1, &shape));
    snprintf(key, sizeof(key), "%d|%lld|%s|%lld|%lld|%lld", o->machine,
             (long long)o->threads, o->matrix, (long long)o->n_shapes,
             (long long)o->m_max, (long long)o->seed);
    if (strcmp(key, k->key) == 0)
        return OK;
    TRY(study_rows_draw(m, o->n_shapes, o->m_max, o->seed, "tuner_regret"));
    study_kernel_machine_draw(&k->machine, o->machine, (int)o->threads,
                              (uint64_t)o->seed);
    k->n = (int)o->n_shapes;
    shape.v = &variant;
    for (int i = 0; i < k->n; i++) {
        shape.m = m[i];
        k->shapes[i] = shape;
        k->best_s[i] = study_kernel_machine_best(&k->machine, &shape);
    }
    memcpy(k->key, key, sizeof(key));
    return OK;
}

/* Until a shape has been measured it has the schedule of the cost model. */
static int begin(struct tuner_regret *c)
{
    for (int i = 0; i < c->k->n; i++) {
        const struct tune_shape *x = &c->k->shapes[i];
        struct kern_schedule s;
        struct kern_mat w;

        kern_mat_layout(&w, KERN_F32, x->n, x->k, x->k_unit);
        kern_schedule_default(&s, x->v, &w, x->m, c->k->machine.n_threads);
        tune_clamp(&s, &w, x->m);
        c->chosen_s[i] = exact_s(c, i, &s);
        c->seen_s[i] = INFINITY;
    }
    rng_init(&c->noise, (uint64_t)c->tune.seed, "noise");
    TRY(tune_bench_open_model(&c->bench, run_s, c));
    tune_bench_model_rounds(c->bench);
    mark(c);
    return OK;
}

static void regret_close(struct tuner_regret *c)
{
    tune_bench_close(&c->bench);
    opt_free(tune_opt_table, &c->tune);
    cpu_assume(NULL);
}

static int tuner_regret_run(struct tuner_regret *c)
{
    struct kern_schedule out[SHAPES_MAX];
    const struct tune_policy *policy;
    struct tune_ctx x = {
        .o = &c->tune, .done = shape_done, .tried = shape_tried, .arg = c};

    FRAME_CLOSE(c->f, regret_close, c);
    c->k = study_kept(c->out);
    TRY(choose_tuner(c, &policy));
    TRY(open_table(c->k, c->o));
    cpu_assume(&c->k->machine.shown);
    TRY(begin(c));
    x.bench = c->bench;
    x.n_threads = c->k->machine.n_threads;
    x.shapes = c->k->shapes;
    x.n_shapes = c->k->n;
    TRY(policy->run(&x, out));
    c->r->best_s = stats_geomean(c->k->best_s, (size_t)c->k->n);
    return OK;
}

STUDY(tuner_regret,
      "how near each tuner of kernels is to the fastest schedules at equal budgets",
      .kept_bytes = sizeof(struct table));
