#include "base/stats_interval.h"

#include <math.h>

#include "base/stats.h"

/* The width of an interval from this many draws is within 3 % of that from many more. */
#define N_DRAWS 400
/* Of single values, whose variance only chooses the length of blocks. */
#define N_DRAWS_OF_ONE 100
/* Blocks are this many times as long as variance of blocks / variance of single values, if that is
 * longer than without: chosen so that the interval covers, tests/base/test_stats_blocks.c. */
#define LENGTH_PER_RATIO 10

/* Student's t: the half-width in standard errors. */
static double t95(int df)
{
    static const double of[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
    const int n = (int)(sizeof(of) / sizeof(of[0]));

    if (df < 1)
        return NAN;
    return df <= n ? of[df - 1] : 1.96 + 2.46 / df; /* within 0.001 */
}

double stats_mean_half95(const double *x, size_t n)
{
    return t95((int)n - 1) * stats_std(x, n) / sqrt((double)n);
}

static double squares(const double *x, size_t n)
{
    double s = n > 1 ? stats_std(x, n) : 0;

    return s * s * (double)(n - (n > 0));
}

double stats_difference_half95(double *a, size_t n_a, const double *b, size_t n_b,
                               bool pairs)
{
    int df = (int)(n_a + n_b) - 2;

    if (!pairs)
        return t95(df) * sqrt((squares(a, n_a) + squares(b, n_b)) / df *
                              (1 / (double)n_a + 1 / (double)n_b));
    for (size_t i = 0; i < n_a; i++)
        a[i] -= b[i];
    return stats_mean_half95(a, n_a);
}

double stats_detectable_frac(double lo, double hi)
{
    return expm1(fmax(fabs(log(lo)), fabs(log(hi))));
}

void stats_wilson95(size_t k, size_t n, double *lo, double *hi)
{
    double z = 1.959963984540054, p = (double)k / (double)n, zz = z * z / (double)n;
    double half = z * sqrt(p * (1 - p) / (double)n + zz / (4 * (double)n));

    *lo = n ? (k ? (p + zz / 2 - half) / (1 + zz) : 0) : NAN;
    *hi = n ? (k < n ? (p + zz / 2 + half) / (1 + zz) : 1) : NAN;
}

void stats_quantile95(int n, double q, int *lo, int *hi)
{
    double p = pow(1 - q, n), below = p; /* P(exactly i), P(at most i) */

    *lo = 0;
    *hi = n - 1;
    for (int i = 0; i < n; i++) {
        if (below <= 0.025)
            *lo = i;
        if (below >= 0.975) {
            *hi = i;
            break;
        }
        p *= (double)(n - i) / (i + 1) * q / (1 - q);
        below += p;
    }
}

void stats_percentile95(const double *draws, size_t n, double *lo, double *hi)
{
    *lo = stats_percentile(draws, n, 0.025);
    *hi = stats_percentile(draws, n, 0.975);
}

/* Blocks of 3 n^(1/3) hold most of the dependence of neighbours where that is weak; at least
 * five of them. */
size_t stats_block_length(size_t n)
{
    size_t length = (size_t)ceil(3 * cbrt((double)n));

    if (n < 10)
        return 0;
    return length < n / 5 ? length : n / 5;
}

/* Variance of the statistic over n draws; NaN: a draw had no value. */
static int variance_of(double *v, const struct stats_blocks *b, struct rng *rng,
                       size_t length, size_t n)
{
    double x[N_DRAWS];

    *v = 0;
    for (size_t i = 0; i < n; i++) {
        TRY(b->draw(b->ctx, rng, length, &x[i]));
        *v += isfinite(x[i]) ? 0 : NAN;
    }
    if (!isnan(*v))
        *v = stats_std(x, n) * stats_std(x, n);
    return OK;
}

/* The variance that long blocks have, by those of two lengths: what a block misses is what its
 * values share with those outside of it, in proportion to 1 / length; and the mean of all blocks is
 * that of the series, which takes length / n of the variance. */
static int variance_long(double *v, const struct stats_blocks *b, struct rng *rng,
                         size_t length)
{
    double n = (double)b->n, l = (double)length, s = (double)(length / 2), shorter;

    TRY(variance_of(v, b, rng, length, N_DRAWS));
    TRY(variance_of(&shorter, b, rng, length / 2, N_DRAWS));
    *v /= 1 - l / n;
    shorter /= 1 - s / n;
    *v = fmax(*v, *v + (*v - shorter) * s / (l - s));
    return OK;
}

int stats_blocks_half95(double *half, size_t *length, const struct stats_blocks *b)
{
    double variance, of_one, longer;
    struct rng rng;

    *half = NAN;
    *length = stats_block_length(b->n);
    if (*length == 0)
        return OK;
    rng_init(&rng, b->seed, b->stream);
    TRY(variance_of(&variance, b, &rng, *length, N_DRAWS));
    *half = t95((int)(b->n / *length) - 1) * sqrt(variance);
    TRY(variance_of(&of_one, b, &rng, 1, N_DRAWS_OF_ONE));
    longer = fmin(ceil(LENGTH_PER_RATIO * variance / of_one), (double)(b->n / 5));
    if (!(longer > 1 && ceil(LENGTH_PER_RATIO * variance / of_one) > (double)*length))
        return OK;
    *length = (size_t)longer;
    TRY(variance_long(&variance, b, &rng, *length));
    *half = fmax(*half, t95((int)(b->n / *length) - 1) * sqrt(variance));
    return OK;
}
