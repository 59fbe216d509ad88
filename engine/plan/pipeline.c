#include "plan/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "measure/compare.h"

/* Shares of the budget. A phase's search may use a tenth, so that the search has a quarter
 * with what it does besides; of what is left, tuning has half, and the replay the rest. */
#define SEARCH_FRAC_EACH 0.1
#define TUNE_FRAC        0.5
#define COSTS_FRAC       0.05
/* A replay is meant to run in MEASURE_SURE_ROUNDS rounds. It is sized as if there were two
 * more, for what the expected times miss; below ROUNDS_MIN nothing is sure. */
#define ROUNDS_SIZED 8
#define ROUNDS_MIN   4
#define ROUNDS_MAX   12
#define NO_LIMIT_S   1e9
/* Whatever a plan gains it gains in each request, so the smallest sure gain is worth it. */
#define MARGIN_FRAC 0.0

#define TRIALS_MAX      4096
#define STATE_VERSION   1
#define STATE_BYTES_MAX (256 << 20)

/* The parts of a pipeline that are finished, in memory and as a file. */
struct state {
    struct plan *v;  /* [n] candidates, the method's choice first; owned */
    int n, n_tuned;  /* those whose schedules are tuned come first */
    int replay_size; /* 0: no replay yet */
    struct {
        int alternative;
        double seconds;
    } trials[TRIALS_MAX];
    int n_trials;
};

struct pipeline {
    const struct plan_pipeline_opts *o;
    struct plan_pipeline_result *out;
    struct state state;
    uint64_t start_ns;
    /* State of the replay. Alternative 2 i is candidate i with default schedules, 2 i + 1 with
     * those tuned for it; list[] are those that exist. */
    int list[2 * PLAN_RANKED_MAX], n_list;
    int next[2 * PLAN_RANKED_MAX]; /* the next trial of an earlier run */
    struct measure *measure;
    struct plan_watch watch;
    char what[64]; /* of the watch */
};

/* ---- the state ---- */

/* Twice is fine. */
static void fini_state(struct state *s)
{
    for (int i = 0; i < s->n; i++)
        plan_fini(&s->v[i]);
    mem_free(s->v);
    memset(s, 0, sizeof(*s));
}

static int read_candidates(struct state *s, const json_t *root, const char *path)
{
    const json_t *a = NULL, *one;
    size_t i;

    TRY(json_get_arr(root, "candidates", &a, path));
    if (json_array_size(a) < 1 || json_array_size(a) > PLAN_RANKED_MAX)
        return err_set(ERR_FORMAT, "%s: candidates: expected 1 to %d, found %zu", path,
                       PLAN_RANKED_MAX, json_array_size(a));
    s->v = mem_new(MEM_OTHER, json_array_size(a), sizeof(*s->v));
    if (!s->v)
        return ERR_NOMEM;
    json_array_foreach(a, i, one)
    {
        s->n++;
        TRY(plan_of_json(&s->v[i], one, path));
    }
    return OK;
}

static int read_trials(struct state *s, const json_t *root, const char *path)
{
    const json_t *a = NULL, *one;
    size_t i;

    TRY(json_get_arr(root, "trials", &a, path));
    json_array_foreach(a, i, one)
    {
        json_int_t alternative = json_integer_value(json_array_get(one, 0));
        double seconds = json_number_value(json_array_get(one, 1));

        if (i == TRIALS_MAX || json_array_size(one) != 2 || alternative < 0 ||
            alternative >= 2 * s->n || !(seconds > 0))
            return err_set(ERR_FORMAT,
                           "%s: trials: entry %zu: expected [alternative, seconds]", path,
                           i);
        s->trials[i].alternative = (int)alternative;
        s->trials[i].seconds = seconds;
        s->n_trials++;
    }
    return OK;
}

static int parse(struct state *s, const json_t *root, const char *path)
{
    int64_t version, n_tuned = 0, size = 0;

    TRY(read_candidates(s, root, path));
    TRY(json_get_int(root, "version", STATE_VERSION, STATE_VERSION, &version, path));
    TRY(json_get_int(root, "n_tuned", 0, s->n, &n_tuned, path));
    TRY(json_get_int(root, "replay_size", 0, 1 << 20, &size, path));
    s->n_tuned = (int)n_tuned;
    s->replay_size = (int)size;
    return read_trials(s, root, path);
}

/* ERR_NOTFOUND: the file does not exist, or it is ignored with a warning because it is damaged
 * or its key differs; *s is then empty. */
