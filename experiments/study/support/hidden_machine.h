/* experiments/study/support/hidden_machine.h - a machine whose parameters are known, random or
 * shipped, and the best plans for it: what searches that see only noisy times are judged by.
 * Threads: one. */
#ifndef STUDY_HIDDEN_MACHINE_H
#define STUDY_HIDDEN_MACHINE_H

#include "experiments/study/support/topo.h"
#include "simulate/any_cores.h"

#define OPTIONS_HIDDEN_MACHINE(X)                                                        \
    X(STR, machine, "tiled:0.2",                                                         \
      "KIND:FRACTION: a random machine, drawn with `seed`. What it hides carries less "  \
      "by that fraction. Kinds: tiled, untiled, unequal, nested, crossed (clusters of "  \
      "cores), slow_node, links, noisy. Or a shipped machine, FILE.xml or "              \
      "synthetic:LEVELS.")                                                               \
    OPTIONS_TOPO_WORK(X)                                                                 \
    X(INT, max_cores, "32", "Most cores of a memory node of a random machine.",          \
      .min = 8, .max = 32)

/* It stays until another is asked for: what is best on a shipped machine does not depend on the
 * seed of the noise. Zero before the first. */
struct hidden_machine {
    char key[160];
    struct study_topo t;
    struct topo_config interleaved; /* one rank of all PUs */
    bool is_interleaved;            /* it places the weights of all plans */
    /* The best of all trees, of those without groups, and of any cores. */
    struct simulate_best all, ungrouped, any;
};

/* Have *k hold this machine and its best plans; later calls for the same one are free. */
MUST int study_hidden_machine_open(struct hidden_machine *k,
                                   const struct study_topo_opts *o, int max_cores);
/* Give back what it holds; the argument is a struct hidden_machine. */
void study_hidden_machine_close(void *k);
/* What an evaluator of a decode step needs. */
struct study_topo_asked study_hidden_asked(const struct hidden_machine *k, int64_t seed,
                                           bool noise);
/* A decode step without noise. */
MUST int study_hidden_step_s(const struct hidden_machine *k, const struct topo_config *c,
                             double *seconds);

#endif
