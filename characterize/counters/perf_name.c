/* Translates names of events into the form that the kernel expects. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

#include "characterize/counters/perf_sys.h"
#include "cpu/cpu.h"

#define CACHE(level, op, result)                                                         \
    PERF_TYPE_HW_CACHE, (PERF_COUNT_HW_CACHE_##level) |                                  \
                            (PERF_COUNT_HW_CACHE_OP_##op << 8) |                         \
                            (PERF_COUNT_HW_CACHE_RESULT_##result << 16)
#define HW(x) PERF_TYPE_HARDWARE, PERF_COUNT_HW_##x
#define SW(x) PERF_TYPE_SOFTWARE, PERF_COUNT_SW_##x

static const struct generic {
    const char *name;
    uint32_t type;
    uint64_t config;
} generics[] = {
    {"cycles", HW(CPU_CYCLES)},
    {"instructions", HW(INSTRUCTIONS)},
    {"cache-references", HW(CACHE_REFERENCES)},
    {"cache-misses", HW(CACHE_MISSES)},
    {"branches", HW(BRANCH_INSTRUCTIONS)},
    {"branch-misses", HW(BRANCH_MISSES)},
    {"bus-cycles", HW(BUS_CYCLES)},
    {"ref-cycles", HW(REF_CPU_CYCLES)},
    {"L1-dcache-loads", CACHE(L1D, READ, ACCESS)},
    {"L1-dcache-load-misses", CACHE(L1D, READ, MISS)},
    {"LLC-loads", CACHE(LL, READ, ACCESS)},
    {"LLC-load-misses", CACHE(LL, READ, MISS)},
    {"dTLB-loads", CACHE(DTLB, READ, ACCESS)},
    {"dTLB-load-misses", CACHE(DTLB, READ, MISS)},
    {"node-loads", CACHE(NODE, READ, ACCESS)},
    {"node-load-misses", CACHE(NODE, READ, MISS)},
    {"page-faults", SW(PAGE_FAULTS)},
    {"minor-faults", SW(PAGE_FAULTS_MIN)},
    {"major-faults", SW(PAGE_FAULTS_MAJ)},
    {"context-switches", SW(CONTEXT_SWITCHES)},
    {"cpu-migrations", SW(CPU_MIGRATIONS)},
    {"task-clock", SW(TASK_CLOCK)},
};
#define N_GENERICS (sizeof(generics) / sizeof(generics[0]))

static struct counters_perf_event event_of(uint32_t type, uint64_t config)
{
    struct counters_perf_event e = {.cpu = -1};

    e.attr.size = sizeof(e.attr);
    e.attr.type = type;
    e.attr.config = config;
    /* The work alone: also what level 2 of perf_event_paranoid allows. Switches and
     * migrations happen inside the kernel, where excluding it would count a false 0. */
    e.attr.exclude_hv = 1;
    e.attr.exclude_kernel =
        type != PERF_TYPE_SOFTWARE || (config != PERF_COUNT_SW_CONTEXT_SWITCHES &&
                                       config != PERF_COUNT_SW_CPU_MIGRATIONS);
    return e;
}

/* ---- files of a PMU ---- */

static bool read_file(char *out, size_t n, const char *pmu, const char *dir,
                      const char *file)
{
    char path[512];
    FILE *f;
    size_t got;

    snprintf(path, sizeof(path), "%s/%s%s%s/%s", counters_kernel_of()->devices, pmu,
             *dir ? "/" : "", dir, file);
    f = fopen(path, "re");
    if (!f)
        return false;
    got = fread(out, 1, n - 1, f);
    fclose(f);
    out[got] = 0;
    out[strcspn(out, "\n")] = 0;
    return true;
}

/* Put `value` into the bits that a format file names: "config:0-7,32-35". */
static bool put_bits(struct perf_event_attr *a, const char *format, uint64_t value)
{
    static const char *const words[] = {"config:", "config1:", "config2:"};
    uint64_t *into[] = {(uint64_t *)&a->config, (uint64_t *)&a->config1,
                        (uint64_t *)&a->config2};
    const char *p = NULL;
    uint64_t bits = 0;

    for (size_t i = 0; i < 3 && !p; i++)
        if (strncmp(format, words[i], strlen(words[i])) == 0) {
            p = format + strlen(words[i]);
            into[0] = into[i];
        }
    while (p && *p) {
        char *end;
        unsigned long lo = strtoul(p, &end, 10), hi = lo;

        if (end == p)
            return false;
        if (*end == '-')
            hi = strtoul(end + 1, &end, 10);
        if (hi > 63 || lo > hi)
            return false;
        for (unsigned long b = lo; b <= hi; b++, value >>= 1)
            bits |= (value & 1) << b;
        p = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            return false;
    }
    *into[0] |= bits;
    return p && value == 0; /* a value with more bits than the field is another event */
}

/* "event=0xd0,umask=0x81,edge": a term without a value is 1. */
static int put_terms(struct counters_perf_event *e, const char *pmu, const char *terms,
                     const char *name, struct counters_value *v)
{
    char copy[256], *save = NULL;

    snprintf(copy, sizeof(copy), "%s", terms);
    for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        char format[128], *eq = strchr(t, '='), *end = NULL;
        uint64_t value = 1;

        if (eq) {
            *eq = 0;
            value = strtoull(eq + 1, &end, 0);
            if (end == eq + 1 || *end) {
                counters_none(v, EINVAL, "%s: %s: expected a number, found \"%s\"", name,
                              t, eq + 1);
                return ERR_FORMAT;
            }
        }
        if (strchr(t, '/') || !read_file(format, sizeof(format), pmu, "format", t)) {
            counters_none(v, ENOENT, "%s: %s has no field \"%s\"", name, pmu, t);
            return ERR_NOTFOUND;
        }
        if (!put_bits(&e->attr, format, value)) {
            counters_none(v, EINVAL, "%s: %s=0x%llx does not fit \"%s\"", name, t,
                          (unsigned long long)value, format);
            return ERR_FORMAT;
        }
    }
    return OK;
}

