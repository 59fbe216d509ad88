#include "baselines/gemm.h"

#include <limits.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/home.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "baselines/gemm_case.h"
#include "baselines/gemm_process.h"
#include "measure/compare.h"

#define LABEL_MAX 96
#define ROTATE_OVER                                                                      \
    4 /* as in tune/measure.c: the copies together fill this many caches */
#define COPY_ALIGN 4096 /* as there, too */
#define LIMIT_S    30.0 /* to answer, unless the caller says another */

/* A setting is timed alone; one that comes near the best so far is then timed in turn with
 * it. */
#define RUNS_MAX 7
#define ALONE                                                                            \
    {                                                                                    \
        .min_rounds = 3, .max_rounds = RUNS_MAX                                          \
    }
#define IN_TURN                                                                          \
    {                                                                                    \
        MEASURE_EXACTLY(5), .n_warm_up = -1                                              \
    }
#define NEAR     1.12
#define HOPELESS 4.0 /* a run is ended after this multiple of the best run ... */
/* ... and this much longer, for what the first run prepares: oneDNN generates code, in up to
 * 0.25 s on a busy machine. */
#define HOPELESS_S 0.5

#define FILL_BYTES_S 50e6 /* a slow machine still makes weights at this rate */

struct setting {
    const char *label, *env, *types; /* env: NULL or "NAME=VALUE" */
    char taken[LABEL_MAX];           /* what the library made of it, "" until known */
    int64_t m_max;
    bool dead;      /* the library never takes it here */
    bool tried;     /* with this shape */
    double seconds; /* ... and took so long at best; 0: not measured */
    double
        order[2]; /* [bf16]: time over the best one's where it was last timed; 0: never */
};

/* One process of the library, with the shape. */
struct candidate {
    struct gemm_process *process; /* NULL: none */
    int at;                       /* the setting */
    double error; /* RMS against float64, relative to the RMS of the result */
};

struct gemm_baseline {
    char name[32], path[4096];
    const char *version;
    struct gemm_baseline_opts o;
    json_t *list; /* of the settings; holds the texts */
    struct setting *settings;
    int n_settings;
    struct gemm_case shape;
    struct measure *measure;
    struct candidate best;
    double best_s;
    int first[2]; /* [bf16]: the setting that was best for the last shape, + 1 */
    char chosen[LABEL_MAX + 48];
};

/* --- finding and opening */

/* The folder baseline/ next to the running program, or next to a folder it is in (a test's
 * is deeper than the program's). */
static int find_program(struct gemm_baseline *r)
{
    char name[256];

    snprintf(name, sizeof name, "baseline/%s", r->name);
    if (r->o.dir)
        snprintf(r->path, sizeof r->path, "%s/%s", r->o.dir, r->name);
    else
        home_program(r->path, sizeof r->path, name);
    if (access(r->path, X_OK) == 0)
        return OK;
    return err_set(ERR_NOTFOUND,
                   "GEMM library %s is not built: its library is missing, or SAN=thread",
                   r->name);
}

static int start(struct gemm_baseline *r, const char *what, const char *shape,
                 const char *env, struct gemm_process **out)
{
    const char *const argv[] = {r->path, what, shape, NULL};
    const struct gemm_process_opts o = {
        .argv = argv, .env = env, .cpus = r->o.cpus, .n_threads = r->o.n_threads};

    return gemm_process_start(out, &o);
}

static int read_setting(struct setting *s, const json_t *j, const char *where)
{
    TRY(json_get_str(j, "label", &s->label, where));
    TRY(json_get_str(j, "types", &s->types, where));
    TRY(json_get_int(j, "m_max", 0, INT32_MAX, &s->m_max, where));
    return json_opt_str(j, "env", &s->env, where);
}

static int read_settings(struct gemm_baseline *r)
{
    const json_t *all;

    TRY(json_get_str(r->list, "version", &r->version, r->name));
    TRY(json_get_arr(r->list, "settings", &all, r->name));
    r->n_settings = (int)json_array_size(all);
    r->settings = mem_new(MEM_HARNESS, (size_t)r->n_settings, sizeof *r->settings);
    for (int i = 0; i < r->n_settings; i++)
        TRY(read_setting(&r->settings[i], json_array_get(all, (size_t)i), r->name));
    if (r->n_settings == 0)
        return err_set(ERR_NOTFOUND,
                       "%s has no setting for the instruction sets of this machine",
                       r->version);
    return OK;
}

