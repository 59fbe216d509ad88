/* experiments/run/bound.h - what the machine allowed at most while a cell was measured.
 *
 * The machine card was measured before the run, but memory and clocks of a shared host change
 * within minutes. Bandwidth and peak of all CPUs are therefore measured again just before and
 * just after each cell. Where the larger of the two is less or more than the card's, the bounds
 * that the card gives for the system's threads and weights are less or more by the same factor.
 * So is the time in which a line of memory goes from one CPU to another: it shows which
 * caches the host has given to virtual CPUs, and bandwidth depends on these. On Zen 4,
 * two CPUs on one cache: 27 ns and 36 GB/s; on two: 168 ns and 64 GB/s.
 *   Threads: one caller; no other work may run while it measures. */
#ifndef RUN_BOUND_H
#define RUN_BOUND_H

#include <math.h>
#include <stdbool.h>
#include <jansson.h>

#include "base/err.h"

struct run_session;

/* Noise of a busy machine changed it by less, other caches by at least 4. */
#define RUN_MOVED_FACTOR 2.0

enum run_when { RUN_BEFORE, RUN_AFTER };

struct run_bound {
    double read_gbps, peak_gflops; /* NaN: there is none, and why */
    char read_why[96], peak_why[96];
    struct {
        double read_gbps, peak_gflops; /* of f32; NaN: not measured */
        double handoff_ns;             /* of the slowest pair */
    } now[2];                          /* [run_when], of all CPUs */
};
/* No bound, and nothing measured. */
#define RUN_BOUND_NONE                                                                   \
    ((struct run_bound){.read_gbps = NAN,                                                \
                        .peak_gflops = NAN,                                              \
                        .now = {{NAN, NAN, NAN}, {NAN, NAN, NAN}}})

/* Measure the machine for half a second, if there is a card and it can be measured. */
void run_bound_look(struct run_bound *b, const struct run_session *s, enum run_when when);
/* The bounds of a system that describes itself by `described`. Warns of the first one that
 * is missing, and where before and after differ by more than MEASURE_CARD_SPREAD_MAX, or handing
 * over a line by more than RUN_MOVED_FACTOR. */
void run_bound_find(struct run_bound *b, struct run_session *s, const char *cell,
                    const json_t *described);
/* Did a cell that read and computed so much surely do what the bounds say cannot be done? They
 * are then set to NaN, with a warning, and the card is dropped. */
bool run_bound_exceeded(struct run_bound *b, const struct run_session *s,
                        const char *cell, double read_gbps, double gflops);
/* For the record; new reference, NULL: no memory. */
json_t *run_bound_json(const struct run_bound *b);

/* A bound of the card, where the card says `card` of all CPUs and these did `before` and `after`
 * a cell. NaN of one of these: not measured. */
double run_bound_scaled(double bound, double card, double before, double after);

/* The bandwidth in GB/s that a system surely reached which took `gbps` to read what each
 * token needs, `token_bytes`: a cache may have held as much of it as it can, `cache_bytes`,
 * and that part was not read from memory. */
double run_surely_read_gbps(double gbps, double token_bytes, double cache_bytes);

#endif
