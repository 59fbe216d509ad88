/* A plan's file. A rank is a list of CPUs in thread order, and of their memory nodes
 * as many as it takes: one for all its threads, or n that have an equal run of them each. */
#include "plan/plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#define PLAN_VERSION   2 /* keys may be added to it; one that is missing means "unknown" */
#define PLAN_MAX_BYTES (64 << 20)
#define NODE_MAX       1023 /* as many as Linux has */
#define MESSAGE_MAX    ((int64_t)1 << 40)
#define LIST_BYTES     (CPU_MAX * 5 + 1)

/* ---- reading ---- */

/* A text of at most n - 1 bytes, or left alone where the key is absent. */
static int read_text(char *out, size_t n, const json_t *o, const char *key,
                     const char *where)
{
    const char *text = NULL;
    int rc = json_opt_str(o, key, &text, where);

    if (rc != OK || !text)
        return rc;
    if (strlen(text) >= n)
        return err_set(ERR_LIMIT, "%s: %s: expected at most %zu bytes, found %zu", where,
                       key, n - 1, strlen(text));
    utf8_show(out, n, text); /* it is printed, a line at a time */
    return OK;
}

static int read_rank(struct plan_phase *f, const json_t *text, int rank,
                     const char *where)
{
    int at = rank * f->n_threads, n = 0, rc;

    if (!json_is_string(text))
        return err_set(ERR_FORMAT,
                       "%s: ranks: rank %d: expected a list of CPUs as \"0-3,8\"", where,
                       rank);
    rc = cpu_list_parse(json_string_value(text), f->cpus + at, CPU_MAX - at, &n);
    if (rc != OK)
        return err_prefix(rc, "%s: ranks: rank %d", where, rank);
    if (n < 1)
        return err_set(ERR_FORMAT,
                       "%s: ranks: rank %d: expected a CPU at least, found "
                       "none",
                       where, rank);
    if (rank > 0 && n != f->n_threads)
        return err_set(ERR_FORMAT,
                       "%s: ranks: rank %d: expected %d CPUs as in rank 0, found %d",
                       where, rank, f->n_threads, n);
    f->n_threads = n;
    return OK;
}

/* A CPU named twice would give two threads one core without a word. */
static int check_distinct(const struct plan_phase *f, const char *where)
{
    bool seen[CPU_MAX] = {false};

    for (int i = 0; i < f->n_ranks * f->n_threads; i++) {
        int cpu = f->cpus[i];

        if (cpu >= CPU_MAX)
            return err_set(ERR_LIMIT,
                           "%s: ranks: rank %d: expected CPUs below %d, found %d", where,
                           i / f->n_threads, CPU_MAX, cpu);
        if (seen[cpu])
            return err_set(ERR_FORMAT, "%s: ranks: rank %d: CPU %d is named twice", where,
                           i / f->n_threads, cpu);
        seen[cpu] = true;
    }
    return OK;
}

static int read_ranks(struct plan_phase *f, const json_t *o, const char *where)
{
    const json_t *ranks = NULL;

    TRY(json_get_arr(o, "ranks", &ranks, where));
    if (json_array_size(ranks) < 1 || json_array_size(ranks) > CPU_MAX)
        return err_set(ERR_FORMAT, "%s: ranks: expected 1 to %d lists, found %zu", where,
                       CPU_MAX, json_array_size(ranks));
    f->n_ranks = (int)json_array_size(ranks);
    for (int r = 0; r < f->n_ranks; r++)
        TRY(read_rank(f, json_array_get(ranks, (size_t)r), r, where));
    return check_distinct(f, where);
}

