#include "experiments/study/support/trace_latency.h"

#include <math.h>
#include <string.h>

#include "base/home.h"
#include "base/mem.h"
#include "base/stats.h"
#include "datasets/dataset.h"

#define N_DRAWN 20000

static int open_trace(struct dataset **d, const struct trace_latency_opts *o)
{
    struct dataset_opts so;
    int rc = opt_init(dataset_opt_table, &so);

    if (rc == OK && o->trace)
        rc = opt_set(dataset_opt_table, &so, "path", o->trace, "study");
    if (rc == OK)
        rc = opt_set(dataset_opt_table, &so, o->trace ? "stand_in" : "fit", o->stand_in,
                     "study");
    so.n = o->trace ? 0 : N_DRAWN;
    if (rc == OK)
        rc = dataset_open(d, &so);
    opt_free(dataset_opt_table, &so);
    return rc;
}

struct latency {
    size_t n;
    double *ttft_ms, *tbt_ms, *e2e_ms, *token_frac; /* [n] */
};

static void compute(struct latency *l, const struct dataset *d,
                    const struct cluster_perf *perf)
{
    for (size_t i = 0; i < l->n; i++) {
        double prompt = (double)d->items[i].n_prompt,
               rest = (double)d->items[i].n_output - 1;

        l->ttft_ms[i] = perf->kind->prompt_ms(perf, prompt, prompt * prompt);
        l->tbt_ms[i] = perf->kind->token_ms(perf, 1, prompt + rest / 2);
        l->e2e_ms[i] = l->ttft_ms[i] + rest * l->tbt_ms[i];
        l->token_frac[i] = 1 - l->ttft_ms[i] / l->e2e_ms[i];
    }
}

static double mean_power(const struct cluster_point *p, int n)
{
    double sum = 0;
    int k = 0;

    for (int i = 0; i < n; i++)
        if (p[i].batch == 1 && !isnan(p[i].power)) {
            sum += p[i].power;
            k++;
        }
    return k ? sum / k : NAN;
}

static void set_results(struct frame *f, const struct latency *l, double power,
                        const struct trace_latency_opts *o)
{
    double hours = stats_median(l->e2e_ms, l->n) * 1e-3 / 3600;
    double longer = 0;

    for (size_t i = 0; i < l->n; i++)
        longer += l->token_frac[i] > 0.5;
    *frame_named(f, "ttft_p50_%s", o->name) = stats_median(l->ttft_ms, l->n);
    *frame_named(f, "tbt_p50_%s", o->name) = stats_median(l->tbt_ms, l->n);
    *frame_named(f, "e2e_p50_%s", o->name) = stats_median(l->e2e_ms, l->n);
    *frame_named(f, "e2e_p90_%s", o->name) = stats_percentile(l->e2e_ms, l->n, 0.9);
    *frame_named(f, "e2e_p99_%s", o->name) = stats_percentile(l->e2e_ms, l->n, 0.99);
    *frame_named(f, "token_phase_frac_%s", o->name) = stats_median(l->token_frac, l->n);
    *frame_named(f, "token_bound_frac_%s", o->name) = longer / (double)l->n;
    *frame_named(f, "cost_p50_%s", o->name) = hours * o->usd_per_h;
    *frame_named(f, "energy_p50_%s", o->name) = hours * o->watt * power;
    frame_why(f, frame_named(f, "cost_p50_%s", o->name),
              "the machine's price is unknown");
    frame_why(f, NULL, "power is missing");
}

/* Those of one sequence, since the requests run one at a time. */
static int fit_singles(struct cluster_perf *perf, const struct cluster_point *points,
                       int n, const char *name)
{
    struct cluster_point *single = mem_new(MEM_OTHER, (size_t)n, sizeof(*single));
    int k = 0, rc;

    for (int i = 0; i < n; i++)
        if (points[i].batch == 1)
            single[k++] = points[i];
    rc = cluster_perf_find(name, &perf->kind);
    if (rc == OK)
        rc = perf->kind->fit(perf, single, k);
    mem_free(single);
    return rc;
}

int study_trace_latency(struct frame *f, const struct cluster_point *points, int n,
                        const struct trace_latency_opts *o)
{
    struct cluster_perf perf = {0};
    struct latency l = {0};
    struct dataset *d = NULL;
    char key[64];

    TRY(fit_singles(&perf, points, n, o->perf));
    TRY(open_trace(&d, o));
    l.n = (size_t)d->n_items;
    double *all = mem_new(MEM_OTHER, 4 * l.n, sizeof(*all));
    l.ttft_ms = all;
    l.tbt_ms = all + l.n;
    l.e2e_ms = all + 2 * l.n;
    l.token_frac = all + 3 * l.n;
    compute(&l, d, &perf);
    set_results(f, &l, mean_power(points, n), o);
    snprintf(key, sizeof(key), "trace_%s", o->name);
    study_note_text(f->cell, key, d->name);
    snprintf(key, sizeof(key), "e2e_ms_%s", o->name);
    study_series(f->cell, key, "ms", l.e2e_ms, l.n < 20000 ? l.n : 20000);
    dataset_close(&d);
    mem_free(all);
    return OK;
}
