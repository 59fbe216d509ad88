/* plan/plan.h - the phase plan: which cores prefill uses, which decode uses, how their matrix
 * products are divided, how their ranks sum, and why.
 *
 * A JSON file, written by `sandwich plan`, read by the engine, rendered for baselines. Until
 * a plan is searched the default uses every CPU of the budget for both phases, as one
 * rank.   Paper: Sandwich 5. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>

#include "cpu/cpu.h"
#include "par/coll.h"
#include "plan/costs.h"
#include "tune/schedule_cache.h"

/* A service configuration by operating system CPU numbers: rank r's threads run on
 * cpus[r * n_threads ... (r + 1) * n_threads). */
struct plan_phase {
    int n_ranks, n_threads;  /* threads of each rank */
    int cpus[CPU_MAX];       /* [n_ranks * n_threads] */
    int nodes[CPU_MAX];      /* [n_ranks * n_threads] memory node of each, -1 unknown */
    double expected_s;       /* a step over the trace it was searched for; NAN: none */
    struct plan_costs costs; /* of a step by its rows; n = 0: none */
    /* How ranks sum; n = 0: the engine measures it when it opens. */
    struct par_choice allreduce;
    char why[600];
};

/* A configuration that was tried on a trace before this plan was chosen. */
struct plan_replay {
    char name[160];         /* "decode 2 x 1 on CPUs 0-1, prefill 1 x 2 on CPUs 0-1" */
    bool tuned;             /* with schedules that were tuned for it */
    double seconds, lo, hi; /* of a request of the trace; NAN: unknown */
    int n;                  /* measurements */
};
#define PLAN_TRIES_MAX 64

struct plan {
    /* The CPUs of both phases, each once, decode's first: threads of the team are
     * numbered like this, so that a thread never moves. */
    int n_cpus;
    int cpus[CPU_MAX];
    struct plan_phase prefill, decode;
    char machine[128]; /* whose CPUs these are: "host", a file's stem; "" unknown */
    char evidence[24]; /* "measured", "simulated"; "" where nothing was searched */
    char source[64];   /* "default", "--threads", a file's path */
    char model_id[17]; /* of format_identity(): what it was searched for; "" unknown */
    char method[24];   /* that chose it (plan/method.h); "" unknown */
    /* Schedules of the matrix products of both phases, of which plan_schedules() gives those
     * of a phase; NULL: none, the cost model chooses. Owned. */
    struct tune_cache *schedules;
    /* The replays that the final choice was made from, and its reason; n_tries = 0: no such
     * choice. */
    int n_tries, chosen_try; /* chosen_try: its index */
    struct plan_replay tries[PLAN_TRIES_MAX];
    char why[600];
};

/* Free what the plan owns. The plan may be all zero; twice is fine. */
void plan_fini(struct plan *p);
/* A copy that owns its schedules. ERR_NOMEM: *to is then all zero. */
MUST int plan_copy(struct plan *to, const struct plan *p);
/* Its schedules with the thread set of the phase `f` (whose ranks' threads come first to
 * last), lent; NULL: the plan has none. */
MUST int plan_schedules(const struct plan *p, const struct plan_phase *f,
                        struct tune_cache **out);

/* All CPUs of the budget for both phases, one rank; threads > 0 asks for exactly that
 * many. ERR_ARG: more threads than CPUs allowed. */
MUST int plan_default(struct plan *p, const struct cpu_budget *b, int threads);
/* Each phase's CPUs as n_ranks ranks, an equal run of them each. ERR_ARG: they do not
 * divide by that. */
MUST int plan_split(struct plan *p, int n_ranks);
/* Do both phases have the same ranks on the same CPUs? Then there is nothing to switch. */
bool plan_is_one(const struct plan *p);
/* Has each of them one rank? */
bool plan_has_one_rank(const struct plan *p);
/* Set p->cpus from the phases. ERR_LIMIT: more than CPU_MAX. */
MUST int plan_number_cpus(struct plan *p);
/* *p: plan_fini(), also after an error. */
MUST int plan_read(struct plan *p, const char *path);
MUST int plan_write(const struct plan *p, const char *path);
/* A table of all-reduces as the file has it: an algorithm's name, or an array. New reference;
 * NULL: no memory. */
json_t *plan_allreduce_to_json(const struct par_choice *c);
MUST int plan_allreduce_of_json(struct par_choice *c, const json_t *a, const char *where);
/* The plan as a JSON object. New reference; NULL: no memory. */
json_t *plan_to_json(const struct plan *p);
MUST int plan_of_json(struct plan *p, const json_t *o, const char *where);

/* Can this engine run it as it stands: decode's CPUs among prefill's, CPUs that this
 * process may use. ERR_UNSUPPORTED or ERR_ARG says what not. */
MUST int plan_runnable(const struct plan *p, const struct cpu_budget *b);

/* For people: a few lines a phase. *text owned by the caller, mem_free(). */
MUST int plan_text(const struct plan *p, char **text);
/* For baselines and shells: PREFILL_RANKS=, PREFILL_THREADS=, PREFILL_CPUS= (a list a rank,
 * joined by '|'), PREFILL_NODES=, where there is a table PREFILL_STEP_S= (rows:seconds,
 * joined by '|'), and the same for DECODE. */
MUST int plan_render(const struct plan *p, char **text);

#endif
