#include "cluster/perf.h"

#include <math.h>

#include "base/name.h"

int cluster_perf_find(const char *name, const struct cluster_perf_kind **out)
{
    *out = name_find(cluster_perfs, name, "performance model");
    return *out ? OK : ERR_NOTFOUND;
}

double cluster_interpolate(const double *x, const double *y, int n, double at)
{
    int i = 1;
    double v;

    if (n == 1)
        return y[0];
    while (i + 1 < n && at > x[i])
        i++;
    v = y[i - 1] + (y[i] - y[i - 1]) * (at - x[i - 1]) / (x[i] - x[i - 1]);
    return fmax(v, 0);
}

int64_t cluster_perf_step_ns(const struct cluster_perf *p, const struct cluster_work *w)
{
    double n = (double)w->n_prompt_tok, ms = 0;

    if (w->n_prompt_tok > 0)
        ms = p->kind->prompt_ms(p, n + (double)w->n_decode,
                                w->sum_prompt_sq + (double)w->n_decode);
    if (w->n_decode > 0)
        ms = fmax(ms, p->kind->token_ms(p, (double)w->n_decode, (double)w->ctx_tok));
    return (int64_t)fmax(1, round(1e6 * ms));
}

int cluster_points_printed(struct cluster_point *out, int *n, int max,
                           const char *hardware)
{
    /* prompts of 1,020 (conversation) and 1,500 tokens (coding) */
    static const struct {
        const char *name;
        double ttft_ms[2], tbt_ms[2];
    } table[] = {{"a100", {155, 185}, {40, 52}}, {"h100", {84, 95}, {28, 31}}};
    static const char *const names[] = {"a100", "h100", NULL};
    int i = name_index(names, hardware);

    if (i < 0)
        return name_not_in(hardware, names, "no printed numbers of \"%s\"", hardware);
    if (max < 3)
        return err_set(ERR_LIMIT, "3 points, but memory for %d", max);
    *n = 3;
    out[0] = (struct cluster_point){
        1020, 1, 129, table[i].ttft_ms[0], table[i].tbt_ms[0], NAN, NAN, NAN};
    out[1] = (struct cluster_point){
        1500, 1, 13, table[i].ttft_ms[1], table[i].tbt_ms[1], NAN, NAN, NAN};
    out[2] =
        (struct cluster_point){0, 64, 129, NAN, 2 * table[i].tbt_ms[0], NAN, NAN, NAN};
    return OK;
}
