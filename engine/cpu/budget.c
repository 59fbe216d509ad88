#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "cpu/sysfile.h"

/* ---- pinning the calling thread ---- */

/* The pinning of the calling thread. */
static _Thread_local struct {
    int depth, cpu;                                /* pinned as often, at last to it */
    cpu_set_t before[AFFINITY_BITS / CPU_SETSIZE]; /* where depth > 0 */
} pinned;

int cpu_pin_self(int cpu)
{
    cpu_set_t set;

    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return err_set(ERR_ARG, "CPU %d: expected 0 .. %d", cpu, CPU_SETSIZE - 1);
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        return err_set(ERR_IO, "cannot pin a thread to CPU %d: %m", cpu);
    pinned.cpu = cpu;
    return OK;
}

int cpu_pin_begin(int cpu)
{
    if (pinned.depth == 0 &&
        sched_getaffinity(0, sizeof(pinned.before), pinned.before) != 0)
        return err_set(ERR_IO, "cannot read the CPU affinity: %m");
    TRY(cpu_pin_self(cpu));
    pinned.depth++;
    return OK;
}

void cpu_pin_again(int cpu)
{
    if (pinned.cpu != cpu && cpu_pin_self(cpu) != OK)
        err_clear(); /* it has been possible before; slower, not wrong */
}

void cpu_pin_end(void)
{
    if (--pinned.depth == 0)
        sched_setaffinity(0, sizeof(pinned.before), pinned.before);
}

/* Another process's mask, or one that was set since, is not that of the pinning. */
static bool is_pinned(const cpu_set_t *now, size_t bytes)
{
    return pinned.depth > 0 && CPU_COUNT_S(bytes, now) == 1 &&
           CPU_ISSET_S((size_t)pinned.cpu, bytes, now);
}

/* The CPUs that the calling thread may use, but for its own pinning. ERR_IO. */
MUST static int allowed_cpus(cpu_set_t set[AFFINITY_BITS / CPU_SETSIZE])
{
    if (sched_getaffinity(0, AFFINITY_BITS / 8, set) != 0)
        return err_set(ERR_IO, "cannot read the CPU affinity: %m");
    if (is_pinned(set, AFFINITY_BITS / 8))
        memcpy(set, pinned.before, AFFINITY_BITS / 8);
    return OK;
}

int cpu_current(void)
{
    return sched_getcpu();
}

/* ---- the CPUs to use, and why ---- */

struct quota {
    double cpus; /* NaN: none */
    int version;
};

/* The limit that one cgroup directory sets, NaN if none. */
static double quota_of_dir(const char *root, const char *dir, int version)
{
    char text[64], unlimited[8];
    double quota = 0, period = 100000;

    if (version == 2) {
        if (cpu_file_read(text, sizeof(text), root, "%s/cpu.max", dir) != OK ||
            sscanf(text, "%7[a-z]", unlimited) == 1 ||
            sscanf(text, "%lf %lf", &quota, &period) < 1)
            return NAN;
    } else {
        if (cpu_file_read(text, sizeof(text), root, "%s/cpu.cfs_quota_us", dir) != OK)
            return NAN;
        quota = atof(text);
        if (cpu_file_read(text, sizeof(text), root, "%s/cpu.cfs_period_us", dir) == OK)
            period = atof(text);
    }
    return quota > 0 && period > 0 ? quota / period : NAN;
}

struct quota_search {
    const char *root;
    struct quota *tightest;
    int version;
};

static void lower_quota(void *ctx, const char *dir)
{
    const struct quota_search *s = ctx;
    double v = quota_of_dir(s->root, dir, s->version);

    if (!isnan(v) && !(s->tightest->cpus <= v))
        *s->tightest = (struct quota){v, s->version};
}

/* The tightest limit between our cgroup and the mount point: each ancestor's binds too.
 */
MUST static int quota_up_the_tree(struct quota *q, const char *root, int version)
{
    struct quota_search s = {root, q, version};

    return cpu_cgroup_each(root, "cpu", version, lower_quota, &s);
}

/* Is `cpu` the first of its core among the allowed ones? 1, 0, or -1: siblings unknown.
 */
