/* 256 weights in 8 sub-blocks of 32, d (scale - 32) v with the v of IQ4_NL: d in f16, the upper two
 * bits of each sub-block's scale in 16 bits, the low four in 4 bytes, from the low end, then 16
 * bytes for each sub-block as IQ4_NL has them. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/quant_fit.h"
#include "kernels/transpose.h"

static const struct kern_fit_form form = {
    .n = 32, .n_subs = 8, .n_values = 16, .value = KERN_FIT_IQ4};

static int8_t scale_of(const uint8_t *block, int s)
{
    const int low = block[4 + s / 2] >> s % 2 * 4 & 15;
    const int high = block[2 + s / 4] >> s % 4 * 2 & 3;

    return (int8_t)((low | high << 4) - 32);
}

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    for (int s = 0; s < 8; s++) {
        out->scale[s] = scale_of(block, s);
        kern_quant_get_book(out->q + 32 * s, block + 8 + 16 * s, KERN_BOOK_IQ4,
                            KERN_IQ4_XS_ZERO);
    }
}

static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++)
        memcpy(to + 2 * c, block[c], 2);
    to += KERN_IQ4_XS_HEAD;
    for (int s = 0; s < 8; s++, to += KERN_IQ4_XS_SUB) {
        kern_transpose_panel(to, block, 8 + 16 * s);
        for (int c = 0; c < KERN_PANEL; c++)
            to[KERN_IQ4_XS_SCALES + c] = (uint8_t)scale_of(block[c], s);
    }
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    *d = kern_quant_f16_above(fmaxf(fabsf(lo), fabsf(hi)) / (127 * 32));
    *dmin = 0;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    struct kern_fit fit;

    (void)d, (void)dmin;
    kern_fit_blocks(&fit, &form, w);
    memset(block, 0, 8);
    kern_quant_put_f16(block, fit.d);
    for (int s = 0; s < 8; s++) {
        const int code = fit.scale[s] + 32;

        block[4 + s / 2] |= (uint8_t)((code & 15) << s % 2 * 4);
        block[2 + s / 4] |= (uint8_t)(code >> 4 << s % 4 * 2);
        kern_quant_put_4_bits(block + 8 + 16 * s, fit.number + 32 * s);
    }
}

const struct kern_quant kern_quant_iq4_xs = {.type = KERN_IQ4_XS,
                                             .gguf_type = 23,
                                             .gguf_file_type = 30,
                                             .sub = 32,
                                             .q_min = -127,
                                             .q_max = 113,
                                             .decode = decode,
                                             .put = put,
                                             .scale = scale,
                                             .encode = encode};
