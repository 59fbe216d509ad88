/* 128 weights d q, as compressed-tensors has those of 8 bits in folders (format/safet_quant.h): d
 * in f32, then q in one byte each. GGUF files have no number for it. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    memcpy(&out->d, block, 4);
    memcpy(out->q, block + 4, 128);
}

/* As Q8_0. */
static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++)
        memcpy(to + 4 * c, block[c], 4);
    to += KERN_W8G128_HEAD;
    for (int half = 0; half < 8; half++)
        kern_transpose_panel(to + KERN_W8G128_SUB / 2 * half, block, 4 + 16 * half);
    for (int i = 0; i < 4 * KERN_W8G128_SUB; i++)
        to[i] ^= 0x80;
}

const struct kern_quant kern_quant_w8g128 = {.type = KERN_W8G128,
                                             .gguf_type = -1,
                                             .gguf_file_type = -1,
                                             .sub = 32,
                                             .q_min = -128,
                                             .q_max = 127,
                                             .decode = decode,
                                             .put = put};
