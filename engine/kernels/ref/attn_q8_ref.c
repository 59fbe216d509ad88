#include "kernels/kv_type.h"

#define KV              int8_t
#define KV_STRIDE(hd)   (size_t) kern_q8_bytes(hd)
#define KV_AT(p, d, hd) ((float)(p)[d] * kern_q8_scale(p, hd))
#include "kernels/ref/attn_ref.h"

const struct kern_variant kern_attn_q8_ref = {
    .name = "ref",
    .op = KERN_ATTN_Q8,
    .precision = KERN_EXACT,
    .batch_invariant = true,
    .fn.attn = attn_ref,
};
