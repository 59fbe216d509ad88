/* How much memory this process may still take. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/sysfile.h"

/* Version 1 writes the largest number of whole pages for "no limit". */
#define NO_LIMIT ((int64_t)1 << 62)

static const char *files_below = ""; /* a test's folder */

void cpu_memory_set_root(const char *root)
{
    files_below = root ? root : "";
}

struct search {
    struct cpu_memory *out;
    int version;
};

/* The number in a file of a cgroup; -1: the file is absent or does not hold a number. */
static int64_t number_in(const char *dir, const char *file)
{
    char text[64];
    int64_t n;

    if (cpu_file_read(text, sizeof(text), files_below, "%s/%s", dir, file) != OK ||
        sscanf(text, "%" SCNd64, &n) != 1)
        return -1;
    return n;
}

/* Pages of files in the cache: the kernel takes them back before it ends a process. */
static int64_t reclaimable_bytes(const char *dir, int version)
{
    static const char *const keys[2][2] = {{"total_inactive_file", "total_active_file"},
                                           {"inactive_file", "active_file"}};
    char text[8192], value[32];
    int64_t sum = 0, n;

    if (cpu_file_read(text, sizeof(text), files_below, "%s/memory.stat", dir) != OK)
        return 0;
    for (int i = 0; i < 2; i++)
        if (cpu_file_field(text, keys[version - 1][i], value, sizeof(value)) &&
            sscanf(value, "%" SCNd64, &n) == 1)
            sum += n;
    return sum;
}

static void limit_of_dir(void *ctx, const char *dir)
{
    static const char *const files[2][2] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes"},
        {"memory.max", "memory.current"}};
    const struct search *s = ctx;
    const char *const *f = files[s->version - 1];
    int64_t limit = number_in(dir, f[0]), used = number_in(dir, f[1]), left;

    if (limit < 0 || limit >= NO_LIMIT)
        return;
    used -= reclaimable_bytes(dir, s->version);
    left = used <= 0 ? limit : used < limit ? limit - used : 0;
    if (left >= s->out->bytes)
        return;
    s->out->bytes = left;
    snprintf(s->out->reason, sizeof(s->out->reason),
             "%.3f GB by %s/%s, of which %.3f GB are used", (double)limit * 1e-9, dir,
             f[0], (double)(limit - left) * 1e-9);
}

static void limit_of_machine(struct cpu_memory *out)
{
    char text[8192], value[32];
    int64_t kib;

    if (cpu_file_read(text, sizeof(text), files_below, "/proc/meminfo") != OK ||
        !cpu_file_field(text, "MemAvailable", value, sizeof(value)) ||
        sscanf(value, "%" SCNd64, &kib) != 1 || kib < 0 || kib >= NO_LIMIT / 1024)
        return;
    out->bytes = kib * 1024;
    snprintf(out->reason, sizeof(out->reason), "MemAvailable in /proc/meminfo");
}

int cpu_memory_get(struct cpu_memory *out)
{
    int rc = OK;

    *out = (struct cpu_memory){.bytes = INT64_MAX, .reason = "no limit is known"};
    limit_of_machine(out);
    for (int version = 1; version <= 2 && rc == OK; version++) {
        struct search s = {out, version};

        rc = cpu_cgroup_each(files_below, "memory", version, limit_of_dir, &s);
    }
    return rc;
}
