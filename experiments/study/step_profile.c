/* How long steps take by prompts, batch and context: of this engine, measured, and of machines
 * whose times were published. What the curves say (Splitwise Fig. 5, 6, 8), what requests of traces
 * take (Fig. 5c, Table IV), and how well the performance model `host`, fitted on some points,
 * predicts others. `testbed export --format csv-series` makes a file of the points for performance
 * models.
 * Paper: Splitwise III, V-B. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/points.h"
#include "experiments/study/support/step_curves.h"
#include "experiments/study/support/step_times.h"
#include "experiments/study/support/trace_latency.h"

#define POINTS_MAX 128

static const char *perf_name(int i)
{
    return cluster_perfs[i] ? cluster_perfs[i]->name : NULL;
}

#define OPTIONS(X)                                                                       \
    X(STR, source, "engine",                                                             \
      "engine: this host, measured; or published points: MODEL:HARDWARE:TP of the "      \
      "file, printed:a100, printed:h100, form, or a FILE.csv.")                          \
    OPTION_POINTS_FILE(X)                                                                \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    OPTION_KV_TYPE(X, "f32")                                                             \
    X(STR, batches, "1 2 4 8", "engine: batches, each with every context.")              \
    X(STR, contexts, "32 256", "engine: contexts, and the prompts before them.",         \
      .unit = "tok")                                                                     \
    X(STR, prompts, "512 1024", "engine: lengths of further prompts, one at a time.",    \
      .unit = "tok")                                                                     \
    X(STR, test_batches, "3 6",                                                          \
      "engine: batches, each with every one of test_contexts, that are measured in "     \
      "the same rounds, but not fitted.")                                                \
    X(STR, test_contexts, "128", "engine: their contexts.", .unit = "tok")               \
    X(INT, n_steps, "8", "engine: token steps that are timed after a prompt.", .min = 1, \
      .max = 4096)                                                                       \
    X(INT, rounds, "3", "engine: rounds, each of all points.", .min = 1, .max = 99)      \
    X(BOOL, traces, "false",                                                             \
      "Also compute what requests of two traces take, one at a time.")                   \
    X(STR, conversation, "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",               \
      "Trace of conversations. A fit of it stands in where it is absent.",               \
      .unit = "FILE")                                                                    \
    X(STR, coding, "azure_llm_2023/AzureLLMInferenceTrace_code.csv",                     \
      "Trace of coding. A fit of it stands in where it is absent.", .unit = "FILE")      \
    X(STR, perf, "table", "Performance model that is fitted for that.",                  \
      .names = perf_name)                                                                \
    X(INT, prompt_tok, "1500", "Prompt that is compared with tokens.", .unit = "tok",    \
      .min = 1, .max = 1 << 20)

#define RESULTS(X)                                                                       \
    STUDY_CURVE_RESULTS(X)                                                               \
    X(prompt_ratio, "", 0, "prompts not fitted: predicted / measured, median")           \
    X(prompt_ratio_min, "", 0, "the least")                                              \
    X(prompt_ratio_max, "", 0, "the most")                                               \
    X(token_ratio, "", 0, "token steps not fitted: predicted / measured, median")        \
    X(token_ratio_min, "", 0, "the least")                                               \
    X(token_ratio_max, "", 0, "the most")                                                \
    X(host_error, "%", LOWER, "the larger of |prompt_ratio - 1| and |token_ratio - 1|")  \
    X(host_mape, "%", LOWER, "mean absolute error of all that is not fitted")            \
    STUDY_TRACE_RESULTS(X, conversation)                                                 \
    STUDY_TRACE_RESULTS(X, coding)                                                       \
    X(round_spread, "%", LOWER,                                                          \
      "median over the points of the rounds' median / their lowest decile - 1")          \
    X(n_points, "", 0, "points")

FRAME_TYPES;

struct step_profile {
    FRAME_CELL;
    struct cluster_point points[POINTS_MAX];
    int n, n_fitted; /* those to test come last */
    double spread[2 * POINTS_MAX];
};

/* --- points */

