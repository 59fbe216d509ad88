/* cpu/assume.h - answers about the core as for another one: what a simulated machine shows of
 * itself.   Threads: no other may ask meanwhile. */
#ifndef CPU_ASSUME_H
#define CPU_ASSUME_H

#include "cpu/cpu.h"

/* From now on cpu_cache_bytes(), cpu_fma_per_cycle(), cpu_prefetch() and cpu_bf16_dot_fast() answer
 * as for this processor. NULL: as for the one that this is, again. */
void cpu_assume(const struct cpu_info *info);

#endif
