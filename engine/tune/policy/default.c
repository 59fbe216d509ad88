/* The schedules of an untuned engine: the cost model of kern_schedule_default(), no search. */
#include "tune/search.h"

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    (void)arg, (void)q, (void)i, (void)s, (void)t; /* *s is the default already */
    return OK;
}

static const struct tune_steps steps = {.one = one};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    return tune_search_run(c, out, &steps, NULL);
}

const struct tune_policy tune_policy_default = {
    .name = "default",
    .help = "the cost model of an untuned engine; measures nothing",
    .run = run,
};
