/* experiments/study/support/lever_work.h - work whose arithmetic and whose bytes can be varied one
 * without the other: steps of the engine, and controls whose bound is known.
 *
 * A step has two sizes. LEVER_FEWER has about three quarters of the arithmetic of LEVER_BASE, for
 * the same weights: tokens of the prompt, or sequences of a decode step. Where there is
 * only one, of a decode step's sequences or of multiply-adds, it has two in their place.
 *
 * A step of serving is what a closed loop of N sequences computes from one prompt to the next: that
 * prompt, alone, and then so many decode steps of all N that one of them has its output. It has no
 * scheduler, no transport and no waiting for requests.
 *
 * study_lever_bytes_set() leaves three quarters of the weights' bytes to fetch, by the same
 * instructions in the same order: panels of a packed matrix, which follow one another, then begin
 * three quarters of a panel apart, so that a panel ends with what the next one begins with. The
 * second reader finds it in a cache of its core. It is as if memory were 4/3 as fast, whatever else
 * bounds the step, but for two things by which the effect is too small, by a seventh for the
 * control `stream`: the cache takes time, too, and hardware prefetching starts again where reads go
 * back. Results are wrong meanwhile, but are of weights.
 *
 * A control reads a buffer, each thread its part, and has n_fma multiply-adds for each f32:
 *   fma     a part that the first-level cache holds, 64 or 48: bound by arithmetic
 *   stream  a part far above the caches, 1 or 2: bound by memory
 *   cache   all parts together are half of the last-level cache, 1 or 2: bound by that cache, or
 *           by memory as far as others have displaced it
 * Its parts are read in chunks, which take the place of panels. Chunks of 256 kB go back so seldom
 * that prefetching hardly matters: on Zen 4 64 kB gave `stream` 0.55 for bandwidth, 256 kB 0.87.
 * Threads: one caller; it becomes thread 0 of the team. */
#ifndef STUDY_LEVER_WORK_H
#define STUDY_LEVER_WORK_H

#include "experiments/study/support/engine.h"

enum study_lever_size { LEVER_BASE, LEVER_FEWER, LEVER_N_SIZES };

struct study_lever_opts {
    /* fma, stream, cache, prefill, or decode_N or serving_N of N sequences */
    const char *work;
    const char *model;
    int precision;
    int64_t n_prompt_tok, n_output_tok; /* the latter of serving */
    int64_t
        n_ctx_tok; /* tokens before a decode step; of serving half of the output is there */
    int64_t stream_bytes;
};

struct study_lever_work {
    struct cpu_budget budget;
    struct par_team *team;    /* the engine's, or a control's own */
    int64_t n[LEVER_N_SIZES]; /* tokens, sequences, or n_fma */
    int64_t n_tok;            /* of a step of LEVER_BASE: of the prompt, or decoded */
    struct {
        double flop, bytes;
    } cost[LEVER_N_SIZES]; /* of a step */
    double fewer_bytes;    /* that a step of LEVER_BASE has to read with fewer */
    bool fewer;
    /* the engine */
    struct model_bench engine;
    struct model_phase *phase, *fewer_phase; /* NULL: a control */
    int64_t n_prompt_tok[LEVER_N_SIZES];     /* 0: no prompt is computed */
    int64_t n_decode, n_ctx_tok;             /* decode steps, tokens before them */
    /* a control */
    struct par_team *own_team;
    char *buffer;
    size_t part_bytes, chunk_bytes;
    double sum; /* what it computed */
};

/* ERR_ARG: an unknown `work`, or no model for the engine's. ERR_UNSUPPORTED: panels of the model's
 * type of weights cannot overlap. Else as engine.h. study_lever_close() also after an error. */
MUST int study_lever_open(struct study_lever_work *w, const struct study_lever_opts *o);
void study_lever_close(struct study_lever_work *w); /* twice is fine */

MUST int study_lever_step(struct study_lever_work *w, enum study_lever_size size,
                          double *seconds);
void study_lever_bytes_set(struct study_lever_work *w, bool fewer);
/* Seconds of CPU time that each thread of the team has had so far, their mean. */
double study_lever_cpu_s(struct study_lever_work *w);

#endif
