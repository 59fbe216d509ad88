#include "cpu/unbind.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "cpu/sysfile.h"

/* libgomp's constructor binds the main thread to its first place where OMP_PROC_BIND, OMP_PLACES or
 * GOMP_CPU_AFFINITY say so, before main(). What is in .preinit_array comes before that. */
static cpu_set_t at_start[AFFINITY_BITS / CPU_SETSIZE];
static long at_start_bytes; /* <= 0: unknown */

/* The sanitizers are not ready yet. */
__attribute__((no_sanitize("address"), no_sanitize("thread"),
               no_sanitize("undefined"))) static void
remember(void)
{
    at_start_bytes = syscall(SYS_sched_getaffinity, 0, sizeof(at_start), at_start);
}
__attribute__((section(".preinit_array"),
               used)) static void (*at_preinit)(void) = remember;

void cpu_unbind(void)
{
    cpu_set_t now[AFFINITY_BITS / CPU_SETSIZE];

    if (at_start_bytes <= 0 || sched_getaffinity(0, sizeof(now), now) != 0 ||
        CPU_EQUAL_S(sizeof(now), now, at_start) ||
        sched_setaffinity(0, sizeof(at_start), at_start) != 0)
        return;
    log_warning("openmp_binding", CPU_COUNT_S(sizeof(now), now),
                CPU_COUNT_S(sizeof(at_start), at_start),
                "OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY bound this program to %d "
                "of its %d CPUs: it goes on with all of them",
                CPU_COUNT_S(sizeof(now), now), CPU_COUNT_S(sizeof(at_start), at_start));
}
