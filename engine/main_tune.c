/* sandwich tune: search schedules for matrix products, and keep them in a file that the
 * engine reads (--schedules). Every schedule found is in the file at once, so that a
 * search can be interrupted at any moment and goes on where it stopped. */
#include "engine/main.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "model/model.h"
#include "plan/plan.h"
#include "tune/policy.h"
#include "tune/schedule_cache.h"
#include "tune/space.h"

#define MATRICES_MAX     32
#define HEAD_ROWS_MAX    32 /* the head has a row a sequence */
#define GRID_ALL_TO      16 /* every number of rows, then steps of an eighth */
#define COMPARE_MAX      64 /* schedules of a matrix that are compared with the default */
#define COMPARE_LOSS     1.02
#define TRIAL_ROWS       24 /* at which the engine chooses between variants */
#define SAVE_NS          UINT64_C(1000000000)
#define EXIT_INTERRUPTED 130
/* Few rows take as long as about this many: reading the weights. */
#define ROWS_OF_READING 16

struct tune_flags {
    struct tune_opts tune; /* first: its table's offsets hold here */
    char *model, *shapes, *weight_type, *isa, *cache, *rows;
    int precision;
    int64_t threads, m_max, rounds;
    bool every, pin, help;
};
#define AT(member) offsetof(struct tune_flags, member)

static const struct opt_row own_rows[] = {
    {.name = "model",
     .type = OPT_STR,
     .offset = AT(model),
     .help = "tune the matrices of this model; its weights are not read"},
    {.name = "shapes",
     .type = OPT_STR,
     .offset = AT(shapes),
     .help = "or these: outputs x inputs, /rows of a unit where split along K: "
             "5504x2048,2048x5504/64"},
    {.name = "cache",
     .type = OPT_STR,
     .offset = AT(cache),
     .def = "results/schedules.json",
     .help = "where schedules are kept; those in it are not searched again"},
    {.name = "weight_type",
     .type = OPT_STR,
     .offset = AT(weight_type),
     .def = "file",
     .help = "type the engine will keep weights in: file (f32 for --shapes), f32, f16, "
             "bf16"},
    {.name = "precision",
     .type = OPT_ENUM,
     .offset = AT(precision),
     .def = "exact",
     .values = "exact|relaxed",
     .help = "precision the engine will use"},
    {.name = "isa",
     .type = OPT_STR,
     .offset = AT(isa),
     .def = "auto",
     .help = "highest instruction set to use: auto, ref, avx2, avx512, avx512bf16, ..."},
    {.name = "threads",
     .type = OPT_INT,
     .offset = AT(threads),
     .min = 0,
     .max = CPU_MAX,
     .help = "threads of the phase to tune; 0: every CPU of the budget"},
    {.name = "m_max",
     .type = OPT_INT,
     .offset = AT(m_max),
     .unit = "rows",
     .min = 1,
     .max = 65536,
     .def = "512",
     .help = "up to so many rows: the engine's --max-step-tok"},
    {.name = "rows",
     .type = OPT_STR,
     .offset = AT(rows),
     .help = "numbers of rows, ascending: 1,8,64; without it 1 to 16 and then steps of "
             "an eighth"},
    {.name = "every",
     .type = OPT_BOOL,
     .offset = AT(every),
     .help = "every number of rows"},
    {.name = "rounds",
     .type = OPT_INT,
     .offset = AT(rounds),
     .min = 0,
     .max = 1000,
     .def = "7",
     .help = "of the closing comparison with the default; 0: none"},
    {.name = "pin",
     .type = OPT_BOOL,
     .offset = AT(pin),
     .def = "true",
     .help = "pin each thread to its CPU"},
    {.name = "help", .type = OPT_BOOL, .offset = AT(help), .letter = 'h', .help = "this"},
};
#undef AT
#define N_OWN    ((int)(sizeof(own_rows) / sizeof(own_rows[0])))
#define ROWS_MAX 32

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
    enum kern_type type;
    const struct kern_variant *variant;
    struct model_shape matrices[MATRICES_MAX];
    char names[MATRICES_MAX][80];
    int n_matrices;

    /* The matrix in hand. */
    struct tune_shape *shapes;
    struct kern_schedule *known, *found;
    int n_shapes;
    struct main_tuned tuned[MATRICES_MAX], *now;
    struct main_tuning progress;
    uint64_t saved_ns;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = sig;
}

/* ---- what to tune ---- */

