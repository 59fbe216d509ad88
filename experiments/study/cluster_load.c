/* A cluster of Splitwise's machines under a load: latencies against the SLOs, batches, machines
 * that change pools, transfers, and the simulation's own speed.
 * Paper: Splitwise VI-A to VI-E, Figs 14 to 17. */
#include <math.h>

#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/cluster.h"

#define FEW_TOK   15   /* Fig. 17 */
#define SOME_TOK  30   /* twice that: the sequences of a batch without a prompt */
#define STEPS_MAX 2000 /* of a chart */

#define OPTIONS(X)                                                                       \
    OPTIONS_CLUSTER(X)                                                                   \
    X(F64, rate, "70", "Requests per second.", .min = 1e-3, .max = 1e6)                  \
    X(INT, layer_wise_tok, "512",                                                        \
      "Keys and values of shorter prompts are sent serially, of others layer by layer.", \
      .unit = "tok", .min = 0, .max = 1 << 30)                                           \
    X(INT, max_seqs, "65536", "Sequences on one machine, at most.", .min = 1,            \
      .max = 65536)                                                                      \
    X(INT, prompt_tok, "0", "Prompt of all requests. 0: those of the trace.",            \
      .unit = "tok", .min = 0, .max = 1 << 20)                                           \
    X(BOOL, steps, "false",                                                              \
      "Keep the first 2000 steps and transfers as lists, for a chart over time.")

#define RESULTS(X)                                                                       \
    X(ttft_p50_ms, "ms", LOWER, "time to the first token, median")                       \
    X(ttft_p90_ms, "ms", LOWER, "time to the first token, 90th percentile")              \
    X(ttft_p99_ms, "ms", LOWER, "time to the first token, 99th percentile")              \
    X(tbt_p50_ms, "ms", LOWER, "a request's mean time per later token, median")          \
    X(tbt_p90_ms, "ms", LOWER, "a request's mean time per later token, 90th percentile") \
    X(tbt_p99_ms, "ms", LOWER, "a request's mean time per later token, 99th percentile") \
    X(e2e_p50_ms, "ms", LOWER, "time to the last token, median")                         \
    X(e2e_p90_ms, "ms", LOWER, "time to the last token, 90th percentile")                \
    X(e2e_p99_ms, "ms", LOWER, "time to the last token, 99th percentile")                \
    X(e2e_mean_ms, "ms", LOWER, "time to the last token, mean")                          \
    X(ttft_p50_slowdown, "x", LOWER, "median TTFT / that alone on a DGX-A100")           \
    X(ttft_p90_slowdown, "x", LOWER, "the same, 90th percentile; SLO 3")                 \
    X(ttft_p99_slowdown, "x", LOWER, "the same, 99th percentile; SLO 6")                 \
    X(tbt_p50_slowdown, "x", LOWER, "median TBT / that alone on a DGX-A100; SLO 1.25")   \
    X(tbt_p90_slowdown, "x", LOWER, "the same, 90th percentile; SLO 1.5")                \
    X(tbt_p99_slowdown, "x", LOWER, "the same, 99th percentile; SLO 5")                  \
    X(e2e_p50_slowdown, "x", LOWER, "median E2E / that alone on a DGX-A100; SLO 1.25")   \
    X(e2e_p90_slowdown, "x", LOWER, "the same, 90th percentile; SLO 1.5")                \
    X(e2e_p99_slowdown, "x", LOWER, "the same, 99th percentile; SLO 5")                  \
    X(slo_use, "x", LOWER, "the largest of the nine slowdowns / its SLO")                \
    X(slo_met, "", HIGHER, "1: all nine SLOs are met")                                   \
    X(max_gap_ms, "ms", LOWER,                                                           \
      "mean of the longest time between two tokens of a request")                        \
    X(second_extra_ms, "ms", LOWER,                                                      \
      "max_gap_ms less the time of a token step of one sequence on the token machine: "  \
      "where nothing is batched, what the transfer adds to the second token")            \
    X(completed_rps, "/s", HIGHER, "requests completed per second")                      \
    X(rps_per_dollar, "/s/$", HIGHER,                                                    \
      "completed_rps / price of an hour of one of eight GPUs of each machine")           \
    X(few_tok_frac, "", LOWER,                                                           \
      "busy time with a batch of at most 15 tokens / busy time of all machines")         \
    X(tok_30_frac, "", LOWER,                                                            \
      "busy time with a batch of at most 30 tokens / busy time of all machines")         \
    X(few_tok_frac_prompt, "", 0, "few_tok_frac of prompt machines")                     \
    X(few_tok_frac_token, "", 0, "few_tok_frac of token machines")                       \
    X(mean_batch_tok_prompt, "tok", 0, "tokens of a batch, over busy time")              \
    X(mean_batch_tok_token, "tok", 0, "tokens of a batch, over busy time")               \
    X(busy_frac_prompt, "", 0, "busy time of prompt machines / time")                    \
    X(busy_frac_token, "", 0, "busy time of token machines / time")                      \
    X(mixed_frac, "", 0, "busy time in the mixed pool / busy time")                      \
    X(moves_per_s, "/s", LOWER, "moves of machines between pools per second")            \
    X(reserved_idle_frac, "", LOWER,                                                     \
      "memory for keys and values reserved before they arrived, over time / memory of "  \
      "the token machines")                                                              \
    X(preempted_per_request, "", LOWER, "preemptions / requests")                        \
    X(refused_frac, "", LOWER, "requests longer than a machine's memory / requests")     \
    X(stuck_frac, "", LOWER,                                                             \
      "requests left when full machines waited for each other for ever / requests")      \
    X(cost_per_hour, "$/h", LOWER, "cost of all machines")                               \
    X(power, "", LOWER, "power of all machines, in DGX-A100")                            \
    X(n_machines, "", LOWER, "machines")                                                 \
    X(n_requests, "", 0, "requests measured")                                            \
    X(n_excluded, "", 0, "requests during warm-up and cool-down")                        \
    X(n_events, "", 0, "events of the simulation")                                       \
    X(events_per_s, "/s", HIGHER | MEASURED,                                             \
      "events per second of CPU time on this host")                                      \
    X(sim_s, "s", LOWER | MEASURED, "CPU time of the simulation on this host")

