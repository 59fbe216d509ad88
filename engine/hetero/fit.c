#include "hetero/fit.h"

#include <math.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"

static double work_of(const struct hetero_point *p)
{
    return p->n_tok > 0 ? p->weights * p->n_tok : p->bytes;
}

double hetero_line_s(const struct hetero_line *l, const struct hetero_point *p)
{
    return l->start_s + l->s_per_unit * work_of(p);
}

int hetero_line_fit(struct hetero_line *out, const struct hetero_point *p, int n)
{
    double x = 0, y = 0, xx = 0, xy = 0, yy = 0, x_only = 0, left = 0;

    for (int i = 0; i < n; i++) {
        x += work_of(&p[i]) / n;
        y += p[i].seconds / n;
    }
    for (int i = 0; i < n; i++) {
        double dx = work_of(&p[i]) - x, dy = p[i].seconds - y;

        xx += dx * dx;
        xy += dx * dy;
        yy += dy * dy;
    }
    if (n < 2 || xx <= 0)
        return err_set(ERR_ARG, "%d points: expected two of different sizes", n);
    out->s_per_unit = xy / xx;
    out->start_s = y - out->s_per_unit * x;
    if (out->start_s < 0) { /* through 0 */
        for (int i = 0; i < n; i++)
            x_only += work_of(&p[i]) * p[i].seconds;
        out->s_per_unit = x_only / (xx + n * x * x);
        out->start_s = 0;
    }
    for (int i = 0; i < n; i++) {
        double d = p[i].seconds - hetero_line_s(out, &p[i]);

        left += d * d;
    }
    out->r2 = yy > 0 ? 1 - left / yy : NAN;
    return OK;
}

double hetero_regimes_s(const struct hetero_regimes *r, const struct hetero_point *p)
{
    return r->start_s +
           fmax(p->bytes / r->bytes_per_s, p->weights * p->n_tok / r->macs_per_s);
}

/* ---- two regimes ----
 *
 * With the regime of each point known, start and both rates are linear least squares of relative
 * errors. Points are in the regime that the larger ratio of tokens to bytes says, so that only the
 * ratio between them has to be found: each that parts the points is tried. */

/* Solve a [3][3] x = b for those of three unknowns that are `used`; others are 0. false: no
 * solution. */
static bool solve(double a[3][3], const double b[3], const bool used[3], double x[3])
{
    double m[3][4];

    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            m[i][j] = used[i] && used[j] ? a[i][j] : i == j;
        m[i][3] = used[i] ? b[i] : 0;
    }
    for (int i = 0; i < 3; i++) {
        double diagonal = m[i][i];

        if (!(fabs(diagonal) > 1e-300))
            return false;
        for (int j = 0; j < 4; j++)
            m[i][j] /= diagonal;
        for (int k = 0; k < 3; k++) {
            double f = m[k][i];

            for (int j = 0; j < 4 && k != i; j++)
                m[k][j] -= f * m[i][j];
        }
    }
    for (int i = 0; i < 3; i++)
        x[i] = m[i][3];
    return true;
}

static double error_of(const struct hetero_regimes *r, const struct hetero_point *p,
                       int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        double d = hetero_regimes_s(r, &p[i]) / p[i].seconds - 1;

        sum += d * d;
    }
    return sum;
}

/* Points of fewer than `limit` operations for each byte are bound by memory. */
static bool fit_parted(struct hetero_regimes *out, const struct hetero_point *p, int n,
                       double limit)
{
    double a[3][3] = {{0}}, b[3] = {0}, x[3];
    bool used[3] = {true, false, false};

    for (int i = 0; i < n; i++) {
        bool reads = p[i].weights * p[i].n_tok < limit * p[i].bytes;
        double in[3] = {1, reads ? p[i].bytes * 1e-9 : 0,
                        reads ? 0 : p[i].weights * p[i].n_tok * 1e-9};

        used[1] |= reads;
        used[2] |= !reads;
        for (int j = 0; j < 3; j++) {
            in[j] /= p[i].seconds;
            b[j] += in[j];
            for (int k = 0; k <= j; k++)
                a[j][k] += in[j] * in[k];
        }
    }
    for (int j = 0; j < 3; j++)
        for (int k = j + 1; k < 3; k++)
            a[j][k] = a[k][j];
    if (!solve(a, b, used, x))
        return false;
    if (x[0] < 0) {
        used[0] = false;
        if (!solve(a, b, used, x))
            return false;
    }
    *out = (struct hetero_regimes){x[0], 1e9 / x[1], 1e9 / x[2]}; /* x 0: no bound */
    return x[1] >= 0 && x[2] >= 0 && x[1] + x[2] > 0;
}

