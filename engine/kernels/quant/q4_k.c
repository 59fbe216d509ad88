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

const struct kern_quant kern_quant_q4_k = {.type = KERN_Q4_K,
                                           .gguf_type = 12,
                                           .gguf_file_type = -1,
                                           .sub = 32,
                                           .q_min = 0,
                                           .q_max = 15,
                                           .decode = decode};
