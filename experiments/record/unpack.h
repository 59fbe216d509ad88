/* experiments/record/unpack.h - a compressed record as bytes in memory.   Threads: any. */
#ifndef RECORD_UNPACK_H
#define RECORD_UNPACK_H

#include <stddef.h>

#include "base/err.h"

#define RECORD_PACKED ".xz" /* the end of the name of a compressed record */

/* A compressed record. *bytes: mem_free(), NULL on error. ERR_NOTFOUND; ERR_IO; ERR_FORMAT:
 * damaged, or of more than 1 GiB. */
MUST int export_unpack(char **bytes, size_t *n, const char *path);

#endif
