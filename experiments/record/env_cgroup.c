#include "experiments/record/env_cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "experiments/record/env_read.h"

#define MOUNT "/sys/fs/cgroup"

/* Is `word` one of the comma-separated `list`? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (; list; list = strchr(list, ','), list += list != NULL)
        if (strncmp(list, word, n) == 0 && (list[n] == 0 || list[n] == ','))
            return true;
    return false;
}

/* Our group in the hierarchy of `controller`; "" stands for version 2's only one. */
static bool group_of(const char *controller, char *group, size_t n)
{
    char line[1024];
    bool found = false;
    FILE *f = fopen("/proc/self/cgroup", "re");

    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        list++;
        path[strcspn(path, "\n")] = 0;
        found = *controller ? listed(list, controller) : *list == 0;
        if (found)
            snprintf(group, n, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    fclose(f);
    return found;
}

static bool is_v1(void)
{
    return access(MOUNT "/cgroup.controllers", F_OK) != 0;
}

/* Path of a controller's file, for example ("cpu", "cpu.stat"): in our own group if it
 * can be seen from here, else at the root of the mount (a container shows its group as
 * the root). NULL: neither version has it. */
static const char *path_of(const char *controller, const char *file, char *out, size_t n)
{
    bool v1 = is_v1();
    char group[768];

    if (group_of(v1 ? controller : "", group, sizeof(group))) {
        snprintf(out, n, MOUNT "%s%s%s/%s", v1 ? "/" : "", v1 ? controller : "", group,
                 file);
        if (access(out, R_OK) == 0)
            return out;
    }
    snprintf(out, n, MOUNT "%s%s/%s", v1 ? "/" : "", v1 ? controller : "", file);
    return access(out, R_OK) == 0 ? out : NULL;
}

static json_t *limit(const char *controller, const char *file)
{
    char path[1024];

    return path_of(controller, file, path, sizeof(path))
               ? env_read_json(path)
               : env_unavailable(file, "no such file in our control group");
}

json_t *env_cgroup_json(void)
{
    if (is_v1())
        return json_pack("{s:i s:o s:o s:o s:o s:o s:o}", "version", 1, "cpu_quota_us",
                         limit("cpu", "cpu.cfs_quota_us"), "cpu_period_us",
                         limit("cpu", "cpu.cfs_period_us"), "cpu_stat",
                         limit("cpu", "cpu.stat"), "cpuset_cpus",
                         limit("cpuset", "cpuset.effective_cpus"), "cpuset_mems",
                         limit("cpuset", "cpuset.effective_mems"), "memory_limit_bytes",
                         limit("memory", "memory.limit_in_bytes"));
    return json_pack("{s:i s:o s:o s:o s:o s:o}", "version", 2, "cpu_max",
                     limit("cpu", "cpu.max"), "cpu_stat", limit("cpu", "cpu.stat"),
                     "cpuset_cpus", limit("cpuset", "cpuset.cpus.effective"),
                     "cpuset_mems", limit("cpuset", "cpuset.mems.effective"),
                     "memory_max", limit("memory", "memory.max"));
}
