#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/text_number.h"
#include "experiments/report/appendix.h"
#include "experiments/report/artifact.h"
#include "experiments/run/resume.h"
#include "experiments/cli/verb.h"

/* As of check. */
#define STATUS_FAILED 4

#define WORDS_MAX 64

struct artifact_opts {
    bool resume, dry_run, appendix, smoke;
    char *set, *budget, *claims, *out;
};

#define OPT_OF struct artifact_opts
static const struct opt_row table[] = {
    OPT_ROW(
        STR, budget, "120m",
        "Time for all experiments. One that still runs at its end is stopped, and kept "
        "for --resume. Examples: 90s, 30m, 2h.",
        .unit = "TIME"),
    OPT_ROW(STR, set, NULL,
            "Run the experiments of this set, in its order and with its settings: a name "
            "in experiments/sets/ or a JSON file. Each has a share of the time, in which "
            "it must begin its last cell; at twice the share it is stopped. No page is "
            "written.",
            .unit = "NAME|FILE"),
    OPT_ROW(BOOL, smoke, "false",
            "Run the smoke section of each: whether all would run here."),
    OPT_ROW(BOOL, resume, "false",
            "Continue an interrupted run: what it has finished is kept and its time "
            "counts, and what failed is tried again."),
    OPT_ROW(BOOL, dry_run, "false",
            "Print which experiments would be run, in which order and why, and run "
            "nothing."),
    OPT_ROW(BOOL, appendix, "false",
            "Print, in Markdown, each claim with its command, minutes, figure and the "
            "verdict of the newest record, and run nothing."),
    OPT_ROW(STR, claims, NULL,
            "List of claims. Default: results/claims.json, which comes with the program.",
            .unit = "FILE"),
    OPT_ROW(STR, out, "results/report", "Folder of the page, as of `testbed report`.",
            .unit = "DIR"),
    {0},
};

/* Of an experiment: it does not fit into the time, it does, it was run. */
enum turn { TURN_LATER, TURN_CHOSEN, TURN_OVER };

struct artifact {
    const struct artifact_opts *o;
    struct artifact_list list;
    enum turn *turn;          /* [list.n] */
    char path[NAME_MAX + 32]; /* of the state */
    json_t *state;            /* of artifact_state_read() */
    double budget_min, spent_min;
    uint64_t begin_ns;
    int n_run;
    struct text left_out; /* names with minutes */
};

/* The folder of its record below results/. */
static const char *folder(const struct artifact *a, const struct artifact_item *i,
                          char text[256])
{
    const char *slash = i->tag || a->o->smoke ? "/" : "";

    snprintf(text, 256, "%s%s%s%s", i->name, slash, i->tag ? i->tag : "",
             a->o->smoke ? i->tag ? "-smoke" : "smoke" : "");
    return text;
}

static bool is_done(const struct artifact *a, const struct artifact_item *i)
{
    char name[256];
    const json_t *run = json_object_get(a->state, folder(a, i, name));

    return run && !json_object_get(run, "failed");
}

/* Sums and differences of minutes leave a rest that is none. */
#define MINUTES(min) TEXT_NUMBER(round(1e3 * (min)) / 1e3, 4)

static double left_min(const struct artifact *a)
{
    return a->budget_min - a->spent_min - (double)(clock_ns() - a->begin_ns) / 60e9;
}

static const char *why(const struct artifact_item *i, char text[96])
{
    if (i->why)
        return i->why;
    if (i->n_should)
        snprintf(text, 96, "%d claim%s that should hold, %d in all", i->n_should,
                 i->n_should == 1 ? "" : "s", i->n_claims);
    else
        snprintf(text, 96, "%d claim%s", i->n_claims, i->n_claims == 1 ? "" : "s");
    return text;
}

/* --- what would be run */

/* Returns the minutes that are left. */
static double choose(struct artifact *a)
{
    double left = a->budget_min - a->spent_min;

    for (size_t i = 0; i < a->list.n; i++) {
        const struct artifact_item *e = &a->list.v[i];

        a->turn[i] = is_done(a, e)        ? TURN_OVER
                     : e->minutes <= left ? TURN_CHOSEN
                                          : TURN_LATER;
        left -= a->turn[i] == TURN_CHOSEN ? e->minutes : 0;
    }
    return left;
}

