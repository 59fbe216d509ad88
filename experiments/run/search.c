/* Cells that search their goodput: trials are measured and recorded like cells, and the cell
 * itself says what they come to. Which rate comes next is load/search.h's, or load/ladder.h's for
 * the cells of variants that take turns. Each finished trial is in the journal, so an interrupted
 * search goes on with the next. */
#include "experiments/run/session.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "experiments/load/ladder.h"
#include "experiments/metrics/compare.h"

/* A share of 0.9 cannot be told from fewer. */
#define MIN_REQUESTS 10

/* The trial's own metrics that are kept of every trial, as series of the cell. */
static const struct column {
    const char *series, *metric, *unit;
} columns[] = {
    {"trial_rate_rps", NULL, "req/s"},
    {"trial_seed", NULL, ""},
    {"trial_slo_attainment_frac", "slo_attainment_frac", ""},
    {"trial_n_requests", "n_requests", ""},
    {"trial_n_completed", "n_completed", ""},
    {"trial_offered_rps", "offered_rate_rps", "req/s"},
    {"trial_achieved_rps", "achieved_rate_rps", "req/s"},
    {"trial_completed_rps", "request_throughput_rps", "req/s"},
    {"trial_ttft_attainment_frac", "ttft_attainment_frac", ""},
    {"trial_tpot_attainment_frac", "tpot_attainment_frac", ""},
    {"trial_p90_ttft_ms", "p90_ttft_ms", "ms"},
    {"trial_p90_tpot_ms", "p90_tpot_ms", "ms"},
    {"trial_turn", NULL, ""}, /* its place among the trials of all variants */
    {"trial_ended_early", NULL, ""},
};
enum {
    RATE,
    SEED,
    SHARE,
    N_REQUESTS,
    N_COLUMNS = sizeof(columns) / sizeof(columns[0]),
    ENDED_EARLY = N_COLUMNS - 1
};

struct search {
    struct run_session *s;
    const struct job_cell *c;
    struct load_search_opts o;
    struct load_search rule;
    struct load_trial *trials; /* [o.max_trials] */
    size_t n;
    struct metrics_series series[N_COLUMNS]; /* v: [o.max_trials] */
    const char
        *wanted; /* key of the trial that speaks for the cell; NULL: not yet known */
    json_t *described; /* its attributes */
    struct metrics_value *values;
    size_t n_values;
    /* On a ladder, with the others: */
    bool on_ladder;
    struct run_system *system; /* between its turns; NULL: closed */
    uint64_t end_ns;           /* of its last turn; 0: it has had none */
    double end_cpu_s;          /* what the system had taken then */
    double idle_s, idle_cpu_s; /* between its turns */
};

static json_t *section(const struct job_cell *c, const char *name)
{
    return json_object_get(c->settings, name);
}

static double setting(const struct job_cell *c, const char *name, const char *key)
{
    return json_number_value(json_object_get(section(c, name), key));
}

/* --- trials of the journal */

static double value_of(const struct record_cell *c, const char *metric)
{
    for (size_t i = 0; i < c->n_values; i++)
        if (strcmp(c->values[i].name, metric) == 0)
            return c->values[i].value;
    return NAN;
}

static void keep_wanted(struct search *x, const struct record_cell *c)
{
    mem_free(x->values);
    json_decref(x->described);
    x->values = mem_new(MEM_HARNESS, c->n_values + METRICS_N_GOODPUT, sizeof(*x->values));
    memcpy(x->values, c->values, c->n_values * sizeof(*x->values));
    x->n_values = c->n_values;
    x->described = json_incref((json_t *)c->attributes);
}

