#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "experiments/report/compare_report.h"
#include "experiments/cli/compare_rounds.h"
#include "experiments/cli/verb.h"

enum { WORSE = 4, CANNOT_SAY = 5 };

struct compare_verb_opts {
    bool help, smoke, strict, across_machines, aa;
    int64_t rounds, seed;
    char *metric, *margin, *a, *b, *a_program, *b_program, *out;
};

#define OPT_OF struct compare_verb_opts
static const struct opt_row table[] = {
    OPT_ROW(
        STR, metric, NULL,
        "Metric to compare; the flag may be repeated. Default: of served requests "
        "the mean and the 90th percentile of TTFT, mean TPOT, throughput and goodput; of "
        "studies every metric of which more or less is better.",
        .unit = "NAME", .joins = ','),
    OPT_ROW(
        STR, margin, "5%",
        "Differences below this share do not matter: B is worse only where all of the "
        "interval is. Example: 2%.",
        .unit = "P%"),
    OPT_ROW(BOOL, strict, "false",
            "Exit with status 5 where B may be worse by more than the margin."),
    OPT_ROW(BOOL, across_machines, "false",
            "Compare records of different machines, and mark the comparison."),
    OPT_ROW(STR, a, NULL,
            "Setting of A, as --set of `testbed run`; the flag may be repeated.",
            .unit = "KEY=VALUE", .joins = '\n'),
    OPT_ROW(STR, b, NULL, "Setting of B.", .unit = "KEY=VALUE", .joins = '\n'),
    OPT_ROW(STR, a_program, NULL,
            "The testbed that runs A, such as that of another build or commit. Default: "
            "this one.",
            .unit = "FILE"),
    OPT_ROW(STR, b_program, NULL, "The testbed that runs B. Default: this one.",
            .unit = "FILE"),
    OPT_ROW(INT, rounds, "5",
            "Runs of A and of B, in turn. Two give a very wide interval; five tell a few "
            "per cent apart on a quiet machine.",
            .min = 1, .max = 1000),
    OPT_ROW(
        BOOL, aa, "true",
        "Compare A with A as well: jobs run A a second time in each round, of records "
        "A's "
        "restarts are divided. A difference of A and B that is not above what the A/A "
        "could have seen is no verdict."),
    VERB_SMOKE_ROW,
    OPT_ROW(
        STR, out, NULL,
        "Keep the records in this folder: A's in PATH/a, B's in PATH/b, those of A again "
        "in PATH/aa. Records that are there count as rounds. Default: a new folder in "
        "results/NAME.",
        .unit = "PATH"),
    OPT_ROW(INT, seed, "1", "Seed of the draws of requests for the intervals.", .min = 0,
            .max = 1e9),
    OPT_HELP_ROW,
    {0},
};

/* "5%", or "0.05". */
static int read_margin(double *out, const char *text)
{
    char *end;

    *out = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0)
        *out /= 100, end++;
    if (end == text || *end || !(*out >= 0 && *out < 1))
        return err_set(ERR_ARG,
                       "--margin: expected a share from 0%% to 100%%, found \"%s\"; "
                       "example: 5%%",
                       text);
    return OK;
}

static bool is_record(const char *word)
{
    const char *dot = strrchr(word, '.');
    struct stat st;

    return (dot && strcmp(dot, ".h5") == 0) ||
           (stat(word, &st) == 0 && S_ISDIR(st.st_mode));
}

static int check_words(const struct verb_words *w, const struct compare_verb_opts *o,
                       bool records)
{
    if (records &&
        (o->a || o->b || o->a_program || o->b_program || o->out || o->smoke || w->n_sets))
        return err_set(ERR_ARG, "records are compared as they are: --a, --b, --set, "
                                "--smoke, --out and programs are for jobs");
    if (records ? w->n_rest != 2 || !is_record(w->rest[1])
                : w->n_rest == 2 && is_record(w->rest[1]))
        return err_set(ERR_ARG, "expected two records (a file *.h5 or a folder of them), "
                                "or the name of a job");
    if (!records && w->n_rest == 1 && !o->a && !o->b && !o->a_program && !o->b_program)
        log_info("A and B are the same: this shows how much two runs of one setting "
                 "differ");
    return OK;
}

/* The stem of a job's name or file. */
static void stem_of(char *out, size_t n, const char *job)
{
    const char *slash = strrchr(job, '/');
    char *dot;

    snprintf(out, n, "%s", slash ? slash + 1 : job);
    dot = strrchr(out, '.');
    if (dot)
        *dot = '\0';
}

