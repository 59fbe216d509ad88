#include "experiments/study/support/kv_fault_table.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"

struct worker {
    const struct study_fault_opts *o;
    pthread_t thread;
    struct rng rng;
    int n, rc;
    struct study_fault_table t;
};

static struct study_fault_case draw(const struct study_fault_opts *o, struct rng *r)
{
    struct study_fault_case c;

    do {
        c = (struct study_fault_case){
            .fault = (enum study_fault)rng_below(r, STUDY_N_FAULTS),
            .phase = (enum study_phase)rng_below(r, STUDY_N_PHASES),
            .transport = o->transport,
            .no_checksums = !o->checksums};
    } while (study_fault_excluded(&c));
    return c;
}

static void count(struct study_fault_count *c, const struct study_fault_result *r)
{
    c->n++;
    c->n_named += r->named;
    c->n_silent += r->silent;
    c->n_lost += r->lost;
    if (r->named && r->named_ms > c->worst_ms)
        c->worst_ms = r->named_ms;
}

static void add(struct study_fault_count *to, const struct study_fault_count *c)
{
    to->n += c->n;
    to->n_named += c->n_named;
    to->n_silent += c->n_silent;
    to->n_lost += c->n_lost;
    if (c->worst_ms > to->worst_ms)
        to->worst_ms = c->worst_ms;
}

/* Keeps in words what the first wrong case has in place of what it should have. */
static void note(struct study_fault_table *t, const struct study_fault_case *c,
                 const char *what, const char *says)
{
    if (!t->why[0])
        snprintf(t->why, sizeof(t->why), "%s in %s by %s: %s: %.100s",
                 study_fault_names[c->fault], study_phase_names[c->phase],
                 c->transport->name, what, says);
}

static void *work(void *arg)
{
    struct study_fault_world *world;
    struct worker *w = arg;
    struct study_fault_table *t = &w->t;

    w->rc = study_fault_open(&world);
    for (int i = 0; i < w->n && w->rc == OK; i++) {
        const struct study_fault_case c = draw(w->o, &w->rng);
        struct study_fault_result r;

        w->rc = study_fault_run(world, &c, &w->rng, &r);
        if (w->rc != OK) {
            note(t, &c, "not carried out", err_msg());
            break;
        }
        count(&t->by[c.fault][c.phase], &r);
        count(&t->all, &r);
        if (r.named)
            t->named_ms[t->all.n_named - 1] = r.named_ms;
        if (r.silent || r.lost)
            note(t, &c, r.silent ? "silent" : "lost", r.says);
    }
    study_fault_close(&world);
    return NULL;
}

static void sum_up(struct study_fault_table *out, const struct study_fault_table *t)
{
    memcpy(out->named_ms + out->all.n_named, t->named_ms,
           (size_t)t->all.n_named * sizeof(double));
    add(&out->all, &t->all);
    for (int f = 0; f < STUDY_N_FAULTS; f++)
        for (int p = 0; p < STUDY_N_PHASES; p++)
            add(&out->by[f][p], &t->by[f][p]);
    if (!out->why[0])
        memcpy(out->why, t->why, sizeof(out->why));
}

/* *n_started: threads, also after an error. */
static int start(struct worker *all, int *n_started, const struct study_fault_opts *o,
                 double *named_ms)
{
    for (int i = 0; i < o->n_threads; i++) {
        struct worker *w = &all[i];

        w->o = o;
        w->n = o->n / o->n_threads + (i < o->n % o->n_threads);
        w->t.named_ms = named_ms;
        named_ms += w->n;
        rng_init(&w->rng, o->seed + (uint64_t)i, "faults");
        TRY(thread_start(&w->thread, 0, work, w, "faults"));
        *n_started = i + 1;
    }
    return OK;
}

int study_fault_many(struct study_fault_table *out, const struct study_fault_opts *o)
{
    struct worker *all = mem_new(MEM_KV, (size_t)o->n_threads, sizeof(*all));
    double *named_ms = mem_new(MEM_KV, (size_t)o->n, sizeof(*named_ms));
    int n_started = 0, rc = ERR_NOMEM;

    *out = (struct study_fault_table){
        .named_ms = mem_new(MEM_KV, (size_t)o->n, sizeof(*named_ms))};
    if (all && named_ms && out->named_ms)
        rc = start(all, &n_started, o, named_ms);
    for (int i = 0; i < n_started; i++) {
        pthread_join(all[i].thread, NULL);
        sum_up(out, &all[i].t);
        if (rc == OK && all[i].rc != OK)
            rc = err_set(all[i].rc, "%s", all[i].t.why);
    }
    mem_free(named_ms);
    mem_free(all);
    return rc;
}

void study_fault_table_free(struct study_fault_table *t)
{
    mem_free(t->named_ms);
    t->named_ms = NULL;
}
