/* 32 weights d (u - 16): d in f16, 4 bytes whose bit i is the fifth bit of u of weight i, then
 * 16 bytes, the i-th with the low four bits of weight i in its low and of weight 16 + i in its
 * high half. */
#include "kernels/quant.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    kern_quant_get_5_bits(out->q, block + 2);
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)(out->q[i] - 16);
}

/* As Q4_0. */
static void scale(float lo, float hi, float *d, float *dmin)
{
    float most = kern_quant_f16_above(fmaxf(fabsf(lo), fabsf(hi)) / 16);

    *d = -lo >= hi ? most : -most;
    *dmin = 0;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    int8_t u[32];

    (void)dmin;
    for (int i = 0; i < 32; i++)
        u[i] = (int8_t)(kern_quant_nearest(w[i], d, -16, 15) + 16);
    kern_quant_put_f16(block, d);
    kern_quant_put_5_bits(block + 2, u);
}

const struct kern_quant kern_quant_q5_0 = {.type = KERN_Q5_0,
                                           .gguf_type = 6,
                                           .gguf_file_type = 8,
                                           .sub = 32,
                                           .q_min = -16,
                                           .q_max = 15,
                                           .decode = decode,
                                           .scale = scale,
                                           .encode = encode};
