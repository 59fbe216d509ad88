/* kernels/kern.h - what an operator computes, and the table of its variants.
 *
 * An operator is a contract; kernels/ref/ is its executable specification. A variant is
 * one file <op>_<isa>.c that ends in one `const struct kern_variant kern_<op>_<isa>`;
 * make lists the folders, so nothing else is edited, and the tests and the benchmark find
 * it in the table. Kernels do not allocate, lock, start threads or fail.
 *
 * Weights: one panel format for every instruction set and both phases (Sandwich 5.3:
 * prefill and decode share the packed bytes). A panel holds KERN_PANEL = 16 columns:
 *     f32, f16   [k][16]
 *     bf16       [k/2][16][2]   pairs along K, so one 32-bit lane holds (k even, k odd)
 *     quantised  blocks of kern_type_block() rows, as kernels/panel.h describes
 * K is rounded up to even for bf16 with a zero row. Columns beyond N are zero.
 * See kernels/pack.h for how panels make a matrix. */
#ifndef KERNELS_KERN_H
#define KERNELS_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define KERN_PANEL  16
#define KERN_NP_MAX 8 /* most panels that a micro-kernel multiplies at once */

/* The types of weights. Those of quant_types.def are quantised: blocks of weights along K
 * share scales, as GGUF files define them. */
enum kern_type {
    KERN_F32,
    KERN_F16,
    KERN_BF16,
#define KERN_QUANT_TYPE(T, ...) KERN_##T,
#include "kernels/quant_types.def"
#undef KERN_QUANT_TYPE
    KERN_N_TYPES
};
#define KERN_N_PLAIN_TYPES (KERN_BF16 + 1) /* types that are not quantised come first */
const char *kern_type_name(enum kern_type t); /* "f32", "q4_k" */
/* ERR_ARG lists the names. */
MUST int kern_type_parse(const char *word, enum kern_type *out);
/* Weights in a block along K: 1 for types that are not quantised. */
int kern_type_block(enum kern_type t);
/* Bytes of a block in a file, and so of one weight of a type that is not quantised. */
size_t kern_type_bytes(enum kern_type t);

/* Files gemm_quant_*.c, gemm_float_*.c and attn_kv_*.c hold a kernel for any type of quantised
 * weights, of other weights, and of keys and values. They are compiled once for each type, with
 * QUANT, FLOAT or KV its name in upper case, KERN_TYPE_NAME the same in lower case, and
 * KERN_QUANT_VARIANT, KERN_FLOAT_VARIANT or KERN_KV_VARIANT the symbol of the variant. */
#define KERN_PASTE_(a, b, c) a##b##c
#define KERN_PASTE(a, b, c)  KERN_PASTE_(a, b, c)
/* Bytes of n consecutive weights in a file; n is a multiple of the block. */
size_t kern_type_size(enum kern_type t, int64_t n);
/* Bytes of k rows of a panel; k is a multiple of the block. */
size_t kern_panel_size(enum kern_type t, int64_t k);
/* Is a panel one block, whatever its rows? Its rows cannot be divided along K. */
bool kern_type_one_block(enum kern_type t);
/* Bytes of one weight in a panel, on average; without the head of a panel that is one block. */
double kern_type_weight_bytes(enum kern_type t);

static inline bool kern_type_quantised(enum kern_type t)
{
    return t >= KERN_N_PLAIN_TYPES && t < KERN_N_TYPES;
}

/* The precision of a variant. Each allows what those before it allow.
 * KERN_EXACT: f32 activations, f32 sums.
 * KERN_RELAXED: factors may be rounded to bf16: activations, quantised weights and, in attention,
 * queries, keys, values and weights of the softmax. A GEMM errs no more than rounding its
 * activations to bf16 would make it, 1.5 times as much where its weights are rounded, too
 * (tests/kernels/test_error.c).
 * KERN_A8: where the weights are quantised, activations of 8 bits with a scale for each 32
 * along K, or for the row where the weights of a column share theirs (KERN_W4C). */
