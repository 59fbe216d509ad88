#define KV              float
#define KV_STRIDE(hd)   (size_t)(hd)
#define KV_AT(p, d, hd) (p)[d]
#include "kernels/ref/attn_ref.h"

const struct kern_variant kern_attn_f32_ref = {
    .name = "ref",
    .op = KERN_ATTN_F32,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_ref,
};
