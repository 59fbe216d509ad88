/* Read bandwidth for 1 .. n threads: the bound of every decoded token. Six orders of
 * reading are tried; the fastest is the machine's, the others are this program's. */
#include <stdatomic.h>

#include "base/mem.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"

struct job {
    uint64_t (*read)(const void *p, size_t bytes);
    struct probe_buffer buffer;
    atomic_ullong sum; /* somebody must want what was read */
};

static void read_part(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    size_t part = j->buffer.part_bytes;

    (void)n_threads;
    atomic_fetch_xor_explicit(&j->sum, j->read(j->buffer.p + (size_t)id * part, part),
                              memory_order_relaxed);
}

MUST static int measure(struct probe_ctx *c, int n_threads, double budget_s)
{
    const struct probe_isa *isa = probe_widest();
    struct probe_series s[PROBE_READ_MAX] = {{{0}, 0}};
    uint64_t end_ns = probe_deadline_ns(budget_s);
    struct job j = {0};
    int rc;

    rc = probe_buffer_open(&j.buffer, c, n_threads, PROBE_CHUNK);
    if (rc == ERR_NOMEM)
        return probe_report_none(c, "read_gbps", "GB/s", n_threads, err_msg());
    for (int trial = 0; probe_more(trial, end_ns); trial++) {
        for (int i = 0; i < PROBE_READ_MAX; i++) {
            double seconds;

            j.read = isa->read[i];
            if (!j.read)
                continue;
            seconds = probe_time_s(c->team, n_threads, read_part, &j);
            s[i].x[s[i].n++] = (double)j.buffer.bytes / seconds * 1e-9;
        }
    }
    rc = probe_report_best(c, "read_gbps", "GB/s", n_threads, s, PROBE_READ_MAX);
    probe_buffer_close(&j.buffer);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int counts[PROBE_COUNTS_MAX];
    int n = probe_thread_counts(c->n_threads_max, counts), rc = OK;

    for (int i = 0; i < n && rc == OK; i++)
        rc = measure(c, counts[i], c->budget_s / n);
    return rc;
}

const struct probe probe_read = {
    .name = "read",
    .help = "read bandwidth of main memory for 1 .. n threads",
    .run = run,
};
