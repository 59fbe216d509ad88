/* How many tokens are active while a machine computes: mixed continuous batching on one machine
 * under a load of two requests per second, simulated for a DGX-H100, and by this engine in real
 * time with shorter requests. Time without a step does not count.
 * Paper: Splitwise III-B, Fig. 4. */
#include <math.h>

#include "base/mem.h"
#include "experiments/study/support/cluster.h"
#include "experiments/study/support/served_load.h"

#define N_REQUESTS 4096

enum { BLOOM, LLAMA, ENGINE };
static const char *const models[] = {[BLOOM] = "bloom-176b", [LLAMA] = "llama2-70b"};
struct opts {
    STUDY_CLUSTER_OPTS
    char *engine_model;
    int source;
    double rate, shorter, engine_s;
    int64_t max_seqs;
};

static const struct opt_row table[] = {
    ROWS_CLUSTER,
    OPT_ROW(ENUM, source, "bloom-176b",
            "The model that the simulated machine serves, in place of `model`; or this "
            "engine.",
            .values = "bloom-176b|llama2-70b|engine"),
    OPT_ROW(STR, engine_model, NULL, "engine: model file.", .unit = "FILE"),
    OPT_ROW(F64, rate, "2", "Requests per second.", .min = 1e-3, .max = 1e6),
    OPT_ROW(F64, shorter, "1",
            "engine: prompts and outputs are divided by it, so that a small machine "
            "meets the "
            "rate.",
            .min = 1, .max = 1e4),
    OPT_ROW(F64, engine_s, "40", "engine: time in which requests arrive.", .unit = "s",
            .min = 0.1, .max = 1e6),
    OPT_ROW(INT, max_seqs, "64", "engine: sequences that are computed together, at most.",
            .min = 1, .max = 4096),
    {0},
};

static const struct study_metric metrics[] = {
    {"tok_20_frac", "", "", "busy time with at most 20 active tokens / busy time"},
    {"tok_1_frac", "", "", "busy time with a single active token / busy time"},
    {"tok_100_frac", "", "", "busy time with at most 100 active tokens / busy time"},
    {"mean_tok", "tok", "", "active tokens, mean over busy time"},
    {"busy_frac", "", "", "busy time / time"},
    {"prompt_frac", "", "", "busy time with more than 100 active tokens / busy time"},
    {"n_requests", "", "", "requests"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_cluster_opts opts;
    struct study_cluster cluster;
    struct study_cluster_result result;
    struct served_load served;
    int64_t *prompt, *output; /* [N_REQUESTS] */
};

static double up_to(int n_tok, const double *by_tok_s)
{
    double sum = 0;

    for (int i = 0; i <= n_tok; i++)
        sum += by_tok_s[i];
    return sum;
}

/* by_tok_s [8193]: seconds in steps of i tokens. */
static void report(struct cell *c, const double *by_tok_s, double all_s,
                   double n_requests)
{
    static const double at[] = {1,   2,   3,   4,    5,    7,    10,   15,
                                20,  30,  40,  50,   70,   100,  150,  200,
                                300, 500, 700, 1000, 1500, 2048, 4096, 8192};
    enum { N_AT = sizeof(at) / sizeof(at[0]) };
    double frac[N_AT], busy = up_to(8192, by_tok_s), sum = 0;

    for (int i = 0; i <= 8192; i++)
        sum += i * by_tok_s[i];
    for (int i = 0; i < N_AT; i++)
        frac[i] = up_to((int)at[i], by_tok_s) / busy;
    const struct study_number v[] = {
        {"tok_20_frac", up_to(20, by_tok_s) / busy},
        {"tok_1_frac", up_to(1, by_tok_s) / busy},
        {"tok_100_frac", up_to(100, by_tok_s) / busy},
        {"prompt_frac", 1 - up_to(100, by_tok_s) / busy},
        {"mean_tok", sum / busy},
        {"busy_frac", busy / all_s},
        {"n_requests", n_requests},
    };

    STUDY_VALUES(c->out, v, "no step was computed");
    study_series(c->out, "active_tok", "tok", at, N_AT);
    study_series(c->out, "time_frac", "", frac, N_AT);
}

static int run_simulated(struct cell *c)
{
    struct study_cluster_load load = {.rate = c->o->rate};

    c->opts = c->o->cluster;
    c->opts.model = (char *)models[c->o->source];
    TRY(study_cluster_open(&c->cluster, &c->opts));
    TRY(study_cluster_machines(&c->cluster, &load.n_prompt, &load.n_token));
    TRY(study_cluster_run(&c->result, &c->cluster, &load));
    report(c, c->result.by_tok_s[0], c->result.machine_s[0],
           (double)c->result.n_measured);
    study_cluster_notes(&c->cluster, c->out);
    study_evidence(c->out, "simulated", NULL);
    return OK;
}

static int64_t shortened(int64_t n, double by)
{
    return n / by < 1 ? 1 : llround((double)n / by);
}

/* The trace's lengths, as they come. */
static int run_engine(struct cell *c)
{
    const struct opts *o = c->o;
    const struct dataset *d;
    struct served_load_opts s = {.model = o->engine_model,
                                 .policy = "mixed",
                                 .max_seqs = o->max_seqs,
                                 .max_step_tok = SERVED_LOAD_TOK_MAX,
                                 .rate = o->rate,
                                 .duration_s = o->engine_s,
                                 .warmup_s = o->engine_s / 5,
                                 .seed = (uint64_t)o->seed};

    TRY(study_cluster_open(&c->cluster, &o->cluster));
    d = c->cluster.trace;
    s.n = d->n_items < N_REQUESTS ? d->n_items : N_REQUESTS;
    c->prompt = mem_new(MEM_OTHER, (size_t)s.n, sizeof(*c->prompt));
    c->output = mem_new(MEM_OTHER, (size_t)s.n, sizeof(*c->output));
    for (int64_t i = 0; i < s.n; i++) {
        c->prompt[i] = shortened(d->items[i].n_prompt, o->shorter);
        c->output[i] = shortened(d->items[i].n_output, o->shorter);
    }
    s.prompt_tok = c->prompt;
    s.output_tok = c->output;
    TRY(study_served_load(&c->served, &s, c->out));
    report(c, c->served.by_tok_s, c->served.all_s, (double)c->served.n_submitted);
    return OK;
}

static int run(struct cell *c)
{
    return c->o->source == ENGINE ? run_engine(c) : run_simulated(c);
}

static void end(struct cell *c)
{
    study_cluster_close(&c->cluster);
    mem_free(c->prompt);
    mem_free(c->output);
}

STUDY(active_tokens, "how many tokens are active while a machine computes");
