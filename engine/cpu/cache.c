/* Cache sizes, as the C library reads them from CPUID or the device tree. */
#include <unistd.h>

#include "cpu/cpu.h"

size_t cpu_cache_bytes(int level)
{
    static const struct {
        int name;
        size_t usual;
    } caches[] = {{_SC_LEVEL1_DCACHE_SIZE, 32 << 10},
                  {_SC_LEVEL2_CACHE_SIZE, 512 << 10},
                  {_SC_LEVEL3_CACHE_SIZE, 8 << 20}};
    int i = level < 1 ? 0 : level > 3 ? 2 : level - 1;
    long bytes = sysconf(caches[i].name);

    return bytes > 0 ? (size_t)bytes : caches[i].usual;
}
