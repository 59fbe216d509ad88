/* A search of schedules for the jobs of one thread set. Every schedule is saved soon after it
 * was found, so that a search may be interrupted at any moment and continued later. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/tune.h"
#include "tune/validate.h"

/* ---- progress, and the closing table ---- */

#define TERMINAL_NS  UINT64_C(200000000)
#define ELSEWHERE_NS UINT64_C(60000000000)
#define BAR          24

/* Time left, from the work that is left and how long the rest took; the budget may end it
 * sooner. */
static double left_s(const struct cli_tuning *t, double elapsed_s)
{
    double left = NAN;

    if (t->done_work > 0)
        left = elapsed_s * (t->all_work - t->done_work) / t->done_work;
    if (t->budget_s > 0 && !(left < t->budget_s - t->measured_s))
        left = t->budget_s - t->measured_s;
    return left > 0 || isnan(left) ? left : 0;
}

static void show_progress(struct cli_tuning *t)
{
    bool terminal = isatty(STDERR_FILENO);
    uint64_t now = clock_ns();
    double frac = t->all_work > 0 ? t->done_work / t->all_work : 1, left;
    int n = (int)(frac * BAR);
    char eta[32] = "unknown";

    if (now - t->t_shown_ns < (terminal ? TERMINAL_NS : ELSEWHERE_NS))
        return;
    t->t_shown_ns = now;
    left = left_s(t, (double)(now - t->t_start_ns) * 1e-9);
    if (!isnan(left))
        snprintf(eta, sizeof(eta), "%d:%02d", (int)left / 60, (int)left % 60);
    fprintf(stderr, "%s[%.*s%*s] %3.0f %% %s, %lld rows, %lld measurements, %s left%s",
            terminal ? "\r" : "", n, "##############################", BAR - n, "",
            100 * frac, t->matrix, (long long)t->m, (long long)t->n_measurements, eta,
            terminal ? "\033[K" : "\n");
    fflush(stderr);
}

/* A line on the terminal, one a minute elsewhere. */
static void end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static void print_row(struct table *t, const struct cli_tuned *r)
{
    table_cell(t, "%s", r->matrix);
    table_cell(t, "%lld", (long long)r->n_shapes);
    table_cell(t, "%lld", (long long)r->n_found);
    table_cell(t, "%lld", (long long)r->n_known);
    table_cell(t, "%lld", (long long)r->n_measurements);
    table_cell(t, "%.1f", r->seconds);
    if (r->n_compared > 0)
        table_cell(t, "%.3f", exp(r->log_speedup / (double)r->n_compared));
    else
        table_cell(t, "n/a");
    table_cell(t, "%lld", (long long)r->n_compared);
    table_cell(t, "%lld", (long long)r->n_taken_back);
}

void cli_tune_report(const struct cli_tuned *rows, int n)
{
    static const struct table_column columns[] = {{"matrix", -28},      {"shapes", 6},
                                                  {"found", 6},         {"known", 6},
                                                  {"measurements", 12}, {"seconds", 9},
                                                  {"speed-up", 9},      {"compared", 8},
                                                  {"taken back", 10},   {0}};
    struct table t = {.f = stdout, .columns = columns};
    struct cli_tuned all = {.matrix = "all"};

    table_head(&t);
    for (int i = 0; i < n; i++) {
        print_row(&t, &rows[i]);
        all.n_shapes += rows[i].n_shapes;
        all.n_found += rows[i].n_found;
        all.n_known += rows[i].n_known;
        all.n_measurements += rows[i].n_measurements;
        all.seconds += rows[i].seconds;
        all.log_speedup += rows[i].log_speedup;
        all.n_compared += rows[i].n_compared;
        all.n_taken_back += rows[i].n_taken_back;
    }
    print_row(&t, &all);
    printf(
        "speed-up: geometric mean of default over tuned, the fastest runs of both when "
        "measured again in turn,\nweights out of cache; "
        "taken back: what lost to the default there keeps the default\n");
}

#define COMPARE_MAX 64 /* schedules of a matrix that are compared with the default */
#define SAVE_NS     UINT64_C(1000000000)
/* A product of fewer rows takes about as long as one of this many: both read the weights. */
#define ROWS_OF_READING 16

/* ---- the file ---- */

/* A damaged file is renamed, so that it can be examined. */
static int open_cache(struct cli_tune_run *r)
{
    char aside[1024];
    int rc = file_check_target(r->cache_path, r->input);

    if (rc == OK)
        rc = tune_cache_open(&r->cache, r->cache_path, r->cpus, r->n_threads);
    if (rc != ERR_FORMAT && rc != ERR_LIMIT)
        return rc;
    snprintf(aside, sizeof(aside), "%s.damaged", r->cache_path);
    log_warn("%s; the file was renamed to %s and a new one was begun", err_msg(), aside);
    if (rename(r->cache_path, aside) != 0)
        return err_set(ERR_IO, "%s: cannot rename to %s: %m", r->cache_path, aside);
    return tune_cache_open(&r->cache, r->cache_path, r->cpus, r->n_threads);
}

static int save(struct cli_tune_run *r, bool now)
{
    if (!now && clock_ns() - r->saved_ns < SAVE_NS)
        return OK;
    r->saved_ns = clock_ns();
    return tune_cache_save(r->cache);
}

/* ---- the search ---- */

static double work_of(const struct tune_shape *s)
{
    return (double)s->n * (double)s->k * (double)(s->m + ROWS_OF_READING);
}

