#include "characterize/trial.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "characterize/peak/peak.h"
#include "cpu/cpu.h"

/* A thread that got less processor time than this below the wall clock's was kept
 * waiting; a timer interrupt takes some 0.1 % of a trial. */
#define DISTURBED_FRAC 0.01
/* Large enough that each slice read once is out of any cache when it is read again. */
#define BUFFER_BYTES_MIN ((size_t)512 << 20)
/* Times the caches shared: fewer than 1/4 of the reads can then be hits. */
#define BUFFER_PER_CACHE 4
#define BUFFER_BYTES_MAX ((size_t)8 << 30)

/* Append a value. ERR_LIMIT when full. */
static int add_value(struct probe_ctx *c, const struct measure_card_row *v)
{
    if (c->n_values >= c->max_values)
        return err_set(ERR_LIMIT, "probe value %s: more than %d values", v->name,
                       c->max_values);
    c->values[c->n_values++] = *v;
    return OK;
}

struct timed {
    probe_body body;
    void *arg;
    atomic_ullong first_ns, last_ns;
    atomic_int disturbed;
};

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void timed_run(void *arg, struct par_self *self)
{
    struct timed *t = arg;
    unsigned long long start, end, seen;
    uint64_t cpu_start, cpu;

    cpu_start = thread_cpu_ns(); /* a system call: outside the timed part */
    par_barrier(self);
    start = clock_ns();
    t->body(t->arg, self->id, self->n);
    end = clock_ns();
    cpu = thread_cpu_ns() - cpu_start;
    if ((double)cpu < (double)(end - start) * (1 - DISTURBED_FRAC))
        atomic_store(&t->disturbed, 1);
    seen = atomic_load(&t->first_ns);
    while (start < seen && !atomic_compare_exchange_weak(&t->first_ns, &seen, start))
        ;
    seen = atomic_load(&t->last_ns);
    while (end > seen && !atomic_compare_exchange_weak(&t->last_ns, &seen, end))
        ;
}

struct measure_trial probe_time(struct par_team *team, int n_threads, probe_body body,
                                void *arg)
{
    struct timed t = {.body = body, .arg = arg, .first_ns = UINT64_MAX};

    par_team_run(team, n_threads, timed_run, &t);
    return (struct measure_trial){(double)(t.last_ns - t.first_ns) * 1e-9, t.disturbed};
}

int probe_cpu(const struct probe_ctx *c, int id)
{
    struct par_thread_stat stat;

    par_team_stat(c->team, id, &stat);
    return stat.cpu_wanted >= 0 ? stat.cpu_wanted : id;
}

static struct measure_card_row value_of(const char *name, const char *unit, int n_threads)
{
    struct measure_card_row v = {
        .n_threads = n_threads, .estimate = NAN, .lo = NAN, .hi = NAN};

    snprintf(v.name, sizeof(v.name), "%s", name);
    snprintf(v.unit, sizeof(v.unit), "%s", unit);
    return v;
}

int probe_measure(struct measure **out, int n, double budget_s, measure_fn fn, void *arg)
{
    /* the whole budget: a bound is worth it */
    const struct measure_opts o = {.min_rounds = PROBE_TRIALS_MIN,
                                   .max_rounds = PROBE_TRIALS_MAX,
                                   .budget_s = budget_s,
                                   .precise_frac = 1e-9,
                                   .keep_all = true};
    int rc = measure_open(out, n, PROBE_TRIALS_MAX);

    if (rc == OK)
        rc = measure_compare(*out, n, &o, fn, arg);
    if (rc != OK)
        measure_close(out);
    return rc;
}

int probe_report(struct probe_ctx *c, const char *name, const char *unit, int n_threads,
                 const struct measure_report *r)
{
    struct measure_card_row v = value_of(name, unit, n_threads);

    v.estimate = r->estimate;
    v.lo = r->lo;
    v.hi = r->hi;
    v.n_trials = r->n;
    if (!isfinite(v.estimate) || !isfinite(v.lo) || !isfinite(v.hi)) {
        snprintf(v.why, sizeof(v.why), "%s",
                 r->n ? "no memory to sort the trials" : "no trial was made");
        v.estimate = v.lo = v.hi = NAN;
    }
    return add_value(c, &v);
}

