#include "experiments/load/load.h"

/* No arrivals: the run itself sends when a slot becomes free. */
const struct load_process load_process_closed = {
    .name = "closed",
    .help = "closed loop: `concurrency` requests outstanding, the next when one ends",
    .reads = "concurrency",
};
