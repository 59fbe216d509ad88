/* Read bandwidth from the CPUs of one memory node to the memory of another. */
#include <stdatomic.h>
#include <stdio.h>

#include "base/mem.h"
#include "characterize/peak/peak.h"
#include "characterize/trial.h"
#include "cpu/cpu.h"
#include "topo/machine.h"

#define N_SLICES 8
/* Each thread reads at least this: several times its share of the cache, but no more, since every
 * pair touches its memory again. */
#define PART_MIN  ((size_t)64 << 20)
#define PAIRS_MAX 256 /* what the card has room for */

struct job {
    const struct probe_isa *isa;
    struct par_team *team;
    int n_threads; /* that take part */
    char *p;
    size_t part_bytes;
    int cpu_node;      /* os_index of the reading CPUs */
    int part[CPU_MAX]; /* of each thread; -1: it does not read */
    int n_readers, slice, touching;
    atomic_ullong sum;
};

static void body(void *arg, int id, int n_threads)
{
    struct job *j = arg;
    size_t slice = j->part_bytes / N_SLICES;
    char *p = j->p + (size_t)j->part[id] * j->part_bytes;

    (void)n_threads;
    if (j->part[id] < 0)
        return;
    if (j->touching)
        for (size_t i = 0; i < j->part_bytes; i += 4096)
            p[i] = 1;
    else
        atomic_fetch_xor_explicit(&j->sum,
                                  j->isa->read[0](p + (size_t)j->slice * slice, slice),
                                  memory_order_relaxed);
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    (void)i;
    *t = probe_time(j->team, j->n_threads, body, j);
    j->slice = (j->slice + 1) % N_SLICES;
    return OK;
}

MUST static int measure(struct probe_ctx *c, struct job *j, int mem_node, double budget_s)
{
    size_t bytes = j->part_bytes * (size_t)j->n_readers;
    struct measure *m = NULL;
    char name[48];
    int rc;

    /* not "read_gbps": that is the machine's own */
    snprintf(name, sizeof(name), "node_read_gbps_cpu%d_mem%d", j->cpu_node, mem_node);
    j->p = mem_map(MEM_HARNESS, bytes, mem_node);
    if (!j->p)
        return probe_report_none(c, name, "GB/s", j->n_readers, err_msg());
    j->touching = 1;
    probe_time(c->team, c->n_threads_max, body, j);
    j->touching = 0;
    rc = probe_measure(&m, 1, budget_s, trial, j);
    if (rc == OK)
        rc = probe_report_rate(c, name, "GB/s", j->n_readers, m, 0, 1,
                               (double)bytes / N_SLICES);
    measure_close(&m);
    mem_unmap(MEM_HARNESS, j->p, bytes);
    return rc;
}

MUST static int from_node(struct probe_ctx *c, const struct topo_machine *m,
                          struct job *j, double budget_s)
{
    int rc = OK;

    j->n_readers = 0;
    for (int i = 0; i < c->n_threads_max; i++)
        j->part[i] =
            topo_node_of_cpu(m, probe_cpu(c, i)) == j->cpu_node ? j->n_readers++ : -1;
    if (!j->n_readers)
        return OK; /* memory without CPUs of ours */
    for (int i = 0; i < m->n_nodes && rc == OK; i++)
        rc = measure(c, j, m->nodes[i].os_index, budget_s / m->n_nodes);
    return rc;
}

static size_t part_of(const struct probe_ctx *c)
{
    size_t step = N_SLICES * PROBE_CHUNK, bytes = c->buffer_bytes;

    if (!bytes) {
        bytes = 4 * cpu_cache_bytes(3) / (size_t)c->n_threads_max;
        bytes = bytes < PART_MIN ? PART_MIN : bytes;
    }
    return (bytes + step - 1) / step * step;
}

static int run(struct probe_ctx *c)
{
    struct job j = {.isa = probe_widest(),
                    .team = c->team,
                    .n_threads = c->n_threads_max,
                    .part_bytes = part_of(c)};
    struct topo_machine *m = NULL;
    int rc = topo_machine_open(&m, NULL), before = c->n_values;

    if (rc == OK && m->n_nodes * m->n_nodes > PAIRS_MAX)
        rc = err_set(ERR_UNSUPPORTED, "%d memory nodes: too many pairs", m->n_nodes);
    for (int i = 0; rc == OK && i < m->n_nodes; i++) {
        j.cpu_node = m->nodes[i].os_index;
        rc = from_node(c, m, &j, c->budget_s / m->n_nodes);
    }
    if (c->n_values == before && rc != ERR_LIMIT)
        rc = probe_report_none(c, "node_read_gbps", "GB/s", 1,
                               rc == OK ? "no CPU is known to be on a node" : err_msg());
    topo_machine_close(&m);
    return rc;
}

const struct probe probe_node = {
    .name = "node",
    .help = "read bandwidth from each memory node's CPUs to each node's memory",
    .full = true,
    .run = run,
};
