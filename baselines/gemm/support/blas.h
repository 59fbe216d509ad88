/* baselines/gemm/support/blas.h - what libraries with the C interface of BLAS share: sgemm
 * with the weights as [k, n] or [n, k], and sgemv for one row. Code, not declarations:
 * each library brings its own cblas.h, with types of its own. Threads: one. */
#ifndef GEMM_BLAS_H
#define GEMM_BLAS_H

#include <cblas.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "baselines/gemm/support/child.h"

enum blas_how { BLAS_GEMM_KN, BLAS_GEMM_NK, BLAS_GEMV_KN, BLAS_GEMV_NK };

/* Four rows of settings: both layouts, and for one row also sgemv. */
#define BLAS_SETTINGS(core, env, size)                                                   \
    {core " op=gemm layout=KN", env, "f32", 0, BLAS_GEMM_KN, size},                      \
        {core " op=gemm layout=NK", env, "f32", 0, BLAS_GEMM_NK, size},                  \
        {core " op=gemv layout=KN", env, "f32", 1, BLAS_GEMV_KN, size},                  \
    {                                                                                    \
        core " op=gemv layout=NK", env, "f32", 1, BLAS_GEMV_NK, size                     \
    }

static struct {
    struct rival_shape shape;
    enum blas_how how;
    void **w;
} blas;

static int blas_open(const struct rival_shape *shape, const struct rival_setting *s)
{
    size_t bytes = (size_t)(shape->n * shape->k) * sizeof(float);
    int rc;

    if (shape->m > INT_MAX || shape->n > INT_MAX || shape->k > INT_MAX)
        return err_set(ERR_LIMIT, "a dimension is larger than %d", INT_MAX);
    blas.shape = *shape;
    blas.how = (enum blas_how)s->how;
    rc = rival_copies(&blas.w, shape->n_copies, bytes);
    if (rc != OK)
        return rc;
    rival_fill(blas.w[0], shape, blas.how == BLAS_GEMM_NK || blas.how == BLAS_GEMV_NK);
    rival_spread(blas.w, shape->n_copies, bytes);
    return OK;
}

static int blas_run(int copy)
{
    int m = (int)blas.shape.m, n = (int)blas.shape.n, k = (int)blas.shape.k;
    const float *a = blas.shape.a, *w = blas.w[copy];
    float *c = blas.shape.c;

    switch (blas.how) {
    case BLAS_GEMM_KN:
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0f, a, k, w, n,
                    0.0f, c, n);
        break;
    case BLAS_GEMM_NK:
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, a, k, w, k,
                    0.0f, c, n);
        break;
    case BLAS_GEMV_KN:
        cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1.0f, w, n, a, 1, 0.0f, c, 1);
        break;
    case BLAS_GEMV_NK:
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, w, k, a, 1, 0.0f, c, 1);
        break;
    }
    return OK;
}

/* The label with `core` as what the library says it runs as. ERR_UNSUPPORTED when the
 * setting asked for another. */
static int blas_took(const struct rival_setting *s, const char *core, char *label,
                     size_t n)
{
    char wanted[32] = "";
    const char *rest = strchr(s->label, ' ');

    sscanf(s->label, "core=%31s", wanted);
    if (strcasecmp(wanted, "auto") != 0 && strcasecmp(wanted, core) != 0)
        return err_set(ERR_UNSUPPORTED, "core %s asked for, %s taken", wanted, core);
    snprintf(label, n, "core=%s%s", core, rest ? rest : "");
    return OK;
}

#endif
