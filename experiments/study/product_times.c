/* How long this host's products take by tokens, and how well ScheInfer's line and a model of two
 * regimes say so. Paper: ScheInfer IV-A1, V-B, Table I. */
#include <math.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/profile.h"
#include "experiments/study/support/options.h"

#define OPTIONS(X)                                                                       \
    X(STR, type, "bf16", "Type of the weights.")                                         \
    X(INT, n_threads, "1", "Threads.", .min = 1, .max = 1024)                            \
    X(INT, max_tok, "1024", "Tokens of the largest product; a power of two.", .min = 1,  \
      .max = 1024)                                                                       \
    X(F64, min_ms, "10", "Each point is timed for at least so long.", .unit = "ms",      \
      .min = 0, .max = 1e4)

#define RESULTS(X)                                                                       \
    X(line_start_us, "us", 0, "alpha of one line through all points")                    \
    X(line_ns_per_kmac, "ns", 0, "beta, of 1000 weights times tokens")                   \
    X(line_r2, "", 0, "r2 of the line")                                                  \
    X(line_one_tok_error_frac, "", LOWER,                                                \
      "median |predicted / measured - 1| of products of one token, by the line")         \
    X(line_error_frac, "", LOWER,                                                        \
      "the same of a fifth of all points, by a line fitted on the others")               \
    X(regimes_start_us, "us", 0, "start of the model of two regimes")                    \
    X(regimes_gbps, "GB/s", 0, "its bandwidth")                                          \
    X(regimes_gflops, "GFLOP/s", 0, "its rate of computing")                             \
    X(regimes_one_tok_error_frac, "", LOWER,                                             \
      "median error of products of one token, by two regimes")                           \
    X(regimes_error_frac, "", LOWER,                                                     \
      "the same of a fifth of all points, by two regimes fitted on the others")          \
    X(one_tok_ms, "ms", LOWER | SOME, "a product of one token with 4096 x 4096 weights") \
    X(many_tok_ms, "ms", LOWER | SOME, "the same of the most tokens")                    \
    X(n_points, "", 0, "points")

FRAME_TYPES;

struct product_times {
    FRAME_CELL;
    struct study_profiles profiles;
};

static void report_points(struct product_times *c, const struct hetero_profile_cpu *p)
{
    size_t n = (size_t)p->fit.n_points;
    double *weights = mem_new(MEM_OTHER, 5 * n, sizeof(double)), *tok = weights + n;
    double *s = tok + n, *line = s + n, *regimes = line + n;

    for (size_t i = 0; i < n; i++) {
        weights[i] = p->points[i].weights;
        tok[i] = p->points[i].n_tok;
        s[i] = p->points[i].seconds;
        line[i] = hetero_line_s(&p->fit.line, &p->points[i]);
        regimes[i] = hetero_regimes_s(&p->fit.regimes, &p->points[i]);
        if (weights[i] == 4096.0 * 4096 && tok[i] == 1)
            c->r->one_tok_ms = 1e3 * s[i];
        else if (weights[i] == 4096.0 * 4096 && (int64_t)tok[i] == c->o->max_tok)
            c->r->many_tok_ms = 1e3 * s[i];
    }
    study_series(c->out, "weights", "", weights, n);
    study_series(c->out, "n_tok", "tok", tok, n);
    study_series(c->out, "seconds", "s", s, n);
    study_series(c->out, "line_s", "s", line, n);
    study_series(c->out, "regimes_s", "s", regimes, n);
    mem_free(weights);
}

static int product_times_run(struct product_times *c)
{
    struct study_profile_key key = {.n_threads = (int)c->o->n_threads,
                                    .max_tok = c->o->max_tok,
                                    .min_s = 1e-3 * c->o->min_ms};
    const struct hetero_profile *p;
    const struct hetero_fit *f;
    struct study_threads threads;

    FRAME_CLOSE(c->f, study_profiles_close, &c->profiles);
    if (c->o->max_tok & (c->o->max_tok - 1))
        return err_set(ERR_ARG, "study.max_tok: expected a power of two, found %lld",
                       (long long)c->o->max_tok);
    TRY(kern_type_parse(c->o->type, &key.type));
    TRY(study_profile_get(&c->profiles, &key, &p));
    f = &p->cpu[0].fit;
    c->r->line_start_us = 1e6 * f->line.start_s;
    c->r->line_ns_per_kmac = 1e12 * f->line.s_per_unit;
    c->r->line_r2 = f->line.r2;
    c->r->line_one_tok_error_frac = f->line_one_tok;
    c->r->line_error_frac = f->line_errors.median;
    c->r->regimes_start_us = 1e6 * f->regimes.start_s;
    c->r->regimes_gbps =
        isfinite(f->regimes.bytes_per_s) ? 1e-9 * f->regimes.bytes_per_s : NAN;
    c->r->regimes_gflops =
        isfinite(f->regimes.macs_per_s) ? 2e-9 * f->regimes.macs_per_s : NAN;
    c->r->regimes_one_tok_error_frac = f->regimes_one_tok;
    c->r->regimes_error_frac = f->regimes_errors.median;
    c->r->n_points = f->n_points;
    frame_why(c->f, NULL, "no point is in that regime");
    report_points(c, &p->cpu[0]);
    TRY(study_threads_open(&threads, c->o->n_threads, 0));
    study_note_machine(c->out, &threads);
    study_threads_close(&threads);
    return OK;
}

STUDY(product_times, "products by tokens, and two models of how long they take");