static void print_plan(struct artifact *a)
{
    static const char *const words[] = {
        [TURN_LATER] = "left out", [TURN_CHOSEN] = "run", [TURN_OVER] = "done"};
    const double left = choose(a);
    char text[96], name[256];

    printf(a->o->set ? "in the order of the set:\n"
                     : "first the most claims that should hold per minute, then the most "
                       "other claims per minute, then the shortest:\n");
    for (size_t i = 0; i < a->list.n; i++) {
        const struct artifact_item *e = &a->list.v[i];

        printf("  %-10s %-24s %6s min  %s\n", words[a->turn[i]], folder(a, e, name),
               MINUTES(e->minutes), why(e, text));
    }
    printf("%s of %s min would be left%s\n", MINUTES(left), MINUTES(a->budget_min),
           a->o->set ? "" : "; then: testbed check, testbed report");
}

/* --- running */

/* As `make experiment` does, or with a limit, in a process of its own. */
static int run_experiment_alone(const struct artifact *a, const struct artifact_item *e,
                                double share_s, double limit_s)
{
    char program[PATH_MAX], share[32], tag[256];
    const char *argv[WORDS_MAX] = {home_program(program, sizeof(program), "testbed"),
                                   "run", e->name};
    const struct child_program p = {
        .argv = argv,
        .fd = {-1, STDOUT_FILENO, STDERR_FILENO},
        /* An interrupt from the keyboard ends this process, which reports how to go on; the
         * other one ends with it. */
        .own_group = true};
    const size_t n_words = json_array_size(e->words);
    pid_t pid = 0;
    int rc, n = 3;

    if (2 * n_words + 10 > WORDS_MAX)
        return err_set(ERR_LIMIT, "%s: %zu settings in the set", e->name, n_words);
    snprintf(share, sizeof(share), "%.0fs", ceil(share_s));
    snprintf(tag, sizeof(tag), "%s%s", e->tag ? e->tag : "", a->o->smoke ? "-smoke" : "");
    if (a->o->set)
        argv[n++] = "--limit", argv[n++] = share;
    else
        argv[n++] = "--draw", argv[n++] = "--retries", argv[n++] = "2";
    if (a->o->smoke)
        argv[n++] = "--smoke";
    if (e->tag)
        argv[n++] = "--tag", argv[n++] = tag;
    for (size_t i = 0; i < n_words; i++) {
        argv[n++] = "--set";
        argv[n++] = json_string_value(json_array_get(e->words, i));
    }
    fflush(stdout);
    rc = child_start(&pid, &p);
    if (rc == OK)
        rc = child_wait(&pid, limit_s);
    if (rc == ERR_LIMIT)
        child_kill(&pid);
    return rc;
}

static int note(struct artifact *a, const char *name, double minutes, const char *failed)
{
    json_t *run = failed ? json_pack("{s:f s:o}", "minutes", minutes, "failed",
                                     json_string_lossy(failed))
                         : json_pack("{s:f}", "minutes", minutes);

    json_object_set_new(a->state, name, run);
    return json_write_file(a->state, a->path);
}

/* Of a set each of those that are left has a share; else the first may take all. */
static double share_min(const struct artifact *a, const struct artifact_item *e)
{
    double sum = e->minutes;

    for (size_t i = 0; i < a->list.n; i++)
        sum += a->turn[i] == TURN_CHOSEN ? a->list.v[i].minutes : 0;
    return left_min(a) * (a->o->set ? e->minutes / sum : 1);
}