static int on_trial(void *ctx, const struct record_cell *c)
{
    struct search *x = ctx;
    const json_t *trial = json_object_get(c->attributes, "trial");
    const char *of = json_string_value(json_object_get(trial, "of"));
    const size_t i = (size_t)json_int_at(trial, "number");

    if (!of || strcmp(of, x->c->key) != 0 || c->state != RECORD_DONE || i > x->n ||
        i >= (size_t)x->o.max_trials)
        return OK;
    x->n = i + 1; /* of two attempts at a trial the later counts */
    for (int k = 0; k < N_COLUMNS; k++)
        x->series[k].v[i] = columns[k].metric
                                ? value_of(c, columns[k].metric)
                                : json_number_value(json_object_get(
                                      trial, columns[k].series + strlen("trial_")));
    x->series[ENDED_EARLY].v[i] = json_is_true(
        json_object_get(json_object_get(c->attributes, "saturation"), "ended"));
    x->trials[i] = (struct load_trial){.rate_rps = x->series[RATE].v[i],
                                       .seed = (int)x->series[SEED].v[i],
                                       .within_frac = x->series[SHARE].v[i],
                                       .n_requests = x->series[N_REQUESTS].v[i],
                                       .ended_early = x->series[ENDED_EARLY].v[i] == 1};
    if (x->wanted && strcmp(c->key, x->wanted) == 0)
        keep_wanted(x, c);
    return OK;
}

static int read_trials(struct search *x)
{
    x->n = 0;
    return journal_read(journal_path(x->s->journal), on_trial, x, NULL, NULL);
}

/* --- one trial */

static char *trial_name(const char *cell, size_t number, const struct load_trial *t)
{
    const size_t n = strlen(cell) + 96;
    char *out = mem_new(MEM_HARNESS, n, 1);

    snprintf(out, n, "%s trial=%zu rate_rps=%.17g seed=%d", cell, number, t->rate_rps,
             t->seed);
    return out;
}

static void add_to(json_t *section, const char *key, double add)
{
    double v = json_number_value(json_object_get(section, key)) + add;

    json_object_set_new(section, key, json_integer((json_int_t)v));
}

/* The cell's settings at this rate. A seed of a repeat, or a block of a rung, has its own requests,
 * arrival times, order and outputs; each trial has its own ids of synthetic prompts, so that no
 * system can answer from what it kept of another trial. */
static json_t *trial_settings(const struct search *x, const struct load_trial *t)
{
    json_t *all = json_deep_copy(x->c->settings);
    json_t *load = json_object_get(all, "load"), *seeds = json_object_get(all, "seeds");
    double n = fmax(setting(x->c, "load", "n_requests"),
                    fmax(MIN_REQUESTS, ceil(t->rate_rps * x->o.trial_s)));
    double seed = (double)(x->c->repeat * x->o.seeds + t->seed);
    double sample = (double)x->n;

    if (x->on_ladder)
        sample = seed =
            LOAD_LADDER_BLOCKS_MAX * load_ladder_rung(&x->rule, t->rate_rps) + t->seed;

    json_object_set_new(load, "rate_rps", json_real(t->rate_rps));
    json_object_set_new(load, "n_requests", json_integer((json_int_t)n));
    add_to(json_object_get(all, "dataset"), "seed", seed);
    add_to(seeds, "arrival", seed);
    add_to(seeds, "order", seed);
    add_to(seeds, "output", seed);
    add_to(seeds, "sample", sample);
    return all;
}

static size_t n_sent(const struct job_cell *c)
{
    return (size_t)(setting(c, "load", "n_requests") +
                    setting(c, "load", "warmup_requests"));
}

/* How many trials a search of this kind usually has, for the estimate of the time left. */
static double expected_trials(const struct search *x)
{
    return 4.0 + (double)x->o.seeds * (double)(2 * x->o.verify + 2);
}

