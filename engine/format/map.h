/* format/map.h - a whole file mapped read-only.
 *
 * Bytes are read where the kernel put them; nothing is copied. A file that shrinks while
 * it is mapped raises SIGBUS: its size is checked once, at open.   Threads: any, once
 * open. */
#ifndef FORMAT_MAP_H
#define FORMAT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct format_map {
    const uint8_t *base; /* NULL: closed */
    uint64_t bytes;
};

/* Map a regular, non-empty file. *m is all zero on error.
 * ERR_IO: cannot be opened or mapped. ERR_FORMAT: empty, or no regular file. */
MUST int format_map_open(struct format_map *m, const char *path);
/* The first n bytes of a regular file, for probes: false if it is none or is shorter.
 * Never waits and sets no error. */
bool format_map_peek(const char *path, void *out, size_t n);
void format_map_close(struct format_map *m);

/* The whole pages inside [p, p + bytes) leave this process's memory; they come back from
 * the page cache or from disk if touched. */
void format_map_drop(const void *p, uint64_t bytes);

#endif
