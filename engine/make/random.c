/* Seeded weights: a 16-bit piece of a hash of the position chooses one of the 65536
 * quantiles of the normal distribution. One hash serves four weights, so writing the
 * file, not making the numbers, takes the time. All arithmetic that decides a byte is on
 * integers or is a single correctly rounded operation: no library function, no order of
 * sums, no fused multiply. */
#include "make/parts.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define N_HALF 32768
#define N_ALL  65536

/* Cells of 2^-12 for integrating the density; a cell's mass is the last one's times a
 * ratio that itself shrinks by exp(-2^-24) a cell. Scaled by 2^63. */
#define FIRST_MASS  898338145985973ull     /* 2^63 2^-12 / sqrt(2 pi) exp(-2^-27) */
#define RATIO_DECAY 9223371487098978303ull /* 2^63 exp(-2^-24) */

static uint64_t mul63(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a * b) >> 63);
}

/* quantile[i] = the z for which the mass of [0, z] is (i + 1/2) / 65536. */
static void fill_quantiles(int32_t *quantile)
{
    uint64_t mass = FIRST_MASS, ratio = RATIO_DECAY, below = 0, target, cell = 0;
    int i;

    for (i = 0; i < N_HALF; i++) {
        target = (2 * (uint64_t)i + 1) << (63 - 17);
        while (below + mass <= target) {
            below += mass;
            mass = mul63(mass, ratio);
            ratio = mul63(ratio, RATIO_DECAY);
            cell++;
        }
        quantile[i] = (int32_t)((cell << 12) + ((target - below) << 12) / mass);
    }
}

static uint16_t to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); /* finite: no NaN to keep */
}

/* Round to nearest even; |x| is far below the largest f16. */
static uint16_t to_f16(float x)
{
    uint32_t u, sign, shift, half;

    memcpy(&u, &x, sizeof(u));
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u < 0x33000000) /* at most 2^-25: half of the smallest */
        return (uint16_t)sign;
    if (u >= 0x38800000) /* 2^-14: normal */
        return (uint16_t)(sign | ((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13));
    shift = 126 - (u >> 23); /* subnormal: units of 2^-24 */
    u = (u & 0x7fffff) | 0x800000;
    half = u >> shift;
    u &= (1u << shift) - 1;
    if (u > 1u << (shift - 1) || (u == 1u << (shift - 1) && (half & 1)))
        half++;
    return (uint16_t)(sign | half);
}

static int32_t signed_quantile(const struct make_random *r, uint32_t i)
{
    return i < N_HALF ? r->quantile[i] : -r->quantile[i - N_HALF];
}

static int add_table(struct make_random *r, int64_t fan_in)
{
    double unit = 1 / sqrt((double)fan_in) / (1 << 24);
    float x;
    uint32_t i;
    int t;

    for (t = 0; r->table[t].value; t++)
        if (r->table[t].fan_in == fan_in)
            return OK;
    r->table[t].fan_in = fan_in;
    r->table[t].value = mem_new(MEM_MODEL_FILE, N_ALL, kern_type_bytes(r->type));
    if (!r->table[t].value)
        return ERR_NOMEM;
    for (i = 0; i < N_ALL; i++) {
        x = (float)((double)signed_quantile(r, i) * unit);
        if (r->type == KERN_F32)
            ((float *)r->table[t].value)[i] = x;
        else
            ((uint16_t *)r->table[t].value)[i] =
                r->type == KERN_BF16 ? to_bf16(x) : to_f16(x);
    }
    return OK;
}

int make_random_init(struct make_random *r, const struct model_config *c,
                     enum kern_type type, uint64_t seed)
{
    int rc;

    *r = (struct make_random){.seed = seed, .type = type};
    r->quantile = mem_new(MEM_MODEL_FILE, N_HALF, sizeof(r->quantile[0]));
    if (!r->quantile)
        return ERR_NOMEM;
    fill_quantiles(r->quantile);
    if ((rc = add_table(r, c->dim)) != OK ||
        (rc = add_table(r, (int64_t)c->n_heads * c->head_dim)) != OK ||
        (rc = add_table(r, c->hidden)) != OK)
        make_random_fini(r);
    return rc;
}

void make_random_fini(struct make_random *r)
{
    int t;

    for (t = 0; t < MAKE_MAX_TABLES; t++)
        mem_free(r->table[t].value);
    mem_free(r->quantile);
    *r = (struct make_random){0};
}

/* The finaliser of splitmix64: every bit of x moves every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
#define GOLDEN 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio: splitmix64's step */

/* Each layer has 15 keys, as many as there were roles when the first models were made, so
 * that the weights of a seed stay the same. Later roles use keys of the next layer that
 * belong to roles outside of layers, which it does not use itself. */
static uint64_t row_key(uint64_t seed, enum format_role role, int layer, int64_t row)
{
    uint64_t tensor = mix(seed + GOLDEN * ((uint64_t)layer * 15 + role + 1));

    return mix(tensor + GOLDEN * (uint64_t)(row + 1));
}

static void vector_row(const struct make_random *r, uint64_t key, double centre,
                       int64_t n, float *out)
{
    int64_t j, z;

    /* centre + z / 10, with the sum on integers */
    for (j = 0; j < n; j++) {
        z = signed_quantile(r, (uint32_t)(mix(key + GOLDEN * (uint64_t)(j + 1)) >> 48));
        out[j] =
            (float)((double)((int64_t)centre * 10 * (1 << 24) + z) / (10.0 * (1 << 24)));
    }
}

#define MATRIX_ROW(name, type)                                                           \
    static void name(const type *table, uint64_t key, int64_t n, type *out)              \
    {                                                                                    \
        uint64_t h;                                                                      \
        int64_t j;                                                                       \
                                                                                         \
        for (j = 0; j + 4 <= n; j += 4) {                                                \
            h = mix(key += GOLDEN);                                                      \
            out[j] = table[h & 0xffff];                                                  \
            out[j + 1] = table[h >> 16 & 0xffff];                                        \
            out[j + 2] = table[h >> 32 & 0xffff];                                        \
            out[j + 3] = table[h >> 48];                                                 \
        }                                                                                \
        for (h = mix(key + GOLDEN); j < n; j++, h >>= 16)                                \
            out[j] = table[h & 0xffff];                                                  \
    }
MATRIX_ROW(matrix_row_32, float)
MATRIX_ROW(matrix_row_16, uint16_t)

void make_row(const struct make_random *r, enum format_role role, int layer, int64_t row,
              int64_t n, void *out)
{
    uint64_t key = row_key(r->seed, role, layer, row);
    int t = 0;

    switch (role) {
    case FORMAT_OUT_NORM:
    case FORMAT_ATTN_NORM:
    case FORMAT_FFN_NORM:
    case FORMAT_Q_NORM:
    case FORMAT_K_NORM:
        vector_row(r, key, 1, n, out);
        return;
    case FORMAT_Q_BIAS:
    case FORMAT_K_BIAS:
    case FORMAT_V_BIAS:
        vector_row(r, key, 0, n, out);
        return;
    default:
        break;
    }
    while (r->table[t].fan_in != n) /* a matrix has as many columns as inputs */
        t++;
    if (r->type == KERN_F32)
        matrix_row_32(r->table[t].value, key, n, out);
    else
        matrix_row_16(r->table[t].value, key, n, out);
}