static int read_state(struct state *s, const struct plan_pipeline_opts *o)
{
    json_t *root = NULL;
    int rc = json_read_file(&root, o->state_path, STATE_BYTES_MAX);

    memset(s, 0, sizeof(*s));
    if (rc == ERR_NOTFOUND)
        err_clear();
    else if (rc == OK && !json_equal(json_object_get(root, "key"), o->key))
        rc = err_set(ERR_NOTFOUND,
                     "%s is of other options, another model or another machine: it is "
                     "begun again",
                     o->state_path);
    else if (rc == OK)
        rc = parse(s, root, o->state_path);
    if (rc != OK && rc != ERR_NOMEM) {
        if (*err_msg())
            log_warn("%s", err_msg());
        err_clear();
        rc = ERR_NOTFOUND;
    }
    if (rc != OK)
        fini_state(s);
    json_decref(root);
    return rc;
}

MUST static int write_state(const struct state *s, const struct plan_pipeline_opts *o)
{
    json_t *plans = json_array(), *trials = json_array(), *root = NULL;
    bool ok = plans && trials;
    int rc;

    for (int i = 0; i < s->n && ok; i++)
        ok = json_array_append_new(plans, plan_to_json(&s->v[i])) == 0;
    for (int i = 0; i < s->n_trials && ok; i++)
        ok = json_array_append_new(trials, json_pack("[i, f]", s->trials[i].alternative,
                                                     s->trials[i].seconds)) == 0;
    if (ok)
        root = json_pack("{s:i, s:O, s:O, s:O, s:i, s:i}", "version", STATE_VERSION,
                         "key", o->key, "candidates", plans, "trials", trials, "n_tuned",
                         s->n_tuned, "replay_size", s->replay_size);
    rc = root ? json_write_file(root, o->state_path)
              : err_set(ERR_NOMEM, "%s: no memory for its text", o->state_path);
    json_decref(root);
    json_decref(plans);
    json_decref(trials);
    return rc;
}

/* ---- time ---- */

static double elapsed_s(const struct pipeline *p)
{
    return (double)(clock_ns() - p->start_ns) * 1e-9;
}

static double left_s(const struct pipeline *p)
{
    double left = p->o->budget_s - elapsed_s(p);

    return p->o->budget_s <= 0 ? NO_LIMIT_S : left > 0 ? left : 0;
}

static bool stopped(const struct pipeline *p)
{
    return p->o->search->stop && *p->o->search->stop;
}

static double costs_s(const struct pipeline *p)
{
    return p->o->budget_s > 0 ? fmin(PLAN_COSTS_S, COSTS_FRAC * p->o->budget_s) : 0;
}

static int check_stopped(const struct pipeline *p, int rc)
{
    return rc == OK && stopped(p) ? err_set(ERR_CANCELED, "interrupted") : rc;
}

/* ---- the candidates ---- */

static int keep_candidates(struct pipeline *p, const struct plan_search_result *f)
{
    struct state *s = &p->state;
    int n = f->n_ranked < p->o->top_k ? f->n_ranked : p->o->top_k, rc = OK;

    s->v = mem_new(MEM_OTHER, (size_t)n, sizeof(*s->v));
    if (!s->v)
        return ERR_NOMEM;
    for (int i = 0; i < n && rc == OK; i++, s->n++)
        rc = plan_copy(&s->v[i], &f->ranked[i]);
    return rc;
}

static int search(struct pipeline *p)
{
    struct plan_search_opts so = *p->o->search;
    struct plan_search_result *found = mem_new(MEM_OTHER, 1, sizeof(*found));
    double most_s = SEARCH_FRAC_EACH * p->o->budget_s;
    int rc;

    if (!found)
        return ERR_NOMEM;
    so.costs_s = -1; /* of the plan that is chosen in the end */
    if (p->o->budget_s > 0 && (so.search.max_s <= 0 || so.search.max_s > most_s))
        so.search.max_s = most_s;
    rc = p->o->method->run(found, &so);
    if (rc == OK)
        rc = keep_candidates(p, found);
    if (rc == OK) {
        snprintf(p->out->note, sizeof(p->out->note), "%s", found->note);
        p->out->explain = found->explain;
        found->explain = NULL;
    }
    plan_search_result_free(found);
    mem_free(found);
    return rc == OK ? write_state(&p->state, p->o) : rc;
}

/* ---- tuning ---- */

static int tune_all(struct pipeline *p)
{
    struct state *s = &p->state;
    double share_s = TUNE_FRAC * left_s(p), began_s = elapsed_s(p);
    int rc = OK;

    while (rc == OK && s->n_tuned < s->n) {
        double used_s = elapsed_s(p) - began_s;
        double mine_s = (share_s - used_s) / (s->n - s->n_tuned);

        snprintf(p->what, sizeof(p->what), "schedules of configuration %d of %d",
                 s->n_tuned + 1, s->n);
        plan_watch_begin(&p->watch, p->o->search, NULL, p->what,
                         p->o->budget_s > 0 ? mine_s : 0);
        rc = p->o->tune(p->o->ctx, &s->v[s->n_tuned], mine_s > 0 ? mine_s : 1e-9);
        rc = check_stopped(p, rc);
        if (rc == OK) {
            s->n_tuned++;
            rc = write_state(s, p->o);
        }
    }
    return rc;
}

