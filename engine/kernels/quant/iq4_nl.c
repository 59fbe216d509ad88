/* 32 weights d v: d in f16, then 16 bytes, the i-th with the number of v of weight i in its low
 * and of weight 16 + i in its high half. The 16 v are in kern_books[]. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/quant_fit.h"
#include "kernels/transpose.h"

static const struct kern_fit_form form = {
    .n = 32, .n_subs = 1, .n_values = 16, .value = KERN_FIT_IQ4};

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_quant_f16(block);
    kern_quant_get_book(out->q, block + 2, KERN_BOOK_IQ4, KERN_IQ4_NL_ZERO);
}

/* As Q4_0. */
static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++)
        memcpy(to + 2 * c, block[c], 2);
    kern_transpose_panel(to + KERN_IQ4_NL_HEAD, block, 2);
}

static void scale(float lo, float hi, float *d, float *dmin)
{
    *d = kern_quant_f16_above(fmaxf(fabsf(lo), fabsf(hi)) / 127);
    *dmin = 0;
}

static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    struct kern_fit fit;

    (void)d, (void)dmin;
    kern_fit_blocks(&fit, &form, w);
    kern_quant_put_f16(block, fit.d);
    kern_quant_put_4_bits(block + 2, fit.number);
}

const struct kern_quant kern_quant_iq4_nl = {.type = KERN_IQ4_NL,
                                             .gguf_type = 20,
                                             .gguf_file_type = 25,
                                             .sub = 32,
                                             .q_min = -127,
                                             .q_max = 113,
                                             .decode = decode,
                                             .put = put,
                                             .scale = scale,
                                             .encode = encode};