static int run_one(struct artifact *a, const struct artifact_item *e)
{
    const uint64_t begin_ns = clock_ns();
    const double share_s = fmax(1, 60 * share_min(a, e)),
                 limit_s = fmin(2 * share_s, fmax(1, 60 * left_min(a)));
    char text[96], name[256];
    int rc;

    printf("\n== %s: %s, %s min; %s min are left%s\n", folder(a, e, name), why(e, text),
           MINUTES(e->minutes), MINUTES(share_s / 60), a->o->set ? " for it" : "");
    rc = run_experiment_alone(a, e, share_s, limit_s);
    if (rc == ERR_LIMIT) {
        printf("%s: stopped at the end of %s time; --resume with more continues it\n",
               name, a->o->set ? "its" : "the");
        text_printf(&a->left_out, "%s%s (stopped)", a->left_out.n ? ", " : "", name);
        return OK;
    }
    if (rc != OK && rc != ERR_IO)
        return rc;
    a->n_run++;
    if (rc != OK)
        fprintf(stderr, "testbed: %s: %s\n", name, err_msg());
    return note(a, name, (double)(clock_ns() - begin_ns) / 60e9,
                rc == OK ? NULL : err_msg());
}

/* Those that were chosen, then what fits into the time that they did not take. */
static int run_all(struct artifact *a)
{
    char name[256];

    choose(a);
    for (size_t i = 0; i < a->list.n; i++) {
        const struct artifact_item *e = &a->list.v[i];

        if (a->turn[i] == TURN_OVER)
            printf("== %s: done before\n", folder(a, e, name));
        if (a->turn[i] != TURN_CHOSEN)
            continue;
        a->turn[i] = TURN_LATER;
        if (left_min(a) <= 0 || (!a->o->set && e->minutes > left_min(a)))
            continue;
        a->turn[i] = TURN_OVER;
        TRY(run_one(a, e));
    }
    for (size_t i = 0; i < a->list.n; i++) {
        const struct artifact_item *e = &a->list.v[i];

        if (a->turn[i] == TURN_LATER && left_min(a) > 0 && e->minutes <= left_min(a))
            TRY(run_one(a, e));
        else if (a->turn[i] == TURN_LATER)
            text_printf(&a->left_out, "%s%s (%s min)", a->left_out.n ? ", " : "",
                        folder(a, e, name), MINUTES(e->minutes));
    }
    return a->left_out.rc;
}

/* Returns how many failed, also before. */
static int print_totals(const struct artifact *a)
{
    const char *name;
    json_t *run;
    int n_failed = 0;

    printf("\n%d experiment%s run\n", a->n_run, a->n_run == 1 ? "" : "s");
    json_object_foreach(a->state, name, run)
    {
        const char *failed = json_string_value(json_object_get(run, "failed"));

        if (failed)
            printf("failed: %s (%s)\n", name, failed);
        else
            printf("results/%s\n", name);
        n_failed += failed != NULL;
    }
    if (a->left_out.n)
        printf("left out for want of time: %.*s\n", (int)a->left_out.n, a->left_out.p);
    printf("\n");
    return n_failed;
}

/* Verdicts, page, and what the published records say of the same, all of whole experiments. That
 * numbers differ from those is no failure: machines are not alike. Returns the exit status. */
static int conclude(const struct artifact_opts *o, int n_failed)
{
    char *check[] = {"--claims", o->claims},
         *page[] = {"--out", o->out, "--claims", o->claims};
    const int n = o->claims ? 2 : 0;
    int verdicts, report;

    if (o->set || o->smoke)
        return n_failed ? VERB_INVALID : PROGRAM_OK;
    verdicts = verb_call("check", n, check);
    report = verb_call("report", 2 + n, page);
    printf("\n");
    verb_call("compare", 1, (char *[]){"--published"});
    if (verdicts == STATUS_FAILED)
        return STATUS_FAILED;
    return n_failed ? VERB_INVALID : verdicts != PROGRAM_OK ? verdicts : report;
}

/* --- the verb */

/* Each set has one, and so have smoke runs. */
static void name_state(struct artifact *a)
{
    const char *set = a->o->set ? a->o->set : "", *slash = strrchr(set, '/');

    set = slash ? slash + 1 : set;
    snprintf(a->path, sizeof(a->path), "results/artifact%s%.*s%s.json", *set ? "-" : "",
             (int)strcspn(set, "."), set, a->o->smoke ? "-smoke" : "");
}