/* ---- replay ---- */

static bool has_tuned(const struct plan *p)
{
    return p->schedules && tune_cache_n(p->schedules) > 0;
}

static void list_alternatives(struct pipeline *p)
{
    p->n_list = 0;
    for (int i = 0; i < p->state.n; i++) {
        p->list[p->n_list++] = 2 * i;
        if (has_tuned(&p->state.v[i]))
            p->list[p->n_list++] = 2 * i + 1;
    }
}

/* A trial of an earlier run that this one has not used yet; 0: there is none. */
static double known_trial(struct pipeline *p, int alternative)
{
    const struct state *s = &p->state;

    for (int *i = &p->next[alternative]; *i < s->n_trials; ++*i)
        if (s->trials[*i].alternative == alternative)
            return s->trials[(*i)++].seconds;
    return 0;
}

static int replay_once(struct pipeline *p, int alternative, double *seconds)
{
    struct state *s = &p->state;
    struct plan *of = &s->v[alternative / 2];
    struct tune_cache *schedules = of->schedules;
    int rc;

    if (s->n_trials == TRIALS_MAX)
        return err_set(ERR_LIMIT, "more than %d replays", TRIALS_MAX);
    if (alternative % 2 == 0)
        of->schedules = NULL; /* for this call */
    rc = p->o->replay(p->o->ctx, of, s->replay_size, seconds);
    of->schedules = schedules;
    if (rc == OK && !(*seconds > 0 && isfinite(*seconds)))
        rc = err_set(ERR_ARG, "a replay of %g s", *seconds);
    if (rc != OK)
        return rc;
    s->trials[s->n_trials].alternative = alternative;
    s->trials[s->n_trials++].seconds = *seconds;
    p->next[alternative] = s->n_trials;
    return write_state(s, p->o);
}

static int one_trial(void *arg, int i, struct measure_trial *t)
{
    struct pipeline *p = arg;
    int alternative = p->list[i];
    int rc = check_stopped(p, OK);

    if (rc != OK)
        return rc;
    plan_watch_count(&p->watch);
    t->seconds = known_trial(p, alternative);
    return t->seconds > 0 ? OK : replay_once(p, alternative, &t->seconds);
}

static int replay_all(struct pipeline *p)
{
    double most_s = fmax(left_s(p) - costs_s(p), 1e-9);
    struct state *s = &p->state;
    int rc;

    list_alternatives(p);
    rc = measure_open(&p->measure, p->n_list, ROUNDS_MAX);
    if (rc != OK || p->n_list == 1)
        return rc;
    if (s->replay_size == 0)
        s->replay_size =
            p->o->replay_size(p->o->ctx, &s->v[0], most_s / (ROUNDS_SIZED * p->n_list));
    plan_watch_begin(&p->watch, p->o->search, NULL, "replay of the trace",
                     p->o->budget_s > 0 ? most_s : 0);
    {
        const struct measure_opts mo = {.min_rounds = ROUNDS_MIN,
                                        .max_rounds = ROUNDS_MAX,
                                        .n_warm_up = -1, /* the replay's own */
                                        .budget_s = most_s,
                                        .seed = (uint64_t)p->o->search->search.seed,
                                        .clock = p->o->clock};

        return measure_compare(p->measure, p->n_list, &mo, one_trial, p);
    }
}

/* ---- the choice ---- */

/* Simpler is a plan whose phases are one, then one of fewer ranks, then default schedules,
 * then what the method prefers. */
static int64_t complexity(const struct pipeline *p, int i)
{
    const struct plan *x = &p->state.v[p->list[i] / 2];
    int n_ranks = x->decode.n_ranks + x->prefill.n_ranks;

    return (((int64_t)!plan_is_one(x) * (2 * CPU_MAX + 1) + n_ranks) * 2 +
            p->list[i] % 2) *
               2 * PLAN_RANKED_MAX +
           p->list[i];
}

static int choose(const struct pipeline *p, int *fastest)
{
    int64_t order[2 * PLAN_RANKED_MAX];

    for (int i = 0; i < p->n_list; i++)
        order[i] = complexity(p, i);
    *fastest = measure_choose(p->measure, NULL, 0);
    return measure_choose(p->measure, order, MARGIN_FRAC);
}

