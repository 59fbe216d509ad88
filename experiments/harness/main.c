/* testbed: runs experiments and says what they are.
 * Exit status: 0 ok, 2 usage (arguments or the job file), 3 the run is invalid or could
 * not be carried out, 4 a claim failed. */
#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/opt.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "experiments/harness/export.h"
#include "experiments/harness/job.h"
#include "experiments/harness/metrics.h"
#include "experiments/harness/run_experiment.h"
#include "experiments/harness/study.h"
#include "measure/card.h"
#include "plan/plan.h"

extern char **environ;

enum exit_status { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_INVALID = 3 };

#define MACHINE_BUDGET_S 60
#define FULL_CARD        "characterize"
#define FIGURE_PYTHON    "/usr/bin/python3"
#define FIGURE_SCRIPT    "paper-figs/" FULL_CARD ".py"
#define PLAN_BYTES       (1 << 20)

struct flags {
    bool smoke, dry_run, quiet, fresh, force, full;
    char *out, *format;
};

#define AT(member) offsetof(struct flags, member)
#define SWITCH(word, text)                                                               \
    {                                                                                    \
        .name = #word, .type = OPT_BOOL, .offset = AT(word), .def = "false",             \
        .help = text                                                                     \
    }

#define OUT_ROW(text)                                                                    \
    {                                                                                    \
        .name = "out", .type = OPT_STR, .offset = AT(out), .help = text                  \
    }
#define SMOKE_ROW SWITCH(smoke, "with the job's smoke section: small and quick")

static const struct opt_row run_flags[] = {
    SMOKE_ROW,
    SWITCH(dry_run, "say what would run, how long and how much disk; run nothing"),
    SWITCH(quiet, "no progress"),
    SWITCH(fresh, "forget what an interrupted run of this job left"),
    OUT_ROW("folder of the result; default results/<name>"),
    {0},
};
static const struct opt_row list_flags[] = {{0}};
static const struct opt_row describe_flags[] = {SMOKE_ROW, {0}};
static const struct opt_row machine_flags[] = {
    SWITCH(force, "measure again"),
    SWITCH(full,
           "the whole card by running the experiment characterize, a minute or two: "
           "every probe, this engine's prefill and decode, the trust in counters; "
           "kept as JSON and HDF5, drawn on one page"),
    SMOKE_ROW,
    SWITCH(quiet, "with full: no progress"),
    OUT_ROW("with full: folder of the record; default results/characterize"),
    {0},
};
static const struct opt_row export_flags[] = {
    {.name = "format",
     .type = OPT_STR,
     .offset = AT(format),
     .def = "csv",
     .help = "csv (requests), csv-cells, json, markdown"},
    OUT_ROW("file to write, whole or not at all; default standard output"),
    {0},
};

/* The words of a verb: its flags, every --set, and the rest in order. */
struct words {
    struct flags flags;
    char **sets, **rest;
    int n_sets, n_rest;
};

static int complain(int status)
{
    fprintf(stderr, "testbed: %s\n", err_msg());
    return status;
}

/* --- run */

static int run_status(const struct run_outcome *o)
{
    if (o->n_failed || o->n_skipped)
        fprintf(stderr, "testbed: %d cells failed, %d skipped\n", o->n_failed,
                o->n_skipped);
    return o->n_failed || o->n_invalid ? EXIT_INVALID : EXIT_OK;
}

/* *path, if not NULL, is the record's: mem_free(). */
static int run_job(const struct job *j, const struct flags *f, char **path)
{
    struct run_outcome outcome;
    struct run_options o = {.out_dir = f->out,
                            .machine_dir = MEASURE_CARD_DIR,
                            .fresh = f->fresh,
                            .progress = f->quiet                ? PROGRESS_QUIET
                                        : isatty(STDERR_FILENO) ? PROGRESS_LIVE
                                                                : PROGRESS_MINUTE,
                            .live = stderr,
                            .report = stdout};
    char dir[512];
    int rc;

    snprintf(dir, sizeof(dir), "results/%s", j->stem);
    if (!o.out_dir)
        o.out_dir = dir;
    rc = run_experiment(&outcome, j, &o);
    if (path)
        *path = outcome.path;
    else
        mem_free(outcome.path);
    return rc == OK ? run_status(&outcome) : complain(EXIT_INVALID);
}

