#include "experiments/study/support/clock_limit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void path_of(char *out, size_t n, const struct study_clock_limit *l, int cpu)
{
    snprintf(out, n, "%s/sys/devices/system/cpu/cpu%d/cpufreq/scaling_max_freq", l->root,
             cpu);
}

static int read_limit(const struct study_clock_limit *l, int cpu, long *khz)
{
    char path[512];
    FILE *f;
    int n;

    path_of(path, sizeof(path), l, cpu);
    f = fopen(path, "r");
    if (!f)
        return err_set(ERR_UNSUPPORTED, "CPU %d shows no limit of its clock: %m", cpu);
    n = fscanf(f, "%ld", khz);
    fclose(f);
    if (n != 1 || *khz <= 0)
        return err_set(ERR_UNSUPPORTED, "%s: expected a number of kHz", path);
    if (access(path, W_OK) != 0)
        return err_set(ERR_UNSUPPORTED, "the clock of CPU %d may not be limited: %m",
                       cpu);
    return OK;
}

int study_clock_limit_open(struct study_clock_limit *out, const char *root,
                           const int *cpus, int n)
{
    memset(out, 0, sizeof(*out));
    out->root = root;
    out->n = n;
    for (int i = 0; i < n; i++) {
        out->cpus[i] = cpus[i];
        TRY(read_limit(out, cpus[i], &out->khz[i]));
    }
    return OK;
}

static int write_limit(const struct study_clock_limit *l, int cpu, long khz)
{
    char path[512];
    FILE *f;
    int rc;

    path_of(path, sizeof(path), l, cpu);
    f = fopen(path, "w");
    if (!f)
        return err_set(ERR_IO, "%s: %m", path);
    rc = fprintf(f, "%ld\n", khz) > 0 ? OK : ERR_IO;
    if (fclose(f) != 0 || rc != OK)
        return err_set(ERR_IO, "%s: cannot write %ld: %m", path, khz);
    return OK;
}

int study_clock_limit_set(struct study_clock_limit *l, double share)
{
    int rc = OK;

    for (int i = 0; i < l->n && (rc == OK || share == 1); i++) {
        int one = write_limit(l, l->cpus[i], (long)(share * (double)l->khz[i]));

        rc = rc == OK ? one : rc;
    }
    l->lowered = share != 1;
    if (rc != OK && share != 1 && study_clock_limit_set(l, 1) != OK)
        err_clear();
    return rc;
}
