/* cli/plan.h - the options of `sandwich plan`, and its search. */
#ifndef ENGINE_MAIN_PLAN_H
#define ENGINE_MAIN_PLAN_H

#include "plan/search.h"

enum cli_plan_type { CLI_PLAN_FILE, CLI_PLAN_F32, CLI_PLAN_F16, CLI_PLAN_BF16 };

struct cli_plan_flags {
    struct plan_tree_search_opts search; /* first: its table's offsets hold here */
    char *method, *machine, *machine_params, *model, *lengths, *out, *show;
    char *budget, *cache; /* of --tune */
    int precision, kv_type, type, hide;
    int64_t batch, max_ranks, ranks, threads, decode_threads, top_k;
    bool strict_tp, one_team, explain, render, progress, tune;
};

/* Called with the progress of a search; fn may be NULL. */
struct cli_plan_progress {
    void (*fn)(void *ctx, const struct plan_progress *p);
    void *ctx;
};

struct cli_plan_job;
/* Machine, model and trace from the words; ERR_ARG and others say which is wrong. */
MUST int cli_plan_open(struct cli_plan_job **out, const struct cli_plan_flags *f);
void cli_plan_close(struct cli_plan_job **j);
/* The method that was asked for and what to ask it. *o borrows from the job and must stay
 * where it is. */
struct plan_method;
MUST int cli_plan_ask(struct cli_plan_job *j, struct plan_search_opts *o,
                      const struct plan_method **method,
                      const struct cli_plan_progress *progress);
/* Search, tune and replay, and hand the plan to `put` (--tune). ERR_CANCELED: the command was
 * interrupted. */
MUST int cli_plan_tune(struct cli_plan_job *j, const struct cli_plan_flags *f,
                       const struct cli_plan_progress *progress,
                       int (*put)(const struct cli_plan_flags *f, const struct plan *p));

/* The i-th machine that can be simulated; NULL after the last, or if none is found. */
const char *cli_plan_machine_name(int i);
/* "host", or no machine named. */
bool cli_plan_is_host(const struct cli_plan_flags *f);

#endif
