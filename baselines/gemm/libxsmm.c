/* baselines/gemm/libxsmm.c - libxsmm: its batch-reduce kernels over blocked weights, the
 * way its own fully connected layers use them. libxsmm generates the kernels; the loops
 * over blocks and threads are the caller's, and here.
 *
 * In its column-major words: C'[n, m] = W'[n, k] A'[k, m], where W' is a block of our
 * weights as [k, n], A' and C' our row-major matrices as they are. With bf16, two rows of
 * W lie entry by entry (VNNI), and the activations are rounded inside the time. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <omp.h>
#include <libxsmm.h>

#include "base/mem.h"
#include "baselines/gemm/support/child.h"
#include "baselines/gemm/support/data.h"
#include "cpu/cpu.h"

#define M_BLOCK 64 /* rows of A that share one read of a block of W from the cache */

/* Weights that stay in the level 2 cache while all rows of A pass by. With all of a long
 * K at once, 64 columns of f32 lost a quarter to a third of their speed. */
#define CHUNK_BYTES (256 << 10)

/* `how` is the block along n, `size` along k. */
#define BOTH "f32 bf16"
#define SETTINGS(core, env, isa, types)                                                  \
    {core " block=48x256", env, types, 0, isa, 48, 256},                                 \
        {core " block=64x64", env, types, 0, isa, 64, 64},                               \
    {                                                                                    \
        core " block=32x64", env, types, 0, isa, 32, 64                                  \
    }
static const struct gemm_setting settings[] = {
    SETTINGS("core=auto", NULL, 0, BOTH),
    SETTINGS("core=cpx", "LIBXSMM_TARGET=cpx", CPU_MASK(AVX512BF16), "bf16"),
    SETTINGS("core=skx", "LIBXSMM_TARGET=skx", CPU_MASK(AVX512), BOTH),
    SETTINGS("core=hsw", "LIBXSMM_TARGET=hsw", CPU_MASK(AVX2), "f32"),
    {0},
};

/* The part of k that a kernel computes; all but FIRST add to C. */
enum part { FIRST, MORE, REST }; /* a chunk, a later chunk, what is left of k */

/* One generated kernel: rows x columns of a tile, a whole number of k blocks or the rest.
 */
union kernel {
    libxsmm_smmfunction_reducebatch_strd f32;
    libxsmm_bsmmfunction_reducebatch_strd bf16;
};

static struct {
    struct gemm_shape shape;
    int64_t n_block, k_block, m_block;
    int64_t k_padded;             /* even for bf16 */
    int64_t k_whole;              /* the part of k_padded in whole blocks */
    size_t element;               /* bytes */
    int64_t chunk;                /* blocks of k */
    union kernel kernel[2][2][3]; /* [last m][last n][enum part] */
    void **w;
    uint16_t *a_rounded;
} x;

static void version(char *out, size_t n)
{
    snprintf(out, n, "libxsmm %s", LIBXSMM_VERSION);
}

static int took(const struct gemm_setting *s, char *label, size_t n)
{
    const char *core, *rest = strchr(s->label, ' ');
    char wanted[32] = "";

    libxsmm_init();
    core = libxsmm_get_target_arch();
    sscanf(s->label, "core=%31s", wanted);
    if (strcmp(wanted, "auto") != 0 && strcmp(wanted, core) != 0)
        return err_set(ERR_UNSUPPORTED, "core %s asked for, %s taken", wanted, core);
    snprintf(label, n, "core=%s%s", core, rest ? rest : "");
    return OK;
}

/* --- kernels */

static int make_kernel(union kernel *out, int64_t m, int64_t n, int64_t k, bool add)
{
    const bool bf16 = x.shape.bf16;
    int lda = (int)n, ldb = (int)x.k_padded, ldc = (int)x.shape.n;
    int flags = bf16 ? LIBXSMM_GEMM_FLAG_VNNI_A : LIBXSMM_GEMM_FLAG_NONE;
    int prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    int w_stride = (int)(n * k * (int64_t)x.element),
        a_stride = (int)(k * (int64_t)x.element);
    float alpha = 1.0f, beta = add ? 1.0f : 0.0f;

    if (bf16)
        out->bf16 = libxsmm_bsmmdispatch_reducebatch_strd(
            (int)n, (int)m, (int)k, w_stride, a_stride, &lda, &ldb, &ldc, &alpha, &beta,
            &flags, &prefetch);
    else
        out->f32 = libxsmm_smmdispatch_reducebatch_strd((int)n, (int)m, (int)k, w_stride,
                                                        a_stride, &lda, &ldb, &ldc,
                                                        &alpha, &beta, &flags, &prefetch);
    if (!(bf16 ? (void *)out->bf16 : (void *)out->f32))
        return err_set(ERR_UNSUPPORTED, "libxsmm makes no kernel of %d x %d x %d", (int)n,
                       (int)m, (int)k);
    return OK;
}

static int64_t last_of(int64_t n, int64_t block)
{
    return n % block ? n % block : block;
}

