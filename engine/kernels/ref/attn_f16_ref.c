#define KV              uint16_t
#define KV_STRIDE(hd)   (size_t)(hd)
#define KV_AT(p, d, hd) kern_f16_to((p)[d])
#include "kernels/ref/attn_ref.h"

const struct kern_variant kern_attn_f16_ref = {
    .name = "ref",
    .op = KERN_ATTN_F16,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_ref,
};
