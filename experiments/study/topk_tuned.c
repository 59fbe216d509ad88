/* The best configurations of this host, each really tuned and replayed: what keeping more of
 * them costs and gives. It runs `sandwich plan --tune` as a user does, for each k from nothing,
 * and reads the plan, which lists all that was tried on the trace, in turn.
 *   Paper: Sandwich 8.4, Table 2. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/program.h"
#include "experiments/study/support/options.h"
#include "plan/plan.h"

#define OPTIONS(X)                                                                       \
    X(STR, model, "build/models/llama-160m-bf16.gguf", "Model file.", .unit = "FILE")    \
    X(INT, k, "1", "Number of configurations that are tuned and replayed.", .min = 1,    \
      .max = 16)                                                                         \
    X(F64, budget_s, "90",                                                               \
      "Time for each configuration. The whole run has k times as much, a fifth of "      \
      "which is for the search.",                                                        \
      .unit = "s", .min = 0.1, .max = 86400)                                             \
    X(ENUM, precision, "relaxed", "Precision of the matrix products.",                   \
      .values = KERN_PRECISIONS)                                                         \
    X(INT, batch, "1", "Number of sequences in a decode step.", .min = 1, .max = 1024)   \
    X(STR, lengths, NULL,                                                                \
      "CSV file with one request per line: prompt tokens, output tokens. Default: "      \
      "quantiles of the ShareGPT trace.",                                                \
      .unit = "FILE")                                                                    \
    X(STR, dir, "build/plans", "Folder of the plans that are made.", .unit = "PATH")

#define RESULTS(X)                                                                       \
    X(spent_s, "s", LOWER, "wall time of search, tuning and replay together")            \
    X(n_configs, "", 0, "configurations that were tuned and replayed")                   \
    X(request_s, "s", LOWER,                                                             \
      "time of a request of the trace with the chosen configuration and schedules")      \
    X(first_s, "s", LOWER,                                                               \
      "the same with the first configuration, the better of its tuned and default "      \
      "schedules")                                                                       \
    X(untuned_s, "s", LOWER,                                                             \
      "the same with the first configuration and default schedules")                     \
    X(gain_frac, "", HIGHER,                                                             \
      "first_s / time of the fastest of the k - 1: all of them replayed in turn in one " \
      "run")                                                                             \
    X(gain_lo_frac, "", 0,                                                               \
      "the same with the ends of the intervals that are nearer to each other: above 0 "  \
      "the gain is beyond the noise")                                                    \
    X(tuning_gain_frac, "", HIGHER,                                                      \
      "untuned_s / first_s - 1: what tuning the first configuration gives")

FRAME_TYPES;

/* The finding of an earlier cell: fewer configurations than it was asked for are all there are. */
struct cache {
    char model[PATH_MAX];
    int64_t k;
    int n_configs;
};

struct topk_tuned {
    FRAME_CELL;
    struct plan plan;
    char path[PATH_MAX], cache[PATH_MAX], unfinished[PATH_MAX];
};

static int make_paths(struct topk_tuned *c, const struct opts *o)
{
    const char *slash = strrchr(o->model, '/');
    int n = snprintf(c->path, sizeof(c->path), "%s/%s-top%lld.json", o->dir,
                     slash ? slash + 1 : o->model, (long long)o->k);

    if (n < 0 || n > PATH_MAX - 32)
        return err_set(ERR_ARG, "study.dir: the path is too long");
    snprintf(c->cache, sizeof(c->cache), "%.*s.schedules", PATH_MAX - 32, c->path);
    snprintf(c->unfinished, sizeof(c->unfinished), "%.*s.unfinished", PATH_MAX - 32,
             c->path);
    return file_make_dirs(o->dir);
}

/* From nothing: schedules of an earlier run would hide what they cost. */
static int tune(const struct topk_tuned *c, const struct opts *o, double *spent_s)
{
    char k[24], batch[24], budget[32], name[PATH_MAX];
    const char *argv[24] = {"sandwich",
                            "plan",
                            "--tune",
                            "--model",
                            o->model,
                            "--top-k",
                            k,
                            "--budget",
                            budget,
                            "--batch",
                            batch,
                            "--precision",
                            kern_precision_name(o->precision),
                            "--cache",
                            c->cache,
                            "--out",
                            c->path,
                            o->lengths ? "--lengths" : NULL,
                            o->lengths};
    struct study_program p = {.name = name, .argv = argv};
    uint64_t start = clock_ns();
    int rc;

    snprintf(k, sizeof(k), "%lld", (long long)o->k);
    snprintf(batch, sizeof(batch), "%lld", (long long)o->batch);
    snprintf(budget, sizeof(budget), "%.3gs", o->budget_s * (double)o->k);
    snprintf(name, sizeof(name), "sandwich plan --tune --model %s --top-k %s", o->model,
             k);
    unlink(c->path);
    unlink(c->cache);
    unlink(c->unfinished);
    rc = study_program_run(&p, NULL);
    *spent_s = (double)(clock_ns() - start) / 1e9;
    return rc;
}

