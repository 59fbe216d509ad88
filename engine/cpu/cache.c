/* Cache sizes. The kernel says what one cache holds; the C library adds up those of all
 * cores on some processors (402 MB for a third level of 32 MB), so it is asked last. */
#include <pthread.h>
#include <unistd.h>

#include "cpu/cpu.h"

static size_t sizes[3];

static void read_sizes(void)
{
    static const struct {
        int name;
        size_t usual;
    } caches[] = {{_SC_LEVEL1_DCACHE_SIZE, 32 << 10},
                  {_SC_LEVEL2_CACHE_SIZE, 512 << 10},
                  {_SC_LEVEL3_CACHE_SIZE, 8 << 20}};
    struct cpu_info info;
    int64_t said[3];

    cpu_info_get(&info);
    said[0] = info.l1d_bytes, said[1] = info.l2_bytes, said[2] = info.l3_bytes;
    for (int i = 0; i < 3; i++) {
        int64_t bytes = said[i] > 0 ? said[i] : sysconf(caches[i].name);

        sizes[i] = bytes > 0 ? (size_t)bytes : caches[i].usual;
    }
}

size_t cpu_cache_bytes(int level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, read_sizes); /* a step asks, and must not read files */
    return sizes[level < 1 ? 0 : level > 3 ? 2 : level - 1];
}
