#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "experiments/cli/compare_folders.h"
#include "experiments/cli/compare_rounds.h"
#include "experiments/cli/verb.h"
#include "experiments/job/job.h"
#include "experiments/report/compare_published.h"

enum { WORSE = 4, CANNOT_SAY = 5 };

#define ROUNDS_MAX 1000

struct compare_verb_opts {
    bool smoke, strict, across_machines, aa, published;
    int64_t rounds_max, seed;
    char *metric, *margin, *rounds, *precision, *a, *b, *a_program, *b_program, *out;
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
    OPT_ROW(BOOL, published, "false",
            "Compare the headline numbers of your newest record of each NAME, or of all "
            "experiments, with those of the record that comes with the program: same, "
            "differs, or other machine. --margin is for numbers that depend on the "
            "machine."),
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
    OPT_ROW(
        STR, rounds, "5",
        "Runs of A and of B, in turn. Two give a very wide interval; five tell a few "
        "per cent apart on a quiet machine. auto: until each interval is as narrow as "
        "--precision says, 6 at least.",
        .unit = "N"),
    OPT_ROW(
        STR, precision, "3%",
        "With --rounds auto: how far an interval may reach to each side of its ratio.",
        .unit = "P%"),
    OPT_ROW(INT, rounds_max, "30", "With --rounds auto: the most rounds.",
            .min = COMPARE_SEQUENTIAL_LEAST, .max = ROUNDS_MAX),
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
    {0},
};

