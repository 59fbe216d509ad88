/* experiments/record/export_notes.h - the newest record of an experiment, with what its
 * reader should know: where it was made, and which warnings it has. Heads are those of
 * export_head(). Threads: any. */
#ifndef RECORD_EXPORT_NOTES_H
#define RECORD_EXPORT_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"

/* The path of the newest record of an experiment, below results/ of the working directory: what
 * its latest.json names. ERR_NOTFOUND: there is none. ERR_FORMAT, ERR_LIMIT: latest.json is
 * damaged. */
MUST int export_latest(char *path, size_t n, const char *experiment);

/* The paths of the records in a folder as an array, a new reference, in the order of their names,
 * which begin with the time of the run. Empty where there is no such folder. ERR_IO: it cannot
 * be read; *out is NULL. */
MUST int export_list(json_t **out, const char *dir);

/* "steal in 3 of 5 cells (0.08, threshold 0.02), lateness in ..."; nothing where the run had no
 * warning. */
void export_put_warnings(struct text *out, const json_t *head);
/* Is it of measured times, and did something else use the machine meanwhile? */
bool export_is_noisy(const json_t *head);

/* A number of a summary or of the headlines, {"value", "unit", "why" ...}: a share above what its
 * bound allows (metrics_exceeds_bound()) becomes null with the reason, and stays as "refused".
 * ERR_NOMEM. */
MUST int export_refuse(const char *name, json_t *number);
/* The same for each headline; where one is refused, the record's warnings say so. */
MUST int export_refuse_headlines(json_t *head);

/* "AMD EPYC (family 25, model 17), 2 CPUs" */
void export_put_machine(struct text *out, const json_t *head);

#endif
