/* Compiled without contraction, so that all processors round alike. */
#include "kernels/kv_type.h"

#include <assert.h>
#include <math.h>

#include "kernels/round_i8.h"

static void store_f32(const struct kern_table *k, void *to, const float *x, int head_dim)
{
    (void)k;
    memcpy(to, x, (size_t)head_dim * sizeof(*x));
}

static void store_f16(const struct kern_table *k, void *to, const float *x, int head_dim)
{
    k->v[KERN_TO_F16]->fn.to_f16(to, x, head_dim);
}

static void store_bf16(const struct kern_table *k, void *to, const float *x, int head_dim)
{
    k->v[KERN_TO_BF16]->fn.to_bf16(to, x, head_dim);
}

/* Elements [at, at + KERN_SUB), with zeros in `spare` behind the last. */
static const float *group(float *spare, const float *x, int at, int n)
{
    if (n - at >= KERN_SUB)
        return x + at;
    memset(spare, 0, KERN_SUB * sizeof(*spare));
    memcpy(spare, x + at, (size_t)(n - at) * sizeof(*spare));
    return spare;
}

/* The scale of the vector: 0 of zeros, NaN where one is not finite. */
static float q8_scale(const float *x, int n)
{
    const int whole = n / KERN_SUB * KERN_SUB;
    float spare[KERN_SUB], most = kern_largest(x, whole), tail = 0;

    if (whole < n)
        tail = kern_largest(group(spare, x, whole, n), KERN_SUB);
    if (!isfinite(most) || !isfinite(tail))
        return NAN;
    most = fmaxf(most, tail);
    return most > 0 ? fmaxf(most / 127, KERN_Q8_SCALE_MIN) : 0;
}

/* KERN_SUB numbers at x. */
static void round_group(int8_t *to, const float *x, float per_step)
{
    for (int at = 0; at < KERN_SUB; at += 16) {
        kern_v4i q[4];

        for (int i = 0; i < 4; i++)
            q[i] = kern_round4(x + at + 4 * i, per_step);
        kern_store16(to + at, q);
    }
}

static void store_q8(const struct kern_table *k, void *to, const float *x, int n)
{
    const float scale = q8_scale(x, n), per_step = scale > 0 ? 1 / scale : 0;
    char *codes = to;

    (void)k;
    memset(codes, 0, (size_t)kern_q8_scale_at(n));
    memcpy(codes + kern_q8_scale_at(n), &scale, sizeof(scale));
    for (int at = 0; per_step > 0 && at < n; at += KERN_SUB) {
        float spare[KERN_SUB];
        int8_t code[KERN_SUB];

        round_group(code, group(spare, x, at, n), per_step);
        memcpy(codes + at, code, (size_t)(n - at < KERN_SUB ? n - at : KERN_SUB));
    }
}

/* Bytes of an element; beyond them, those of a scale; and the writer. */
static const struct {
    const char *name;
    int elem_bytes, scale_bytes;
    void (*store)(const struct kern_table *k, void *to, const float *x, int head_dim);
} types[KERN_N_KV_TYPES] = {
    [KERN_KV_F32] = {"f32", 4, 0, store_f32},
    [KERN_KV_F16] = {"f16", 2, 0, store_f16},
    [KERN_KV_BF16] = {"bf16", 2, 0, store_bf16},
    [KERN_KV_Q8] = {"q8", 1, sizeof(float), store_q8},
};

const char *kern_kv_type_name(enum kern_kv_type t)
{
    assert(t < KERN_N_KV_TYPES);
    return types[t].name;
}

size_t kern_kv_bytes(enum kern_kv_type t, int head_dim)
{
    assert(t < KERN_N_KV_TYPES);
    return (size_t)((head_dim * types[t].elem_bytes + 3) / 4 * 4 + types[t].scale_bytes);
}

void kern_kv_store(const struct kern_table *k, enum kern_kv_type t, void *to,
                   const float *x, int head_dim)
{
    types[t].store(k, to, x, head_dim);
}