/* 0: auto. */
static int read_rounds(int64_t *out, const char *text)
{
    char *end;

    *out = strcmp(text, "auto") == 0 ? 0 : strtoll(text, &end, 10);
    if (*out && (*end || *out < 1 || *out > ROUNDS_MAX))
        *out = 0;
    if (*out == 0 && strcmp(text, "auto") != 0)
        return err_set(ERR_ARG,
                       "--rounds: expected a number from 1 to %d or auto, found "
                       "\"%s\"",
                       ROUNDS_MAX, text);
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
    if (w->n_rest < 1 || w->n_rest > 2)
        return err_set(ERR_ARG, "expected one or two records or jobs, found %d",
                       w->n_rest);
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

static void choose_dir(char *dir, size_t n, const char *job,
                       const struct compare_verb_opts *o)
{
    char utc[32], stem[128], *to = utc;

    stem_of(stem, sizeof(stem), job);
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
}

/* The path of `name` in DIR, where a comparison of jobs has left it with its records in DIR/a and
 * DIR/b. NULL: a and b are others, or there is none. */
static const char *find_left(char *out, size_t n, const char *a, const char *b,
                             const char *name)
{
    const size_t n_a = strlen(a), n_b = strlen(b);
    struct stat st;

    if (n_a != n_b || n_a < 2 || strcmp(a + n_a - 2, "/a") != 0 ||
        strcmp(b + n_b - 2, "/b") != 0 || strncmp(a, b, n_a - 1) != 0 ||
        snprintf(out, n, "%.*s%s", (int)n_a - 1, a, name) >= (int)n)
        return NULL;
    return stat(out, &st) == 0 ? out : NULL;
}

/* --- rounds */

/* The widest interval of the rounds that there are. */
static int look(double *reach_frac, const struct compare_folders *at,
                const struct compare_report_opts *report, bool aa)
{
    struct compare_totals t = {0};
    FILE *f = fopen("/dev/null", "w");
    int rc = f ? OK : err_set(ERR_IO, "/dev/null: cannot open: %m");

    if (rc == OK)
        rc = compare_paths_report(&t, at->a, at->b, aa ? at->aa : NULL, report, f);
    if (f)
        fclose(f);
    *reach_frac = t.reach_frac;
    return rc;
}

/* Rounds until each interval is narrow enough. `why` gets the reason of the end. */
static int run_until_known(struct compare_rounds *r, const struct compare_folders *at,
                           const struct compare_verb_opts *o, double precision,
                           const struct compare_report_opts *report, char why[160])
{
    double reach = INFINITY;
    int64_t n = compare_rounds_done(r);

    n = n > COMPARE_SEQUENTIAL_LEAST ? n : COMPARE_SEQUENTIAL_LEAST;
    r->n_rounds_max = o->rounds_max;
    TRY(compare_folders_keep(at, 0, precision, "not yet"));
    for (;; n++) {
        r->n_rounds = n;
        TRY(compare_rounds_run(r));
        TRY(look(&reach, at, report, o->aa));
        if (reach <= precision || n >= o->rounds_max)
            break;
        log_info("after %lld rounds the widest interval reaches %.1f %% to each side",
                 (long long)n, 100 * reach);
    }
    snprintf(why, 160,
             "%s after %lld rounds: the widest interval reaches %.2g %% to each "
             "side, %.2g %% were asked for",
             reach <= precision ? "known" : "not known", (long long)n, 100 * reach,
             100 * precision);
    return compare_folders_keep(at, n, precision, why);
}

static int run_rounds(struct compare_folders *at, const struct verb_words *w,
                      int64_t n_rounds, double precision,
                      struct compare_report_opts *report, char why[160])
{
    const struct compare_verb_opts *o = w->opts;
    const char *other = w->rest[w->n_rest - 1];
    struct compare_rounds r = {
        .side = {{o->a_program, w->rest[0], o->a}, {o->b_program, other, o->b}},
        .sets = w->sets,
        .n_sets = w->n_sets,
        .smoke = o->smoke,
        .aa = o->aa,
        .n_rounds = n_rounds,
        .dir = at->dir};

    choose_dir(at->dir, sizeof(at->dir), w->rest[0], o);
    compare_folders_fill(at);
    report->sequential = n_rounds == 0 || access(at->rounds, F_OK) == 0;
    return n_rounds ? compare_rounds_run(&r)
                    : run_until_known(&r, at, o, precision, report, why);
}

/* --- the verb */

static int compare_jobs(struct compare_totals *t, const struct verb_words *w,
                        int64_t n_rounds, double precision,
                        struct compare_report_opts *report)
{
    const struct compare_verb_opts *o = w->opts;
    struct compare_folders at;
    char why[160] = "";

    TRY(run_rounds(&at, w, n_rounds, precision, report, why));
    TRY(compare_paths_report(t, at.a, at.b, o->aa ? at.aa : NULL, report, stdout));
    if (why[0])
        printf("%s\n", why);
    return OK;
}

static int compare_records(struct compare_totals *t, const struct verb_words *w,
                           struct compare_report_opts *report)
{
    const struct compare_verb_opts *o = w->opts;
    const char *a = w->rest[0], *b = w->rest[1];
    char aa[1040], rounds[1060];

    report->sequential =
        find_left(rounds, sizeof(rounds), a, b, COMPARE_ROUNDS_FILE) != NULL;
    return compare_paths_report(
        t, a, b, o->aa ? find_left(aa, sizeof(aa), a, b, "aa") : NULL, report, stdout);
}

/* The experiments of these words, or all. *out: a new reference, also after an error. */
static int read_names(json_t **out, const struct verb_words *w)
{
    struct job *j = NULL;

    if (w->n_rest == 0)
        return job_names(out);
    *out = json_array();
    for (int i = 0; i < w->n_rest; i++) {
        TRY(job_read(&j, w->rest[i], NULL));
        json_array_append_new(*out, json_string_lossy(j->stem));
        job_free(&j);
    }
    return OK;
}

/* Returns the exit status. */
static int compare_with_published(const struct verb_words *w, double margin_frac)
{
    const struct compare_verb_opts *o = w->opts;
    struct compare_published_totals t;
    json_t *names = NULL;
    int rc = OK;

    if (o->a || o->b || o->a_program || o->b_program || o->out || o->smoke || o->metric ||
        w->n_sets)
        rc =
            err_set(ERR_ARG, "--published compares records as they are: --a, --b, --set, "
                             "--metric, --smoke, --out and programs are for others");
    if (rc == OK)
        rc = read_names(&names, w);
    if (rc == OK)
        rc = compare_published(&t, names, margin_frac, stdout);
    json_decref(names);
    if (rc != OK)
        return verb_fail(rc == ERR_IO ? VERB_INVALID : PROGRAM_USAGE);
    return t.n_unreadable                ? VERB_INVALID
           : t.n[COMPARE_REPEAT_DIFFERS] ? WORSE
                                         : PROGRAM_OK;
}

static int compare(const struct verb_words *w)
{
    const struct compare_verb_opts *o = w->opts;
    struct compare_report_opts report = {.metrics = o->metric,
                                         .no_aa = !o->aa,
                                         .across_machines = o->across_machines,
                                         .seed = (uint64_t)o->seed};
    const bool records = w->n_rest > 0 && is_record(w->rest[0]);
    struct compare_totals t;
    double precision;
    int64_t n_rounds;
    int rc = compare_share(&report.margin_frac, o->margin, "--margin");

    if (rc == OK && o->published)
        return compare_with_published(w, report.margin_frac);
    if (rc == OK)
        rc = compare_share(&precision, o->precision, "--precision");
    if (rc == OK)
        rc = read_rounds(&n_rounds, o->rounds);
    if (rc == OK)
        rc = check_words(w, o, records);
    if (rc != OK)
        return verb_fail(PROGRAM_USAGE);
    rc = records ? compare_records(&t, w, &report)
                 : compare_jobs(&t, w, n_rounds, precision, &report);
    if (rc != OK)
        return verb_fail(rc == ERR_IO || rc == ERR_FORMAT ? VERB_INVALID : PROGRAM_USAGE);
    return t.n[COMPARE_WORSE]                 ? WORSE
           : o->strict && t.n_maybe_worse > 0 ? CANNOT_SAY
                                              : PROGRAM_OK;
}

const struct verb verb_compare = {
    .name = "compare",
    .help = "Compare two results, or run two settings in turn and compare them.",
    .usage =
        {"testbed compare A.h5 B.h5 | NAME --a K=V --b K=V | --published [NAME...]",
         "Compare two records (or folders with several of one setting): for each cell "
         "and "
         "metric B's value over A's, its 95 % interval and a verdict. Or run an "
         "experiment "
         "as A and as B, in turn (A B, B A ...), each time in a new process, and compare "
         "what they left. A runs a second time in each round: this A/A shows how small a "
         "difference could have been seen. A and B differ in settings, programs "
         "(--b-program: that of "
         "another commit) or jobs (two names). Or compare your records with those that "
         "come with the program.",
         "  testbed compare results/quickstart/OLD.h5 results/quickstart/NEW.h5\n"
         "  testbed compare quickstart --a system.threads=1 --b system.threads=2\n"
         "  testbed compare quickstart --b-program ../other/build/testbed --margin 2%\n"
         "  testbed compare quickstart --b system.threads=1 --rounds auto --precision "
         "2%\n"
         "  testbed compare --published\n",
         "  0  B is not worse than A by more than the margin\n"
         "  2  wrong usage, or records that cannot be compared\n"
         "  3  a run failed, or standard output could not be written\n"
         "  4  B is worse than A by more than the margin in at least one metric, or your "
         "record\n     differs from the published one\n"
         "  5  --strict: it cannot be said that B is not\n"},
    .n_optional = INT_MAX,
    .takes_set = true,
    .opts = {{table}},
    .opts_bytes = sizeof(struct compare_verb_opts),
    .run = compare,
};
