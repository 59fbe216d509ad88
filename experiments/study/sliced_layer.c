/* A layer's MLP in slices on this CPU and an accelerator that is not there (accel/paced.c): when
 * both are ready, measured, and by the model with and without what CPU and link slow each other.
 * The CPU's half, the copies and their contention for memory are real; kernels' times are those
 * of Table I.
 * Paper: ScheInfer III, IV-A. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/profile.h"
#include "experiments/study/support/rows.h"
#include "hetero/layer.h"

#define COPIES     4 /* of the layer, in turn, so that weights are not in a cache */
#define POINTS_MAX 64
#define ROUNDS_MAX 32

struct opts {
    char *type;
    int64_t n_threads, n_tok, dim, hidden, rounds, steps;
    double link_gbps, gg_frac, min_ms;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, type, "bf16", "Type of the weights."),
    OPT_ROW(
        INT, n_threads, "1",
        "Threads of the CPU's half. The thread that copies has the budget's last CPU.",
        .min = 1, .max = 1024),
    OPT_ROW(INT, n_tok, "1", "Tokens.", .min = 1, .max = 1024),
    OPT_ROW(INT, dim, "2048", "Size of the residual stream.", .min = 256, .max = 16384),
    OPT_ROW(INT, hidden, "5632", "Hidden units, a multiple of 512.", .min = 512,
            .max = 65536),
    OPT_ROW(INT, rounds, "5", "Runs of each point; the lowest decile counts.", .min = 1,
            .max = ROUNDS_MAX),
    OPT_ROW(INT, steps, "8", "CG is swept in that many steps.", .min = 1,
            .max = POINTS_MAX - 1),
    OPT_ROW(F64, link_gbps, "4", "Rate of the link.", .unit = "GB/s", .min = 0.01,
            .max = 1000),
    OPT_ROW(F64, gg_frac, "0", "Share of GG.", .min = 0, .max = 1),
    OPT_ROW(F64, min_ms, "4", "Each point of the profile is timed for at least so long.",
            .unit = "ms", .min = 0, .max = 1e4),
    {0},
};