static int add(struct step_profile *c, int64_t batch, int64_t prompt)
{
    for (int i = 0; i < c->n; i++)
        if (c->points[i].batch == batch && c->points[i].prompt_tok == prompt)
            return OK;
    if (c->n == POINTS_MAX)
        return err_set(ERR_LIMIT, "more than %d points", POINTS_MAX);
    c->points[c->n++] = (struct cluster_point){.batch = batch,
                                               .prompt_tok = prompt,
                                               .prompt_ms = NAN,
                                               .token_ms = NAN,
                                               .power = NAN,
                                               .power_most = NAN,
                                               .e2e_ms = NAN};
    return OK;
}

/* "1 2 4": the i-th number; 0: there are fewer. */
static int number(int64_t *out, const char *list, int i, const char *option)
{
    const char *at = list ? list : "";

    *out = 0;
    for (int k = 0; *(at += strspn(at, " ")); k++) {
        char *end;
        long long v = strtoll(at, &end, 10);

        if (end == at || v < 1 || v > 1 << 20 || (*end && *end != ' '))
            return err_set(ERR_ARG, "study.%s: \"%s\": expected numbers of at least 1",
                           option, list);
        at = end;
        if (k == i)
            *out = v;
    }
    return OK;
}

static int add_grid(struct step_profile *c, const char *batches, const char *contexts,
                    const char *option)
{
    int64_t batch, context;

    for (int i = 0;; i++) {
        TRY(number(&batch, batches, i, option));
        if (!batch)
            return OK;
        for (int k = 0;; k++) {
            TRY(number(&context, contexts, k, option));
            if (!context)
                break;
            TRY(add(c, batch, context));
        }
    }
}

static int measure_engine(struct step_profile *c)
{
    const struct opts *o = c->o;
    const struct step_times_opts how = {.model = o->model,
                                        .precision = o->precision,
                                        .kv_type = o->kv_type,
                                        .n_steps = o->n_steps,
                                        .rounds = o->rounds};

    TRY(add_grid(c, o->batches, o->contexts, "batches or contexts"));
    TRY(add_grid(c, "1", o->prompts, "prompts"));
    c->n_fitted = c->n;
    TRY(add_grid(c, o->test_batches, o->test_contexts, "test_batches or test_contexts"));
    if (c->n == 0)
        return err_set(ERR_ARG, "study.batches: expected at least one point");
    return study_step_times(c->points, c->n, c->spread, &how, c->out);
}

static int read_points(struct step_profile *c)
{
    struct cluster_point *rows;
    int n, rc = OK;

    TRY(study_points_read(&rows, &n, c->o->source, c->o->points));
    cluster_points_join(rows, &n);
    if (n > POINTS_MAX)
        rc = err_set(ERR_LIMIT, "%s: more than %d points", c->o->source, POINTS_MAX);
    for (int i = 0; rc == OK && i < n; i++)
        c->points[i] = rows[i];
    c->n = c->n_fitted = rc == OK ? n : 0;
    for (int i = 0; i < 2 * c->n; i++)
        c->spread[i] = NAN;
    mem_free(rows);
    return rc;
}

/* --- the model */

static void report_ratio(struct step_profile *c, const char *stem, const double *v,
                         size_t n, const char *why)
{
    frame_set(c->f, frame_named(c->f, "%s_ratio", stem), stats_median(v, n), why);
    frame_set(c->f, frame_named(c->f, "%s_ratio_min", stem), n ? stats_min(v, n) : NAN,
              why);
    frame_set(c->f, frame_named(c->f, "%s_ratio_max", stem), n ? stats_max(v, n) : NAN,
              why);
}

