/* Compiled without contraction, so that all processors round alike. */
#include "kernels/pack_i8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/panel.h"

/* 32 activations of one row. */
struct group {
    int8_t code[KERN_SUB];
    float scale;
    int32_t sum[2]; /* of the codes of each 16 */
};

/* The largest magnitude of n numbers, a multiple of 32; infinite or NaN where there is such a
 * number: as integers the bits of magnitudes are in the same order, NaN last. */
static float largest(const float *x, int64_t n)
{
    int32_t most[KERN_SUB] = {0};
    float out;

    for (int64_t at = 0; at < n; at += KERN_SUB) {
        int32_t bits[KERN_SUB];

        memcpy(bits, x + at, sizeof(bits));
        for (int i = 0; i < KERN_SUB; i++) {
            bits[i] &= 0x7fffffff;
            most[i] = bits[i] > most[i] ? bits[i] : most[i];
        }
    }
    for (int i = 1; i < KERN_SUB; i++)
        most[0] = most[i] > most[0] ? most[i] : most[0];
    memcpy(&out, &most[0], sizeof(out));
    return out;
}

/* Adding 1.5 * 2^23 to a small number rounds it to an integer, the even one of two, which
 * the lowest bits of the sum then hold. */
static void quantise(struct group *g, const float *x, float most)
{
    float per_step;
    int32_t q[KERN_SUB];

    memset(g, 0, sizeof(*g));
    if (!isfinite(most)) {
        g->scale = NAN;
        return;
    }
    if (most < KERN_A_I8_MIN)
        return;
    g->scale = most / 127;
    per_step = 127 / most;
    for (int i = 0; i < KERN_SUB; i++) {
        float sum = x[i] * per_step + 0x1.8p23f;

        memcpy(&q[i], &sum, sizeof(sum));
        q[i] -= 0x4b400000;
    }
    for (int i = 0; i < KERN_SUB; i++)
        g->code[i] = (int8_t)q[i];
    for (int i = 0; i < KERN_SUB / 2; i++) {
        g->sum[0] += q[i];
        g->sum[1] += q[KERN_SUB / 2 + i];
    }
}

/* The two words made of the sums of a group, after groups whose sum is `before`. */
static void sum_words(int32_t word[2], const struct group *g, const struct kern_form *f,
                      int32_t before)
{
    float scaled = g->scale * (float)(g->sum[0] + g->sum[1]);

    word[0] = -f->zero * g->sum[0];
    word[1] = -f->zero * g->sum[1];
    if (f->subs == 0) {
        word[0] = before;
        word[1] = before + g->sum[0] + g->sum[1];
        return;
    }
    if (f->halves == 1) {
        word[0] += word[1];
        word[1] = 0;
    }
    if (f->min)
        memcpy(&word[0], &scaled, sizeof(scaled));
}

/* Row x of k numbers to the words at `to`, which have a stride of mr. */
static void pack_row(uint32_t *to, int64_t mr, const float *x, int64_t k,
                     const struct kern_form *f)
{
    float most = f->subs == 0 ? largest(x, k) : 0;
    int32_t before = 0;

    for (int64_t at = 0; at < k; at += KERN_SUB, to += KERN_A_I8_WORDS * mr) {
        struct group g;
        int32_t word[2];

        quantise(&g, x + at, f->subs == 0 ? most : largest(x + at, KERN_SUB));
        sum_words(word, &g, f, before);
        before += g.sum[0] + g.sum[1];
        for (int j = 0; j < KERN_A_I8_SCALE; j++)
            memcpy(&to[j * mr], g.code + 4 * j, 4);
        memcpy(&to[KERN_A_I8_SCALE * mr], &g.scale, 4);
        memcpy(&to[KERN_A_I8_SUM * mr], &word[0], 4);
        memcpy(&to[(KERN_A_I8_SUM + 1) * mr], &word[1], 4);
    }
}

void kern_a_pack_i8(enum kern_type type, void *dst, const float *x, int64_t ldx,
                    int64_t mr, int64_t k)
{
    assert(k % kern_type_block(type) == 0);
    for (int64_t r = 0; r < mr; r++)
        pack_row((uint32_t *)dst + r, mr, x + r * ldx, k, kern_form(type));
}
