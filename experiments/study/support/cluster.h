/* experiments/study/support/cluster.h - Splitwise's designs on the simulated cluster: machines by
 * their cards, a model, requests with the sizes of a trace, and latencies against a DGX-A100.
 *
 * A request's prompt and output are those of one request of the trace, drawn with replacement.
 * Requests that arrive in the first warmup_s or the last cooldown_s of the arrivals load the
 * cluster and are not measured. A slowdown is a latency over that of the same request alone on
 * a DGX-A100.   Paper: Splitwise IV-D, V, Tables III, V and VI.   Threads: one. */
#ifndef STUDY_CLUSTER_H
#define STUDY_CLUSTER_H

#include "cluster/card.h"
#include "cluster/cluster.h"
#include "cluster/provision.h"
#include "datasets/dataset.h"
#include "experiments/frame/frame.h"

enum { STUDY_CLUSTER_PAPER, STUDY_CLUSTER_SPLITWISE_SIM }; /* rules */
enum { STUDY_CLUSTER_CONVERSATION, STUDY_CLUSTER_CODING }; /* trace */
enum { STUDY_CLUSTER_POISSON, STUDY_CLUSTER_RECORDED };    /* arrivals */
enum { STUDY_CLUSTER_AUTO, STUDY_CLUSTER_PUBLISHED, STUDY_CLUSTER_PRINTED }; /* points */

/* toggle: none, the members of struct cluster_quirks in their order, and two more */
#define STUDY_CLUSTER_TOGGLES                                                            \
    "none|full_length_kv|free_links|tenfold_layer_wise|slow_mixed|flat_token_time|"      \
    "needs_queue|return_when_idle|retry|token_load|tbt_over_all"
enum { STUDY_CLUSTER_TOKEN_LOAD = 9, STUDY_CLUSTER_TBT_OVER_ALL };

const char *study_cluster_model_name(int i);
const char *study_cluster_perf_name(int i);

/* Options that these studies share; a study has them first in its list. */
#define OPTIONS_CLUSTER(X)                                                               \
    X(ENUM, design, "Splitwise-HH",                                                      \
      "Design: the kinds of prompt and token machines. A is a DGX-A100, H a DGX-H100, "  \
      "Hcap one whose GPUs are capped at half of their power. Baselines run all phases " \
      "of a request on one machine.",                                                    \
      .values = "Baseline-A100|Baseline-H100|Splitwise-AA|Splitwise-HH|Splitwise-HA|"    \
                "Splitwise-HHcap")                                                       \
    X(STR, machines, "",                                                                 \
      "Prompt and token machines, such as \"25P,15T\", or those of a baseline, such as " \
      "\"40\". \"\": those of Fig. 16.")                                                 \
    X(ENUM, trace, "conversation",                                                       \
      "Azure's trace of 2023 whose sizes the requests have. A fit stands in where its "  \
      "file is absent.",                                                                 \
      .values = "conversation|coding")                                                   \
    X(STR, trace_path, NULL, "Another trace with lengths, in place of it.",              \
      .unit = "FILE")                                                                    \
    X(ENUM, sized_for, "trace",                                                          \
      "Trace for which the machines of Fig. 16 were chosen. trace: the one that is "     \
      "served.",                                                                         \
      .values = "conversation|coding|trace")                                             \
    X(ENUM, rules, "paper",                                                              \
      "What the cluster follows where the two differ: the paper, or the published "      \
      "simulator splitwise-sim.",                                                        \
      .values = "paper|splitwise_sim")                                                   \
    X(ENUM, toggle, "none",                                                              \
      "One of the differences between the two, which is then as the other has it: "      \
      "memory of a request's full length, links for any number of flows, layer-wise "    \
      "transfer at ten times the bandwidth, mixed steps 1.1 times as long as their "     \
      "prompts, token steps that take no longer with a batch, overload only where "      \
      "requests also wait, return from the mixed pool only when idle, retries for "      \
      "memory each second, the load by which token machines are chosen, TBT over all "   \
      "tokens.",                                                                         \
      .values = STUDY_CLUSTER_TOGGLES)                                                   \
    X(INT, token_threshold, "0",                                                         \
      "Sequences above which a token machine is full, by the rules of the paper, which " \
      "names no number. 0: those with which its step takes 0.9 of the SLO of the "       \
      "median TBT; a search also tries 0.85, 0.95 and 1.",                               \
      .min = 0, .max = 1 << 20)                                                          \
    X(ENUM, arrivals, "poisson",                                                         \
      "Poisson arrivals, as in the paper, or the trace's own, scaled in time to the "    \
      "rate.",                                                                           \
      .values = "poisson|recorded")                                                      \
    X(STR, model, "bloom-176b", "Model that is served.",                                 \
      .names = study_cluster_model_name)                                                 \
    X(STR, perf, "table", "Performance model.", .names = study_cluster_perf_name)        \
    X(ENUM, points, "auto",                                                              \
      "Measured points of the performance model: published in a CSV, or printed in the " \
      "paper, which are of llama2-70b. auto: published where the file is there, else "   \
      "printed, with llama2-70b as the model.",                                          \
      .values = "auto|published|printed")                                                \
    X(STR, perf_path, "splitwise_perf/perf_model.csv",                                   \
      "CSV of splitwise-sim, also below $SANDWICH_DATA (without it: ../shared/data).",   \
      .unit = "FILE")                                                                    \
    X(F64, memory_frac, "0",                                                             \
      "Share of a machine's memory for weights, keys and values. 0: 0.9 by the rules "   \
      "of the paper, all by those of splitwise-sim.",                                    \
      .min = 0, .max = 1)                                                                \
    X(F64, duration_s, "120", "Time in which requests arrive.", .unit = "s",             \
      .min = 1e-3, .max = 1e6)                                                           \
    X(F64, warmup_s, "20", "Requests that arrive earlier are not measured.",             \
      .unit = "s", .min = 0, .max = 1e6)                                                 \
    X(F64, cooldown_s, "20",                                                             \
      "Requests that arrive in this time at the end are not measured.", .unit = "s",     \
      .min = 0, .max = 1e6)                                                              \
    X(INT, seed, "1", "Seed of sizes and arrivals.", .min = 1, .max = 1 << 30)
