/* 256 weights in 16 sub-blocks of 16, (d scale) q - dmin min: 16 bytes with a sub-block's scale in
 * the low and its min in the high half, 64 bytes of q, d and dmin in f16. Each half of the block,
 * 128 weights, has 32 of the bytes of q, of which the i-th holds weights i, 32 + i, 64 + i and
 * 96 + i from its low end. */
#include "kernels/quant.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block + 80);
    out->dmin = kern_quant_f16(block + 82);
    for (int s = 0; s < 16; s++) {
        out->scale[s] = (int8_t)(block[s] & 15);
        out->min[s] = (int8_t)(block[s] >> 4);
    }
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(block[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3);
}

const struct kern_quant kern_quant_q2_k = {.type = KERN_Q2_K,
                                           .gguf_type = 10,
                                           .gguf_file_type = -1,
                                           .sub = 16,
                                           .q_min = 0,
                                           .q_max = 3,
                                           .decode = decode};
