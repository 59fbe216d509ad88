/* Compiled without contraction, so that all processors round alike. */
#include "kernels/pack_i8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/panel.h"

/* 128-bit vectors are what every target of ours has without further flags. */
typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef int16_t v8s __attribute__((vector_size(16)));
typedef int8_t v16c __attribute__((vector_size(16)));

#define N_VECS (KERN_SUB / 4)

/* 32 activations of one row. */
struct group {
    int8_t code[KERN_SUB];
    float scale;
    int32_t sum[2]; /* of the codes of each 16 */
};

static v4i max4(v4i a, v4i b)
{
    v4i first = a > b;

    return (a & first) | (b & ~first);
}

/* The largest magnitude of n numbers, a multiple of 32; infinite or NaN where there is such a
 * number: as integers the bits of magnitudes are in the same order, NaN last. */
static float largest(const float *x, int64_t n)
{
    v4i most = {0}, other = {0};
    float out;

#pragma GCC unroll 4
    for (int64_t at = 0; at < n; at += 8, x += 8) {
        v4i bits[2];

        memcpy(bits, x, sizeof(bits));
        most = max4(bits[0] & 0x7fffffff, most);
        other = max4(bits[1] & 0x7fffffff, other);
    }
    most = max4(most, other);
    most = max4(most, __builtin_shuffle(most, (v4i){2, 3, 0, 1}));
    most = max4(most, __builtin_shuffle(most, (v4i){1, 0, 3, 2}));
    memcpy(&out, &most, sizeof(out));
    return out;
}

static int32_t sum_of(v4i x)
{
    return x[0] + x[1] + x[2] + x[3];
}

/* 16 numbers that fit a byte. */
static v16c bytes_of(const v4i x[4])
{
    const v8s even = {0, 2, 4, 6, 8, 10, 12, 14};
    v8s low = __builtin_shuffle((v8s)x[0], (v8s)x[1], even);
    v8s high = __builtin_shuffle((v8s)x[2], (v8s)x[3], even);

    return __builtin_shuffle(
        (v16c)low, (v16c)high,
        (v16c){0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30});
}

/* Adding 1.5 * 2^23 to a small number rounds it to an integer, the even one of two, which
 * the lowest bits of the sum then hold. */
static void quantise(struct group *g, const float *x, float most)
{
    v4i sum[2] = {{0}, {0}}, whole[N_VECS];
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
        v4f v;
        v4i q;

        memcpy(&v, x + 4 * i, sizeof(v));
        v = v * per_step + 0x1.8p23f;
        memcpy(&q, &v, sizeof(q));
        q -= 0x4b400000;
        whole[i] = q;
        sum[i / (N_VECS / 2)] += q;
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        v16c code = bytes_of(whole + N_VECS / 2 * i);

        memcpy(g->code + KERN_SUB / 2 * i, &code, sizeof(code));
    }
    g->sum[0] = sum_of(sum[0]);
    g->sum[1] = sum_of(sum[1]);
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
