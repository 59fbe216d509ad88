/* plan/pipeline_state.h - the parts of a pipeline that are finished, in memory and as a file;
 * for plan/pipeline.c and tests only. */
#ifndef PLAN_PIPELINE_STATE_H
#define PLAN_PIPELINE_STATE_H

#include "plan/pipeline.h"

#define PLAN_TRIALS_MAX 4096

struct plan_state {
    struct plan *v;  /* [n] candidates, the method's choice first; owned */
    int n, n_tuned;  /* those whose schedules are tuned come first */
    int replay_size; /* 0: no replay yet */
    struct {
        int alternative;
        double seconds;
    } trials[PLAN_TRIALS_MAX];
    int n_trials;
};

/* ERR_NOTFOUND: the file does not exist, or it is ignored with a warning because it is damaged
 * or its key differs; *s is then empty. *s: plan_state_fini(). */
MUST int plan_state_read(struct plan_state *s, const struct plan_pipeline_opts *o);
MUST int plan_state_write(const struct plan_state *s, const struct plan_pipeline_opts *o);
void plan_state_fini(struct plan_state *s); /* twice is fine */

#endif