/* `turn`: its place among the trials of all that take turns. */
static int measure_trial(struct search *x, const struct load_trial *next, size_t turn,
                         int *cell_rc)
{
    struct job_cell trial = *x->c;
    json_t *about = json_pack("{s:s s:I s:f s:i s:I}", "of", x->c->key, "number",
                              (json_int_t)x->n, "rate_rps", next->rate_rps, "seed",
                              next->seed, "turn", (json_int_t)turn);
    double expected = fmax(expected_trials(x), (double)x->n + 1);
    int rc;

    trial.key = trial_name(x->c->key, x->n, next);
    trial.label = trial_name(x->c->label, x->n, next);
    trial.settings = trial_settings(x, next);
    progress_part(x->s->progress, trial.key, n_sent(&trial), (double)x->n / expected,
                  1 / expected);
    do {
        rc = journal_begin(x->s->journal, trial.key);
        if (rc == OK)
            rc = run_measure_trial(x->s, &trial, about, &x->trials[x->n], cell_rc);
    } while (rc == OK && *cell_rc == OK && run_retry(x->s));
    if (rc == OK && *cell_rc == OK) {
        x->trials[x->n].rate_rps = next->rate_rps;
        x->trials[x->n].seed = next->seed;
        log_info("%s: %.4g requests a second (seed %d): %.1f %% within the objectives%s",
                 x->c->label, next->rate_rps, next->seed,
                 100 * x->trials[x->n].within_frac,
                 x->trials[x->n].ended_early ? "; saturated, ended early" : "");
        x->n++;
    }
    mem_free(trial.key);
    mem_free(trial.label);
    json_decref(trial.settings);
    json_decref(about);
    return rc;
}

/* --- the cell */

/* The first trial at the goodput; where there is none, at the lowest rate that fails. */
static char *speaking_trial(const struct search *x, const struct load_goodput *g)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->trials[i].seed == g->seed && x->trials[i].rate_rps == g->trial_rps)
            return trial_name(x->c->key, i, &x->trials[i]);
    return NULL;
}

static void add_value(struct search *x, const char *name, double v, const char *why)
{
    struct metrics_value *to = &x->values[x->n_values++];

    *to = (struct metrics_value){.value = v};
    snprintf(to->name, sizeof(to->name), "%s", name);
    snprintf(to->unit, sizeof(to->unit), "%s", metrics_unit(name));
    if (isnan(v))
        snprintf(to->why, sizeof(to->why), "%s", why);
}

static void warn_limits(const struct search *x, const struct load_goodput *g)
{
    if (g->n_at_max)
        log_warning(
            "search_at_limit", x->rule.max_rps, x->rule.max_rps,
            "%s: with %d of %d seeds the objectives still hold at search.max_rps, "
            "%g: the goodput is at least that",
            x->c->label, g->n_at_max, x->rule.n_seeds, x->rule.max_rps);
    if (g->n_at_min)
        log_warning("search_at_limit", x->rule.min_rps, x->rule.min_rps,
                    "%s: with %d of %d seeds the objectives fail at search.min_rps, %g, "
                    "already",
                    x->c->label, g->n_at_min, x->rule.n_seeds, x->rule.min_rps);
    if (g->n_open)
        log_warning("search_unfinished", (double)x->n, (double)x->o.max_trials,
                    "%s: search.max_trials ended the search of %d of %d seeds before its "
                    "bracket was narrow and verified",
                    x->c->label, g->n_open, x->rule.n_seeds);
}

static int record_cell(const struct search *x, struct record_cell *r, const char *error)
{
    TRY(journal_begin(x->s->journal, x->c->key));
    return run_record(x->s, x->c, r, error);
}

