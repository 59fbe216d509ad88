/* base/file_map.h - a whole file mapped read-only, which may shrink.
 *
 * Bytes are read where the kernel put them; nothing is copied. A page that has gone since
 * the file was opened, or that the disk cannot give, would end the process by SIGBUS.
 * Instead it reads as zeros, and file_map_check() says so: whoever used the bytes asks
 * afterwards, before closing, and discards what was made of them.
 * Threads: any, once open. */
#ifndef BASE_FILE_MAP_H
#define BASE_FILE_MAP_H

#include <stdint.h>

#include "base/err.h"

struct file_map {
    const uint8_t *base; /* NULL: closed */
    uint64_t bytes;
};

/* Map a regular, non-empty file. *m is all zero on error.
 * ERR_NOTFOUND, ERR_IO: see file_open(), or it cannot be mapped. ERR_FORMAT: empty. */
MUST int file_map_open(struct file_map *m, const char *path);
void file_map_close(struct file_map *m);

/* ERR_IO, naming the file: pages of a file that is open here were read and were not there. */
MUST int file_map_check(void);

/* Have the system begin to read [p, p + bytes), which will be used soon, and do not wait for it. */
void file_map_will_need(const void *p, uint64_t bytes);

/* The whole pages inside [p, p + bytes) leave this process's memory; they come back from
 * the page cache or from disk if touched. */
void file_map_drop(const void *p, uint64_t bytes);

#endif