enum kern_precision { KERN_EXACT, KERN_RELAXED, KERN_A8 };
#define KERN_PRECISIONS "exact|relaxed|a8"              /* the values of an option */
const char *kern_precision_name(enum kern_precision p); /* "exact" */
/* The precision of this name; KERN_EXACT where there is none, or `name` is NULL. */
enum kern_precision kern_precision_of(const char *name);

/* The products come first, in the order of their types: KERN_GEMM_F32 + type. */
enum kern_op {
    KERN_GEMM_F32, /* kern_gemm_fn: f32 weights */
    KERN_GEMM_F16,
    KERN_GEMM_BF16,
#define KERN_QUANT_TYPE(T, ...) KERN_GEMM_##T,
#include "kernels/quant_types.def"
#undef KERN_QUANT_TYPE
    /* kern_attn_fn, in the order of the types of keys and values: KERN_ATTN_F32 + type. */
    KERN_ATTN_F32,
    KERN_ATTN_F16,
    KERN_ATTN_BF16,
    KERN_ATTN_Q8,
    KERN_RMSNORM,
    KERN_LAYERNORM,
    KERN_ROPE,
    KERN_SILU_MUL,
    KERN_GELU_MUL,
    KERN_SWIGLU_OAI,
    KERN_ADD,
    KERN_TO_BF16,   /* f32 -> bf16, round to nearest even */
    KERN_TO_F16,    /* f32 -> f16, round to nearest even */
    KERN_FROM_BF16, /* bf16 -> f32, exact */
    KERN_FROM_F16,  /* f16 -> f32, exact */
    KERN_ARGMAX,
    KERN_N_OPS
};
const char *kern_op_name(enum kern_op op); /* "gemm_bf16" */

static inline bool kern_op_is_gemm(enum kern_op op)
{
    return op < KERN_ATTN_F32;
}

static inline bool kern_op_is_attn(enum kern_op op)
{
    return op >= KERN_ATTN_F32 && op < KERN_RMSNORM;
}

/* The format of activations that a GEMM variant reads: blocks of mr rows, K-major, so that a kernel
 * reads them with one pointer (mr = the rows of this block):
 *     KERN_A_F32        [k][mr] f32
 *     KERN_A_BF16_PAIR  [k/2][mr][2] bf16   (two along K in one 32-bit word)
 *     KERN_A_BF16_ROWS  [k/32][mr][32] bf16, k rounded up to 32 with zeros: the rows of a
 *                       tile
 *     KERN_A_F16_TWICE  [k][mr][2] f16, each number twice (broadcasting 32 bits is cheaper
 *                       than 16), of rows scaled by powers of two; then [mr] f32, the
 *                       factor of each row's sums
 *     KERN_A_I8         for each 32 along K [8][mr][4] int8, from -127 to 127 (four along K in
 *                       one 32-bit word); then [mr] f32, their scales; then [2][mr] words
 *                       made of their sums, which depend on the type of the weights
 *                       (KERN_A_I8_WORDS, kernels/panel.h)
 *     KERN_A_I8_ROWS    the same with the codes of a row as neighbours, [mr][32] int8: the rows
 *                       of a tile */
enum kern_a_format {
    KERN_A_F32,
    KERN_A_BF16_PAIR,
    KERN_A_BF16_ROWS,
    KERN_A_F16_TWICE,
    KERN_A_I8,
    KERN_A_I8_ROWS
};
#define KERN_A_ROWS_K 32 /* numbers of a row of KERN_A_BF16_ROWS that are neighbours */

static inline bool kern_a_is_i8(enum kern_a_format fmt)
{
    return fmt == KERN_A_I8 || fmt == KERN_A_I8_ROWS;
}

