/* experiments/run/progress.h - how far a run is, for the user.
 *
 * On a terminal one live line; elsewhere one line a minute; or nothing. Log lines go
 * through progress_log() so that they do not tear the live line. The time is an argument,
 * so that the text can be tested.  Threads: any. */
#ifndef RUN_PROGRESS_H
#define RUN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"

enum progress_mode {
    PROGRESS_LIVE,   /* a terminal */
    PROGRESS_MINUTE, /* a file, a pipe */
    PROGRESS_QUIET
};

struct progress;

/* `weight`: of all cells still to run, in any unit. The time that is left is estimated from
 * the share of it that is done, and what is shown of it never grows. */
MUST int progress_open(struct progress **out, FILE *f, enum progress_mode mode,
                       size_t n_cells, size_t n_cells_before, double weight,
                       uint64_t now_ns);
void progress_close(struct progress **p); /* clears the live line; NULL is fine */

/* Show an activity between the requests: "open sandwich", "tokenise". */
void progress_note(struct progress *p, const char *text, uint64_t now_ns);
/* A cell of this weight begins. */
void progress_cell(struct progress *p, const char *key, size_t n_requests, double weight,
                   uint64_t now_ns);
void progress_tick(struct progress *p, size_t n_ended, size_t n_failed, uint64_t now_ns);
/* The same for a cell that sends no requests: it has begun; `fraction` of it is done. */
void progress_study(struct progress *p, const char *key, double weight, uint64_t now_ns);
void progress_step(struct progress *p, double fraction, const char *what,
                   uint64_t now_ns);
/* A part of that cell which sends requests: it begins at the fraction `from` of the cell and is
 * `share` of it. progress_tick() follows it. */
void progress_part(struct progress *p, const char *key, size_t n_requests, double from,
                   double share);
void progress_cell_end(struct progress *p);

/* A log sink (base/log.h) over this progress; ctx is the progress or NULL. */
void progress_log(void *ctx, enum log_level level, const char *line);

#endif
