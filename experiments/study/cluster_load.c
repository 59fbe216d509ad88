/* A cluster of Splitwise's machines under a load: latencies against the SLOs, batches, machines
 * that change pools, transfers, and the simulation's own speed.
 * Paper: Splitwise VI-A to VI-E, Figs 14 to 17. */
#include <math.h>

#include "base/mem.h"
#include "experiments/study/support/cluster.h"

#define FEW_TOK   15   /* Fig. 17 */
#define SOME_TOK  30   /* twice that: the sequences of a batch without a prompt */
#define STEPS_MAX 2000 /* of a chart */

struct opts {
    STUDY_CLUSTER_OPTS
    double rate;
    int64_t layer_wise_tok, max_seqs, prompt_tok;
    bool steps;
};

static const struct opt_row table[] = {
    ROWS_CLUSTER,
    OPT_ROW(F64, rate, "70", "Requests per second.", .min = 1e-3, .max = 1e6),
    OPT_ROW(INT, layer_wise_tok, "512",
            "Keys and values of shorter prompts are sent serially, of others layer by "
            "layer.",
            .unit = "tok", .min = 0, .max = 1 << 30),
    OPT_ROW(INT, max_seqs, "65536", "Sequences on one machine, at most.", .min = 1,
            .max = 65536),
    OPT_ROW(INT, prompt_tok, "0", "Prompt of all requests. 0: those of the trace.",
            .unit = "tok", .min = 0, .max = 1 << 20),
    OPT_ROW(BOOL, steps, "false",
            "Keep the first 2000 steps and transfers as lists, for a chart over time."),
    {0},
};

static const struct study_metric metrics[] = {
    {"ttft_p50_ms", "ms", "lower", "time to the first token, median"},
    {"ttft_p90_ms", "ms", "lower", "time to the first token, 90th percentile"},
    {"ttft_p99_ms", "ms", "lower", "time to the first token, 99th percentile"},
    {"tbt_p50_ms", "ms", "lower", "a request's mean time per later token, median"},
    {"tbt_p90_ms", "ms", "lower",
     "a request's mean time per later token, 90th percentile"},
    {"tbt_p99_ms", "ms", "lower",
     "a request's mean time per later token, 99th percentile"},
    {"e2e_p50_ms", "ms", "lower", "time to the last token, median"},
    {"e2e_p90_ms", "ms", "lower", "time to the last token, 90th percentile"},
    {"e2e_p99_ms", "ms", "lower", "time to the last token, 99th percentile"},
    {"e2e_mean_ms", "ms", "lower", "time to the last token, mean"},
    {"ttft_p50_slowdown", "x", "lower", "median TTFT / that alone on a DGX-A100"},
    {"ttft_p90_slowdown", "x", "lower", "the same, 90th percentile; SLO 3"},
    {"ttft_p99_slowdown", "x", "lower", "the same, 99th percentile; SLO 6"},
    {"tbt_p50_slowdown", "x", "lower", "median TBT / that alone on a DGX-A100; SLO 1.25"},
    {"tbt_p90_slowdown", "x", "lower", "the same, 90th percentile; SLO 1.5"},
    {"tbt_p99_slowdown", "x", "lower", "the same, 99th percentile; SLO 5"},
    {"e2e_p50_slowdown", "x", "lower", "median E2E / that alone on a DGX-A100; SLO 1.25"},
    {"e2e_p90_slowdown", "x", "lower", "the same, 90th percentile; SLO 1.5"},
    {"e2e_p99_slowdown", "x", "lower", "the same, 99th percentile; SLO 5"},
    {"slo_use", "x", "lower", "the largest of the nine slowdowns / its SLO"},
    {"slo_met", "", "higher", "1: all nine SLOs are met"},
    {"max_gap_ms", "ms", "lower",
     "mean of the longest time between two tokens of a request"},
    {"second_extra_ms", "ms", "lower",
     "max_gap_ms less the time of a token step of one sequence on the token machine: "
     "where nothing is batched, what the transfer adds to the second token"},
    {"completed_rps", "/s", "higher", "requests completed per second"},
    {"rps_per_dollar", "/s/$", "higher",
     "completed_rps / price of an hour of one of eight GPUs of each machine"},
    {"few_tok_frac", "", "lower",
     "busy time with a batch of at most 15 tokens / busy time of all machines"},
    {"tok_30_frac", "", "lower",
     "busy time with a batch of at most 30 tokens / busy time of all machines"},
    {"few_tok_frac_prompt", "", "", "few_tok_frac of prompt machines"},
    {"few_tok_frac_token", "", "", "few_tok_frac of token machines"},
    {"mean_batch_tok_prompt", "tok", "", "tokens of a batch, over busy time"},
    {"mean_batch_tok_token", "tok", "", "tokens of a batch, over busy time"},
    {"busy_frac_prompt", "", "", "busy time of prompt machines / time"},
    {"busy_frac_token", "", "", "busy time of token machines / time"},
    {"mixed_frac", "", "", "busy time in the mixed pool / busy time"},
    {"moves_per_s", "/s", "lower", "moves of machines between pools per second"},
    {"reserved_idle_frac", "", "lower",
     "memory for keys and values reserved before they arrived, over time / memory of "
     "the token machines"},
    {"preempted_per_request", "", "lower", "preemptions / requests"},
    {"refused_frac", "", "lower", "requests longer than a machine's memory / requests"},
    {"stuck_frac", "", "lower",
     "requests left when full machines waited for each other for ever / requests"},
    {"cost_per_hour", "$/h", "lower", "cost of all machines"},
    {"power", "", "lower", "power of all machines, in DGX-A100"},
    {"n_machines", "", "lower", "machines"},
    {"n_requests", "", "", "requests measured"},
    {"n_excluded", "", "", "requests during warm-up and cool-down"},
    {"n_events", "", "", "events of the simulation"},
    {"events_per_s", "/s", "higher", "events per second of CPU time on this host"},
    {"sim_s", "s", "lower", "CPU time of the simulation on this host"},
    {0},
};

