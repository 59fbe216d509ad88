/* kernels/x86/quant_cursor.h - the sub-blocks of a panel of quantised weights in the order of K,
 * over blocks and units.
 *
 * An including file is compiled for a type, QUANT (kernels/panel.h). */
#ifndef KERNELS_X86_QUANT_CURSOR_H
#define KERNELS_X86_QUANT_CURSOR_H

#include "kernels/x86/codes_avx512.h"

struct quant_cursor {
    const char *unit, *block, *sub; /* those that the sub-block at `sub` is in */
    int64_t in_unit, in_block;      /* sub-blocks from it to the end */
};

/* Before the first sub-block of panel p of the tile. */
TILE_INLINE struct quant_cursor quant_cursor(const struct kern_gemm_tile *t, int p)
{
    const char *b = (const char *)t->b + (size_t)p * t->b_panel_bytes;

    return (struct quant_cursor){.unit = b - t->b_unit_bytes, .block = b};
}

TILE_INLINE void quant_next(struct quant_cursor *c, const struct kern_gemm_tile *t)
{
    if (c->in_unit == 0) {
        c->unit += t->b_unit_bytes;
        c->in_unit = t->k_unit / KERN_SUB;
        c->block = c->sub = c->unit;
        c->in_block = 0;
    } else {
        c->sub += TYPE(SUB);
    }
    if (c->in_block == 0) {
        c->block = c->sub;
        c->sub += TYPE(HEAD);
        c->in_block = TYPE(SUBS) ? TYPE(SUBS) : c->in_unit;
    }
    c->in_unit--;
    c->in_block--;
}

#endif
