/* Copy and triad, as STREAM counts them: bytes named by the program, not those that a
 * cache fetches in order to overwrite them. Stores through and past the cache are both
 * tried. */
#include "base/mem.h"
#include <math.h>

#include "characterize/peak/peak.h"
#include "characterize/trial.h"

/* Every part holds slices (see read.c) of three arrays. */
#define N_ARRAYS 3
#define N_SLICES 8

struct job {
    int kind; /* 0 copy, 1 triad */
    int variant;
    const struct probe_isa *isa;
    struct par_team *team;
    int n_threads;
    struct probe_buffer buffer;
    int slice;
};

static const struct {
    const char *name;
    int n_arrays; /* that it moves */
} kinds[] = {{"copy_gbps", 2}, {"triad_gbps", 3}};
#define N_KINDS (int)(sizeof(kinds) / sizeof(kinds[0]))

static int has(const struct job *j)
{
    return j->kind == 0 ? j->isa->copy[j->variant] != NULL
                        : j->isa->triad[j->variant] != NULL;
}

static void move_part(void *arg, int id, int n_threads)
{
    const struct job *j = arg;
    size_t part = j->buffer.part_bytes, slice = part / N_SLICES, bytes = slice / N_ARRAYS;
    char *a = j->buffer.p + (size_t)id * part + (size_t)j->slice * slice;

    (void)n_threads;
    if (j->kind == 0)
        j->isa->copy[j->variant](a, a + bytes, bytes);
    else
        j->isa->triad[j->variant]((float *)a, (float *)(a + bytes),
                                  (float *)(a + 2 * bytes), bytes / sizeof(float));
}

/* Every variant of copy, then every one of triad. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    j->kind = i / PROBE_WRITE_MAX;
    j->variant = i % PROBE_WRITE_MAX;
    t->seconds = NAN;
    if (has(j))
        *t = probe_time(j->team, j->n_threads, move_part, j);
    j->slice = (j->slice + 1) % N_SLICES;
    return OK;
}

MUST static int report_none(struct probe_ctx *c, int n_threads)
{
    int rc = OK;

    for (int k = 0; k < N_KINDS && rc == OK; k++)
        rc = probe_report_none(c, kinds[k].name, "GB/s", n_threads, err_msg());
    return rc;
}

MUST static int measure(struct probe_ctx *c, int n_threads, double budget_s)
{
    struct job j = {.isa = probe_widest(), .team = c->team, .n_threads = n_threads};
    struct measure *m = NULL;
    int rc;

    rc = probe_buffer_open(&j.buffer, c, n_threads, N_SLICES * N_ARRAYS * PROBE_CHUNK);
    if (rc == ERR_NOMEM)
        return report_none(c, n_threads);
    rc = probe_measure(&m, N_KINDS * PROBE_WRITE_MAX, budget_s, trial, &j);
    for (int k = 0; k < N_KINDS && rc == OK; k++)
        rc = probe_report_rate(
            c, kinds[k].name, "GB/s", n_threads, m, k * PROBE_WRITE_MAX, PROBE_WRITE_MAX,
            (double)j.buffer.bytes / N_SLICES / N_ARRAYS * kinds[k].n_arrays);
    measure_close(&m);
    probe_buffer_close(&j.buffer);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int counts[PROBE_COUNTS_MAX] = {1, c->n_threads_max};
    int n = c->n_threads_max > 1 ? 2 : 1, rc = OK;

    if (c->full)
        n = probe_thread_counts(c->n_threads_max, counts);
    for (int i = 0; i < n && rc == OK; i++)
        rc = measure(c, counts[i], c->budget_s / n);
    return rc;
}

const struct probe probe_stream = {
    .name = "stream",
    .help = "copy and triad bandwidth for 1 and n threads; of the full card: 1 .. n",
    .run = run,
};