static int read_list(struct gemm_baseline *r)
{
    struct gemm_process *p = NULL;
    int rc = start(r, "list", NULL, NULL, &p);

    if (rc == OK)
        rc = gemm_process_answer(p, false, r->o.limit_s, &r->list);
    gemm_process_stop(&p);
    return rc == OK ? read_settings(r) : rc;
}

static int check_opts(const struct gemm_baseline_opts *o)
{
    if (o->n_threads < 1 || !o->cpus)
        return err_set(ERR_ARG, "a GEMM library on %d threads, expected 1 or more",
                       o->n_threads);
    if (!(o->limit_s >= 0.0))
        return err_set(ERR_ARG, "limit_s = %g, expected 0 or more", o->limit_s);
    return OK;
}

int gemm_baseline_open(struct gemm_baseline **out, const char *name,
                       const struct gemm_baseline_opts *o)
{
    struct gemm_baseline *r;
    int *cpus, rc;

    *out = NULL;
    TRY(check_opts(o));
    r = mem_new(MEM_HARNESS, 1, sizeof *r);
    cpus = mem_new(MEM_HARNESS, (size_t)o->n_threads, sizeof *cpus);
    memcpy(cpus, o->cpus, (size_t)o->n_threads * sizeof *cpus);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->o = *o;
    r->o.cpus = cpus;
    if (r->o.limit_s == 0.0)
        r->o.limit_s = LIMIT_S;
    r->best.error = NAN;
    rc = measure_open(&r->measure, 2, RUNS_MAX);
    if (rc == OK)
        rc = find_program(r);
    if (rc == OK)
        rc = read_list(r);
    r->o.dir = NULL; /* the caller's string; path has it now */
    if (rc == OK)
        *out = r, r = NULL; /* the caller's now */
    gemm_baseline_close(&r);
    return rc;
}

static void forget(struct gemm_baseline *r)
{
    gemm_process_stop(&r->best.process);
    r->best = (struct candidate){.error = NAN};
    r->chosen[0] = '\0';
}

void gemm_baseline_close(struct gemm_baseline **r)
{
    if (!*r)
        return;
    forget(*r);
    measure_close(&(*r)->measure);
    json_decref((*r)->list);
    mem_free((*r)->settings);
    mem_free((void *)(*r)->o.cpus);
    mem_free(*r);
    *r = NULL;
}

const char *gemm_baseline_version(const struct gemm_baseline *r)
{
    return r->version;
}

const char *gemm_baseline_setting(const struct gemm_baseline *r)
{
    return r->chosen;
}

double gemm_baseline_error(const struct gemm_baseline *r)
{
    return r->best.error;
}

/* --- one setting */

/* Start the setting's process. ERR_UNSUPPORTED: the library does not take it. */
static int start_setting(struct gemm_baseline *r, struct candidate *t)
{
    struct setting *s = &r->settings[t->at];
    json_t *shape = gemm_case_json(&r->shape), *hello = NULL;
    char number[16], *text = json_text(shape, JSON_COMPACT);
    const char *taken;
    int rc;

    snprintf(number, sizeof number, "%d", t->at);
    rc = start(r, number, text, s->env, &t->process);
    if (rc == OK)
        rc = gemm_process_answer(t->process, false, r->o.limit_s, &hello);
    s->dead = rc == ERR_UNSUPPORTED;
    if (rc == OK)
        rc = json_get_str(hello, "setting", &taken, "its first answer");
    if (rc == OK)
        snprintf(s->taken, sizeof s->taken, "%s", taken);
    json_decref(hello);
    json_decref(shape);
    mem_free(text);
    return rc;
}

static int make_ready(struct gemm_baseline *r, struct candidate *t)
{
    const struct gemm_case *c = &r->shape;
    double bytes = (double)c->n * (double)c->k * 4.0 * (double)(c->n_copies + 1);
    json_t *answer;
    int rc = gemm_process_answer(t->process, true, r->o.limit_s + bytes / FILL_BYTES_S,
                                 &answer);

    if (rc == OK && !json_is_true(json_object_get(answer, "ready")))
        rc = err_set(ERR_FORMAT, "expected {\"ready\": true} as its second answer");
    json_decref(answer);
    return rc;
}

/* Compute once and check whether the result is right. ERR_STATE: it is wrong. A time that cannot be
 * is ERR_FORMAT. Else an error of gemm_process_answer(). */
