/* experiments/run/impl.h - shared by run.c, system.c and requests.c.
 */
#ifndef RUN_IMPL_H
#define RUN_IMPL_H

#include <pthread.h>

#include "experiments/run/run.h"

/* A cell in flight. Guarded by the system's lock from the first submit to the last end.
 */
struct run_flight {
    struct metrics_row *rows;
    int64_t **token_ns; /* [n] where each row's times go, n_output_tok each */
    bool *ended;        /* [n] the adapter said so: its prompt is free again */
    size_t n;
    int64_t first_request; /* the system-wide number of row 0 */
    uint64_t start_ns;
    size_t n_dispatched, n_closed, n_failed; /* closed: has its final status */
    size_t n_ended; /* dispatched, and the adapter is done with it */
    /* Closed loop: when each slot became free, in order; [n + concurrency]. */
    int64_t *free_ns;
    size_t n_freed;
    /* Conversations: the rows whose turn before has ended, in the order of those ends; [n]. */
    const bool *follows; /* [n]; NULL: there are none */
    size_t *ready;
    size_t n_ready, n_ready_taken;
    const char *over;                      /* run_cell_end(): why; NULL: it goes on */
    struct metrics_saturation *saturation; /* NULL: it is not looked for */
    bool end_saturated;                    /* the cell ends when it is found */
    bool ended_early;                      /* it was, and the rest was not sent */
    bool finished;                         /* the load generator has returned */
};

struct run_system {
    const struct sut_adapter *adapter;
    struct sut *sut;
    json_t *config;
    int64_t next_request; /* numbers are never reused, so a late event finds no row */
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* for the load generator: a request ended */
    pthread_cond_t progressed; /* for the caller: the load generator ended */
    struct run_flight *flight; /* NULL between cells */
};

/* Give row i its final status. Lock held. */
void run_flight_close(struct run_flight *f, size_t i, enum metrics_status status,
                      int64_t done_ns, const char *error);
/* After an event that the detector of saturation was told: end the cell if it asks for that.
 * Lock held. */
void run_flight_saturation(struct run_flight *f);

#endif
