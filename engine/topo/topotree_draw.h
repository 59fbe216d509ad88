/* topo/topotree_draw.h - what the two drawings of a tree share, inside topotree_*.c only.
 *   Threads: any. */
#ifndef TOPO_TOPOTREE_DRAW_H
#define TOPO_TOPOTREE_DRAW_H

#include <stdio.h>

#include "base/err.h"

/* What `write` writes, as a string; *text is owned by the caller, mem_free(). `write`
 * must not fail: what it needs it brings along. ERR_NOMEM. */
MUST int topo_draw(char **text, void (*write)(FILE *f, void *what), void *what);

#endif
