/* Times products and copies, alone and together. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "hetero/profile.h"
#include "par/team.h"
#include "tune/measure.h"

/* Output features and rows of K: cold weights of 1 to 16 million. */
static const int64_t shapes[][2] = {{512, 2048},  {1024, 2048}, {2048, 2048},
                                    {4096, 2048}, {2048, 5504}, {4096, 4096}};
#define N_SHAPES   ((int)(sizeof(shapes) / sizeof(shapes[0])))
#define N_TOKENS   11 /* 1, 2, 4 … 1024 */
#define POINTS_MAX (N_SHAPES * N_TOKENS)
#define PAIRS      5
#define MANY_TOK   64

struct job {
    const struct hetero_profile_opts *o;
    struct hetero_profile *p;
    struct par_team *team;
    int accel_cpu;
    struct kern_table kern;
};

static void report_progress(const struct job *j, const char *what)
{
    if (j->o->progress)
        j->o->progress(j->o->ctx, what);
}

/* ---- the CPU ---- */

static int time_cpu_point(struct tune_bench *b, struct hetero_point *out,
                          const struct tune_shape *s, int n_threads)
{
    enum kern_type type = (enum kern_type)(s->v->op - KERN_GEMM_F32);
    struct kern_schedule schedule;
    struct measure_report r;

    TRY(tune_bench_shape(b, s));
    kern_schedule_default(&schedule, s->v, tune_bench_mat(b), s->m, n_threads);
    TRY(tune_measure(b, &schedule, n_threads, &r));
    *out = (struct hetero_point){(double)(s->n * s->k), (double)s->m,
                                 (double)(s->n * s->k) * kern_type_weight_bytes(type),
                                 r.estimate};
    return OK;
}

static int time_cpu(struct job *j, struct hetero_profile_cpu *c)
{
    const struct tune_bench_opts how = {.measure = {.min_rounds = 3,
                                                    .max_rounds = 9,
                                                    .min_s = j->o->min_s,
                                                    .budget_s = 4 * j->o->min_s},
                                        .seed = 1};
    struct tune_bench *b = NULL;
    int n = 0, rc;

    c->points = mem_new(MEM_OTHER, POINTS_MAX, sizeof(*c->points));
    rc = c->points ? tune_bench_open(&b, j->team, &how) : ERR_NOMEM;
    for (int i = 0; i < N_SHAPES && rc == OK; i++)
        for (int64_t m = j->o->max_tok; m >= 1 && rc == OK; m /= 2) {
            const struct tune_shape s = {.v = j->kern.v[KERN_GEMM_F32 + c->type],
                                         .m = m,
                                         .n = shapes[i][0],
                                         .k = shapes[i][1]};

            rc = time_cpu_point(b, &c->points[n++], &s, c->n_threads);
        }
    tune_bench_close(&b);
    return rc == OK ? hetero_fit(&c->fit, c->points, n, j->o->seed) : rc;
}

/* ---- the accelerator ---- */

struct device {
    const struct accel_kind *k;
    struct accel *a;
    int x, y, w;
    char *host;
    size_t bytes; /* of host and of w */
};

#define DEVICE_N   2048 /* columns and rows of the largest product */
#define DEVICE_TOK 256
#define BATCH      8 /* operations that are timed together */

static int open_device(struct device *d, const struct job *j,
                       const struct hetero_machine *m, size_t bytes)
{
    *d = (struct device){.k = j->o->kind, .bytes = bytes};
    d->host = mem_map(MEM_OTHER, bytes, MEM_NODE_ANY);
    if (!d->host)
        return ERR_NOMEM;
    memset(d->host, 0, bytes); /* weights that are 0, and pages that are there */
    TRY(d->k->open(&d->a, &(struct accel_opts){m, j->accel_cpu}));
    TRY(d->k->alloc(d->a, DEVICE_TOK * DEVICE_N * sizeof(float), &d->x));
    TRY(d->k->alloc(d->a, DEVICE_TOK * DEVICE_N * sizeof(float), &d->y));
    return d->k->alloc(d->a, bytes, &d->w);
}

static void close_device(struct device *d)
{
    if (d->a)
        d->k->close(&d->a);
    mem_unmap(MEM_OTHER, d->host, d->bytes);
}

static struct accel_gemm product_of(const struct device *d, enum kern_type type,
                                    int64_t n, int64_t k, int64_t n_tok)
{
    struct accel_gemm g = {.n_tok = n_tok,
                           .ldx = k,
                           .ldy = n,
                           .x = {d->x, 0},
                           .w = {d->w, 0},
                           .y = {d->y, 0}};

    kern_mat_layout(&g.layout, type, n, k, 0);
    return g;
}

/* Seconds of `n` copies of `bytes`, or (g) of n products, after one launch for all or one for
 * each. */