/* What a chart over time shows: rows of machine, start, end, prompt tokens and sequences. */
struct chart {
    size_t n_steps, n_moves;
    double step[5][STEPS_MAX], move[4][STEPS_MAX];
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_cluster cluster;
    struct study_cluster_result result;
    struct chart chart;
};

static void on_step(void *ctx, const struct cluster_step *s)
{
    struct chart *c = ctx;
    const double v[] = {s->machine, 1e-9 * (double)s->start_ns, 1e-9 * (double)s->end_ns,
                        (double)s->n_prompt_tok, (double)s->n_decode};

    for (int i = 0; i < 5 && c->n_steps < STEPS_MAX; i++)
        c->step[i][c->n_steps] = v[i];
    c->n_steps += c->n_steps < STEPS_MAX;
}

static void on_moved(void *ctx, const struct cluster_move *m)
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

static void report_latencies(struct study_cell *out, const struct study_cluster_result *r)
{
    static const char *const latency[] = {"ttft", "tbt", "e2e"};
    static const char *const percentile[] = {"p50", "p90", "p99"};

    for (int i = 0; i < CLUSTER_N_LATENCIES; i++)
        for (int p = 0; p < CLUSTER_N_PERCENTILES; p++) {
            char name[32];
            const char *why = "requests never ended";

            snprintf(name, sizeof(name), "%s_%s_ms", latency[i], percentile[p]);
            study_value(out, name, isfinite(r->ms[i][p]) ? r->ms[i][p] : NAN, why);
            snprintf(name, sizeof(name), "%s_%s_slowdown", latency[i], percentile[p]);
            study_value(out, name, isfinite(r->slowdown[i][p]) ? r->slowdown[i][p] : NAN,
                        why);
        }
}

static double mean_tok(const double *by_tok)
{
    double sum = 0, all = 0;

    for (int i = 0; i <= STUDY_CLUSTER_TOK_MAX; i++) {
        sum += i * by_tok[i];
        all += by_tok[i];
    }
    return all > 0 ? sum / all : NAN;
}

static double up_to(int n_tok, const double *by_tok)
{
    double sum = 0;

    for (int i = 0; i <= n_tok; i++)
        sum += by_tok[i];
    return sum;
}

