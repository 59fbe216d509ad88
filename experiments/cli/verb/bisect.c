#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "experiments/cli/commits.h"
#include "experiments/cli/verb.h"

#define CANNOT_SAY 5

struct bisect_opts {
    struct commits_opts common;
    char *good, *bad;
};

#define OPT_OF struct bisect_opts
static const struct opt_row table[] = {
    OPT_ROW(STR, good, NULL, "A commit that is fast. Required.", .unit = "COMMIT"),
    OPT_ROW(STR, bad, "HEAD", "A later commit that is slow.", .unit = "COMMIT"),
    {0},
};
static const struct opt_change changes[] = {{.name = "out", .def = "results/bisect"},
                                            {0}};

/* The commits after the good one. The first bad one is behind `low` and not behind `high`. */
struct bisection {
    struct commits *c;
    char good[COMMITS_SHA_BYTES], bad[COMMITS_SHA_BYTES];
    char (*list)[COMMITS_SHA_BYTES]; /* [n] oldest first */
    bool *skipped;                   /* [n] */
    size_t n;
    long low, high;   /* -1: the good one itself */
    char result[400]; /* in words */
    bool found;
};

static const char *sha_of(const struct bisection *b, long i)
{
    return i < 0 ? b->good : b->list[i];
}

static int step(enum commits_verdict *v, struct bisection *b, const char *good, long i)
{
    const struct commits_step *s;
    char line[120];

    TRY(commits_compare(&s, b->c, good, sha_of(b, i)));
    *v = s->verdict;
    commits_line(line, sizeof(line), b->c, s->commit);
    printf("%s: %s%s%s\n", line, commits_verdict_name(s->verdict), s->why[0] ? ": " : "",
           s->why);
    fflush(stdout);
    return commits_report(b->c, "Which commit is slower?", "Not finished.");
}

/* The commit nearest to the middle that was not skipped; -1: there is none. */
static long middle(const struct bisection *b)
{
    const long mid = b->low + (b->high - b->low) / 2;
    long best = -1;

    for (long i = b->low + 1; i < b->high; i++)
        if (!b->skipped[i] && (best < 0 || labs(i - mid) < labs(best - mid)))
            best = i;
    return best;
}

/* Without the bad end there is nothing to find. ERR_STATE: it is not worse. */
static int check_ends(struct bisection *b)
{
    const struct commits_step *s;
    enum commits_verdict v;

    TRY(step(&v, b, b->good, b->high));
    s = &b->c->steps[b->c->n_steps - 1];
    if (v == COMMITS_WORSE)
        return OK;
    if (v == COMMITS_SKIPPED)
        return err_set(ERR_STATE, "--bad: %s", s->why);
    return err_set(ERR_STATE,
                   "--bad: expected a commit that is worse than --good by more than %s, "
                   "found %s",
                   b->c->o->margin,
                   v == COMMITS_SAME
                       ? "one that is not"
                       : "one of which it cannot be said (more --rounds-max, "
                         "or another --metric)");
}

static int narrow(struct bisection *b)
{
    long mid;

    while ((mid = middle(b)) >= 0) {
        enum commits_verdict v;

        log_info("%ld commits are left, at most %d steps without skips", b->high - b->low,
                 64 - __builtin_clzl((unsigned long)(b->high - b->low - 1)));
        TRY(step(&v, b, b->good, mid));
        if (v == COMMITS_WORSE) {
            if (mid < b->high)
                commits_drop(b->c, sha_of(b, b->high));
            b->high = mid;
        } else {
            if (v == COMMITS_SAME && b->low >= 0)
                commits_drop(b->c, sha_of(b, b->low));
            if (v == COMMITS_SAME)
                b->low = mid;
            else
                b->skipped[mid] = true;
        }
    }
    return OK;
}

static void say_range(struct bisection *b)
{
    int n = snprintf(b->result, sizeof(b->result),
                     "The first bad commit is one of these %ld, the others of which were "
                     "skipped or could not be told from the good one:",
                     b->high - b->low);

    for (long i = b->low + 1; i <= b->high && n < (int)sizeof(b->result) - 20; i++)
        n += snprintf(b->result + n, sizeof(b->result) - (size_t)n, " %.12s", b->list[i]);
}

