/* plan/pipeline.h - from a machine, a model and a trace to one tuned plan: a method proposes
 * configurations, the schedules of the best are tuned for what their ranks compute, the
 * engine replays the trace with each, and the fastest is kept.
 *
 * How schedules are tuned and how the engine replays are the caller's functions, so that the
 * decisions here can be tested with scripts. Each part that is finished is written to a file
 * at once; a run that was interrupted continues there.   Paper: Sandwich Fig. 4.
 *   Threads: one. */
#ifndef PLAN_PIPELINE_H
#define PLAN_PIPELINE_H

#include "measure/compare.h"
#include "plan/method.h"

struct plan_pipeline_opts {
    const struct plan_method *method;
    const struct plan_search_opts *search; /* also progress and stop of the later parts */
    int top_k; /* configurations that are tuned and replayed, 1 to PLAN_RANKED_MAX */
    double budget_s;        /* of this run; 0: no limit but the search's own */
    const char *state_path; /* the file of finished parts */
    const json_t *key; /* all that they depend on; those of another key are not used */
    /* Tune the schedules of both phases of *p into p->schedules, in about budget_s. */
    int (*tune)(void *ctx, struct plan *p, double budget_s);
    /* How much of the trace a replay can run in about budget_s, as a number that replay()
     * understands. `p`: one of the plans, for its expected times. */
    int (*replay_size)(void *ctx, const struct plan *p, double budget_s);
    /* Set *seconds to the time of a request of the trace. Where the plan does not say how its
     * ranks sum, set it in *p to what the engine chose. */
    int (*replay)(void *ctx, struct plan *p, int size, double *seconds);
    void *ctx;
    const struct measure_clock
        *clock; /* of the comparison of replays; NULL: the machine's */
};

struct plan_pipeline_result {
    struct plan plan; /* owned, plan_fini() */
    char *explain;    /* of the method, "" where its part was finished earlier; owned */
    char note[200];   /* of the method, as in struct plan_search_result */
    int n_known;      /* parts that an earlier run had finished */
    double search_s, tune_s, replay_s; /* of this run */
};

/* ERR_CANCELED: search->stop was set; the same call continues. Other errors are those of the
 * method and of the functions. */
MUST int plan_pipeline(struct plan_pipeline_result *out,
                       const struct plan_pipeline_opts *o);
void plan_pipeline_result_free(struct plan_pipeline_result *f); /* twice is fine */
/* Remove the file of finished parts, once the plan is written. */
void plan_pipeline_done(const struct plan_pipeline_opts *o);

#endif
