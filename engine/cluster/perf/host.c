/* A profile of steps of our own engine, which has every batch with several contexts. A prompt
 * step takes f(sum(L)) + c sum(L^2), f piecewise linear: c, the cost of attention, is what prompts
 * of one total length but of different numbers differ by. A token step is linear in the context
 * for each measured batch, and piecewise linear between batches: it is not linear in the batch,
 * since other kernels compute it and its bound changes from memory to arithmetic. */
#include <math.h>

#include "cluster/perf.h"

static double n_tok(const struct cluster_point *p)
{
    return (double)(p->prompt_tok * p->batch);
}

static double sum_sq(const struct cluster_point *p)
{
    return n_tok(p) * (double)p->prompt_tok;
}

/* Where x is, or would be, among n ascending ones. */
static int place(const double *x, int n, double at)
{
    int i = 0;

    while (i < n && x[i] < at)
        i++;
    return i;
}

/* The distinct values of x(point) for the points whose `ms` is known, ascending. */
static int distinct(double *out, int *n, const struct cluster_point *p, int n_points,
                    bool prompts)
{
    for (int i = 0; i < n_points; i++) {
        double x = prompts ? n_tok(&p[i]) : (double)p[i].batch;
        int at = place(out, *n, x);

        if (!((prompts ? p[i].prompt_ms : p[i].token_ms) > 0) ||
            (at < *n && out[at] == x))
            continue;
        if (*n == CLUSTER_CURVE_MAX)
            return err_set(ERR_LIMIT, "host: more than %d points of a curve",
                           CLUSTER_CURVE_MAX);
        for (int k = (*n)++; k > at; k--)
            out[k] = out[k - 1];
        out[at] = x;
    }
    return OK;
}

/* c by all pairs with the same tokens, by least squares of relative errors; 0 without pairs. */
static double attention_ms(const struct cluster_point *p, int n)
{
    double xy = 0, xx = 0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            double y = p[i].prompt_ms - p[k].prompt_ms, x = sum_sq(&p[i]) - sum_sq(&p[k]);
            double scale = p[i].prompt_ms + p[k].prompt_ms;

            if (!(scale > 0) || n_tok(&p[i]) != n_tok(&p[k]))
                continue;
            xy += x * y / (scale * scale);
            xx += x * x / (scale * scale);
        }
    return xx > 0 ? fmax(xy / xx, 0) : 0;
}

static int fit_prompts(struct cluster_perf *out, const struct cluster_point *p, int n)
{
    TRY(distinct(out->prompt_tok, &out->n_prompt, p, n, true));
    out->prompt_w[2] = attention_ms(p, n);
    for (int k = 0; k < out->n_prompt; k++) {
        double sum = 0;
        int n_here = 0;

        for (int i = 0; i < n; i++)
            if (n_tok(&p[i]) == out->prompt_tok[k] && p[i].prompt_ms > 0) {
                sum += p[i].prompt_ms - out->prompt_w[2] * sum_sq(&p[i]);
                n_here++;
            }
        out->prompt_ms[k] = sum / n_here;
    }
    return OK;
}

/* The line a + b context of one batch; b is NaN where there is one context only. */
static void fit_line(double *a, double *b, const struct cluster_point *p, int n,
                     double batch)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (int i = 0; i < n; i++) {
        double at = (double)p[i].prompt_tok, weight = 1 / (p[i].token_ms * p[i].token_ms);

        if ((double)p[i].batch != batch || !(p[i].token_ms > 0))
            continue;
        w += weight;
        x += weight * at;
        y += weight * p[i].token_ms;
        xx += weight * at * at;
        xy += weight * at * p[i].token_ms;
    }
    *b = w * xx - x * x > 1e-9 * w * xx ? (w * xy - x * y) / (w * xx - x * x) : NAN;
    *a = (y - (isnan(*b) ? 0 : *b) * x) / w;
}

static int fit_tokens(struct cluster_perf *out, const struct cluster_point *p, int n)
{
    TRY(distinct(out->batch, &out->n_token, p, n, false));
    for (int k = 0; k < out->n_token; k++) {
        fit_line(&out->token_ms[k], &out->token_ctx_ms[k], p, n, out->batch[k]);
        if (isnan(out->token_ctx_ms[k]))
            return err_set(ERR_ARG,
                           "host: one context of batch %g; expected at least two",
                           out->batch[k]);
    }
    return OK;
}

static int fit(struct cluster_perf *out, const struct cluster_point *p, int n)
{
    out->n_prompt = out->n_token = 0;
    TRY(fit_prompts(out, p, n));
    TRY(fit_tokens(out, p, n));
    if (out->n_prompt < 2 || out->n_token < 1)
        return err_set(ERR_ARG,
                       "host: %d lengths of prompts and %d batches of decode; expected "
                       "at least two and one",
                       out->n_prompt, out->n_token);
    return OK;
}

static double prompt_ms(const struct cluster_perf *p, double n_prompt_tok, double sq)
{
    return fmax(
        cluster_interpolate(p->prompt_tok, p->prompt_ms, p->n_prompt, n_prompt_tok) +
            p->prompt_w[2] * sq,
        0);
}

static double token_ms(const struct cluster_perf *p, double batch, double ctx_tok)
{
    double ms[CLUSTER_CURVE_MAX];

    for (int k = 0; k < p->n_token; k++)
        ms[k] = p->token_ms[k] + p->token_ctx_ms[k] * ctx_tok / batch;
    return cluster_interpolate(p->batch, ms, p->n_token, batch);
}

const struct cluster_perf_kind cluster_perf_host = {
    .name = "host",
    .help =
        "a profile of batches and contexts: piecewise linear, with the cost of attention",
    .fit = fit,
    .prompt_ms = prompt_ms,
    .token_ms = token_ms,
};
