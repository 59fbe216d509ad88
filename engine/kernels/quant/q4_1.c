/* 32 weights d q + m: d and m in f16, then 16 bytes, the i-th with q of weight i in its low
 * and of weight 16 + i in its high half. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

void kern_quant_decode_q4_1(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    out->dmin = -kern_quant_f16(block + 2);
    out->min[0] = 1;
    for (int i = 0; i < 16; i++) {
        out->q[i] = (int8_t)(block[4 + i] & 15);
        out->q[16 + i] = (int8_t)(block[4 + i] >> 4);
    }
}

/* A panel has the codes of 16 bytes in their order, as four words, and dmin = -m. */
static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++) {
        memcpy(to + 2 * c, block[c], 2);
        memcpy(to + 2 * KERN_PANEL + 2 * c, block[c] + 2, 2);
        to[2 * KERN_PANEL + 2 * c + 1] ^= 0x80;
    }
    kern_transpose_panel(to + KERN_Q4_1_HEAD, block, 4);
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    kern_quant_scale_from(lo, hi, 15, d, dmin);
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    kern_quant_put_f16(block, d);
    kern_quant_put_f16(block + 2, -dmin);
    for (int i = 0; i < 16; i++)
        block[4 + i] = (uint8_t)(kern_quant_nearest(w[i] + dmin, d, 0, 15) |
                                 kern_quant_nearest(w[16 + i] + dmin, d, 0, 15) << 4);
}

const struct kern_quant kern_quant_q4_1 = {.type = KERN_Q4_1,
                                           .gguf_type = 3,
                                           .gguf_file_type = 3,
                                           .sub = 32,
                                           .q_min = 0,
                                           .q_max = 15,
                                           .decode = kern_quant_decode_q4_1,
                                           .put = put,
                                           .scale = scale,
                                           .encode = encode};