static int parse_shape(struct run *r, const char *p, const char *whole, char **end)
{
    struct model_shape *x = &r->matrices[r->n_matrices];

    if (r->n_matrices == MATRICES_MAX)
        return err_set(ERR_LIMIT, "--shapes: more than %d", MATRICES_MAX);
    *x = (struct model_shape){.name = "matrix"};
    x->n = strtoll(p, end, 10);
    x->k = **end == 'x' ? strtoll(*end + 1, end, 10) : 0;
    x->k_unit = **end == '/' ? strtoll(*end + 1, end, 10) : 0;
    if ((**end && **end != ',') || x->n < 1 || x->k < 1 || x->n > 1 << 24 ||
        x->k > 1 << 24 || x->k_unit < 0 || x->k_unit % 2 || x->k_unit > x->k)
        return err_set(ERR_ARG,
                       "--shapes: offset %d: expected OUTPUTSxINPUTS or "
                       "OUTPUTSxINPUTS/UNIT (even), found \"%.24s\"",
                       (int)(p - whole), p);
    r->n_matrices++;
    return OK;
}

static int shapes_of_words(struct run *r, const char *text)
{
    char *end = NULL;
    int rc = OK;

    for (const char *p = text; rc == OK; p = end + 1) {
        rc = parse_shape(r, p, text, &end);
        if (rc != OK || !*end)
            break;
    }
    r->type = KERN_F32;
    return rc;
}

static int shapes_of_model(struct run *r, const char *path)
{
    struct model_file *f = NULL;
    int rc = model_file_open(&f, path);

    if (rc != OK)
        return rc;
    model_shapes(&f->config, r->matrices);
    r->n_matrices = MODEL_N_MATS;
    r->type = f->config.weight_type;
    model_file_close(&f);
    return OK;
}

static int choose_matrices(struct run *r)
{
    const struct tune_flags *f = r->f;
    int rc;

    if (!f->model == !f->shapes)
        return err_set(ERR_ARG, "give one of --model and --shapes");
    rc = f->model ? shapes_of_model(r, f->model) : shapes_of_words(r, f->shapes);
    if (rc == OK && strcmp(f->weight_type, "file") != 0)
        rc = kern_type_parse(f->weight_type, &r->type);
    for (int i = 0; i < r->n_matrices; i++) {
        const struct model_shape *x = &r->matrices[i];
        char unit[24] = "";

        if (x->k_unit > 0)
            snprintf(unit, sizeof(unit), "/%lld", (long long)x->k_unit);
        snprintf(r->names[i], sizeof(r->names[i]), "%s %lldx%lld%s", x->name,
                 (long long)x->n, (long long)x->k, unit);
    }
    return rc;
}

/* The next number of rows after m; 0 at the end. */
static int64_t next_rows(const struct run *r, int64_t m, const char **list, int *rc)
{
    char *end;
    int64_t next;

    if (!r->f->rows) {
        next = m < GRID_ALL_TO || r->f->every ? m + 1 : m + m / 8;
        return m == r->f->m_max ? 0 : next > r->f->m_max ? r->f->m_max : next;
    }
    if (!**list)
        return 0;
    next = strtoll(*list, &end, 10);
    if (end == *list || (*end && *end != ',') || next <= m || next > 65536) {
        *rc = err_set(ERR_ARG,
                      "--rows: expected ascending numbers up to 65536, found \"%.16s\"",
                      *list);
        return 0;
    }
    *list = *end ? end + 1 : end;
    return next;
}

/* The shapes of one matrix, ascending in rows. */
static int choose_rows(struct run *r, const struct model_shape *x)
{
    int64_t most = !strcmp(x->name, "head") ? HEAD_ROWS_MAX : INT64_MAX;
    const char *list = r->f->rows;
    int rc = OK;

    r->n_shapes = 0;
    for (int64_t m = next_rows(r, 0, &list, &rc); m > 0 && m <= most;
         m = next_rows(r, m, &list, &rc)) {
        struct tune_shape *grown =
            mem_resize(MEM_OTHER, r->shapes, (size_t)r->n_shapes + 1, sizeof(*r->shapes));

        if (!grown)
            return ERR_NOMEM;
        r->shapes = grown;
        r->shapes[r->n_shapes++] = (struct tune_shape){
            .v = r->variant, .m = m, .n = x->n, .k = x->k, .k_unit = x->k_unit};
    }
    return rc;
}

/* The variant the engine would take. Where several qualify it times them; so do we, on
 * the same number of rows. */