static int read_rank_nodes(struct plan_phase *f, const json_t *list, int rank,
                           const char *where)
{
    size_t n = json_array_size(list), per;

    if (!json_is_array(list) || n < 1 || (size_t)f->n_threads % n != 0)
        return err_set(ERR_FORMAT,
                       "%s: memory_nodes: rank %d: expected an array of nodes, as many "
                       "as divide its %d threads",
                       where, rank, f->n_threads);
    per = (size_t)f->n_threads / n;
    for (size_t i = 0; i < (size_t)f->n_threads; i++) {
        const json_t *v = json_array_get(list, i / per);
        json_int_t node = json_is_integer(v) ? json_integer_value(v) : -1;

        if (node < 0 || node > NODE_MAX)
            return err_set(ERR_FORMAT,
                           "%s: memory_nodes: rank %d: expected numbers in [0, %d]",
                           where, rank, NODE_MAX);
        f->nodes[rank * f->n_threads + (int)i] = (int)node;
    }
    return OK;
}

static int read_nodes(struct plan_phase *f, const json_t *o, const char *where)
{
    const json_t *nodes = NULL;

    for (int i = 0; i < f->n_ranks * f->n_threads; i++)
        f->nodes[i] = -1;
    if (!json_object_get(o, "memory_nodes"))
        return OK;
    TRY(json_get_arr(o, "memory_nodes", &nodes, where));
    if (json_array_size(nodes) != (size_t)f->n_ranks)
        return err_set(ERR_FORMAT,
                       "%s: memory_nodes: expected %d arrays, one a rank, found %zu",
                       where, f->n_ranks, json_array_size(nodes));
    for (int r = 0; r < f->n_ranks; r++)
        TRY(read_rank_nodes(f, json_array_get(nodes, (size_t)r), r, where));
    return OK;
}

/* [[rows, seconds], ...] */
static int read_costs(struct plan_costs *c, const json_t *o, const char *where)
{
    const json_t *a = NULL;

    if (!json_object_get(o, "step_s"))
        return OK;
    TRY(json_get_arr(o, "step_s", &a, where));
    if (json_array_size(a) < 1 || json_array_size(a) > PLAN_COSTS_MAX)
        return err_set(ERR_FORMAT, "%s: step_s: expected 1 to %d entries, found %zu",
                       where, PLAN_COSTS_MAX, json_array_size(a));
    for (int i = 0; i < (int)json_array_size(a); i++) {
        const json_t *e = json_array_get(a, (size_t)i);

        if (json_array_size(e) != 2 || !json_is_integer(json_array_get(e, 0)) ||
            !json_is_number(json_array_get(e, 1)))
            return err_set(ERR_FORMAT, "%s: step_s: entry %d: expected [rows, seconds]",
                           where, i);
        c->rows[i] = json_integer_value(json_array_get(e, 0));
        c->seconds[i] = json_number_value(json_array_get(e, 1));
    }
    c->n = (int)json_array_size(a);
    return plan_costs_check(c, where);
}

/* [algorithm] or [algorithm, bytes of the largest message] */
static int read_sum(struct par_choice *c, const json_t *e, int i, bool last,
                    const char *where)
{
    const char *name = json_string_value(json_array_get(e, 0));
    const json_t *bytes = json_array_get(e, 1);
    int64_t least = i > 0 ? (int64_t)c->row[i - 1].bytes + 1 : 1;
    struct par_choice one;
    int rc;

    if (!name || json_array_size(e) != (last ? 1 : 2))
        return err_set(ERR_FORMAT, "%s: allreduce: entry %d: expected %s", where, i,
                       last ? "[algorithm], as it is the last"
                            : "[algorithm, bytes of the largest message]");
    if (!last && (!json_is_integer(bytes) || json_integer_value(bytes) < least ||
                  json_integer_value(bytes) > MESSAGE_MAX))
        return err_set(
            ERR_FORMAT,
            "%s: allreduce: entry %d: expected bytes in [%lld, %lld], ascending", where,
            i, (long long)least, (long long)MESSAGE_MAX);
    rc = par_choice_one(&one, name);
    if (rc != OK)
        return err_prefix(rc, "%s: allreduce", where);
    c->row[i] = one.row[0];
    if (!last)
        c->row[i].bytes = (size_t)json_integer_value(bytes);
    return OK;
}