/* The faster of two tries, of which either may be missing. */
static const struct plan_replay *faster(const struct plan_replay *a,
                                        const struct plan_replay *b)
{
    return !a || !(a->seconds <= b->seconds) ? b : a;
}

/* A configuration's default schedules come first, those tuned for it behind them. */
static void topk_tuned_report(struct topk_tuned *c, double spent_s, int n_configs)
{
    const struct plan *p = &c->plan;
    const struct plan_replay *untuned = &p->tries[0], *first = NULL, *best = NULL;
    double seconds[PLAN_TRIES_MAX], best_of[PLAN_TRIES_MAX], of[PLAN_TRIES_MAX];
    double tuned[PLAN_TRIES_MAX];
    int config = -1;

    for (int i = 0; i < p->n_tries; i++) {
        const struct plan_replay *t = &p->tries[i];

        config += !t->tuned || config < 0;
        if (config == 0)
            first = faster(first, t);
        best = faster(best, t);
        seconds[i] = t->seconds;
        of[i] = config + 1;
        tuned[i] = t->tuned;
        best_of[config] = best->seconds;
    }
    c->r->spent_s = spent_s;
    c->r->n_configs = n_configs;
    c->r->request_s = p->tries[p->chosen_try].seconds;
    c->r->first_s = first->seconds;
    c->r->untuned_s = untuned->seconds;
    c->r->gain_frac = first->seconds / best->seconds - 1;
    c->r->gain_lo_frac = first == best ? 0 : first->lo / best->hi - 1;
    c->r->tuning_gain_frac = untuned->seconds / first->seconds - 1;
    frame_why(c->f, NULL, "there is one configuration, which was not replayed");
    study_series(c->out, "try_s", "s", seconds, (size_t)p->n_tries);
    study_series(c->out, "try_config", "", of, (size_t)p->n_tries);
    study_series(c->out, "try_tuned", "", tuned, (size_t)p->n_tries);
    study_series(c->out, "best_of_s", "s", best_of, (size_t)n_configs);
}

static int note_tries(struct study_cell *out, const struct plan *p)
{
    json_t *list = json_array();

    for (int i = 0; list && i < p->n_tries; i++) {
        const struct plan_replay *t = &p->tries[i];

        json_array_append_new(
            list, json_pack("{s:s, s:b, s:o, s:o, s:o}", "name", t->name, "tuned",
                            t->tuned, "seconds", json_number(t->seconds), "lo",
                            json_number(t->lo), "hi", json_number(t->hi)));
    }
    study_note(out, "tries", list);
    study_note_text(out, "why", p->why);
    return OK;
}

static int topk_tuned_run(struct topk_tuned *c)
{
    const struct opts *o = c->o;
    struct cache *known = study_kept(c->out);
    double spent_s;
    int n_configs = 0;

    FRAME_CLOSE(c->f, plan_fini, &c->plan);
    if (strcmp(known->model, o->model) == 0 && known->n_configs < known->k &&
        o->k > known->k)
        return err_set(ERR_NOTFOUND, "only %d configurations exist on this host",
                       known->n_configs);
    TRY(make_paths(c, o));
    study_progress(c->out, 0, "search, tuning and replay");
    TRY(tune(c, o, &spent_s));
    TRY(plan_read(&c->plan, c->path));
    for (int i = 0; i < c->plan.n_tries; i++)
        n_configs += !c->plan.tries[i].tuned;
    if (n_configs == 0)
        return err_set(ERR_FORMAT, "%s: the plan does not state what was tried", c->path);
    topk_tuned_report(c, spent_s, n_configs);
    snprintf(known->model, sizeof(known->model), "%s", o->model);
    known->k = o->k;
    known->n_configs = n_configs;
    return note_tries(c->out, &c->plan);
}

STUDY(topk_tuned, "the best configurations of this host, each tuned and replayed",
      .kept_bytes = sizeof(struct cache));
