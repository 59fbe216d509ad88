/* baselines/gemm/openblas.c - OpenBLAS, OpenMP build. Version 0.3.21 takes CPUs it does
 * not know for a Prescott unless told otherwise. No bf16: Debian builds it without. */
#include <stdio.h>
#include <string.h>

#include "baselines/gemm/support/blas.h"
#include "cpu/cpu.h"

/* Only these core types in Debian's build differ in sgemm for a CPU with AVX2 or AVX-512:
 * Cooperlake's is SkylakeX's. Within a parallel region OpenBLAS computes alone. */
static const struct gemm_setting settings[] = {
    BLAS_SETTINGS("core=SkylakeX", "OPENBLAS_CORETYPE=SkylakeX", CPU_MASK(AVX512), 0),
    BLAS_SETTINGS_SPLIT("core=SkylakeX", "OPENBLAS_CORETYPE=SkylakeX", CPU_MASK(AVX512),
                        0),
    BLAS_SETTINGS("core=Haswell", "OPENBLAS_CORETYPE=Haswell", CPU_MASK(AVX2), 0),
    BLAS_SETTINGS_SPLIT("core=Haswell", "OPENBLAS_CORETYPE=Haswell", CPU_MASK(AVX2), 0),
    BLAS_SETTINGS("core=Zen", "OPENBLAS_CORETYPE=Zen", CPU_MASK(AVX2), 0),
    BLAS_SETTINGS("core=auto", NULL, 0, 0),
    BLAS_SETTINGS_SPLIT("core=auto", NULL, 0, 0),
    {0},
};

static void version(char *out, size_t n)
{
    char number[32] = "?";

    sscanf(openblas_get_config(), "OpenBLAS %31s", number);
    snprintf(out, n, "OpenBLAS %s", number);
}

static int took(const struct gemm_setting *s, char *label, size_t n)
{
    return blas_took(s, openblas_get_corename(), label, n);
}

const struct gemm_library gemm_library = {
    .settings = settings,
    .version = version,
    .took = took,
    .open = blas_open,
    .run = blas_run,
};
