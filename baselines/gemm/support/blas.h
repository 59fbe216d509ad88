/* baselines/gemm/support/blas.h - what libraries with the C interface of BLAS share: sgemm
 * with the weights as [k, n] or [n, k], and sgemv for one row, with the threads of the
 * library or of the caller. None of them lets weights be packed once. Code, not
 * declarations: each library brings its own cblas.h, with types of its own.
 * Threads: one. */
#ifndef GEMM_BLAS_H
#define GEMM_BLAS_H

#include <cblas.h>
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "baselines/gemm/support/child.h"

enum blas_how { BLAS_GEMV = 1, BLAS_NK = 2, BLAS_SPLIT = 4 }; /* bits */

#define BLAS_ONE(core, op, m_max, env, isa, how, size)                                   \
    {                                                                                    \
        core " op=" op, env, "f32", m_max, isa, how, size                                \
    }
/* Settings of one core type: both layouts, for one row also sgemv. */
#define BLAS_SETTINGS(core, env, isa, size)                                              \
    BLAS_ONE(core, "gemm layout=KN", 0, env, isa, 0, size),                              \
        BLAS_ONE(core, "gemm layout=NK", 0, env, isa, BLAS_NK, size),                    \
        BLAS_ONE(core, "gemv layout=KN", 1, env, isa, BLAS_GEMV, size),                  \
        BLAS_ONE(core, "gemv layout=NK", 1, env, isa, BLAS_GEMV | BLAS_NK, size)
/* The same, the columns shared out by the caller to threads that each call the library,
 * which then computes alone: a few rows profit. */
#define BLAS_SETTINGS_SPLIT(core, env, isa, size)                                        \
    BLAS_ONE(core, "gemm layout=KN threads=split", 0, env, isa, BLAS_SPLIT, size),       \
        BLAS_ONE(core, "gemm layout=NK threads=split", 0, env, isa,                      \
                 BLAS_SPLIT | BLAS_NK, size),                                            \
        BLAS_ONE(core, "gemv layout=KN threads=split", 1, env, isa,                      \
                 BLAS_SPLIT | BLAS_GEMV, size),                                          \
        BLAS_ONE(core, "gemv layout=NK threads=split", 1, env, isa,                      \
                 BLAS_SPLIT | BLAS_GEMV | BLAS_NK, size)

static struct {
    struct gemm_shape shape;
    int how;
    void **w;
} blas;

static int blas_open(const struct gemm_shape *shape, const struct gemm_setting *s)
{
    size_t bytes = (size_t)(shape->n * shape->k) * sizeof(float);

    blas.shape = *shape;
    blas.how = s->how;
    TRY(gemm_copies(&blas.w, shape->n_copies, bytes));
    gemm_fill(blas.w[0], shape, (blas.how & BLAS_NK) != 0);
    gemm_spread(blas.w, shape->n_copies, bytes);
    return OK;
}

/* Columns [from, from + n) of the result. */
static void blas_columns(const float *w, int from, int n)
{
    const int m = (int)blas.shape.m, all = (int)blas.shape.n, k = (int)blas.shape.k;
    const bool nk = blas.how & BLAS_NK;
    const float *a = blas.shape.a, *part = w + (nk ? (int64_t)from * k : from);
    float *c = blas.shape.c + from;

    if (blas.how & BLAS_GEMV && nk)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, part, k, a, 1, 0.0f, c, 1);
    else if (blas.how & BLAS_GEMV)
        cblas_sgemv(CblasRowMajor, CblasTrans, k, n, 1.0f, part, all, a, 1, 0.0f, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, nk ? CblasTrans : CblasNoTrans, m, n, k,
                    1.0f, a, k, part, nk ? k : all, 0.0f, c, all);
}

static int blas_run(int copy)
{
    const int n = (int)blas.shape.n;
    const float *w = blas.w[copy];

    if (!(blas.how & BLAS_SPLIT)) {
        blas_columns(w, 0, n);
        return OK;
    }
#pragma omp parallel
    {
        int64_t t = omp_get_thread_num(), all = omp_get_num_threads();
        int64_t lines =
            (n + 15) / 16; /* of 16 columns: no two threads share a cache line of C */
        int from = (int)(lines * t / all * 16), to = (int)(lines * (t + 1) / all * 16);
        to = to < n ? to : n;
        if (to > from)
            blas_columns(w, from, to - from);
    }
    return OK;
}

/* The label with `core` as what the library says it runs as. ERR_UNSUPPORTED when the
 * setting asked for another. */
static int blas_took(const struct gemm_setting *s, const char *core, char *label,
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
