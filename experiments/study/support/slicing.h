/* experiments/study/support/slicing.h - a step of a model whose weights exceed an accelerator's
 * memory, by the paper's linear models of its Table I.   Paper: ScheInfer V.   Threads: one. */
#ifndef STUDY_SLICING_H
#define STUDY_SLICING_H

#include "hetero/policy.h"

const char *study_slicing_model_name(int i);
const char *study_slicing_policy_name(int i);

#define OPTIONS_SLICING(X)                                                               \
    X(STR, model, "llama-2-70b", "Model.", .unit = "NAME",                               \
      .names = study_slicing_model_name)                                                 \
    X(ENUM, testbed, "A", "Machine of the paper's Table I.", .values = "A|B|C")          \
    X(ENUM, type, "as_paper",                                                            \
      "Type of the weights; as_paper: that in which the paper measured this "            \
      "model.",                                                                          \
      .values = "as_paper|fp16|int4")

/* The options by which a case is opened. */
struct study_slicing_opts {
    const char *model;
    int testbed, type;
    int64_t n_tok, n_units;
    double budget_gb, cpu_factor, accel_tmacs;
    bool bus_limit, as_printed, no_gg;
};
/* Those that both studies have, out of the options of a study whose cell is `c`. */
#define STUDY_SLICING_OPTS                                                               \
    ((struct study_slicing_opts){.model = c->o->model,                                   \
                                 .testbed = c->o->testbed,                               \
                                 .type = c->o->type,                                     \
                                 .n_tok = c->o->n_tok,                                   \
                                 .n_units = c->o->n_units,                               \
                                 .budget_gb = c->o->budget_gb,                           \
                                 .cpu_factor = c->o->cpu_factor,                         \
                                 .accel_tmacs = c->o->accel_tmacs,                       \
                                 .bus_limit = c->o->bus_limit})

struct study_slicing {
    struct hetero_machine machine;
    struct hetero_case k; /* points to `machine` */
};
MUST int study_slicing_open(struct study_slicing *out,
                            const struct study_slicing_opts *o);
MUST int study_slicing_step(struct hetero_result *r, const char *policy,
                            const struct hetero_case *k);
/* The study's own policy: what is not possible is skipped with its reason, and is no failure. */
MUST int study_slicing_own_step(struct hetero_result *r, const char *policy,
                                const struct hetero_case *k);
/* Another policy: NaN, with its reason in err_msg(), where it is not possible. */
MUST int study_slicing_other_s(double *s, const char *policy,
                               const struct hetero_case *k);

#endif