/* The values of the trial that speaks for the cell, and those of the search. */
static int record_search(struct search *x)
{
    static const char unknown[] = "a seed found no such rate within the search's limits";
    struct record_cell r = {
        .state = RECORD_DONE, .series = x->series, .n_series = N_COLUMNS};
    struct load_goodput g;
    json_t *measured = NULL;
    char *wanted;
    int rc;

    if (x->on_ladder)
        load_ladder_result(&g, &x->rule, x->trials, x->n, 0);
    else
        load_search_result(&g, &x->rule, x->trials, x->n);
    x->wanted = wanted = speaking_trial(x, &g);
    rc = read_trials(x);
    if (rc == OK && !x->values)
        rc = err_set(ERR_FORMAT, "%s: its journal has lost a trial", x->c->key);
    if (rc != OK)
        goto out;
    add_value(x, "goodput_rps", g.rps, g.why);
    if (x->on_ladder)
        metrics_bound(&x->values[x->n_values - 1], g.low_rps, g.high_rps);
    add_value(x, "goodput_low_rps", g.low_rps, unknown);
    add_value(x, "goodput_high_rps", g.high_rps, unknown);
    add_value(x, "goodput_n_trials", (double)x->n, "");
    for (int k = 0; k < N_COLUMNS; k++)
        x->series[k].n = x->n;
    warn_limits(x, &g);
    measured = json_pack(
        "{s:{s:s s:i s:i s:i} s:O* s:O* s:b s:s}", "goodput", "trial", wanted,
        "n_seeds_at_max", g.n_at_max, "n_seeds_at_min", g.n_at_min, "n_seeds_unfinished",
        g.n_open, "described", json_object_get(x->described, "described"), "bound",
        json_object_get(x->described, "bound"), "valid", 1, "invalid_why", "");
    if (x->on_ladder)
        json_object_set_new(measured, "pairing",
                            run_idle_json(x->c, "rate", x->idle_s, x->idle_cpu_s));
    r.attributes = measured;
    r.values = x->values;
    r.n_values = x->n_values;
    rc = record_cell(x, &r, "");
out:
    json_decref(measured);
    mem_free(wanted);
    return rc;
}

/* The system or the data set failed: so did the cell. */
static int record_failed(struct search *x, int cell_rc)
{
    struct record_cell r = {.state = cell_rc == ERR_UNSUPPORTED ? RECORD_SKIPPED
                                                                : RECORD_FAILED};
    char error[512];

    snprintf(error, sizeof(error), "%s", err_msg());
    return record_cell(x, &r, error);
}

static int init(struct search *x)
{
    int rc = opt_init(load_search_opt_table, &x->o);

    if (rc == OK)
        rc = opt_from_json(load_search_opt_table, &x->o, section(x->c, "search"),
                           "search");
    if (rc != OK)
        return rc;
    x->rule = (struct load_search){.first_rps = setting(x->c, "load", "rate_rps"),
                                   .min_rps = x->o.min_rps,
                                   .max_rps = x->o.max_rps,
                                   .target_frac = setting(x->c, "slo", "target_frac"),
                                   .precision_frac = x->o.precision_frac,
                                   .n_seeds = (int)x->o.seeds,
                                   .n_verify = (int)x->o.verify,
                                   .max_trials = (int)x->o.max_trials,
                                   .n_least = (int)x->o.requests};
    x->trials = mem_new(MEM_HARNESS, (size_t)x->o.max_trials, sizeof(*x->trials));
    for (int k = 0; k < N_COLUMNS; k++) {
        struct metrics_series *v = &x->series[k];

        snprintf(v->name, sizeof(v->name), "%s", columns[k].series);
        snprintf(v->unit, sizeof(v->unit), "%s", columns[k].unit);
        v->v = mem_new(MEM_HARNESS, (size_t)x->o.max_trials, sizeof(*v->v));
    }
    return OK;
}

static void fini(struct search *x)
{
    for (int k = 0; k < N_COLUMNS; k++)
        mem_free(x->series[k].v);
    mem_free(x->trials);
    mem_free(x->values);
    json_decref(x->described);
    run_system_close(&x->system);
}

int run_search(struct run_session *s, const struct job_cell *c)
{
    struct search x = {.s = s, .c = c};
    struct load_trial next;
    int cell_rc = OK, rc = init(&x);

    if (rc == OK)
        rc = read_trials(&x);
    if (rc == OK && x.n)
        log_info("%s: resuming the search: %zu trials are finished", c->label, x.n);
    if (rc == OK)
        progress_study(s->progress, c->key, s->weight, clock_ns());
    while (rc == OK && cell_rc == OK && load_search_next(&x.rule, x.trials, x.n, &next))
        rc = measure_trial(&x, &next, x.n, &cell_rc);
    if (rc == OK)
        rc = cell_rc == OK ? record_search(&x) : record_failed(&x, cell_rc);
    fini(&x);
    return rc;
}

/* --- cells whose systems are all open, and try rates in turn */

