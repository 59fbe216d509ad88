/* The plan's file. A rank is a list of CPUs in thread order, and of their memory nodes as
 * many as it takes: one for all its threads, or n that have an equal run of them each. */
#include "plan/plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

#define PLAN_VERSION   2
#define PLAN_MAX_BYTES (1 << 20)
#define LIST_BYTES     (CPU_MAX * 5 + 1)
#define NODE_MAX       1023 /* as many as Linux has */

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
    snprintf(out, n, "%s", text);
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
    int rc = json_get_arr(o, "ranks", &ranks, where);

    if (rc != OK)
        return rc;
    if (json_array_size(ranks) < 1 || json_array_size(ranks) > CPU_MAX)
        return err_set(ERR_FORMAT, "%s: ranks: expected 1 to %d lists, found %zu", where,
                       CPU_MAX, json_array_size(ranks));
    f->n_ranks = (int)json_array_size(ranks);
    for (int r = 0; r < f->n_ranks && rc == OK; r++)
        rc = read_rank(f, json_array_get(ranks, (size_t)r), r, where);
    return rc == OK ? check_distinct(f, where) : rc;
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
    int rc;

    for (int i = 0; i < f->n_ranks * f->n_threads; i++)
        f->nodes[i] = -1;
    if (!json_object_get(o, "memory_nodes"))
        return OK;
    rc = json_get_arr(o, "memory_nodes", &nodes, where);
    if (rc == OK && json_array_size(nodes) != (size_t)f->n_ranks)
        rc = err_set(ERR_FORMAT,
                     "%s: memory_nodes: expected %d arrays, one a rank, found %zu", where,
                     f->n_ranks, json_array_size(nodes));
    for (int r = 0; r < f->n_ranks && rc == OK; r++)
        rc = read_rank_nodes(f, json_array_get(nodes, (size_t)r), r, where);
    return rc;
}

/* [[rows, seconds], ...] */
static int read_costs(struct plan_costs *c, const json_t *o, const char *where)
{
    const json_t *a = NULL;
    int rc;

    if (!json_object_get(o, "step_s"))
        return OK;
    rc = json_get_arr(o, "step_s", &a, where);
    if (rc == OK && (json_array_size(a) < 1 || json_array_size(a) > PLAN_COSTS_MAX))
        rc = err_set(ERR_FORMAT, "%s: step_s: expected 1 to %d entries, found %zu", where,
                     PLAN_COSTS_MAX, json_array_size(a));
    if (rc != OK)
        return rc;
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

static int read_phase(struct plan_phase *f, const json_t *root, const char *key,
                      const char *path)
{
    static const char *const known[] = {"ranks",  "memory_nodes", "expected_s",
                                        "step_s", "why",          NULL};
    const json_t *o = NULL;
    char where[600];
    int rc = json_get_obj(root, key, &o, path);

    snprintf(where, sizeof(where), "%s: %s", path, key);
    f->expected_s = NAN;
    if (rc == OK)
        rc = json_check_keys(o, known, where);
    if (rc == OK)
        rc = read_ranks(f, o, where);
    if (rc == OK)
        rc = read_nodes(f, o, where);
    if (rc == OK)
        rc = json_opt_f64(o, "expected_s", &f->expected_s, where);
    if (rc == OK && f->expected_s <= 0) /* false for NAN: none */
        rc = err_set(ERR_FORMAT, "%s: expected_s: expected seconds above 0, found %g",
                     where, f->expected_s);
    if (rc == OK)
        rc = read_costs(&f->costs, o, where);
    if (rc == OK)
        rc = read_text(f->why, sizeof(f->why), o, "why", where);
    return rc;
}

static int check_version(const json_t *root, const char *path)
{
    int64_t version = 0;
    int rc = json_get_int(root, "version", 1, PLAN_VERSION, &version, path);

    if (rc == OK && version == 1)
        rc = err_set(ERR_UNSUPPORTED,
                     "%s: version: expected %d, found 1, a plan of an earlier engine: "
                     "make a new one with `sandwich plan --out FILE`",
                     path, PLAN_VERSION);
    return rc;
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

static int read_plan(struct plan *p, const json_t *root, const char *path)
{
    static const char *const known[] = {"version", "machine", "evidence",
                                        "truth", /* its former name */
                                        "prefill", "decode",  NULL};
    int rc;

    if (!json_is_object(root))
        return err_set(ERR_FORMAT, "%s: expected an object", path);
    rc = check_version(root, path);
    if (rc == OK)
        rc = json_check_keys(root, known, path);
    if (rc == OK)
        rc = read_text(p->machine, sizeof(p->machine), root, "machine", path);
    if (rc == OK)
        rc = read_text(p->evidence, sizeof(p->evidence), root,
                       json_object_get(root, "truth") ? "truth" : "evidence", path);
    if (rc == OK)
        rc = check_evidence(p, path);
    if (rc == OK)
        rc = read_phase(&p->prefill, root, "prefill", path);
    if (rc == OK)
        rc = read_phase(&p->decode, root, "decode", path);
    return rc == OK ? plan_number_cpus(p) : rc;
}

int plan_read(struct plan *p, const char *path)
{
    json_t *root = NULL;
    int rc;

    memset(p, 0, sizeof(*p));
    rc = json_read_file(&root, path, PLAN_MAX_BYTES);
    if (rc == OK)
        rc = read_plan(p, root, path);
    snprintf(p->source, sizeof(p->source), "%s", path);
    json_decref(root);
    return rc;
}

/* ---- writing ---- */

/* *a takes v; where there is no memory it becomes NULL. */
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
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

int plan_write(const struct plan *p, const char *path)
{
    json_t *root =
        json_pack("{s:i, s:o, s:o, s:o, s:o}", "version", PLAN_VERSION, "machine",
                  json_string_lossy(p->machine), "evidence", json_string(p->evidence),
                  "prefill", phase_json(&p->prefill), "decode", phase_json(&p->decode));
    int rc;

    if (!root)
        return err_set(ERR_NOMEM, "%s: no memory for the plan", path);
    rc = json_write_file(root, path);
    json_decref(root);
    return rc;
}
