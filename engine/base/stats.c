#include "base/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool has_nan(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(x[i]))
            return true;
    return false;
}

/* NULL when there is nothing to sort, an element is NaN, or memory is short: the caller's
 * answer is then NaN. */
static double *sorted_copy(const double *x, size_t n)
{
    double *y;

    if (n == 0 || has_nan(x, n))
        return NULL;
    y = mem_new(MEM_OTHER, n, sizeof(*y));
    if (!y)
        return NULL;
    memcpy(y, x, n * sizeof(*y));
    qsort(y, n, sizeof(*y), compare);
    return y;
}

/* Neumaier's compensated sum; infinities would turn the compensation into NaN. */
static double sum(const double *x, size_t n)
{
    double s = 0, lost = 0;

    for (size_t i = 0; i < n; i++) {
        double t = s + x[i];
        lost += fabs(s) >= fabs(x[i]) ? (s - t) + x[i] : (x[i] - t) + s;
        s = t;
    }
    return isfinite(s) ? s + lost : s;
}

double stats_mean(const double *x, size_t n)
{
    return n ? sum(x, n) / (double)n : NAN;
}

double stats_std(const double *x, size_t n)
{
    double mean = stats_mean(x, n), s = 0;

    if (n < 2)
        return NAN;
    for (size_t i = 0; i < n; i++)
        s += (x[i] - mean) * (x[i] - mean);
    return sqrt(s / (double)(n - 1));
}

double stats_min(const double *x, size_t n)
{
    double m = n && !has_nan(x, n) ? x[0] : NAN;

    for (size_t i = 1; i < n && !isnan(m); i++)
        m = x[i] < m ? x[i] : m;
    return m;
}

double stats_max(const double *x, size_t n)
{
    double m = n && !has_nan(x, n) ? x[0] : NAN;

    for (size_t i = 1; i < n && !isnan(m); i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

double stats_percentile(const double *x, size_t n, double q)
{
    double *y, p, rank;

    if (!(q > 0 && q <= 1) || !(y = sorted_copy(x, n)))
        return NAN;
    /* q n may land a rounding error above an integer (0.07 * 100); that is not one rank
     * more. */
    rank = ceil(q * (double)n * (1 - 1e-14));
    p = y[rank < 1 ? 0 : (size_t)rank - 1];
    mem_free(y);
    return p;
}

static double median_of_sorted(const double *y, size_t n)
{
    return n % 2 ? y[n / 2] : y[n / 2 - 1] / 2 + y[n / 2] / 2;
}

double stats_median(const double *x, size_t n)
{
    double *y = sorted_copy(x, n), m;

    if (!y)
        return NAN;
    m = median_of_sorted(y, n);
    mem_free(y);
    return m;
}

double stats_mad(const double *x, size_t n)
{
    double *y = sorted_copy(x, n), m;

    if (!y)
        return NAN;
    m = median_of_sorted(y, n);
    for (size_t i = 0; i < n; i++)
        y[i] = fabs(y[i] - m);
    if (has_nan(y, n)) {
        mem_free(y);
        return NAN;
    }
    qsort(y, n, sizeof(*y), compare);
    m = median_of_sorted(y, n);
    mem_free(y);
    return m;
}

size_t stats_percentile_floor(double q)
{
    if (q <= 0.9)
        return 1;
    if (!(q < 1))
        return SIZE_MAX; /* no finite sample shows it */
    /* The chance that all n samples lie below the true quantile is q^n; n makes it 2.5 %.
     */
    return (size_t)ceil(log(0.025) / log(q));
}

static int compare_at(const void *a, const void *b, void *ctx)
{
    const double *x = ctx;

    return compare(&x[*(const size_t *)a], &x[*(const size_t *)b]);
}

static double *mean_ranks(const double *x, size_t n, size_t *order)
{
    double *rank = mem_new(MEM_OTHER, n, sizeof(*rank));

    if (!rank)
        return NULL;
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof(*order), compare_at, (void *)x);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && x[order[j]] == x[order[i]];)
            j++;
        for (size_t k = i; k < j; k++)
            rank[order[k]] = (double)(i + j - 1) / 2;
    }
    return rank;
}

