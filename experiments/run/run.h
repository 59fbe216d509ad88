/* experiments/run/run.h - one cell: send requests at their times, stamp every event.
 *
 * A load-generator thread dispatches at the intended times; the adapter's thread reports
 * tokens and the harness stamps them at once into arrays reserved before the start:
 * nothing is allocated while requests are out, and the one lock is held for a few stores.
 * Time-outs and failures are rows like the others. Threads: all calls from one thread;
 * the load generator is inside run_cell(). */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <jansson.h>

#include "base/err.h"
#include "baselines/sut.h"
#include "datasets/dataset.h"
#include "experiments/load/load.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/saturation.h"
#include "experiments/run/energy.h"

/* An open system under test. */
struct run_system {
    const struct sut_adapter *adapter;
    struct sut *sut;
    json_t *config;
    int64_t next_request; /* numbers are never reused, so a late event finds no row */
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* for the load generator: a request ended */
    pthread_cond_t progressed; /* for the caller: the load generator ended */
    struct flight *flight;     /* of the cell that runs; NULL between cells */
};

/* config: the job's "system" object of a cell, "adapter" included; copied. */
MUST int run_system_open(struct run_system **out, const json_t *config);
void run_system_close(struct run_system **s);
/* The system's description of itself; a new reference. */
MUST int run_system_describe(struct run_system *s, json_t **out);
bool run_system_has_bound(struct run_system *s);
/* CPU time that the system has taken; NaN: not known. */
double run_system_cpu_s(const struct run_system *s);

/* The requests of a cell, in the order of dispatch. */
struct run_requests {
    struct sut_request *v;
    size_t n;
    size_t n_warmup;   /* the first n_warmup requests */
    size_t n_cut;      /* shortened to fit the system's longest sequence */
    size_t n_repeated; /* items used again because the dataset is shorter than the cell */
    size_t
        n_filtered; /* items left out by dataset.filter after their text was tokenised */
    double *arrival_s; /* [n]; NULL: closed loop */
    bool *follows;     /* [n]: the next turn of the request before; NULL: none is */
    double *pause_s;   /* [n]: of a turn, besides load.think_s; NULL: none is */
    bool own_answers;  /* which has the system's own answer to that before it */
    int32_t *ids;      /* backing store of the prompts */
    size_t n_ids;
    uint64_t
        start_ns; /* when the cell begins, by clock_ns(); earlier than now: at once */
};
/* Tokenise or synthesise the prompts of `d` for the system and fix the arrival times.
 * ERR_ARG: the dataset is empty, or has texts and the system no tokenizer. */
MUST int run_requests_new(struct run_requests *out, struct run_system *s,
                          const struct dataset *d,
                          const struct dataset_opts *dataset_opts,
                          const struct load_opts *load, const struct load_seeds *seeds);
void run_requests_fini(struct run_requests *r);

/* The results of a cell. */
struct run_result {
    struct metrics_row *rows; /* [n], by their intended start */
    size_t n;
    int64_t *token_ns; /* backing store of rows[].token_ns */
    double *timer_error_us;
    size_t n_timer_error;
    struct run_energy energy;
    double wall_s;
    struct metrics_saturated saturated; /* by load.saturation; all zero: not found */
    bool ended_early;  /* for that reason: the rows are those that were sent */
    size_t n_not_sent; /* then how many were not */
    bool system_stuck; /* requests never ended: close the system before the requests */
    /* Of run_paired(): [n] when each turn began, in seconds on the clock of all systems; between
     * these turns, how long the system waited and the CPU time that it took (NaN: unknown). */
    double *turn_s, idle_s, idle_cpu_s;
};

/* Called now and then from the calling thread. */
typedef void (*run_tick_fn)(void *ctx, size_t n_ended, size_t n_failed);

MUST int run_cell(struct run_result *out, struct run_system *s,
                  const struct run_requests *requests, const struct load_opts *load,
                  run_tick_fn tick, void *ctx);
struct run_entry {
    struct run_system *s;
    struct run_result *result;
};
/* Send each request to every system, one right after the other, in the order of compare_turn(). The
 * times of an entry's rows are on a clock that stands still during the turns of the others. */
void run_paired(const struct run_entry *e, int n, const struct run_requests *requests,
                const struct load_opts *load, run_tick_fn tick, void *ctx);
/* For a tick: end the cell now. What was sent is canceled (METRICS_TIMEOUT), the rest is not
 * sent (METRICS_REJECTED), with `why` as the error of both. Lent, for as long as the cell. */
void run_cell_end(struct run_system *s, const char *why);
void run_result_fini(struct run_result *r);
/* Rows by their intended start. */
void run_result_sort(struct run_result *r);

/* Fill decode_bytes and prefill_flop of the rows from what the system states. */
void run_bounds(struct run_result *r, struct run_system *s);

#endif
