/* kernels/kv_type.h - the types that keys and values are kept in, and how they are written.
 *
 * The key or the value of a token in a head is a vector of head_dim elements, which takes
 * kern_kv_bytes() wherever it is:
 *     f32, f16, bf16  [head_dim]
 *     q8              [head_dim] int8, zeros up to a multiple of 4 bytes, then their f32 scale
 * The scale is next to its elements, so that attention reads it with them, and whoever moves,
 * prefetches or counts vectors needs to know their size only.
 * A type is a row of the table in kv_type.c, and its attention is an operator: KERN_ATTN_F32 +
 * type.   Paper: MNN-LLM (keys in int8).   Threads: any. */
#ifndef KERNELS_KV_TYPE_H
#define KERNELS_KV_TYPE_H

#include <string.h>

#include "kernels/kern.h"

enum kern_kv_type { KERN_KV_F32, KERN_KV_F16, KERN_KV_BF16, KERN_KV_Q8, KERN_N_KV_TYPES };
#define KERN_KV_TYPES "f32|f16|bf16|q8"             /* the values of an option */
const char *kern_kv_type_name(enum kern_kv_type t); /* "bf16" */
/* Bytes of a vector. */
size_t kern_kv_bytes(enum kern_kv_type t, int head_dim);
/* Write x[head_dim] as a vector, by the variants of `k`.
 * f32: as it is. f16, bf16: rounded to nearest even; in f16, 65520 and more become infinite.
 * q8: the scale is a 127th of the largest magnitude, and at least KERN_Q8_SCALE_MIN; the
 * elements are x / scale, rounded to nearest even. Each then stands for a number that is off
 * by KERN_Q8_ERROR times the scale at most. The scale of zeros is 0. Where x has an element
 * that is infinite or NaN the scale is NaN, and so is all that the vector stands for. The
 * bytes depend on x only, not on `k` or the processor. */
void kern_kv_store(const struct kern_table *k, enum kern_kv_type t, void *to,
                   const float *x, int head_dim);

/* Half a step, and what rounding in f32 adds to it. */
#define KERN_Q8_ERROR 0.50002
/* So small that it does not matter, and large enough that products with it do not underflow. */
#define KERN_Q8_SCALE_MIN 0x1p-100f

static inline enum kern_op kern_kv_attn(enum kern_kv_type t)
{
    return (enum kern_op)(KERN_ATTN_F32 + (int)t);
}

/* Bytes from the first element of a q8 vector to its scale. */
static inline int64_t kern_q8_scale_at(int64_t head_dim)
{
    return (head_dim + 3) / 4 * 4;
}

static inline int64_t kern_q8_bytes(int64_t head_dim)
{
    return kern_q8_scale_at(head_dim) + (int64_t)sizeof(float);
}

static inline float kern_q8_scale(const int8_t *vector, int64_t head_dim)
{
    float scale;

    memcpy(&scale, vector + kern_q8_scale_at(head_dim), sizeof(scale));
    return scale;
}

#endif
