/* The program `testbed`: runs experiments, describes them and exports their results. */
#include <limits.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/child.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/process.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "cpu/program.h"
#include "experiments/harness/export.h"
#include "experiments/harness/job.h"
#include "experiments/harness/metrics.h"
#include "experiments/harness/run_dir.h"
#include "experiments/harness/run_bench.h"
#include "experiments/harness/run_experiment.h"
#include "experiments/harness/run_figure.h"
#include "experiments/harness/run_resume.h"
#include "experiments/harness/study.h"
#include "measure/card.h"
#include "plan/plan.h"

enum exit_status { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_INVALID = 3 };

#define EXIT_STATUS                                                                      \
    "  0  success\n"                                                                     \
    "  2  wrong usage, or an error in the experiment's file\n"                           \
    "  3  the run is invalid or failed, or standard output could not be written\n"

#define FULL_CARD  "characterize"
#define PLAN_BYTES (64 << 20)

struct flags {
    union {
        bool help;
        struct run_bench_opts bench; /* begins with help, too */
    };
    bool smoke, dry_run, quiet, fresh, draw, force, full, accept_noise;
    char *out, *tag, *format, *record;
};

#define OPT_OF        struct flags
#define OUT_ROW(text) OPT_ROW(STR, out, NULL, text, .unit = "PATH")
#define SMOKE_ROW                                                                        \
    OPT_ROW(BOOL, smoke, "false", "Use the job's smoke section: small and quick.")

static const struct opt_row run_flags[] = {
    SMOKE_ROW,
    OPT_ROW(BOOL, dry_run, "false",
            "Print the cells, the expected time and disk, and run nothing."),
    OPT_ROW(BOOL, quiet, "false", "Print no progress."),
    OPT_ROW(BOOL, fresh, "false",
            "Discard what an interrupted run of this job has left, and start over."),
    OPT_ROW(BOOL, draw, "false",
            "Draw the experiment's figure from the record, with paper-figs/NAME.py: into "
            "paper-figs/out, or next to the record if that is not kept in results/NAME."),
    OPT_ROW(STR, tag, NULL,
            "Keep the record in results/NAME/TAG. Default: results/NAME for the "
            "experiment as its file states it, and a folder in there, named after the "
            "changes, with --smoke or --set.",
            .unit = "TAG"),
    OUT_ROW("Keep the record in this folder. Default: as with --tag."),
    OPT_HELP_ROW,
    {0},
};
static const struct opt_row list_flags[] = {OPT_HELP_ROW, {0}};
static const struct opt_row describe_flags[] = {SMOKE_ROW, OPT_HELP_ROW, {0}};
static const struct opt_row machine_flags[] = {
    OPT_ROW(BOOL, force, "false",
            "Measure again, even if there is a card of this machine."),
    OPT_ROW(BOOL, accept_noise, "false",
            "Trust bounds even if their trials differ by more than 10 % or other "
            "programs had most of the CPUs. For the quick card only."),
    OPT_ROW(BOOL, full, "false",
            "Measure the full card in a minute or two by running the experiment "
            "characterize. It is kept as JSON and HDF5 and drawn on one page."),
    OPT_ROW(BOOL, smoke, "false",
            "With --full: run the experiment's smoke section, which takes seconds and "
            "does not measure the machine."),
    OPT_ROW(BOOL, quiet, "false", "With --full: print no progress."),
    OUT_ROW("With --full: folder of the record. Default: results/characterize, with "
            "--smoke results/characterize/smoke."),
    OPT_HELP_ROW,
    {0},
};
static const struct opt_row export_flags[] = {
    OPT_ROW(STR, format, "csv",
            "csv (one line per request), csv-cells (one line per cell), json or "
            "markdown.",
            .unit = "FORMAT"),
    OUT_ROW("File to write, completely or not at all. Default: standard output."),
    OPT_HELP_ROW,
    {0},
};

