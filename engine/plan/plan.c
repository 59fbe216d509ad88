#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define PLAN_VERSION   1
#define PLAN_MAX_BYTES (1 << 20)

int plan_default(struct plan *p, const struct cpu_budget *b, int threads)
{
    memset(p, 0, sizeof(*p));
    if (threads < 0)
        return err_set(ERR_ARG, "threads: expected 0 or more, found %d", threads);
    if (threads > b->n)
        return err_set(ERR_ARG, "threads: %d asked for, %d allowed (%s)", threads, b->n,
                       b->reason);
    p->n_cpus = threads > 0 ? threads : b->n;
    memcpy(p->cpus, b->cpus, (size_t)p->n_cpus * sizeof(p->cpus[0]));
    p->prefill.n_threads = p->decode.n_threads = p->n_cpus;
    if (threads > 0) {
        snprintf(p->source, sizeof(p->source), "--threads");
        snprintf(p->prefill.why, sizeof(p->prefill.why), "%d threads asked for", threads);
    } else {
        snprintf(p->source, sizeof(p->source), "default");
        snprintf(p->prefill.why, sizeof(p->prefill.why),
                 "no plan: every CPU of the budget (%d)", p->n_cpus);
    }
    memcpy(p->decode.why, p->prefill.why, sizeof(p->decode.why));
    return OK;
}

static int read_phase(struct plan_phase *out, const json_t *root, const char *key,
                      int n_cpus, const char *path)
{
    const json_t *o = NULL;
    const char *why = "";
    char where[600];
    int64_t n = 0;
    int rc;

    rc = json_get_obj(root, key, &o, path);
    if (rc != OK)
        return rc;
    snprintf(where, sizeof(where), "%s: %s", path, key);
    rc = json_get_int(o, "n_threads", 1, n_cpus, &n, where);
    if (rc != OK)
        return rc;
    rc = json_opt_str(o, "why", &why, where);
    if (rc != OK)
        return rc;
    out->n_threads = (int)n;
    snprintf(out->why, sizeof(out->why), "%s", why);
    return OK;
}

/* A CPU named twice would give two threads one core without a word. */
static int check_distinct(const struct plan *p, const char *path)
{
    char seen[CPU_MAX] = {0};

    for (int i = 0; i < p->n_cpus; i++) {
        if (p->cpus[i] < 0 || p->cpus[i] >= CPU_MAX)
            return err_set(ERR_LIMIT, "%s: cpus: expected CPUs below %d, found %d", path,
                           CPU_MAX, p->cpus[i]);
        if (seen[p->cpus[i]]++)
            return err_set(ERR_FORMAT, "%s: cpus: CPU %d is named twice", path,
                           p->cpus[i]);
    }
    return OK;
}

static int check_keys(const json_t *root, const char *path)
{
    static const char *const known[] = {"version", "cpus", "prefill", "decode", NULL};
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)root, key, value)
    {
        bool ok = false;

        for (int i = 0; known[i]; i++)
            ok |= !strcmp(known[i], key);
        if (!ok)
            return err_set(ERR_FORMAT, "%s: unknown key \"%s\"", path, key);
    }
    return OK;
}

int plan_read(struct plan *p, const char *path)
{
    json_t *root = NULL;
    const char *cpus = NULL;
    int64_t version = 0;
    int rc;

    memset(p, 0, sizeof(*p));
    rc = json_read_file(&root, path, PLAN_MAX_BYTES);
    if (rc != OK)
        goto out;
    if (!json_is_object(root)) {
        rc = err_set(ERR_FORMAT, "%s: expected an object", path);
        goto out;
    }
    rc = check_keys(root, path);
    if (rc != OK)
        goto out;
    rc = json_get_int(root, "version", PLAN_VERSION, PLAN_VERSION, &version, path);
    if (rc != OK)
        goto out;
    rc = json_get_str(root, "cpus", &cpus, path);
    if (rc != OK)
        goto out;
    rc = cpu_list_parse(cpus, p->cpus, CPU_MAX, &p->n_cpus);
    if (rc != OK) {
        rc = err_prefix(rc, "%s: cpus", path);
        goto out;
    }
    if (p->n_cpus < 1) {
        rc = err_set(ERR_FORMAT, "%s: cpus: expected at least one CPU", path);
        goto out;
    }
    rc = check_distinct(p, path);
    if (rc == OK)
        rc = read_phase(&p->prefill, root, "prefill", p->n_cpus, path);
    if (rc == OK)
        rc = read_phase(&p->decode, root, "decode", p->n_cpus, path);
    snprintf(p->source, sizeof(p->source), "%s", path);
out:
    json_decref(root);
    return rc;
}

int plan_write(const struct plan *p, const char *path)
{
    char list[CPU_MAX * 5 + 1];
    json_t *root;
    int rc;

    cpu_list_print(p->cpus, p->n_cpus, list, sizeof(list));
    root = json_pack("{s:i, s:s, s:{s:i, s:s}, s:{s:i, s:s}}", "version", PLAN_VERSION,
                     "cpus", list, "prefill", "n_threads", p->prefill.n_threads, "why",
                     p->prefill.why, "decode", "n_threads", p->decode.n_threads, "why",
                     p->decode.why);
    if (!root)
        return err_set(ERR_NOMEM, "%s: no memory for the plan", path);
    rc = json_write_file(root, path);
    json_decref(root);
    return rc;
}
