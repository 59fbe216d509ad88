/* characterize/pages.h - memory whose page size a probe or a study knows.
 *
 * Advice is not an answer: where transparent huge pages are off, or memory is too
 * scattered for them, a mapping that asked for them has small ones, and a probe would
 * compare small pages with small pages. So the kernel is asked what it gave.
 * Threads: one. */
#ifndef CHARACTERIZE_PAGES_H
#define CHARACTERIZE_PAGES_H

#include <stddef.h>

#include "base/err.h"

#define PROBE_HUGE_BYTES ((size_t)2 << 20)

struct probe_pages {
    char *p;
    size_t bytes;
};

/* Memory in huge (`huge`) or only in small pages, untouched, where the threads that touch
 * it first are. ERR_NOMEM. */
MUST int probe_pages_open(struct probe_pages *m, size_t bytes, int huge);
void probe_pages_close(struct probe_pages *m); /* twice is fine */
/* The thread that calls it touches every page. */
void probe_pages_touch(const struct probe_pages *m);

/* After it was touched: does nearly all of it lie in huge pages? ERR_UNSUPPORTED says what
 * was found. */
MUST int probe_pages_check_huge(const struct probe_pages *m);
/* The same by any file in the form of /proc/self/smaps. */
MUST int probe_pages_check_huge_at(const struct probe_pages *m, const char *smaps);

#endif