/* C[mr, 16 np] = A[mr, k] B[k, 16 np]   (+ C if `accumulate`).
 * B is walked unit by unit: rows [0, k_unit) of a panel are contiguous at b, the next
 * k_unit rows at b + b_unit_bytes, and so on until k rows are done (the last unit may be
 * short). For an unsplit matrix k_unit = k. k and k_unit are even for bf16 (the packing
 * pads), and multiples of the block of a quantised type.
 * All np panels are full: C has 16 np columns. Sums run along k in ascending
 * order per lane; a variant chooses how many partial sums it keeps. */
struct kern_gemm_tile {
    const void *a;        /* packed block of exactly mr rows */
    const void *b;        /* panel 0, first row */
    size_t b_panel_bytes; /* from a panel to the next in the same unit */
    size_t b_unit_bytes;  /* from a unit to the next in the same panel */
    int64_t k, k_unit;    /* rows in all, rows in one unit */
    float *c;             /* row-major */
    int64_t ldc;          /* floats from a row of C to the next */
    int mr, np;           /* 1 <= mr <= kern_gemm_rows(v, np) */
    bool accumulate;
    bool sparse; /* a hint: waiting for memory alone, prefetch every fourth line only */
    bool converted; /* b is what kern_variant.convert wrote */
    /* Variants that multiply by tile registers only: the call before left them configured for this
     * one; leave them so for the next call, which has as many rows or configures them itself. */
    bool tiles_ready, tiles_kept;
    /* A hint for prefetching, not NULL: an address in the panels that the next calls will
     * multiply (their layout is that of b), and how many bytes to advance from it for each
     * 64 bytes of a panel that this call multiplies. Without kern_variant.prefetches_next: an
     * address in what is read after the product (kern_gemm_job.ahead), and up to 64; or b
     * and 0. */
    const char *next;
    int next_step;
    /* KERN_A_F16_TWICE only: factors of the rows [mr] and of the columns [16 np]. */
    const float *row_factor, *col_factor;
};
typedef void (*kern_gemm_fn)(const struct kern_gemm_tile *t);

/* Causal attention of n_tok consecutive tokens x g query heads against one KV head, keys
 * [kv_lo, min(kv_hi, pos0 + i + 1)) for token i (so kv_hi = pos0 + n_tok, kv_lo = 0 is
 * the whole of it). Softmax is f32 with running maxima (flash style).
 *   q     token i, head h of the group at q + i*q_stride + h*head_dim
 *   k, v  the first token's key and value, vectors of head_dim elements in the KV type
 *         (kernels/kv_type.h). Each further key is before the one before it in memory, each
 *         further value behind it (kv/kv.h says why); or both are in blocks, see below
 *   out   like q, with out_stride
 *   lse   NULL, or [n_tok][g]: log-sum-exp of the scaled scores, to merge partial ranges;
 *         -INFINITY (and out = 0) where the range is empty
 *   scratch  KERN_ATTN_SCRATCH_BYTES(head_dim), 64-byte aligned, this thread's own
 * A NaN score makes its row NaN.
 * n_tok * g <= KERN_ATTN_ROWS_MAX: the caller cuts longer chunks. head_dim is even, <=
 * KERN_HEAD_DIM_MAX.
 *
 * Keys and values in blocks (`blocks` is not NULL): a block has block_bytes bytes, among them
 * the keys and the values of block_tok tokens. k and v are where those of the first of them
 * are in block 0. Token t is in block blocks[t / block_tok]. The entries of
 * tokens kv_lo .. kv_hi - 1 are read and no others. A variant gives the same bits as for
 * contiguous keys and values (kernels/attn_pieces.h finds them). */
struct kern_attn_args {
    const float *q;
    int64_t q_stride;
    const void *k, *v;
    const int32_t *blocks; /* NULL: contiguous */
    int64_t block_tok;     /* a power of two, at least KERN_ATTN_BLOCK_TOK_MIN */
    size_t block_bytes;
    float *out;
    int64_t out_stride;
    float *lse;
    void *scratch;
    int64_t kv_lo, kv_hi, pos0;
    int n_tok, g, head_dim;
    float scale;
    /* Scores x become softcap * tanh(x / softcap); 0: they stay. Plain C alone reads it. */
    float softcap;
};
typedef void (*kern_attn_fn)(const struct kern_attn_args *a);
#define KERN_ATTN_ROWS_MAX      128
#define KERN_HEAD_DIM_MAX       576 /* DeepSeek V2 */
#define KERN_ATTN_BLOCK_TOK_MIN 16
/* Bytes for packed Q, a transposed tile of keys, widened values, scores, sums, and a copy of 16
 * keys and values that are in several blocks. */
