/* Memory by the tokens of a batch: keys and values by their formula, and what this process takes
 * while the engine computes prompts; for the paper's models the formula alone, and how many
 * sequences fit into its machine.
 * Paper: Splitwise III-E, Fig. 7, Table III. */
#include <math.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/serving.h"

#define POINTS_MAX 64

enum { ENGINE, LLAMA2_70B, LLAMA2_70B_MHA, BLOOM_176B };
#define OPTIONS(X)                                                                       \
    X(ENUM, what, "engine",                                                              \
      "engine: this engine, measured. The paper's models by their formula: "             \
      "llama2-70b-mha has keys and values of all 64 heads, as splitwise-sim counts.",    \
      .values = "engine|llama2-70b|llama2-70b-mha|bloom-176b")                           \
    OPTION_MODEL(X)                                                                      \
    OPTION_KV_TYPE(X, "f32")                                                             \
    X(INT, n_seqs, "32", "engine: the largest batch, in sequences.", .min = 2,           \
      .max = 4096)                                                                       \
    X(INT, n_points, "8",                                                                \
      "engine: batches up to that, evenly. For each the engine is opened again, with "   \
      "memory for this batch, and computes its prompts.",                                \
      .min = 2, .max = POINTS_MAX)                                                       \
    X(INT, prompt_tok, "256", "Prompt of each.", .unit = "tok", .min = 1, .max = 65536)  \
    X(INT, ctx_tok, "1149",                                                              \
      "Context of the sequences that are to fit: prompt and output of a median "         \
      "conversation.",                                                                   \
      .unit = "tok", .min = 1, .max = 1 << 20)                                           \
    X(F64, machine_gb, "640", "Memory of the paper's machine.", .unit = "GB", .min = 1,  \
      .max = 1e6)

#define RESULTS(X)                                                                       \
    X(kv_bytes_per_tok, "B", 0, "keys and values of a token, by the formula")            \
    X(rss_bytes_per_tok, "B", 0,                                                         \
      "growth of the resident memory with the tokens, by least squares")                 \
    X(rss_over_formula, "", 0, "rss_bytes_per_tok / kv_bytes_per_tok")                   \
    X(rss_linear_r2, "", HIGHER,                                                         \
      "share of the variance of the resident memory that is linear in the tokens")       \
    X(used_over_formula, "", 0,                                                          \
      "bytes that the engine counts as used / the formula's, all sequences")             \
    X(weights_gb, "GB", 0, "weights")                                                    \
    X(tokens_as_weights, "tok", 0, "tokens whose keys and values are as large as them")  \
    X(batch_that_fits, "", 0,                                                            \
      "sequences of ctx_tok that fit into machine_gb with the weights")

FRAME_TYPES;

/* Table III; heads of keys and values, which it does not have, by the models' own files. */
static const struct {
    double layers, kv_dim, parameters;
} models[] = {[LLAMA2_70B] = {80, 8 * 128, 69e9},
              [LLAMA2_70B_MHA] = {80, 8192, 69e9},
              [BLOOM_176B] = {70, 14336, 176e9}};

struct kv_memory {
    FRAME_CELL;
    struct study_serving engine;
    double tok[POINTS_MAX], rss[POINTS_MAX], formula[POINTS_MAX];
};

static int run_formula(struct kv_memory *c)
{
    int m = c->o->what;
    double kv = 2 * models[m].layers * models[m].kv_dim * 2,
           weights = 2 * models[m].parameters,
           fits = (c->o->machine_gb * 1e9 - weights) / kv / (double)c->o->ctx_tok;

    c->r->kv_bytes_per_tok = kv;
    c->r->weights_gb = weights * 1e-9;
    c->r->tokens_as_weights = weights / kv;
    c->r->batch_that_fits = floor(fmax(fits, 0));
    c->r->rss_bytes_per_tok = NAN;
    c->r->rss_over_formula = NAN;
    c->r->rss_linear_r2 = NAN;
    c->r->used_over_formula = NAN;
    frame_why(c->f, NULL, "such a model does not run here");
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

static int kv_memory_open_engine(struct kv_memory *c, int64_t n_seqs)
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
static int add_sequence(struct kv_memory *c, int64_t number)
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
static int measure_batch(struct kv_memory *c, int i, int64_t n_seqs,
                         struct serve_kv_stat *stat)
{
    double before = (double)mem_rss_bytes();

    TRY(kv_memory_open_engine(c, n_seqs));
    for (int64_t k = 0; k < n_seqs; k++)
        TRY(add_sequence(c, k));
    c->tok[i] = (double)(n_seqs * c->o->prompt_tok);
    c->rss[i] = (double)mem_rss_bytes() - before;
    serve_kv_stat(c->engine.serve, stat);
    return OK;
}

static void report_engine(struct kv_memory *c, int n, double kv, double weights,
                          const struct serve_kv_stat *stat)
{
    double r2, slope = line(c->tok, c->rss, n, &r2), first = c->rss[0] - kv * c->tok[0];

    c->r->kv_bytes_per_tok = kv;
    c->r->rss_bytes_per_tok = slope;
    c->r->rss_over_formula = slope / kv;
    c->r->rss_linear_r2 = r2;
    c->r->used_over_formula = (double)stat->used_bytes / (kv * c->tok[n - 1]);
    c->r->weights_gb = weights * 1e-9;
    c->r->tokens_as_weights = weights / kv;
    c->r->batch_that_fits = NAN;
    frame_why(c->f, NULL, "of the paper's machine");
    for (int i = 0; i < n; i++)
        c->formula[i] = first + kv * c->tok[i];
    study_series(c->out, "batch_tok", "tok", c->tok, (size_t)n);
    study_series(c->out, "rss_bytes", "B", c->rss, (size_t)n);
    study_series(c->out, "formula_bytes", "B", c->formula, (size_t)n);
    study_evidence(c->out, "model", "kv_bytes_per_tok tokens_as_weights formula_bytes");
}

static int run_engine(struct kv_memory *c)
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

static int kv_memory_run(struct kv_memory *c)
{
    FRAME_CLOSE(c->f, study_serving_close, &c->engine);
    return c->o->what == ENGINE ? run_engine(c) : run_formula(c);
}

STUDY(kv_memory,
      "memory by the tokens of a batch, by formula and as this process takes it");
