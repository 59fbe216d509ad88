/* The cost of the plan search of both phases, as `sandwich plan` searches them. On this host the
 * engine is run and the cost is the time that passes; on a simulated machine it is the time
 * that the measured steps would take there.   Paper: Sandwich 8.3 and B, Table 4. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "experiments/load/study.h"
#include "experiments/study/support/plan.h"
#include "experiments/study/support/rows.h"

struct opts {
    char *model, *fit;
    int precision;
    int64_t n_requests, max_tok, batch, seed;
    double max_s;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, model, NULL, STUDY_TARGET_HELP),
    ROW_PRECISION,
    OPT_ROW(STR, fit, "sharegpt", "Fit of the trace from which lengths are drawn."),
    OPT_ROW(INT, n_requests, "400", "Number of requests to draw.", .min = 1,
            .max = 100000),
    OPT_ROW(INT, max_tok, "1024", "Longest prompt and output; longer ones are cut.",
            .unit = "tok", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, batch, "1", "Sequences of a decode step.", .min = 1, .max = 1024),
    OPT_ROW(F64, max_s, "60", "Time limit of the search in each phase.", .unit = "s",
            .min = 0.1, .max = 86400),
    OPT_ROW(INT, seed, "1", "Seed of lengths, noise and the search."),
    {0},
};

static const struct study_metric metrics[] = {
    {"graph_tuning_s", "s", "lower",
     "cost of the search: search_s on this host, measuring_s on a simulated machine"},
    {"search_s", "s", "", "wall time of the search on this host"},
    {"measuring_s", "s", "",
     "time that the measured steps would take on the simulated machine"},
    {"n_measurements", "", "lower", "measurements of both phases"},
    {"n_configs", "", "", "different configurations measured in both phases"},
    {"n_trees", "", "", "different trees explored in both phases"},
    {"complete", "", "", "1: the search ended by itself; 0: its budget ended it"},
    {"prefill_ranks", "", "", "ranks of prefill in the plan"},
    {"prefill_threads", "", "", "threads of each prefill rank"},
    {"decode_ranks", "", "", "ranks of decode in the plan"},
    {"decode_threads", "", "", "threads of each decode rank"},
    {"request_s", "s", "lower", "time of a request of the trace that the plan expects"},
    {"decode_tok_s", "tok/s", "higher", "output rate of decode that the plan expects"},
    {"peak_rss_mb", "MiB", "", "peak resident memory of the process"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_planner planner;
    struct plan_search_result found;
    struct plan_lengths lengths;
};

static void report(const struct cell *w, const struct opts *o, double search_s,
                   struct study_cell *out)
{
    const struct plan_tree_search_counts *d = &w->found.decode.counts;
    const struct plan_tree_search_counts *p = &w->found.prefill.counts;
    const struct plan *plan = &w->found.plan;
    bool simulated = study_target_is_simulated(o->model);
    double measuring_s = simulated ? d->measured_s + p->measured_s : NAN;
    const struct study_number all[] = {
        {"graph_tuning_s", simulated ? measuring_s : search_s},
        {"search_s", search_s},
        {"measuring_s", measuring_s},
        {"n_measurements", (double)(d->n_measurements + p->n_measurements)},
        {"n_configs", (double)(d->n_configs + p->n_configs)},
        {"n_trees", (double)(d->n_trees + p->n_trees)},
        {"complete", d->complete && p->complete},
        {"prefill_ranks", plan->prefill.n_ranks},
        {"prefill_threads", plan->prefill.n_threads},
        {"decode_ranks", plan->decode.n_ranks},
        {"decode_threads", plan->decode.n_threads},
        {"request_s", plan_trace_s(&w->planner.search.trace, o->batch,
                                   plan->prefill.expected_s, plan->decode.expected_s)},
        {"decode_tok_s", (double)o->batch / plan->decode.expected_s},
        {"peak_rss_mb", (double)mem_rss_peak_bytes() / (1 << 20)}};

    STUDY_VALUES(out, all, "of a simulated machine only");
    if (simulated)
        study_evidence(out, "simulated", NULL);
    study_evidence(out, "measured", "search_s peak_rss_mb");
    study_note(out, "plan", plan_to_json(plan));
    study_note_text(out, "tree_note", w->found.note);
}

static int run(struct cell *w)
{
    const struct opts *o = w->o;
    struct study_plan_opts po = {.target = o->model,
                                 .batch = (int)o->batch,
                                 .precision = o->precision,
                                 .max_s = o->max_s,
                                 .seed = o->seed};
    uint64_t start_ns;

    TRY(study_lengths_draw(&w->lengths, o->fit, o->n_requests, o->max_tok, o->seed));
    po.lengths = w->lengths;
    TRY(study_planner_open(&w->planner, &po));
    study_progress(w->out, 0.1, "plan search");
    start_ns = clock_ns();
    TRY(study_plan(&w->found, &w->planner, "search", 0));
    report(w, o, (double)(clock_ns() - start_ns) * 1e-9, w->out);
    return OK;
}

static void end(struct cell *w)
{
    plan_search_result_free(&w->found);
    study_planner_close(&w->planner);
    mem_free((void *)w->lengths.n_prompt);
}

STUDY(plan_search,
      "what the plan search of both phases costs, on this host or a simulated machine");
