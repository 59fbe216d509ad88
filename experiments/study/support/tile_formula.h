/* experiments/study/support/tile_formula.h - the size of a tile by MNN-LLM's formula: of all ep x
 * hp whose operands fit into the registers, the one that moves the least between them and memory.
 *     min e/ep h/hp (l hp + l ep + hp ep)    such that ep hp + ep + hp <= R
 * The objective counts numbers, the condition vector registers. As here a register has several
 * columns, hp is a multiple of these, and in the condition their number of registers.
 * Paper: MNN-LLM IV-D.   Threads: any. */
#ifndef STUDY_TILE_FORMULA_H
#define STUDY_TILE_FORMULA_H

#include <stdint.h>

/* C[e, h] = A[e, l] W[l, h] in tiles of ep rows by hp columns. */
struct study_tile_product {
    int64_t e, h, l;
    int registers; /* vector registers */
    int vec_cols;  /* columns in one of them */
};

/* The objective: numbers that are read and written. */
double study_tile_moved(const struct study_tile_product *p, int64_t ep, int64_t hp);
/* Is the condition met? hp is a multiple of vec_cols. */
int study_tile_fits(const struct study_tile_product *p, int64_t ep, int64_t hp);
/* The best of all ep <= e and multiples hp of vec_cols; of equal ones that with fewer columns. */
void study_tile_best(const struct study_tile_product *p, int64_t *ep, int64_t *hp);

#endif