static int make_kernels(void)
{
    const struct gemm_shape *s = &x.shape;

    for (int lm = 0; lm < 2; lm++)
        for (int ln = 0; ln < 2; ln++) {
            int64_t m = lm ? last_of(s->m, x.m_block) : x.m_block;
            int64_t n = ln ? last_of(s->n, x.n_block) : x.n_block;
            int64_t rest = x.k_padded - x.k_whole;
            if (x.k_whole) {
                TRY(make_kernel(&x.kernel[lm][ln][FIRST], m, n, x.k_block, false));
                TRY(make_kernel(&x.kernel[lm][ln][MORE], m, n, x.k_block, true));
            }
            if (rest)
                TRY(make_kernel(&x.kernel[lm][ln][REST], m, n, rest, x.k_whole > 0));
        }
    return OK;
}

/* --- weights: columns of blocks, one after the other */

static void pack_column(void *dst, int64_t first, int64_t width)
{
    const struct gemm_shape *s = &x.shape;

    for (int64_t k = 0; k < x.k_padded; k++)
        for (int64_t j = 0; j < width; j++) {
            float f = k < s->k ? gemm_value(s->seed, GEMM_W, k * s->n + first + j) : 0.0f;
            if (s->bf16)
                ((uint16_t *)dst)[(k / 2 * width + j) * 2 + k % 2] = gemm_bf16(f);
            else
                ((float *)dst)[k * width + j] = f;
        }
}

static int make_weights(void)
{
    const struct gemm_shape *s = &x.shape;
    size_t bytes = (size_t)(s->n * x.k_padded) * x.element;

    TRY(gemm_copies(&x.w, s->n_copies, bytes));
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < s->n; j += x.n_block)
        pack_column((char *)x.w[0] + (size_t)(j * x.k_padded) * x.element, j,
                    s->n - j < x.n_block ? s->n - j : x.n_block);
    gemm_spread(x.w, s->n_copies, bytes);
    return OK;
}

static int open_shape(const struct gemm_shape *shape, const struct gemm_setting *setting)
{
    int64_t m_blocks = (shape->m + M_BLOCK - 1) / M_BLOCK;

    if (shape->k == INT_MAX) /* one more, padded for bf16, is no int */
        return err_set(ERR_LIMIT, "k = %d, expected less", INT_MAX);
    x.shape = *shape;
    x.element = shape->bf16 ? sizeof(uint16_t) : sizeof(float);
    x.m_block = (shape->m + m_blocks - 1) / m_blocks; /* blocks of even size */
    x.n_block = setting->how < shape->n ? setting->how : shape->n;
    x.k_block = setting->size;
    x.k_padded = shape->bf16 ? shape->k + shape->k % 2 : shape->k;
    x.k_whole = x.k_padded / x.k_block * x.k_block;
    x.chunk = CHUNK_BYTES / (x.n_block * x.k_block * (int64_t)x.element);
    TRY(make_kernels());
    if (shape->bf16)
        x.a_rounded =
            mem_new(MEM_HARNESS, (size_t)(shape->m * x.k_padded), sizeof(uint16_t));
    return make_weights();
}

/* --- computing */

/* Compute n_blocks of k from `k` on for the tile at (i, j). */
static void tile(const char *w_column, int64_t i, int64_t j, int64_t k, enum part part,
                 int64_t n_blocks)
{
    const struct gemm_shape *s = &x.shape;
    const int last_m = i + x.m_block > s->m, last_n = j + x.n_block > s->n;
    const union kernel *kernel = &x.kernel[last_m][last_n][part];
    const int64_t width = last_n ? s->n - j : x.n_block;
    const char *w = w_column + (size_t)(k * width) * x.element;
    unsigned long long n = (unsigned long long)n_blocks;
    float *c = s->c + i * s->n + j;

    if (s->bf16)
        kernel->bf16((const uint16_t *)w, x.a_rounded + i * x.k_padded + k, c, &n);
    else
        kernel->f32((const float *)w, s->a + i * s->k + k, c, &n);
}

/* One block of columns, all rows. */
static void column(const char *w_column, int64_t j)
{
    const int64_t n_blocks = x.k_whole / x.k_block, m = x.shape.m;

    for (int64_t b = 0; b < n_blocks; b += x.chunk) {
        int64_t n = n_blocks - b < x.chunk ? n_blocks - b : x.chunk;
        for (int64_t i = 0; i < m; i += x.m_block)
            tile(w_column, i, j, b * x.k_block, b ? MORE : FIRST, n);
    }
    for (int64_t i = 0; i < m && x.k_whole < x.k_padded; i += x.m_block)
        tile(w_column, i, j, x.k_whole, REST, 1);
}

/* Each thread owns a range of columns and reads its weights once from memory. */
static int run(int copy)
{
    const struct gemm_shape *s = &x.shape;
    const char *w = x.w[copy];
    int64_t n_columns = (s->n + x.n_block - 1) / x.n_block;

    if (s->bf16)
        gemm_round_activations(x.a_rounded, s, x.k_padded);
#pragma omp parallel
    {
        int64_t t = omp_get_thread_num(), n = omp_get_num_threads();
        for (int64_t col = n_columns * t / n; col < n_columns * (t + 1) / n; col++) {
            int64_t j = col * x.n_block;
            column(w + (size_t)(j * x.k_padded) * x.element, j);
        }
    }
    return OK;
}

const struct gemm_library gemm_library = {
    .settings = settings,
    .version = version,
    .took = took,
    .open = open_shape,
    .run = run,
};
