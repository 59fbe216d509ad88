/* baselines/gemm/blis.c - BLIS, OpenMP build. Version 0.9 takes a CPU with AVX-512 that
 * it does not know for a Haswell (Intel) or a generic one (AMD), and yet the Haswell's
 * kernels win for a few rows. No bf16. */
#include <stdio.h>
#include <stdlib.h>
#include <blis.h>

#include "baselines/gemm/support/blas.h"
#include "cpu/cpu.h"

#define BY_ITSELF (-1)

static const struct gemm_setting settings[] = {
    BLAS_SETTINGS("core=skx", NULL, CPU_MASK(AVX512), BLIS_ARCH_SKX),
    BLAS_SETTINGS_SPLIT("core=skx", NULL, CPU_MASK(AVX512), BLIS_ARCH_SKX),
    BLAS_SETTINGS("core=zen3", NULL, CPU_MASK(AVX2), BLIS_ARCH_ZEN3),
    BLAS_SETTINGS_SPLIT("core=zen3", NULL, CPU_MASK(AVX2), BLIS_ARCH_ZEN3),
    BLAS_SETTINGS("core=haswell", NULL, CPU_MASK(AVX2), BLIS_ARCH_HASWELL),
    BLAS_SETTINGS_SPLIT("core=haswell", NULL, CPU_MASK(AVX2), BLIS_ARCH_HASWELL),
    BLAS_SETTINGS("core=zen2", NULL, CPU_MASK(AVX2), BLIS_ARCH_ZEN2),
    BLAS_SETTINGS("core=auto", NULL, 0, BY_ITSELF),
    BLAS_SETTINGS_SPLIT("core=auto", NULL, 0, BY_ITSELF),
    {0},
};

static void version(char *out, size_t n)
{
    snprintf(out, n, "BLIS %s", bli_info_get_version_str());
}

/* The core type's variable holds a number that changes with the version, so it is written
 * here, from the header, and read when BLIS starts; one that is not built in ends the
 * process. */
static int took(const struct gemm_setting *s, char *label, size_t n)
{
    char number[16];

    snprintf(number, sizeof number, "%d", s->size);
    if (s->size != BY_ITSELF)
        setenv("BLIS_ARCH_TYPE", number, 1);
    bli_init();
    if (s->how & BLAS_SPLIT)
        bli_thread_set_num_threads(1); /* in each of the caller's threads */
    return blas_took(s, bli_arch_string(bli_arch_query_id()), label, n);
}

const struct gemm_library gemm_library = {
    .settings = settings,
    .version = version,
    .took = took,
    .open = blas_open,
    .run = blas_run,
};
