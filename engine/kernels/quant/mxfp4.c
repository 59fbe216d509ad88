/* 32 weights 2^(e - 128) v: e in a byte (E8M0), then 16 bytes as IQ4_NL has them, with the v of
 * E2M1, twice as large to be whole (kern_books[]). OCP Microscaling Formats. Weights of blocks with
 * an e above E_MOST may be beyond f32; products with them are then infinite or NaN. */
#include "kernels/quant.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"

#define LARGEST 12  /* v */
#define E_MOST  252 /* 2^124 LARGEST is finite in f32 */

/* Bits of 2^(e - 128) as bf16, which has subnormals as f32 has. e = 255, NaN in the standard, is
 * 2^127 to the readers of GGUF. */
static uint16_t bf16_of(uint8_t e)
{
    return (uint16_t)(e < 2 ? 0x20 << e : (e - 1) << 7);
}

static void decode(struct kern_quant_block *out, const uint8_t *block)
{
    out->d = kern_bf16_to(bf16_of(block[0]));
    kern_quant_get_book(out->q, block + 1, KERN_BOOK_FP4, KERN_MXFP4_ZERO);
}

static void put(uint8_t *to, const uint8_t *const block[KERN_PANEL])
{
    for (int c = 0; c < KERN_PANEL; c++) {
        const uint16_t d = bf16_of(block[c][0]);

        memcpy(to + 2 * c, &d, 2);
    }
    kern_transpose_panel(to + KERN_MXFP4_HEAD, block, 1);
}

/* The least power of two whose 12-fold is not below the largest magnitude. */
static void scale(float lo, float hi, float *d, float *dmin)
{
    const float most = fmaxf(fabsf(lo), fabsf(hi));
    int e;
    float part = frexpf(most / LARGEST, &e); /* [0.5, 1) 2^e */

    *d = most == 0 ? 0 : ldexpf(1, e - (part == 0.5f));
    *dmin = 0;
}

/* The number of the nearest v to x, of two the one of the smaller magnitude. */
static uint8_t number_of(float x)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    const float size = fabsf(x);
    uint8_t i = 0;

    while (i < 7 && size > middle[i])
        i++;
    return i > 0 && x < 0 ? i | 8 : i;
}

/* The block with this scale; its squared error. */
static double put_block(uint8_t *block, const float *w, uint8_t e)
{
    const float d = kern_bf16_to(bf16_of(e));
    uint8_t number[32];
    double sum = 0;

    block[0] = e;
    for (int i = 0; i < 32; i++) {
        /* Both are powers of two, so that quotients are exact but for underflow. */
        const double x = (double)w[i] / (double)d;
        double error;

        number[i] = number_of((float)x);
        error = ((double)kern_books[KERN_BOOK_FP4][number[i]] - KERN_MXFP4_ZERO - x) *
                (double)d;
        sum += error * error;
    }
    kern_quant_put_4_bits(block + 1, number);
    return sum;
}

/* A scale of half the size where the largest weights lose at most a quarter, and all together lose
 * less than they gain. */
static void encode(uint8_t *block, const float *w, float d, float dmin)
{
    uint8_t smaller[17];
    float most = 0;
    double error;
    int e = 0;

    (void)dmin;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(w[i]));
    if (d > 0) {
        (void)frexpf(d, &e);
        e += 127;
    }
    e = e < 0 ? 0 : e > E_MOST ? E_MOST : e;
    d = kern_bf16_to(bf16_of((uint8_t)e));
    error = put_block(block, w, (uint8_t)e);
    if (e > 0 && most <= 8 * d && put_block(smaller, w, (uint8_t)(e - 1)) < error)
        memcpy(block, smaller, sizeof(smaller));
}

const struct kern_quant kern_quant_mxfp4 = {.type = KERN_MXFP4,
                                            .gguf_type = 39,
                                            .gguf_file_type = 38,
                                            .sub = 32,
                                            .q_min = -12,
                                            .q_max = 12,
                                            .decode = decode,
                                            .put = put,
                                            .scale = scale,
                                            .encode = encode};
