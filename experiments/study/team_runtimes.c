/* What the threads of OpenMP's runtime cost against those of the engine: the beginning and end of
 * a phase, a barrier, a prompt and a token, by how OpenMP's threads wait. How they wait is read
 * when a program starts, so that each trial is a `sandwich bench` of its own, in turn.
 * OpenMP has one parallel region for each phase, as other engines do (engine/par/team/openmp.c). */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/thread.h"
#include "cpu/cpu.h"
#include "experiments/load/study.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/program.h"
#include "experiments/study/support/rows.h"

#define BUSY_MAX 64

struct opts {
    char *model;
    int64_t threads, n_prompt_tok, n_output_tok, rounds, busy;
};

static const struct opt_row table[] = {
    ROW_MODEL,
    ROW_THREADS("0", "Number of threads. 0: one for each core of the budget."),
    OPT_ROW(INT, n_prompt_tok, "512", "Prompt tokens.", .unit = "tok", .min = 1,
            .max = 65536),
    OPT_ROW(INT, n_output_tok, "32", "Output tokens.", .unit = "tok", .min = 1,
            .max = 65536),
    OPT_ROW(INT, busy, "0",
            "Threads of this program that compute at the same time and share the CPUs.",
            .min = 0, .max = BUSY_MAX),
    OPT_ROW(INT, rounds, "7", "Rounds of all settings, in turn.", .min = 3, .max = 99),
    {0},
};

/* Name, kind, what is set in the environment. */
#define SETTINGS(X)                                                                      \
    X(pthread, "pthread", NULL, "the engine's threads")                                  \
    X(openmp, "openmp", NULL, "OpenMP's, as they are")                                   \
    X(openmp_active, "openmp", "OMP_WAIT_POLICY=active", "OpenMP's, which spin")         \
    X(openmp_passive, "openmp", "OMP_WAIT_POLICY=passive",                               \
      "OpenMP's, which sleep at once")

#define ID(name, kind, variable, text) SETTING_##name,
enum { SETTINGS(ID) N_SETTINGS };

#define ROW(name, kind, variable, text) {#name, kind, variable},
static const struct {
    const char *name, *kind, *variable;
} settings[] = {SETTINGS(ROW)};

