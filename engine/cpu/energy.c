#include "cpu/energy.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/sysfile.h"

#define POWERCAP "/sys/class/powercap"

static const char *root = "";

void cpu_energy_set_root(const char *r)
{
    root = r ? r : "";
}

static bool read_u64(const char *dir, const char *file, uint64_t *out)
{
    char text[32], *end;

    if (cpu_file_read(text, sizeof(text), root, POWERCAP "/%s/%s", dir, file) != OK)
        return false;
    *out = strtoull(text, &end, 10);
    return end != text && *end == '\0';
}

/* Cores and graphics are within their package, "psys" is around all of them, and what
 * intel-rapl-mmio shows intel-rapl shows, too. */
static bool counts(const char *dir, const char *name)
{
    return strncmp(dir, "intel-rapl-mmio", 15) != 0 &&
           (strncmp(name, "package-", 8) == 0 || strcmp(name, "dram") == 0);
}

static void add_zone(struct cpu_energy *e, const char *dir, bool *forbidden)
{
    struct cpu_energy_zone z = {.joules = 0};

    if (e->n == CPU_ENERGY_ZONES_MAX || strlen(dir) >= sizeof(z.dir) ||
        cpu_file_read(z.name, sizeof(z.name), root, POWERCAP "/%s/name", dir) != OK ||
        !counts(dir, z.name))
        return;
    memcpy(z.dir, dir, strlen(dir) + 1);
    if (!read_u64(dir, "energy_uj", &z.last_uj)) {
        *forbidden = true;
        return;
    }
    if (!read_u64(dir, "max_energy_range_uj", &z.range_uj))
        z.range_uj = 0;
    e->zone[e->n++] = z;
}

static int find_zones(struct cpu_energy *e)
{
    bool forbidden = false;
    char path[512];
    struct dirent *entry;
    DIR *d;

    snprintf(path, sizeof(path), "%s%s", root, POWERCAP);
    d = opendir(path);
    while (d && (entry = readdir(d)))
        if (entry->d_name[0] != '.')
            add_zone(e, entry->d_name, &forbidden);
    if (d)
        closedir(d);
    if (e->n > 0)
        return OK;
    return forbidden ? err_set(ERR_NOTFOUND,
                               "energy: only root may read the counters in " POWERCAP)
                     : err_set(ERR_NOTFOUND,
                               "energy: this machine shows no counter in " POWERCAP
                               ", as most virtual ones");
}

int cpu_energy_read(struct cpu_energy *e, double *joules)
{
    *joules = 0;
    if (e->n == 0)
        return find_zones(e);
    for (int i = 0; i < e->n; i++) {
        struct cpu_energy_zone *z = &e->zone[i];
        uint64_t now;

        if (!read_u64(z->dir, "energy_uj", &now))
            return err_set(ERR_NOTFOUND, "energy: the counter %s/%s is gone", POWERCAP,
                           z->dir);
        z->joules += 1e-6 * (double)(now >= z->last_uj ? now - z->last_uj
                                                       : now + z->range_uj - z->last_uj);
        z->last_uj = now;
        *joules += z->joules;
    }
    return OK;
}
