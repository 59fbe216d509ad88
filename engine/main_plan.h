/* engine/main_plan.h - what `sandwich plan` is asked, and its search. */
#ifndef ENGINE_MAIN_PLAN_H
#define ENGINE_MAIN_PLAN_H

#include "plan/search.h"

enum main_plan_type { MAIN_PLAN_FILE, MAIN_PLAN_F32, MAIN_PLAN_F16, MAIN_PLAN_BF16 };

struct main_plan_flags {
    struct plan_tree_search_opts search; /* first: its table's offsets hold here */
    char *machine, *machine_params, *model, *lengths, *out, *show;
    int precision, type, hide;
    int64_t batch, max_ranks, threads, decode_threads;
    bool strict_tp, one_team, explain, render, help;
};

struct main_plan_job;
/* Machine, model and trace from the words; ERR_ARG and others say which is wrong. */
MUST int main_plan_open(struct main_plan_job **out, const struct main_plan_flags *f);
void main_plan_close(struct main_plan_job **j);
/* Search. *out borrows from the job. */
MUST int main_plan_search(struct main_plan_job *j, struct plan_found *out);

/* "host", or no machine named. */
bool main_plan_is_host(const struct main_plan_flags *f);

#endif