static int choose_variant(struct run *r)
{
    enum kern_op op = KERN_GEMM_F32 + r->type;
    struct tune_shape s = {.m = TRIAL_ROWS,
                           .n = r->matrices[0].n,
                           .k = r->matrices[0].k,
                           .k_unit = r->matrices[0].k_unit};
    double best = INFINITY;
    struct kern_table t;

    kern_table_choose(&t, cpu_isa_usable(), (enum kern_precision)r->f->precision);
    r->variant = t.v[op];
    if (r->f->precision == KERN_EXACT || r->variant->isa == 0)
        return OK;
    for (int i = 0; kern_variants[i]; i++) {
        struct kern_schedule d;
        struct tune_time time;
        int rc;

        s.v = kern_variants[i];
        if (s.v->op != op || s.v->isa == 0 || (s.v->isa & ~cpu_isa_usable()))
            continue;
        rc = tune_bench_shape(r->bench, &s);
        if (rc == OK) {
            kern_schedule_default(&d, s.v, tune_bench_mat(r->bench), s.m, 1);
            rc = tune_measure(r->bench, &d, 1, &time);
        }
        if (rc != OK)
            return rc;
        if (time.min_s < best) {
            best = time.min_s;
            r->variant = s.v;
        }
    }
    return OK;
}

/* ---- the file ---- */

/* A file that is no good is kept beside the new one, for whoever wants to know why. */
static int open_cache(struct run *r)
{
    char aside[1024];
    int rc;

    rc = tune_cache_open(&r->cache, r->f->cache, r->plan.cpus, r->plan.n_cpus);
    if (rc != ERR_FORMAT && rc != ERR_LIMIT)
        return rc;
    snprintf(aside, sizeof(aside), "%s.damaged", r->f->cache);
    log_warn("%s; kept as %s, and begun anew", err_msg(), aside);
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
                    const struct tune_time *t)
{
    struct run *r = arg;
    struct tune_cost cost;
    int rc = tune_cache_put(r->cache, &r->shapes[i], s, t);

    if (rc == OK)
        rc = save(r, false);
    tune_cost_of(r->bench, &cost);
    r->now->n_found++;
    r->progress.m = r->shapes[i].m;
    r->progress.done_work += work_of(&r->shapes[i]);
    r->progress.n_measurements = cost.n_measurements;
    r->progress.measured_s = cost.seconds;
    main_tune_progress(&r->progress);
    return rc;
}

static int take_arrays(struct run *r)
{
    size_t n = (size_t)r->n_shapes;

    mem_free(r->known);
    mem_free(r->found);
    r->known = mem_new(MEM_OTHER, n, sizeof(*r->known));
    r->found = mem_new(MEM_OTHER, n, sizeof(*r->found));
    return r->known && r->found ? OK : ERR_NOMEM;
}

/* Defaults against tuned once more, in turn; what lost keeps the default. */
static int compare(struct run *r)
{
    int step = (r->n_shapes + COMPARE_MAX - 1) / COMPARE_MAX, rc = OK;

    for (int i = 0; i < r->n_shapes && rc == OK && !interrupted; i += step) {
        const struct tune_shape *s = &r->shapes[i];
        struct kern_schedule two[2];
        struct tune_time t[2];

        if (!tune_cache_has(r->cache, s, &two[1]))
            continue;
        rc = tune_bench_shape(r->bench, s);
        if (rc != OK)
            break;
        kern_schedule_default(&two[0], s->v, tune_bench_mat(r->bench), s->m,
                              r->plan.n_cpus);
        tune_clamp(&two[0], tune_bench_mat(r->bench), s->m);
        if (tune_same(&two[0], &two[1])) {
            r->now->n_compared++; /* by a factor of 1 */
            continue;
        }
        rc = tune_compare(r->bench, two, 2, r->plan.n_cpus, (int)r->f->rounds, t);
        if (rc != OK)
            break;
        r->now->n_compared++;
        r->now->log_speedup += log(t[0].median_s / t[1].median_s);
        if (t[1].min_s > COMPARE_LOSS * t[0].min_s) {
            r->now->n_taken_back++;
            rc = tune_cache_put(r->cache, s, &two[0], &t[0]);
        }
    }
    return rc;
}

static int tune_matrix(struct run *r, int i, double budget_s)
{
    struct tune_opts o = r->f->tune;
    struct tune_ctx c = {.bench = r->bench,
                         .n_threads = r->plan.n_cpus,
                         .o = &o,
                         .shapes = r->shapes,
                         .n_shapes = r->n_shapes,
                         .known = r->known,
                         .done = on_found,
                         .arg = r,
                         .stop = &interrupted};
    struct tune_cost before, after;
    int rc;

    r->now = &r->tuned[i];
    memcpy(r->now->matrix, r->names[i], sizeof(r->now->matrix));
    memcpy(r->progress.matrix, r->names[i], sizeof(r->progress.matrix));
    r->now->n_shapes = r->n_shapes;
    for (int k = 0; k < r->n_shapes; k++)
        if (tune_cache_has(r->cache, &r->shapes[k], &r->known[k]))
            r->now->n_known++;
    o.budget_s = budget_s;
    o.split_k = o.split_k && strcmp(r->matrices[i].name, "head") != 0;
    tune_cost_of(r->bench, &before);
    rc = r->policy->run(&c, r->found);
    tune_cost_of(r->bench, &after);
    r->now->n_measurements = after.n_measurements - before.n_measurements;
    r->now->seconds = after.seconds - before.seconds;
    return rc;
}