static const struct study_metric metrics[] = {
    {"best_ms", "ms", "lower", "least time over the shares of CG, measured"},
    {"cpu_alone_ms", "ms", "lower", "time with nothing sent"},
    {"best_speedup", "x", "higher", "cpu_alone_ms / best_ms"},
    {"best_cg_frac", "", "", "CG's share of the least time"},
    {"planned_cg_frac", "", "", "CG's share that the model takes for the best"},
    {"planned_loss_frac", "", "lower", "measured time of that share / best_ms - 1"},
    {"error_frac", "", "lower",
     "median |predicted / measured - 1|, with contention in the model"},
    {"error_max_frac", "", "lower", "the largest"},
    {"within_10_frac", "", "higher", "share of the sweep that is within 10 %"},
    {"error_no_contention_frac", "", "lower", "median without contention in the model"},
    {"within_10_no_contention_frac", "", "higher", "share within 10 % without"},
    {"cpu_contention", "", "", "how much longer products take while the link copies"},
    {"link_contention", "", "", "how much longer copies take while the CPU computes"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_threads threads;
    struct hetero_mlp mlps[COPIES];
    void *weights[COPIES];
    size_t bytes;
    float *x, *y;
    struct hetero_layer model;
    int n_points;
    double cg[POINTS_MAX], measured[POINTS_MAX], predicted[POINTS_MAX], plain[POINTS_MAX],
        accel[POINTS_MAX], cpu[POINTS_MAX];
};

static int make_weights(struct cell *c, enum kern_type type)
{
    struct kern_mat gate_up, down;
    size_t floats = (size_t)(c->o->n_tok * c->o->dim);
    struct rng r;

    kern_mat_layout(&gate_up, type, 2 * c->o->hidden, c->o->dim, 0);
    kern_mat_layout(&down, type, c->o->dim, c->o->hidden, 256);
    c->bytes = gate_up.bytes + down.bytes;
    rng_init(&r, 1, "weights");
    for (int i = 0; i < COPIES; i++) { /* numbers near 1 or 0.01 in every type */
        uint32_t *at;

        c->weights[i] = mem_map(MEM_WEIGHTS, c->bytes, MEM_NODE_ANY);
        if (!c->weights[i])
            return ERR_NOMEM;
        at = c->weights[i];
        for (size_t k = 0; k < c->bytes / 4; k++)
            at[k] = ((uint32_t)rng_u64(&r) & 0x00ff00ff) | 0x3c003c00;
        c->mlps[i] = (struct hetero_mlp){gate_up, down};
        c->mlps[i].gate_up.data = c->weights[i];
        c->mlps[i].down.data = (char *)c->weights[i] + gate_up.bytes;
    }
    c->x = mem_new(MEM_OTHER, floats, sizeof(float));
    c->y = mem_new(MEM_OTHER, floats, sizeof(float));
    for (size_t i = 0; i < floats; i++)
        c->x[i] = (float)rng_normal(&r);
    return OK;
}

static int measure_point(struct cell *c, int cg, int gg, int at)
{
    const struct hetero_units units = {cg, gg};
    struct hetero_device_opts o = {
        .accel = {&c->model.machine, c->threads.budget.cpus[c->threads.budget.n - 1]},
        .units = &units,
        .n_layers = 1,
        .max_tok = c->o->n_tok,
        .ld = c->o->dim};
    double s[ROUNDS_MAX], accel[ROUNDS_MAX], cpu[ROUNDS_MAX];

    TRY(accel_find("paced", &o.kind));
    for (int i = -1; i < c->o->rounds; i++) { /* the first warms up */
        struct hetero_run got;

        o.layers = &c->mlps[(i + 1) % COPIES];
        TRY(hetero_mlp_run(c->y, &got, &o, c->x, c->o->n_tok, 0, c->threads.team,
                           c->threads.n));
        if (i < 0)
            continue;
        s[i] = got.seconds;
        accel[i] = got.accel_s;
        cpu[i] = got.cpu_s;
    }
    c->measured[at] = stats_percentile(s, (size_t)c->o->rounds, 0.1);
    c->accel[at] = stats_percentile(accel, (size_t)c->o->rounds, 0.1);
    c->cpu[at] = stats_percentile(cpu, (size_t)c->o->rounds, 0.1);
    return OK;
}

static int sweep(struct cell *c)
{
    int n_units = c->model.n_units, gg = (int)lround(c->o->gg_frac * n_units);
    struct hetero_layer plain = c->model;

    plain.machine.cpu_contention = plain.machine.link_contention = 0;
    for (int i = 0; i <= c->o->steps; i++) {
        int cg = (int)((n_units - gg) * i / c->o->steps);

        study_progress(c->out, (double)i / (double)c->o->steps, "shares of CG");
        c->cg[i] = (double)cg / n_units;
        c->predicted[i] = hetero_layer_s(&c->model, cg, gg, 0);
        c->plain[i] = hetero_layer_s(&plain, cg, gg, 0);
        TRY(measure_point(c, cg, gg, i));
    }
    c->n_points = (int)c->o->steps + 1;
    return OK;
}

static void errors(const struct cell *c, const double *predicted, double *median,
                   double *most, double *within)
{
    double e[POINTS_MAX];
    int n = 0;

    for (int i = 0; i < c->n_points; i++) {
        e[i] = fabs(predicted[i] / c->measured[i] - 1);
        n += e[i] <= 0.1;
    }
    *median = stats_median(e, (size_t)c->n_points);
    *most = stats_max(e, (size_t)c->n_points);
    *within = (double)n / c->n_points;
}

static int report(struct cell *c)
{
    double error, most, within, plain_error, plain_most, plain_within;
    int best = 0, planned, n_units = c->model.n_units,
        gg = (int)lround(c->o->gg_frac * n_units);
    size_t n = (size_t)c->n_points;

    for (int i = 1; i < c->n_points; i++)
        best = c->measured[i] < c->measured[best] ? i : best;
    hetero_best_cg(&c->model, gg, &planned);
    errors(c, c->predicted, &error, &most, &within);
    errors(c, c->plain, &plain_error, &plain_most, &plain_within);
    TRY(measure_point(c, planned, gg, c->n_points)); /* behind the sweep */
    {
        const struct study_number all[] = {
            {"best_ms", 1e3 * c->measured[best]},
            {"cpu_alone_ms", 1e3 * c->measured[0]},
            {"best_speedup", c->measured[0] / c->measured[best]},
            {"best_cg_frac", c->cg[best]},
            {"planned_cg_frac", (double)planned / n_units},
            {"planned_loss_frac", c->measured[n] / c->measured[best] - 1},
            {"error_frac", error},
            {"error_max_frac", most},
            {"within_10_frac", within},
            {"error_no_contention_frac", plain_error},
            {"within_10_no_contention_frac", plain_within},
            {"cpu_contention", c->model.machine.cpu_contention},
            {"link_contention", c->model.machine.link_contention}};

        STUDY_VALUES(c->out, all, NULL);
    }
    study_series(c->out, "cg", "", c->cg, n);
    study_series(c->out, "measured_s", "s", c->measured, n);
    study_series(c->out, "accel_s", "s", c->accel, n);
    study_series(c->out, "cpu_s", "s", c->cpu, n);
    study_series(c->out, "predicted_s", "s", c->predicted, n);
    study_series(c->out, "predicted_no_contention_s", "s", c->plain, n);
    return OK;
}

static int run(struct cell *c)
{
    const struct opts *o = c->o;
    struct study_profile_key key = {.n_threads = (int)o->n_threads,
                                    .max_tok = 64,
                                    .link_gbps = o->link_gbps,
                                    .min_s = 1e-3 * o->min_ms,
                                    .accel = true};
    const struct hetero_profile *p;
    double p95;

    if (o->hidden % 512)
        return err_set(ERR_ARG, "study.hidden: expected a multiple of 512, found %lld",
                       (long long)o->hidden);
    TRY(kern_type_parse(o->type, &key.type));
    TRY(study_profile_get(study_kept(c->out), &key, &p));
    TRY(hetero_profile_machine(&c->model.machine, &p95, p, key.type, key.n_threads,
                               o->n_tok));
    TRY(study_threads_open(&c->threads, o->n_threads, 0));
    study_note_machine(c->out, &c->threads);
    TRY(make_weights(c, key.type));
    c->model.gemm = (struct hetero_gemm){o->n_tok, o->dim, o->hidden,
                                         kern_type_weight_bytes(key.type)};
    c->model.n_gemms = HETERO_N_GEMMS;
    c->model.n_units = hetero_mlp_units(&c->mlps[0]);
    TRY(sweep(c));
    return report(c);
}

static void end(struct cell *c)
{
    for (int i = 0; i < COPIES; i++)
        mem_unmap(MEM_WEIGHTS, c->weights[i], c->bytes);
    mem_free(c->x);
    mem_free(c->y);
    study_threads_close(&c->threads);
}

STUDY(sliced_layer,
      "a layer in slices on this CPU and a paced accelerator, and its model",
      .kept_bytes = sizeof(struct study_profiles), .close = study_profiles_close);
