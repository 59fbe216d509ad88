/* The placement of threads and memory: the owners given to the model before it packs its
 * weights, and the placement that resulted, for the record. */
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pages.h"
#include "ranks/procs.h"
#include "serve/engine.h"

/* The largest fraction of weights on another node than the threads that decode with them;
 * more gives a warning. */
#define ELSEWHERE_FRAC_MAX 0.01

/* ---- before ---- */

/* On a machine of several nodes a thread that is not pinned is on none of them. */
static int node_of_cpu(const struct serve_engine *s, int cpu)
{
    if (!s->machine || (s->machine->n_nodes > 1 && !s->api.o.pin))
        return -1;
    if (s->machine->n_nodes == 1)
        return s->machine->nodes[0].os_index;
    return topo_node_of_cpu(s->machine, cpu);
}

void serve_number_threads(const struct plan *p, const struct plan_phase *f, int *threads)
{
    for (int i = 0; i < f->n_ranks * f->n_threads; i++)
        for (threads[i] = 0; p->cpus[threads[i]] != f->cpus[i];)
            threads[i]++;
}

int serve_numa_owners(struct serve_engine *s, struct serve_numa_owners *out)
{
    const struct plan_phase *f = &s->plan.decode;
    int rc = topo_machine_open(&s->machine, NULL);

    if (rc == ERR_NOMEM)
        return rc;
    if (rc != OK) {
        snprintf(s->no_machine, sizeof(s->no_machine), "%s", err_msg());
        err_clear();
    }
    serve_number_threads(&s->plan, f, out->threads);
    for (int i = 0; i < s->plan.n_cpus; i++)
        out->nodes[i] = node_of_cpu(s, s->plan.cpus[i]);
    out->of = (struct model_numa_owners){.n_ranks = f->n_ranks,
                                         .n_threads = f->n_threads,
                                         .threads = out->threads,
                                         .nodes = out->nodes};
    return OK;
}

/* ---- after ---- */

static int64_t bytes_of(const struct model_numa_row *r)
{
    return r->local_bytes + r->elsewhere_bytes + r->absent_bytes + r->shared_bytes;
}

/* n rows of one purpose; too much elsewhere is a warning, but for what must be. */
static bool warn_elsewhere(const char *code, const char *what,
                           const struct model_numa_row *rows, int n)
{
    double all = 0, elsewhere = 0, must = 0;

    for (int i = 0; i < n; i++) {
        all += (double)bytes_of(&rows[i]);
        elsewhere += (double)rows[i].elsewhere_bytes;
        must += (double)rows[i].mixed_elsewhere_bytes;
    }
    if (elsewhere - must <= ELSEWHERE_FRAC_MAX * all)
        return false;
    log_warning(code, (elsewhere - must) / all, ELSEWHERE_FRAC_MAX,
                "%.1f %% of the %s are on another memory node than the threads that "
                "read them in decode, and %.1f %% more in pages that several nodes' "
                "threads share",
                100 * (elsewhere - must) / all, what, 100 * must / all);
    return true;
}

int serve_kv_numa_report(struct serve_engine *s)
{
    int rc = model_kv_numa_row(s->model, s->pool, &s->kv_place);

    if (rc == ERR_NOMEM)
        return rc;
    if (rc != OK) {
        snprintf(s->kv_place_unknown, sizeof(s->kv_place_unknown), "%s", err_msg());
        err_clear();
    } else {
        warn_elsewhere("kv_elsewhere", "keys and values", &s->kv_place, 1);
    }
    return OK;
}

static json_t *unavailable(void)
{
    return json_pack("{s:s}", "unavailable", err_msg());
}

static json_t *describe_thread(struct serve_engine *s, const struct par_thread_stat *t,
                               int i)
{
    if (s->api.o.pin && !s->warned && t->cpu_seen >= 0 && t->cpu_seen != t->cpu_wanted) {
        log_warning("placement_mismatch", t->cpu_seen, t->cpu_wanted,
                    "thread %d was to run on CPU %d and ran on CPU %d", i, t->cpu_wanted,
                    t->cpu_seen);
        s->warned = true;
    }
    return json_pack("{s:i, s:i, s:I, s:I}", "cpu_wanted", t->cpu_wanted, "cpu_seen",
                     t->cpu_seen, "n_runs", (json_int_t)t->n_runs, "n_parks",
                     (json_int_t)t->n_parks);
}

/* Each thread's CPU, wanted and seen; a difference is a warning, once. Where ranks are
 * processes, as of the last step of each, and in the order of the ranks. */
static json_t *describe_threads(struct serve_engine *s)
{
    int n_ranks = model_procs_n(s->model);
    json_t *a = json_array();
    struct par_thread_stat t;

    for (int i = 0; n_ranks == 0 && i < par_team_size(s->team); i++) {
        par_team_stat(s->team, i, &t);
        json_array_append_new(a, describe_thread(s, &t, i));
    }
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; model_procs_thread(s->model, r, i, &t); i++) {
            json_t *one = describe_thread(s, &t, i);

            json_object_set_new(one, "rank", json_integer(r));
            json_object_set_new(one, "process",
                                json_integer(model_procs_pid(s->model, r)));
            json_array_append_new(a, one);
        }
    return a;
}

/* Some memory of one purpose: up to three mappings. */
struct region {
    const void *p[3];
    size_t bytes[3];
};

