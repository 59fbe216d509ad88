/* Vectors, and the structures of kern.h as text. */
#include "ir/prelude.h"

#include "kernels/kern.h"

/* The same members as text and as a structure, which is held against that of kern.h. */
#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(x)      TEXT_OF(x)
#define TILE_MEMBERS                                                                     \
    const void *a;                                                                       \
    const void *b;                                                                       \
    size_t b_panel_bytes;                                                                \
    size_t b_unit_bytes;                                                                 \
    int64_t k, k_unit;                                                                   \
    float *c;                                                                            \
    int64_t ldc;                                                                         \
    int mr, np;                                                                          \
    bool accumulate;
#define ATTN_MEMBERS                                                                     \
    const float *q;                                                                      \
    int64_t q_stride;                                                                    \
    const void *k, *v;                                                                   \
    const int32_t *blocks;                                                               \
    int64_t block_tok;                                                                   \
    size_t block_bytes;                                                                  \
    float *out;                                                                          \
    int64_t out_stride;                                                                  \
    float *lse;                                                                          \
    void *scratch;                                                                       \
    int64_t kv_lo, kv_hi, pos0;                                                          \
    int n_tok, g, head_dim;                                                              \
    float scale;

struct tile {
    TILE_MEMBERS
};
struct attn {
    ATTN_MEMBERS
};
#define SAME(a, b, member)                                                               \
    _Static_assert(offsetof(a, member) == offsetof(b, member),                           \
                   "kern.h has another " #member)
SAME(struct tile, struct kern_gemm_tile, b_unit_bytes);
SAME(struct tile, struct kern_gemm_tile, k_unit);
SAME(struct tile, struct kern_gemm_tile, ldc);
SAME(struct tile, struct kern_gemm_tile, np);
SAME(struct tile, struct kern_gemm_tile, accumulate);
SAME(struct attn, struct kern_attn_args, blocks);
SAME(struct attn, struct kern_attn_args, block_bytes);
SAME(struct attn, struct kern_attn_args, out_stride);
SAME(struct attn, struct kern_attn_args, kv_hi);
SAME(struct attn, struct kern_attn_args, head_dim);
SAME(struct attn, struct kern_attn_args, scale);
_Static_assert(sizeof(struct attn) == sizeof(struct kern_attn_args), "kern_attn_args");

static const char head[] =
    "#include <math.h>\n"
    "#include <stdbool.h>\n"
    "#include <stddef.h>\n"
    "#include <stdint.h>\n"
    "#include <string.h>\n"
    "struct kern_gemm_tile { " TEXT(
        TILE_MEMBERS) " };\n"
                      "struct kern_attn_args { " TEXT(
                          ATTN_MEMBERS) " };\n"
                                        "struct kern_attn_piece { const void *k, *v; "
                                        "int64_t n; };\n"
                                        "static inline struct kern_attn_piece "
                                        "kern_attn_token(const struct kern_attn_args "
                                        "*a,\n"
                                        "    int64_t t, size_t vec_bytes)\n"
                                        "{\n"
                                        "    size_t block = 0, at;\n"
                                        "    if (a->blocks) {\n"
                                        "        block = (size_t)a->blocks[t >> "
                                        "__builtin_ctzll((uint64_t)a->block_tok)] *\n"
                                        "                a->block_bytes;\n"
                                        "        t &= a->block_tok - 1;\n"
                                        "    }\n"
                                        "    at = (size_t)t * vec_bytes;\n"
                                        "    return (struct kern_attn_piece){(const char "
                                        "*)a->k + block - at,\n"
                                        "                                    (const char "
                                        "*)a->v + block + at, 1};\n"
                                        "}\n"
                                        "static inline float kern_bf16_to(uint16_t h)\n"
                                        "{\n"
                                        "    uint32_t w = (uint32_t)h << 16;\n"
                                        "    float x;\n"
                                        "    memcpy(&x, &w, 4);\n"
                                        "    return x;\n"
                                        "}\n";

/* N lanes; the unaligned type may stand for any array of its elements. */
static const char vectors[] =
    "#define IR_VECTORS(N) \\\n"
    "typedef float f32x##N __attribute__((vector_size(4 * N))); \\\n"
    "typedef float f32x##N##_at __attribute__((vector_size(4 * N), aligned(4), "
    "may_alias)); \\\n"
    "typedef uint32_t u32x##N __attribute__((vector_size(4 * N))); \\\n"
    "typedef uint16_t u16x##N##_at __attribute__((vector_size(2 * N), aligned(2), "
    "may_alias)); \\\n"
    "typedef int8_t i8x##N##_at __attribute__((vector_size(N), aligned(1), may_alias)); "
    "\\\n"
    "static inline f32x##N ir_load_f32x##N(const float *p) { return *(const f32x##N##_at "
    "*)p; } \\\n"
    "static inline void ir_store_f32x##N(float *p, f32x##N x) { *(f32x##N##_at *)p = x; "
    "} \\\n"
    "static inline f32x##N ir_splat_f32x##N(float x) { return x - (f32x##N){0}; } \\\n"
    "static inline f32x##N ir_bf16_f32x##N(const uint16_t *p) \\\n"
    "{ return (f32x##N)(__builtin_convertvector(*(const u16x##N##_at *)p, u32x##N) << "
    "16); } \\\n"
    "static inline f32x##N ir_i8_f32x##N(const int8_t *p) \\\n"
    "{ return __builtin_convertvector(*(const i8x##N##_at *)p, f32x##N); } \\\n"
    "static inline float ir_sum_f32x##N(f32x##N x) \\\n"
    "{ float s = x[0]; for (int i = 1; i < N; i++) s += x[i]; return s; }\n";

void ir_put_prelude(struct text *t, unsigned lanes)
{
    text_puts(t, head);
    if (!lanes)
        return;
    text_puts(t, vectors);
    for (int n = 1; n < 16; n++)
        if (lanes & 1u << n)
            text_printf(t, "IR_VECTORS(%d)\n", 1 << n);
}
