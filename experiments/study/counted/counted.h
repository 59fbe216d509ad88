/* experiments/study/counted/counted.h - a phase of the engine under every counter there is:
 * the hardware's, the kernel's, the engine's own totals read back through PAPI, the
 * processor's constant clock; and the same engine in a cache simulation.
 *
 * The same deterministic work is run once a pass, so that no counter takes turns with
 * another. Each thread opens, starts, stops and reads its own.   Paper: Sandwich 3.1.
 * Threads: one caller; it becomes thread 0 of the engine's team. */
#ifndef STUDY_COUNTED_H
#define STUDY_COUNTED_H

#include "characterize/counters/metrics.h"
#include "experiments/load/study.h"
#include "serve/serve.h"

struct study_counted_opts {
    const char *model, *events; /* paths; events: the folder of the lists of events */
    enum serve_phase phase;
    int64_t batch, prompt_tok; /* sequences of a step, tokens of each prompt */
    int64_t steps;             /* of decode that are counted */
    int64_t threads, seed;     /* 0 threads: all CPUs of the budget */
};

/* The counters of the kernel itself. */
enum { STUDY_FAULTS, STUDY_SWITCHES, STUDY_TASK_NS, STUDY_N_SOFT };

/* Members of struct serve_totals that are published. */
#define STUDY_N_TOTALS 6
extern const struct study_total {
    const char *name;
    size_t offset;
} study_totals[STUDY_N_TOTALS];

struct study_counted {
    struct counters_list list;
    struct counters_value raw[COUNTERS_EVENTS_MAX]; /* of the list, all threads */
    struct counters_value metrics[COUNTERS_N_METRICS];
    struct counters_value soft[STUDY_N_SOFT];     /* all threads */
    struct counters_value totals[STUDY_N_TOTALS]; /* as PAPI reads them ... */
    struct serve_totals own;                      /* ... as the engine accounts them */
    double ticks;    /* of the constant clock, all threads; NaN: there is none */
    double tick_ghz; /* what it ran at meanwhile */
    int n_threads, n_passes;
};
/* Open the engine, warm up, run all passes, close it. A counter that is unavailable is not an
 * error: its value says why. ERR_ARG: no model. */
MUST int study_counted_run(struct study_counted *out, const struct study_counted_opts *o,
                           struct study_cell *progress);

/* One prompt and a few tokens of a small model, on one thread, under callgrind. */
struct study_simulated {
    double ll_misses_per_tok; /* data read from memory */
    double lines_per_tok;     /* arithmetic: the weights */
    double instructions_per_tok, ll_mpki;
};
/* ll_bytes: the simulated last level, a power of two below the model. ERR_NOTFOUND: no
 * valgrind here. */
MUST int study_simulated_run(struct study_simulated *out, const char *model,
                             enum serve_phase phase, int64_t ll_bytes);

#endif
