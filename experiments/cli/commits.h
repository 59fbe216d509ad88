/* experiments/cli/commits.h - which commit of a repository made an engine slower?
 *
 * Commits are checked out in worktrees of their own, built by a command, and compared as
 * `testbed compare` does: both sides in turn, in processes of their own, with an A/A. The rounds
 * end when there is a verdict, which the intervals allow for (metrics/compare.h), or at a limit.
 * The engine is any program: the `testbed` of each commit runs the job, or a setting names a file
 * of the worktree, such as system.program={tree}/build/bin/llama-server.
 *
 * In the folder of results are trees/ (worktrees, removed at the end), builds/ (what the builds
 * printed), compare/ (records; those that are there count, so that an interrupted command
 * continues) and report.md.   Threads: one. */
#ifndef CLI_COMMITS_H
#define CLI_COMMITS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"
#include "experiments/metrics/compare.h"

/* The options that the verbs share; each has them as its options' first member. */
struct commits_opts {
    bool smoke, aa, keep;
    int64_t rounds_max, seed;
    char *repo, *job, *build, *testbed, *metric, *margin, *out;
};

extern const struct opt_row commits_opt_table[];

#define COMMITS_SHA_BYTES 65 /* of SHA-256; SHA-1 has 41 */

enum commits_verdict {
    COMMITS_SAME,    /* not worse by more than the margin */
    COMMITS_WORSE,   /* worse by more than the margin in at least one metric */
    COMMITS_UNKNOWN, /* it could not be decided within the limit of rounds */
    COMMITS_SKIPPED, /* it was not built or did not run */
};
const char *commits_verdict_name(enum commits_verdict v);

/* One comparison: a commit against a good one. */
struct commits_step {
    char commit[COMMITS_SHA_BYTES], good[COMMITS_SHA_BYTES];
    enum commits_verdict verdict;
    int64_t n_rounds;   /* of the job that decided, or of the last */
    char why[400];      /* of COMMITS_SKIPPED */
    char *table;        /* of `testbed compare`; NULL: there is none */
    char dir[PATH_MAX]; /* of the records of that job; "": there are none */
};

struct commits {
    const struct commits_opts *o;
    char *const *sets;
    int n_sets;
    double margin_frac;
    char out[PATH_MAX];         /* absolute */
    struct commits_step *steps; /* [n_steps] all comparisons so far; owned */
    size_t n_steps;
};

/* Check the options, and make the folder of results; commits_close(), also after an error.
 * ERR_ARG: an option is missing or wrong, `repo` is not a git repository, the job is not there,
 * or nothing of a commit takes part in its run. */
MUST int commits_open(struct commits *c, const struct commits_opts *o, const char *out,
                      char *const *sets, int n_sets);
void commits_close(struct commits *c);

/* The commit that `rev` names; `flag` begins the error line. ERR_ARG: there is none. */
MUST int commits_find(char out[COMMITS_SHA_BYTES], const struct commits *c,
                      const char *rev, const char *flag);
/* Is `old` an ancestor of `sha`, or the same? ERR_ARG: it is not. */
MUST int commits_check_ancestor(const struct commits *c, const char *old,
                                const char *sha);
/* The commits after `old` up to `sha`, oldest first, by first parents, so that a merge is one
 * of them. *out: [*n], mem_free(). */
MUST int commits_list(char (**out)[COMMITS_SHA_BYTES], size_t *n, const struct commits *c,
                      const char *old, const char *sha);
/* "1a2b3c4d5e6f 2026-11-27 subject", cut to fit. */
void commits_line(char *out, size_t n, const struct commits *c, const char *sha);

/* Build both and compare them; *out is the new last of c->steps, lent until the next call. A
 * commit that does not build or run is skipped: that is a step, not an error.
 * ERR_IO: `good` cannot be built.  ERR_NOTFOUND: no such metric. */
MUST int commits_compare(const struct commits_step **out, struct commits *c,
                         const char *good, const char *sha);
/* Remove the worktree of a commit that is needed no more. */
void commits_drop(const struct commits *c, const char *sha);

/* Write report.md: title, result, all steps, and tables of those that are worse or unclear. */
MUST int commits_report(const struct commits *c, const char *title, const char *result);

#endif
