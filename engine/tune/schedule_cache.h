/* tune/schedule_cache.h - the file of tuned schedules, and the schedule for any M.
 *
 * A JSON file keyed by what a measurement depends on: CPU, microcode, variant, threads,
 * commit, weight type. An entry of another key is kept in the file but never used.
 * Between tuned M the slice and scheme of the largest tuned M below are used and the
 * remainder gets a smaller micro-kernel (the driver cuts the rows into blocks of nearly
 * equal height); where nothing near is tuned, kern_schedule_default() gives the schedule.
 * Paper: Sandwich 6 (dispatch).
 * A truncated or damaged file is refused with one line; the tuner renames it. Several
 * processes may tune into one file: it is read again and replaced under a lock.
 * Threads: reading is free for all once open; put and save from one. */
#ifndef TUNE_SCHEDULE_CACHE_H
#define TUNE_SCHEDULE_CACHE_H

#include <jansson.h>

#include "tune/measure.h"

/* The machine and the code of a measurement. */
struct tune_key {
    char cpu[64], microcode[24];
    char commit[64]; /* the newest commit that changed engine/kernels or engine/par */
};
void tune_key_here(struct tune_key *out);

struct tune_cache;
/* An absent file gives an empty cache. n_threads, cpus: the thread set in use now. */
MUST int tune_cache_open(struct tune_cache **out, const char *path, const int *cpus,
                         int n_threads);
/* The same with another key than tune_key_here(). */
MUST int tune_cache_open_as(struct tune_cache **out, const char *path,
                            const struct tune_key *key, const int *cpus, int n_threads);
void tune_cache_close(struct tune_cache **c);

/* A cache without a file of its own, for schedules that are part of another document. `o`: an
 * object of tune_cache_to_json(), NULL for none; error lines call it `where`. It has no thread
 * set until tune_cache_use(). */
MUST int tune_cache_of_json(struct tune_cache **out, const json_t *o, const char *where);
/* All of it as the object that a file holds. New reference; NULL: no memory. */
json_t *tune_cache_to_json(const struct tune_cache *c);
/* The number of its schedules. */
int tune_cache_n(const struct tune_cache *c);
/* The thread set from now on. ERR_ARG: not in 1 .. CPU_MAX. */
MUST int tune_cache_use(struct tune_cache *c, const int *cpus, int n_threads);
/* Put what `from` has for exactly this shape, with its measurement; both have the same thread
 * set. *found: whether it has one. ERR_NOMEM. */
MUST int tune_cache_copy(struct tune_cache *to, const struct tune_cache *from,
                         const struct tune_shape *shape, bool *found);
/* Write what was put into the file, and keep what others have put there since. */
MUST int tune_cache_save(const struct tune_cache *c);

/* Keep s for this shape; *t (may be NULL) is its measurement. */
MUST int tune_cache_put(struct tune_cache *c, const struct tune_shape *shape,
                        const struct kern_schedule *s, const struct measure_report *t);
/* Is exactly this M tuned? */
bool tune_cache_has(const struct tune_cache *c, const struct tune_shape *shape,
                    struct kern_schedule *out);

/* A schedule tuned for this M or more is used for every larger M. One tuned for fewer rows
 * is used below twice its M. */
#define TUNE_STABLE_ROWS 128

/* The schedules of one matrix for every m in 1 .. m_max, resolved once, so that a step only
 * indexes them: out[m - 1]. c may be NULL (defaults). *n_tuned (may be NULL): the
 * number of m that a tuned entry serves. */
MUST int tune_table(const struct tune_cache *c, const struct kern_variant *v,
                    const struct kern_mat *w, int64_t m_max, int n_threads,
                    struct kern_schedule *out, int64_t *n_tuned);

#endif
