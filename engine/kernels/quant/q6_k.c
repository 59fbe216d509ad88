/* 256 weights in 16 sub-blocks of 16, (d scale) (u - 32): 128 bytes with the low four bits
 * of u, 64 bytes with its upper two, 16 signed scales of one byte, and d in f16. Each half
 * of the block, 128 weights, has 64 of the bytes for low bits, of which the i-th holds weight
 * i in its low and weight 64 + i in its high half, and 32 of those for upper bits, of which
 * the i-th holds weights i, 32 + i, 64 + i and 96 + i from its low end. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

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

static uint32_t word_at(const uint8_t *p)
{
    uint32_t w;

    memcpy(&w, p, sizeof(w));
    return w;
}

/* Sub-block s of the panel's block: 32 weights of column c, whose low bits go to low[16]. */
static void put_column(uint8_t *to, int c, uint8_t *low, const uint8_t *block, int s)
{
    const uint8_t *q = block + s / 4 * 64 + s % 2 * 32;
    const uint8_t *upper = block + 128 + s / 4 * 32;
    const int shift = s % 4 / 2 * 4;

    for (int i = 0; i < 16; i++)
        low[i] = (uint8_t)((q[i] >> shift & 15) | (q[16 + i] >> shift & 15) << 4);
    for (int half = 0; half < 2; half++) {
        uint32_t high = 0;

        for (int j = 0; j < 4; j++)
            high |= (word_at(upper + 16 * half + 4 * j) >> s % 4 * 2 & 0x03030303)
                    << 2 * j;
        memcpy(to + 256 + 64 * half + 4 * c, &high, sizeof(high));
        to[KERN_Q6_K_SCALES + KERN_PANEL * half + c] = block[192 + 2 * s + half];
    }
}

static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    uint8_t low[KERN_PANEL][16];
    const uint8_t *column[KERN_PANEL];

    for (int c = 0; c < KERN_PANEL; c++) {
        memcpy(to + 2 * c, block[c] + 208, 2);
        column[c] = low[c];
    }
    to += KERN_Q6_K_HEAD;
    for (int s = 0; s < 8; s++, to += KERN_Q6_K_SUB) {
        for (int c = 0; c < KERN_PANEL; c++)
            put_column(to, c, low[c], block[c], s);
        kern_transpose_panel(to, column, 0);
    }
}

const struct kern_quant kern_quant_q6_k = {.type = KERN_Q6_K,
                                           .gguf_type = 14,
                                           .gguf_file_type = -1,
                                           .sub = 16,
                                           .q_min = -32,
                                           .q_max = 31,
                                           .decode = decode,
                                           .put = put};