int plan_allreduce_of_json(struct par_choice *c, const json_t *a, const char *where)
{
    int n = (int)json_array_size(a), rc = OK;

    *c = (struct par_choice){0};
    if (json_is_string(a)) {
        rc = par_choice_one(c, json_string_value(a));
        return rc == OK ? OK : err_prefix(rc, "%s: allreduce", where);
    }
    if (!json_is_array(a) || n < 1 || n > PAR_CHOICE_MAX)
        return err_set(
            ERR_FORMAT,
            "%s: allreduce: expected the name of an algorithm or an array of 1 "
            "to %d entries",
            where, PAR_CHOICE_MAX);
    for (int i = 0; i < n && rc == OK; i++)
        rc = read_sum(c, json_array_get(a, (size_t)i), i, i == n - 1, where);
    c->n = n;
    return rc;
}

static int read_sums(struct par_choice *c, const json_t *o, const char *where)
{
    const json_t *a = json_object_get(o, "allreduce");

    return a ? plan_allreduce_of_json(c, a, where) : OK;
}

static int read_phase(struct plan_phase *f, const json_t *root, const char *key,
                      const char *path)
{
    static const char *const known[] = {
        "ranks", "memory_nodes", "expected_s", "step_s", "allreduce", "why", NULL};
    const json_t *o = NULL;
    char where[600];

    TRY(json_get_obj(root, key, &o, path));
    snprintf(where, sizeof(where), "%s: %s", path, key);
    f->expected_s = NAN;
    TRY(json_check_keys(o, known, where));
    TRY(read_ranks(f, o, where));
    TRY(read_nodes(f, o, where));
    TRY(json_opt_f64(o, "expected_s", &f->expected_s, where));
    if (f->expected_s <= 0) /* false for NAN: none */
        return err_set(ERR_FORMAT, "%s: expected_s: expected seconds above 0, found %g",
                       where, f->expected_s);
    TRY(read_costs(&f->costs, o, where));
    TRY(read_sums(&f->allreduce, o, where));
    return read_text(f->why, sizeof(f->why), o, "why", where);
}

static int check_version(const json_t *root, const char *path)
{
    int64_t version = 0;

    TRY(json_get_int(root, "version", 1, PLAN_VERSION, &version, path));
    if (version == 1)
        return err_set(ERR_UNSUPPORTED,
                       "%s: version: expected %d, found 1, a plan of an earlier engine: "
                       "make a new one with `sandwich plan --out FILE`",
                       path, PLAN_VERSION);
    return OK;
}

static int check_evidence(const struct plan *p, const char *path)
{
    if (!*p->evidence || !strcmp(p->evidence, "measured") ||
        !strcmp(p->evidence, "simulated"))
        return OK;
    return err_set(ERR_FORMAT,
                   "%s: evidence: expected \"measured\", \"simulated\" or \"\", found "
                   "\"%s\"",
                   path, p->evidence);
}

/* ---- what was tried ---- */

static int read_try(struct plan_replay *t, const json_t *o, const char *where)
{
    int64_t n = 0;

    if (!json_is_object(o))
        return err_set(ERR_FORMAT, "%s: expected an object", where);
    t->seconds = t->lo = t->hi = NAN;
    TRY(read_text(t->name, sizeof(t->name), o, "name", where));
    TRY(json_opt_bool(o, "tuned", &t->tuned, where));
    TRY(json_opt_f64(o, "seconds", &t->seconds, where));
    TRY(json_opt_f64(o, "lo_s", &t->lo, where));
    TRY(json_opt_f64(o, "hi_s", &t->hi, where));
    TRY(json_opt_int(o, "n_measurements", 0, INT32_MAX, &n, where));
    t->n = (int)n;
    return OK;
}

