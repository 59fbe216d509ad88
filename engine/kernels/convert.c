#include "kernels/kern.h"

#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

uint16_t kern_bf16_of(float x)
{
    uint32_t u = bits_of(x);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 |
                          0x0040); /* quiet, so that the payload cannot vanish */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float kern_bf16_to(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

/* A float below 2^-14, in units of 2^-24 (the smallest half), rounded to nearest even:
 * adding 0.5 puts that unit into the last place of the sum, and the addition rounds. */
static uint16_t f16_small(uint32_t magnitude)
{
    return (uint16_t)(bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
}

uint16_t kern_f16_of(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000)
        return (uint16_t)(sign | f16_small(a));
    a -= UINT32_C(112) << 23;
    return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
}

float kern_f16_to(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;

    if (e == 31)
        return float_of(sign | 0x7f800000 | (m ? m << 13 | 0x400000 : 0));
    if (e == 0) /* zero and denormals: m units of 2^-24 */
        return float_of(sign | bits_of((float)m * 0x1p-24f));
    return float_of(sign | (e + 112) << 23 | m << 13);
}