#define METRICS(name, kind, variable, text)                                              \
    {"dispatch_us_" #name, "us", "lower", "beginning and end of a phase: " text},        \
        {"barrier_us_" #name, "us", "lower", "a barrier of all threads: " text},         \
        {"prefill_tok_s_" #name, "tok/s", "higher", "a prompt: " text},                  \
        {"decode_tok_s_" #name, "tok/s", "higher", "tokens, one sequence: " text},

static const struct study_metric metrics[] = {
    SETTINGS(METRICS){"dispatch_openmp_over_pthread", "x", "",
                      "time of a phase of OpenMP's threads over that of the engine's"},
    {"decode_openmp_over_pthread", "x", "higher", "speed of tokens, likewise"},
    {"prefill_openmp_over_pthread", "x", "higher", "speed of prompts, likewise"},
    {"best_decode_openmp_over_pthread", "x", "higher",
     "that of the best of OpenMP's settings"},
    {0},
};

/* Numbers of a trial, in the order of METRICS. */
enum { DISPATCH, BARRIER, PREFILL, DECODE, N_PARTS };
static const char *const parts[] = {"dispatch_us", "barrier_us", "prefill_tok_s",
                                    "decode_tok_s"};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_compare rounds;
    pthread_t busy[BUSY_MAX];
    int n_busy;
    atomic_bool stop;
};

/* ---- one `sandwich bench` ---- */

/* This process's environment with another variable in front; lent pointers. */
static char **environment(const char *variable)
{
    size_t n = 0;
    char **env;

    while (environ[n])
        n++;
    env = mem_new(MEM_HARNESS, n + 2, sizeof(*env));
    env[0] = (char *)variable;
    memcpy(env + (variable ? 1 : 0), environ, n * sizeof(*env));
    return env;
}

static int team_runtimes_bench(const struct cell *c, int setting,
                               const char *const *words, json_t **rows)
{
    char threads[24], name[48], **env = environment(settings[setting].variable);
    const char *argv[24] = {"sandwich", "bench",  "-o",
                            "json",     "--team", settings[setting].kind,
                            "-t",       threads};
    struct study_program p = {.name = name, .argv = argv, .env = env};
    int rc;

    snprintf(threads, sizeof(threads), "%lld", (long long)c->o->threads);
    snprintf(name, sizeof(name), "sandwich bench --team %s", settings[setting].kind);
    for (int i = 0; words[i]; i++)
        argv[8 + i] = words[i];
    rc = study_program_run(&p, rows);
    mem_free(env);
    return rc;
}

static double number(const json_t *rows, size_t i, const char *key)
{
    const json_t *x = json_object_get(json_array_get(rows, i), key);

    return json_is_number(x) ? json_number_value(x) : NAN;
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *c = arg;
    char prompt[24], output[24];
    const char *const ops[] = {"--ops", "--only", "dispatch,barrier", "-r", "5", NULL};
    const char *const steps[] = {"-m",          c->o->model, "-p", prompt,
                                 "-n",          output,      "-r", "3",
                                 "--precision", "relaxed",   NULL};
    json_t *rows = NULL;

    snprintf(prompt, sizeof(prompt), "%lld", (long long)c->o->n_prompt_tok);
    snprintf(output, sizeof(output), "%lld", (long long)c->o->n_output_tok);
    TRY(team_runtimes_bench(c, i, ops, &rows));
    study_compare_put(&c->rounds, DISPATCH, 1 / number(rows, 0, "rate"));
    study_compare_put(&c->rounds, BARRIER, 1 / number(rows, 1, "rate"));
    json_decref(rows);
    TRY(team_runtimes_bench(c, i, steps, &rows));
    study_compare_put(&c->rounds, PREFILL, number(rows, 0, "estimate_ts"));
    t->seconds = 1 / number(rows, 1, "estimate_ts");
    study_compare_put(&c->rounds, DECODE, number(rows, 1, "estimate_ts"));
    json_decref(rows);
    return OK;
}

/* ---- threads that share the CPUs ---- */

static void *compute(void *arg)
{
    const struct cell *c = arg;

    while (!atomic_load_explicit(&c->stop, memory_order_relaxed))
        ;
    return NULL;
}

static int start_busy(struct cell *c)
{
    while (c->n_busy < c->o->busy) {
        TRY(thread_start(&c->busy[c->n_busy], 0, compute, c, "study.busy"));
        c->n_busy++;
    }
    return OK;
}

/* ---- the cell ---- */

/* Round by round: the median of a part of setting i over that of setting 0. */
static double ratio(const struct study_compare *r, int part, int i)
{
    const double *a = study_compare_part(r, i, part);
    const double *b = study_compare_part(r, SETTING_pthread, part);
    double x[99];

    for (int k = 0; k < r->n_rounds; k++)
        x[k] = a[k] / b[k];
    return stats_median(x, (size_t)r->n_rounds);
}

static void report(const struct cell *c)
{
    const struct study_compare *r = &c->rounds;
    double best = 0;
    char name[64];

    for (int i = 0; i < N_SETTINGS; i++) {
        for (int part = 0; part < N_PARTS; part++) {
            snprintf(name, sizeof(name), "%s_%s", parts[part], settings[i].name);
            study_value(c->out, name, study_compare_median(r, i, part),
                        "a trial gave no number");
            snprintf(name, sizeof(name), "%s_%s_by_round", parts[part], settings[i].name);
            study_compare_series(r, name, part < PREFILL ? "us" : "tok/s", i, part);
        }
        if (i != SETTING_pthread)
            best = fmax(best, ratio(r, DECODE, i));
    }
    const struct study_number all[] = {
        {"dispatch_openmp_over_pthread", ratio(r, DISPATCH, SETTING_openmp)},
        {"decode_openmp_over_pthread", ratio(r, DECODE, SETTING_openmp)},
        {"prefill_openmp_over_pthread", ratio(r, PREFILL, SETTING_openmp)},
        {"best_decode_openmp_over_pthread", best}};

    STUDY_VALUES(c->out, all, "a trial gave no number");
}

static int run(struct cell *c)
{
    c->rounds = (struct study_compare){.doing = "all settings in turn"};
    TRY(start_busy(c));
    TRY(study_compare(&c->rounds, c->out, N_SETTINGS, c->o->rounds, trial, c));
    report(c);
    return OK;
}

static void end(struct cell *c)
{
    atomic_store(&c->stop, true);
    for (int i = 0; i < c->n_busy; i++)
        pthread_join(c->busy[i], NULL);
    study_compare_close(&c->rounds);
}

STUDY(team_runtimes, "threads of the engine and of OpenMP's runtime");
