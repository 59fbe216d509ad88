/* ir/build.h - a lowered kernel, compiled by the system's compiler and loaded.
 *
 * The object is kept in a folder that only this user can write, under a name made of two digests:
 * one of the text, the compiler and its flags, and one of the object itself. It is compiled again
 * when any of them differs. A kernel of this process is one more struct kern_variant: the tuner,
 * the driver of products and tests take it like those that are compiled in.
 * Threads: one; what is built may run in any. */
#ifndef IR_BUILD_H
#define IR_BUILD_H

#include "ir/ir.h"
#include "kernels/kern.h"

#define IR_CACHE_DIR "kernels" /* of home_cache() */

/* The instruction set that kernels are compiled for: the best of AVX-512, AVX2 or NEON that `isa`
 * has, else plain C. */
struct ir_target {
    const char *name; /* "avx512" */
    uint64_t isa;
    int registers, lanes; /* vector registers, and f32 in one */
    const char *flags;
};
const struct ir_target *ir_target_of(uint64_t isa);

struct ir_kernel {
    struct kern_variant v; /* its name is below */
    char name[32];         /* "ir-avx2-1a2b3c4d" */
    char path[512];        /* of the object */
    bool was_kept;         /* it needed no compiler */
    void *handle;
};

/* Lower, compile and load for `target`.
 *   dir   the folder of objects, see file_make_private_dir(); NULL: IR_CACHE_DIR
 * ERR_UNSUPPORTED: it cannot be lowered, or there is no compiler ($CC, else cc). ERR_FORMAT: the
 * compiler refused it, with its first error. ERR_IO. Else as ir_lower(). */
MUST int ir_build(struct ir_kernel *out, const struct ir *high,
                  const struct ir_target *target, const char *dir);
void ir_unload(struct ir_kernel *k); /* also after an error */

/* The parameters that make a product's micro-kernels for a target: all tiles that its registers
 * hold, vectors as wide as they are, and multiply-adds. With `bits`: those that keep every bit
 * of kernels/ref/. ERR_NOTFOUND: not a product. */
MUST int ir_set_product(struct ir *high, const struct ir_target *target, bool bits);

#endif
