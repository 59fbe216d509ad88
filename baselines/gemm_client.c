#include "baselines/gemm.h"

#include <limits.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "baselines/gemm_child.h"
#include "measure/compare.h"

#define MAX_SETTINGS 128
#define LABEL_MAX    96
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
#define NEAR       1.12
#define HOPELESS   4.0 /* a run is ended after this multiple of the best run ... */
#define HOPELESS_S 0.1 /* ... and this much longer, for what the first run prepares */

struct setting {
    char label[LABEL_MAX], env[LABEL_MAX], types[24];
    char taken[LABEL_MAX]; /* what the library made of it, "" until known */
    int64_t m_max;
    bool dead;      /* the library never takes it here */
    bool tried;     /* with this shape */
    double seconds; /* ... and took so long at best; 0: not measured */
    double
        order[2]; /* [bf16]: time over the best one's where it was last timed; 0: never */
};

struct gemm_baseline {
    char name[32], path[4096], version[LABEL_MAX];
    struct gemm_baseline_opts o;
    struct setting settings[MAX_SETTINGS];
    int n_settings;
    struct gemm_case shape;
    struct measure *measure;
    struct gemm_child best;
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

static int start(struct gemm_baseline *r, const char *arg, const char *env,
                 struct gemm_process **out)
{
    struct gemm_process_opts o = {.path = r->path,
                                  .arg = arg,
                                  .env = env,
                                  .cpus = r->o.cpus,
                                  .n_threads = r->o.n_threads};

    return gemm_process_start(out, &o);
}

/* "setting|LABEL|TYPES|M-MAX|ENV", the last may be empty. */
static int parse_setting(struct gemm_baseline *r, const char *line)
{
    struct setting *s = &r->settings[r->n_settings];
    int end = 0;

    if (r->n_settings == MAX_SETTINGS)
        return err_set(ERR_LIMIT, "%s: more than %d settings", r->name, MAX_SETTINGS);
    if (sscanf(line, "setting|%95[^|]|%23[^|]|%" SCNd64 "|%n", s->label, s->types,
               &s->m_max, &end) != 3 ||
        end == 0 || s->m_max < 0 || strlen(line + end) >= sizeof s->env)
        return err_set(ERR_FORMAT,
                       "%s: answered \"%.100s\", expected setting|LABEL|TYPES|M|ENV",
                       r->name, line);
    strcpy(s->env, line + end);
    r->n_settings++;
    return OK;
}

static int read_list(struct gemm_baseline *r)
{
    char line[GEMM_LINE_MAX];
    struct gemm_process *p = NULL;
    int rc = start(r, "list", NULL, &p);

    if (rc == OK)
        rc = gemm_process_ask(p, NULL, line, sizeof line, r->o.limit_s);
    if (rc == OK && sscanf(line, "baseline %95[^\n]", r->version) != 1)
        rc = err_set(ERR_FORMAT, "%s: answered \"%.100s\", expected baseline VERSION",
                     r->name, line);
    while (rc == OK) {
        rc = gemm_process_ask(p, NULL, line, sizeof line, r->o.limit_s);
        if (rc == OK && strcmp(line, "end") == 0)
            break;
        if (rc == OK)
            rc = parse_setting(r, line);
    }
    gemm_process_stop(&p);
    if (rc == OK && r->n_settings == 0)
        rc = err_set(ERR_NOTFOUND,
                     "%s has no setting for the instruction sets of this machine",
                     r->version);
    return rc;
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
    struct gemm_baseline *r = NULL;
    int *cpus = NULL, rc;

    *out = NULL;
    rc = check_opts(o);
    if (rc != OK)
        return rc;
    r = mem_new(MEM_HARNESS, 1, sizeof *r);
    cpus = mem_new(MEM_HARNESS, (size_t)o->n_threads, sizeof *cpus);
    if (!r || !cpus) {
        rc = ERR_NOMEM;
        goto out;
    }
    memcpy(cpus, o->cpus, (size_t)o->n_threads * sizeof *cpus);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->o = *o;
    r->o.cpus = cpus, cpus = NULL;
    if (r->o.limit_s == 0.0)
        r->o.limit_s = LIMIT_S;
    r->best.error = NAN;
    rc = measure_open(&r->measure, 2, RUNS_MAX);
    if (rc == OK)
        rc = find_program(r);
    if (rc == OK)
        rc = read_list(r);
    r->o.dir = NULL; /* the caller's string; path has it now */
    if (rc != OK)
        goto out;
    *out = r, r = NULL;
out:
    mem_free(cpus);
    gemm_baseline_close(&r);
    return rc;
}

static void forget(struct gemm_baseline *r)
{
    gemm_process_stop(&r->best.process);
    r->best = (struct gemm_child){.error = NAN};
    r->chosen[0] = '\0';
}

void gemm_baseline_close(struct gemm_baseline **r)
{
    if (!*r)
        return;
    forget(*r);
    measure_close(&(*r)->measure);
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
static int start_setting(struct gemm_baseline *r, struct gemm_child *t)
{
    struct setting *s = &r->settings[t->at];
    char number[16], answer[GEMM_LINE_MAX];
    int rc;

    snprintf(number, sizeof number, "%d", t->at);
    rc = start(r, number, s->env[0] ? s->env : NULL, &t->process);
    if (rc == OK)
        rc = gemm_process_ask(t->process, NULL, answer, sizeof answer, r->o.limit_s);
    if (rc != OK)
        return rc;
    if (strncmp(answer, "no ", 3) == 0) {
        s->dead = true;
        return err_set(ERR_UNSUPPORTED, "%s", answer + 3);
    }
    if (sscanf(answer, "baseline %95[^\n]", s->taken) != 1)
        return err_set(ERR_FORMAT, "answered \"%.100s\", expected baseline SETTING",
                       answer);
    return OK;
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
    struct gemm_child child;
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
        return gemm_child_run(&p->child, limit_s, &t->seconds);
    }
    rc = gemm_child_run(&r->best, limit_s, &t->seconds);
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
    int rc = measure_compare(r->measure, 1, &alone, run_one, p);

    if (rc == OK)
        rc = gemm_child_check(&p->child, &r->shape, r->o.limit_s);
    if (rc != OK)
        return rc;
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
        rc = gemm_child_shape(&p.child, c, r->o.limit_s);
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
        if (rc == ERR_NOMEM)
            return rc;
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
    c->seed = (uint64_t)r->o.seed;
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
    rc = gemm_child_run(&r->best, r->o.limit_s, seconds);
    if (rc == OK)
        return OK;
    snprintf(label, sizeof label, "%s", r->settings[r->best.at].taken);
    *seconds = NAN;
    forget(r);
    return err_prefix(rc, "GEMM library %s (%s)", r->name, label);
}
