/* Piecewise linear: prompts by the tokens of the whole batch, decode by its sequences. Points of
 * one x are averaged: the file varies prompt, batch and output one at a time round one setting. */
#include <math.h>

#include "cluster/perf.h"

struct curve {
    double *x, *y;
    int n, weight[CLUSTER_CURVE_MAX];
};

/* Keeps x ascending. */
static int add(struct curve *c, double x, double y)
{
    int at = 0;

    while (at < c->n && c->x[at] < x)
        at++;
    if (at < c->n && c->x[at] == x) {
        c->y[at] = (c->y[at] * c->weight[at] + y) / (c->weight[at] + 1);
        c->weight[at]++;
        return OK;
    }
    if (c->n == CLUSTER_CURVE_MAX)
        return err_set(ERR_LIMIT, "more than %d points of a curve", CLUSTER_CURVE_MAX);
    for (int i = c->n; i > at; i--) {
        c->x[i] = c->x[i - 1];
        c->y[i] = c->y[i - 1];
        c->weight[i] = c->weight[i - 1];
    }
    c->x[at] = x;
    c->y[at] = y;
    c->weight[at] = 1;
    c->n++;
    return OK;
}

static int fit(struct cluster_perf *out, const struct cluster_point *p, int n)
{
    struct curve prompt = {.x = out->prompt_tok, .y = out->prompt_ms};
    struct curve token = {.x = out->batch, .y = out->token_ms};

    for (int i = 0; i < n; i++) {
        if (p[i].prompt_ms > 0)
            TRY(add(&prompt, (double)(p[i].prompt_tok * p[i].batch), p[i].prompt_ms));
        if (p[i].token_ms > 0)
            TRY(add(&token, (double)p[i].batch, p[i].token_ms));
    }
    if (prompt.n < 1 || token.n < 1)
        return err_set(ERR_ARG,
                       "table: %d points of prompts and %d of decode; expected "
                       "at least one of each",
                       prompt.n, token.n);
    out->n_prompt = prompt.n;
    out->n_token = token.n;
    return OK;
}

static double prompt_ms(const struct cluster_perf *p, double n_tok, double sum_sq)
{
    (void)sum_sq;
    return cluster_interpolate(p->prompt_tok, p->prompt_ms, p->n_prompt, n_tok);
}

static double token_ms(const struct cluster_perf *p, double batch, double ctx_tok)
{
    (void)ctx_tok;
    return cluster_interpolate(p->batch, p->token_ms, p->n_token, batch);
}

const struct cluster_perf_kind cluster_perf_table = {
    .name = "table",
    .help = "piecewise linear over measured points",
    .fit = fit,
    .prompt_ms = prompt_ms,
    .token_ms = token_ms,
};
