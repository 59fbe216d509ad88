/* kernels/x86/attn_kv.h - vectors of keys and values of the type KV (kernels/kv_type.h). */
#ifndef KERNELS_X86_ATTN_KV_H
#define KERNELS_X86_ATTN_KV_H

#include <stdint.h>

#include "kernels/kv_type.h"

#define ATTN_ELEM_F32  float
#define ATTN_ELEM_F16  uint16_t
#define ATTN_ELEM_BF16 uint16_t
#define ATTN_ELEM_Q8   int8_t

#define ATTN_ELEM   KERN_PASTE(ATTN_ELEM_, KV, )
#define ATTN_TYPE   KERN_PASTE(KERN_KV_, KV, )
#define ATTN_SCALED (ATTN_TYPE == KERN_KV_Q8)
/* Elements from a vector of hd to the next, and the factor of the vector at p. */
#define ATTN_STRIDE(hd) __builtin_choose_expr(ATTN_SCALED, kern_q8_bytes(hd), (hd))
#define ATTN_SCALE(p, hd)                                                                \
    __builtin_choose_expr(ATTN_SCALED, kern_q8_scale((const void *)(p), hd), 1.0f)

#endif