static void name_phase(const struct plan_phase *f, char *out, size_t n)
{
    static char cpus[CPU_MAX * 5 + 1];

    cpu_list_print(f->cpus, f->n_ranks * f->n_threads, cpus, sizeof(cpus));
    snprintf(out, n, "%d x %d on CPUs %.40s%s", f->n_ranks, f->n_threads, cpus,
             strlen(cpus) > 40 ? "..." : "");
}

static void name_plan(const struct plan *p, char *out, size_t n)
{
    char decode[70], prefill[70];

    name_phase(&p->decode, decode, sizeof(decode));
    name_phase(&p->prefill, prefill, sizeof(prefill));
    if (plan_is_one(p))
        snprintf(out, n, "%s, both phases", decode);
    else
        snprintf(out, n, "decode %s, prefill %s", decode, prefill);
}

static void add_try(const struct pipeline *p, struct plan *out, int i)
{
    const struct plan *of = &p->state.v[p->list[i] / 2];
    struct plan_replay *t = &out->tries[out->n_tries++];
    struct measure_report r = {.estimate = NAN, .lo = NAN, .hi = NAN};

    if (p->n_list > 1)
        measure_report(p->measure, i, &r);
    *t = (struct plan_replay){
        .tuned = p->list[i] % 2, .seconds = r.estimate, .lo = r.lo, .hi = r.hi, .n = r.n};
    name_plan(of, t->name, sizeof(t->name));
}

/* How much longer a request takes with try a than with try b, in percent. */
static double longer(const struct plan *p, int a, int b)
{
    return 100 * (p->tries[a].seconds / p->tries[b].seconds - 1);
}

static void explain(const struct pipeline *p, struct plan *out, int chosen, int fastest)
{
    if (p->n_list == 1)
        snprintf(out->why, sizeof(out->why), "there was only this one");
    else if (chosen != fastest)
        snprintf(
            out->why, sizeof(out->why),
            "number %d of the list was %.1f %% faster, but not surely so: this is the "
            "simplest of the plans that are as fast within the noise",
            fastest + 1, longer(out, chosen, fastest));
    else if (chosen == 0)
        snprintf(out->why, sizeof(out->why),
                 "nothing was faster than the method's choice with default schedules");
    else
        snprintf(out->why, sizeof(out->why),
                 "the fastest, and no simpler one is as fast: %.1f %% over the method's "
                 "choice with default schedules",
                 longer(out, 0, chosen));
}

/* The chosen candidate with what was tried. */
static int finish(struct pipeline *p)
{
    struct plan *out = &p->out->plan;
    int fastest = 0, chosen = p->n_list > 1 ? choose(p, &fastest) : 0;
    struct plan *of = &p->state.v[p->list[chosen] / 2];
    struct tune_cache *schedules = of->schedules;
    struct plan_search_opts so = *p->o->search;
    int rc;

    if (p->list[chosen] % 2 == 0)
        of->schedules = NULL;
    rc = plan_copy(out, of);
    of->schedules = schedules;
    if (rc != OK)
        return rc;
    for (int i = 0; i < p->n_list; i++)
        add_try(p, out, i);
    out->chosen_try = chosen;
    explain(p, out, chosen, fastest);
    so.costs_s = costs_s(p);
    return plan_measure_costs(out, &so);
}

/* ---- all of it ---- */

static int run(struct pipeline *p)
{
    double at[4] = {0};
    int rc = read_state(&p->state, p->o);

    p->out->n_known = p->state.n + p->state.n_tuned + p->state.n_trials;
    if (rc == ERR_NOTFOUND)
        rc = search(p);
    at[1] = elapsed_s(p);
    if (rc == OK)
        rc = tune_all(p);
    at[2] = elapsed_s(p);
    if (rc == OK)
        rc = replay_all(p);
    at[3] = elapsed_s(p);
    p->out->search_s = at[1];
    p->out->tune_s = at[2] - at[1];
    p->out->replay_s = at[3] - at[2];
    return rc == OK ? finish(p) : rc;
}

int plan_pipeline(struct plan_pipeline_result *out, const struct plan_pipeline_opts *o)
{
    struct pipeline *p = mem_new(MEM_OTHER, 1, sizeof(*p));
    int rc = ERR_NOMEM;

    memset(out, 0, sizeof(*out));
    if (p) {
        p->o = o;
        p->out = out;
        p->start_ns = clock_ns();
        rc = run(p);
        measure_close(&p->measure);
        fini_state(&p->state);
    }
    mem_free(p);
    if (rc != OK)
        plan_pipeline_result_free(out);
    return rc;
}

void plan_pipeline_result_free(struct plan_pipeline_result *f)
{
    plan_fini(&f->plan);
    mem_free(f->explain);
    memset(f, 0, sizeof(*f));
}

void plan_pipeline_done(const struct plan_pipeline_opts *o)
{
    unlink(o->state_path);
}