struct study_cluster_opts {
    OPTIONS_CLUSTER(FRAME_OPTION)
};
/* The same out of the options of a study whose cell is `c`. */
#define STUDY_CLUSTER_OPTION(kind, name, ...) .name = c->o->name,
#define STUDY_CLUSTER_OPTS                                                               \
    ((struct study_cluster_opts){OPTIONS_CLUSTER(STUDY_CLUSTER_OPTION)})

struct study_cluster_model {
    const char *name;
    int n_layers;
    int64_t kv_bytes_per_tok;   /* with grouped-query attention where it has it */
    int64_t kv_bytes_all_heads; /* as if it had none: of splitwise-sim */
    double weight_bytes;
};

#define STUDY_CLUSTER_THRESHOLDS 4
/* All of a cell. Zero before open. */
struct study_cluster {
    const struct study_cluster_opts *o;
    const struct study_cluster_model *model;
    struct cluster_card prompt_card, token_card;
    bool is_baseline; /* one kind of machine, all of them mixed */
    /* of the prompt machine, the token machine, and a DGX-A100 */
    struct cluster_perf prompt_perf, token_perf, reference;
    int64_t prompt_kv_tok, token_kv_tok;
    const char *points; /* "published" or "printed" */
    struct dataset *trace;
    double trace_rate;  /* its mean, per second; NaN: it has no times */
    int64_t prompt_tok; /* of all requests; 0: those of the trace. Set after open. */
    bool tbt_over_all;  /* tokens, the first among them */
    /* that the operator may choose among; the first one is that of `cluster` */
    int64_t token_thresholds[STUDY_CLUSTER_THRESHOLDS];
    int n_thresholds;
    struct cluster_opts cluster; /* without machines, requests and observers */
};
/* After an error study_cluster_close() is still to be called. ERR_NOTFOUND: measured points
 * are not here. */
MUST int study_cluster_open(struct study_cluster *c, const struct study_cluster_opts *o);
void study_cluster_close(struct study_cluster *c); /* twice is fine */
/* The assumptions and sources of the numbers, as notes of the cell. */
void study_cluster_notes(const struct study_cluster *c, struct study_cell *out);

/* Those of `machines`, or of Fig. 16. Of a baseline all are n_prompt, also where the text has both
 * kinds. ERR_ARG: the text. */
MUST int study_cluster_machines(const struct study_cluster *c, int *n_prompt,
                                int *n_token);
double study_cluster_cost(const struct study_cluster *c, int n_prompt, int n_token);
double study_cluster_power(const struct study_cluster *c, int n_prompt, int n_token);

#define STUDY_CLUSTER_TOK_MAX 8192 /* batches of more tokens count as of this many */
struct study_cluster_result {
    struct cluster_stat stat;
    int64_t n_measured, n_excluded;
    int64_t n_refused; /* of the measured ones: longer than a machine's memory */
    int64_t n_stuck; /* of them: left when full machines waited for each other for ever */
    bool stopped;    /* the SLOs cannot be met any more, and the rest was not sent */
    bool met;        /* the SLOs of Table VI are */
    double ms[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES];
    double slowdown[CLUSTER_N_LATENCIES][CLUSTER_N_PERCENTILES];
    double mean_ms[CLUSTER_N_LATENCIES];
    double max_gap_ms;    /* mean of the longest gap between two tokens of a request */
    double completed_rps; /* in the measured time */
    /* Within the measured time, by the machines' homes, in s; a baseline's are [0]. */
    double busy_s[2], busy_mixed_s, by_tok_s[2][STUDY_CLUSTER_TOK_MAX + 1];
    double machine_s[2];
    double wall_s; /* CPU time of the simulation */
};
struct study_cluster_load {
    int n_prompt, n_token;
    double rate;
    bool stop_early;               /* where the SLOs cannot be met any more */
    struct cluster_observer watch; /* is also told of steps, moves and ends */
};
MUST int study_cluster_run(struct study_cluster_result *out,
                           const struct study_cluster *c,
                           const struct study_cluster_load *load);
/* by_tok_s [STUDY_CLUSTER_TOK_MAX + 1]: seconds in steps of at most n_tok tokens; the mean tokens
 * of a step, over time; the first as shares of all_s for each of at[n] as a series. */
double study_cluster_up_to(int n_tok, const double *by_tok_s);
double study_cluster_mean_tok(const double *by_tok_s);
void study_cluster_up_to_each(struct study_cell *out, const char *name, const double *at,
                              int n, const double *by_tok_s, double all_s);
/* The largest slowdown / SLO; above 1: they are not met. */
double study_cluster_slo_use(const struct study_cluster_result *r);
/* Are the SLOs met at this rate, with any of the thresholds? */
MUST int study_cluster_meets(bool *met, const struct study_cluster *c, int n_prompt,
                             int n_token, double rate);
/* The highest rate that meets the SLOs, to 2 %. 0: they are not even met at one at which only 20
 * requests are measured, or only at rates up to `above`. */
MUST int study_cluster_max_rate(double *out, const struct study_cluster *c, int n_prompt,
                                int n_token, double above);

#endif
