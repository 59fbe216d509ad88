#include "base/rng.h"

#include <assert.h>
#include <math.h>

#include "base/hash.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void rng_init(struct rng *r, uint64_t seed, const char *stream)
{
    /* The seed is mixed before the name joins it, so that small seeds and similar names
     * do not cancel. Four outputs of splitmix64 are never all zero. */
    uint64_t state = splitmix64(&seed) ^ hash_fnv1a(HASH_FNV1A, stream);

    for (int i = 0; i < 4; i++)
        r->s[i] = splitmix64(&state);
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotl(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    unsigned __int128 m;
    uint64_t reject;

    assert(n >= 1);
    /* Lemire's multiply-shift; the low half below 2^64 mod n marks the over-represented.
     */
    reject = -n % n;
    do
        m = (unsigned __int128)rng_u64(r) * n;
    while ((uint64_t)m < reject);
    return (uint64_t)(m >> 64);
}

double rng_f64(struct rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

double rng_normal(struct rng *r)
{
    double u, v, s;

    /* Marsaglia's polar method; its second value is dropped, a stream keeps no hidden
     * state. */
    do {
        u = 2 * rng_f64(r) - 1;
        v = 2 * rng_f64(r) - 1;
        s = u * u + v * v;
    } while (s >= 1 || s == 0);
    return u * sqrt(-2 * log(s) / s);
}

double rng_exp(struct rng *r)
{
    return -log1p(-rng_f64(r));
}

double rng_gamma(struct rng *r, double shape)
{
    double d, c, x, v, u;

    assert(shape > 0);
    /* Marsaglia and Tsang (2000); below 1 by Gamma(a) = Gamma(a + 1) U^(1/a). */
    if (shape < 1) {
        u = 1 - rng_f64(r); /* (0, 1] */
        return rng_gamma(r, shape + 1) * pow(u, 1 / shape);
    }
    d = shape - 1.0 / 3;
    c = 1 / sqrt(9 * d);
    for (;;) {
        do {
            x = rng_normal(r);
            v = 1 + c * x;
        } while (v <= 0);
        v = v * v * v;
        u = 1 - rng_f64(r);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}