/* What there is to do, for the progress. */
static int plan_work(struct run *r)
{
    int rc = OK;

    for (int i = 0; i < r->n_matrices && rc == OK; i++) {
        struct kern_schedule s;

        rc = choose_rows(r, &r->matrices[i]);
        for (int k = 0; k < r->n_shapes && rc == OK; k++)
            if (!tune_cache_has(r->cache, &r->shapes[k], &s))
                r->progress.all_work += work_of(&r->shapes[k]);
    }
    r->progress.budget_s = r->f->tune.budget_s;
    r->progress.t_start_ns = r->progress.t_shown_ns = clock_ns();
    return rc;
}

static int tune_all(struct run *r)
{
    double spent = 0;
    int rc = plan_work(r);

    for (int i = 0; i < r->n_matrices && rc == OK; i++) {
        double left = r->f->tune.budget_s - spent;

        /* an equal share of what is left; the smallest budget that is one when spent */
        left = r->f->tune.budget_s <= 0 ? 0 : fmax(left, 1e-9) / (r->n_matrices - i);
        rc = choose_rows(r, &r->matrices[i]);
        if (rc == OK)
            rc = take_arrays(r);
        if (rc == OK)
            rc = tune_matrix(r, i, left);
        spent += r->now ? r->now->seconds : 0;
        if (rc == OK && r->f->rounds > 0 && !interrupted) {
            main_tune_progress_end();
            rc = compare(r);
        }
    }
    main_tune_progress_end();
    return rc;
}

static int open_all(struct run *r)
{
    struct tune_bench_opts bench = {.seed = r->f->tune.seed};
    struct cpu_budget budget;
    int rc;

    rc = tune_policy_find(r->f->tune.policy, &r->policy);
    if (rc == OK)
        rc = cpu_isa_limit(r->f->isa);
    if (rc == OK)
        rc = choose_matrices(r);
    if (rc == OK)
        rc = cpu_budget_get(&budget);
    if (rc == OK)
        rc = plan_default(&r->plan, &budget, (int)r->f->threads);
    if (rc == OK)
        rc = open_cache(r);
    if (rc == OK)
        rc = par_team_open(&r->team, r->plan.cpus, r->plan.n_cpus, r->f->pin);
    if (rc == OK)
        rc = tune_bench_open(&r->bench, r->team, &bench);
    if (rc == OK)
        rc = choose_variant(r);
    return rc;
}

static int tune(const struct tune_flags *f)
{
    const struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
    struct run r = {.f = f};
    int rc = open_all(&r);

    if (rc == OK) {
        int saved;

        /* the second interrupt ends the program at once */
        sigaction(SIGINT, &act, NULL);
        sigaction(SIGTERM, &act, NULL);
        rc = tune_all(&r);
        if (rc == ERR_CANCELED && interrupted)
            rc = OK;
        saved = save(&r, true);
        rc = rc == OK ? saved : rc;
    }
    if (rc == OK) {
        main_tune_report(r.tuned, r.n_matrices);
        printf("%s, %s on %d threads: %s\n", kern_op_name(r.variant->op), r.variant->name,
               r.plan.n_cpus, f->cache);
    }
    mem_free(r.shapes);
    mem_free(r.known);
    mem_free(r.found);
    tune_bench_close(&r.bench);
    par_team_close(&r.team);
    tune_cache_close(&r.cache);
    return rc;
}

int main_tune(int argc, char **argv)
{
    struct tune_flags f;
    int status = main_fail("tune", opt_init(table(), &f));

    if (status == 0)
        status = main_flags("tune --model M | --shapes S [--cache FILE] [options]",
                            table(), &f, &f.help, argc, argv, 0);
    if (status == -1)
        status = main_fail("tune", tune(&f));
    if (status == 0 && interrupted) {
        fprintf(stderr, "sandwich tune: interrupted; the same command goes on\n");
        status = EXIT_INTERRUPTED;
    }
    opt_free(table(), &f);
    return status;
}
