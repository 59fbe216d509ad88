/* Compiled without contraction, so that all processors round alike. */
#include "kernels/pack_i8.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "kernels/round_i8.h"

#define N_VECS (KERN_SUB / 4)

static int32_t sum_of(kern_v4i x)
{
    return x[0] + x[1] + x[2] + x[3];
}

/* As kern_variant.a_group. */
static void quantise(struct kern_i8_group *g, const float *x, const float *row_most)
{
    const float most = row_most ? *row_most : kern_largest(x, KERN_SUB);
    kern_v4i sum[2] = {{0}, {0}}, whole[N_VECS];
    float per_step;

    if (!(most >= KERN_A_I8_MIN && most < INFINITY)) {
        memset(g, 0, sizeof(*g));
        g->scale = isfinite(most) ? 0 : NAN;
        return;
    }
    g->scale = most / 127;
    per_step = 127 / most;
#pragma GCC unroll 8
    for (int i = 0; i < N_VECS; i++) {
        whole[i] = kern_round4(x + 4 * i, per_step);
        sum[i / (N_VECS / 2)] += whole[i];
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        kern_store16(g->code + KERN_SUB / 2 * i, whole + N_VECS / 2 * i);
    g->sum[0] = sum_of(sum[0]);
    g->sum[1] = sum_of(sum[1]);
}

/* The two words made of the sums of a group, after groups whose sum is `before`. */
static void sum_words(int32_t word[2], const struct kern_i8_group *g,
                      const struct kern_form *f, int32_t before)
{
    const int32_t first = g->sum[0] + (f->halves == 1 ? g->sum[1] : 0);
    const float scaled[2] = {g->scale * (float)first, g->scale * (float)g->sum[1]};

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
        memcpy(word, scaled, (size_t)f->halves * sizeof(scaled[0]));
}

/* Row x of k numbers to the words at `to`, which have a stride of mr; those of codes are at
 * to[first] with a stride of their own. */
static void pack_row(uint32_t *to, int64_t mr, int64_t first, int64_t stride,
                     const float *x, int64_t k, const struct kern_variant *v)
{
    const struct kern_form *f = kern_form(v->op - KERN_GEMM_F32);
    const float row_most = f->subs == 0 ? kern_largest(x, k) : 0;
    int32_t before = 0;

    for (int64_t at = 0; at < k; at += KERN_SUB, to += KERN_A_I8_WORDS * mr) {
        struct kern_i8_group g;
        int32_t word[2];

        (v->a_group ? v->a_group : quantise)(&g, x + at, f->subs == 0 ? &row_most : NULL);
        sum_words(word, &g, f, before);
        before += g.sum[0] + g.sum[1];
        for (int j = 0; j < KERN_A_I8_SCALE; j++)
            memcpy(&to[first + j * stride], g.code + 4 * j, 4);
        memcpy(&to[KERN_A_I8_SCALE * mr], &g.scale, 4);
        memcpy(&to[KERN_A_I8_SUM * mr], &word[0], 4);
        memcpy(&to[(KERN_A_I8_SUM + 1) * mr], &word[1], 4);
    }
}

void kern_a_pack_i8(const struct kern_variant *v, void *dst, const float *x, int64_t ldx,
                    int64_t mr, int64_t k)
{
    const bool rows = v->a_format == KERN_A_I8_ROWS;

    assert(k % kern_type_block(v->op - KERN_GEMM_F32) == 0);
    for (int64_t r = 0; r < mr; r++)
        pack_row((uint32_t *)dst + r, mr, rows ? r * (KERN_A_I8_SCALE - 1) : 0,
                 rows ? 1 : mr, x + r * ldx, k, v);
}
