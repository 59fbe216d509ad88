/* 256 weights in 8 sub-blocks of 32, (d scale) q - dmin min: d and dmin in f16, 12 bytes of
 * 6-bit scales and mins, then 32 bytes for each pair of sub-blocks, the i-th with q of weight
 * i of the first in its low and of the second in its high half. */
#include "kernels/quant.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    const uint8_t *q = block + 16;

    out->d = kern_quant_f16(block);
    out->dmin = kern_quant_f16(block + 2);
    for (int s = 0; s < 8; s++)
        kern_quant_scale_min(block + 4, s, &out->scale[s], &out->min[s]);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(q[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15);
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    *dmin = kern_quant_f16_above((lo < 0 ? -lo : 0) / 63);
    *d = kern_quant_f16_above((hi + 63 * *dmin) / (63 * 15));
}

/* The smallest of 0 ... 63 whose product with `unit` is not below x. */
static int above(float x, float unit)
{
    float n = unit > 0 ? ceilf(x / unit) : 0;

    return n < 0 ? 0 : n > 63 ? 63 : (int)n;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    memset(block, 0, 144);
    kern_quant_put_f16(block, d);
    kern_quant_put_f16(block + 2, dmin);
    for (int s = 0; s < 8; s++, w += 32) {
        uint8_t *q = block + 16 + s / 2 * 32;
        float lo = w[0], hi = w[0];
        int scale, min;

        for (int i = 1; i < 32; i++) {
            lo = w[i] < lo ? w[i] : lo;
            hi = w[i] > hi ? w[i] : hi;
        }
        min = above(-lo, dmin);
        scale = above(hi + dmin * (float)min, 15 * d);
        kern_quant_put_scale_min(block + 4, s, scale, min);
        for (int i = 0; i < 32; i++)
            q[i] |= (uint8_t)(kern_quant_nearest(w[i] + dmin * (float)min,
                                                 d * (float)scale, 0, 15)
                              << s % 2 * 4);
    }
}

const struct kern_quant kern_quant_q4_k = {.type = KERN_Q4_K,
                                           .gguf_type = 12,
                                           .gguf_file_type = 14,
                                           .sub = 32,
                                           .q_min = 0,
                                           .q_max = 15,
                                           .decode = decode,
                                           .scale = scale,
                                           .encode = encode};
