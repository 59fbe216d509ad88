/* experiments/run/clients.h - load from several machines at once, for `testbed bench --clients`.
 *
 * Each machine runs `testbed bench -`, which a command such as ssh starts. It makes the requests of
 * a load as this process does, from the same options and seeds, and keeps its share. All begin at
 * one time, and the rows of all are put on this machine's clock. How far another is ahead of it is
 * bounded by round trips before and after the load, whatever part of each was which way. Both sides
 * send lines of JSON; rows follow as they are in memory, since both are of one commit.
 * Threads: one. */
#ifndef RUN_CLIENTS_H
#define RUN_CLIENTS_H

#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

#include "experiments/load/load.h"
#include "experiments/run/run.h"

/* How far another clock is ahead of ours: at least and at most. */
struct run_clock {
    int64_t lo_ns, hi_ns;
};
struct run_round_trip {
    int64_t sent_ns, there_ns,
        back_ns; /* there_ns: by the other clock, between the two others */
};
/* What n > 0 round trips leave as possible. Where they contradict each other, since the clocks run
 * unlike, what is between them. */
struct run_clock run_clock_of(const struct run_round_trip *v, int n);
/* Both, and what is between them: a clock that drifted from one to the other. */
struct run_clock run_clock_join(struct run_clock a, struct run_clock b);

/* Keep every n-th conversation, from the k-th on, and of the users of a closed loop as many as come
 * to this share. k < n, and a closed loop has n users at least. */
void run_requests_share(struct run_requests *q, struct load_opts *load, int k, int n);

/* ---- the machine that has the result ---- */

struct run_clients;
/* Start a client on each of `hosts`, in commas, by the shell: `command`, in which $HOST is its
 * name, and "bench -". hello: what run_bench_client() is to know, borrowed. *out: NULL on error.
 * ERR_ARG: a host without a name. ERR_IO: what a host said, or that it has ended. */
MUST int run_clients_open(struct run_clients **out, const char *hosts,
                          const char *command, const json_t *hello);
void run_clients_close(struct run_clients **c);
/* As run_cell() of n requests, by no more clients than there are users or requests. seed: of the
 * requests. end_ns: when what is not over is canceled; 0: never. ERR_IO: a client failed. */
MUST int run_clients_cell(struct run_result *out, struct run_clients *c,
                          const struct load_opts *load, int64_t seed, size_t n,
                          uint64_t end_ns);
/* Of the last cell: [{"host", "n_requests", "clock_ahead_ms", "clock_error_ms"}]. New reference. */
json_t *run_clients_json(const struct run_clients *c);

/* ---- a client ---- */

/* `what`, taken, as a line. ERR_IO, ERR_NOMEM. */
MUST int run_client_write(FILE *out, json_t *what);
/* The next line that does not ask for the time, which is answered. NULL and ERR_IO: there is no
 * other. */
MUST int run_client_wait(json_t **out, FILE *in, FILE *answers);
/* The rows of a cell, as run_clients_cell() reads them. */
MUST int run_client_rows(FILE *out, const struct run_result *r);

#endif