static int verb_run(const struct words *w)
{
    struct job_read_opts o = {w->flags.smoke, w->sets, w->n_sets};
    struct job *j = NULL;
    int status = EXIT_OK;

    if (job_read(&j, w->rest[0], &o) != OK)
        return complain(EXIT_USAGE);
    if (w->flags.dry_run)
        run_plan_print(j, stdout);
    else
        status = run_job(j, &w->flags, NULL);
    job_free(&j);
    return status;
}

/* --- list, describe */

static int is_job(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return d->d_name[0] != '.' && dot && strcmp(dot, ".json") == 0;
}

static int verb_list(const struct words *w)
{
    struct dirent **found = NULL;
    int n = scandir("experiments", &found, is_job, alphasort), status = EXIT_OK;
    struct job *j;

    (void)w;
    if (n < 0) {
        fprintf(stderr, "testbed: experiments: cannot read the folder: %s\n",
                strerror(errno));
        return EXIT_USAGE;
    }
    for (int i = 0; i < n; i++) {
        char path[512];

        snprintf(path, sizeof(path), "experiments/%s", found[i]->d_name);
        if (job_read(&j, path, NULL) == OK) {
            printf("%-24s %4g min %6g MB  %s\n", j->stem, j->cost.minutes,
                   j->cost.disk_mb, j->head.about);
            job_free(&j);
        } else {
            status = complain(EXIT_USAGE);
        }
        free(found[i]);
    }
    free(found);
    return status;
}

/* A file that has a phase for each of prefill and decode is a plan, good or not. */
static bool is_plan(const char *path)
{
    json_t *root = NULL;
    bool yes = access(path, R_OK) == 0 && json_read_file(&root, path, PLAN_BYTES) == OK &&
               json_object_get(root, "prefill") && json_object_get(root, "decode");

    json_decref(root);
    return yes;
}

static int describe_plan(const char *path)
{
    struct plan p;
    char *text = NULL;

    if (plan_read(&p, path) != OK || plan_text(&p, &text) != OK)
        return complain(EXIT_USAGE);
    fputs(text, stdout);
    mem_free(text);
    return EXIT_OK;
}

static int verb_describe(const struct words *w)
{
    struct job_read_opts o = {w->flags.smoke, w->sets, w->n_sets};
    struct job *j = NULL;

    if (strcmp(w->rest[0], "metrics") == 0) {
        metrics_docs(stdout);
        study_docs(stdout);
        return EXIT_OK;
    }
    if (strcmp(w->rest[0], "keys") == 0) {
        job_docs(stdout);
        return EXIT_OK;
    }
    if (is_plan(w->rest[0]))
        return describe_plan(w->rest[0]);
    if (job_read(&j, w->rest[0], &o) != OK)
        return complain(EXIT_USAGE);
    job_describe(j, stdout);
    job_free(&j);
    return EXIT_OK;
}

/* --- machine, export */

/* *card is taken over. */
static int print_card(int rc, json_t *card)
{
    char *text = NULL;

    if (rc == OK)
        rc = measure_card_text(card, &text);
    if (rc == OK)
        printf("%s", text);
    mem_free(text);
    json_decref(card);
    return rc == OK ? EXIT_OK : complain(EXIT_INVALID);
}

/* The page: drawn by the experiment's own script, which says where. Without Python or its
 * libraries the card is still whole, so that is no failure. */
static void draw(const char *record)
{
    char *const argv[] = {(char *)FIGURE_PYTHON, (char *)FIGURE_SCRIPT, (char *)record,
                          NULL};
    int status = -1;
    pid_t pid;

    fflush(NULL);
    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    if (status != 0)
        fprintf(stderr, "testbed: no page was drawn; with python3-matplotlib and "
                        "python3-h5py: make figures NAME=" FULL_CARD "\n");
}

/* One mechanism: the full card is what the experiment measures, records and draws. */
static int full_machine(const struct words *w)
{
    const struct job_read_opts o = {.smoke = w->flags.smoke};
    struct flags f = w->flags;
    struct job *j = NULL;
    json_t *card = NULL;
    const char *dir;
    char *record = NULL;
    int status, rc;

    if (job_read(&j, FULL_CARD, &o) != OK)
        return complain(EXIT_USAGE);
    f.fresh = true; /* a card is of now */
    status = run_job(j, &f, &record);
    if (status == EXIT_OK) {
        dir = json_string_value(
            json_object_get(json_object_get(j->cells[0].settings, "study"), "dir"));
        rc = machine_card_full_get(&card, dir, 0, 0); /* as it was just kept */
        printf("\n");
        status = print_card(rc, card);
        printf("\nkept in %s (JSON) and %s (HDF5)\n", dir, record);
        draw(record);
    }
    mem_free(record);
    job_free(&j);
    return status;
}

