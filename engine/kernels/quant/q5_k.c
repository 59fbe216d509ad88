/* As Q4_K, with a fifth bit: between the scales and the low four bits of q there are 32
 * bytes, and bit s of the i-th belongs to weight i of sub-block s. */
#include "kernels/quant.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    const uint8_t *high = block + 16, *q = block + 48;

    out->d = kern_quant_f16(block);
    out->dmin = kern_quant_f16(block + 2);
    for (int s = 0; s < 8; s++)
        kern_quant_scale_min(block + 4, s, &out->scale[s], &out->min[s]);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)((q[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15) |
                             (high[i % 32] >> i / 32 & 1) << 4);
}

const struct kern_quant kern_quant_q5_k = {.type = KERN_Q5_K,
                                           .gguf_type = 13,
                                           .gguf_file_type = -1,
                                           .sub = 32,
                                           .q_min = 0,
                                           .q_max = 31,
                                           .decode = decode};
