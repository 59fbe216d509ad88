/* ranks/phase.h - phases: by how many ranks and threads, and by which schedules, the
 * steps of prefill or decode are computed; and one forward step. Paper: Sandwich 5.3.
 * Threads: the one that owns the model. */
#ifndef RANKS_PHASE_H
#define RANKS_PHASE_H

#include "model/model.h"
#include "par/coll.h"
#include "step/attend.h"
#include "step/offload.h"
#include "step/op.h"
#include "step/stored.h"

/* How the steps of a phase are computed: by n_ranks tensor-parallel ranks of n_threads
 * threads each. A rank's matrices are views of the model's packed weights, and all phases
 * share the keys and values, so that a step may use another phase than the step before
 * without copying anything.   Paper: Sandwich 5.3. */
struct model_phase;
struct model_phase_opts {
    int n_ranks, n_threads; /* threads of each rank */
    /* [n_ranks * n_threads] threads[i]: the team's thread that is thread i % n_threads of
     * rank i / n_threads. Each number below n_ranks * n_threads occurs once. NULL: i. */
    const int *threads;
    int64_t max_step_tok; /* most tokens in a step; 0: the model's */
    /* How ranks sum, also where a table is set later; NULL: by the table. */
    const struct par_coll *coll;
};
/* ERR_ARG: more threads than the team has, or wrong thread numbers. ERR_LIMIT: more ranks
 * than PAR_RANKS_MAX. ERR_UNSUPPORTED: a deterministic model does not support this number of
 * ranks. Close the phase before its model. */
MUST int model_phase_open(struct model_phase **out, struct model *m,
                          const struct model_phase_opts *o);
void model_phase_close(struct model_phase **p);
/* The table by which ranks choose how they sum messages of different sizes, before the ranks
 * become processes: par_choice_default() at first. A deterministic model sums by itself and
 * never reads it. */
void model_phase_choice_set(struct model_phase *p, const struct par_choice *c);
const struct par_choice *model_phase_choice(const struct model_phase *p);
/* Measure it (par_comm_measure()) with all threads of all ranks at once, as in a step;
 * *timings are those of the first thread of rank 0, which decides for all. One rank has
 * nothing to measure. ERR_NOMEM. */
MUST int model_phase_choice_measure(struct model_phase *p, struct par_timings *timings);
/* The mapping that holds its activations. */
void model_phase_region(const struct model_phase *p, const void **at, size_t *bytes);

/* One step over a batch: at most the phase's max_step_tok tokens in all.
 * logits: [number of chunks that want them, vocab], in chunk order.
 * ERR_ARG: an id outside the vocabulary, a position past the end of the slot. Allocates
 * nothing. */
MUST int model_forward(struct model_phase *p, const struct model_chunk *chunks,
                       int n_chunks, float *logits);

/* The operators of its steps: at first those of model_ops_of(). Lent. */
const struct model_ops *model_phase_ops(const struct model_phase *p);
/* Steps of p run these operators, which are copied; all phases that share keys and values have to
 * store the same ones. Between steps. ERR_ARG: model_ops_check(). ERR_UNSUPPORTED: an operator
 * that this phase cannot run. ERR_STATE: its ranks are processes already. ERR_NOMEM. On error
 * nothing has changed. */
MUST int model_phase_ops_set(struct model_phase *p, const struct model_ops *o);
/* The same with every operator `from` replaced by `to` with ctx. */
MUST int model_phase_ops_replace(struct model_phase *p, const char *from, const char *to,
                                 void *ctx);

/* Steps of p have a part of each MLP computed by o (step/offload.h), which is lent; NULL: by the
 * CPU. ERR_UNSUPPORTED: p has several ranks, or a deterministic model. */
MUST int model_phase_offload_set(struct model_phase *p, const struct model_offload *o);

/* Steps of p call fn as each layer's keys and values are stored (step/stored.h); NULL: they call
 * nothing. Between steps. */
void model_phase_stored_set(struct model_phase *p, model_stored_fn fn, void *ctx);

/* Gives schedules: out[m - 1] for the product of m rows with w, for every m in 1 .. m_max,
 * computed by variant `v` on n_threads threads. Each must be legal. */
typedef int (*model_schedule_fn)(void *ctx, const struct kern_variant *v,
                                 const struct kern_mat *w, int64_t m_max, int n_threads,
                                 struct kern_schedule *out);
/* Ask fn once for every shape of matrix that a rank has, and keep its answers in place of
 * kern_schedule_default(), or restore the default schedules where fn is NULL. A schedule
 * that this phase has no memory for is replaced by the default: the head never splits K,
 * and partial products are bounded. On error nothing has changed. */
MUST int model_phase_schedules(struct model_phase *p, model_schedule_fn fn, void *ctx);
/* Bytes of matrices that a step of `to` reads at addresses where no step of `from` reads: what
 * a switch from one to the other would have to copy or fetch. Both are of one model. */
int64_t model_phase_moved_bytes(const struct model_phase *from,
                                const struct model_phase *to);

#endif
