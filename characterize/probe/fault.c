/* The cost of the first touch of a page, small and huge: the price of memory that is not
 * taken before serving begins. */
#include <sys/mman.h>
#include <unistd.h>

#include "characterize/pages.h"
#include "characterize/trial.h"

#define BYTES_SMALL ((size_t)16 << 20) /* a trial of some milliseconds each */
#define BYTES_HUGE  ((size_t)64 << 20)
#define BYTES_MAX   ((size_t)1 << 30) /* of all threads, so that no memory runs short */

struct job {
    struct probe_pages pages;
    size_t part_bytes;
    struct par_team *team;
    int n_threads;
};

static void touch(void *arg, int id, int n_threads)
{
    const struct job *j = arg;
    struct probe_pages part = {j->pages.p + (size_t)id * j->part_bytes, j->part_bytes};

    (void)n_threads;
    probe_pages_touch(&part);
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    (void)i;
    if (madvise(j->pages.p, j->pages.bytes, MADV_DONTNEED) != 0)
        return err_set(ERR_UNSUPPORTED, "the kernel does not take pages back");
    *t = probe_time(j->team, j->n_threads, touch, j);
    return OK;
}

/* The part of each thread, in whole pages, one at least. */
static size_t part_of(int n_threads, int huge)
{
    size_t part = huge ? BYTES_HUGE : BYTES_SMALL, most = BYTES_MAX / (size_t)n_threads;

    part = part < most ? part : most;
    return (part + PROBE_HUGE_BYTES - 1) / PROBE_HUGE_BYTES * PROBE_HUGE_BYTES;
}

MUST static int measure(struct probe_ctx *c, int n_threads, int huge, double budget_s)
{
    const char *name = huge ? "fault_huge_ns" : "fault_small_ns";
    size_t page = huge ? PROBE_HUGE_BYTES : (size_t)sysconf(_SC_PAGESIZE);
    struct job j = {
        .part_bytes = part_of(n_threads, huge), .team = c->team, .n_threads = n_threads};
    struct measure *m = NULL;
    int rc = probe_pages_open(&j.pages, j.part_bytes * (size_t)n_threads, huge);

    if (rc == OK)
        probe_time(c->team, n_threads, touch, &j);
    if (rc == OK && huge)
        rc = probe_pages_check_huge(&j.pages);
    if (rc == OK)
        rc = probe_measure(&m, 1, budget_s, trial, &j);
    if (rc == OK)
        rc = probe_report_ns(c, name, n_threads, m, 0, (double)(j.part_bytes / page));
    else
        rc = probe_report_none(c, name, "ns", n_threads, err_msg());
    measure_close(&m);
    probe_pages_close(&j.pages);
    return rc;
}

static int run(struct probe_ctx *c)
{
    int counts[2] = {1, c->n_threads_max}, n = c->n_threads_max > 1 ? 2 : 1, rc = OK;

    for (int i = 0; i < n; i++)
        for (int huge = 0; huge < 2 && rc == OK; huge++)
            rc = measure(c, counts[i], huge, c->budget_s / (2 * n));
    return rc;
}

const struct probe probe_fault = {
    .name = "fault",
    .help = "first touch of a small and of a huge page, 1 thread and all at once",
    .full = true,
    .run = run,
};
