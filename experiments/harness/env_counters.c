#include "experiments/harness/provenance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "experiments/harness/env_cgroup.h"
#include "experiments/harness/env_read.h"

#define NS_PER_S INT64_C(1000000000)

static int64_t steal_ns(void)
{
    char buf[512];
    long long v[8];
    long ticks = sysconf(_SC_CLK_TCK);

    /* cpu user nice system idle iowait irq softirq steal */
    if (!env_read("/proc/stat", buf, sizeof(buf)) || ticks <= 0 ||
        sscanf(buf, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2],
               &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
        return -1;
    return v[7] * (NS_PER_S / ticks);
}

/* The number behind `key` in "key value" lines; -1: none. */
static int64_t stat_value(const char *text, const char *key)
{
    const char *p = strstr(text, key);

    return p ? strtoll(p + strlen(key), NULL, 10) : -1;
}

static void throttling(struct env_counters *c)
{
    char path[1024], buf[512];

    c->throttled_ns = c->n_throttled = -1;
    if (!env_cgroup_path("cpu", "cpu.stat", path, sizeof(path)) ||
        !env_read(path, buf, sizeof(buf)))
        return;
    c->n_throttled = stat_value(buf, "nr_throttled ");
    c->throttled_ns = stat_value(buf, "throttled_time "); /* version 1, ns */
    if (c->throttled_ns < 0) {
        int64_t us = stat_value(buf, "throttled_usec ");
        c->throttled_ns = us < 0 ? -1 : us * 1000;
    }
}

static int64_t ns_of(struct timeval t)
{
    return t.tv_sec * NS_PER_S + t.tv_usec * 1000;
}

void env_counters_read(struct env_counters *c)
{
    struct rusage u;

    c->steal_ns = steal_ns();
    throttling(c);
    c->n_preempted = c->n_major_faults = c->cpu_ns = -1;
    if (getrusage(RUSAGE_SELF, &u) == 0) {
        c->n_preempted = u.ru_nivcsw;
        c->n_major_faults = u.ru_majflt;
        c->cpu_ns = ns_of(u.ru_utime) + ns_of(u.ru_stime);
    }
    if (getloadavg(&c->load_avg_1min, 1) != 1)
        c->load_avg_1min = NAN;
}

static json_t *difference(int64_t before, int64_t after)
{
    return before < 0 || after < 0 ? json_null() : json_integer(after - before);
}

json_t *env_counters_json(const struct env_counters *before,
                          const struct env_counters *after)
{
    json_t *load =
        isnan(after->load_avg_1min) ? json_null() : json_real(after->load_avg_1min);
    json_t *j =
        json_pack("{s:o s:o s:o s:o s:o s:o s:o}", "steal_ns",
                  difference(before->steal_ns, after->steal_ns), "throttled_ns",
                  difference(before->throttled_ns, after->throttled_ns), "n_throttled",
                  difference(before->n_throttled, after->n_throttled), "n_preempted",
                  difference(before->n_preempted, after->n_preempted), "n_major_faults",
                  difference(before->n_major_faults, after->n_major_faults), "cpu_ns",
                  difference(before->cpu_ns, after->cpu_ns), "load_avg_1min", load);

    if (!j)
        err_set(ERR_NOMEM, "out of memory noting the counters");
    return j;
}
