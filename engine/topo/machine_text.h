/* topo/machine_text.h - a machine as text, from the process that read a foreign topology to
 * the one that asked for it. For machine.c and machine_open.c only. */
#ifndef TOPO_MACHINE_TEXT_H
#define TOPO_MACHINE_TEXT_H

#include <stdio.h>

#include "topo/machine.h"

#define TOPO_PUS_MAX 65536

/* All but name and source. An error of writing is the stream's. */
void topo_machine_print(const struct topo_machine *m, FILE *f);

/* Fill `m`, all zeros but for name and source, from what topo_machine_print() wrote; the
 * arrays are the caller's after an error, too. All of it is
 * checked: the process that wrote it read a hostile file. ERR_FORMAT: a number is
 * missing, or out of its range, or a CPU is there twice; `where` begins the message. *rest:
 * what stands behind it in `text`, lent; "" for nothing.
 * ERR_NOMEM. */
MUST int topo_machine_parse(struct topo_machine *m, const char *text, const char **rest,
                            const char *where);

/* Add to what was missing or assumed. */
void topo_note(struct topo_machine *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
