/* experiments/run/dir.h - the folder in which a run is kept.
 *
 * results/<stem> is for runs of an experiment exactly as its file states it. A run with the
 * smoke section or with changed settings answers another question, so it gets a folder of its
 * own in there and never replaces that record, its latest.json or its figure. The same
 * command always gets the same folder, which is how an interrupted run is resumed.
 * Threads: any. */
#ifndef RUN_DIR_H
#define RUN_DIR_H

#include <stdbool.h>

#include "base/err.h"
#include "experiments/job/job.h"

struct run_dir {
    char *path; /* mem_free() */
    bool
        is_separate; /* not results/<stem>; its figure is then drawn into the folder itself */
};

/* The folder of a run of `stem` that was read with `o`:
 *   out       the folder itself; NULL: chosen by `tag`
 *   tag       results/<stem>/<tag>. NULL: results/<stem> without changes, else
 *             "smoke", "set-<hash of the --set words>" or "smoke-set-<hash>"
 * ERR_ARG: both are given, or the tag is not a plain name. ERR_NOMEM. */
MUST int run_dir_of(struct run_dir *d, const char *stem, const char *out, const char *tag,
                    const struct job_read_opts *o);

#endif
