#include "kernels/kern.h"
#include "kernels/x86/vec_avx2.h"

#include "cpu/cpu.h"

static void add_avx2(float *y, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i,
                         _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

const struct kern_variant kern_add_avx2 = {
    .name = "avx2",
    .op = KERN_ADD,
    .isa = CPU_MASK(AVX2),
    .precision = KERN_EXACT,
    .fn.add = add_avx2,
};
