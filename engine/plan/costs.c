#include "plan/costs.h"

#include <math.h>

double plan_costs_at(const struct plan_costs *c, int64_t n_rows)
{
    int last = c->n - 1, i = 1;
    double part;

    if (c->n < 1)
        return NAN;
    if (n_rows <= c->rows[0])
        return c->seconds[0];
    if (n_rows >= c->rows[last])
        return c->seconds[last] * ((double)n_rows / (double)c->rows[last]);
    while (c->rows[i] < n_rows)
        i++;
    part = (double)(n_rows - c->rows[i - 1]) / (double)(c->rows[i] - c->rows[i - 1]);
    return c->seconds[i - 1] + part * (c->seconds[i] - c->seconds[i - 1]);
}

int64_t plan_costs_most_rows(const struct plan_costs *a, const struct plan_costs *b,
                             double margin_frac, int64_t n_max)
{
    for (int64_t n = n_max; n > 0; n--)
        if (plan_costs_at(a, n) <= (1 + margin_frac) * plan_costs_at(b, n))
            return n;
    return 0;
}

int plan_costs_check(const struct plan_costs *c, const char *where)
{
    for (int i = 0; i < c->n; i++) {
        int64_t least = i > 0 ? c->rows[i - 1] + 1 : 1;

        if (c->rows[i] < least || c->rows[i] > PLAN_ROWS_MAX)
            return err_set(ERR_FORMAT,
                           "%s: step_s: entry %d: expected rows in [%lld, %d], "
                           "ascending, found %lld",
                           where, i, (long long)least, PLAN_ROWS_MAX,
                           (long long)c->rows[i]);
        if (!(c->seconds[i] > 0) || !isfinite(c->seconds[i]))
            return err_set(ERR_FORMAT,
                           "%s: step_s: entry %d: expected seconds above 0, found %g",
                           where, i, c->seconds[i]);
    }
    return OK;
}
