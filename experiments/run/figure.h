/* experiments/run/figure.h - the figure of a record, drawn by a script.
 * Threads: any; the script is a process of its own. */
#ifndef RUN_FIGURE_H
#define RUN_FIGURE_H

#include <stdbool.h>

#include "base/err.h"

/* Draw the figure of the experiment `stem` with paper-figs/<stem>.py, which prints where it
 * is. `record`: NULL for the newest. `dir`: the folder of the figure, NULL for
 * paper-figs/out. `has_axes`: an experiment without a script is drawn with
 * paper-figs/sweep.py. ERR_NOTFOUND: there is no script. Otherwise as child_wait(). */
MUST int run_figure(const char *stem, const char *record, const char *dir, bool has_axes);

#endif