static void report_model(struct step_profile *c)
{
    const struct cluster_perf_kind *kind;
    struct cluster_perf perf = {0};
    double ratio[2][POINTS_MAX], sum = 0, error;
    size_t n = 0;
    const char *why = "no point is left to test";

    if (cluster_perf_find("host", &kind) != OK ||
        kind->fit(&perf, c->points, c->n_fitted) != OK)
        why = err_msg();
    else
        perf.kind = kind;
    for (int i = c->n_fitted; perf.kind && i < c->n; i++, n++) {
        const struct cluster_point *p = &c->points[i];

        ratio[0][n] = study_points_prompt_ms(&perf, p) / p->prompt_ms;
        ratio[1][n] = study_points_token_ms(&perf, p) / p->token_ms;
        sum += fabs(ratio[0][n] - 1) + fabs(ratio[1][n] - 1);
    }
    error =
        fmax(fabs(stats_median(ratio[0], n) - 1), fabs(stats_median(ratio[1], n) - 1));
    report_ratio(c, "prompt", ratio[0], n, why);
    report_ratio(c, "token", ratio[1], n, why);
    frame_set(c->f, &c->r->host_error, n ? 100 * error : NAN, why);
    frame_set(c->f, &c->r->host_mape, n ? 100 * sum / (2 * (double)n) : NAN, why);
    study_series(c->out, "prompt_ratios", "", ratio[0], n);
    study_series(c->out, "token_ratios", "", ratio[1], n);
}

/* --- the cell */

/* Named like the columns of the published file, so that `testbed export --format csv-series` makes
 * a file for performance models. */
static void report_points(struct step_profile *c)
{
    static const char *const names[] = {"prompt_size", "batch_size", "token_size",
                                        "prompt_time", "token_time", "average_power",
                                        "peak_power",  "fitted"};
    static const char *const units[] = {"tok", "", "tok", "ms", "ms", "", "", ""};
    double v[8][POINTS_MAX];

    for (int i = 0; i < c->n; i++) {
        const struct cluster_point *p = &c->points[i];
        const double of[] = {(double)p->prompt_tok, (double)p->batch,
                             (double)p->output_tok, p->prompt_ms,
                             p->token_ms,           p->power,
                             p->power_most,         i < c->n_fitted};

        for (int k = 0; k < 8; k++)
            v[k][i] = of[k];
    }
    for (int k = 0; k < 8; k++)
        study_series(c->out, names[k], units[k], v[k], (size_t)c->n);
    study_series(c->out, "prompt_spread", "", c->spread, (size_t)c->n);
    study_series(c->out, "token_spread", "", c->spread + c->n, (size_t)c->n);
    frame_set(c->f, &c->r->round_spread, 100 * stats_median(c->spread, 2 * (size_t)c->n),
              "of the engine only");
    c->r->n_points = c->n;
}

/* --- requests of traces: worked out, nothing of them is measured */

/* The machine is one of Table I, by the name of the source. */
static void find_machine(struct trace_latency_opts *t, const struct opts *o)
{
    bool a100 = strstr(o->source, "a100"), h100 = strstr(o->source, "h100");

    t->usd_per_h = a100 ? 17.6 : h100 ? 38 : NAN; /* of a DGX */
    t->watt = a100 ? 8 * 400 : h100 ? 8 * 700 : NAN;
}

static int report_traces(struct step_profile *c)
{
    struct trace_latency_opts t = {.name = "conversation",
                                   .trace = c->o->conversation,
                                   .stand_in = "azure_conv",
                                   .perf = c->o->perf};

    find_machine(&t, c->o);
    study_evidence(c->out, "model", "e2e_ms_conversation e2e_ms_coding");
    TRY(study_trace_latency(c->f, c->points, c->n, &t));
    t.name = "coding";
    t.trace = c->o->coding;
    t.stand_in = "azure_code";
    return study_trace_latency(c->f, c->points, c->n, &t);
}

static int step_profile_run(struct step_profile *c)
{
    bool own = strcmp(c->o->source, "engine") == 0;

    TRY(own ? measure_engine(c) : read_points(c));
    if (!own)
        study_evidence(c->out, study_points_evidence(c->o->source), NULL);
    report_points(c);
    study_curves(c->f, c->points, c->n, c->o->prompt_tok);
    report_model(c);
    return c->o->traces ? report_traces(c) : OK;
}

STUDY(step_profile,
      "times of steps by prompts, batch and context, of this engine or published");
