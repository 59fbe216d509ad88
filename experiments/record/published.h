/* experiments/record/published.h - records that come with the program.
 *
 * results/published/MACHINE/NAME/ has the newest of an experiment on a kind of machine: FILE.h5.gz,
 * its head FILE.json, and latest.json, below the working directory.
 *
 * They are of whole runs on quiet machines, made by a commit. Who has a record of their own sees
 * that one.   Threads: any. */
#ifndef RECORD_PUBLISHED_H
#define RECORD_PUBLISHED_H

#include <jansson.h>

#include "base/err.h"

/* As export_head(), of the newest of all machines. "published" is then its machine's folder. */
MUST int export_published_head(json_t **out, const char *experiment);
/* As export_list(), of all machines. */
MUST int export_published_list(json_t **out, const char *experiment);
/* A compressed record. *bytes: mem_free(), NULL on error. ERR_NOTFOUND; ERR_IO; ERR_FORMAT:
 * damaged, or of more than 1 GiB. */
MUST int export_unpack(char **bytes, size_t *n, const char *path);
/* Copy FILE.h5, compressed, and its head in place of an older record of this machine. *to:
 * mem_free(), the path of the copy; NULL on error. ERR_STATE: it is not to be published, and why:
 * a fault in it (verify.h), a smoke run, local changes, other settings, cells that failed, a
 * machine that was busy with something else, too large. ERR_IO, ERR_FORMAT. */
MUST int export_publish(char **to, const char *path);

#endif
