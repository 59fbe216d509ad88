/* 32 weights d (u - 8): d in f16, then 16 bytes, the i-th with u of weight i in its low and
 * of weight 16 + i in its high half. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    for (int i = 0; i < 16; i++) {
        out->q[i] = (int8_t)((block[2 + i] & 15) - 8);
        out->q[16 + i] = (int8_t)((block[2 + i] >> 4) - 8);
    }
}

/* A panel has the codes of 16 bytes in their order, as four words. */
static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++)
        memcpy(to + 2 * c, block[c], 2);
    kern_transpose_panel(to + KERN_Q4_0_HEAD, block, 2);
}

/* The weight of largest magnitude becomes -8, so d has the opposite sign. */
static void scale(float lo, float hi, float *d, float *dmin)
{
    float most = kern_quant_f16_above(fmaxf(fabsf(lo), fabsf(hi)) / 8);

    *d = -lo >= hi ? most : -most;
    *dmin = 0;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    (void)dmin;
    kern_quant_put_f16(block, d);
    for (int i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)((kern_quant_nearest(w[i], d, -8, 7) + 8) |
                                 (kern_quant_nearest(w[16 + i], d, -8, 7) + 8) << 4);
}

const struct kern_quant kern_quant_q4_0 = {.type = KERN_Q4_0,
                                           .gguf_type = 2,
                                           .gguf_file_type = 2,
                                           .sub = 32,
                                           .q_min = -8,
                                           .q_max = 7,
                                           .decode = decode,
                                           .put = put,
                                           .scale = scale,
                                           .encode = encode};
