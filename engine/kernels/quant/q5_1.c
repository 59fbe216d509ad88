/* 32 weights d q + m: d and m in f16, then the bits of q as Q5_0 has them. */
#include "kernels/quant.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    out->dmin = -kern_quant_f16(block + 2);
    out->min[0] = 1;
    kern_quant_get_5_bits(out->q, block + 4);
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    kern_quant_scale_from(lo, hi, 31, d, dmin);
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    int8_t q[32];

    for (int i = 0; i < 32; i++)
        q[i] = (int8_t)kern_quant_nearest(w[i] + dmin, d, 0, 31);
    kern_quant_put_f16(block, d);
    kern_quant_put_f16(block + 2, -dmin);
    kern_quant_put_5_bits(block + 4, q);
}

const struct kern_quant kern_quant_q5_1 = {.type = KERN_Q5_1,
                                           .gguf_type = 7,
                                           .gguf_file_type = 9,
                                           .sub = 32,
                                           .q_min = 0,
                                           .q_max = 31,
                                           .decode = decode,
                                           .scale = scale,
                                           .encode = encode};
