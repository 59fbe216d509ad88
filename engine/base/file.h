/* base/file.h - files that are read, and files that are whole or absent.
 *
 * What is written gets a temporary name (base/file_tmp.h), is synced and then renamed, so
 * that an older file stays until the new one is on the disk. A target that exists must be
 * a regular file: renaming over a device node would destroy it. Only regular files are
 * read: a pipe would make the program wait for its writer.
 * Threads: any. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* Open a regular file for reading; close(*fd) by the caller, -1 on error. Never waits.
 * ERR_NOTFOUND: there is none. ERR_IO: it cannot be opened, or is a folder, pipe,
 * device ... */
MUST int file_open(int *fd, const char *path);
/* The same as a stream; fclose(*f) by the caller, NULL on error. */
MUST int file_stream(FILE **f, const char *path);
/* The whole of a regular file of at most `max_bytes`. *out: *n bytes without a NUL behind
 * them, mem_free(); NULL on error. As file_open(); ERR_LIMIT: it is longer. */
MUST int file_read(char **out, size_t *n, const char *path, size_t max_bytes);
/* The first n bytes of a regular file, for probes: false if it is none or is shorter. Sets
 * no error. */
bool file_peek(const char *path, void *out, size_t n);

/* Replace or create `path` with n bytes; folders that are missing are made. ERR_ARG: see
 * file_check_target(). ERR_IO: the temporary file is gone again and an older `path` is
 * unchanged, unless it was the last step, syncing the folder, that failed. */
MUST int file_write(const char *path, const void *bytes, size_t n);
/* OK: `path` is absent or a regular file, and not the same file as `input`, which may be
 * NULL. ERR_ARG: it is a folder, link, device, pipe ..., the input, or empty. For programs
 * that work for long before they write. */
MUST int file_check_target(const char *path, const char *input);

/* Make the folder and its parents; one that exists is fine. */
MUST int file_make_dirs(const char *dir);
/* Make the folder; OK: files can be made in it. ERR_IO. For programs that work for long
 * before they write. */
MUST int file_check_dir(const char *dir);
/* Make the folder with mode 0700. ERR_STATE: it belongs to another user, or others may open it:
 * what is in it cannot be trusted. */
MUST int file_make_private_dir(const char *dir);
/* Make the folders above `path`. */
MUST int file_make_parents(const char *path);

/* write() until all n bytes are written; -1 with errno set. */
MUST int file_write_all(int fd, const void *bytes, size_t n);
/* Write the folder to disk, so that the names of new files in it survive a power cut. */
MUST int file_sync_dir(const char *dir);
/* The same for the folder of `path`. */
MUST int file_sync_parent(const char *path);

/* Lock an open file against other processes until it is closed. `wait`: until no other
 * has it. ERR_STATE: another has it. Where the file system has no locks the answer is
 * OK and a warning is logged, once. */
MUST int file_lock(int fd, const char *path, bool wait);
/* Make the folder of `path` and lock it, waiting; close(*fd) unlocks. For a file that is
 * read, changed and replaced. *fd: -1 on error. */
MUST int file_lock_parent(int *fd, const char *path);

#endif
