/* base/file_tmp.h - a file or folder under construction, which does not outlive its
 * process.
 *
 * Its name is TARGET.PID.N.tmp. It is removed when it is closed before it was published,
 * and on SIGINT, SIGTERM and SIGHUP, wherever the program leaves these to their default
 * action, which then follows. It is locked while its process lives, so that what a killed
 * process has left is known and removed the next time that the same target is written.
 * Threads: any; each temporary has one owner. */
#ifndef BASE_FILE_TMP_H
#define BASE_FILE_TMP_H

#include "base/err.h"

struct file_tmp {
    int fd;     /* of a file: for writing; of a folder: for its lock only */
    char *path; /* its name for now; NULL: published */
};

/* Begin a file that will replace or create `target`; folders that are missing are made.
 * *t must be closed, also after an error. ERR_ARG: see file_check_target(). */
MUST int file_tmp_open(struct file_tmp *t, const char *target);
/* The same for a folder, whose files must have no folders among them. */
MUST int file_tmp_open_dir(struct file_tmp *t, const char *target);
/* Sync it and give it the name `path`, in the same folder. ERR_IO: an older `path` is
 * unchanged, unless it was the last step, syncing the folder, that failed. */
MUST int file_tmp_publish(struct file_tmp *t, const char *path);
/* Remove it unless it was published. Twice is fine. */
void file_tmp_close(struct file_tmp *t);

#endif
