/* The parts of one core: caches, multiply-add units and prefetchers. The kernel says what one cache
 * holds. Where it does not, the C library is asked, which for AMD may give the third level of the
 * whole package (508 MiB of 32 MiB each), so it is capped at that. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "cpu/assume.h"

#define AMD_L3_BYTES                                                                     \
    ((int64_t)32 << 20) /* of one core complex, Zen 2 to Zen 5; not of X3D */

static struct cpu_info here;
static size_t sizes[3];
static int fma_512;
static bool bf16_dot_fast;
static struct cpu_prefetch prefetch;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* 0: unknown. */
static int64_t c_library_bytes(int level, int name, const struct cpu_info *info)
{
    int64_t bytes = sysconf(name);

    if (level == 3 && strcmp(info->vendor, "AuthenticAMD") == 0 && bytes > AMD_L3_BYTES)
        return AMD_L3_BYTES;
    return bytes > 0 ? bytes : 0;
}

static void set_core(const struct cpu_info *info)
{
    static const struct {
        int name;
        size_t usual;
    } caches[] = {{_SC_LEVEL1_DCACHE_SIZE, 32 << 10},
                  {_SC_LEVEL2_CACHE_SIZE, 512 << 10},
                  {_SC_LEVEL3_CACHE_SIZE, 8 << 20}};
    const int64_t stated[3] = {info->l1d_bytes, info->l2_bytes, info->l3_bytes};

    fma_512 = cpu_fma_per_cycle_of(info, 512);
    bf16_dot_fast = cpu_bf16_dot_fast_of(info);
    cpu_prefetch_of(&prefetch, info);
    for (int i = 0; i < 3; i++) {
        int64_t bytes =
            stated[i] > 0 ? stated[i] : c_library_bytes(i + 1, caches[i].name, info);

        sizes[i] = bytes > 0 ? (size_t)bytes : caches[i].usual;
    }
}

static void read_core(void)
{
    cpu_info_get(&here);
    set_core(&here);
}

void cpu_assume(const struct cpu_info *info)
{
    pthread_once(&once, read_core);
    set_core(info ? info : &here);
}

size_t cpu_cache_bytes(int level)
{
    pthread_once(&once, read_core); /* a step asks, and must not read files */
    return sizes[level < 1 ? 0 : level > 3 ? 2 : level - 1];
}

int cpu_fma_per_cycle_of(const struct cpu_info *info, int vec_bits)
{
    bool zen4 = strcmp(info->vendor, "AuthenticAMD") == 0 && info->family == 0x19;

    return vec_bits == 512 && zen4 ? 1 : 2;
}

int cpu_fma_per_cycle(int vec_bits)
{
    pthread_once(&once, read_core);
    return vec_bits == 512 ? fma_512 : 2;
}

bool cpu_bf16_dot_fast_of(const struct cpu_info *info)
{
    return strcmp(info->vendor, "AuthenticAMD") == 0;
}

bool cpu_bf16_dot_fast(void)
{
    pthread_once(&once, read_core);
    return bf16_dot_fast;
}

/* Two threads, weights out of memory, on Zen 4, which stands for all others, on Emerald Rapids,
 * of whose cores fewer requests are under way at a time, on Zen 5, and with AVX2 on Zen 3. The
 * machine's noise is near 0.05. `sparse` is Zen 4's alone.
 *   sparse     every fourth line only, with 1 and 2 rows: with bf16 Zen 4 takes 0.92 to 1.0 of
 *              the time, Emerald Rapids 1.17 and 1.24 times as long; Zen 5 takes 1.10 to 1.22
 *              times as long with bf16, 1.02 to 1.14 with 8 bits, 1.09 to 1.17 with q4_0
 *              (1.08 to 1.27 with AVX2), 1.02 to 1.1 with q4_k. Zen 3 decodes 1.13 times as
 *              fast without with bf16, 1.3 times with q4_0 and q8_0, 1.8 times with q4_k
 *   far_bytes  256 for each panel was the best on Zen 4; with 8 KiB in all Emerald Rapids
 *              multiplies 1, 2 and 3 rows by six, three and one panels 1.04, 1.1 and 1.7 times
 *              as fast; Zen 5 1 and 2 rows of bf16 0.93 and 1.17 times
 *   streams    with AVX-512 and 3 to 9 rows Emerald Rapids is 1.05 to 1.15 times as fast by three
 *              panels as by one, Zen 4 slower; Zen 5 multiplies 1, 2, 4 and 8 rows of bf16 by
 *              three 1.14 to 1.6, 1.25 to 1.7, 1.2 to 1.5 and 1.2 to 1.6 times as fast, the more
 *              the slower memory is; by six as fast, and 2 rows of q4_0 0.96 times
 *   later      of 16 sequences, Zen 4 takes 0.93 of the time of a step, Emerald Rapids 1.06 */
void cpu_prefetch_of(struct cpu_prefetch *out, const struct cpu_info *info)
{
    bool intel = strcmp(info->vendor, "GenuineIntel") == 0;
    bool amd = strcmp(info->vendor, "AuthenticAMD") == 0;
    bool zen5 = amd && info->family == 0x1a;
    /* Its family has Zen 3 as well: models 0x00 to 0x0f and 0x20 to 0x5f. */
    bool zen4 =
        amd && info->family == 0x19 && (info->model >> 4 == 1 || info->model >> 4 >= 6);

    *out = (struct cpu_prefetch){.sparse = zen4,
                                 .far_bytes = intel ? 8192 : 256,
                                 .streams = intel || zen5 ? 3 : 1,
                                 .streams_rows = zen5 ? 1 : 3,
                                 .later = !intel};
}

const struct cpu_prefetch *cpu_prefetch(void)
{
    pthread_once(&once, read_core);
    return &prefetch;
}
