/* cpu/sysfile.h - reads the small text files of /proc and /sys below any root, so that tests
 * can present other machines. Private to the module. Threads: any. */
#ifndef CPU_SYSFILE_H
#define CPU_SYSFILE_H

#include <sched.h>
#include <stddef.h>

#include "base/err.h"

/* Read the first n - 1 bytes of root + path (printf-like), 0-terminated, trailing newline
 * removed. ERR_IO without a message when the file is not there: most such files are
 * optional. */
MUST int cpu_file_read(char *out, size_t n, const char *root, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

/* Copy the value of the first line "key<blanks>:<blanks>value" or "key value" of `text`.
 * Returns 0 when no line begins with `key`. */
int cpu_file_field(const char *text, const char *key, char *out, size_t n);

/* Call fn with the directory of the calling process's cgroup and with each one above it up
 * to the mount point, without `root`: in the hierarchy of a version 1 controller ("cpu",
 * "memory"), or in that of version 2. Each of them may set a limit. Nothing is called
 * where it is not mounted or this process is not a member. ERR_NOMEM. */
MUST int cpu_cgroup_each(const char *root, const char *controller, int version,
                         void (*fn)(void *ctx, const char *dir), void *ctx);

/* Bits of an affinity mask: CONFIG_NR_CPUS of a Linux kernel is at most this. */
#define AFFINITY_BITS 8192

#endif
