/* topo/machine_read.h - hwloc reads a machine. For machine.c and machine_open.c only.
 *
 * hwloc ends the process on damaged topologies and on a /sys that is not whole, and environment
 * variables make it describe another machine. So it runs in a child process, with what it reads
 * from the environment set here alone. */
#ifndef TOPO_MACHINE_READ_H
#define TOPO_MACHINE_READ_H

#include <stdio.h>

#include "topo/machine.h"

enum topo_from { TOPO_HOST, TOPO_HOST_CPUID, TOPO_XML, TOPO_SYNTHETIC, TOPO_FSROOT };

struct topo_source {
    enum topo_from from;    /* TOPO_HOST_CPUID: this host as its processors describe it */
    const char *what;       /* a path, levels or a folder; NULL for the host */
    struct topo_machine *m; /* has its name and source; the rest is filled in the child */
};

/* Only in a child (base/child.h), which it changes the environment of. Prints the machine as
 * topo_machine_print() does, and behind it the host as hwloc 2 XML. `ctx`: struct
 * topo_source. ERR_FORMAT: hwloc refuses the topology. */
MUST int topo_machine_read(void *ctx, FILE *out);

#endif
