/* experiments/study/support/topo.h - what the studies of core selection share: a machine
 * by name or file with its simulator, a model, a trace, and the work of both phases.
 * Threads: one. */
#ifndef STUDY_TOPO_H
#define STUDY_TOPO_H

#include "experiments/frame/frame.h"
#include "format/config.h"
#include "simulate/contention.h"
#include "plan/trace.h"
#include "plan/tree_search.h"
#include "simulate/exhaustive.h"

/* Options that these studies share, which study_topo_open() takes. */
#define OPTIONS_TOPO(X, default_machine)                                                 \
    X(STR, machine, default_machine,                                                     \
      "host, a shipped machine, FILE.xml or synthetic:LEVELS. Files are also "           \
      "searched in the folder hwloc of $SANDWICH_DATA.")                                 \
    OPTIONS_TOPO_WORK(X)
#define OPTIONS_TOPO_WORK(X)                                                             \
    X(STR, model, "sheared-llama-1.3b", "Name of an architecture.")                      \
    X(ENUM, type, "f32", "Type of the weights.", .values = "f32|bf16")                   \
    X(STR, fit, "sharegpt", "Fit of the trace from which lengths are drawn.")            \
    X(INT, n_requests, "400", "Number of requests to draw.", .min = 1, .max = 100000)    \
    X(INT, seed, "1", "Seed of lengths, noise and the search.")
struct study_topo_opts {
    OPTIONS_TOPO(FRAME_OPTION, "")
};
#define STUDY_TOPO_OPTION(kind, name, ...) .name = c->o->name,
/* The same out of the options of a study whose cell is `c`. */
#define STUDY_TOPO_OPTS ((struct study_topo_opts){OPTIONS_TOPO(STUDY_TOPO_OPTION, "")})

/* All of a cell. Zero before open. */
struct study_topo {
    struct topo_machine *machine;
    struct simulate_machine *sim;
    /* Where the rates come from: "of the machine"; "calibrated": this host's card, one thread and
     * all; "assumed": nothing is known, round numbers stand in, no structure is hidden. */
    const char *rates;
    struct topo_tree *tree; /* the fundamental one */
    char note[256];         /* what the tree leaves out, "" */
    struct model_config model;
    struct topo_limits limits;
    struct simulate_workload prefill, decode;
    struct plan_lengths lengths;   /* of the trace */
    double prompt_tok, output_tok; /* their means */
};
/* `card`: the machine card (study_machine()), for "host". After an error study_topo_close()
 * is still to be called. ERR_NOTFOUND: the machine's file is not here, or there is no card. */
MUST int study_topo_open(struct study_topo *out, const struct study_topo_opts *o,
                         const json_t *card);
void study_topo_close(struct study_topo *t); /* twice is fine */

/* Without noise: a step of either phase, and a request of the trace: its prompt and then
 * its output tokens one by one, with weights where decode wants them. */
MUST int study_topo_step_s(const struct study_topo *t, const struct topo_config *c,
                           enum topo_phase phase, double *seconds);
MUST int study_topo_request_s(const struct study_topo *t,
                              const struct topo_config *prefill,
                              const struct topo_config *decode, double *seconds);

/* The simulator as an evaluator, with noise or without. With noise, its size is estimated
 * from STUDY_TOPO_NOISE_N measurements, as on a real machine: what the simulator draws from is
 * not read. `sum_s` adds up what all measurements would have taken there. */
#define STUDY_TOPO_NOISE_N 32
struct study_topo_asked {
    const struct study_topo *t;
    enum topo_phase phase;
    const struct topo_config *placement; /* who placed the weights; NULL: each its own */
    uint64_t seed;
    bool noise;
    double sum_s, noise_frac; /* set; noise_frac: as it was estimated */
};
MUST int study_topo_evaluator(struct plan_evaluation *out,
                              struct study_topo_asked *asked);
/* Search the cores of asked->phase by these times. *out: plan_tree_result_free(). */
MUST int study_topo_find(struct plan_tree_result *out, struct study_topo_asked *asked,
                         const struct plan_tree_search_opts *s);

/* Apply "group(4,1,3) remove(1,4)" to `t`; *out is owned by the caller, also after an
 * error: mem_free(). ERR_ARG: a step that cannot be parsed, or is not legal there. */
MUST int study_topo_steps(struct topo_tree **out, const struct topo_tree *t,
                          const char *steps);
/* The level that is closest to the PUs among those of at most `n` nodes. */
int study_topo_level(const struct topo_tree *t, int n);
/* The first memory-node level, 0 where the machine has one node. */
int study_topo_node_level(const struct topo_tree *t);

/* A tree as figures draw it: the list of its levels as an attribute, and as series the
 * levels' arities, kinds and the CPUs in tree order. */
void study_topo_report_tree(struct study_cell *c, const struct topo_tree *tree);
/* Machine, model, tree and what is assumed, as the cell's attributes. */
void study_topo_report(struct study_cell *c, const struct study_topo *t);

#endif
