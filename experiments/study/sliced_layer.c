/* A layer's MLP in slices on this CPU and an accelerator that is not there (accel/paced.c): when
 * both are ready, measured, and by the model with and without what CPU and link slow each other.
 * The CPU's half, the copies and their contention for memory are real; kernels' times are those
 * of Table I.
 * Paper: ScheInfer III, IV-A. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/profile.h"
#include "hetero/layer.h"

#define COPIES     4 /* of the layer, in turn, so that weights are not in a cache */
#define POINTS_MAX 64
#define ROUNDS_MAX 32

#define OPTIONS(X)                                                                       \
    X(STR, type, "bf16", "Type of the weights.")                                         \
    X(INT, n_threads, "1",                                                               \
      "Threads of the CPU's half. The thread that copies has the budget's last CPU.",    \
      .min = 1, .max = 1024)                                                             \
    X(INT, n_tok, "1", "Tokens.", .min = 1, .max = 1024)                                 \
    X(INT, dim, "2048", "Size of the residual stream.", .min = 256, .max = 16384)        \
    X(INT, hidden, "5632", "Hidden units, a multiple of 512.", .min = 512, .max = 65536) \
    X(INT, rounds, "5", "Runs of each point; the lowest decile counts.", .min = 1,       \
      .max = ROUNDS_MAX)                                                                 \
    X(INT, steps, "8", "CG is swept in that many steps.", .min = 1,                      \
      .max = POINTS_MAX - 1)                                                             \
    X(F64, link_gbps, "4", "Rate of the link.", .unit = "GB/s", .min = 0.01,             \
      .max = 1000)                                                                       \
    X(F64, gg_frac, "0", "Share of GG.", .min = 0, .max = 1)                             \
    X(F64, min_ms, "4", "Each point of the profile is timed for at least so long.",      \
      .unit = "ms", .min = 0, .max = 1e4)

#define RESULTS(X)                                                                       \
    X(best_ms, "ms", LOWER, "least time over the shares of CG, measured")                \
    X(cpu_alone_ms, "ms", LOWER, "time with nothing sent")                               \
    X(best_speedup, "x", HIGHER, "cpu_alone_ms / best_ms")                               \
    X(best_cg_frac, "", 0, "CG's share of the least time")                               \
    X(planned_cg_frac, "", 0, "CG's share that the model takes for the best")            \
    X(planned_loss_frac, "", LOWER, "measured time of that share / best_ms - 1")         \
    X(error_frac, "", LOWER,                                                             \
      "median |predicted / measured - 1|, with contention in the model")                 \
    X(error_max_frac, "", LOWER, "the largest")                                          \
    X(within_10_frac, "", HIGHER, "share of the sweep that is within 10 %")              \
    X(error_no_contention_frac, "", LOWER, "median without contention in the model")     \
    X(within_10_no_contention_frac, "", HIGHER, "share within 10 % without")             \
    X(cpu_contention, "", 0, "how much longer products take while the link copies")      \
    X(link_contention, "", 0, "how much longer copies take while the CPU computes")

FRAME_TYPES;

struct sliced_layer {
    FRAME_CELL;
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

static int make_weights(struct sliced_layer *c, enum kern_type type)
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

static int measure_point(struct sliced_layer *c, int cg, int gg, int at)
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

static int sweep(struct sliced_layer *c)
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

static void errors(const struct sliced_layer *c, const double *predicted, double *median,
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

static int sliced_layer_report(struct sliced_layer *c)
{
    int best = 0, planned, n_units = c->model.n_units,
        gg = (int)lround(c->o->gg_frac * n_units);
    size_t n = (size_t)c->n_points;
    struct results *r = c->r;
    double plain_most;

    for (int i = 1; i < c->n_points; i++)
        best = c->measured[i] < c->measured[best] ? i : best;
    hetero_best_cg(&c->model, gg, &planned);
    errors(c, c->predicted, &r->error_frac, &r->error_max_frac, &r->within_10_frac);
    errors(c, c->plain, &r->error_no_contention_frac, &plain_most,
           &r->within_10_no_contention_frac);
    TRY(measure_point(c, planned, gg, c->n_points)); /* behind the sweep */
    r->best_ms = 1e3 * c->measured[best];
    r->cpu_alone_ms = 1e3 * c->measured[0];
    r->best_speedup = c->measured[0] / c->measured[best];
    r->best_cg_frac = c->cg[best];
    r->planned_cg_frac = (double)planned / n_units;
    r->planned_loss_frac = c->measured[n] / c->measured[best] - 1;
    r->cpu_contention = c->model.machine.cpu_contention;
    r->link_contention = c->model.machine.link_contention;
    study_series(c->out, "cg", "", c->cg, n);
    study_series(c->out, "measured_s", "s", c->measured, n);
    study_series(c->out, "accel_s", "s", c->accel, n);
    study_series(c->out, "cpu_s", "s", c->cpu, n);
    study_series(c->out, "predicted_s", "s", c->predicted, n);
    study_series(c->out, "predicted_no_contention_s", "s", c->plain, n);
    return OK;
}

static void sliced_layer_close(struct sliced_layer *c)
{
    for (int i = 0; i < COPIES; i++)
        mem_unmap(MEM_WEIGHTS, c->weights[i], c->bytes);
    mem_free(c->x);
    mem_free(c->y);
    study_threads_close(&c->threads);
}

static int sliced_layer_run(struct sliced_layer *c)
{
    const struct opts *o = c->o;
    struct study_profile_key key = {.n_threads = (int)o->n_threads,
                                    .max_tok = 64,
                                    .link_gbps = o->link_gbps,
                                    .min_s = 1e-3 * o->min_ms,
                                    .accel = true};
    const struct hetero_profile *p;
    double p95;

    FRAME_CLOSE(c->f, sliced_layer_close, c);
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
    return sliced_layer_report(c);
}

STUDY(sliced_layer,
      "a layer in slices on this CPU and a paced accelerator, and its model",
      .kept_bytes = sizeof(struct study_profiles), .close = study_profiles_close);
