/* cpu/unbind.h - the CPUs that a process was started with, whatever OpenMP's variables say.
 * Threads: main() only, before it starts others. */
#ifndef CPU_UNBIND_H
#define CPU_UNBIND_H

/* Undo, with a warning, what OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY have done to the
 * affinity of the process. They are for threads of OpenMP, and do not make the machine smaller. */
void cpu_unbind(void);

#endif
