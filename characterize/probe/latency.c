/* Latency of a read that depends on the one before, by the size of what is read: the steps
 * of the curve are the caches, the difference between page sizes is address translation. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "characterize/pages.h"
#include "characterize/trial.h"
#include "cpu/cpu.h"

#define LINE_BYTES  64
#define FIRST_BYTES ((size_t)16 << 10) /* in every first cache */
/* Out of the last-level cache on all but a few machines, and a cycle of it is made in a
 * fraction of a second. */
#define LAST_BYTES_MAX ((size_t)512 << 20)
#define LAST_BYTES_MIN ((size_t)64 << 20)
#define N_STEPS        20000 /* a trial: 2 ms at 100 ns */

struct job {
    struct par_team *team;
    struct probe_pages pages;
    size_t n_lines;
    uint32_t at; /* goes on where the last trial stopped */
};

static uint32_t *line(const struct job *j, size_t i)
{
    return (uint32_t *)(j->pages.p + i * LINE_BYTES);
}

/* One cycle through all lines in random order (Sattolo's shuffle), so that nothing can
 * guess the next one and none is left out. */
static void make_cycle(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    struct rng r;

    (void)id;
    (void)n_threads;
    rng_init(&r, j->n_lines, "latency");
    for (size_t i = 0; i < j->n_lines; i++)
        *line(j, i) = (uint32_t)i;
    for (size_t i = j->n_lines - 1; i > 0; i--) {
        size_t k = rng_below(&r, i);
        uint32_t other = *line(j, k);

        *line(j, k) = *line(j, i);
        *line(j, i) = other;
    }
    j->at = 0;
}

static void chase(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    uint32_t at = j->at;

    (void)id;
    (void)n_threads;
    for (int i = 0; i < N_STEPS; i++)
        at = *line(j, at);
    j->at = at; /* somebody must want it */
}

static void name_of(char *name, size_t n, int huge, size_t bytes)
{
    snprintf(name, n, "latency_ns_%s_%zuKiB", huge ? "huge" : "small", bytes >> 10);
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    (void)i;
    *t = probe_time(j->team, 1, chase, j);
    return OK;
}

MUST static int measure(struct probe_ctx *c, struct job *j, int huge, double budget_s)
{
    struct measure *m = NULL;
    char name[48];
    int rc;

    probe_time(c->team, 1, make_cycle, j);
    /* the warm-up round brings into a cache what fits */
    rc = probe_measure(&m, 1, budget_s, trial, j);
    name_of(name, sizeof(name), huge, j->n_lines * LINE_BYTES);
    if (rc == OK)
        rc = probe_report_ns(c, name, 1, m, 0, N_STEPS);
    measure_close(&m);
    return rc;
}

static size_t last_bytes(const struct probe_ctx *c)
{
    size_t bytes = c->buffer_bytes ? c->buffer_bytes : 4 * cpu_cache_bytes(3), last;

    if (!c->buffer_bytes && bytes < LAST_BYTES_MIN)
        bytes = LAST_BYTES_MIN;
    if (bytes > LAST_BYTES_MAX)
        bytes = LAST_BYTES_MAX;
    for (last = FIRST_BYTES; last * 2 <= bytes;)
        last *= 2;
    return last;
}

static void touch(void *arg, int id, int n_threads)
{
    const struct job *j = arg;

    (void)id;
    (void)n_threads;
    probe_pages_touch(&j->pages);
}

MUST static int one_kind(struct probe_ctx *c, int huge, double budget_s)
{
    size_t last = last_bytes(c);
    struct job j = {.team = c->team};
    int n = 0, rc;
    char name[48];

    rc = probe_pages_open(&j.pages, last < PROBE_HUGE_BYTES ? PROBE_HUGE_BYTES : last,
                          huge);
    if (rc == OK) {
        probe_time(c->team, 1, touch, &j);
        rc = huge ? probe_pages_check_huge(&j.pages) : OK;
    }
    if (rc != OK) {
        name_of(name, sizeof(name), huge, last);
        rc = probe_report_none(c, name, "ns", 1, err_msg());
        goto out;
    }
    for (size_t bytes = FIRST_BYTES; bytes <= last; bytes *= 2)
        n++;
    for (size_t bytes = FIRST_BYTES; rc == OK && bytes <= last; bytes *= 2) {
        j.n_lines = bytes / LINE_BYTES;
        rc = measure(c, &j, huge, budget_s / n);
    }
out:
    probe_pages_close(&j.pages);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int rc = one_kind(c, 1, c->budget_s / 2);

    return rc == OK ? one_kind(c, 0, c->budget_s / 2) : rc;
}

const struct probe probe_latency = {
    .name = "latency",
    .help = "latency of dependent reads by working set, in huge and in small pages",
    .full = true,
    .run = run,
};