#define KERN_ATTN_SCRATCH_BYTES(head_dim)                                                \
    (4 * ((size_t)(head_dim) * (KERN_ATTN_ROWS_MAX * 2 + 2 * 128) +                      \
          KERN_ATTN_ROWS_MAX * (128 + 8)) +                                              \
     1024)

/* out[i] = x[i] * w[i] / sqrt(mean(x^2) + eps). out may be x. */
typedef void (*kern_rmsnorm_fn)(float *out, const float *x, const float *w, int64_t n,
                                float eps);
/* out[i] = (x[i] - mean) * w[i] / sqrt(mean((x - mean)^2) + eps) + b[i]. out may be x; b may be
 * NULL: no bias. */
typedef void (*kern_layernorm_fn)(float *out, const float *x, const float *w,
                                  const float *b, int64_t n, float eps);
/* Rotate n_heads consecutive vectors of head_dim in place, half-split order: the pair is
 * (x[i], x[i + head_dim/2]), its angle's cos[i], sin[i], i < head_dim/2. */
typedef void (*kern_rope_fn)(float *x, const float *cos, const float *sin, int n_heads,
                             int head_dim);
/* KERN_SWIGLU_OAI: out[i] = (u + 1) g / (1 + exp(-1.702 g)), where g is gate[i], at most 7, and u
 * is up[i], from -7 to 7. The others:
 * out[i] = act(gate[i]) * up[i]: silu(x) = x / (1 + exp(-x)), or
 * gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). out may be gate or up. */
typedef void (*kern_gate_fn)(float *out, const float *gate, const float *up, int64_t n);
/* y[i] += x[i] */
typedef void (*kern_add_fn)(float *y, const float *x, int64_t n);
typedef void (*kern_to_16_fn)(uint16_t *out, const float *x, int64_t n);
typedef void (*kern_from_16_fn)(float *out, const uint16_t *x, int64_t n);
/* Index of the largest, the first one on ties; -1 where any of them is NaN or infinite;
 * n >= 1. */
typedef int64_t (*kern_argmax_fn)(const float *x, int64_t n);

struct kern_i8_group; /* kernels/pack_i8.h */