struct ladder {
    struct search *x; /* [n] */
    bool *ended;      /* [n] it failed, was skipped, or was recorded */
    bool *runs;       /* [n] */
    int n;
    struct load_trial *trials; /* of all entries */
    size_t n_trials;
};

static void take_trials(struct ladder *l)
{
    l->n_trials = 0;
    for (int k = 0; k < l->n; k++)
        for (size_t i = 0; i < l->x[k].n; i++) {
            l->trials[l->n_trials] = l->x[k].trials[i];
            l->trials[l->n_trials++].entry = k;
        }
}

/* The trials that the journal has, and the system. */
static int open_entry(struct ladder *l, int k)
{
    struct search *x = &l->x[k];
    int cell_rc, rc = init(x);

    x->on_ladder = true;
    x->rule.n_seeds = 1;
    if (rc == OK)
        rc = read_trials(x);
    if (rc != OK)
        return rc;
    cell_rc = run_measure_open(x->s, x->c);
    x->system = x->s->system;
    x->s->system = NULL;
    if (cell_rc == OK)
        return OK;
    log_info("%s: %s", x->c->key, err_msg());
    l->ended[k] = true;
    return record_failed(x, cell_rc);
}

static int take_turn(struct ladder *l, int k, const struct load_trial *next)
{
    struct search *x = &l->x[k];
    int cell_rc = OK, rc;

    if (x->end_ns) {
        x->idle_s += (double)(clock_ns() - x->end_ns) / 1e9;
        x->idle_cpu_s += run_system_cpu_s(x->system) - x->end_cpu_s;
    }
    x->s->system = x->system;
    rc = measure_trial(x, next, l->n_trials, &cell_rc);
    x->system = x->s->system;
    x->s->system = NULL;
    x->end_ns = x->system ? clock_ns() : 0; /* closed: it begins again */
    x->end_cpu_s = x->system ? run_system_cpu_s(x->system) : 0;
    l->n_trials++;
    if (rc != OK || cell_rc == OK)
        return rc;
    l->ended[k] = true;
    return record_failed(x, cell_rc);
}

/* All entries that run this block, in turn: of a rung A B, B A, of the next one B A, A B. */
static int run_block(struct ladder *l, const struct load_trial *next)
{
    const int rung = load_ladder_rung(&l->x->rule, next->rate_rps);
    int rc = OK;

    for (int turn = 0; turn < l->n && rc == OK; turn++) {
        const int k = compare_turn(2 * rung + next->seed, turn, l->n);

        if (l->runs[k])
            rc = take_turn(l, k, next);
    }
    return rc;
}

int run_ladder(struct run_session *s, const struct job_cell *c, int n)
{
    struct ladder l = {.x = mem_new(MEM_HARNESS, (size_t)n, sizeof(*l.x)),
                       .ended = mem_new(MEM_HARNESS, (size_t)n, sizeof(bool)),
                       .runs = mem_new(MEM_HARNESS, (size_t)n, sizeof(bool)),
                       .n = n};
    struct load_trial next;
    int rc = OK;

    for (int k = 0; k < n; k++)
        l.x[k] = (struct search){.s = s, .c = &c[k]};
    progress_study(s->progress, c->key, s->weight, clock_ns());
    for (int k = 0; k < n && rc == OK; k++)
        rc = open_entry(&l, k);
    if (rc == OK)
        l.trials = mem_new(MEM_HARNESS, (size_t)n * (size_t)l.x->o.max_trials,
                           sizeof(*l.trials));
    while (rc == OK) {
        take_trials(&l);
        if (!load_ladder_next(&l.x->rule, l.trials, l.n_trials, l.ended, n, &next,
                              l.runs))
            break;
        rc = run_block(&l, &next);
    }
    for (int k = 0; k < n && rc == OK; k++)
        rc = l.ended[k] ? OK : record_search(&l.x[k]);
    for (int k = 0; k < n; k++)
        fini(&l.x[k]);
    mem_free(l.trials);
    mem_free(l.runs);
    mem_free(l.ended);
    mem_free(l.x);
    return rc;
}
