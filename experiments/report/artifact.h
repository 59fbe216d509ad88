/* experiments/report/artifact.h - which experiments to run when time is short.
 *
 * Experiments that decide claims which should hold on every machine come first, most
 * claims per minute first. Those that decide other claims follow in the same order, then
 * the rest, shortest first. Or those of a set, in its order: a file of experiments/sets/, which
 * may change their settings. Threads: any. */
#ifndef REPORT_ARTIFACT_H
#define REPORT_ARTIFACT_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "experiments/report/claims.h"

struct artifact_item {
    const char *name; /* lent by the list, as all texts */
    const char *tag; /* of the folder of its record; NULL: that of the whole experiment */
    const char *why; /* what a set has it for; NULL: not of a set */
    const json_t *words; /* of --set, a list of "KEY=VALUE"; NULL: none */
    double minutes;      /* as its set states them, else its job */
    int n_should;        /* claims that should hold */
    int n_claims;        /* all that its record decides */
};

struct artifact_list {
    json_t *names;           /* or the set */
    struct artifact_item *v; /* in the order in which to run them */
    size_t n;
};

/* All experiments that come with the program. ERR_IO and others: one of them, or their folder,
 * cannot be read. *out: artifact_fini(), also after an error.
 *   smoke   their minutes are those of their smoke sections */
MUST int artifact_read(struct artifact_list *out, const struct claims *claims,
                       bool smoke);
/* Those of a set: the name of a file in experiments/sets/, or a path (with a '/' or '.'). Each
 * may have an object "set" (settings; in a smoke run "smoke" in its place), then also a tag, and
 * minutes. */
MUST int artifact_read_set(struct artifact_list *out, const char *set,
                           const struct claims *claims, bool smoke);
void artifact_fini(struct artifact_list *l);

/* Put the n items in their order. */
void artifact_sort(struct artifact_item *v, size_t n);

/* The items that an earlier run has made: {name: {"minutes", "failed": why, absent: not}}. A new
 * reference. Empty where the file is absent or `path` is NULL. */
MUST int artifact_state_read(json_t **out, const char *path);

#endif