static int first_of_core(const char *root, int cpu, const bool *allowed)
{
    char text[512];
    int siblings[64], n;

    if (cpu_file_read(text, sizeof(text), root,
                      "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                      cpu) != OK &&
        cpu_file_read(text, sizeof(text), root,
                      "/sys/devices/system/cpu/cpu%d/topology/core_cpus_list", cpu) != OK)
        return -1;
    if (cpu_list_parse(text, siblings, 64, &n) != OK) {
        err_clear();
        return -1;
    }
    for (int i = 0; i < n; i++) {
        if (siblings[i] < cpu && allowed[siblings[i]])
            return 0;
    }
    return 1;
}

/* *n: CPUs that are online; it stays where the system does not say. ERR_NOMEM. */
MUST static int count_online(int *n, const char *root)
{
    char text[4096];
    int *cpus, found;

    if (cpu_file_read(text, sizeof(text), root, "/sys/devices/system/cpu/online") != OK)
        return OK;
    cpus = mem_new(MEM_OTHER, AFFINITY_BITS, sizeof(*cpus));
    if (!cpus)
        return ERR_NOMEM;
    if (cpu_list_parse(text, cpus, AFFINITY_BITS, &found) != OK)
        err_clear();
    else if (found > 0)
        *n = found;
    mem_free(cpus);
    return OK;
}

static void report_why(struct cpu_budget *b, const struct quota *q, bool siblings_known)
{
    char quota[64];

    if (isnan(q->cpus))
        snprintf(quota, sizeof(quota), "no cgroup quota");
    else
        snprintf(quota, sizeof(quota), "quota %.2f CPUs (cgroup v%d)", q->cpus,
                 q->version);
    snprintf(b->reason, sizeof(b->reason), "%d of %d CPUs: %s, affinity allows %d, %d %s",
             b->n, b->n_online, quota, b->n_allowed, b->n_cores,
             siblings_known ? "physical cores" : "taken as cores (SMT siblings unknown)");
}

int cpu_budget_get_at(struct cpu_budget *out, const char *root, const int *allowed,
                      int n_allowed)
{
    static const struct cpu_budget zero;
    struct quota q = {.cpus = NAN};
    bool may[AFFINITY_BITS] = {false};
    bool siblings_known = true;

    *out = zero;
    if (n_allowed < 1)
        return err_set(ERR_ARG, "CPU budget: the affinity mask is empty");
    for (int i = 0; i < n_allowed; i++) {
        if (allowed[i] < 0 || allowed[i] >= AFFINITY_BITS)
            return err_set(ERR_ARG, "CPU budget: CPU %d: expected 0 .. %d", allowed[i],
                           AFFINITY_BITS - 1);
        may[allowed[i]] = true;
    }
    for (int c = 0; c < AFFINITY_BITS; c++) {
        int first = may[c] ? first_of_core(root, c, may) : 0;

        out->n_allowed += may[c];
        siblings_known &= first >= 0;
        if (first && out->n_cores < CPU_MAX)
            out->cpus[out->n_cores++] = c;
    }
    TRY(quota_up_the_tree(&q, root, 1));
    TRY(quota_up_the_tree(&q, root, 2));
    out->n_online = out->n_allowed;
    TRY(count_online(&out->n_online, root));
    out->quota_cpus = q.cpus;
    out->n = out->n_cores;
    if (q.cpus < out->n) /* false for NaN */
        out->n = q.cpus < 1 ? 1 : (int)q.cpus;
    report_why(out, &q, siblings_known);
    return OK;
}

int cpu_budget_get(struct cpu_budget *out)
{
    cpu_set_t set[AFFINITY_BITS / CPU_SETSIZE];
    int *allowed, n = 0, rc;

    TRY(allowed_cpus(set));
    allowed = mem_new(MEM_OTHER, AFFINITY_BITS, sizeof(*allowed));
    if (!allowed)
        return ERR_NOMEM;
    for (int i = 0; i < AFFINITY_BITS; i++) {
        if (CPU_ISSET_S((size_t)i, sizeof(set), set))
            allowed[n++] = i;
    }
    rc = cpu_budget_get_at(out, "", allowed, n);
    mem_free(allowed);
    return rc;
}