int hetero_regimes_fit(struct hetero_regimes *out, const struct hetero_point *p, int n)
{
    double least = INFINITY;

    if (n < 3)
        return err_set(ERR_ARG, "%d points: expected three at least", n);
    for (int i = 0; i <= n; i++) {
        double limit = i == n ? INFINITY : p[i].weights * p[i].n_tok / p[i].bytes;
        struct hetero_regimes r;
        double error;

        if (!fit_parted(&r, p, n, limit))
            continue;
        error = error_of(&r, p, n);
        if (error < least) {
            least = error;
            *out = r;
        }
    }
    return isfinite(least) ? OK
                           : err_set(ERR_ARG, "no model of two regimes fits the points");
}

/* ---- errors ---- */

struct predictor {
    const struct hetero_line *line; /* NULL: regimes */
    const struct hetero_regimes *regimes;
};

static double predicted_s(const struct predictor *m, const struct hetero_point *p)
{
    return m->line ? hetero_line_s(m->line, p) : hetero_regimes_s(m->regimes, p);
}

/* work[2 n] */
static struct hetero_errors errors_of(const struct predictor *m,
                                      const struct hetero_point *p, int n, double *work)
{
    struct hetero_errors e;
    size_t n_one = 0;

    for (int i = 0; i < n; i++) {
        work[i] = fabs(predicted_s(m, &p[i]) / p[i].seconds - 1);
        if (p[i].n_tok <= 1)
            work[(size_t)n + n_one++] = work[i];
    }
    e.median = stats_median(work, (size_t)n);
    e.one_tok = stats_median(work + n, n_one);
    for (int i = 0; i < n; i++)
        work[i] = fabs(log(predicted_s(m, &p[i]) / p[i].seconds));
    e.p95_log = stats_percentile(work, (size_t)n, 0.95);
    return e;
}

/* Points in a drawn order. */
static void shuffle(struct hetero_point *p, int n, unsigned seed)
{
    struct rng r;

    rng_init(&r, seed, "points to fit");
    for (int i = n - 1; i > 0; i--) {
        int k = (int)rng_below(&r, (uint64_t)i + 1);
        struct hetero_point x = p[i];

        p[i] = p[k];
        p[k] = x;
    }
}

static int fit_parts(struct hetero_fit *out, struct hetero_point *own, int n,
                     double *work)
{
    int n_fitted = n - n / 5;
    struct hetero_line line;
    struct hetero_regimes regimes;
    const struct predictor all[2] = {{&out->line, NULL}, {NULL, &out->regimes}};

    TRY(hetero_line_fit(&line, own, n_fitted));
    TRY(hetero_regimes_fit(&regimes, own, n_fitted));
    out->line_errors =
        errors_of(&(struct predictor){&line, NULL}, own + n_fitted, n - n_fitted, work);
    out->regimes_errors = errors_of(&(struct predictor){NULL, &regimes}, own + n_fitted,
                                    n - n_fitted, work);
    TRY(hetero_line_fit(&out->line, own, n));
    TRY(hetero_regimes_fit(&out->regimes, own, n));
    out->line_one_tok = errors_of(&all[0], own, n, work).one_tok;
    out->regimes_one_tok = errors_of(&all[1], own, n, work).one_tok;
    return OK;
}

int hetero_fit(struct hetero_fit *out, const struct hetero_point *p, int n, unsigned seed)
{
    struct hetero_point *own = mem_new(MEM_OTHER, (size_t)n, sizeof(*own));
    double *work = mem_new(MEM_OTHER, 2 * (size_t)n, sizeof(*work));
    int rc = own && work ? OK : ERR_NOMEM;

    *out = (struct hetero_fit){.n_points = n};
    if (rc == OK && n < 10)
        rc = err_set(ERR_ARG, "%d points: expected ten at least", n);
    for (int i = 0; i < n && rc == OK; i++)
        own[i] = p[i];
    if (rc == OK) {
        shuffle(own, n, seed);
        rc = fit_parts(out, own, n, work);
    }
    mem_free(own);
    mem_free(work);
    return rc;
}