static int run_rounds(char *dir, size_t n, const struct verb_words *w,
                      const struct compare_verb_opts *o)
{
    const char *other = w->rest[w->n_rest - 1];
    const struct compare_rounds r = {
        .side = {{o->a_program, w->rest[0], o->a}, {o->b_program, other, o->b}},
        .sets = w->sets,
        .n_sets = w->n_sets,
        .smoke = o->smoke,
        .aa = o->aa,
        .n_rounds = o->rounds,
        .dir = dir};
    char utc[32], stem[128], *to = utc;

    stem_of(stem, sizeof(stem), w->rest[0]);
    clock_utc(utc, sizeof(utc));
    for (const char *p = utc; *p; p++)
        if (isalnum((unsigned char)*p))
            *to++ = *p;
    *to = '\0';
    if (o->out)
        snprintf(dir, n, "%s", o->out);
    else
        snprintf(dir, n, "results/%s/compare-%s", stem, utc);
    log_info("records go to %s; --out with this folder continues the comparison", dir);
    return compare_rounds_run(&r);
}

/* `again`: the records of A again; NULL: there are none. */
static int compare_paths(struct compare_totals *t, const char *a, const char *b,
                         const char *again, const struct compare_report_opts *o)
{
    struct compare_records x = {0}, y = {0}, z = {0};
    struct compare_report_opts with = *o;
    int rc = compare_read(&x, a);

    if (rc == OK)
        rc = compare_read(&y, b);
    if (rc == OK && again)
        rc = compare_read(&z, again);
    if (rc == OK && again)
        with.aa = &z;
    if (rc == OK)
        rc = compare_report(t, &x, &y, &with, stdout);
    compare_records_fini(&x);
    compare_records_fini(&y);
    compare_records_fini(&z);
    return rc;
}

/* Records that a comparison of jobs left in PATH/a and PATH/b have their A/A in PATH/aa. */
static const char *find_again(char *out, size_t n, const char *a, const char *b)
{
    const size_t n_a = strlen(a), n_b = strlen(b);
    struct stat st;

    if (n_a != n_b || n_a < 2 || strcmp(a + n_a - 2, "/a") != 0 ||
        strcmp(b + n_b - 2, "/b") != 0 || strncmp(a, b, n_a - 1) != 0 ||
        snprintf(out, n, "%sa", a) >= (int)n)
        return NULL;
    return stat(out, &st) == 0 && S_ISDIR(st.st_mode) ? out : NULL;
}

static int compare(const struct verb_words *w)
{
    const struct compare_verb_opts *o = w->opts;
    struct compare_report_opts report = {.metrics = o->metric,
                                         .no_aa = !o->aa,
                                         .across_machines = o->across_machines,
                                         .seed = (uint64_t)o->seed};
    const bool records = is_record(w->rest[0]);
    struct compare_totals t;
    char dir[1024], a[1040], b[1040], aa[1040];
    int rc = read_margin(&report.margin_frac, o->margin);

    if (rc == OK)
        rc = check_words(w, o, records);
    if (rc != OK)
        return verb_fail(VERB_USAGE);
    if (records) {
        const char *x = w->rest[0], *y = w->rest[1];

        rc = compare_paths(&t, x, y, o->aa ? find_again(aa, sizeof(aa), x, y) : NULL,
                           &report);
    } else {
        rc = run_rounds(dir, sizeof(dir), w, o);
        snprintf(a, sizeof(a), "%s/a", dir);
        snprintf(b, sizeof(b), "%s/b", dir);
        snprintf(aa, sizeof(aa), "%s/aa", dir);
        if (rc == OK)
            rc = compare_paths(&t, a, b, o->aa ? aa : NULL, &report);
    }
    if (rc != OK)
        return verb_fail(rc == ERR_IO || rc == ERR_FORMAT ? VERB_INVALID : VERB_USAGE);
    return t.n[COMPARE_WORSE]                 ? WORSE
           : o->strict && t.n_maybe_worse > 0 ? CANNOT_SAY
                                              : VERB_OK;
}

const struct verb verb_compare = {
    .name = "compare",
    .help = "Compare two results, or run two settings in turn and compare them.",
    .usage =
        {"testbed compare A.h5 B.h5 | NAME --a KEY=VALUE --b KEY=VALUE [options]",
         "Compare two records (or folders with several of one setting): for each cell "
         "and "
         "metric B's value over A's, its 95 % interval and a verdict. Or run an "
         "experiment "
         "as A and as B, in turn (A B, B A ...), each time in a new process, and compare "
         "what they left. A runs a second time in each round: this A/A tells how small a "
         "difference could have been seen. A and B differ in settings, programs "
         "(--b-program: that of "
         "another commit) or jobs (two names).",
         "  testbed compare results/quickstart/OLD.h5 results/quickstart/NEW.h5\n"
         "  testbed compare quickstart --a system.threads=1 --b system.threads=2\n"
         "  testbed compare quickstart --b-program ../other/build/testbed --margin 2%\n",
         "  0  B is not worse than A by more than the margin\n"
         "  2  wrong usage, or records that cannot be compared\n"
         "  3  a run failed, or standard output could not be written\n"
         "  4  B is worse than A by more than the margin in at least one metric\n"
         "  5  --strict: it cannot be said that B is not\n"},
    .n_args = 1,
    .n_optional = 1,
    .takes_set = true,
    .opts = table,
    .opts_bytes = sizeof(struct compare_verb_opts),
    .run = compare,
};