static int time_batch(struct device *d, const struct accel_gemm *g, size_t bytes, int n,
                      bool launch_each, double *seconds)
{
    double before_s, after_s;

    TRY(d->k->finish(d->a, &before_s));
    d->k->launch(d->a, launch_each ? 0 : 1);
    for (int i = 0; i < n; i++) {
        size_t at = bytes ? (size_t)i * bytes % (d->bytes - bytes + 1) : 0;

        if (launch_each)
            d->k->launch(d->a, 1);
        if (g)
            TRY(d->k->gemm(d->a, g));
        else
            TRY(d->k->copy(d->a, (struct accel_at){d->w, 0}, d->host + at, bytes));
    }
    TRY(d->k->finish(d->a, &after_s));
    *seconds = after_s - before_s;
    return OK;
}

static int time_launch(struct job *j, struct device *d, enum kern_type type)
{
    struct accel_gemm g = product_of(d, type, KERN_PANEL, 256, 1);
    double s[32];

    for (int i = 0; i < 32; i++) {
        TRY(time_batch(d, &g, 0, 64, true, &s[i]));
        s[i] /= 64;
    }
    j->p->launch_s = stats_median(s, 32);
    j->p->launch_sigma_s = stats_std(s, 32);
    return OK;
}

static int time_copies(struct job *j, struct device *d)
{
    struct hetero_point points[32];
    int n = 0;

    for (int64_t bytes = j->o->copy_bytes; bytes >= 16384 && n < 32; bytes /= 4) {
        double s[5];

        for (int i = 0; i < 5; i++)
            TRY(time_batch(d, NULL, (size_t)bytes, BATCH, false, &s[i]));
        points[n++] = (struct hetero_point){
            .bytes = (double)bytes,
            .seconds = fmax(0, stats_median(s, 5) - j->p->launch_s) / BATCH};
    }
    return hetero_line_fit(&j->p->link, points, n);
}

static int time_accel(struct job *j, struct device *d, struct hetero_profile_accel *out)
{
    struct hetero_point points[4 * 9];
    int n = 0;

    for (int64_t size = DEVICE_N; size >= DEVICE_N / 8; size /= 2)
        for (int64_t n_tok = DEVICE_TOK; n_tok >= 1; n_tok /= 2) {
            struct accel_gemm g = product_of(d, out->type, size, size, n_tok);
            double s;

            TRY(time_batch(d, &g, 0, BATCH, false, &s));
            points[n++] = (struct hetero_point){(double)(size * size), (double)n_tok,
                                                (double)g.layout.bytes,
                                                fmax(1e-9, s - j->p->launch_s) / BATCH};
        }
    return hetero_fit(&out->fit, points, n, j->o->seed);
}

/* ---- both at once ---- */

struct pair_job {
    struct tune_bench *bench;
    struct kern_schedule schedule;
    int n_threads, n_runs, n_copies;
    size_t copy_bytes;
};

static int run_cpu(const struct pair_job *j, double *seconds)
{
    *seconds = 0;
    for (int i = 0; i < j->n_runs; i++) {
        double s;

        TRY(tune_run_once(j->bench, &j->schedule, j->n_threads, &s));
        *seconds += s;
    }
    return OK;
}

static int run_pair(struct device *d, const struct pair_job *j, bool with_cpu,
                    double *cpu_s, double *link_s)
{
    double before_s, after_s;

    TRY(d->k->finish(d->a, &before_s));
    for (int i = 0; i < j->n_copies; i++) {
        size_t at = (size_t)i * j->copy_bytes % (d->bytes - j->copy_bytes + 1);

        TRY(d->k->copy(d->a, (struct accel_at){d->w, 0}, d->host + at, j->copy_bytes));
    }
    if (with_cpu)
        TRY(run_cpu(j, cpu_s));
    TRY(d->k->finish(d->a, &after_s));
    *link_s = after_s - before_s;
    return OK;
}

/* Make both sides take equally long, and long enough to time. */
static int balance(struct device *d, struct pair_job *j, double min_s)
{
    double cpu_s = 0, link_s, unused;

    for (j->n_runs = 1;; j->n_runs *= 2) {
        TRY(run_cpu(j, &cpu_s));
        if (cpu_s >= min_s || j->n_runs >= 1 << 16)
            break;
    }
    j->n_copies = 4;
    TRY(run_pair(d, j, false, &unused, &link_s));
    j->n_copies = (int)fmin(1 << 16, fmax(1, round(4 * cpu_s / link_s)));
    return OK;
}

static int time_pairs(struct device *d, struct pair_job *j, double min_s,
                      double *cpu_contention, double *link_contention)
{
    struct hetero_pair pairs[PAIRS];
    double cpu[PAIRS], link[PAIRS], unused;

    TRY(balance(d, j, min_s));
    for (int i = 0; i < PAIRS; i++) {
        struct hetero_pair *p = &pairs[i];

        TRY(run_cpu(j, &p->cpu_alone_s));
        TRY(run_pair(d, j, false, &unused, &p->link_alone_s));
        TRY(run_pair(d, j, true, &p->cpu_s, &p->link_s));
        hetero_contention_fit(p, 1, &cpu[i], &link[i]);
    }
    *cpu_contention = stats_median(cpu, PAIRS);
    *link_contention = stats_median(link, PAIRS);
    return OK;
}

