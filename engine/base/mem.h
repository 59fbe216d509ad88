/* base/mem.h - every byte the project takes, by purpose.
 *
 * Two kinds: ordinary objects (mem_new, 64-byte aligned, zeroed) and large regions
 * (mem_map: page-aligned anonymous mappings that ask for huge pages and can be bound to a
 * NUMA node). Totals per tag are part of every record, and a test can make the n-th
 * allocation fail. Nothing allocates between two tokens.
 * Threads: all calls are safe from any thread. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum mem_tag {
    MEM_OTHER,
    MEM_WEIGHTS,
    MEM_KV,
    MEM_ACTIVATIONS,
    MEM_TOKENIZER,
    MEM_MODEL_FILE,
    MEM_TEAM,
    MEM_DATASET,
    MEM_HARNESS,
    MEM_TEST,
    MEM_N_TAGS
};

/* n objects of `size` bytes, zeroed, aligned to 64 bytes; owned by the caller, given back
 * with mem_free(). NULL with ERR_NOMEM set when n * size overflows or memory is short.
 * n * size == 0 gives a valid, unique pointer. */
MUST void *mem_new(enum mem_tag tag, size_t n, size_t size);

/* Change an object of mem_new() to n * size bytes; the added part is zeroed. On failure
 * NULL is returned and `p` is untouched. p == NULL behaves as mem_new(). */
MUST void *mem_resize(enum mem_tag tag, void *p, size_t n, size_t size);

MUST char *mem_strdup(enum mem_tag tag, const char *s);
MUST char *mem_strndup(enum mem_tag tag, const char *s, size_t n);
void mem_free(void *p); /* NULL is fine */

/* The side of a program that measures has no use for an error path behind each small object:
 * without memory it ends, and what it has kept is read again when it is started again. After
 * this call, an object of MEM_OTHER, MEM_DATASET or MEM_HARNESS, or one of jansson's, is never
 * NULL: where it is refused, `end` is called on the thread that wanted it, with the error set,
 * and does not return. The engine's tags and mem_map() still return NULL, so that a model that
 * does not fit is an error of its caller. NULL: none ends the program (the default). */
void mem_when_short(void (*end)(void));

#define MEM_NODE_ANY (-1)

/* `bytes` of zeroed anonymous memory starting on a 2 MiB boundary, advised to huge pages,
 * bound to NUMA node `node` (MEM_NODE_ANY: first touch decides). The pages are not
 * touched: the team that will read them should write them first. NULL with ERR_NOMEM set
 * on failure. */
MUST void *mem_map(enum mem_tag tag, size_t bytes, int node);
/* The same as an unnamed file that processes made by fork() afterwards share, at this
 * address, so that all see what one of them writes. First touch decides its memory node.
 * Whether it gets huge pages is the system's choice for shared memory. */
MUST void *mem_map_shared(enum mem_tag tag, size_t bytes);
/* The same. *fd: the file, which other processes can map when it was sent to them; the caller's to
 * close, also after mem_unmap(). -1 on error. */
MUST void *mem_map_shared_fd(enum mem_tag tag, size_t bytes, int *fd);
/* Like memcpy(), for data that this processor will not read soon: past the caches where it can be,
 * so that others keep their data there. Others see all of it before what the thread writes next. */
void mem_copy_stream(void *to, const void *from, size_t bytes);
void mem_unmap(enum mem_tag tag, void *p, size_t bytes);

const char *mem_tag_name(enum mem_tag tag);
size_t mem_used_bytes(enum mem_tag tag);
size_t
mem_peak_bytes(enum mem_tag tag); /* the highest value of mem_used_bytes() so far */

/* Resident set of this process in bytes: now, and its peak (VmHWM). 0 if unreadable. */
size_t mem_rss_bytes(void);
size_t mem_rss_peak_bytes(void);
/* Reset the peak so that the next one is that of the following phase; ERR_UNSUPPORTED
 * where the kernel does not allow it. */
MUST int mem_rss_peak_reset(void);

/* Test hook: let n allocations succeed, then fail one (`once`) or all. n < 0 switches it
 * off. */
void mem_fail_after(long n, int once);
long mem_n_allocs(void); /* allocations of any kind made so far */
/* For an allocator that a library calls (jansson): counts one allocation; nonzero if
 * the hook makes it fail. mem_refused(): one of n * size bytes got no memory, which does not
 * return where mem_when_short() says so. */
int mem_alloc_refused(void);
void mem_refused(enum mem_tag tag, size_t n, size_t size);

#endif
