/* 128 weights d q - m, as AWQ, GPTQ and compressed-tensors have them in folders
 * (format/safet_quant.h): d and m = d zero in f32, which hold f16 and bf16 scales and their
 * products with a zero of 4 bits exactly, then 16 bytes for each 32 weights as Q4_0 has them. GGUF
 * files have no number for it. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    memcpy(&out->d, block, 4);
    memcpy(&out->dmin, block + 4, 4);
    memset(out->min, 1, 4);
    for (int i = 0; i < 128; i++)
        out->q[i] = (int8_t)(block[8 + i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15);
}

static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++) {
        memcpy(to + 4 * c, block[c], 4);
        memcpy(to + 4 * KERN_PANEL + 4 * c, block[c] + 4, 4);
    }
    to += KERN_W4G128_HEAD;
    for (int s = 0; s < 4; s++, to += KERN_W4G128_SUB)
        kern_transpose_panel(to, block, 8 + 16 * s);
}

const struct kern_quant kern_quant_w4g128 = {.type = KERN_W4G128,
                                             .gguf_type = -1,
                                             .gguf_file_type = -1,
                                             .sub = 32,
                                             .q_min = 0,
                                             .q_max = 15,
                                             .decode = decode,
                                             .put = put};
