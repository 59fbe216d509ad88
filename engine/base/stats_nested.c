#include "base/stats_nested.h"

#include <math.h>
#include <string.h>

/* Where the group of number i ends, at the latest at `end`: equal in the first `level` numbers of
 * groups. Above n_levels each number is a group of its own. */
static size_t group_end(const struct stats_nested *s, const int *group, size_t i,
                        size_t end, int level)
{
    const size_t width = (size_t)s->n_levels;
    size_t k = i + 1;

    if (level <= s->n_levels)
        while (k < end && memcmp(&group[k * width], &group[i * width],
                                 (size_t)level * sizeof(*group)) == 0)
            k++;
    return k;
}

/* Of the groups of a level (0: all numbers are one), the sum of (sum of y)^2 / size, and in
 * weight[k] what it is expected to have of component k, without the mean. */
static double sum_squares(double *weight, const struct stats_nested *s, const double *y,
                          const int *group, size_t n, int level)
{
    double total = 0;

    for (size_t i = 0, end; i < n; i = end) {
        double sum = 0;

        end = group_end(s, group, i, n, level);
        for (size_t k = i; k < end; k++)
            sum += y[k];
        total += sum * sum / (double)(end - i);
        for (int k = 0; k <= s->n_levels; k++)
            for (size_t a = i, b; a < end; a = b) {
                b = group_end(s, group, a, end, k + 1);
                weight[k] += (double)((b - a) * (b - a)) / (double)(end - i);
            }
    }
    return total;
}

void stats_nested_add(struct stats_nested *s, const double *y, const int *group, size_t n)
{
    double before[STATS_NESTED_LEVELS + 1] = {0}, t = 0, t_before = 0;

    for (int l = 0; l <= s->n_levels + 1; l++) {
        double w[STATS_NESTED_LEVELS + 1] = {0};

        t = sum_squares(w, s, y, group, n, l);
        for (int k = 0; k <= s->n_levels; k++) {
            if (l > 0)
                s->weight[l - 1][k] += w[k] - before[k];
            before[k] = w[k];
        }
        if (l > 0)
            s->square[l - 1] += t - t_before;
        t_before = t;
    }
}

#define NOTHING 1e-9 /* what rounding leaves of a weight */

void stats_nested_add_evenly(struct stats_nested *s, const struct stats_nested *from)
{
    for (int l = 0; l <= s->n_levels; l++) {
        if (from->weight[l][l] <= NOTHING)
            continue;
        s->square[l] += from->square[l] / from->weight[l][l];
        for (int k = 0; k <= s->n_levels; k++)
            s->weight[l][k] += from->weight[l][k] / from->weight[l][l];
    }
}

/* Row l has nothing of the components above it, so the last one comes first. */
void stats_nested_solve(const struct stats_nested *s, double *component)
{
    for (int l = s->n_levels; l >= 0; l--) {
        double rest = s->square[l];

        for (int k = l + 1; k <= s->n_levels; k++)
            if (!isnan(component[k]))
                rest -= s->weight[l][k] * component[k];
        component[l] = s->weight[l][l] > NOTHING ? rest / s->weight[l][l] : NAN;
    }
}
