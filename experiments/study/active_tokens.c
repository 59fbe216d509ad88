/* How many tokens are active while a machine computes: mixed continuous batching on one machine
 * under a load of two requests per second, simulated for a DGX-H100, and by this engine in real
 * time with shorter requests. Time without a step does not count.
 * Paper: Splitwise III-B, Fig. 4. */
#include <math.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/cluster.h"
#include "experiments/study/support/served_load.h"

#define N_REQUESTS 4096

enum { BLOOM, LLAMA, ENGINE };
static const char *const models[] = {[BLOOM] = "bloom-176b", [LLAMA] = "llama2-70b"};
#define OPTIONS(X)                                                                       \
    OPTIONS_CLUSTER(X)                                                                   \
    X(ENUM, source, "bloom-176b",                                                        \
      "The model that the simulated machine serves, in place of `model`; or this "       \
      "engine.",                                                                         \
      .values = "bloom-176b|llama2-70b|engine")                                          \
    X(STR, engine_model, NULL, "engine: model file.", .unit = "FILE")                    \
    X(F64, rate, "2", "Requests per second.", .min = 1e-3, .max = 1e6)                   \
    X(F64, shorter, "1",                                                                 \
      "engine: prompts and outputs are divided by it, so that a small machine meets "    \
      "the rate.",                                                                       \
      .min = 1, .max = 1e4)                                                              \
    X(F64, engine_s, "40", "engine: time in which requests arrive.", .unit = "s",        \
      .min = 0.1, .max = 1e6)                                                            \
    X(INT, max_seqs, "64", "engine: sequences that are computed together, at most.",     \
      .min = 1, .max = 4096)

#define RESULTS(X)                                                                       \
    X(tok_20_frac, "", 0, "busy time with at most 20 active tokens / busy time")         \
    X(tok_1_frac, "", 0, "busy time with a single active token / busy time")             \
    X(tok_100_frac, "", 0, "busy time with at most 100 active tokens / busy time")       \
    X(mean_tok, "tok", 0, "active tokens, mean over busy time")                          \
    X(busy_frac, "", 0, "busy time / time")                                              \
    X(prompt_frac, "", 0, "busy time with more than 100 active tokens / busy time")      \
    X(n_requests, "", 0, "requests")

FRAME_TYPES;

struct active_tokens {
    FRAME_CELL;
    struct study_cluster_opts opts;
    struct study_cluster cluster;
    struct study_cluster_result result;
    struct served_load served;
};

static void active_tokens_report(struct active_tokens *c, const double *by_tok_s,
                                 double all_s, double n_requests)
{
    static const double at[] = {1,   2,   3,   4,    5,    7,    10,   15,
                                20,  30,  40,  50,   70,   100,  150,  200,
                                300, 500, 700, 1000, 1500, 2048, 4096, 8192};
    enum { N_AT = sizeof(at) / sizeof(at[0]) };
    double busy = study_cluster_up_to(STUDY_CLUSTER_TOK_MAX, by_tok_s);
    struct results *r = c->r;

    r->tok_20_frac = study_cluster_up_to(20, by_tok_s) / busy;
    r->tok_1_frac = study_cluster_up_to(1, by_tok_s) / busy;
    r->tok_100_frac = study_cluster_up_to(100, by_tok_s) / busy;
    r->prompt_frac = 1 - r->tok_100_frac;
    r->mean_tok = study_cluster_mean_tok(by_tok_s);
    r->busy_frac = busy / all_s;
    r->n_requests = n_requests;
    frame_why(c->f, NULL, "no step was computed");
    study_series(c->out, "active_tok", "tok", at, N_AT);
    study_cluster_up_to_each(c->out, "time_frac", at, N_AT, by_tok_s, busy);
}

static int run_simulated(struct active_tokens *c)
{
    struct study_cluster_load load = {.rate = c->o->rate};

    c->opts = STUDY_CLUSTER_OPTS;
    c->opts.model = (char *)models[c->o->source];
    TRY(study_cluster_open(&c->cluster, &c->opts));
    TRY(study_cluster_machines(&c->cluster, &load.n_prompt, &load.n_token));
    TRY(study_cluster_run(&c->result, &c->cluster, &load));
    active_tokens_report(c, c->result.by_tok_s[0], c->result.machine_s[0],
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
static int run_engine(struct active_tokens *c)
{
    const struct opts *o = c->o;
    const struct dataset *d;
    int64_t *prompt, *output;
    struct served_load_opts s = {.model = o->engine_model,
                                 .policy = "mixed",
                                 .max_seqs = o->max_seqs,
                                 .max_step_tok = SERVED_LOAD_TOK_MAX,
                                 .rate = o->rate,
                                 .duration_s = o->engine_s,
                                 .warmup_s = o->engine_s / 5,
                                 .seed = (uint64_t)o->seed};

    c->opts = STUDY_CLUSTER_OPTS;
    TRY(study_cluster_open(&c->cluster, &c->opts));
    d = c->cluster.trace;
    s.n = d->n_items < N_REQUESTS ? d->n_items : N_REQUESTS;
    prompt = frame_new(c->f, (size_t)s.n, sizeof(*prompt));
    output = frame_new(c->f, (size_t)s.n, sizeof(*output));
    for (int64_t i = 0; i < s.n; i++) {
        prompt[i] = shortened(d->items[i].n_prompt, o->shorter);
        output[i] = shortened(d->items[i].n_output, o->shorter);
    }
    s.prompt_tok = prompt;
    s.output_tok = output;
    TRY(study_served_load(&c->served, &s, c->out));
    active_tokens_report(c, c->served.by_tok_s, c->served.all_s,
                         (double)c->served.n_submitted);
    return OK;
}

static int active_tokens_run(struct active_tokens *c)
{
    FRAME_CLOSE(c->f, study_cluster_close, &c->cluster);
    return c->o->source == ENGINE ? run_engine(c) : run_simulated(c);
}

STUDY(active_tokens, "how many tokens are active while a machine computes");
