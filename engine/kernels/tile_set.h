/* kernels/tile_set.h - generates every micro-kernel of a family from one template.
 *
 * An including template defines
 *     TILE_SET(X)          X(mr, np) for every shape whose sums, columns of B and broadcast
 *                          fit the register file: TILE_UP_n(X, np) is 1 .. n rows
 *     TILE_ROWS            {rows at 1 panel, at 2 panels, ...}, for struct kern_variant
 *     tile_run(t, mr, np)  the kernel, always inlined, mr and np constants
 * and gets tile_dispatch(). Each shape is a function of its own that keeps its sums in
 * registers; none spills (tests/kernels/test_spill.sh).   Paper: Sandwich 6. */
#ifndef KERNELS_TILE_SET_H
#define KERNELS_TILE_SET_H

#include "kernels/kern.h"

#define TILE_INLINE static inline __attribute__((always_inline))

#define TILE_UP_1(X, np)  X(1, np)
#define TILE_UP_2(X, np)  TILE_UP_1(X, np) X(2, np)
#define TILE_UP_3(X, np)  TILE_UP_2(X, np) X(3, np)
#define TILE_UP_4(X, np)  TILE_UP_3(X, np) X(4, np)
#define TILE_UP_5(X, np)  TILE_UP_4(X, np) X(5, np)
#define TILE_UP_6(X, np)  TILE_UP_5(X, np) X(6, np)
#define TILE_UP_7(X, np)  TILE_UP_6(X, np) X(7, np)
#define TILE_UP_8(X, np)  TILE_UP_7(X, np) X(8, np)
#define TILE_UP_9(X, np)  TILE_UP_8(X, np) X(9, np)
#define TILE_UP_10(X, np) TILE_UP_9(X, np) X(10, np)
#define TILE_UP_11(X, np) TILE_UP_10(X, np) X(11, np)
#define TILE_UP_12(X, np) TILE_UP_11(X, np) X(12, np)
#define TILE_UP_13(X, np) TILE_UP_12(X, np) X(13, np)
#define TILE_UP_14(X, np) TILE_UP_13(X, np) X(14, np)
#define TILE_UP_15(X, np) TILE_UP_14(X, np) X(15, np)
#define TILE_UP_16(X, np) TILE_UP_15(X, np) X(16, np)
#define TILE_UP_17(X, np) TILE_UP_16(X, np) X(17, np)
#define TILE_UP_18(X, np) TILE_UP_17(X, np) X(18, np)
#define TILE_UP_19(X, np) TILE_UP_18(X, np) X(19, np)
#define TILE_UP_20(X, np) TILE_UP_19(X, np) X(20, np)
#define TILE_UP_21(X, np) TILE_UP_20(X, np) X(21, np)
#define TILE_UP_22(X, np) TILE_UP_21(X, np) X(22, np)
#define TILE_UP_23(X, np) TILE_UP_22(X, np) X(23, np)
#define TILE_UP_24(X, np) TILE_UP_23(X, np) X(24, np)
#define TILE_UP_25(X, np) TILE_UP_24(X, np) X(25, np)
#define TILE_UP_26(X, np) TILE_UP_25(X, np) X(26, np)
#define TILE_UP_27(X, np) TILE_UP_26(X, np) X(27, np)
#define TILE_UP_28(X, np) TILE_UP_27(X, np) X(28, np)
#define TILE_UP_29(X, np) TILE_UP_28(X, np) X(29, np)
#define TILE_UP_30(X, np) TILE_UP_29(X, np) X(30, np)

#define TILE_FUNCTION(mr, np)                                                            \
    static void tile_##mr##x##np(const struct kern_gemm_tile *t)                         \
    {                                                                                    \
        tile_run(t, mr, np);                                                             \
    }
#define TILE_ENTRY(mr, np) [np - 1][mr - 1] = tile_##mr##x##np,
/* Both after tile_run() is defined. */
#define TILE_DISPATCH                                                                    \
    TILE_SET(TILE_FUNCTION)                                                              \
    static const kern_gemm_fn tile_table[KERN_NP_MAX][TILE_MR_MAX] = {                   \
        TILE_SET(TILE_ENTRY)};                                                           \
    static void tile_dispatch(const struct kern_gemm_tile *t)                            \
    {                                                                                    \
        tile_table[t->np - 1][t->mr - 1](t);                                             \
    }
/* The same for the shapes of TILE_SET_FEW(X) only; the others are multiplied by `variant`, whose
 * tiles of these shapes are the same code. */
#define TILE_DISPATCH_FEW(variant)                                                       \
    extern const struct kern_variant variant;                                            \
    TILE_SET_FEW(TILE_FUNCTION)                                                          \
    static const kern_gemm_fn tile_table[KERN_NP_MAX][TILE_MR_MAX] = {                   \
        TILE_SET_FEW(TILE_ENTRY)};                                                       \
    static void tile_dispatch(const struct kern_gemm_tile *t)                            \
    {                                                                                    \
        kern_gemm_fn tile = tile_table[t->np - 1][t->mr - 1];                            \
                                                                                         \
        (tile ? tile : variant.fn.gemm)(t);                                              \
    }

#endif