/* The unit's name for `what`; ERR_NOTFOUND: it knows no such event. */
static int unit_event(struct counters_perf_event *e, const char *pmu, const char *what,
                      const char *name, struct counters_value *v)
{
    char text[256];

    if (!read_file(text, sizeof(text), pmu, "", "type")) {
        counters_none(v, ENOENT, "%s: no unit \"%s\" here", name, pmu);
        return ERR_NOTFOUND;
    }
    *e = event_of((uint32_t)strtoul(text, NULL, 10), 0);
    if (!strchr(what, '=') && !strchr(what, '/') &&
        read_file(text, sizeof(text), pmu, "events", what))
        return put_terms(e, pmu, text, name, v);
    return put_terms(e, pmu, what, name, v);
}

/* A core's unit is one part; one outside the cores has a CPU in its cpumask for each
 * package (or die) that has such a unit, each of them a part. */
static int parse_unit(struct counters_perf_event *out, int *n, const char *pmu,
                      const char *what, const char *name, struct counters_value *v)
{
    struct counters_perf_event e;
    int cpus[COUNTERS_PARTS_MAX] = {-1}, n_cpus = 1, rc;
    char mask[256];

    rc = unit_event(&e, pmu, what, name, v);
    if (rc == OK && read_file(mask, sizeof(mask), pmu, "", "cpumask")) {
        e.attr.exclude_kernel = e.attr.exclude_hv = 0; /* a unit knows no modes */
        rc = cpu_list_parse(mask, cpus, COUNTERS_PARTS_MAX, &n_cpus);
        if (rc != OK)
            counters_none(v, EINVAL, "%s: cpumask of %s: %s", name, pmu, err_msg());
    }
    if (rc == OK && *n + n_cpus > COUNTERS_PARTS_MAX) {
        counters_none(v, E2BIG, "%s: more than %d units", name, COUNTERS_PARTS_MAX);
        rc = ERR_FORMAT; /* not ERR_LIMIT: another pass has no more room for it */
    }
    for (int i = 0; i < n_cpus && rc == OK; i++) {
        out[*n] = e;
        out[(*n)++].cpu = cpus[i];
    }
    return rc;
}

static int by_length_then_name(const struct dirent **a, const struct dirent **b)
{
    size_t n = strlen((*a)->d_name), m = strlen((*b)->d_name);

    return n != m ? (n > m) - (n < m) : strcmp((*a)->d_name, (*b)->d_name);
}

/* Every unit whose name matches and that knows the event: next to memory channels stand
 * free running counters of a similar name that do not. */
static int parse_units(const char *pmu, const char *what, const char *name,
                       struct counters_perf_event *out, int *n, struct counters_value *v)
{
    struct dirent **list = NULL;
    int found, n_unknown = 0, rc = OK;

    found = scandir(counters_kernel_of()->devices, &list, NULL, by_length_then_name);
    for (int i = 0; i < found; i++) {
        if (rc == OK && list[i]->d_name[0] != '.' &&
            fnmatch(pmu, list[i]->d_name, 0) == 0) {
            rc = parse_unit(out, n, list[i]->d_name, what, name, v);
            if (rc == ERR_NOTFOUND)
                n_unknown++, rc = OK;
        }
        free(list[i]);
    }
    free(list);
    if (rc == OK && *n > 0)
        *v = counters_zero(); /* without the reason of a unit that was left out */
    if (rc != OK || *n > 0)
        return rc;
    if (!n_unknown) /* else the last unit's reason stands */
        counters_none(v, ENOENT,
                      "%s: no unit \"%s\" here: no PMU (most virtual machines)", name,
                      pmu);
    return ERR_NOTFOUND;
}

static int parse_sysfs(const char *name, const char *slash,
                       struct counters_perf_event *out, int *n, struct counters_value *v)
{
    char pmu[64], what[COUNTERS_NAME_MAX];

    snprintf(pmu, sizeof(pmu), "%.*s", (int)(slash - name), name);
    snprintf(what, sizeof(what), "%s", slash + 1);
    if (what[0] && what[strlen(what) - 1] == '/')
        what[strlen(what) - 1] = 0;
    return strchr(pmu, '*') ? parse_units(pmu, what, name, out, n, v)
                            : parse_unit(out, n, pmu, what, name, v);
}

int counters_perf_parse(const char *name, struct counters_perf_event *out, int *n,
                        struct counters_value *v)
{
    const char *slash = strchr(name, '/'), *names[N_GENERICS + 1] = {NULL};
    char *end;

    *n = 0;
    if (slash)
        return parse_sysfs(name, slash, out, n, v);
    for (size_t i = 0; i < N_GENERICS; i++) {
        names[i] = generics[i].name;
        if (strcmp(name, generics[i].name) == 0) {
            out[(*n)++] = event_of(generics[i].type, generics[i].config);
            return OK;
        }
    }
    if (name[0] == 'r' && strspn(name + 1, "0123456789abcdefABCDEF") > 0) {
        uint64_t code = strtoull(name + 1, &end, 16);

        if (!*end) {
            out[(*n)++] = event_of(PERF_TYPE_RAW, code);
            return OK;
        }
    }
    name_unknown(ERR_NOTFOUND, name, names, "%s: no such event", name);
    counters_none(v, ENOENT, "%s", err_msg());
    return ERR_NOTFOUND;
}
