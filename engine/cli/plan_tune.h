/* cli/plan_tune.h - what `sandwich plan --tune` adds: tuning of a plan's schedules, and the
 * replay of a trace by the engine. */
#ifndef ENGINE_MAIN_PLAN_TUNE_H
#define ENGINE_MAIN_PLAN_TUNE_H

#include "plan/plan.h"
#include "plan/trace.h"

struct cli_replay {
    const char *model;
    const char *plan_path; /* a plan that is replayed is a temporary file next to it */
    const struct plan_trace *trace;
    int precision;          /* enum kern_precision */
    int kv_type;            /* enum kern_kv_type */
    int64_t batch, max_tok; /* max_tok: longest sequence */
    double weight_bytes;    /* that opening an engine packs */
};
/* How many of the trace's prompts a replay can run in about budget_s, 1 to PLAN_POINTS_MAX. */
int cli_replay_size(const struct cli_replay *r, const struct plan *p, double budget_s);
/* Open the engine with the plan and run `size` prompts, half as many contexts, and close it.
 * *seconds: of a request. Where *p does not say how its ranks sum, it then does. */
MUST int cli_replay(const struct cli_replay *r, struct plan *p, int size,
                    double *seconds);

#endif
