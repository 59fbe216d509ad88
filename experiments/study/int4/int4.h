/* experiments/study/int4/int4.h - products with 4-bit weights as they were before two of
 * MNN-LLM's optimizations, to measure what these are worth. The engine's own kernels have both.
 *
 * The weights are Q4_0 and the activations have 8 bits (kernels/panel.h); integers and floats are
 * those of the engine's variants, bit for bit.
 *     signed    8 is subtracted from each code in registers. Arm multiplies signed with signed
 *               bytes, and that is all. x86 multiplies unsigned with signed ones, and the
 *               weights are now the signed ones: 128 is added to each activation, and 128
 *               times the sum of the weights subtracted from the result, both in the loop
 *     unsigned  codes are multiplied as they are, and 8 times the sum of the activations,
 *               computed once for each row, is what sums begin with
 * Both read straight order: a byte has two weights that follow each other in the vector that
 * an instruction multiplies, so that unpacking ends by interleaving two vectors. The
 * engine's order is transposed: a byte's second code is that of 16 rows further.
 * A variant is one file of this folder; make lists them.
 * Paper: MNN-LLM IV-D, V-C.   Threads: any. */
#ifndef STUDY_INT4_H
#define STUDY_INT4_H

#include "cpu/cpu.h"
#include "kernels/pack.h"
#include "kernels/panel.h"

/* All of this folder, NULL-terminated; written by make. */
extern const struct kern_variant *const study_int4_variants[];

/* The variant of an including file: study_int4_<INT4_FORM>_<isa>. */
#define INT4_VARIANT(...)    INT4_VARIANT_OF(INT4_FORM, __VA_ARGS__)
#define INT4_VARIANT_OF(...) INT4_VARIANT_NAMED(__VA_ARGS__)
#define INT4_VARIANT_NAMED(form, isa_name, ...)                                          \
    const struct kern_variant study_int4_##form##_##isa_name = {.name =                  \
                                                                    #isa_name "-" #form, \
                                                                .op = KERN_GEMM_Q4_0,    \
                                                                .precision = KERN_A8,    \
                                                                .batch_invariant = true, \
                                                                .error = KERN_ERROR_A8,  \
                                                                .a_format = KERN_A_I8,   \
                                                                __VA_ARGS__}

/* The variants of one instruction set, so that they differ by the optimizations only. */
struct study_int4 {
    const struct kern_variant *signed_straight, *unsigned_straight;
    struct kern_variant transposed; /* the engine's own, of the others' tiles */
};
/* Chooses the highest instruction set that has all three and `isa_mask` (cpu_isa_usable()) allows;
 * plain C is one. */
void study_int4_choose(struct study_int4 *out, uint64_t isa_mask);

/* Bring a packed matrix of Q4_0 from the engine's order into straight order, in place. `ctx`
 * is not used (model_mats_each()). Matrices of other types are left as they are. */
void study_int4_straight(void *ctx, const struct kern_mat *w);

/* Byte of a sub-block that has the code of row k < 32 of column c in straight order, and
 * whether that is its high half. Vectors of codes have 4 rows of 16 columns. Each 16 bytes hold
 * 4 columns of two vectors: first those of the lower rows. */
static inline int study_int4_byte(int k, int c, int *high)
{
    int vector = k / 4, in_vector = 4 * (c % 4) + k % 4;

    *high = in_vector % 2;
    return 64 * (vector / 2) + 16 * (c / 4) + 8 * (vector % 2) + in_vector / 2;
}

#endif
