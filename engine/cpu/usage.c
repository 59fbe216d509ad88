#include "cpu/usage.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cpu/sysfile.h"

#define NS_PER_S INT64_C(1000000000)
/* One line for each CPU of some 100 bytes; the interrupts that follow are not needed. */
#define STAT_BYTES ((size_t)CPU_MAX * 128)

static const char *files_below = ""; /* a test's folder */

void cpu_usage_set_root(const char *root)
{
    files_below = root ? root : "";
}

static int64_t ns_of_ticks(int64_t ticks)
{
    return ticks * (NS_PER_S / sysconf(_SC_CLK_TCK));
}

/* ---- the CPUs ---- */

static bool is_listed(const int *cpus, int n, int cpu)
{
    for (int i = 0; i < n; i++)
        if (cpus[i] == cpu)
            return true;
    return false;
}

/* The lines "cpu0 user nice system idle iowait irq softirq steal ..." of our CPUs. */
MUST static int read_stat(struct cpu_usage *u, const char *root, const int *cpus)
{
    char *text = mem_new(MEM_OTHER, 1, STAT_BYTES), *save = NULL;
    int64_t busy = 0, steal = 0;
    int n = 0;

    if (!text)
        return ERR_NOMEM;
    if (cpu_file_read(text, STAT_BYTES, root, "/proc/stat") == OK) {
        char *line = strtok_r(text, "\n", &save);

        for (; line; line = strtok_r(NULL, "\n", &save)) {
            int64_t v[8];
            int cpu;

            if (sscanf(line,
                       "cpu%d %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                       " %" SCNd64 " %" SCNd64 " %" SCNd64,
                       &cpu, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
                       &v[7]) != 9 ||
                !is_listed(cpus, u->n_cpus, cpu))
                continue;
            busy += v[0] + v[1] + v[2] + v[5] + v[6];
            steal += v[7];
            n++;
        }
    }
    if (n == u->n_cpus && busy > 0) { /* some sandboxes write zeros */
        u->busy_ns = ns_of_ticks(busy);
        u->steal_ns = ns_of_ticks(steal);
    }
    mem_free(text);
    return OK;
}

/* The number in a file of /sys/devices/system/cpu/cpuN; NaN: there is none. */
static double cpu_number(const char *root, int cpu, const char *file)
{
    char text[64];
    double v;

    if (cpu_file_read(text, sizeof(text), root, "/sys/devices/system/cpu/cpu%d/%s", cpu,
                      file) != OK ||
        sscanf(text, "%lf", &v) != 1 || v <= 0)
        return NAN;
    return v;
}

static void read_speed(struct cpu_usage *u, const char *root, const int *cpus)
{
    for (int i = 0; i < u->n_cpus; i++) {
        double hot = cpu_number(root, cpus[i], "thermal_throttle/core_throttle_count");

        u->mhz =
            fmax(u->mhz, cpu_number(root, cpus[i], "cpufreq/scaling_cur_freq") / 1e3);
        if (!isnan(hot))
            u->n_hot = (u->n_hot < 0 ? 0 : u->n_hot) + (int64_t)hot;
    }
    u->nominal_mhz = cpu_number(root, cpus[0], "cpufreq/base_frequency") / 1e3;
    if (isnan(u->nominal_mhz))
        u->nominal_mhz = cpu_number(root, cpus[0], "acpi_cppc/nominal_freq");
    if (cpu_file_read(u->governor, sizeof(u->governor), root,
                      "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor",
                      cpus[0]) != OK)
        u->governor[0] = '\0';
}

/* ---- the processes ---- */

struct process {
    int64_t pid, parent, ticks;
};

/* "pid (any name) state ppid ..." with user, system, and the same of children that ended
 * as fields 14 to 17. */
static bool read_process(struct process *p, const char *root, const char *pid)
{
    char text[1024];
    const char *rest;
    int64_t t[4];

    *p = (struct process){.pid = -1};
    if (cpu_file_read(text, sizeof(text), root, "/proc/%s/stat", pid) != OK)
        return false; /* it has just ended */
    rest = strrchr(text, ')');
    if (!rest || sscanf(rest,
                        ") %*c %" SCNd64 " %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNd64
                        " %" SCNd64 " %" SCNd64 " %" SCNd64,
                        &p->parent, &t[0], &t[1], &t[2], &t[3]) != 5)
        return false;
    p->pid = strtoll(text, NULL, 10);
    p->ticks = t[0] + t[1] + t[2] + t[3];
    return true;
}

/* *list: every process, mem_free(). */
MUST static int read_processes(struct process **list, size_t *n, const char *root)
{
    size_t max = 0;
    int rc = OK;
    struct dirent *e;
    char path[1024];
    DIR *d;

    *list = NULL;
    *n = 0;
    snprintf(path, sizeof(path), "%s/proc", root);
    d = opendir(path);
    while (d && rc == OK && (e = readdir(d))) {
        struct process p, *more;

        if (!isdigit((unsigned char)e->d_name[0]) || !read_process(&p, root, e->d_name))
            continue;
        if (*n == max) {
            max = max * 2 + 64;
            more = mem_resize(MEM_OTHER, *list, max, sizeof(p));
            rc = more ? OK : ERR_NOMEM;
            *list = more ? more : *list;
        }
        if (rc == OK)
            (*list)[(*n)++] = p;
    }
    if (d)
        closedir(d);
    return rc;
}

