/* Read bandwidth for 1 .. n threads: the bound of every decoded token. Six orders of
 * reading are tried; the fastest is the machine's, the others are this program's. */
#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"

/* A trial reads one slice of each part, the next trial the next one: short trials slip
 * between other programs' time slices, and a slice read again has long left the cache. */
#define N_SLICES 8

struct job {
    uint64_t (*read)(const void *p, size_t bytes);
    struct probe_buffer buffer;
    int slice;
    struct par_team *team;
    int n_threads;
    atomic_ullong sum; /* uses what was read, so that the compiler keeps the loop */
};

static void read_part(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    size_t part = j->buffer.part_bytes, slice = part / N_SLICES;
    const char *p = j->buffer.p + (size_t)id * part + (size_t)j->slice * slice;

    (void)n_threads;
    atomic_fetch_xor_explicit(&j->sum, j->read(p, slice), memory_order_relaxed);
}

/* The i-th order of reading. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    j->read = probe_widest()->read[i];
    t->seconds = NAN;
    if (j->read)
        *t = probe_time(j->team, j->n_threads, read_part, j);
    j->slice = (j->slice + 1) % N_SLICES;
    return OK;
}

MUST static int measure(struct probe_ctx *c, int n_threads, double budget_s)
{
    struct job j = {.team = c->team, .n_threads = n_threads};
    struct measure *m = NULL;
    int rc;

    rc = probe_buffer_open(&j.buffer, c, n_threads, N_SLICES * PROBE_CHUNK);
    if (rc == ERR_NOMEM)
        return probe_report_none(c, "read_gbps", "GB/s", n_threads, err_msg());
    rc = probe_measure(&m, PROBE_READ_MAX, budget_s, trial, &j);
    if (rc == OK)
        rc = probe_report_rate(c, "read_gbps", "GB/s", n_threads, m, 0, PROBE_READ_MAX,
                               (double)j.buffer.bytes / N_SLICES);
    measure_close(&m);
    probe_buffer_close(&j.buffer);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int counts[PROBE_COUNTS_MAX];
    int n = probe_thread_counts(c->n_threads_max, counts), first = 0, rc = OK;

    while (first < n - 1 && counts[first] < c->n_threads_min)
        first++;
    for (int i = first; i < n && rc == OK; i++)
        rc = measure(c, counts[i], c->budget_s / (n - first));
    return rc;
}

const struct probe probe_read = {
    .name = "read",
    .help = "read bandwidth of main memory for 1 .. n threads",
    .bound = true,
    .run = run,
};