static int read_tries(struct plan *p, const json_t *root, const char *path)
{
    const json_t *o = NULL, *a = NULL;
    int64_t chosen = 0;
    char where[600];

    if (!json_object_get(root, "tried"))
        return OK;
    snprintf(where, sizeof(where), "%s: tried", path);
    TRY(json_get_obj(root, "tried", &o, path));
    TRY(json_get_arr(o, "configurations", &a, where));
    if (json_array_size(a) < 1 || json_array_size(a) > PLAN_TRIES_MAX)
        return err_set(ERR_FORMAT, "%s: configurations: expected 1 to %d, found %zu",
                       where, PLAN_TRIES_MAX, json_array_size(a));
    TRY(json_get_int(o, "chosen", 0, (int64_t)json_array_size(a) - 1, &chosen, where));
    TRY(read_text(p->why, sizeof(p->why), o, "why", where));
    for (size_t i = 0; i < json_array_size(a); i++) {
        snprintf(where, sizeof(where), "%s: tried: configurations[%zu]", path, i);
        TRY(read_try(&p->tries[i], json_array_get(a, i), where));
    }
    p->n_tries = (int)json_array_size(a);
    p->chosen_try = (int)chosen;
    return OK;
}

static int read_schedules(struct plan *p, const json_t *root, const char *path)
{
    const json_t *o = json_object_get(root, "schedules");
    char where[600];

    snprintf(where, sizeof(where), "%s: schedules", path);
    return o ? tune_cache_of_json(&p->schedules, o, where) : OK;
}

static int read_head(struct plan *p, const json_t *root, const char *path)
{
    static const char *const known[] = {
        "version", "machine", "evidence", "truth", /* its former name */
        "method",  "prefill", "decode",   "schedules", "tried", "model", NULL};

    if (!json_is_object(root))
        return err_set(ERR_FORMAT, "%s: expected an object", path);
    TRY(check_version(root, path));
    TRY(json_check_keys(root, known, path));
    TRY(read_text(p->machine, sizeof(p->machine), root, "machine", path));
    TRY(read_text(p->evidence, sizeof(p->evidence), root,
                  json_object_get(root, "truth") ? "truth" : "evidence", path));
    TRY(check_evidence(p, path));
    TRY(read_text(p->model_id, sizeof(p->model_id), root, "model", path));
    return read_text(p->method, sizeof(p->method), root, "method", path);
}

int plan_of_json(struct plan *p, const json_t *o, const char *where)
{
    memset(p, 0, sizeof(*p));
    TRY(read_head(p, o, where));
    TRY(read_phase(&p->prefill, o, "prefill", where));
    TRY(read_phase(&p->decode, o, "decode", where));
    TRY(plan_number_cpus(p));
    TRY(read_tries(p, o, where));
    TRY(read_schedules(p, o, where));
    snprintf(p->source, sizeof(p->source), "%s", where);
    return OK;
}

int plan_read(struct plan *p, const char *path)
{
    json_t *root = NULL;
    int rc;

    memset(p, 0, sizeof(*p));
    rc = json_read_file(&root, path, PLAN_MAX_BYTES);
    if (rc == OK)
        rc = plan_of_json(p, root, path);
    json_decref(root);
    return rc;
}

/* ---- writing ---- */

/* Append v to *a and take the reference. Without memory *a is freed and set to NULL. */
static void append(json_t **a, json_t *v)
{
    if (json_array_append_new(*a, v) == 0)
        return;
    json_decref(*a);
    *a = NULL;
}

static json_t *ranks_json(const struct plan_phase *f)
{
    char *list = mem_new(MEM_OTHER, LIST_BYTES, 1);
    json_t *a = list ? json_array() : NULL;

    for (int r = 0; a && r < f->n_ranks; r++) {
        cpu_list_print(f->cpus + r * f->n_threads, f->n_threads, list, LIST_BYTES);
        append(&a, json_string(list));
    }
    mem_free(list);
    return a;
}

/* Do n equal runs of threads have a memory node each? */
static bool runs_fit(const int *nodes, int n_threads, int n)
{
    int per = n_threads / n;

    for (int i = 0; i < n_threads; i++)
        if (nodes[i] != nodes[i / per * per])
            return false;
    return true;
}

static json_t *rank_nodes_json(const int *nodes, int n_threads)
{
    json_t *a = json_array();
    int n = 1;

    while (n < n_threads && (n_threads % n != 0 || !runs_fit(nodes, n_threads, n)))
        n++;
    for (int i = 0; a && i < n; i++)
        append(&a, json_integer(nodes[i * (n_threads / n)]));
    return a;
}

