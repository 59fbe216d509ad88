/* experiments/record/published.h - records that come with the program.
 *
 * results/published/MACHINE/NAME/ has the newest of an experiment on a kind of machine: FILE.h5.xz,
 * its head FILE.json, and latest.json, below the working directory. A file in results/published/ is
 * figures.sha256, the hashes of the figures drawn from them (tests/support/figures.sh).
 *
 * They are of whole runs on quiet machines, made by a commit. Who has a record of their own sees
 * that one.   Threads: any. */
#ifndef RECORD_PUBLISHED_H
#define RECORD_PUBLISHED_H

#include <stdbool.h>
#include <jansson.h>

#include "base/err.h"

/* As export_head(), of the newest of all machines. "published" is then its machine's folder.
 *   own  the head of a record: where there are published ones of its kind of machine, the newest of
 *        these; may be NULL */
MUST int export_published_head(json_t **out, const char *experiment, const json_t *own);
/* Is the record of a published head of the same kind of machine as that of another head? */
bool export_is_same_machine(const json_t *published, const json_t *own);
/* As export_list(), of all machines. */
MUST int export_published_list(json_t **out, const char *experiment);
/* The paths of the heads of an experiment, "*": of all, as an array of
 * "FOLDER/MACHINE/EXPERIMENT/latest.json", a new reference. The folder is that of the program
 * (base/home.h). */
MUST int export_published_heads(json_t **out, const char *experiment);
/* The name of a head's kind of machine: that of its folder. */
void export_machine_name(char *out, size_t n, const json_t *head);
/* Copy FILE.h5, compressed, and its head in place of an older record of this machine. *to:
 * mem_free(), the path of the copy; NULL on error. ERR_STATE: it is not to be published, and why:
 * a fault in it (verify.h), a smoke run, local changes, other settings, cells that failed, a
 * machine that was busy with something else, too large. ERR_IO, ERR_FORMAT. */
MUST int export_publish(char **to, const char *path);

#endif
