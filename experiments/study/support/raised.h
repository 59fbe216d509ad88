/* experiments/study/support/raised.h - kernels of engine/kernels/ref/ that are raised, given
 * parameters, lowered and compiled, for studies.   Threads: one caller. */
#ifndef STUDY_RAISED_H
#define STUDY_RAISED_H

#include "ir/build.h"

/* An instruction set as option `vectors` names it: that of the processor, or AVX2.
 * ERR_NOTFOUND, by which a cell is skipped: the processor lacks it. */
#define STUDY_VECTORS "widest|256_bit"
enum { STUDY_VECTORS_WIDEST, STUDY_VECTORS_256 };
MUST int study_target(int vectors, const struct ir_target **out);

/* The high level of <name>_ref.c. ERR_NOTFOUND: the sources are not here. */
MUST int study_raise(struct ir *out, const char *name);
/* "vI=8,uI=2", or "". */
MUST int study_set(struct ir *high, const char *parameters);
/* ir_build(); without a compiler ERR_NOTFOUND. */
MUST int study_build(struct ir_kernel *out, const struct ir *high,
                     const struct ir_target *target);
/* The variant compiled in that the engine takes for `op` on the target. */
const struct kern_variant *study_handwritten(enum kern_op op,
                                             const struct ir_target *target);

#endif
