/* topo/mix.h - words into 64-bit hashes, inside this module only. Equal on every machine, so
 * that hashes may be written down.   Threads: any. */
#ifndef TOPO_MIX_H
#define TOPO_MIX_H

#include <stdint.h>

#define TOPO_MIX_STEP UINT64_C(0x9e3779b97f4a7c15) /* 2^64 over the golden ratio */

/* The finalizer of splitmix64: each bit of x moves about half the bits of the result. */
static inline uint64_t topo_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* One more word of a sequence; the order of words matters. */
static inline uint64_t topo_mix_in(uint64_t h, uint64_t word)
{
    return topo_mix(h * TOPO_MIX_STEP + topo_mix(word + 1));
}

#endif
