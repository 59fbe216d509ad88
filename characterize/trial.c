#include "characterize/trial.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
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

int probe_add(struct probe_ctx *c, const struct probe_value *v)
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

struct probe_time probe_time(struct par_team *team, int n_threads, probe_body body,
                             void *arg)
{
    struct timed t = {.body = body, .arg = arg, .first_ns = UINT64_MAX};

    par_team_run(team, n_threads, timed_run, &t);
    return (struct probe_time){(double)(t.last_ns - t.first_ns) * 1e-9, t.disturbed};
}

static void add(struct probe_series *s, double v, const struct probe_time *t)
{
    if (t->disturbed && s->n_disturbed < PROBE_TRIALS_MAX)
        s->disturbed[s->n_disturbed++] = v;
    else if (!t->disturbed && s->n < PROBE_TRIALS_MAX)
        s->x[s->n++] = v;
}

void probe_series_add(struct probe_series *s, double amount, const struct probe_time *t)
{
    add(s, amount / t->seconds * 1e-9, t);
}

void probe_series_add_ns(struct probe_series *s, double n_ops, const struct probe_time *t)
{
    add(s, t->seconds * 1e9 / n_ops, t);
}

int probe_cpu(const struct probe_ctx *c, int id)
{
    struct par_thread_stat stat;

    par_team_stat(c->team, id, &stat);
    return stat.cpu_wanted >= 0 ? stat.cpu_wanted : id;
}

uint64_t probe_deadline_ns(double budget_s)
{
    return clock_ns() + (uint64_t)(budget_s * 1e9);
}

int probe_more(const struct probe_series *s, int n_series, uint64_t end_ns)
{
    int fewest = PROBE_TRIALS_MAX, fewest_all = PROBE_TRIALS_MAX;

    for (int i = 0; i < n_series; i++) {
        int all = s[i].n + s[i].n_disturbed;

        if (!all)
            continue; /* not measured at all, or nothing is yet */
        fewest = s[i].n < fewest ? s[i].n : fewest;
        fewest_all = all < fewest_all ? all : fewest_all;
    }
    if (clock_ns() >= end_ns)
        return fewest_all < PROBE_TRIALS_MIN;
    return fewest < PROBE_TRIALS_MAX;
}

/* Median and spread of a series; the disturbed trials stand in where there is too little.
 */
static void summarise(const struct probe_series *s, struct probe_value *v)
{
    double x[2 * PROBE_TRIALS_MAX];
    size_t n = (size_t)s->n;

    memcpy(x, s->x, n * sizeof(*x));
    if (s->n < PROBE_TRIALS_MIN) {
        memcpy(x + n, s->disturbed, (size_t)s->n_disturbed * sizeof(*x));
        n += (size_t)s->n_disturbed;
    }
    v->median = stats_median(x, n);
    v->mad = stats_mad(x, n);
    v->n_trials = (int)n;
}

static struct probe_value value_of(const char *name, const char *unit, int n_threads)
{
    struct probe_value v = {.n_threads = n_threads, .median = NAN, .mad = NAN};

    snprintf(v.name, sizeof(v.name), "%s", name);
    snprintf(v.unit, sizeof(v.unit), "%s", unit);
    return v;
}

void probe_value_finish(struct probe_value *v)
{
    if (!isnan(v->median) && !isnan(v->mad))
        return;
    snprintf(v->why, sizeof(v->why), "%s",
             v->n_trials ? "no memory to sort the trials" : "no trial was made");
    v->median = v->mad = NAN;
}

int probe_report_best(struct probe_ctx *c, const char *name, const char *unit,
                      int n_threads, const struct probe_series *s, int n_series)
{
    struct probe_value best = value_of(name, unit, n_threads);

    for (int i = 0; i < n_series; i++) {
        struct probe_value v = best;

        summarise(&s[i], &v);
        if (isnan(best.median) || v.median > best.median)
            best = v;
    }
    probe_value_finish(&best);
    return probe_add(c, &best);
}

int probe_report_none(struct probe_ctx *c, const char *name, const char *unit,
                      int n_threads, const char *why)
{
    struct probe_value v = value_of(name, unit, n_threads);

    snprintf(v.why, sizeof(v.why), "%s", why);
    return probe_add(c, &v);
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

/* Each thread reads memory that it wrote first, so that it lies on its node. */
static void touch_part(void *arg, int id, int n_threads)
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