/* The distribution of busy time over batches, as in Fig. 17. */
static void report_batches(struct study_cell *out, const struct study_cluster_result *r)
{
    static const double at[] = {1,   2,    3,    4,    5,    7,    10,  15,  20,
                                30,  40,   50,   70,   100,  150,  200, 300, 500,
                                700, 1000, 1500, 2048, 3000, 4096, 8192};
    enum { N_AT = sizeof(at) / sizeof(at[0]) };
    static const char *const names[] = {"time_frac_prompt", "time_frac_token"};
    double busy = r->busy_s[0] + r->busy_s[1], frac[N_AT];
    const char *idle = "no machine of the kind was busy";
    const struct study_number v[] = {
        {"few_tok_frac",
         (up_to(FEW_TOK, r->by_tok_s[0]) + up_to(FEW_TOK, r->by_tok_s[1])) / busy},
        {"tok_30_frac",
         (up_to(SOME_TOK, r->by_tok_s[0]) + up_to(SOME_TOK, r->by_tok_s[1])) / busy},
        {"few_tok_frac_prompt", up_to(FEW_TOK, r->by_tok_s[0]) / r->busy_s[0]},
        {"few_tok_frac_token", up_to(FEW_TOK, r->by_tok_s[1]) / r->busy_s[1]},
        {"mean_batch_tok_prompt", mean_tok(r->by_tok_s[0])},
        {"mean_batch_tok_token", mean_tok(r->by_tok_s[1])},
        {"busy_frac_prompt", r->busy_s[0] / r->machine_s[0]},
        {"busy_frac_token", r->busy_s[1] / r->machine_s[1]},
        {"mixed_frac", r->busy_mixed_s / busy},
    };

    STUDY_VALUES(out, v, idle);
    study_series(out, "batch_tok", "tok", at, N_AT);
    for (int home = 0; home < 2; home++) {
        double sum = 0;
        int tok = 0;

        for (int i = 0; i < N_AT; i++) {
            while (tok <= (int)at[i])
                sum += r->by_tok_s[home][tok++];
            frac[i] = sum / r->busy_s[home];
        }
        study_series(out, names[home], "", frac, N_AT);
    }
}

static void report(struct cell *w, const struct study_cluster_load *load)
{
    const struct study_cluster_result *r = &w->result;
    const struct study_cluster *c = &w->cluster;
    double all = (double)(r->stat.n_done + r->stat.n_refused);
    double cost = study_cluster_cost(c, load->n_prompt, load->n_token);
    double end_ns = (double)r->stat.end_ns, use = study_cluster_slo_use(r);
    struct cluster_work one = {.n_decode = 1};
    double kv_tok_ns =
        (double)(load->n_token ? load->n_token * c->token_kv_tok : c->prompt_kv_tok) *
        end_ns;
    const struct study_number v[] = {
        {"slo_use", isfinite(use) ? use : NAN},
        {"slo_met", r->met},
        {"e2e_mean_ms",
         isfinite(r->mean_ms[CLUSTER_E2E]) ? r->mean_ms[CLUSTER_E2E] : NAN},
        {"max_gap_ms", r->max_gap_ms},
        {"second_extra_ms",
         r->max_gap_ms - 1e-6 * (double)cluster_perf_step_ns(&c->token_perf, &one)},
        {"completed_rps", r->completed_rps},
        {"rps_per_dollar", r->completed_rps / (cost / 8)},
        {"moves_per_s", 1e9 * (double)r->stat.n_pool_moves / end_ns},
        {"reserved_idle_frac", r->stat.reserved_idle_tok_ns / kv_tok_ns},
        {"preempted_per_request", (double)r->stat.n_preempted / all},
        {"refused_frac", (double)r->n_refused / (double)r->n_measured},
        {"stuck_frac", (double)r->n_stuck / (double)r->n_measured},
        {"cost_per_hour", cost},
        {"power", study_cluster_power(c, load->n_prompt, load->n_token)},
        {"n_machines", load->n_prompt + load->n_token},
        {"n_requests", (double)r->n_measured},
        {"n_excluded", (double)r->n_excluded},
        {"n_events", (double)r->stat.n_events},
        {"events_per_s", (double)r->stat.n_events / r->wall_s},
        {"sim_s", r->wall_s},
    };

    STUDY_VALUES(w->out, v, "requests never ended");
    report_latencies(w->out, r);
    report_batches(w->out, r);
    study_evidence(w->out, "measured", "events_per_s sim_s");
    study_note(w->out, "n_prompt", json_integer(load->n_prompt));
    study_note(w->out, "n_token", json_integer(load->n_token));
    study_cluster_notes(c, w->out);
    if (w->o->steps)
        report_chart(w->out, &w->chart);
}

static int run(struct cell *w)
{
    struct study_cluster_load load = {.rate = w->o->rate};

    TRY(study_cluster_open(&w->cluster, &w->o->cluster));
    TRY(study_cluster_machines(&w->cluster, &load.n_prompt, &load.n_token));
    w->cluster.cluster.layer_wise_tok = w->o->layer_wise_tok;
    w->cluster.cluster.max_seqs = w->o->max_seqs;
    w->cluster.prompt_tok = w->o->prompt_tok;
    if (w->o->steps)
        load.watch = (struct cluster_observer){
            .ctx = &w->chart, .step = on_step, .moved = on_moved};
    TRY(study_cluster_run(&w->result, &w->cluster, &load));
    report(w, &load);
    return OK;
}

static void end(struct cell *w)
{
    study_cluster_close(&w->cluster);
}

STUDY(cluster_load, "a design of Splitwise under a load");
