#include "cpu/cpu.h"

#include <ctype.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/sysfile.h"

/* Of the calling thread. */
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

int cpu_allowed(cpu_set_t set[AFFINITY_BITS / CPU_SETSIZE])
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

/* One number of a list; *s moves behind it. */
static int list_number(const char **s, int *out)
{
    char *end;
    long v;

    if (!isdigit((unsigned char)**s))
        return ERR_FORMAT;
    v = strtol(*s, &end, 10);
    if (v > INT_MAX)
        return ERR_FORMAT;
    *s = end;
    *out = (int)v;
    return OK;
}

static int list_error(const char *text, const char *at)
{
    return err_set(ERR_FORMAT,
                   "CPU list \"%.60s\": offset %d: expected numbers as in \"0-3,8\"",
                   text, (int)(at - text));
}

int cpu_list_parse(const char *text, int *cpus, int max, int *n)
{
    const char *s = text;
    int lo, hi;

    *n = 0;
    while (isspace((unsigned char)*s))
        s++;
    while (*s && !isspace((unsigned char)*s)) {
        const char *at = s;

        if (list_number(&s, &lo) != OK)
            return list_error(text, at);
        hi = lo;
        if (*s == '-') {
            s++;
            if (list_number(&s, &hi) != OK || hi < lo)
                return list_error(text, at);
        }
        if (*s == ',' && isdigit((unsigned char)s[1]))
            s++;
        else if (*s && !isspace((unsigned char)*s))
            return list_error(text, s);
        if (hi - lo >= max - *n)
            return err_set(ERR_LIMIT, "CPU list \"%.60s\": more than %d CPUs", text, max);
        for (int c = lo; c <= hi; c++)
            cpus[(*n)++] = c;
    }
    return OK;
}

void cpu_list_print(const int *cpus, int n, char *out, int out_n)
{
    int at = 0;

    if (out_n < 1)
        return;
    out[0] = '\0';
    for (int i = 0, j; i < n && at < out_n; i = j) {
        const char *sep = i ? "," : "";

        for (j = i + 1; j < n && cpus[j] == cpus[j - 1] + 1;)
            j++;
        if (j - i == 1)
            at += snprintf(out + at, (size_t)(out_n - at), "%s%d", sep, cpus[i]);
        else
            at += snprintf(out + at, (size_t)(out_n - at), "%s%d-%d", sep, cpus[i],
                           cpus[j - 1]);
    }
}