static double pearson(const double *x, const double *y, size_t n)
{
    double mx = stats_mean(x, n), my = stats_mean(y, n), xx = 0, yy = 0, xy = 0;

    for (size_t i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        yy += (y[i] - my) * (y[i] - my);
        xy += (x[i] - mx) * (y[i] - my);
    }
    return xx > 0 && yy > 0 ? xy / (sqrt(xx) * sqrt(yy)) : NAN;
}

double stats_spearman(const double *x, const double *y, size_t n)
{
    double rho = NAN, *rx = NULL, *ry = NULL;
    size_t *order;

    if (n < 2 || has_nan(x, n) || has_nan(y, n))
        return NAN;
    order = mem_new(MEM_OTHER, n, sizeof(*order));
    if (!order)
        return NAN;
    rx = mean_ranks(x, n, order);
    ry = rx ? mean_ranks(y, n, order) : NULL;
    if (ry)
        rho = pearson(rx, ry, n);
    mem_free(ry);
    mem_free(rx);
    mem_free(order);
    return rho;
}

struct point {
    double x, y;
};

static int by_x_then_y(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    int c = compare(&p->x, &q->x);

    return c ? c : compare(&p->y, &q->y);
}

/* Sort y[n] by merging. Returns how many pairs were in the wrong order. */
static double count_swaps(double *y, double *scratch, size_t n)
{
    size_t half = n / 2, i = 0, k = half;
    double swaps;

    if (n < 2)
        return 0;
    swaps = count_swaps(y, scratch, half) + count_swaps(y + half, scratch, n - half);
    for (size_t to = 0; to < n; to++)
        if (k == n || (i < half && y[i] <= y[k])) {
            scratch[to] = y[i++];
        } else {
            scratch[to] = y[k++];
            swaps += (double)(half - i);
        }
    memcpy(y, scratch, n * sizeof(*y));
    return swaps;
}

static double n_pairs(size_t n)
{
    return (double)n * (double)(n - 1) / 2; /* n = 0 gives 0 */
}

/* Pairs of points with equal x, and of those with equal x and y, of points in order. */
static void count_ties(const struct point *p, size_t n, double *in_x, double *in_both)
{
    size_t of_x = 1, of_both = 1;

    for (size_t i = 1; i <= n; i++) {
        bool same_x = i < n && p[i].x == p[i - 1].x;
        bool same = same_x && p[i].y == p[i - 1].y;

        if (!same_x)
            *in_x += n_pairs(of_x);
        if (!same)
            *in_both += n_pairs(of_both);
        of_x = same_x ? of_x + 1 : 1;
        of_both = same ? of_both + 1 : 1;
    }
}

static double kendall(struct point *p, double *y, double *scratch, size_t n)
{
    double in_x = 0, in_y = 0, in_both = 0, none = 0, swaps, untied;

    qsort(p, n, sizeof(*p), by_x_then_y);
    count_ties(p, n, &in_x, &in_both);
    for (size_t i = 0; i < n; i++)
        y[i] = p[i].y;
    swaps = count_swaps(y, scratch, n);
    for (size_t i = 0; i < n; i++)
        p[i] = (struct point){y[i], 0};
    count_ties(p, n, &in_y, &none);
    untied = (n_pairs(n) - in_x) * (n_pairs(n) - in_y);
    return untied > 0 ? (n_pairs(n) - in_x - in_y + in_both - 2 * swaps) / sqrt(untied)
                      : NAN;
}

double stats_kendall(const double *x, const double *y, size_t n)
{
    struct point *p;
    double *scratch, tau = NAN;

    if (n < 2 || has_nan(x, n) || has_nan(y, n))
        return NAN;
    p = mem_new(MEM_OTHER, n, sizeof(*p));
    scratch = mem_new(MEM_OTHER, 2 * n, sizeof(*scratch));
    for (size_t i = 0; p && i < n; i++)
        p[i] = (struct point){x[i], y[i]};
    if (p && scratch)
        tau = kendall(p, scratch, scratch + n, n);
    mem_free(scratch);
    mem_free(p);
    return tau;
}

double stats_geomean(const double *x, size_t n)
{
    double s = 0;

    if (n == 0)
        return NAN;
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] > 0))
            return NAN;
        s += log(x[i]);
    }
    return exp(s / (double)n);
}
