/* format/write.h - writes a file that consists of a head and tensors.
 *
 * Its layout is known before the first weight, so threads take pieces in any order and write
 * each where it belongs: the bytes do not depend on their number.
 * Threads: format_write() starts its own and returns when they have ended. */
#ifndef FORMAT_WRITE_H
#define FORMAT_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

struct format_write_tensor {
    int64_t rows;
    uint64_t bytes, at; /* at: from the start of the data */
};

struct format_writer {
    const struct text *head;
    uint64_t data_bytes;
    int n_tensors, n_threads;
    struct format_write_tensor (*tensor)(const void *ctx, int i);
    /* Put rows [row, row + n) of tensor i to `out`. `scratch`: scratch_bytes of this thread's
     * own. Called by all threads. */
    int (*rows)(const void *ctx, int i, int64_t row, int64_t n, char *out, void *scratch);
    size_t scratch_bytes;
    const void *ctx;
    /* NULL, or called by the calling thread. */
    void (*progress)(void *ctx, int64_t done_bytes, int64_t all_bytes);
    void *progress_ctx;
};

/* Write to fd, open for writing and empty, whose name is `path`. ERR_IO; ERR_NOMEM; the first
 * error of `rows`. */
MUST int format_write(const struct format_writer *w, int fd, const char *path);

#endif