static const struct opt_row draw_flags[] = {
    OPT_ROW(STR, record, NULL,
            "Record to draw. Default: the newest, results/NAME/latest.json.",
            .unit = "FILE"),
    OUT_ROW("Folder of the figure. Default: paper-figs/out of the checkout, or below the "
            "working directory."),
    OPT_HELP_ROW,
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

/* What a run has left. */
struct ran {
    struct run_dir dir;
    struct run_outcome outcome;
};

static void ran_fini(struct ran *r)
{
    mem_free(r->outcome.path);
    mem_free(r->dir.path);
}

static int draw_ran(const struct job *j, const struct ran *r)
{
    return run_figure(j->stem, r->outcome.path, r->dir.is_separate ? r->dir.path : NULL,
                      j->n_axes > 0);
}

/* *out: ran_fini(), also after an error. Returns the exit status. */
static int run_job(struct ran *out, const struct job *j, const struct words *w)
{
    const struct flags *f = &w->flags;
    const struct job_read_opts read = {f->smoke, w->sets, w->n_sets};
    struct run_options o = {.machine_dir = MEASURE_CARD_DIR,
                            .fresh = f->fresh,
                            .progress = f->quiet                ? PROGRESS_QUIET
                                        : isatty(STDERR_FILENO) ? PROGRESS_LIVE
                                                                : PROGRESS_MINUTE,
                            .live = stderr,
                            .report = stdout};

    *out = (struct ran){0};
    if (run_dir_of(&out->dir, j->stem, f->out, f->tag, &read) != OK)
        return complain(EXIT_USAGE);
    o.out_dir = out->dir.path;
    return run_experiment(&out->outcome, j, &o) == OK ? run_status(&out->outcome)
                                                      : complain(EXIT_INVALID);
}

static int verb_run(const struct words *w)
{
    struct job_read_opts o = {w->flags.smoke, w->sets, w->n_sets};
    struct job *j = NULL;
    struct ran ran;
    int status = EXIT_OK;

    if (job_read(&j, w->rest[0], &o) != OK)
        return complain(EXIT_USAGE);
    if (w->flags.dry_run)
        run_plan_print(j, stdout);
    else {
        process_at_signal(run_resume_report);
        status = run_job(&ran, j, w);
        /* A sweep was asked for on the command line to be looked at. */
        if ((w->flags.draw || json_array_size(j->swept) > 0) && ran.outcome.path &&
            draw_ran(j, &ran) != OK)
            status = complain(w->flags.draw ? EXIT_INVALID : status);
        ran_fini(&ran);
    }
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
    char dir[PATH_MAX];
    struct dirent **found = NULL;
    int n = scandir(home_find(dir, sizeof(dir), "experiments"), &found, is_job,
                    alphasort),
        status = EXIT_OK;
    struct job *j;

    (void)w;
    if (n < 0) {
        fprintf(stderr,
                "testbed: %s: cannot read the folder: %s; it is neither near this "
                "program nor here: set " HOME_ENV "\n",
                dir, strerror(errno));
        return EXIT_USAGE;
    }
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX + 256];

        snprintf(path, sizeof(path), "%s/%s", dir, found[i]->d_name);
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

/* Does the file look like a plan, valid or not: does it have the keys of both phases? */
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
    static struct plan
        p; /* it has every CPU of a large machine: too much for the stack */
    char *text = NULL;
    bool ok = plan_read(&p, path) == OK && plan_text(&p, &text) == OK;

    plan_fini(&p);
    if (!ok)
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
        if (w->n_rest > 1)
            return job_find_keys(w->rest[1], stdout) == OK ? EXIT_OK
                                                           : complain(EXIT_USAGE);
        job_docs(stdout);
        return EXIT_OK;
    }
    if (w->n_rest > 1) {
        fprintf(stderr,
                "testbed describe: unexpected argument \"%s\"; only `describe keys` "
                "takes a second one\n",
                w->rest[1]);
        return EXIT_USAGE;
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

/* Takes ownership of `card`. */
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

static int verb_draw(const struct words *w)
{
    /* The newest record is found by the script, which then gets no second word either. */
    if (!w->flags.record && w->flags.out && setenv("FIGURES", w->flags.out, 1) != 0)
        return complain(EXIT_INVALID);
    return run_figure(w->rest[0], w->flags.record, w->flags.out, false) == OK
               ? EXIT_OK
               : complain(EXIT_INVALID);
}

/* The full card is what the experiment `characterize` measures, records and draws. */
static int full_machine(const struct words *w)
{
    const struct job_read_opts o = {.smoke = w->flags.smoke};
    struct words run = *w;
    struct job *j = NULL;
    json_t *card = NULL;
    struct ran ran;
    const char *dir;
    int status, rc;

    if (job_read(&j, FULL_CARD, &o) != OK)
        return complain(EXIT_USAGE);
    run.flags.fresh = true; /* a card states the present */
    status = run_job(&ran, j, &run);
    if (status == EXIT_OK) {
        dir = json_string_value(
            json_object_get(json_object_get(j->cells[0].settings, "study"), "dir"));
        rc = measure_card_read_in(&card, dir, "-full"); /* which was just written */
        printf("\n");
        status = print_card(rc, card);
        printf("\nkept in %s (JSON) and %s (HDF5)\n", dir, ran.outcome.path);
        if (draw_ran(j, &ran) != OK)
            complain(EXIT_OK); /* the card is complete without its page */
    }
    ran_fini(&ran);
    job_free(&j);
    return status;
}

static int verb_machine(const struct words *w)
{
    const struct machine_card_opts o = {.dir = MEASURE_CARD_DIR,
                                        .force = w->flags.force,
                                        .accept_noise = w->flags.accept_noise};
    json_t *card = NULL;
    int rc;

    if (w->flags.full && w->flags.accept_noise) {
        err_set(ERR_ARG, "--accept-noise is for the quick card, not for --full");
        return complain(EXIT_USAGE);
    }
    if (w->flags.full)
        return full_machine(w);
    rc = machine_card_get(&card, &o);
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

static int verb_bench(const struct words *w)
{
    const int rc = run_bench(w->rest[0], &w->flags.bench, stdout);

    return rc == OK        ? EXIT_OK
           : rc == ERR_ARG ? complain(EXIT_USAGE)
                           : complain(EXIT_INVALID);
}

/* --- the verbs */

static const struct verb {
    const char *name, *help; /* `help` is one line for the list of verbs */
    struct opt_usage usage;
    int n_args, n_optional;
    const struct opt_row *flags;
    int (*run)(const struct words *w);
} verbs[] = {
    {"run",
     "Run an experiment, or resume an interrupted run.",
     {"testbed run NAME|FILE [--set KEY=VALUE]... [options]",
      "Run an experiment: a name in experiments/ or a JSON file. The record is one HDF5 "
      "file. An interrupted run continues when the same command is given again. --set "
      "changes one setting and may be repeated; a list as value makes an axis.",
      "  testbed run quickstart --smoke\n"
      "  testbed run quickstart --set load.n_requests=10 --set 'system.threads=[1,2]'\n",
      EXIT_STATUS},
     1,
     0,
     run_flags,
     verb_run},
    {"list",
     "List the experiments with their cost.",
     {"testbed list",
      "List the experiments in experiments/: name, minutes, disk, purpose.",
      "  testbed list\n"
      "  testbed list | grep simulated\n",
      EXIT_STATUS},
     0,
     0,
     list_flags,
     verb_list},
    {"bench",
     "Measure what a running server can do for its users.",
     {"testbed bench URL [options]",
      "Find a server of the OpenAI protocol (this project's, llama-server, Ollama, vLLM) "
      "at "
      "the URL, measure one user, then the highest rate of requests that keeps the "
      "objectives, and report both in four sentences and a table, within two minutes.",
      "  testbed bench http://127.0.0.1:8080\n"
      "  testbed bench 127.0.0.1:11434 --slo-ttft-ms 2000 --slo-tpot-ms 150\n",
      EXIT_STATUS},
     1,
     0,
     run_bench_opt_table,
     verb_bench},
    {"describe",
     "Describe an experiment, a plan, all metrics or all keys.",
     {"testbed describe NAME|FILE|metrics|keys [PATTERN] [--set KEY=VALUE]... [options]",
      "Describe an experiment (its claim, needs, cost and every setting) or a plan file. "
      "`metrics` lists all metrics, `keys` all keys of an experiment, `keys PATTERN` "
      "those whose name or meaning holds PATTERN.",
      "  testbed describe quickstart\n"
      "  testbed describe keys rate\n",
      EXIT_STATUS},
     1,
     1,
     describe_flags,
     verb_describe},
    {"machine",
     "Measure bandwidth and peak arithmetic of this machine.",
     {"testbed machine [options]",
      "Measure read bandwidth and peak arithmetic of this machine and print them as the "
      "machine card. A card that was measured before is printed at once.",
      "  testbed machine\n"
      "  testbed machine --full\n",
      EXIT_STATUS},
     0,
     0,
     machine_flags,
     verb_machine},
    {"export",
     "Convert a result to CSV, JSON or Markdown.",
     {"testbed export FILE.h5 [options]", "Convert a result to another format.",
      "  testbed export results/quickstart/RUN.h5 --format markdown\n"
      "  testbed export results/quickstart/RUN.h5 --format csv --out requests.csv\n",
      EXIT_STATUS},
     1,
     0,
     export_flags,
     verb_export},
    {"draw",
     "Draw the figure of an experiment from its record.",
     {"testbed draw NAME [options]",
      "Draw the figure of an experiment as SVG and PNG from its newest record, with "
      "paper-figs/NAME.py. A record gives the same bytes whenever it is drawn.",
      "  testbed draw quickstart\n"
      "  testbed draw quickstart --record FILE.h5 --out figures\n",
      EXIT_STATUS},
     1,
     0,
     draw_flags,
     verb_draw},
};
#define N_VERBS ((int)(sizeof(verbs) / sizeof(verbs[0])))

static void help(FILE *f)
{
    fputs("Usage: testbed VERB [arguments] [options]\n\n"
          "Run experiments on language model serving and keep what was measured.\n\n"
          "Verbs:\n",
          f);
    for (int i = 0; i < N_VERBS; i++)
        fprintf(f, "  %-9s %s\n", verbs[i].name, verbs[i].help);
    fputs("\nOptions:\n"
          "  -h, --help     Print this text. `testbed VERB --help` describes a verb.\n"
          "  --version      Print commit, compiler and instruction sets.\n"
          "\nExamples:\n"
          "  testbed run quickstart\n"
          "  testbed describe quickstart\n"
          "\nExit status:\n" EXIT_STATUS,
          f);
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
            return err_set(ERR_ARG, "--set: expected KEY=VALUE after it, found nothing; "
                                    "example: --set load.n_requests=10");
    }
    w->n_rest = n;
    return OK;
}

static int run_verb(int verb, int argc, char **argv)
{
    const struct verb *v = &verbs[verb];
    struct words w = {.rest = argv};
    int status = EXIT_USAGE;

    if (opt_init(v->flags, &w.flags) != OK)
        return complain(EXIT_USAGE);
    if (take_sets(&w, argc, argv) != OK ||
        opt_from_argv(v->flags, &w.flags, w.n_rest, argv, &w.n_rest) != OK) {
        complain(EXIT_USAGE);
    } else if (w.flags.help) {
        opt_help_usage(&v->usage, v->flags, stdout);
        status = EXIT_OK;
    } else if (w.n_rest < v->n_args || w.n_rest > v->n_args + v->n_optional) {
        fprintf(
            stderr,
            "testbed %s: expected %d argument%s, found %d (usage: %s; --help describes "
            "the options)\n",
            v->name, v->n_args, v->n_args == 1 ? "" : "s", w.n_rest, v->usage.line);
    } else {
        status = v->run(&w);
    }
    opt_free(v->flags, &w.flags);
    mem_free(w.sets);
    return status;
}

static const char *verb_name(int i)
{
    return i < N_VERBS ? verbs[i].name : NULL;
}

int main(int argc, char **argv)
{
    const struct cpu_program program = {.name = "testbed",
                                        .verb = verb_name,
                                        .help = help,
                                        .run = run_verb,
                                        .exit_usage = EXIT_USAGE,
                                        .exit_lost = EXIT_INVALID};

    run_resume_remember(argc, argv); /* while the words are in their order */
    return cpu_program_main(&program, argc, argv);
}
