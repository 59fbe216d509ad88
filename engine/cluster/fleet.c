#include "cluster/fleet.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"

#define THREADS_MAX 64
#define BIN_0_LOG2  (-8.0)
#define BINS_A_STEP 32

void cluster_histogram_add(struct cluster_histogram *h, int64_t t_ns)
{
    int i =
        t_ns > 0 ? (int)floor(BINS_A_STEP * (log2(1e-6 * (double)t_ns) - BIN_0_LOG2)) : 0;

    h->n[i < 0 ? 0 : i < CLUSTER_BINS ? i : CLUSTER_BINS - 1]++;
}

double cluster_histogram_quantile(const struct cluster_histogram *h, double at)
{
    int64_t all = 0, sum = 0;
    int i = 0;

    for (int k = 0; k < CLUSTER_BINS; k++)
        all += h->n[k];
    if (all == 0)
        return NAN;
    while (i < CLUSTER_BINS - 1 && (double)(sum += h->n[i]) < at * (double)all)
        i++;
    return exp2(BIN_0_LOG2 + (i + 0.5) / BINS_A_STEP);
}

/* ---- a pool ---- */

struct pool {
    const struct cluster_fleet_opts *o;
    struct cluster_fleet_pool p;
    struct cluster_fleet_part *out;
    struct cluster_day day;
    int64_t end_ns; /* of its last request so far */
};

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct pool *p = ctx;
    struct cluster_fleet_part *out = p->out;
    double h = p->day.o.from_h + (double)d->arrival_ns / 3600e9;
    struct cluster_hour *hour = &out->hour[(int)h % CLUSTER_HOURS];
    int64_t ttft = d->first_ns - d->arrival_ns;
    int64_t tpot = d->n_output > 1 ? (d->last_ns - d->first_ns) / (d->n_output - 1) : 0;
    bool good = !d->refused && (double)ttft <= 1e6 * p->o->ttft_ms &&
                (double)tpot <= 1e6 * p->o->tpot_ms;

    p->end_ns = d->last_ns > p->end_ns ? d->last_ns : p->end_ns;
    out->n_ended++;
    out->n_good += good;
    out->n_restarted += d->n_restarts > 0;
    hour->n_requests++;
    hour->n_good += good;
    if (d->refused)
        return;
    out->n_output_tok += d->n_output;
    out->n_on[p->p.kinds[d->prompt_machine]][CLUSTER_PROMPT]++;
    out->n_on[p->p.kinds[d->token_machine]][CLUSTER_TOKEN] += d->n_output > 1;
    cluster_histogram_add(&out->ttft, ttft);
    if (d->n_output > 1)
        cluster_histogram_add(&out->tpot, tpot);
}

static int run_opened(struct pool *p)
{
    struct cluster_opts *c = &p->p.cluster;

    TRY(cluster_day_open(&p->day, &p->p.day));
    c->next = cluster_day_next;
    c->next_ctx = &p->day;
    c->observer = (struct cluster_observer){.ctx = p, .done = on_done};
    c->busy_ns = mem_new(MEM_OTHER, (size_t)c->n_machines, sizeof(*c->busy_ns));
    if (!c->busy_ns)
        return ERR_NOMEM;
    TRY(cluster_run(&p->out->stat, c));
    for (int i = 0; i < c->n_machines; i++) {
        p->out->busy_s[p->p.kinds[i]] += 1e-9 * c->busy_ns[i];
        p->out->machine_s[p->p.kinds[i]] += 1e-9 * (double)p->end_ns;
    }
    for (int i = 0; i < c->n_outages; i++) {
        const struct cluster_outage *x = &c->outages[i];

        if (x->drained)
            p->out->drained_s[p->p.kinds[x->machine]] +=
                1e-9 * (double)(x->until_ns - x->t_ns);
    }
    return OK;
}

static int run_pool(struct cluster_fleet_part *out, const struct cluster_fleet_opts *o,
                    int number)
{
    struct pool p = {.o = o, .out = out};
    int rc = o->open(o->ctx, number, &p.p);

    if (rc == OK)
        rc = run_opened(&p);
    mem_free(p.p.cluster.busy_ns);
    p.p.cluster.busy_ns = NULL;
    o->close(o->ctx, &p.p);
    return rc == OK ? OK : err_prefix(rc, "pool %d", number);
}

/* ---- all of them ---- */

struct fleet {
    const struct cluster_fleet_opts *o;
    struct cluster_fleet_part *parts; /* [n_pools] */
    struct fault {
        int rc;
        char why[256];
    } * faults; /* [n_pools] */
    atomic_int next;
    atomic_bool failed; /* no further pool is begun */
};

