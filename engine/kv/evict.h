/* kv/evict.h - whose keys and values are given up where memory is short: plug-ins in kv/evict/.
 *
 * Between two turns of a session no request uses its keys and values, and the next one may. Such an
 * idle sequence gives back memory from its end, so that its first tokens stay of use. A policy says
 * what keeping one is worth. One file ends in one `const struct kv_evict kv_evict_<stem>`.
 * Experiments run all of them; the engine gives up whole sequences, in the order of `lru`.
 * Threads: stateless. */
#ifndef KV_EVICT_H
#define KV_EVICT_H

#include <stdbool.h>

#include "base/err.h"

/* An idle sequence. */
struct kv_idle {
    double idle_s; /* since a request used it */
    /* Of ln(seconds) from an answer to the next request, by kv_pauses_expect(). */
    double pause_log_mean, pause_log_std;
    double token_s; /* time to compute its last token again */
    bool ended;     /* its last answer called no tool, so that no request should follow */
    bool queued;    /* the next request has come, and waits */
    double next_s;  /* true time until it comes, for `oracle`; INFINITY: none does */
};

struct kv_evict {
    const char *name, *help;
    /* What it is worth to keep its last tokens: the least worth go first. */
    double (*worth)(const struct kv_idle *k);
};

extern const struct kv_evict *const kv_evicts[]; /* NULL-terminated, written by make */
/* ERR_NOTFOUND names the nearest. */
MUST int kv_evict_find(const char *name, const struct kv_evict **out);

/* Times from an answer to the next request that have been seen: sums over ln(seconds). */
struct kv_pauses {
    double n, sum, sum_sq;
};
void kv_pauses_add(struct kv_pauses *p, double seconds);
/* The pause of a session with `own` pauses among `all`. Sessions are taken to differ as much as the
 * pauses of one, so that n of its own weigh n / (n + 1) against the mean of all. */
void kv_pauses_expect(const struct kv_pauses *all, const struct kv_pauses *own,
                      double *log_mean, double *log_std);
/* The mean of what is left of a pause of this distribution after idle_s of it. */
double kv_pause_left_s(double log_mean, double log_std, double idle_s);

#endif
