/* Memory by the tokens of a batch: keys and values by their formula, and what this process takes
 * while the engine computes prompts; for the paper's models the formula alone, and how many
 * sequences fit into its machine.
 * Paper: Splitwise III-E, Fig. 7, Table III. */
#include <math.h>

#include "base/mem.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/serving.h"

#define POINTS_MAX 64

struct opts {
    char *model;
    int what, kv_type;
    int64_t n_seqs, n_points, prompt_tok, ctx_tok;
    double machine_gb;
};

enum { ENGINE, LLAMA2_70B, LLAMA2_70B_MHA, BLOOM_176B };
static const struct opt_row table[] = {
    OPT_ROW(
        ENUM, what, "engine",
        "engine: this engine, measured. The paper's models by their formula: "
        "llama2-70b-mha has keys and values of all 64 heads, as splitwise-sim counts.",
        .values = "engine|llama2-70b|llama2-70b-mha|bloom-176b"),
    ROW_MODEL,
    ROW_KV_TYPE("f32"),
    OPT_ROW(INT, n_seqs, "32", "engine: the largest batch, in sequences.", .min = 2,
            .max = 4096),
    OPT_ROW(
        INT, n_points, "8",
        "engine: batches up to that, evenly. For each the engine is opened again, with "
        "memory for this batch, and computes its prompts.",
        .min = 2, .max = POINTS_MAX),
    OPT_ROW(INT, prompt_tok, "256", "Prompt of each.", .unit = "tok", .min = 1,
            .max = 65536),
    OPT_ROW(INT, ctx_tok, "1149",
            "Context of the sequences that are to fit: prompt and output of a median "
            "conversation.",
            .unit = "tok", .min = 1, .max = 1 << 20),
    OPT_ROW(F64, machine_gb, "640", "Memory of the paper's machine.", .unit = "GB",
            .min = 1, .max = 1e6),
    {0},
};

static const struct study_metric metrics[] = {
    {"kv_bytes_per_tok", "B", "", "keys and values of a token, by the formula"},
    {"rss_bytes_per_tok", "B", "",
     "growth of the resident memory with the tokens, by least squares"},
    {"rss_over_formula", "", "", "rss_bytes_per_tok / kv_bytes_per_tok"},
    {"rss_linear_r2", "", "higher",
     "share of the variance of the resident memory that is linear in the tokens"},
    {"used_over_formula", "", "",
     "bytes that the engine counts as used / the formula's, all sequences"},
    {"weights_gb", "GB", "", "weights"},
    {"tokens_as_weights", "tok", "", "tokens whose keys and values are as large as them"},
    {"batch_that_fits", "", "",
     "sequences of ctx_tok that fit into machine_gb with the weights"},
    {0},
};

/* Table III; heads of keys and values, which it does not have, by the models' own files. */
static const struct {
    double layers, kv_dim, parameters;
} models[] = {[LLAMA2_70B] = {80, 8 * 128, 69e9},
              [LLAMA2_70B_MHA] = {80, 8192, 69e9},
              [BLOOM_176B] = {70, 14336, 176e9}};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_serving engine;
    double tok[POINTS_MAX], rss[POINTS_MAX], formula[POINTS_MAX];
};

static int run_formula(struct cell *c)
{
    int m = c->o->what;
    double kv = 2 * models[m].layers * models[m].kv_dim * 2,
           weights = 2 * models[m].parameters,
           fits = (c->o->machine_gb * 1e9 - weights) / kv / (double)c->o->ctx_tok;
    const struct study_number v[] = {
        {"kv_bytes_per_tok", kv},
        {"weights_gb", weights * 1e-9},
        {"tokens_as_weights", weights / kv},
        {"batch_that_fits", floor(fmax(fits, 0))},
    };
    const struct study_number not_here[] = {{"rss_bytes_per_tok", NAN},
                                            {"rss_over_formula", NAN},
                                            {"rss_linear_r2", NAN},
                                            {"used_over_formula", NAN}};

    STUDY_VALUES(c->out, v, "arithmetic");
    STUDY_VALUES(c->out, not_here, "such a model does not run here");
    for (int i = 0; i < POINTS_MAX; i++) {
        c->tok[i] = (double)(i + 1) * (double)c->o->ctx_tok;
        c->formula[i] = weights + kv * c->tok[i];
    }
    study_series(c->out, "batch_tok", "tok", c->tok, POINTS_MAX);
    study_series(c->out, "formula_bytes", "B", c->formula, POINTS_MAX);
    study_evidence(c->out, "model", NULL);
    return OK;
}

