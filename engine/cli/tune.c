/* sandwich tune: searches schedules for matrix products and keeps them in a file that the
 * engine reads (--schedules). Every schedule is saved soon after it was found, so that a
 * search may be interrupted at any moment and continued later. */
#include "cli/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "cli/cli.h"
#include "plan/plan.h"
#include "tune/validate.h"
#include "tune/policy.h"
#include "tune/schedule_cache.h"
#include "tune/space.h"

#define COMPARE_MAX 64 /* schedules of a matrix that are compared with the default */
#define SAVE_NS     UINT64_C(1000000000)
/* A product of fewer rows takes about as long as one of this many: both read the weights. */
#define ROWS_OF_READING 16

struct tune_flags {
    struct tune_opts tune; /* first: its table's offsets hold here */
    char *model, *shapes, *weight_type, *isa, *cache, *rows;
    int precision;
    int64_t threads, m_max, rounds;
    bool every, pin, help;
};
#define OPT_OF struct tune_flags
static const struct opt_row own_rows[] = {
    OPT_ROW(STR, model, NULL,
            "Tune the matrix products of this model. Its weights are not read.",
            .unit = "FILE"),
    OPT_ROW(
        STR, shapes, NULL,
        "Tune these matrices in place of a model's: outputs x inputs, with /ROWS where "
        "a matrix is split along K in units of ROWS. Example: 5504x2048,2048x5504/64",
        .unit = "SHAPES"),
    OPT_ROW(STR, cache, "results/schedules.json",
            "File that keeps the schedules. Shapes that are already in it are not "
            "searched again.",
            .unit = "FILE"),
    OPT_ROW(STR, weight_type, "file",
            "Type in which the engine will keep the weights: file (as stored; f32 with "
            "--shapes), f32, f16 or bf16.",
            .unit = "TYPE"),
    OPT_ROW(ENUM, precision, "exact", "Precision with which the engine will run.",
            .values = "exact|relaxed"),
    CPU_ISA_ROW,
    OPT_ROW(INT, threads, NULL,
            "Number of threads of the phase to tune. 0: one per available CPU core.",
            .min = 0, .max = CPU_MAX),
    OPT_ROW(INT, m_max, "512",
            "Tune for values of M up to N: the engine's --max-step-tok.", .unit = "rows",
            .min = 1, .max = 65536),
    OPT_ROW(STR, rows, NULL,
            "Values of M to tune for, ascending. Default: 1 to 16, then steps of one "
            "eighth. Example: --rows 1,8,64",
            .unit = "LIST"),
    OPT_ROW(BOOL, every, NULL, "Tune for every value of M from 1 to --m-max."),
    OPT_ROW(INT, rounds, "7",
            "Rounds of the closing comparison with the default schedules. 0: no "
            "comparison.",
            .min = 0, .max = 1000),
    OPT_ROW(BOOL, pin, "true", "Pin each thread to its CPU."),
    OPT_HELP_ROW,
};
#define N_OWN    ((int)(sizeof(own_rows) / sizeof(own_rows[0])))
#define ROWS_MAX 32

static const struct opt_usage usage = {
    .line = "sandwich tune --model FILE|--shapes SHAPES [--cache FILE] [options]",
    .about =
        "Search the fastest schedule of every matrix product by measuring, and keep the "
        "schedules in a file that `sandwich run --schedules` reads. An interrupted "
        "search continues when the same command is given again.",
    .examples = "  sandwich tune --model llama-160m.gguf --budget 60\n"
                "  sandwich tune --shapes 5504x2048,2048x5504/64 --rows 1,16,128\n",
    .exit_status = CLI_EXIT_STATUS,
};

/* The policies' options and ours as one table. */
static const struct opt_row *table(void)
{
    static struct opt_row rows[ROWS_MAX];
    int n = 0;

    for (const struct opt_row *r = tune_opt_table; r->name && n < ROWS_MAX - N_OWN - 1;
         r++) {
        rows[n] = *r;
        if (!strcmp(r->name, "budget_s"))
            rows[n].name = "budget"; /* of the whole run here */
        n++;
    }
    memcpy(rows + n, own_rows, sizeof(own_rows));
    return rows;
}

struct run {
    const struct tune_flags *f;
    struct plan plan;
    struct par_team *team;
    struct tune_bench *bench;
    struct tune_cache *cache;
    const struct tune_policy *policy;
    struct cli_tune_jobs jobs;
    struct cli_tuned tuned[CLI_TUNE_JOBS_MAX];
    struct cli_tuning progress;
    uint64_t saved_ns;
    /* The job being worked on. */
    const struct cli_tune_job *job;
    struct cli_tuned *now;
};

/* ---- the file ---- */

/* A damaged file is renamed, so that it can be examined. */
static int open_cache(struct run *r)
{
    char aside[1024];
    int rc = file_check_target(r->f->cache, r->f->model);

    if (rc == OK)
        rc = tune_cache_open(&r->cache, r->f->cache, r->plan.cpus, r->plan.n_cpus);
    if (rc != ERR_FORMAT && rc != ERR_LIMIT)
        return rc;
    snprintf(aside, sizeof(aside), "%s.damaged", r->f->cache);
    log_warn("%s; the file was renamed to %s and a new one was begun", err_msg(), aside);
    if (rename(r->f->cache, aside) != 0)
        return err_set(ERR_IO, "%s: cannot rename to %s: %m", r->f->cache, aside);
    return tune_cache_open(&r->cache, r->f->cache, r->plan.cpus, r->plan.n_cpus);
}

static int save(struct run *r, bool now)
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
    struct run *r = arg;
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
    cli_tune_progress(&r->progress);
    return rc;
}

