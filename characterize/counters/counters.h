/* characterize/counters/counters.h - counts of the hardware, the kernel and the engine during
 * a piece of work, and the reasons for what could not be counted.
 *
 * A provider is one file in counters/provider/ ending in one `const struct
 * counters_provider counters_<stem>`. It counts named events for the thread that opened
 * them. Events that do not fit into the processor's registers at once go into further
 * passes: the caller runs the same deterministic work once per pass, so that nothing
 * is multiplexed. A value that was not counted is NaN with errno and remedy,
 * never 0.   Paper: Sandwich 3.1.
 * Threads: a set belongs to the thread that opened it; others may only read its values. */
#ifndef COUNTERS_COUNTERS_H
#define COUNTERS_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Memory controllers of the largest machines of our lists (two packages of twelve, with
 * reserve). */
#define COUNTERS_PARTS_MAX 32
#define COUNTERS_NAME_MAX  96

struct counters_value {
    double value; /* of all parts; NaN: not counted */
    /* Units that were counted apart, such as memory controllers; 1 for most events. */
    int n_parts;
    double part[COUNTERS_PARTS_MAX];
    /* The time it was wanted, and the time it really counted; 0 where the provider keeps
     * none. */
    uint64_t enabled_ns, running_ns;
    int error;     /* errno when there was one, else 0 */
    char why[192]; /* "", or why there is no value and what to change */
};

struct counters_provider {
    const char *name, *help;
    /* A group counts all its events at once. `add` returns OK, ERR_LIMIT (the registers
     * are full: another group), or any other error: then *v says why, and the event has no
     * place in the group. `stop` fills one value for each event added, in order, since
     * `start`. A NULL `open`: the provider counts whole programs only, see program.h. */
    int (*open)(void **group);
    int (*add)(void *group, const char *event, struct counters_value *v);
    int (*start)(void *group);
    int (*stop)(void *group, struct counters_value *v);
    void (*close)(void *group);
};
extern const struct counters_provider *const counters_providers[];

/* ERR_NOTFOUND names the nearest. */
MUST int counters_provider_find(const char *name, const struct counters_provider **out);

struct counters;

/* Events of one provider for the calling thread. An event that cannot be counted is not an
 * error: its value says why. *out: counters_close(), by the same thread.
 * ERR_ARG: a name too long. ERR_NOMEM. */
MUST int counters_open(struct counters **out, const struct counters_provider *p,
                       const char *const *events, int n);
void counters_close(struct counters **c);

/* The number of times the work must run; 0 if none of the events can be counted. */
int counters_passes(const struct counters *c);
/* Whether the i-th event has a place in some pass. */
int counters_countable(const struct counters *c, int i);
/* Around a run of the work; counts of several runs in the same pass add up. A pass past
 * the last counts nothing. Failing to start or stop makes the pass's events
 * unavailable. */
void counters_start(struct counters *c, int pass);
void counters_stop(struct counters *c, int pass);
/* [n] as given to counters_open(). An event no run has counted is NaN. */
void counters_read(const struct counters *c, struct counters_value *out);

/* A value that says it is missing: sets NaN, `error` and the text. */
void counters_none(struct counters_value *v, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an event that the kernel refused with this errno, and what would help. */
void counters_refused(struct counters_value *v, const char *event, int error);
/* v += more, as values of the same event from other threads or runs: NaN stays NaN, the
 * first reason stays. */
void counters_add(struct counters_value *v, const struct counters_value *more);
/* A value to add to: 0 with no parts. */
struct counters_value counters_zero(void);

#endif
