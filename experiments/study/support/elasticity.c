#include "experiments/study/support/elasticity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "measure/compare.h"

/* Below this a change is none: a hundredth of a percent. */
#define PIVOT_MIN 1e-4

/* Gauss's elimination of a[n][n + 1], the row with the largest element first. */
static bool eliminate(double a[][STUDY_RESOURCES_MAX + 1], int n)
{
    for (int k = 0; k < n; k++) {
        int top = k;

        for (int i = k + 1; i < n; i++)
            if (fabs(a[i][k]) > fabs(a[top][k]))
                top = i;
        if (!(fabs(a[top][k]) >= PIVOT_MIN))
            return false;
        for (int j = k; j <= n; j++) {
            double t = a[k][j];

            a[k][j] = a[top][j];
            a[top][j] = t;
        }
        for (int i = 0; i < n; i++) {
            double f = a[i][k] / a[k][k];

            for (int j = k; j <= n && i != k; j++)
                a[i][j] -= f * a[k][j];
        }
    }
    return true;
}

bool study_elasticity_solve(double e[], int n, const double x[][STUDY_RESOURCES_MAX],
                            const double y[])
{
    double a[STUDY_RESOURCES_MAX][STUDY_RESOURCES_MAX + 1];
    bool ok = true;

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            ok = ok && isfinite(a[i][j] = x[i][j]);
        ok = ok && isfinite(a[i][n] = y[i]);
    }
    ok = ok && eliminate(a, n);
    for (int i = 0; i < n; i++)
        e[i] = ok ? a[i][n] / a[i][i] : NAN;
    return ok;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct study_estimate study_estimate_median(const double *v, int n)
{
    struct study_estimate e = {NAN, NAN, NAN};
    double *sorted;
    int lo, hi, n_known = 0;

    if (n < 1)
        return e;
    sorted = mem_new(MEM_HARNESS, (size_t)n, sizeof(*sorted));
    for (int i = 0; i < n; i++)
        if (isfinite(v[i]))
            sorted[n_known++] = v[i];
    e.value = n_known ? stats_median(sorted, (size_t)n_known) : NAN;
    if (n_known >= MEASURE_SURE_ROUNDS) {
        qsort(sorted, (size_t)n_known, sizeof(*sorted), ascending);
        stats_quantile95(n_known, 0.5, &lo, &hi);
        e.lo = sorted[lo];
        e.hi = sorted[hi];
    }
    mem_free(sorted);
    return e;
}

bool study_elasticity_known(double e[], int n, int known, double value,
                            const double x[][STUDY_RESOURCES_MAX], const double y[])
{
    double others[STUDY_RESOURCES_MAX][STUDY_RESOURCES_MAX], z[STUDY_RESOURCES_MAX], one;
    bool ok;

    ok = study_elasticity_solve(e, n, x, y);
    one = e[known];
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            others[i][k] = i == known ? k == known : x[i][k];
        z[i] = i == known ? value : y[i];
    }
    if (!study_elasticity_solve(e, n, others, z))
        ok = false;
    e[known] = one;
    return ok;
}
