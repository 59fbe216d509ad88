#define KV           float
#define KV_TO_F32(x) (x)
#include "kernels/ref/attn_ref.h"

const struct kern_variant kern_attn_f32_ref = {
    .name = "ref",
    .op = KERN_ATTN_F32,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_ref,
};
