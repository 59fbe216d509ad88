#include "experiments/record/env.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/build.h"
#include "base/json.h"
#include "base/name.h"
#include "cpu/cpu.h"
#include "experiments/record/provenance.h"

#define CPU0  "/sys/devices/system/cpu/cpu0"
#define MOUNT "/sys/fs/cgroup"

/* --- small files */

const char *env_read(const char *path, char *buf, size_t n)
{
    FILE *f = fopen(path, "re");
    size_t got;
    int failed;

    if (!f)
        return NULL;
    got = fread(buf, 1, n - 1, f);
    failed = ferror(f) ? errno : 0; /* some knobs open and then refuse */
    fclose(f);
    if (failed) {
        errno = failed;
        return NULL;
    }
    while (got > 0 && isspace((unsigned char)buf[got - 1]))
        got--;
    buf[got] = 0;
    return buf;
}

static json_t *unavailable(const char *path, const char *why)
{
    return json_pack("{s:s++}", "unavailable", path, ": ", why);
}

json_t *env_read_json(const char *path)
{
    char buf[512];

    if (!env_read(path, buf, sizeof(buf)))
        return unavailable(path, strerror(errno));
    for (char *p = buf; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    return json_string_lossy(buf);
}

json_t *env_field_json(const char *path, const char *key)
{
    char line[8192]; /* the flags of a processor are one long line */
    size_t n = strlen(key);
    json_t *found = NULL;
    FILE *f = fopen(path, "re");

    if (!f)
        return unavailable(path, strerror(errno));
    while (!found && fgets(line, sizeof(line), f)) {
        char *p = line + n, *end;
        if (strncmp(line, key, n) != 0)
            continue;
        p += strspn(p, " \t");
        if (*p != ':')
            continue; /* a longer key */
        p += 1 + strspn(p + 1, " \t");
        end = p + strlen(p);
        while (end > p && isspace((unsigned char)end[-1]))
            end--;
        found = json_stringn_lossy(p, (size_t)(end - p));
    }
    fclose(f);
    return found ? found : unavailable(path, "no such field");
}

/* --- the control group */

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
               : unavailable(file, "no such file in our control group");
}

/* Files of this process's control group, version 1 or 2: {"version", limits ...}. */
static json_t *cgroup_json(void)
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

/* --- tables of what is read as it stands */

struct env_file {
    const char *key, *path, *field; /* field NULL: the whole file */
};

static const struct env_file cpu_files[] = {
    {"model_name", "/proc/cpuinfo", "model name"},
    {"vendor", "/proc/cpuinfo", "vendor_id"},
    {"family", "/proc/cpuinfo", "cpu family"},
    {"model", "/proc/cpuinfo", "model"},
    {"stepping", "/proc/cpuinfo", "stepping"},
    {"microcode", "/proc/cpuinfo", "microcode"},
    {"mhz_now", "/proc/cpuinfo", "cpu MHz"},
    {"flags", "/proc/cpuinfo", "flags"},
    {"online", "/sys/devices/system/cpu/online", NULL},
    {"smt_active", "/sys/devices/system/cpu/smt/active", NULL},
    {"governor", CPU0 "/cpufreq/scaling_governor", NULL},
    {"frequency_driver", CPU0 "/cpufreq/scaling_driver", NULL},
    {"frequency_min_khz", CPU0 "/cpufreq/scaling_min_freq", NULL},
    {"frequency_max_khz", CPU0 "/cpufreq/scaling_max_freq", NULL},
    {"boost", "/sys/devices/system/cpu/cpufreq/boost", NULL},
    {"no_turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo", NULL},
    {"idle_driver", "/sys/devices/system/cpu/cpuidle/current_driver", NULL},
    {0},
};

static const struct env_file kernel_files[] = {
    {"release", "/proc/sys/kernel/osrelease", NULL},
    {"version", "/proc/sys/kernel/version", NULL},
    {"numa_balancing", "/proc/sys/kernel/numa_balancing", NULL},
    {"perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid", NULL},
    {"randomize_va_space", "/proc/sys/kernel/randomize_va_space", NULL},
    {"sched_autogroup", "/proc/sys/kernel/sched_autogroup_enabled", NULL},
    {"overcommit_memory", "/proc/sys/vm/overcommit_memory", NULL},
    {"swappiness", "/proc/sys/vm/swappiness", NULL},
    {"zone_reclaim_mode", "/proc/sys/vm/zone_reclaim_mode", NULL},
    {"thp_enabled", "/sys/kernel/mm/transparent_hugepage/enabled", NULL},
    {"thp_defrag", "/sys/kernel/mm/transparent_hugepage/defrag", NULL},
    {"nodes_online", "/sys/devices/system/node/online", NULL},
    {"hypervisor", "/sys/hypervisor/type", NULL},
    {"load_average", "/proc/loadavg", NULL},
    {0},
};

static const struct env_file memory_files[] = {
    {"total", "/proc/meminfo", "MemTotal"},
    {"available", "/proc/meminfo", "MemAvailable"},
    {"page_cache", "/proc/meminfo", "Cached"},
    {"swap_total", "/proc/meminfo", "SwapTotal"},
    {"swap_free", "/proc/meminfo", "SwapFree"},
    {"anon_huge_pages", "/proc/meminfo", "AnonHugePages"},
    {"huge_pages_total", "/proc/meminfo", "HugePages_Total"},
    {"huge_pages_free", "/proc/meminfo", "HugePages_Free"},
    {"huge_page_size", "/proc/meminfo", "Hugepagesize"},
    {0},
};