static json_t *nodes_json(const struct plan_phase *f)
{
    json_t *a = json_array();

    for (int r = 0; a && r < f->n_ranks; r++)
        append(&a, rank_nodes_json(f->nodes + r * f->n_threads, f->n_threads));
    return a;
}

static bool nodes_known(const struct plan_phase *f)
{
    for (int i = 0; i < f->n_ranks * f->n_threads; i++)
        if (f->nodes[i] < 0)
            return false;
    return true;
}

static json_t *costs_json(const struct plan_costs *c)
{
    json_t *a = json_array();

    for (int i = 0; a && i < c->n; i++)
        append(&a, json_pack("[I, f]", (json_int_t)c->rows[i], c->seconds[i]));
    return a;
}

json_t *plan_allreduce_to_json(const struct par_choice *c)
{
    json_t *a;

    if (c->n == 1)
        return json_string(par_colls[c->row[0].coll]->name);
    a = json_array();
    for (int i = 0; a && i < c->n; i++) {
        const char *name = par_colls[c->row[i].coll]->name;

        append(&a, i + 1 < c->n ? json_pack("[s, I]", name, (json_int_t)c->row[i].bytes)
                                : json_pack("[s]", name));
    }
    return a;
}

static json_t *phase_json(const struct plan_phase *f)
{
    json_t *o = json_object();
    bool ok = json_object_set_new(o, "ranks", ranks_json(f)) == 0 &&
              json_object_set_new(o, "why", json_string_lossy(f->why)) == 0;

    if (ok && nodes_known(f))
        ok = json_object_set_new(o, "memory_nodes", nodes_json(f)) == 0;
    if (ok && isfinite(f->expected_s))
        ok = json_object_set_new(o, "expected_s", json_real(f->expected_s)) == 0;
    if (ok && f->costs.n > 0)
        ok = json_object_set_new(o, "step_s", costs_json(&f->costs)) == 0;
    if (ok && f->allreduce.n > 0)
        ok = json_object_set_new(o, "allreduce", plan_allreduce_to_json(&f->allreduce)) ==
             0;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static bool set_finite(json_t *o, const char *key, double v)
{
    return !isfinite(v) || json_object_set_new(o, key, json_real(v)) == 0;
}

static json_t *try_json(const struct plan_replay *t)
{
    json_t *o = json_pack("{s:o, s:b, s:i}", "name", json_string_lossy(t->name), "tuned",
                          t->tuned, "n_measurements", t->n);

    if (o && set_finite(o, "seconds", t->seconds) && set_finite(o, "lo_s", t->lo) &&
        set_finite(o, "hi_s", t->hi))
        return o;
    json_decref(o);
    return NULL;
}

static json_t *tries_json(const struct plan *p)
{
    json_t *a = json_array();

    for (int i = 0; a && i < p->n_tries; i++)
        append(&a, try_json(&p->tries[i]));
    return json_pack("{s:i, s:o, s:o}", "chosen", p->chosen_try, "why",
                     json_string_lossy(p->why), "configurations", a);
}

json_t *plan_to_json(const struct plan *p)
{
    json_t *o =
        json_pack("{s:i, s:o, s:s*, s:o, s:o, s:o}", "version", PLAN_VERSION, "machine",
                  json_string_lossy(p->machine), "model",
                  *p->model_id ? p->model_id : NULL, "evidence", json_string(p->evidence),
                  "prefill", phase_json(&p->prefill), "decode", phase_json(&p->decode));
    bool ok = o != NULL;

    if (ok && *p->method)
        ok = json_object_set_new(o, "method", json_string_lossy(p->method)) == 0;
    if (ok && p->n_tries > 0)
        ok = json_object_set_new(o, "tried", tries_json(p)) == 0;
    if (ok && p->schedules)
        ok = json_object_set_new(o, "schedules", tune_cache_to_json(p->schedules)) == 0;
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

int plan_write(const struct plan *p, const char *path)
{
    json_t *root = plan_to_json(p);
    int rc = root ? json_write_file(root, path)
                  : err_set(ERR_NOMEM, "%s: no memory for the plan", path);

    json_decref(root);
    return rc;
}
