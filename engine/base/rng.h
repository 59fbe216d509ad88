/* base/rng.h - seeded random numbers in named streams.
 *
 * A stream is (seed, name): the same pair gives the same numbers on every machine, and
 * drawing from one stream never shifts another, so that "arrival", "sample", "order" and
 * "output" can be fixed one by one (MLPerf loadgen's four seeds).
 * Generator: xoshiro256++ seeded by splitmix64 over seed and an FNV-1a hash of the name.
 * Threads: a stream has one owner. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_init(struct rng *r, uint64_t seed, const char *stream);
uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n); /* uniform in [0, n), unbiased; n >= 1 */
double rng_f64(struct rng *r);                 /* uniform in [0, 1), 53 bits */
double rng_normal(struct rng *r);              /* mean 0, variance 1 */
double rng_exp(struct rng *r);                 /* mean 1 */
double rng_gamma(struct rng *r, double shape); /* mean `shape`, scale 1; shape > 0 */

#endif