FRAME_TYPES;

/* Steps and transfers, in order. */
struct chart {
    size_t n_steps, n_moves;
    double step[5][STEPS_MAX], move[4][STEPS_MAX];
};

struct cluster_load {
    FRAME_CELL;
    struct study_cluster_opts opts;
    struct study_cluster cluster;
    struct study_cluster_result result;
    struct chart chart;
};

static void cluster_load_step(void *ctx, const struct cluster_step *s)
{
    struct chart *c = ctx;
    const double v[] = {s->machine, 1e-9 * (double)s->start_ns, 1e-9 * (double)s->end_ns,
                        (double)s->n_prompt_tok, (double)s->n_decode};

    for (int i = 0; i < 5 && c->n_steps < STEPS_MAX; i++)
        c->step[i][c->n_steps] = v[i];
    c->n_steps += c->n_steps < STEPS_MAX;
}

static void cluster_load_moved(void *ctx, const struct cluster_move *m)
{
    struct chart *c = ctx;
    const double v[] = {m->from, m->to, 1e-9 * (double)m->t_ns, (double)m->request};

    for (int i = 0; i < 4 && c->n_moves < STEPS_MAX; i++)
        c->move[i][c->n_moves] = v[i];
    c->n_moves += c->n_moves < STEPS_MAX;
}

static void report_chart(struct study_cell *out, const struct chart *c)
{
    static const char *const steps[] = {"step_machine", "step_start", "step_end",
                                        "step_prompt_tok", "step_sequences"};
    static const char *const moves[] = {"move_from", "move_to", "move_end",
                                        "move_request"};
    static const char *const units[] = {"", "s", "s", "tok", ""};
    static const char *const move_units[] = {"", "", "s", ""};

    for (int i = 0; i < 5; i++)
        study_series(out, steps[i], units[i], c->step[i], c->n_steps);
    for (int i = 0; i < 4; i++)
        study_series(out, moves[i], move_units[i], c->move[i], c->n_moves);
}

/* Latencies of requests that never ended are infinite. */
static double known(double v)
{
    return isfinite(v) ? v : NAN;
}

static void report_latencies(struct cluster_load *c)
{
    static const char *const latency[] = {"ttft", "tbt", "e2e"};
    static const char *const percentile[] = {"p50", "p90", "p99"};
    const struct study_cluster_result *from = &c->result;

    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        for (int p = 0; p < CLUSTER_N_PERCENTILES; p++) {
            *frame_named(c->f, "%s_%s_ms", latency[i], percentile[p]) =
                known(from->ms[i][p]);
            *frame_named(c->f, "%s_%s_slowdown", latency[i], percentile[p]) =
                known(from->slowdown[i][p]);
        }
}

