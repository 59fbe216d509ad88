/* 32 weights d q: d in f16, then q in one byte each. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    memcpy(out->q, block + 2, 32);
}

/* A panel has the codes in their order, as eight words, each 128 larger. */
static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++)
        memcpy(to + 2 * c, block[c], 2);
    to += KERN_Q8_0_HEAD;
    kern_transpose_panel(to, block, 2);
    kern_transpose_panel(to + KERN_Q8_0_SUB / 2, block, 18);
    for (int i = 0; i < KERN_Q8_0_SUB; i++)
        to[i] ^= 0x80;
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    *d = kern_quant_f16_above(fmaxf(fabsf(lo), fabsf(hi)) / 127);
    *dmin = 0;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    (void)dmin;
    kern_quant_put_f16(block, d);
    for (int i = 0; i < 32; i++)
        block[2 + i] = (uint8_t)kern_quant_nearest(w[i], d, -127, 127);
}

const struct kern_quant kern_quant_q8_0 = {.type = KERN_Q8_0,
                                           .gguf_type = 8,
                                           .gguf_file_type = 7,
                                           .sub = 32,
                                           .q_min = -128,
                                           .q_max = 127,
                                           .decode = decode,
                                           .put = put,
                                           .scale = scale,
                                           .encode = encode};
