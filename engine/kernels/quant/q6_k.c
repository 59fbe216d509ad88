/* 256 weights in 16 sub-blocks of 16, (d scale) (u - 32): 128 bytes with the low four bits
 * of u, 64 bytes with its upper two, 16 signed scales of one byte, and d in f16. Each half
 * of the block, 128 weights, has 64 of the bytes for low bits, of which the i-th holds weight
 * i in its low and weight 64 + i in its high half, and 32 of those for upper bits, of which
 * the i-th holds weights i, 32 + i, 64 + i and 96 + i from its low end. */
#include "kernels/quant.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block + 208);
    memcpy(out->scale, block + 192, 16);
    for (int i = 0; i < 256; i++) {
        int in_half = i % 128;
        int low = block[i / 128 * 64 + in_half % 64] >> in_half / 64 * 4 & 15;
        int high = block[128 + i / 128 * 32 + in_half % 32] >> in_half / 32 * 2 & 3;

        out->q[i] = (int8_t)((low | high << 4) - 32);
    }
}

const struct kern_quant kern_quant_q6_k = {.type = KERN_Q6_K,
                                           .gguf_type = 14,
                                           .gguf_file_type = -1,
                                           .sub = 16,
                                           .q_min = -32,
                                           .q_max = 31,
                                           .decode = decode};