/* Is p's parent the process `self` or one of the first n of the list? */
static bool is_child(const struct process *p, int64_t self, const struct process *list,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].pid == p->parent)
            return true;
    return p->parent == self;
}

/* Our own time and that of the processes that descend from us: ranks, baselines, tools. */
MUST static int read_self(struct cpu_usage *u, const char *root)
{
    size_t n, n_ours = 0, before;
    struct process self, *all;
    int rc;

    if (!read_process(&self, root, "self"))
        return OK;
    u->self_ns = ns_of_ticks(self.ticks);
    rc = read_processes(&all, &n, root);
    do { /* those that were found to be ours go to the front of the list */
        before = n_ours;
        for (size_t i = n_ours; i < n; i++) {
            struct process p = all[i];

            if (!is_child(&p, self.pid, all, n_ours))
                continue;
            u->self_ns += ns_of_ticks(p.ticks);
            all[i] = all[n_ours];
            all[n_ours++] = p;
        }
    } while (n_ours > before);
    mem_free(all);
    return rc;
}

/* ---- the control group ---- */

struct quota_stat {
    const char *root;
    struct cpu_usage *u;
};

/* The nearest group that counts. */
static void read_throttled(void *ctx, const char *dir)
{
    struct quota_stat *s = ctx;
    char text[1024], value[32];

    if (s->u->n_throttled >= 0 ||
        cpu_file_read(text, sizeof(text), s->root, "%s/cpu.stat", dir) != OK ||
        !cpu_file_field(text, "nr_throttled", value, sizeof(value)))
        return;
    s->u->n_throttled = strtoll(value, NULL, 10);
    if (cpu_file_field(text, "throttled_usec", value, sizeof(value)))
        s->u->throttled_ns = strtoll(value, NULL, 10) * 1000;
    else if (cpu_file_field(text, "throttled_time", value, sizeof(value)))
        s->u->throttled_ns = strtoll(value, NULL, 10); /* version 1 counts ns */
}

/* ---- the whole ---- */

int cpu_usage_get(struct cpu_usage *out, const int *cpus, int n_cpus)
{
    const char *root = files_below;
    struct quota_stat quota = {root, out};
    struct rusage r;
    char text[128];
    int rc = OK;

    *out = (struct cpu_usage){.n_cpus = n_cpus,
                              .busy_ns = -1,
                              .steal_ns = -1,
                              .self_ns = -1,
                              .n_preempted = -1,
                              .n_major_faults = -1,
                              .throttled_ns = -1,
                              .n_throttled = -1,
                              .n_hot = -1,
                              .load_1min = NAN,
                              .mhz = NAN,
                              .nominal_mhz = NAN};
    for (int version = 2; version >= 1 && rc == OK; version--)
        rc = cpu_cgroup_each(root, "cpu", version, read_throttled, &quota);
    if (n_cpus > 0)
        read_speed(out, root, cpus);
    if (cpu_file_read(text, sizeof(text), root, "/proc/loadavg") == OK &&
        sscanf(text, "%lf", &out->load_1min) != 1)
        out->load_1min = NAN;
    if (cpu_file_read(out->numa_balancing, sizeof(out->numa_balancing), root,
                      "/proc/sys/kernel/numa_balancing") != OK)
        out->numa_balancing[0] = '\0';
    if (getrusage(RUSAGE_SELF, &r) == 0) {
        out->n_preempted = r.ru_nivcsw;
        out->n_major_faults = r.ru_majflt;
    }
    /* These are compared with one another, so they are read last and together. */
    if (rc == OK)
        rc = read_self(out, root);
    if (rc == OK)
        rc = read_stat(out, root, cpus);
    out->wall_ns = (int64_t)clock_ns();
    return rc;
}

int cpu_usage_cpus(int cpus[CPU_MAX])
{
    cpu_set_t set[AFFINITY_BITS / CPU_SETSIZE], all[AFFINITY_BITS / CPU_SETSIZE];
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;

    CPU_ZERO_S(sizeof(all), all);
    while (d && (e = readdir(d)))
        if (isdigit((unsigned char)e->d_name[0]) &&
            sched_getaffinity(atoi(e->d_name), sizeof(set), set) == 0)
            CPU_OR_S(sizeof(all), all, all, set);
    if (d)
        closedir(d);
    for (int i = 0; i < AFFINITY_BITS && n < CPU_MAX; i++)
        if (CPU_ISSET_S((size_t)i, sizeof(all), all))
            cpus[n++] = i;
    return n;
}
