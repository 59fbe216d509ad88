/* cpu/sysfile.h - the small text files of /proc and /sys, below any root, so that tests
 * can show this module machines that do not exist. Private to the module. Threads: any. */
#ifndef CPU_SYSFILE_H
#define CPU_SYSFILE_H

#include <stddef.h>

#include "base/err.h"

/* The first n - 1 bytes of root + path (printf-like), 0-terminated, trailing newline
 * removed. ERR_IO without a message when the file is not there: most such files are
 * optional. */
MUST int cpu_file_read(char *out, size_t n, const char *root, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

/* Copy the value of the first line "key<blanks>:<blanks>value" or "key value" of `text`.
 * Returns 0 when no line begins with `key`. */
int cpu_file_field(const char *text, const char *key, char *out, size_t n);

/* The directory of the calling process's cgroup below `root`: of the version 1 controller
 * "cpu", or of version 2. *mount_len is the length of the part that is the mount point,
 * above which nothing must be looked for. ERR_NOTFOUND (no message): not mounted or not a
 * member. */
MUST int cpu_cgroup_dir(char *out, size_t n, size_t *mount_len, const char *root,
                        int version);

#endif