/* A policy found a schedule. */
static int on_found(void *arg, int i, const struct kern_schedule *s,
                    const struct measure_report *t)
{
    struct cli_tune_run *r = arg;
    struct tune_cost cost;
    int rc = tune_cache_put(r->cache, &r->job->shapes[i], s, t);

    if (rc == OK)
        rc = save(r, false);
    tune_cost_of(r->bench, &cost);
    r->now->n_found++;
    r->progress.m = r->job->shapes[i].m;
    r->progress.done_work += work_of(&r->job->shapes[i]);
    r->progress.n_measurements = cost.n_measurements;
    r->progress.measured_s = cost.seconds;
    show_progress(&r->progress);
    return rc;
}

/* Time the default and the tuned schedules once more in turn. Where the default is faster
 * it is kept. */
static int compare(struct cli_tune_run *r)
{
    int n = r->job->n_shapes, step = (n + COMPARE_MAX - 1) / COMPARE_MAX, rc = OK;

    for (int i = 0; i < n && rc == OK && !cli_interrupted; i += step) {
        const struct tune_shape *s = &r->job->shapes[i];
        struct kern_schedule found;
        struct measure_report t[2];
        bool lost;

        if (!tune_cache_has(r->cache, s, &found) || (r->known[i].mr > 0 && r->only_new))
            continue;
        rc = tune_validate(r->bench, s, r->n_threads, r->rounds, &found, t, &lost);
        if (rc != OK)
            break;
        r->now->n_compared++;
        if (t[0].n > 0) /* else the same, by a factor of 1 */
            r->now->log_speedup += log(t[0].estimate / t[1].estimate);
        if (lost) {
            r->now->n_taken_back++;
            rc = tune_cache_put(r->cache, s, &found, &t[0]);
        }
    }
    return rc;
}

static int search(struct cli_tune_run *r, double budget_s)
{
    const struct cli_tune_job *j = r->job;
    size_t n = (size_t)j->n_shapes;
    struct kern_schedule *found = mem_new(MEM_OTHER, n, sizeof(*found));
    struct tune_opts o = *r->tune;
    struct tune_ctx c = {.bench = r->bench,
                         .n_threads = r->n_threads,
                         .o = &o,
                         .shapes = j->shapes,
                         .n_shapes = j->n_shapes,
                         .known = r->known,
                         .done = on_found,
                         .arg = r,
                         .stop = &cli_interrupted};
    struct tune_cost before, after;
    int rc = found ? OK : ERR_NOMEM;

    for (int k = 0; rc == OK && k < j->n_shapes; k++)
        r->now->n_known += tune_cache_has(r->cache, &j->shapes[k], &r->known[k]);
    o.budget_s = budget_s;
    o.split_k = o.split_k && j->split_k;
    tune_cost_of(r->bench, &before);
    if (rc == OK)
        rc = r->policy->run(&c, found);
    tune_cost_of(r->bench, &after);
    r->now->n_measurements = after.n_measurements - before.n_measurements;
    r->now->seconds = after.seconds - before.seconds;
    mem_free(found);
    return rc;
}

/* Name the rows of the closing table and sum the work to do. */
static void plan_work(struct cli_tune_run *r)
{
    for (int i = 0; i < r->jobs.n; i++) {
        const struct cli_tune_job *j = &r->jobs.v[i];
        struct kern_schedule s;

        memcpy(r->tuned[i].matrix, j->name, sizeof(r->tuned[i].matrix));
        r->tuned[i].n_shapes = j->n_shapes;
        for (int k = 0; k < j->n_shapes; k++)
            if (!tune_cache_has(r->cache, &j->shapes[k], &s))
                r->progress.all_work += work_of(&j->shapes[k]);
    }
    r->progress.budget_s = r->tune->budget_s;
    r->progress.t_start_ns = r->progress.t_shown_ns = clock_ns();
}

/* Search the matrix in hand and compare what was found with the default. */
static int tune_one(struct cli_tune_run *r, double budget_s)
{
    int rc;

    r->known = mem_new(MEM_OTHER, (size_t)r->job->n_shapes, sizeof(*r->known));
    if (!r->known)
        return ERR_NOMEM;
    rc = search(r, budget_s);
    if (rc == OK && r->rounds > 0 && !cli_interrupted) {
        end_progress();
        rc = compare(r);
    }
    mem_free(r->known);
    r->known = NULL;
    return rc;
}

static int tune_all(struct cli_tune_run *r)
{
    double budget_s = r->tune->budget_s, spent_s = 0;
    int rc = OK;

    plan_work(r);
    for (int i = 0; i < r->jobs.n && rc == OK; i++) {
        /* an equal share of what is left; never 0, which would mean no limit */
        double share_s = fmax(budget_s - spent_s, 1e-9) / (r->jobs.n - i);

        r->job = &r->jobs.v[i];
        r->now = &r->tuned[i];
        memcpy(r->progress.matrix, r->job->name, sizeof(r->progress.matrix));
        rc = tune_one(r, budget_s > 0 ? share_s : 0);
        spent_s += r->now->seconds;
    }
    end_progress();
    return rc;
}

/* ---- the public API ---- */

int cli_tune_run(struct cli_tune_run *r)
{
    const struct tune_bench_opts bench = {.seed = r->tune->seed};
    int rc = tune_policy_find(r->tune->policy, &r->policy), saved;

    if (rc == OK)
        rc = open_cache(r);
    if (rc == OK)
        rc = par_team_open(&r->team, r->cpus, r->n_threads, r->pin);
    if (rc == OK)
        rc = tune_bench_open(&r->bench, r->team, &bench);
    if (rc == OK) {
        rc = tune_all(r);
        saved = save(r, true);
        rc = rc == OK ? saved : rc;
    }
    tune_bench_close(&r->bench);
    par_team_close(&r->team);
    return rc;
}

void cli_tune_run_close(struct cli_tune_run *r)
{
    cli_tune_jobs_free(&r->jobs);
    tune_cache_close(&r->cache);
}
