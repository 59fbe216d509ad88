/* Read bandwidth for 1 .. n threads: the bound of every decoded token. Six orders of
 * reading are tried; the fastest is the machine's, the others are this program's. */
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
    atomic_ullong sum; /* somebody must want what was read */
};

static void read_part(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    size_t part = j->buffer.part_bytes, slice = part / N_SLICES;
    const char *p = j->buffer.p + (size_t)id * part + (size_t)j->slice * slice;

    (void)n_threads;
    atomic_fetch_xor_explicit(&j->sum, j->read(p, slice), memory_order_relaxed);
}

MUST static int measure(struct probe_ctx *c, int n_threads, double budget_s)
{
    const struct probe_isa *isa = probe_widest();
    struct probe_series s[PROBE_READ_MAX] = {0};
    uint64_t end_ns = probe_deadline_ns(budget_s);
    struct job j = {0};
    int rc;

    rc = probe_buffer_open(&j.buffer, c, n_threads, N_SLICES * PROBE_CHUNK);
    if (rc == ERR_NOMEM)
        return probe_report_none(c, "read_gbps", "GB/s", n_threads, err_msg());
    do {
        for (int i = 0; i < PROBE_READ_MAX; i++) {
            struct probe_time t;

            j.read = isa->read[i];
            if (!j.read)
                continue;
            t = probe_time(c->team, n_threads, read_part, &j);
            probe_series_add(&s[i], (double)j.buffer.bytes / N_SLICES, &t);
            j.slice = (j.slice + 1) % N_SLICES;
        }
    } while (probe_more(s, PROBE_READ_MAX, end_ns));
    rc = probe_report_best(c, "read_gbps", "GB/s", n_threads, s, PROBE_READ_MAX);
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
    .run = run,
};
