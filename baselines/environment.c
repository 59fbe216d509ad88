#include "baselines/environment.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static const char *const foreign[] = {
    "OMP_",  "GOMP_", "KMP_",  "OPENBLAS_", "GOTO_",       "BLIS_",  "ONEDNN_",
    "DNNL_", "MKL_",  "BLAS_", "LIBXSMM_",  "LD_PRELOAD=", "MALLOC_"};

static bool is_foreign(const char *variable)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strncmp(variable, foreign[i], strlen(foreign[i])) == 0)
            return true;
    return false;
}

int sut_environment(char ***out, char *const *set, int n_set)
{
    int n = 0, n_ours = 0;

    while (environ[n_ours])
        n_ours++;
    *out = mem_new(MEM_HARNESS, (size_t)(n_ours + n_set + 1), sizeof **out);
    for (int i = 0; i < n_ours; i++)
        if (!is_foreign(environ[i]))
            (*out)[n++] = environ[i];
    for (int i = 0; i < n_set; i++)
        (*out)[n++] = set[i];
    return OK;
}