/* --- the engine */

static int open_engine(struct cell *c, int64_t n_seqs)
{
    const struct opts *o = c->o;
    struct serve_opts so;

    TRY(study_serving_opts(&so, o->model, "continuous"));
    so.kv_type = o->kv_type;
    so.max_seqs = n_seqs;
    so.max_tok = o->prompt_tok + 16;
    so.max_step_tok = o->prompt_tok;
    return study_serving_open(&c->engine, &so);
}

/* One more sequence with its prompt computed. */
static int add_sequence(struct cell *c, int64_t number)
{
    TRY(study_serving_submit(&c->engine, (uint64_t)number + 1, c->o->prompt_tok, 16,
                             NULL));
    return study_serving_prefill(&c->engine, c->o->prompt_tok);
}

/* Slope and R2 of y over x. */
static double line(const double *x, const double *y, int n, double *r2)
{
    double mx = 0, my = 0, xx = 0, xy = 0, yy = 0;

    for (int i = 0; i < n; i++)
        mx += x[i] / n, my += y[i] / n;
    for (int i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        yy += (y[i] - my) * (y[i] - my);
        xy += (x[i] - mx) * (y[i] - my);
    }
    *r2 = xy * xy / (xx * yy);
    return xy / xx;
}

/* A batch: what it adds to the resident memory, with weights and all. */
static int measure_batch(struct cell *c, int i, int64_t n_seqs,
                         struct serve_kv_stat *stat)
{
    double before = (double)mem_rss_bytes();

    TRY(open_engine(c, n_seqs));
    for (int64_t k = 0; k < n_seqs; k++)
        TRY(add_sequence(c, k));
    c->tok[i] = (double)(n_seqs * c->o->prompt_tok);
    c->rss[i] = (double)mem_rss_bytes() - before;
    serve_kv_stat(c->engine.serve, stat);
    return OK;
}

static void report_engine(struct cell *c, int n, double kv, double weights,
                          const struct serve_kv_stat *stat)
{
    double r2, slope = line(c->tok, c->rss, n, &r2), first = c->rss[0] - kv * c->tok[0];
    const struct study_number v[] = {
        {"kv_bytes_per_tok", kv},
        {"rss_bytes_per_tok", slope},
        {"rss_over_formula", slope / kv},
        {"rss_linear_r2", r2},
        {"used_over_formula", (double)stat->used_bytes / (kv * c->tok[n - 1])},
        {"weights_gb", weights * 1e-9},
        {"tokens_as_weights", weights / kv},
        {"batch_that_fits", NAN},
    };

    for (int i = 0; i < n; i++)
        c->formula[i] = first + kv * c->tok[i];
    STUDY_VALUES(c->out, v, "of the paper's machine");
    study_series(c->out, "batch_tok", "tok", c->tok, (size_t)n);
    study_series(c->out, "rss_bytes", "B", c->rss, (size_t)n);
    study_series(c->out, "formula_bytes", "B", c->formula, (size_t)n);
    study_evidence(c->out, "model", "kv_bytes_per_tok tokens_as_weights formula_bytes");
}

static int run_engine(struct cell *c)
{
    const struct opts *o = c->o;
    double kv = 0, weights = 0;
    struct serve_kv_stat stat;
    int n = 0;

    for (int64_t i = 1, last = 0; i <= o->n_points; i++) {
        int64_t n_seqs = o->n_seqs * i / o->n_points;

        if (n_seqs == last || n_seqs == 0)
            continue;
        last = n_seqs;
        study_progress(c->out, (double)i / (double)o->n_points, "batches");
        TRY(measure_batch(c, n++, n_seqs, &stat));
        kv = (double)(serve_token_bytes(c->engine.serve, 2) -
                      serve_token_bytes(c->engine.serve, 1));
        weights = (double)mem_used_bytes(MEM_WEIGHTS);
        study_serving_close(&c->engine);
    }
    report_engine(c, n, kv, weights, &stat);
    return OK;
}

static int run(struct cell *c)
{
    return c->o->what == ENGINE ? run_engine(c) : run_formula(c);
}

static void end(struct cell *c)
{
    study_serving_close(&c->engine);
}

STUDY(kv_memory,
      "memory by the tokens of a batch, by formula and as this process takes it");
