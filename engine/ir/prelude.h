/* ir/prelude.h - the text that precedes every lowered kernel: vectors, and of kern.h what kernels
 * use, so that a compiler needs no file of ours. Private to the module. */
#ifndef IR_PRELUDE_H
#define IR_PRELUDE_H

#include "ir/tree.h"

/* lanes: bit n is set where vectors of 2^n lanes are used. */
void ir_put_prelude(struct text *t, unsigned lanes);

#endif