/* Bytes in pages of each node: {"0": n, ..., "absent": n}. */
static json_t *describe_nodes(const struct serve_engine *s, const struct region *r)
{
    int n = s->machine ? s->machine->n_nodes : 0;
    int64_t *all = mem_new(MEM_OTHER, 2 * ((size_t)n + 1), sizeof(*all));
    json_t *o = json_object();
    int rc = all ? OK : ERR_NOMEM;

    if (!s->machine)
        rc = err_set(ERR_UNSUPPORTED, "memory nodes are not known: %s", s->no_machine);
    for (int i = 0; i < 3 && rc == OK; i++) {
        int64_t *one = all + n + 1;

        if (!r->p[i])
            continue;
        rc = topo_pages_on(s->machine, r->p[i], r->bytes[i], one);
        for (int k = 0; k <= n; k++)
            all[k] += one[k] * (int64_t)mem_page_bytes();
    }
    for (int i = 0; i <= n && rc == OK; i++) {
        char key[16] = "absent";

        if (i < n)
            snprintf(key, sizeof(key), "%d", s->machine->nodes[i].os_index);
        json_object_set_new(o, key, json_integer(all[i]));
    }
    if (rc != OK) {
        json_decref(o);
        o = unavailable();
    }
    mem_free(all);
    return o;
}

static json_t *describe_huge(const struct region *r)
{
    size_t resident = 0, huge = 0;

    for (int i = 0; i < 3; i++) {
        size_t a, b;

        if (!r->p[i])
            continue;
        if (mem_huge_of(r->p[i], r->bytes[i], &a, &b) != OK)
            return unavailable();
        resident += a;
        huge += b;
    }
    return json_pack("{s:I, s:I, s:f}", "resident_bytes", (json_int_t)resident,
                     "huge_bytes", (json_int_t)huge, "huge_frac",
                     resident ? (double)huge / (double)resident : 0.0);
}

static json_t *describe_region(const struct serve_engine *s, const struct region *r)
{
    return json_pack("{s:o, s:o}", "node_bytes", describe_nodes(s, r), "huge_pages",
                     describe_huge(r));
}

static struct region weights_of(const struct serve_engine *s)
{
    struct region r = {0};

    model_weights_region(s->model, &r.p[0], &r.bytes[0]);
    return r;
}

static struct region kv_of(const struct serve_engine *s)
{
    struct region r = {0};

    void *p;

    kv_pool_memory(s->pool, &p, &r.bytes[0]);
    r.p[0] = p;
    return r;
}

static struct region activations_of(const struct serve_engine *s)
{
    struct region r = {0};

    model_act_region(s->model, &r.p[0], &r.bytes[0]);
    model_phase_region(s->prefill, &r.p[1], &r.bytes[1]);
    if (s->decode != s->prefill)
        model_phase_region(s->decode, &r.p[2], &r.bytes[2]);
    return r;
}

static json_t *describe_row(const struct model_numa_row *r)
{
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "group", r->name, "bytes",
        (json_int_t)bytes_of(r), "local_bytes", (json_int_t)r->local_bytes,
        "elsewhere_bytes", (json_int_t)r->elsewhere_bytes, "absent_bytes",
        (json_int_t)r->absent_bytes, "shared_bytes", (json_int_t)r->shared_bytes,
        "mixed_bytes", (json_int_t)r->mixed_bytes, "mixed_elsewhere_bytes",
        (json_int_t)r->mixed_elsewhere_bytes);
}

static json_t *describe_weights(struct serve_engine *s)
{
    const struct region r = weights_of(s);
    struct model_numa_report p;
    json_t *rows = json_array();

    if (model_numa_report_get(s->model, &p) == OK) {
        for (int i = 0; i < MODEL_N_WEIGHT_KINDS; i++)
            if (bytes_of(&p.rows[i]) > 0)
                json_array_append_new(rows, describe_row(&p.rows[i]));
        if (!s->warned_elsewhere)
            s->warned_elsewhere = warn_elsewhere("weights_elsewhere", "weights", p.rows,
                                                 MODEL_N_WEIGHT_KINDS);
    } else {
        json_decref(rows);
        rows = unavailable();
    }
    return json_pack("{s:s, s:i, s:I, s:o, s:o, s:o}", "how", p.how, "n_owner_nodes",
                     p.n_nodes, "bound_bytes", (json_int_t)p.bound_bytes, "groups", rows,
                     "node_bytes", describe_nodes(s, &r), "huge_pages",
                     describe_huge(&r));
}

static json_t *describe_kv(const struct serve_engine *s)
{
    const struct region r = kv_of(s);
    json_t *o = describe_region(s, &r);

    json_object_set_new(o, "when_touched",
                        s->kv_place_unknown[0]
                            ? json_pack("{s:s}", "unavailable", s->kv_place_unknown)
                            : describe_row(&s->kv_place));
    return o;
}

static json_t *describe_machine(const struct serve_engine *s)
{
    if (!s->machine)
        return json_sprintf("memory nodes are not known: %s", s->no_machine);
    if (s->machine->n_nodes == 1)
        return json_string("one memory node: every page is local");
    return json_sprintf("%d memory nodes", s->machine->n_nodes);
}

json_t *serve_describe_placement(struct serve_engine *s)
{
    const struct region act = activations_of(s);

    return json_pack("{s:o, s:b, s:o, s:o, s:o, s:o}", "threads", describe_threads(s),
                     "pinned", s->api.o.pin, "nodes", describe_machine(s), "weights",
                     describe_weights(s), "kv", describe_kv(s), "activations",
                     describe_region(s, &act));
}
