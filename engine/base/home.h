/* base/home.h - where the files are that come with the programs: experiments, machines,
 * lists of events, fits, figure scripts, other programs.
 *
 * The programs run from any working directory, from a build folder and from an install
 * prefix. What they write goes to the working directory, what they compile to the user's
 * cache; what they come with is found here. All functions put a path into out[n] and return
 * `out`. If they find nothing, it is `name` itself, which the caller's error then shows.
 * A path that does not fit is cut, and then is not there. Threads: any. */
#ifndef BASE_HOME_H
#define BASE_HOME_H

#include <stddef.h>

#define HOME_ENV      "SANDWICH_HOME"
#define HOME_DATA_ENV "SANDWICH_DATA"

/* A file or folder by its path from the top of a checkout: below $SANDWICH_HOME; else
 * below the nearest folder above the running program that has it, or has it in
 * share/sandwich; else below the working directory. */
const char *home_find(char *out, size_t n, const char *name);
/* A file of the data that are not shipped (datasets/data.md): as it is named; else below
 * $SANDWICH_DATA, without it below ../shared/data. */
const char *home_data(char *out, size_t n, const char *name);
/* A program by its path from the folder of the running program, or of one above it (a
 * test's is deeper). A name that is not there is searched for in $PATH by whoever starts
 * it. */
const char *home_program(char *out, size_t n, const char *name);
/* A folder of this program in the user's cache: $XDG_CACHE_HOME/sandwich/NAME, else
 * ~/.cache/sandwich/NAME. */
const char *home_cache(char *out, size_t n, const char *name);

#endif
