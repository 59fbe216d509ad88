/* The form that DistServe fits: a prompt step takes a + b sum(L) + c sum(L^2), a token step
 * a + b sum(context) + c batch, by least squares. Where the points hold one context only, b of the
 * token step is 0. */
#include <math.h>

#include "base/ridge.h"
#include "cluster/perf.h"

static int solve(double *w, struct stats_ridge *r)
{
    TRY(stats_ridge_solve(r, 1e-9));
    for (int i = 0; i < 3; i++)
        w[i] = r->weights[i];
    return OK;
}

/* In units that are near 1: thousands of tokens, tens of sequences. Each point has its relative
 * error, since times differ by a factor of a hundred. */
static int fit_one(double *w, const struct cluster_point *p, int n, bool prompts)
{
    struct stats_ridge r;
    int rc = stats_ridge_init(&r, 3, 1);

    for (int i = 0; rc == OK && i < n; i++) {
        double y = prompts ? p[i].prompt_ms : p[i].token_ms, batch = (double)p[i].batch;
        double tok = 1e-3 * (double)p[i].prompt_tok, one = 1;
        double x[3] = {1 / y, batch * tok / y, (prompts ? batch * tok * tok : batch) / y};

        if (y > 0)
            stats_ridge_add(&r, x, &one);
    }
    rc = rc == OK ? solve(w, &r) : rc;
    stats_ridge_fini(&r);
    w[1] *= 1e-3;
    w[2] *= prompts ? 1e-6 : 1;
    return rc;
}

static int fit(struct cluster_perf *out, const struct cluster_point *p, int n)
{
    int n_prompt = 0, n_token = 0;

    for (int i = 0; i < n; i++) {
        n_prompt += p[i].prompt_ms > 0;
        n_token += p[i].token_ms > 0;
    }
    if (n_prompt < 3 || n_token < 3)
        return err_set(ERR_ARG,
                       "distserve: %d points of prompts and %d of decode; "
                       "expected at least three of each",
                       n_prompt, n_token);
    TRY(fit_one(out->prompt_w, p, n, true));
    return fit_one(out->token_w, p, n, false);
}

static double prompt_ms(const struct cluster_perf *p, double n_tok, double sum_sq)
{
    const double *w = p->prompt_w;

    return fmax(w[0] + w[1] * n_tok + w[2] * sum_sq, 0);
}

static double token_ms(const struct cluster_perf *p, double batch, double ctx_tok)
{
    const double *w = p->token_w;

    return fmax(w[0] + w[1] * ctx_tok + w[2] * batch, 0);
}

const struct cluster_perf_kind cluster_perf_distserve = {
    .name = "distserve",
    .help = "a + b sum(L) + c sum(L^2) for prompts, a + b context + c batch for decode",
    .fit = fit,
    .prompt_ms = prompt_ms,
    .token_ms = token_ms,
};
