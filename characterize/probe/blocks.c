/* Read bandwidth of blocks in random order against the same blocks in sequence: what it
 * costs to scatter keys and values over memory, by the size of what stays together. On
 * memory that wants sequences (ODMA's RACM) the factor is 0.3 to 0.7.   Paper: ODMA 2.2. */
#include <stdatomic.h>
#include <stdio.h>

#include "characterize/pages.h"
#include "characterize/trial.h"
#include "cpu/cpu.h"

/* From a line to beyond where the order stops to matter; a block of 16 tokens of keys is
 * 2 to 32 KiB. */
static const size_t sizes[] = {64,       256,      1 << 10,   4 << 10,
                               16 << 10, 64 << 10, 256 << 10, 1 << 20};
#define N_SIZES     (int)(sizeof(sizes) / sizeof(sizes[0]))
#define LINE_BYTES  64
#define TRIAL_BYTES ((size_t)8 << 20) /* of each thread: 1 ms or so */
#define PART_MIN    ((size_t)4 << 20)
/* Four of the caches that it may share, and still little enough to be touched in small
 * pages within a second. */
#define BYTES_MIN ((size_t)512 << 20)
#define BYTES_MAX ((size_t)2 << 30)

struct job {
    struct probe_pages pages;
    size_t part_bytes; /* a power of two */
    size_t block_bytes, trial_bytes;
    int random;
    struct par_team *team;
    int n_threads;
    uint64_t first; /* where this trial begins, in blocks */
    atomic_ullong sum;
};

/* One load brings a line; the memory does the rest of the work. */
static uint64_t read_lines(const char *p, size_t bytes)
{
    uint64_t a = 0, b = 0;

    for (size_t at = 0; at < bytes; at += 2 * LINE_BYTES) {
        a ^= *(const uint64_t *)(p + at);
        if (at + LINE_BYTES < bytes)
            b ^= *(const uint64_t *)(p + at + LINE_BYTES);
    }
    return a ^ b;
}

/* The next block does not depend on what was read, so as many are under way as the CPU
 * can hold: bandwidth, not latency. */
static void read_blocks(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    const char *p = j->pages.p + (size_t)id * j->part_bytes;
    uint64_t mask = j->part_bytes / j->block_bytes - 1, at = j->first & mask, sum = 0;

    (void)n_threads;
    for (size_t done = 0; done < j->trial_bytes; done += j->block_bytes) {
        sum ^= read_lines(p + at * j->block_bytes, j->block_bytes);
        /* visits every block once before any twice; the factor is Knuth's */
        at = (j->random ? at * 6364136223846793005u + 1442695040888963407u : at + 1) &
             mask;
    }
    atomic_fetch_xor_explicit(&j->sum, sum, memory_order_relaxed);
}

static void touch(void *arg, int id, int n_threads)
{
    const struct job *j = arg;
    struct probe_pages part = {j->pages.p + (size_t)id * j->part_bytes, j->part_bytes};

    (void)n_threads;
    probe_pages_touch(&part);
}

/* The i-th size, at random; the last alternative: in sequence. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    j->random = i < N_SIZES;
    j->block_bytes = sizes[i < N_SIZES ? i : N_SIZES - 1];
    *t = probe_time(j->team, j->n_threads, read_blocks, j);
    j->first += 7919 + j->trial_bytes / j->block_bytes; /* elsewhere than the last one */
    return OK;
}

MUST static int measure(struct probe_ctx *c, struct job *j, int huge, double budget_s)
{
    const char *pages = huge ? "huge" : "small";
    double bytes = (double)j->trial_bytes * j->n_threads;
    struct measure *m = NULL;
    char name[48];
    int rc = probe_measure(&m, N_SIZES + 1, budget_s, trial, j);

    snprintf(name, sizeof(name), "sequential_gbps_%s", pages);
    if (rc == OK)
        rc = probe_report_rate(c, name, "GB/s", j->n_threads, m, N_SIZES, 1, bytes);
    for (int i = 0; i < N_SIZES && rc == OK; i++) {
        snprintf(name, sizeof(name), "random_gbps_%s_%zuB", pages, sizes[i]);
        rc = probe_report_rate(c, name, "GB/s", j->n_threads, m, i, 1, bytes);
    }
    measure_close(&m);
    return rc;
}

static size_t part_of(const struct probe_ctx *c, int n_threads)
{
    size_t bytes = c->buffer_bytes ? c->buffer_bytes : 4 * cpu_cache_bytes(3), part;

    if (!c->buffer_bytes && bytes < BYTES_MIN)
        bytes = BYTES_MIN;
    bytes = bytes > BYTES_MAX ? BYTES_MAX : bytes;
    for (part = PART_MIN; part * 2 <= bytes / (size_t)n_threads;)
        part *= 2;
    return part;
}

MUST static int one_kind(struct probe_ctx *c, int huge, double budget_s)
{
    int n_threads = c->n_threads_max, rc;
    struct job j = {
        .part_bytes = part_of(c, n_threads), .team = c->team, .n_threads = n_threads};
    char name[48];

    j.trial_bytes = j.part_bytes < TRIAL_BYTES ? j.part_bytes : TRIAL_BYTES;
    rc = probe_pages_open(&j.pages, j.part_bytes * (size_t)n_threads, huge);
    if (rc == OK) {
        probe_time(c->team, n_threads, touch, &j);
        rc = huge ? probe_pages_check_huge(&j.pages) : OK;
    }
    if (rc == OK) {
        rc = measure(c, &j, huge, budget_s);
    } else {
        snprintf(name, sizeof(name), "random_gbps_%s", huge ? "huge" : "small");
        rc = probe_report_none(c, name, "GB/s", n_threads, err_msg());
    }
    probe_pages_close(&j.pages);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int rc = one_kind(c, 1, c->budget_s / 2);

    return rc == OK ? one_kind(c, 0, c->budget_s / 2) : rc;
}

const struct probe probe_blocks = {
    .name = "blocks",
    .help = "reading blocks in random order against in sequence, by size and pages",
    .full = true,
    .run = run,
};