/* Each step was against the good end and may have erred: the commit that was found is compared
 * with the one before it. */
static int confirm(struct bisection *b)
{
    enum commits_verdict v = COMMITS_WORSE;
    char line[160];

    if (b->high - b->low > 1) {
        say_range(b);
        return OK;
    }
    if (b->low >= 0)
        TRY(step(&v, b, sha_of(b, b->low), b->high));
    commits_line(line, sizeof(line), b->c, sha_of(b, b->high));
    b->found = v == COMMITS_WORSE;
    if (b->found)
        snprintf(b->result, sizeof(b->result), "The first bad commit: %s", line);
    else
        snprintf(
            b->result, sizeof(b->result),
            "%s is worse than %.12s, and the commit before it is not, but between the "
            "two the verdict is: %s. The regression may be in several commits.",
            line, b->good, commits_verdict_name(v));
    return OK;
}

static int bisect_all(struct bisection *b, const struct bisect_opts *o)
{
    struct commits *c = b->c;

    if (!o->good)
        return err_set(ERR_ARG, "--good: expected a commit, found none");
    TRY(commits_find(b->good, c, o->good, "--good"));
    TRY(commits_find(b->bad, c, o->bad, "--bad"));
    TRY(commits_check_ancestor(c, b->good, b->bad));
    TRY(commits_list(&b->list, &b->n, c, b->good, b->bad));
    if (b->n == 0)
        return err_set(ERR_ARG,
                       "--bad: expected a commit after --good, found the same, %.12s",
                       b->bad);
    b->skipped = mem_new(MEM_HARNESS, b->n, sizeof(*b->skipped));
    b->low = -1;
    b->high = (long)b->n - 1;
    TRY(check_ends(b));
    TRY(narrow(b));
    TRY(confirm(b));
    return commits_report(c, "Which commit is slower?", b->result);
}

static int bisect(const struct verb_words *w)
{
    const struct bisect_opts *o = w->opts;
    struct commits c;
    struct bisection b = {.c = &c};
    int rc = commits_open(&c, &o->common, o->common.out, w->sets, w->n_sets);

    if (rc == OK)
        rc = bisect_all(&b, o);
    if (rc == OK)
        printf("%s\n%s/report.md\n", b.result, c.out);
    commits_close(&c);
    mem_free(b.list);
    mem_free(b.skipped);
    if (rc != OK)
        return verb_fail(rc == ERR_ARG || rc == ERR_NOTFOUND ? PROGRAM_USAGE
                                                             : VERB_INVALID);
    return b.found ? PROGRAM_OK : CANNOT_SAY;
}

const struct verb verb_bisect = {
    .name = "bisect",
    .help = "Find the commit of an engine that made it slower.",
    .usage =
        {"testbed bisect --repo PATH --good A --bad B --job NAME --build CMD [options]",
         "Find the first commit that is worse than a good one by more than the margin. "
         "Each step builds the commit in the middle and compares it with the good one, "
         "in turn, as `testbed compare` does, with more rounds until there is a verdict. "
         "A commit that does not build or run, or of which it cannot be said, is "
         "skipped, as `git bisect skip` does. In the end the commit that was found is "
         "compared with the one before it.",
         "  testbed bisect --repo . --good v0.3.0 --bad HEAD --job quickstart --build "
         "'make -j4' --testbed build/testbed\n",
         "  0  the first bad commit was found\n"
         "  2  wrong usage: a repository, commit or experiment that is not there, or a "
         "good commit that is not an ancestor of the bad one\n"
         "  3  the good or the bad commit cannot be built or run, or the bad one is not "
         "worse\n"
         "  5  several commits are left, of which it cannot be said\n"},
    .takes_set = true,
    .opts = {{table}, {commits_opt_table, 0, changes}},
    .opts_bytes = sizeof(struct bisect_opts),
    .run = bisect,
};