static const struct env_file process_files[] = {
    {"cpus_allowed", "/proc/self/status", "Cpus_allowed_list"},
    {"mems_allowed", "/proc/self/status", "Mems_allowed_list"},
    {0},
};

static json_t *files_json(const struct env_file *files)
{
    json_t *obj = json_object();

    for (; obj && files->key; files++) {
        json_t *v = files->field ? env_field_json(files->path, files->field)
                                 : env_read_json(files->path);
        if (json_object_set_new(obj, files->key, v) != 0) {
            json_decref(obj);
            obj = NULL;
        }
    }
    return obj;
}

/* The kernel's parameters that change what is measured. Others concern the machine's owner only:
 * names of disks and hosts, programs that it starts. Words behind "--" are not the kernel's. */
json_t *env_parameters_json(const char *command_line)
{
    static const char *const kept[] = {"amd_pstate",
                                       "clocksource",
                                       "cpuidle.governor",
                                       "default_hugepagesz",
                                       "hugepages",
                                       "hugepagesz",
                                       "idle",
                                       "intel_idle.max_cstate",
                                       "intel_pstate",
                                       "irqaffinity",
                                       "isolcpus",
                                       "maxcpus",
                                       "mem",
                                       "mitigations",
                                       "nmi_watchdog",
                                       "nohz",
                                       "nohz_full",
                                       "nopti",
                                       "nosmt",
                                       "nr_cpus",
                                       "numa",
                                       "numa_balancing",
                                       "preempt",
                                       "processor.max_cstate",
                                       "rcu_nocbs",
                                       "skew_tick",
                                       "spectre_v2",
                                       "transparent_hugepage",
                                       "tsc",
                                       NULL};
    json_t *list = json_array();

    for (const char *p = command_line; *p;) {
        size_t n = strcspn(p, " \n"), n_name = strcspn(p, "= \n");
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)n_name, p);
        if (strcmp(name, "--") == 0)
            break;
        if (n_name < sizeof(name) && name_index(kept, name) >= 0)
            json_array_append_new(list, json_stringn_lossy(p, n));
        p += n + strspn(p + n, " \n");
    }
    return list;
}

static json_t *kernel_json(void)
{
    char line[8192];
    json_t *obj = files_json(kernel_files);

    json_object_set_new(obj, "parameters",
                        env_read("/proc/cmdline", line, sizeof(line))
                            ? env_parameters_json(line)
                            : env_read_json("/proc/cmdline"));
    return obj;
}

/* "L1 Data 32K", "L1 Instruction 32K", ... of CPU 0 */
static json_t *caches_json(void)
{
    json_t *list = json_array();

    for (int i = 0; list && i < 16; i++) {
        static const char *const parts[] = {"level", "type", "size", "shared_cpu_list"};
        char path[128], text[4][64] = {"", "", "", ""};

        for (int k = 0; k < 4; k++) {
            snprintf(path, sizeof(path), CPU0 "/cache/index%d/%s", i, parts[k]);
            if (!env_read(path, text[k], sizeof(text[k])) && k == 0)
                return list;
        }
        if (json_array_append_new(list, json_pack("{s:s s:s s:s s:s}", "level", text[0],
                                                  "type", text[1], "size", text[2],
                                                  "cpus", text[3])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

/* --- versions of the libraries that really run */

/* hwloc's header belongs to one file of the engine; its version is asked for by name. */
static json_t *hwloc_version(void)
{
    unsigned (*version)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "hwloc_get_api_version");
    unsigned v;

    if (!symbol)
        return unavailable("hwloc", "not linked");
    memcpy(&version, &symbol, sizeof(version));
    v = version();
    return json_sprintf("%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
}

static json_t *versions_json(void)
{
    unsigned major = 0, minor = 0, release = 0;

    H5get_libversion(&major, &minor, &release);
    return json_pack("{s:s s:s s:o s:o}", "libc", gnu_get_libc_version(), "jansson",
                     jansson_version_str(), "hdf5",
                     json_sprintf("%u.%u.%u", major, minor, release), "hwloc",
                     hwloc_version());
}

/* --- the whole */

void env_host(char *out, size_t n)
{
    if (gethostname(out, n) != 0)
        snprintf(out, n, "unknown");
    out[n - 1] = 0; /* a name cut short need not be terminated */
}

json_t *env_json(void)
{
    struct utsname u = {0};
    char host[128];

    uname(&u);
    env_host(host, sizeof(host));
    return json_pack(
        "{s:o s:s s:s s:i s:o s:o s:o s:o s:o s:o s:o}", "host", json_string_lossy(host),
        "arch", u.machine, "system", u.sysname, "page_bytes", (int)sysconf(_SC_PAGESIZE),
        "cpu", files_json(cpu_files), "caches", caches_json(), "kernel", kernel_json(),
        "memory", files_json(memory_files), "process", files_json(process_files),
        "cgroup", cgroup_json(), "versions", versions_json());
}

json_t *provenance_json(void)
{
    struct utsname u = {0};
    char isa[128];

    uname(&u);
    cpu_isa_words(cpu_isa_detected(), isa, sizeof(isa));
    return json_pack("{s:s s:s s:b s:s s:s s:s s:s}", "version", build_info.version,
                     "commit", build_info.commit, "dirty", build_info.dirty, "compiler",
                     build_info.compiler, "flags", build_info.flags, "arch", u.machine,
                     "isa", isa);
}
