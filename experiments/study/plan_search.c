/* The cost of the plan search of both phases, as `sandwich plan` searches them. On this host the
 * engine is run and the cost is the time that passes; on a simulated machine it is the time
 * that the measured steps would take there.   Paper: Sandwich 8.3 and B, Table 4. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/plan.h"

#define OPTIONS(X)                                                                       \
    X(STR, model, NULL, STUDY_TARGET_HELP)                                               \
    OPTION_PRECISION(X)                                                                  \
    X(STR, fit, "sharegpt", "Fit of the trace from which lengths are drawn.")            \
    X(INT, n_requests, "400", "Number of requests to draw.", .min = 1, .max = 100000)    \
    X(INT, max_tok, "1024", "Longest prompt and output; longer ones are cut.",           \
      .unit = "tok", .min = 1, .max = 1 << 20)                                           \
    X(INT, batch, "1", "Sequences of a decode step.", .min = 1, .max = 1024)             \
    X(F64, max_s, "60", "Time limit of the search in each phase.", .unit = "s",          \
      .min = 0.1, .max = 86400)                                                          \
    X(INT, seed, "1", "Seed of lengths, noise and the search.")

#define RESULTS(X)                                                                       \
    X(graph_tuning_s, "s", LOWER,                                                        \
      "cost of the search: search_s on this host, measuring_s on a simulated machine")   \
    X(search_s, "s", MEASURED, "wall time of the search on this host")                   \
    X(measuring_s, "s", 0,                                                               \
      "time that the measured steps would take on the simulated machine")                \
    X(n_measurements, "", LOWER, "measurements of both phases")                          \
    X(n_configs, "", 0, "different configurations measured in both phases")              \
    X(n_trees, "", 0, "different trees explored in both phases")                         \
    X(complete, "", 0, "1: the search ended by itself; 0: its budget ended it")          \
    X(prefill_ranks, "", 0, "ranks of prefill in the plan")                              \
    X(prefill_threads, "", 0, "threads of each prefill rank")                            \
    X(decode_ranks, "", 0, "ranks of decode in the plan")                                \
    X(decode_threads, "", 0, "threads of each decode rank")                              \
    X(request_s, "s", LOWER, "time of a request of the trace that the plan expects")     \
    X(decode_tok_s, "tok/s", HIGHER, "output rate of decode that the plan expects")      \
    X(peak_rss_mb, "MiB", MEASURED, "peak resident memory of the process")

FRAME_TYPES;

struct plan_search {
    FRAME_CELL;
    struct study_planner planner;
    struct plan_search_result found;
    struct plan_lengths lengths;
};

static void plan_search_report(struct plan_search *c, double search_s)
{
    const struct plan_tree_search_counts *d = &c->found.decode.counts;
    const struct plan_tree_search_counts *p = &c->found.prefill.counts;
    const struct plan *plan = &c->found.plan;
    bool simulated = study_target_is_simulated(c->o->model);
    struct results *r = c->r;

    r->search_s = search_s;
    r->measuring_s = simulated ? d->measured_s + p->measured_s : NAN;
    r->graph_tuning_s = simulated ? r->measuring_s : search_s;
    r->n_measurements = (double)(d->n_measurements + p->n_measurements);
    r->n_configs = (double)(d->n_configs + p->n_configs);
    r->n_trees = (double)(d->n_trees + p->n_trees);
    r->complete = d->complete && p->complete;
    r->prefill_ranks = plan->prefill.n_ranks;
    r->prefill_threads = plan->prefill.n_threads;
    r->decode_ranks = plan->decode.n_ranks;
    r->decode_threads = plan->decode.n_threads;
    r->request_s = plan_trace_s(&c->planner.search.trace, c->o->batch,
                                plan->prefill.expected_s, plan->decode.expected_s);
    r->decode_tok_s = (double)c->o->batch / plan->decode.expected_s;
    r->peak_rss_mb = (double)mem_rss_peak_bytes() / (1 << 20);
    frame_why(c->f, NULL, "of a simulated machine only");
    if (simulated)
        study_evidence(c->out, "simulated", NULL);
    study_note(c->out, "plan", plan_to_json(plan));
    study_note_text(c->out, "tree_note", c->found.note);
}

static void plan_search_close(struct plan_search *c)
{
    plan_search_result_free(&c->found);
    study_planner_close(&c->planner);
    mem_free((void *)c->lengths.n_prompt);
}

static int plan_search_run(struct plan_search *c)
{
    const struct opts *o = c->o;
    struct study_plan_opts po = {.target = o->model,
                                 .batch = (int)o->batch,
                                 .precision = o->precision,
                                 .max_s = o->max_s,
                                 .seed = o->seed};
    uint64_t start_ns;

    FRAME_CLOSE(c->f, plan_search_close, c);
    TRY(study_lengths_draw(&c->lengths, o->fit, o->n_requests, o->max_tok, o->seed));
    po.lengths = c->lengths;
    TRY(study_planner_open(&c->planner, &po));
    study_progress(c->out, 0.1, "plan search");
    start_ns = clock_ns();
    TRY(study_plan(&c->found, &c->planner, "search", 0));
    plan_search_report(c, (double)(clock_ns() - start_ns) * 1e-9);
    return OK;
}

STUDY(plan_search,
      "what the plan search of both phases costs, on this host or a simulated machine");