static void *work(void *arg)
{
    struct fleet *f = arg;
    int i;

    while (!atomic_load(&f->failed) &&
           (i = atomic_fetch_add(&f->next, 1)) < f->o->n_pools) {
        f->faults[i].rc = run_pool(&f->parts[i], f->o, i);
        if (f->faults[i].rc == OK)
            continue;
        snprintf(f->faults[i].why, sizeof(f->faults[i].why), "%s", err_msg());
        atomic_store(&f->failed, true);
    }
    return NULL;
}

static void add_histogram(struct cluster_histogram *to,
                          const struct cluster_histogram *from)
{
    for (int i = 0; i < CLUSTER_BINS; i++)
        to->n[i] += from->n[i];
}

static void add_stat(struct cluster_stat *to, const struct cluster_stat *from)
{
    int64_t *const a[] = {&to->n_arrived,     &to->n_done,       &to->n_refused,
                          &to->n_events,      &to->n_steps,      &to->n_live_max,
                          &to->n_pool_moves,  &to->n_repurposed, &to->n_preempted,
                          &to->n_failures,    &to->n_restarts,   &to->n_same_machine,
                          &to->n_transferred, &to->kv_used_tok};
    const int64_t b[] = {from->n_arrived,     from->n_done,       from->n_refused,
                         from->n_events,      from->n_steps,      from->n_live_max,
                         from->n_pool_moves,  from->n_repurposed, from->n_preempted,
                         from->n_failures,    from->n_restarts,   from->n_same_machine,
                         from->n_transferred, from->kv_used_tok};

    for (size_t i = 0; i < sizeof(b) / sizeof(b[0]); i++)
        *a[i] += b[i];
    to->end_ns = from->end_ns > to->end_ns ? from->end_ns : to->end_ns;
    to->live_ns += from->live_ns;
    to->reserved_idle_tok_ns += from->reserved_idle_tok_ns;
    for (int k = 0; k < 2; k++)
        to->busy_ns[k] += from->busy_ns[k];
}

static void add_part(struct cluster_fleet_part *to, const struct cluster_fleet_part *from)
{
    add_stat(&to->stat, &from->stat);
    to->n_restarted += from->n_restarted;
    to->n_good += from->n_good;
    to->n_ended += from->n_ended;
    to->n_output_tok += from->n_output_tok;
    for (int k = 0; k < CLUSTER_KINDS; k++) {
        for (int i = 0; i < 2; i++)
            to->n_on[k][i] += from->n_on[k][i];
        to->busy_s[k] += from->busy_s[k];
        to->machine_s[k] += from->machine_s[k];
        to->drained_s[k] += from->drained_s[k];
    }
    for (int h = 0; h < CLUSTER_HOURS; h++) {
        to->hour[h].n_requests += from->hour[h].n_requests;
        to->hour[h].n_good += from->hour[h].n_good;
    }
    add_histogram(&to->ttft, &from->ttft);
    add_histogram(&to->tpot, &from->tpot);
}

static int merge(struct cluster_fleet_part *out, const struct fleet *f)
{
    for (int i = 0; i < f->o->n_pools; i++)
        if (f->faults[i].rc != OK)
            return err_set(f->faults[i].rc, "%s", f->faults[i].why);
    for (int i = 0; i < f->o->n_pools; i++)
        add_part(out, &f->parts[i]);
    return OK;
}

int cluster_fleet_run(struct cluster_fleet_part *out, const struct cluster_fleet_opts *o)
{
    struct fleet f = {.o = o};
    pthread_t threads[THREADS_MAX];
    int n = 0, rc = OK;

    *out = (struct cluster_fleet_part){0};
    if (o->n_pools < 1 || o->n_threads < 1 || o->n_threads > THREADS_MAX)
        return err_set(ERR_ARG,
                       "a fleet of %d pools on %d threads; expected at least 1, and "
                       "at most %d threads",
                       o->n_pools, o->n_threads, THREADS_MAX);
    f.parts = mem_new(MEM_OTHER, (size_t)o->n_pools, sizeof(*f.parts));
    f.faults = mem_new(MEM_OTHER, (size_t)o->n_pools, sizeof(*f.faults));
    if (!f.parts || !f.faults)
        rc = ERR_NOMEM;
    while (rc == OK && n < o->n_threads - 1) {
        rc = thread_start(&threads[n], 0, work, &f, "a thread of the fleet");
        n += rc == OK;
    }
    if (rc == OK)
        work(&f);
    else
        atomic_store(&f.failed, true);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (rc == OK)
        rc = merge(out, &f);
    mem_free(f.parts);
    mem_free(f.faults);
    return rc;
}
