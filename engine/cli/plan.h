/* cli/plan.h - what `sandwich plan` is asked, and its search. */
#ifndef ENGINE_MAIN_PLAN_H
#define ENGINE_MAIN_PLAN_H

#include "plan/search.h"

enum cli_plan_type { CLI_PLAN_FILE, CLI_PLAN_F32, CLI_PLAN_F16, CLI_PLAN_BF16 };

struct cli_plan_flags {
    struct plan_tree_search_opts search; /* first: its table's offsets hold here */
    char *method, *machine, *machine_params, *model, *lengths, *out, *show;
    int precision, type, hide;
    int64_t batch, max_ranks, ranks, threads, decode_threads;
    bool strict_tp, one_team, explain, render, progress, help;
};

struct cli_plan_job;
/* Machine, model and trace from the words; ERR_ARG and others say which is wrong. */
MUST int cli_plan_open(struct cli_plan_job **out, const struct cli_plan_flags *f);
void cli_plan_close(struct cli_plan_job **j);
/* Run the method. *out borrows from the job. `progress` as in struct plan_search_opts. */
MUST int cli_plan_search(struct cli_plan_job *j, struct plan_found *out,
                         void (*progress)(void *ctx, const struct plan_progress *p),
                         void *ctx);

/* The i-th machine that can be simulated; NULL after the last, or if none is found. */
const char *cli_plan_machine_name(int i);
/* "host", or no machine named. */
bool cli_plan_is_host(const struct cli_plan_flags *f);

#endif
