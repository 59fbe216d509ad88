/* Compiled without contraction, so that all processors round alike. */
#include "kernels/pack_i8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/round_i8.h"

/* 32 activations of one row. */
struct group {
    int8_t code[KERN_SUB];
    float scale;
    int32_t sum[2]; /* of the codes of each 16 */
};

static void quantise(struct group *g, const float *x)
{
    const int32_t bits = kern_largest_bits(x);
    int32_t q[KERN_SUB];
    float most;

    memcpy(&most, &bits, sizeof(most));
    memset(g, 0, sizeof(*g));
    if (!isfinite(most)) {
        g->scale = NAN;
        return;
    }
    if (most < KERN_A_I8_MIN)
        return;
    g->scale = most / 127;
    kern_round_i8(q, x, 127 / most);
    for (int i = 0; i < KERN_SUB; i++)
        g->code[i] = (int8_t)q[i];
    for (int i = 0; i < KERN_SUB / 2; i++) {
        g->sum[0] += q[i];
        g->sum[1] += q[KERN_SUB / 2 + i];
    }
}

/* Write a group to `to`, where the words of a row have a stride of mr. */
static void put(uint32_t *to, int64_t mr, const struct group *g,
                const struct kern_form *f)
{
    int32_t sum[2] = {-f->zero * g->sum[0], -f->zero * g->sum[1]};
    float scaled = g->scale * (float)(g->sum[0] + g->sum[1]);

    if (f->halves == 1) {
        sum[0] += sum[1];
        sum[1] = 0;
    }
    if (f->min)
        memcpy(&sum[0], &scaled, sizeof(scaled));
    for (int j = 0; j < KERN_A_I8_SCALE; j++)
        memcpy(&to[j * mr], g->code + 4 * j, 4);
    memcpy(&to[KERN_A_I8_SCALE * mr], &g->scale, 4);
    memcpy(&to[KERN_A_I8_SUM * mr], &sum[0], 4);
    memcpy(&to[(KERN_A_I8_SUM + 1) * mr], &sum[1], 4);
}

void kern_a_pack_i8(enum kern_type type, void *dst, const float *x, int64_t ldx,
                    int64_t mr, int64_t k)
{
    const struct kern_form *f = kern_form(type);
    uint32_t *to = dst;

    assert(k % kern_type_block(type) == 0);
    for (int64_t at = 0; at < k; at += KERN_SUB, to += KERN_A_I8_WORDS * mr) {
        for (int64_t r = 0; r < mr; r++) {
            struct group g;

            quantise(&g, x + r * ldx + at);
            put(to + r, mr, &g, f);
        }
    }
}
