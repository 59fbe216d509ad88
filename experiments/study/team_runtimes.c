/* The cost of the threads of OpenMP's runtime against those of the engine: the beginning and end of
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
#include "experiments/frame/frame.h"
#include "experiments/study/support/program.h"
#include "experiments/study/support/options.h"

#define BUSY_MAX 64

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_THREADS(X, "0", "Number of threads. 0: one for each core of the budget.")     \
    X(INT, n_prompt_tok, "512", "Prompt tokens.", .unit = "tok", .min = 1, .max = 65536) \
    X(INT, n_output_tok, "32", "Output tokens.", .unit = "tok", .min = 1, .max = 65536)  \
    X(INT, busy, "0",                                                                    \
      "Threads of this program that compute at the same time and share the CPUs.",       \
      .min = 0, .max = BUSY_MAX)                                                         \
    X(INT, rounds, "7", "Rounds of all settings, in turn.", .min = 3, .max = 99)

/* Name, kind, what is set in the environment. */
#define SETTINGS(Y, X)                                                                   \
    Y(X, pthread, "pthread", NULL, "the engine's threads")                               \
    Y(X, openmp, "openmp", NULL, "OpenMP's, as they are")                                \
    Y(X, openmp_active, "openmp", "OMP_WAIT_POLICY=active", "OpenMP's, which spin")      \
    Y(X, openmp_passive, "openmp", "OMP_WAIT_POLICY=passive",                            \
      "OpenMP's, which sleep at once")

#define ID(X, name, kind, variable, text) SETTING_##name,
enum { SETTINGS(ID, ) N_SETTINGS };

#define ROW(X, name, kind, variable, text) {#name, kind, variable},
static const struct {
    const char *name, *kind, *variable;
} settings[] = {SETTINGS(ROW, )};

#define SETTING_RESULTS(X, name, kind, variable, text)                                   \
    X(dispatch_us_##name, "us", LOWER, "beginning and end of a phase: " text)            \
    X(barrier_us_##name, "us", LOWER, "a barrier of all threads: " text)                 \
    X(prefill_tok_s_##name, "tok/s", HIGHER, "a prompt: " text)                          \
    X(decode_tok_s_##name, "tok/s", HIGHER, "tokens, one sequence: " text)

#define RESULTS(X)                                                                       \
    SETTINGS(SETTING_RESULTS, X)                                                         \
    X(dispatch_openmp_over_pthread, "x", 0,                                              \
      "time of a phase of OpenMP's threads over that of the engine's")                   \
    X(decode_openmp_over_pthread, "x", HIGHER, "speed of tokens, likewise")              \
    X(prefill_openmp_over_pthread, "x", HIGHER, "speed of prompts, likewise")            \
    X(best_decode_openmp_over_pthread, "x", HIGHER,                                      \
      "that of the best of OpenMP's settings")

FRAME_TYPES;

/* Numbers of a trial. */
enum { DISPATCH, BARRIER, PREFILL, DECODE, N_PARTS };
static const char *const parts[] = {"dispatch_us", "barrier_us", "prefill_tok_s",
                                    "decode_tok_s"};

struct team_runtimes {
    FRAME_CELL;
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

static int team_runtimes_bench(const struct team_runtimes *c, int setting,
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

/* The result of a part of a setting. */
static double *team_runtimes_part(const struct team_runtimes *c, int part, int setting)
{
    return frame_named(c->f, "%s_%s", parts[part], settings[setting].name);
}

static int team_runtimes_trial(void *arg, int i, struct measure_trial *t)
{
    struct team_runtimes *c = arg;
    char prompt[24], output[24];
    const char *const ops[] = {"--ops", "--only", "dispatch,barrier", "-r", "5", NULL};
    const char *const steps[] = {"-m",          c->o->model, "-p", prompt,
                                 "-n",          output,      "-r", "3",
                                 "--precision", "relaxed",   NULL};
    json_t *rows = NULL;

    snprintf(prompt, sizeof(prompt), "%lld", (long long)c->o->n_prompt_tok);
    snprintf(output, sizeof(output), "%lld", (long long)c->o->n_output_tok);
    TRY(team_runtimes_bench(c, i, ops, &rows));
    frame_put(c->f, team_runtimes_part(c, DISPATCH, i), 1 / number(rows, 0, "rate"));
    frame_put(c->f, team_runtimes_part(c, BARRIER, i), 1 / number(rows, 1, "rate"));
    json_decref(rows);
    TRY(team_runtimes_bench(c, i, steps, &rows));
    frame_put(c->f, team_runtimes_part(c, PREFILL, i), number(rows, 0, "estimate_ts"));
    t->seconds = 1 / number(rows, 1, "estimate_ts");
    frame_put(c->f, team_runtimes_part(c, DECODE, i), number(rows, 1, "estimate_ts"));
    json_decref(rows);
    return OK;
}

/* ---- threads that share the CPUs ---- */

static void *compute(void *arg)
{
    const struct team_runtimes *c = arg;

    while (!atomic_load_explicit(&c->stop, memory_order_relaxed))
        ;
    return NULL;
}

static int start_busy(struct team_runtimes *c)
{
    while (c->n_busy < c->o->busy) {
        TRY(thread_start(&c->busy[c->n_busy], 0, compute, c, "study.busy"));
        c->n_busy++;
    }
    return OK;
}

/* ---- the cell ---- */

/* Round by round: the median of a part of setting i over that of setting 0. */
static double ratio(const struct team_runtimes *c, int part, int i)
{
    const double *a = frame_each(c->f, team_runtimes_part(c, part, i));
    const double *b = frame_each(c->f, team_runtimes_part(c, part, SETTING_pthread));
    double x[99];

    for (int k = 0; k < c->f->n_rounds; k++)
        x[k] = a[k] / b[k];
    return stats_median(x, (size_t)c->f->n_rounds);
}

static void team_runtimes_report(struct team_runtimes *c)
{
    double best = 0;
    char name[64];

    for (int i = 0; i < N_SETTINGS; i++) {
        for (int part = 0; part < N_PARTS; part++) {
            snprintf(name, sizeof(name), "%s_%s_by_round", parts[part], settings[i].name);
            frame_series(c->f, name, part < PREFILL ? "us" : "tok/s",
                         team_runtimes_part(c, part, i));
        }
        if (i != SETTING_pthread)
            best = fmax(best, ratio(c, DECODE, i));
    }
    c->r->dispatch_openmp_over_pthread = ratio(c, DISPATCH, SETTING_openmp);
    c->r->decode_openmp_over_pthread = ratio(c, DECODE, SETTING_openmp);
    c->r->prefill_openmp_over_pthread = ratio(c, PREFILL, SETTING_openmp);
    c->r->best_decode_openmp_over_pthread = best;
    frame_why(c->f, NULL, "a trial gave no number");
}

static void team_runtimes_close(struct team_runtimes *c)
{
    atomic_store(&c->stop, true);
    for (int i = 0; i < c->n_busy; i++)
        pthread_join(c->busy[i], NULL);
}

static int team_runtimes_run(struct team_runtimes *c)
{
    FRAME_CLOSE(c->f, team_runtimes_close, c);
    TRY(start_busy(c));
    TRY(frame_rounds(c->f, "all settings in turn", N_SETTINGS, c->o->rounds,
                     team_runtimes_trial, c));
    team_runtimes_report(c);
    return OK;
}

STUDY(team_runtimes, "threads of the engine and of OpenMP's runtime");
