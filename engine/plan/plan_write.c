/* Writing a plan's file, see plan_read.c. */
#include "plan/plan.h"

#include <math.h>
#include <stdbool.h>

#include "base/json.h"
#include "base/mem.h"
#include "plan/plan_json.h"

#define LIST_BYTES (CPU_MAX * 5 + 1)

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
        json_pack("{s:i, s:o, s:o, s:o, s:o}", "version", PLAN_VERSION, "machine",
                  json_string_lossy(p->machine), "evidence", json_string(p->evidence),
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