/* Time the default and the tuned schedules once more in turn. Where the default is faster
 * it is kept. */
static int compare(struct run *r)
{
    int n = r->job->n_shapes, step = (n + COMPARE_MAX - 1) / COMPARE_MAX, rc = OK;

    for (int i = 0; i < n && rc == OK && !cli_interrupted; i += step) {
        const struct tune_shape *s = &r->job->shapes[i];
        struct kern_schedule found;
        struct measure_report t[2];
        bool lost;

        if (!tune_cache_has(r->cache, s, &found))
            continue;
        rc = tune_validate(r->bench, s, r->plan.n_cpus, (int)r->f->rounds, &found, t,
                           &lost);
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

static int search(struct run *r, double budget_s)
{
    const struct cli_tune_job *j = r->job;
    size_t n = (size_t)j->n_shapes;
    struct kern_schedule *known = mem_new(MEM_OTHER, n, sizeof(*known));
    struct kern_schedule *found = mem_new(MEM_OTHER, n, sizeof(*found));
    struct tune_opts o = r->f->tune;
    struct tune_ctx c = {.bench = r->bench,
                         .n_threads = r->plan.n_cpus,
                         .o = &o,
                         .shapes = j->shapes,
                         .n_shapes = j->n_shapes,
                         .known = known,
                         .done = on_found,
                         .arg = r,
                         .stop = &cli_interrupted};
    struct tune_cost before, after;
    int rc = known && found ? OK : ERR_NOMEM;

    for (int k = 0; rc == OK && k < j->n_shapes; k++)
        r->now->n_known += tune_cache_has(r->cache, &j->shapes[k], &known[k]);
    o.budget_s = budget_s;
    o.split_k = o.split_k && j->split_k;
    tune_cost_of(r->bench, &before);
    if (rc == OK)
        rc = r->policy->run(&c, found);
    tune_cost_of(r->bench, &after);
    r->now->n_measurements = after.n_measurements - before.n_measurements;
    r->now->seconds = after.seconds - before.seconds;
    mem_free(known);
    mem_free(found);
    return rc;
}

/* Name the rows of the closing table and sum the work to do. */
static void plan_work(struct run *r)
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
    r->progress.budget_s = r->f->tune.budget_s;
    r->progress.t_start_ns = r->progress.t_shown_ns = clock_ns();
}

static int tune_all(struct run *r)
{
    double budget_s = r->f->tune.budget_s, spent_s = 0;
    int rc = OK;

    plan_work(r);
    for (int i = 0; i < r->jobs.n && rc == OK; i++) {
        /* an equal share of what is left; never 0, which would mean no limit */
        double share_s = fmax(budget_s - spent_s, 1e-9) / (r->jobs.n - i);

        r->job = &r->jobs.v[i];
        r->now = &r->tuned[i];
        memcpy(r->progress.matrix, r->job->name, sizeof(r->progress.matrix));
        rc = search(r, budget_s > 0 ? share_s : 0);
        spent_s += r->now->seconds;
        if (rc == OK && r->f->rounds > 0 && !cli_interrupted) {
            cli_tune_progress_end();
            rc = compare(r);
        }
    }
    cli_tune_progress_end();
    return rc;
}

static int open_all(struct run *r)
{
    const struct tune_bench_opts bench = {.seed = r->f->tune.seed};
    const struct cli_tune_ask ask = {.model = r->f->model,
                                     .shapes = r->f->shapes,
                                     .weight_type = r->f->weight_type,
                                     .rows = r->f->rows,
                                     .precision = (enum kern_precision)r->f->precision,
                                     .m_max = r->f->m_max,
                                     .every = r->f->every};
    struct cpu_budget budget;
    int rc;

    rc = tune_policy_find(r->f->tune.policy, &r->policy);
    if (rc == OK)
        rc = cpu_isa_limit(r->f->isa);
    if (rc == OK)
        rc = cpu_budget_get(&budget);
    if (rc == OK)
        rc = plan_default(&r->plan, &budget, (int)r->f->threads);
    if (rc == OK)
        rc = par_team_open(&r->team, r->plan.cpus, r->plan.n_cpus, r->f->pin);
    if (rc == OK)
        rc = tune_bench_open(&r->bench, r->team, &bench);
    if (rc == OK)
        rc = cli_tune_jobs(&r->jobs, &ask);
    if (rc == OK)
        rc = open_cache(r);
    return rc;
}

static int tune(const struct tune_flags *f)
{
    struct run r = {.f = f};
    int rc = open_all(&r);

    if (rc == OK) {
        int saved;

        cli_catch_interrupts();
        rc = tune_all(&r);
        if (rc == ERR_CANCELED && cli_interrupted)
            rc = OK;
        saved = save(&r, true);
        rc = rc == OK ? saved : rc;
    }
    if (rc == OK) {
        cli_tune_report(r.tuned, r.jobs.n);
        printf("%d threads: %s\n", r.plan.n_cpus, f->cache);
    }
    cli_tune_jobs_free(&r.jobs);
    tune_cache_close(&r.cache);
    tune_bench_close(&r.bench);
    par_team_close(&r.team);
    return rc;
}

int cli_tune(int argc, char **argv)
{
    struct tune_flags f;
    int status = cli_fail("tune", opt_init(table(), &f));

    if (status == 0)
        status = cli_flags(&usage, table(), &f, &f.help, argc, argv, 0);
    if (status == -1)
        status = cli_fail("tune", tune(&f));
    if (status == 0 && cli_interrupted) {
        fprintf(stderr,
                "sandwich tune: interrupted; the same command continues the search\n");
        status = EXIT_INTERRUPTED;
    }
    opt_free(table(), &f);
    return status;
}