struct kern_variant {
    const char *name; /* the ISA, "avx2", with a suffix where an ISA has two variants */
    enum kern_op op;
    uint64_t isa; /* CPU_MASK() bits all of which it needs; 0 for ref */
    enum kern_precision precision;
    union {
        kern_gemm_fn gemm;
        kern_attn_fn attn;
        kern_rmsnorm_fn rmsnorm;
        kern_layernorm_fn layernorm;
        kern_rope_fn rope;
        kern_gate_fn gate;
        kern_add_fn add;
        kern_to_16_fn to_bf16, to_f16;
        kern_from_16_fn from_bf16, from_f16;
        kern_argmax_fn argmax;
    } fn;
    /* GEMM only: the micro-kernels. For np panels there is one for each number of rows from
     * 1 to rows[np - 1], which is all that fits into the registers. 0: none. */
    uint8_t rows[KERN_NP_MAX];
    int vec_cols; /* GEMM only: columns of B in a vector register */
    /* GEMM: every element of C is one chain of multiply-adds along k, which each slice
     * continues where the previous one ended. Its bits then depend on its row and column
     * only, not on mr, np or the division of k. Attention: a row's bits do not depend on
     * the other rows of the call. */
    bool batch_invariant;
    enum kern_a_format a_format; /* GEMM only */
    /* GEMM only: B is prefetched by kern_gemm_tile.next. Others leave B to the processor. */
    bool prefetches_next;
    /* GEMM only: upper bound of the root mean square error of C against exact arithmetic,
     * in units of the root mean square of sqrt(C^2 + sum of (a b)^2), for K <= 16384 and
     * values that neither overflow nor underflow in the type. Rounding only the
     * activations to bf16 gives at most 2^-9. */
    double error;
    /* GEMM only, where a_format is not KERN_A_F32: convert n floats of a row, times
     * `scale`, to words of the format (n is even for pairs, and a multiple of 32 for rows of
     * a tile). */
    void (*a_words)(uint32_t *out, const float *x, int64_t n, float scale);
    /* Activations of 8 bits only. NULL, or: make integers and a scale of 32 numbers, with the same
     * bits as pack_i8.c does. row_most: the largest magnitude of the row, where its numbers share
     * a scale; NULL: they do not. */
    void (*a_group)(struct kern_i8_group *g, const float *x, const float *row_most);
    /* KERN_A_F16_TWICE only: the power of two that a row of n floats is multiplied by. */
    float (*a_scale)(const float *x, int64_t n);
    /* NULL, or: convert t->k rows of t->np panels at t->b to the form that fn.gemm reads
     * (KERN_CONVERTED_BYTES(k, np) at `to`, 64-byte aligned), with a factor for each
     * column. Done once for all blocks of rows in a slice, where these are at least
     * convert_blocks. */
    void (*convert)(const struct kern_gemm_tile *t, void *to, float *col_factor);
    int convert_blocks; /* 0: fn.gemm reads nothing else */
};
/* The `error` of f32 activations and f32 sums in any order. */
#define KERN_ERROR_F32 5e-6
/* The `error` of activations in 8 bits. The largest of 32 activations is 64 steps or more, so that
 * the others are off by sqrt(1/12) of a 64th of it each: 2.6 % where it outweighs them all. */
#define KERN_ERROR_A8 0x1p-5
/* The same where one scale is for a row: 16384 activations of half a step each in one that
 * outweighs them all. With outliers of 50 times the usual size it is about 0.05. */
#define KERN_ERROR_A8_ROW           0.3
#define KERN_CONVERTED_BYTES(k, np) ((size_t)(k) * (((size_t)(np) + 1) / 2 * 2) * 32)

/* The most rows of a micro-kernel that takes np panels; 0: there is none. */
static inline int kern_gemm_rows(const struct kern_variant *v, int np)
{
    return np >= 1 && np <= KERN_NP_MAX ? v->rows[np - 1] : 0;
}

/* All variants compiled in, NULL-terminated; written by make from the folders. */
extern const struct kern_variant *const kern_variants[];

/* One variant per operator, chosen once, at open. */
struct kern_table {
    const struct kern_variant *v[KERN_N_OPS];
};

/* Choose among the variants that `isa_mask` (cpu_isa_usable()) can execute and `precision`
 * allows: the one needing the highest isa.def row; under KERN_A8 one that reads activations of 8
 * bits where there is any. Where several GEMM variants qualify the caller may measure and replace
 * one (t->v[op] = its choice). Every operator has a ref variant, so this cannot
 * fail. */
void kern_table_choose(struct kern_table *t, uint64_t isa_mask,
                       enum kern_precision precision);
/* Replace products and attention by the best variants that are exact and batch-invariant.
 * Every operator has one in plain C. */
void kern_table_batch_invariant(struct kern_table *t, uint64_t isa_mask);
/* "gemm_bf16=avx512 attn_f32=avx512 ..." */
void kern_table_print(const struct kern_table *t, char *out, size_t n);

/* bf16 and f16 conversions in plain C, for readers and tests. */
uint16_t kern_bf16_of(float x); /* nearest even; NaN stays NaN */
float kern_bf16_to(uint16_t h);
uint16_t kern_f16_of(float x); /* nearest even */
float kern_f16_to(uint16_t h);

#endif