/* The distribution of busy time over batches, as in Fig. 17. */
static void report_batches(struct cluster_load *c)
{
    static const double at[] = {1,   2,    3,    4,    5,    7,    10,  15,  20,
                                30,  40,   50,   70,   100,  150,  200, 300, 500,
                                700, 1000, 1500, 2048, 3000, 4096, 8192};
    enum { N_AT = sizeof(at) / sizeof(at[0]) };
    static const char *const names[] = {"time_frac_prompt", "time_frac_token"};
    const struct study_cluster_result *from = &c->result;
    const double *prompt = from->by_tok_s[0], *token = from->by_tok_s[1];
    double busy = from->busy_s[0] + from->busy_s[1];
    struct results *r = c->r;
    double *const idle[] = {
        &r->few_tok_frac,       &r->tok_30_frac,           &r->few_tok_frac_prompt,
        &r->few_tok_frac_token, &r->mean_batch_tok_prompt, &r->mean_batch_tok_token,
        &r->busy_frac_prompt,   &r->busy_frac_token,       &r->mixed_frac};

    r->few_tok_frac =
        (study_cluster_up_to(FEW_TOK, prompt) + study_cluster_up_to(FEW_TOK, token)) /
        busy;
    r->tok_30_frac =
        (study_cluster_up_to(SOME_TOK, prompt) + study_cluster_up_to(SOME_TOK, token)) /
        busy;
    r->few_tok_frac_prompt = study_cluster_up_to(FEW_TOK, prompt) / from->busy_s[0];
    r->few_tok_frac_token = study_cluster_up_to(FEW_TOK, token) / from->busy_s[1];
    r->mean_batch_tok_prompt = study_cluster_mean_tok(prompt);
    r->mean_batch_tok_token = study_cluster_mean_tok(token);
    r->busy_frac_prompt = from->busy_s[0] / from->machine_s[0];
    r->busy_frac_token = from->busy_s[1] / from->machine_s[1];
    r->mixed_frac = from->busy_mixed_s / busy;
    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
        frame_why(c->f, idle[i], "no machine of the kind was busy");
    study_series(c->out, "batch_tok", "tok", at, N_AT);
    for (int home = 0; home < 2; home++)
        study_cluster_up_to_each(c->out, names[home], at, N_AT, from->by_tok_s[home],
                                 from->busy_s[home]);
}

static void cluster_load_report(struct cluster_load *c,
                                const struct study_cluster_load *load)
{
    const struct study_cluster_result *from = &c->result;
    const struct study_cluster *cluster = &c->cluster;
    const struct cluster_stat *s = &from->stat;
    double all = (double)(s->n_done + s->n_refused), end_ns = (double)s->end_ns;
    int64_t kv_tok =
        load->n_token ? load->n_token * cluster->token_kv_tok : cluster->prompt_kv_tok;
    struct cluster_work one = {.n_decode = 1};
    struct results *r = c->r;

    frame_why(c->f, NULL, "requests never ended");
    r->slo_use = known(study_cluster_slo_use(from));
    r->slo_met = from->met;
    r->e2e_mean_ms = known(from->mean_ms[CLUSTER_E2E]);
    r->max_gap_ms = from->max_gap_ms;
    r->second_extra_ms =
        r->max_gap_ms - 1e-6 * (double)cluster_perf_step_ns(&cluster->token_perf, &one);
    r->cost_per_hour = study_cluster_cost(cluster, load->n_prompt, load->n_token);
    r->power = study_cluster_power(cluster, load->n_prompt, load->n_token);
    r->completed_rps = from->completed_rps;
    r->rps_per_dollar = r->completed_rps / (r->cost_per_hour / 8);
    r->moves_per_s = 1e9 * (double)s->n_pool_moves / end_ns;
    r->reserved_idle_frac = s->reserved_idle_tok_ns / ((double)kv_tok * end_ns);
    r->preempted_per_request = (double)s->n_preempted / all;
    r->refused_frac = (double)from->n_refused / (double)from->n_measured;
    r->stuck_frac = (double)from->n_stuck / (double)from->n_measured;
    r->n_machines = load->n_prompt + load->n_token;
    r->n_requests = (double)from->n_measured;
    r->n_excluded = (double)from->n_excluded;
    r->n_events = (double)s->n_events;
    r->events_per_s = (double)s->n_events / from->wall_s;
    r->sim_s = from->wall_s;
    report_latencies(c);
    report_batches(c);
    study_note(c->out, "n_prompt", json_integer(load->n_prompt));
    study_note(c->out, "n_token", json_integer(load->n_token));
    study_cluster_notes(cluster, c->out);
    if (c->o->steps)
        report_chart(c->out, &c->chart);
}

static int cluster_load_run(struct cluster_load *c)
{
    struct study_cluster_load load = {.rate = c->o->rate};

    c->opts = STUDY_CLUSTER_OPTS;
    FRAME_CLOSE(c->f, study_cluster_close, &c->cluster);
    TRY(study_cluster_open(&c->cluster, &c->opts));
    TRY(study_cluster_machines(&c->cluster, &load.n_prompt, &load.n_token));
    c->cluster.cluster.layer_wise_tok = c->o->layer_wise_tok;
    c->cluster.cluster.max_seqs = c->o->max_seqs;
    c->cluster.prompt_tok = c->o->prompt_tok;
    if (c->o->steps)
        load.watch = (struct cluster_observer){
            .ctx = &c->chart, .step = cluster_load_step, .moved = cluster_load_moved};
    TRY(study_cluster_run(&c->result, &c->cluster, &load));
    cluster_load_report(c, &load);
    return OK;
}

STUDY(cluster_load, "a design of Splitwise under a load");