static int verb_machine(const struct words *w)
{
    json_t *card = NULL;
    int rc;

    if (w->flags.full)
        return full_machine(w);
    rc = machine_card_get(&card, MEASURE_CARD_DIR, w->flags.force, MACHINE_BUDGET_S);
    return print_card(rc, card);
}

static int verb_export(const struct words *w)
{
    const char *result = w->rest[0], *out = w->flags.out;
    enum export_format format;
    int rc;

    if (export_format_find(w->flags.format, &format) != OK)
        return complain(EXIT_USAGE);
    rc = out ? export_save(result, format, out) : export_print(result, format, stdout);
    return rc == OK        ? EXIT_OK
           : rc == ERR_ARG ? complain(EXIT_USAGE)
                           : complain(EXIT_INVALID);
}

/* --- the verbs */

static const struct verb {
    const char *name, *args, *help;
    int n_args;
    const struct opt_row *flags;
    int (*run)(const struct words *w);
} verbs[] = {
    {"run", "FILE|NAME [--set KEY=VALUE]...", "run an experiment, or resume it", 1,
     run_flags, verb_run},
    {"list", "", "the experiments in experiments/, with their cost", 0, list_flags,
     verb_list},
    {"describe", "FILE|NAME|metrics|keys",
     "an experiment with all its keys; a plan; all metrics", 1, describe_flags,
     verb_describe},
    {"machine", "", "what this machine can do, measured", 0, machine_flags, verb_machine},
    {"export", "FILE.h5", "a result in another format", 1, export_flags, verb_export},
};
#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void help(FILE *f)
{
    fprintf(f, "usage: testbed VERB ...\n");
    for (size_t i = 0; i < N_VERBS; i++) {
        fprintf(f, "\ntestbed %s %s\n  %s\n", verbs[i].name, verbs[i].args,
                verbs[i].help);
        opt_help(verbs[i].flags, f);
    }
}

static int unknown_verb(const char *name)
{
    const char *words[N_VERBS + 1] = {0};

    for (size_t i = 0; i < N_VERBS; i++)
        words[i] = verbs[i].name;
    (void)name_unknown(ERR_ARG, name, words, "no verb \"%s\"", name);
    fprintf(stderr, "testbed: %s\n", err_msg());
    return EXIT_USAGE;
}

/* --set may come many times, which an option table has no row for: take them out first.
 */
static int take_sets(struct words *w, int argc, char **argv)
{
    int n = 0;

    w->sets = mem_new(MEM_HARNESS, (size_t)argc, sizeof(*w->sets));
    if (!w->sets)
        return ERR_NOMEM;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--set=", 6) == 0)
            w->sets[w->n_sets++] = argv[i] + 6;
        else if (strcmp(argv[i], "--set") != 0)
            argv[n++] = argv[i];
        else if (i + 1 < argc)
            w->sets[w->n_sets++] = argv[++i];
        else
            return err_set(ERR_ARG, "--set: expected key=value after it");
    }
    w->n_rest = n;
    return OK;
}

static int run_verb(const struct verb *v, int argc, char **argv)
{
    struct words w = {.rest = argv};
    int status = EXIT_USAGE;

    if (opt_init(v->flags, &w.flags) != OK)
        return complain(EXIT_USAGE);
    if (take_sets(&w, argc, argv) != OK ||
        opt_from_argv(v->flags, &w.flags, w.n_rest, argv, &w.n_rest) != OK) {
        complain(EXIT_USAGE);
    } else if (w.n_rest != v->n_args) {
        fprintf(stderr, "usage: testbed %s %s\n", v->name, v->args);
        opt_help(v->flags, stderr);
    } else {
        status = v->run(&w);
    }
    opt_free(v->flags, &w.flags);
    mem_free(w.sets);
    return status;
}

int main(int argc, char **argv)
{
    if (cpu_isa_check_env() != OK)
        return complain(EXIT_USAGE);
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; i < N_VERBS; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return run_verb(&verbs[i], argc - 2, argv + 2);
    return unknown_verb(argv[1]);
}