int probe_report_rate(struct probe_ctx *c, const char *name, const char *unit,
                      int n_threads, const struct measure *m, int first, int n,
                      double amount)
{
    struct measure_report best, r;

    measure_report(m, first, &best);
    for (int i = first + 1; i < first + n; i++) {
        measure_report(m, i, &r);
        if (!(r.estimate >= best.estimate) && !isnan(r.estimate))
            best = r;
    }
    r = best;
    r.estimate = 1e-9 * amount / best.estimate;
    r.lo = 1e-9 * amount / best.hi;
    r.hi = 1e-9 * amount / best.lo;
    return probe_report(c, name, unit, n_threads, &r);
}

int probe_report_ns(struct probe_ctx *c, const char *name, int n_threads,
                    const struct measure *m, int i, double n_ops)
{
    struct measure_report r;

    measure_report(m, i, &r);
    r.estimate *= 1e9 / n_ops;
    r.lo *= 1e9 / n_ops;
    r.hi *= 1e9 / n_ops;
    return probe_report(c, name, "ns", n_threads, &r);
}

int probe_report_none(struct probe_ctx *c, const char *name, const char *unit,
                      int n_threads, const char *why)
{
    struct measure_card_row v = value_of(name, unit, n_threads);

    snprintf(v.why, sizeof(v.why), "%s", why);
    return add_value(c, &v);
}

int probe_thread_counts(int n_max, int *counts)
{
    int n = 0;

    for (int step = 1; step <= n_max && n < PROBE_COUNTS_MAX - 2; step *= 2) {
        counts[n++] = step;
        if (step >= 2 && step / 2 * 3 <= n_max)
            counts[n++] = step / 2 * 3;
    }
    if (counts[n - 1] < n_max)
        counts[n++] = n_max;
    return n;
}

/* Each thread reads memory that it wrote first, so that it is on its node. Every word of
 * gigabytes: the thread sanitizer would need minutes to watch it. */
__attribute__((no_sanitize_thread)) static void touch_part(void *arg, int id,
                                                           int n_threads)
{
    const struct probe_buffer *b = arg;
    float *p = (float *)(b->p + (size_t)id * b->part_bytes);

    (void)n_threads;
    for (size_t i = 0; i < b->part_bytes / sizeof(*p); i++)
        p[i] = 1.0f; /* an ordinary number: triad computes with it */
}

int probe_buffer_open(struct probe_buffer *b, const struct probe_ctx *c, int n_threads,
                      size_t step)
{
    struct cpu_info info;
    size_t bytes = c->buffer_bytes;

    memset(b, 0, sizeof(*b));
    if (!bytes) {
        cpu_info_get(&info);
        /* as if every thread had a last-level cache of its own: never too little */
        bytes = (size_t)info.l3_bytes * BUFFER_PER_CACHE * (size_t)n_threads;
        bytes = bytes < BUFFER_BYTES_MIN ? BUFFER_BYTES_MIN : bytes;
        bytes = bytes > BUFFER_BYTES_MAX ? BUFFER_BYTES_MAX : bytes;
    }
    b->part_bytes = (bytes / (size_t)n_threads + step - 1) / step * step;
    b->bytes = b->part_bytes * (size_t)n_threads;
    b->p = mem_map(MEM_HARNESS, b->bytes, MEM_NODE_ANY);
    if (!b->p)
        return ERR_NOMEM;
    probe_time(c->team, n_threads, touch_part, b);
    return OK;
}

void probe_buffer_close(struct probe_buffer *b)
{
    if (b->p)
        mem_unmap(MEM_HARNESS, b->p, b->bytes);
    b->p = NULL;
}

const struct probe_isa *probe_widest(void)
{
    const struct probe_isa *best = NULL;
    uint64_t have = cpu_isa_detected();

    for (int i = 0; probe_isas[i]; i++) {
        const struct probe_isa *p = probe_isas[i];

        if ((p->isa & ~have) == 0 && p->vec_bytes &&
            (!best || p->vec_bytes > best->vec_bytes ||
             (p->vec_bytes == best->vec_bytes && p->isa > best->isa)))
            best = p;
    }
    return best;
}
