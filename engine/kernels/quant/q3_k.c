/* 256 weights in 16 sub-blocks of 16, d (scale - 32) (u - 4): 32 bytes whose bit i / 32 of byte
 * i % 32 is the third bit of u of weight i, 64 bytes with its lower two as Q2_K has them, 12 bytes
 * with 6-bit scales, and d in f16. The low four bits of scales 0 to 7 are in the low and of 8 to
 * 15 in the high halves of the first 8 of those 12; the j-th of the last 4 holds the upper two of
 * scales j, 4 + j, 8 + j and 12 + j from its low end. */
#include "kernels/quant.h"
#include "kernels/quant_fit.h"

static const struct kern_fit_form form = {
    .n = 16, .n_subs = 16, .n_values = 8, .value = {-4, -3, -2, -1, 0, 1, 2, 3}};

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    const uint8_t *scales = block + 96;

    out->d = kern_quant_f16(block + 108);
    for (int s = 0; s < 16; s++) {
        int low = scales[s % 8] >> s / 8 * 4 & 15,
            high = scales[8 + s % 4] >> s / 4 * 2 & 3;

        out->scale[s] = (int8_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int low = block[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;

        out->q[i] = (int8_t)((low | (block[i % 32] >> i / 32 & 1) << 2) - 4);
    }
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    *d = kern_quant_f16_above(fmaxf(fabsf(lo), fabsf(hi)) / (4 * 32));
    *dmin = 0;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    struct kern_fit fit;

    (void)d, (void)dmin;
    kern_fit_blocks(&fit, &form, w);
    memset(block, 0, 110);
    kern_quant_put_f16(block + 108, fit.d);
    for (int s = 0; s < 16; s++) {
        const int code = fit.scale[s] + 32;

        block[96 + s % 8] |= (uint8_t)((code & 15) << s / 8 * 4);
        block[104 + s % 4] |= (uint8_t)(code >> 4 << s / 4 * 2);
    }
    for (int i = 0; i < 256; i++) {
        block[32 + i / 128 * 32 + i % 32] |=
            (uint8_t)((fit.number[i] & 3) << i % 128 / 32 * 2);
        block[i % 32] |= (uint8_t)(fit.number[i] >> 2 << i / 32);
    }
}

const struct kern_quant kern_quant_q3_k = {.type = KERN_Q3_K,
                                           .gguf_type = 11,
                                           .gguf_file_type = 11,
                                           .sub = 16,
                                           .q_min = -4,
                                           .q_max = 3,
                                           .decode = decode,
                                           .scale = scale,
                                           .encode = encode};