static int run_once(struct candidate *t, const struct gemm_case *c, double limit_s,
                    double *seconds)
{
    const uint64_t start_ns = clock_ns();
    json_t *answer;
    int rc = gemm_process_answer(t->process, true, limit_s, &answer);
    double wall_s = (double)(clock_ns() - start_ns) * 1e-9;

    if (rc == OK)
        rc = json_get_f64(answer, "seconds", seconds, "its answer");
    if (rc == OK && !(*seconds > 0.0 && *seconds <= wall_s))
        rc = err_set(ERR_FORMAT, "reported %g s for a run within %g s", *seconds, wall_s);
    if (rc == OK)
        rc = gemm_case_check(c, json_object_get(answer, "values"), &t->error);
    json_decref(answer);
    return rc;
}

static void warn(const struct gemm_baseline *r, int at)
{
    log_warn("GEMM library %s: %s: %s", r->name, r->settings[at].label, err_msg());
}

/* Has a setting been tried that the library takes as the same? */
static bool is_double(const struct gemm_baseline *r, int at)
{
    const char *taken = r->settings[at].taken;

    for (int i = 0; taken[0] && i < r->n_settings; i++)
        if (i != at && r->settings[i].tried && strcmp(taken, r->settings[i].taken) == 0)
            return true;
    return false;
}

/* A setting that is tried, and the best one so far. */
struct pair {
    struct gemm_baseline *r;
    struct candidate child;
};

static int run_one(void *arg, int alternative, struct measure_trial *t)
{
    struct pair *p = arg;
    struct gemm_baseline *r = p->r;
    double limit_s = r->o.limit_s;
    int rc;

    if (alternative == 0) {
        if (r->best.process)
            limit_s = fmin(limit_s, HOPELESS * r->best_s + HOPELESS_S);
        return run_once(&p->child, &r->shape, limit_s, &t->seconds);
    }
    rc = run_once(&r->best, &r->shape, limit_s, &t->seconds);
    if (rc == OK)
        return OK;
    warn(r, r->best.at); /* the best so far is lost, the other one stays */
    gemm_process_stop(&r->best.process);
    t->seconds = NAN;
    return OK;
}

/* Whether the child takes the best one's place. ERR_LIMIT: it is too slow. */
static int time_child(struct pair *p, bool *won)
{
    static const struct measure_opts alone = ALONE, in_turn = IN_TURN;
    struct gemm_baseline *r = p->r;
    struct measure_report report;
    int rc = OK;

    TRY(measure_compare(r->measure, 1, &alone, run_one, p));
    measure_report(r->measure, 0, &report);
    r->settings[p->child.at].seconds = report.estimate;
    *won = !r->best.process || report.estimate * NEAR < r->best_s;
    if (!*won && report.estimate < r->best_s * NEAR) {
        rc = measure_compare(r->measure, 2, &in_turn, run_one, p);
        *won = measure_choose(r->measure, NULL, 0) == 0;
    }
    if (*won)
        r->best_s = report.estimate;
    return rc;
}

/* The better one of the setting and the best so far stays. ERR_UNSUPPORTED: not for this
 * shape or machine.  ERR_LIMIT: too slow.  Others: it failed. */
static int try_setting(struct gemm_baseline *r, int at)
{
    struct pair p = {.r = r, .child = {.at = at, .error = NAN}};
    const struct gemm_case *c = &r->shape;
    bool won = false;
    int rc = start_setting(r, &p.child);

    if (rc == OK && !is_double(r, at)) {
        rc = make_ready(r, &p.child);
        if (rc == OK)
            rc = time_child(&p, &won);
        if (rc == OK)
            log_debug("GEMM library %s: %s %" PRId64 " x %" PRId64 " x %" PRId64
                      ": %s: %.4g ms, error %.2g",
                      r->name, c->type, c->m, c->n, c->k, r->settings[at].taken,
                      1e3 * r->settings[at].seconds, p.child.error);
    }
    if (rc == OK && won) {
        gemm_process_stop(&r->best.process);
        r->best = p.child, p.child.process = NULL;
    }
    gemm_process_stop(&p.child.process);
    return rc;
}

/* --- all settings */

/* The setting to try next, -1: none is left. The last shape's best goes first, then those
 * never tried in the order of the table, then by how far they were from the best. */
static int next_setting(const struct gemm_baseline *r)
{
    const int type = r->shape.bf16;
    int next = -1;

    for (int i = 0; i < r->n_settings; i++) {
        const struct setting *s = &r->settings[i];
        if (s->tried || s->dead || !strstr(s->types, r->shape.type) ||
            (s->m_max && r->shape.m > s->m_max) || is_double(r, i))
            continue;
        if (i + 1 == r->first[type])
            return i;
        if (next < 0 || s->order[type] < r->settings[next].order[type])
            next = i;
    }
    return next;
}

