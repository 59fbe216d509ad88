/* base/file.h - files that are whole or absent.
 *
 * What is written gets a temporary name in the folder of its target, is synced and then
 * renamed, so that an older file stays until the new one is on the disk. A target that
 * exists must be a regular file: renaming over a device node would destroy it.
 * Threads: any. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>

#include "base/err.h"

/* Replace or create `path` with n bytes. ERR_ARG: see file_check_target(). ERR_IO: the
 * temporary file is gone again and an older `path` is unchanged, unless it was the last
 * step, syncing the folder, that failed. */
MUST int file_write(const char *path, const void *bytes, size_t n);

/* Sync the finished file `tmp` and give it the name `path`, in the same folder. On error
 * `tmp` stays, unless syncing the folder failed. */
MUST int file_publish(const char *tmp, const char *path);

/* OK: `path` is absent or a regular file. ERR_ARG: it is a folder, device, pipe ..., or
 * empty. */
MUST int file_check_target(const char *path);

/* Make the folder and its parents; one that exists is fine. */
MUST int file_make_dirs(const char *dir);

/* write() until all n bytes are written; -1 with errno set. */
MUST int file_write_all(int fd, const void *bytes, size_t n);
/* So that the names of new files in the folder survive a power cut. */
MUST int file_sync_dir(const char *dir);

#endif