static int prepare(struct artifact *a, const struct artifact_opts *o)
{
    char path[PATH_MAX];
    struct claims claims = {0};
    const char *name;
    json_t *run;
    double budget_s = 0;
    int rc = opt_seconds(&budget_s, o->budget, "--budget");

    a->o = o;
    a->budget_min = budget_s / 60;
    a->begin_ns = clock_ns();
    name_state(a);
    home_find(path, sizeof(path), "results/claims.json");
    if (rc == OK)
        rc = claims_read(&claims, o->claims ? o->claims : path);
    if (rc == OK)
        rc = o->set ? artifact_read_set(&a->list, o->set, &claims, o->smoke)
                    : artifact_read(&a->list, &claims, o->smoke);
    if (rc == OK)
        rc = artifact_state_read(&a->state, o->resume ? a->path : NULL);
    a->turn = mem_new(MEM_HARNESS, a->list.n + 1, sizeof(*a->turn));
    if (rc == OK)
        json_object_foreach(a->state, name, run) a->spent_min +=
            json_number_value(json_object_get(run, "minutes"));
    claims_fini(&claims);
    return rc;
}

static const json_t *newest_record(void *ctx, const char *experiment)
{
    json_t **record = ctx; /* of one simulator */

    json_decref(*record);
    if (claim_record(record, experiment) != OK)
        err_clear();
    return *record;
}

/* Returns the exit status. */
static int print_appendix(const struct artifact_opts *o)
{
    char path[PATH_MAX];
    struct claims claims = {0};
    struct text page = {0};
    json_t *record = NULL;
    int rc;

    home_find(path, sizeof(path), "results/claims.json");
    rc = claims_read(&claims, o->claims ? o->claims : path);
    if (rc == OK)
        claims_find_errors(&claims, newest_record, &record);
    if (rc == OK)
        rc = artifact_put_appendix(&page, &claims);
    if (rc == OK)
        fwrite(page.p, 1, page.n, stdout);
    text_fini(&page);
    json_decref(record);
    claims_fini(&claims);
    return rc == OK ? PROGRAM_OK : verb_fail(PROGRAM_USAGE);
}

static int artifact(const struct verb_words *w)
{
    const struct artifact_opts *o = w->opts;
    struct artifact a = {0};
    int status = PROGRAM_USAGE, rc;

    if (o->appendix)
        return print_appendix(o);
    rc = prepare(&a, o);
    if (rc != OK) {
        verb_fail(status);
    } else if (o->dry_run) {
        print_plan(&a);
        status = PROGRAM_OK;
    } else {
        run_resume_add("--resume");
        process_at_signal(run_resume_report);
        rc = json_write_file(a.state, a.path);
        if (rc == OK)
            rc = run_all(&a);
        status = rc == OK ? conclude(o, print_totals(&a)) : verb_fail(VERB_INVALID);
    }
    artifact_fini(&a.list);
    mem_free(a.turn);
    json_decref(a.state);
    text_fini(&a.left_out);
    return status;
}

const struct verb verb_artifact = {
    .name = "artifact",
    .help = "Run the experiments that fit into a time, then check and report.",
    .usage =
        {"testbed artifact [--budget TIME] [options]",
         "Run the experiments that fit into the time, those first whose records "
         "decide the "
         "most claims per minute; go on after one that fails, and name it; then "
         "print the "
         "verdicts of `testbed check`, write the page of `testbed report` and compare "
         "the records with those that come with the program.",
         "  testbed artifact --dry-run\n"
         "  testbed artifact --appendix\n"
         "  testbed artifact --budget 2h\n"
         "  testbed artifact --set many-cores --budget 9m\n"
         "  testbed artifact --budget 2h --resume\n",
         VERB_EXIT_STATUS "  4  a claim that should hold on every machine does not\n"},
    .opts = {{table}},
    .opts_bytes = sizeof(struct artifact_opts),
    .run = artifact,
};