static void keep(struct gemm_baseline *r, int n_tried, int n_left)
{
    const int type = r->shape.bf16;
    const struct setting *s = &r->settings[r->best.at];

    for (int i = 0; i < r->n_settings; i++)
        if (r->settings[i].seconds > 0.0)
            r->settings[i].order[type] = r->settings[i].seconds / s->seconds;
    r->first[type] = r->best.at + 1;
    if (n_left > 0)
        snprintf(r->chosen, sizeof r->chosen, "%s (%d of %d settings tried)", s->taken,
                 n_tried, n_tried + n_left);
    else
        snprintf(r->chosen, sizeof r->chosen, "%s", s->taken);
}

static int none_computes(const struct gemm_baseline *r, int n_tried, bool refused)
{
    const struct gemm_case *c = &r->shape;

    if (n_tried == 0)
        return err_set(ERR_NOTFOUND, "%s has no %s", r->version, c->type);
    return err_prefix(refused ? ERR_NOTFOUND : ERR_STATE,
                      "%s: none of %d settings computes %s %" PRId64 " x %" PRId64
                      " x %" PRId64 "; the last",
                      r->version, n_tried, c->type, c->m, c->n, c->k);
}

static int try_all(struct gemm_baseline *r, double budget_s)
{
    const uint64_t start_ns = clock_ns();
    int n_tried = 0, n_left = 0, at;
    bool refused = true; /* every one, in words */

    for (; (at = next_setting(r)) >= 0; n_tried++) {
        if (r->best.process && (double)(clock_ns() - start_ns) * 1e-9 >= budget_s)
            break;
        int rc = try_setting(r, at);
        r->settings[at].tried = true;
        if (rc == OK)
            continue;
        r->settings[at].order[r->shape.bf16] = INFINITY;
        refused = refused && rc == ERR_UNSUPPORTED;
        if (rc != ERR_UNSUPPORTED && !(rc == ERR_LIMIT && r->best.process))
            warn(r, at);
    }
    for (; (at = next_setting(r)) >= 0; n_left++)
        r->settings[at].tried = true;
    if (!r->best.process)
        return none_computes(r, n_tried, refused);
    keep(r, n_tried, n_left);
    return OK;
}

int gemm_baseline_shape(struct gemm_baseline *r, const char *type, int64_t m, int64_t n,
                        int64_t k, bool warm, double budget_s)
{
    struct gemm_case *c = &r->shape;
    double bytes, over = ROTATE_OVER * (double)r->o.cache_bytes;

    forget(r);
    if (strcmp(type, "f32") != 0 && strcmp(type, "bf16") != 0)
        return err_set(ERR_NOTFOUND, "GEMM libraries have f32 and bf16, no \"%s\"", type);
    if (m < 1 || n < 1 || k < 1 || m > INT32_MAX || n > INT32_MAX || k > INT32_MAX)
        return err_set(ERR_ARG,
                       "shape %" PRId64 " x %" PRId64 " x %" PRId64
                       ", expected 1 to %d in each",
                       m, n, k, INT32_MAX);
    *c = (struct gemm_case){
        .bf16 = strcmp(type, "bf16") == 0, .m = m, .n = n, .k = k, .n_copies = 1};
    snprintf(c->type, sizeof c->type, "%s", type);
    c->seed = r->o.seed;
    bytes = (double)n * (double)k * (c->bf16 ? 2.0 : 4.0);
    bytes = ceil(bytes / COPY_ALIGN) * COPY_ALIGN;
    if (!warm && over > bytes)
        c->n_copies = (int64_t)ceil(over / bytes);
    gemm_case_sample(c);
    for (int i = 0; i < r->n_settings; i++)
        r->settings[i].tried = false, r->settings[i].seconds = 0.0;
    return try_all(r, budget_s);
}

int gemm_baseline_run(struct gemm_baseline *r, double *seconds)
{
    char label[LABEL_MAX];
    int rc;

    *seconds = NAN;
    if (!r->best.process)
        return err_set(ERR_STATE, "GEMM library %s: no shape is ready", r->name);
    rc = run_once(&r->best, &r->shape, r->o.limit_s, seconds);
    if (rc == OK)
        return OK;
    snprintf(label, sizeof label, "%s", r->settings[r->best.at].taken);
    *seconds = NAN;
    forget(r);
    return err_prefix(rc, "GEMM library %s (%s)", r->name, label);
}