static int contention_of(struct job *j, struct device *d, struct hetero_profile_cpu *c)
{
    const struct tune_bench_opts how = {.seed = 2};
    struct tune_bench *b = NULL;
    int rc = tune_bench_open(&b, j->team, &how);

    for (int i = 0; i < HETERO_N_TOK && rc == OK; i++) {
        const struct tune_shape s = {.v = j->kern.v[KERN_GEMM_F32 + c->type],
                                     .m = i == HETERO_ONE_TOK ? 1 : MANY_TOK,
                                     .n = 4096,
                                     .k = 4096};
        struct pair_job pair = {.bench = b,
                                .n_threads = c->n_threads,
                                .copy_bytes = (size_t)j->o->copy_bytes};

        rc = tune_bench_shape(b, &s);
        if (rc != OK)
            break;
        kern_schedule_default(&pair.schedule, s.v, tune_bench_mat(b), s.m, c->n_threads);
        rc = time_pairs(d, &pair, 8 * j->o->min_s, &c->cpu_contention[i],
                        &c->link_contention[i]);
    }
    tune_bench_close(&b);
    return rc;
}

/* ---- all ---- */

static int profile_type(struct job *j, int i)
{
    const struct hetero_profile_opts *o = j->o;
    struct hetero_profile *p = j->p;
    int first = p->n_cpu, rc = OK;
    struct device d = {0};
    char what[64];

    for (int k = 0; k < o->n_threads; k++) {
        struct hetero_profile_cpu *c = &p->cpu[p->n_cpu++];

        *c = (struct hetero_profile_cpu){.type = o->types[i],
                                         .n_threads = o->threads[k],
                                         .cpu_contention = {NAN, NAN},
                                         .link_contention = {NAN, NAN}};
        snprintf(what, sizeof(what), "CPU, %s, %d threads", kern_type_name(c->type),
                 c->n_threads);
        report_progress(j, what);
        TRY(time_cpu(j, c));
    }
    if (!o->kind)
        return OK;
    snprintf(what, sizeof(what), "%s, %s", o->kind->name, kern_type_name(o->types[i]));
    report_progress(j, what);
    rc = open_device(&d, j, &o->machines[i],
                     4 * (size_t)o->copy_bytes + DEVICE_N * DEVICE_N * 4);
    if (rc == OK && i == 0)
        rc = time_launch(j, &d, o->types[i]);
    if (rc == OK && i == 0)
        rc = time_copies(j, &d);
    p->accel[p->n_accel] = (struct hetero_profile_accel){.type = o->types[i]};
    if (rc == OK)
        rc = time_accel(j, &d, &p->accel[p->n_accel++]);
    for (int k = first; k < p->n_cpu && rc == OK && o->kind->real_time; k++)
        rc = contention_of(j, &d, &p->cpu[k]);
    close_device(&d);
    return rc;
}

int hetero_profile_measure(struct hetero_profile *out,
                           const struct hetero_profile_opts *o)
{
    struct job j = {.o = o, .p = out};
    struct cpu_budget budget;
    struct cpu_info info;
    int most = 0, rc = OK;

    *out = (struct hetero_profile){0};
    if (o->n_types * o->n_threads > HETERO_PROFILE_MAX)
        return err_set(ERR_ARG, "%d types and %d numbers of threads: at most %d together",
                       o->n_types, o->n_threads, HETERO_PROFILE_MAX);
    TRY(cpu_budget_get(&budget));
    for (int i = 0; i < o->n_threads; i++)
        most = o->threads[i] > most ? o->threads[i] : most;
    if (most > budget.n || most < 1)
        return err_set(ERR_ARG, "%d threads: expected 1 to %d, %s", most, budget.n,
                       budget.reason);
    cpu_info_get(&info);
    snprintf(out->cpu_name, sizeof(out->cpu_name), "%s", info.model_name);
    snprintf(out->kern_precision, sizeof(out->kern_precision), "%s",
             kern_precision_name(o->precision));
    if (o->kind) {
        snprintf(out->accel_name, sizeof(out->accel_name), "%s", o->kind->name);
        out->real_time = o->kind->real_time;
    }
    kern_table_choose(&j.kern, cpu_isa_usable(), o->precision);
    j.accel_cpu = budget.cpus[budget.n - 1]; /* free where a team has fewer threads */
    rc = par_team_open(&j.team, budget.cpus, most, 1);
    for (int i = 0; i < o->n_types && rc == OK; i++)
        rc = profile_type(&j, i);
    par_team_close(&j.team);
    return rc;
}

void hetero_profile_fini(struct hetero_profile *p)
{
    for (int i = 0; i < p->n_cpu; i++)
        mem_free(p->cpu[i].points);
    p->n_cpu = 0;
}
