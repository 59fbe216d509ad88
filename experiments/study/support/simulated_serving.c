#include "experiments/study/support/simulated_serving.h"

#include <math.h>

#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "plan/trace.h"
#include "plan/workload.h"

#define LINK_ALPHA 5e4 /* ns: a hand-over between processes; assumed */
#define KV_TOK     (1 << 24)
#define RATE_MAX   1e5

/* ---- times of steps ---- */

int study_simulated_serving_prompt_s(const struct study_topo *t, enum kern_type type,
                                     const struct topo_config *f,
                                     const struct topo_config *placed_by, int64_t n_tok,
                                     double *seconds, double *bytes)
{
    const struct model_cost_types types = {type, KERN_KV_F32};
    struct simulate_workload w;

    plan_piece_workload(&w, &t->model, types, n_tok, 0);
    *bytes = w.v[0].weight_bytes + w.v[0].kv_bytes;
    return simulate_seconds(t->sim, f, placed_by, &w, seconds);
}

int study_simulated_serving_token_s(const struct study_topo *t, enum kern_type type,
                                    const struct topo_config *f, int batch,
                                    double ctx_tok, double *seconds, double *bytes)
{
    const struct model_cost_types types = {type, KERN_KV_F32};
    const struct plan_trace one = {.contexts = {.n = 1, .v = {{ctx_tok, 1}}}};
    struct simulate_workload w;

    TRY(plan_workload(&w, &t->model, types, TOPO_DECODE, &one, batch));
    *bytes = w.v[0].weight_bytes + w.v[0].kv_bytes;
    return simulate_seconds(t->sim, f, NULL, &w, seconds);
}

static int fit_perf(struct cluster_perf *perf, const struct study_topo *t,
                    enum kern_type type, const struct topo_config *prefill,
                    const struct topo_config *decode, const struct topo_config *placed_by)
{
    static const int prompts[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
    static const int batches[] = {1, 2, 4, 8, 16, 32, 64, 128};
    enum { N_PROMPTS = sizeof(prompts) / sizeof(prompts[0]) };
    enum { N_BATCHES = sizeof(batches) / sizeof(batches[0]) };
    struct cluster_point p[N_PROMPTS + 2 * N_BATCHES];
    double s, bytes;
    int n = 0;

    for (int i = 0; i < N_PROMPTS; i++) {
        TRY(study_simulated_serving_prompt_s(t, type, prefill, placed_by, prompts[i], &s,
                                             &bytes));
        p[n++] = (struct cluster_point){prompts[i], 1, 1, 1e3 * s, NAN, NAN, NAN, NAN};
    }
    for (int i = 0; i < 2 * N_BATCHES; i++) {
        int ctx = i % 2 ? 1024 : 64;

        TRY(study_simulated_serving_token_s(t, type, decode, batches[i / 2], ctx, &s,
                                            &bytes));
        p[n++] =
            (struct cluster_point){ctx, batches[i / 2], 1, NAN, 1e3 * s, NAN, NAN, NAN};
    }
    TRY(cluster_perf_find("host", &perf->kind));
    return perf->kind->fit(perf, p, n);
}

int study_simulated_serving_engine_open(struct study_simulated_serving_engine *out,
                                        const struct study_topo *t, enum kern_type type,
                                        const struct topo_config *prefill,
                                        const struct topo_config *decode,
                                        const struct topo_config *placed_by)
{
    double ctx = t->prompt_tok + t->output_tok / 2;

    TRY(fit_perf(&out->perf, t, type, prefill, decode, placed_by));
    TRY(study_simulated_serving_prompt_s(t, type, prefill, placed_by,
                                         (int64_t)t->prompt_tok, &out->prompt_s,
                                         &out->prompt_bytes));
    TRY(study_simulated_serving_token_s(t, type, decode, 8, ctx, &out->token_s,
                                        &out->token_bytes));
    out->prompt_cores = prefill->n_ranks * prefill->n_threads;
    out->token_cores = decode->n_ranks * decode->n_threads;
    return OK;
}

/* ---- objectives ---- */

struct study_simulated_serving_kept
study_simulated_serving_kept_alone(const struct cluster_perf *alone, double ttft_factor,
                                   double tpot_factor, const struct cluster_done *d)
{
    struct cluster_work prompt = {.n_prompt_tok = d->n_prompt,
                                  .sum_prompt_sq =
                                      (double)d->n_prompt * (double)d->n_prompt};
    struct cluster_work token = {.n_decode = 1, .ctx_tok = d->n_prompt};
    double first = (double)(d->first_ns - d->arrival_ns);
    double later = (double)(d->last_ns - d->first_ns);

    return (struct study_simulated_serving_kept){
        .ttft = first <= ttft_factor * (double)cluster_perf_step_ns(alone, &prompt),
        .tpot = later <= tpot_factor * (double)cluster_perf_step_ns(alone, &token) *
                             (double)(d->n_output - 1)};
}

/* ---- a load ---- */

struct load {
    const struct study_simulated_serving *s;
    struct study_simulated_serving_counts *counts;
    double rate, t_s;
    int64_t n_left;
    struct rng arrivals, sizes;
};

static bool next_request(void *ctx, struct cluster_arrival *a)
{
    struct load *l = ctx;
    const struct plan_lengths *all = &l->s->topo->lengths;
    int64_t i = (int64_t)rng_below(&l->sizes, (uint64_t)all->n);

    if (l->n_left-- <= 0)
        return false;
    l->t_s += rng_exp(&l->arrivals) / l->rate;
    *a = (struct cluster_arrival){(int64_t)(1e9 * l->t_s), all->n_prompt[i],
                                  all->n_output[i]};
    return true;
}

static void on_done(void *ctx, const struct cluster_done *d)
{
    struct load *l = ctx;
    struct study_simulated_serving_kept kept = {false, false};

    if (!d->refused)
        kept = l->s->kept(l->s->kept_ctx, d);
    l->counts->n++;
    l->counts->n_ttft += kept.ttft;
    l->counts->n_tpot += kept.tpot;
    l->counts->n_both += kept.ttft && kept.tpot;
}

int study_simulated_serving_run(struct study_simulated_serving_counts *out,
                                const struct study_simulated_serving *s, double rate_rps,
                                uint64_t seed)
{
    const struct cluster_contention x = {
        {{1, s->slowdown}, {s->slowdown, 1}}}; /* one of each kind */
    const struct study_topo *t = s->topo;
    struct load l = {.s = s, .counts = out, .rate = rate_rps, .n_left = t->lengths.n};
    struct cluster_machine_opts m[2];
    struct cluster_stat stat;
    struct cluster_opts o;

    *out = (struct study_simulated_serving_counts){0};
    rng_init(&l.arrivals, seed, "arrival");
    rng_init(&l.sizes, seed, "sample");
    for (int i = 0; i < 2; i++)
        m[i] = (struct cluster_machine_opts){
            .home = !s->token ? CLUSTER_MIXED
                    : i       ? CLUSTER_TOKEN
                              : CLUSTER_PROMPT,
            .perf = i && s->token ? &s->token->perf : &s->prompt->perf,
            .kv_tok = KV_TOK,
            .link_gbps = simulate_params(t->sim)->core_gbps,
            .link_alpha_ns = LINK_ALPHA,
            .controller = 1};
    TRY(cluster_opts_init(&o));
    TRY(sched_policy_find(s->policy, &o.policy));
    o.machines = m;
    o.n_machines = s->token ? 2 : 1;
    o.n_layers = t->model.n_layers;
    o.kv_bytes_per_tok = (int64_t)t->model.n_layers * 2 * t->model.n_kv_heads *
                         t->model.head_dim * (int64_t)sizeof(float);
    o.prompt_threshold = o.token_threshold = INT64_MAX;
    o.max_step_tok = s->max_step_tok;
    o.max_seqs = s->max_seqs;
    o.reserve_first = true;
    o.layer_wise_tok = 0;
    o.contention = s->token ? &x : NULL;
    o.next = next_request;
    o.next_ctx = &l;
    o.observer = (struct cluster_observer){.ctx = &l, .done = on_done};
    return cluster_run(&stat, &o);
}

static int keeps(bool *out, const struct study_simulated_serving *s, double rate_rps,
                 uint64_t seed)
{
    struct study_simulated_serving_counts c;

    TRY(study_simulated_serving_run(&c, s, rate_rps, seed));
    *out = (double)c.n_both >= STUDY_SIMULATED_SERVING_TARGET_FRAC * (double)c.n;
    return OK;
}

int study_simulated_serving_goodput(double *out, const struct study_simulated_serving *s,
                                    uint64_t seed)
{
    double lo = 0, hi = 1e-3;
    bool kept = true;

    while (hi < RATE_MAX) {
        TRY(keeps(&kept, s, hi, seed));
        if (!kept)
            break;
        lo = hi;
        hi *= 2;
    }
    while (lo > 0 && hi > lo * (1 + STUDY_SIMULATED_SERVING_TOLERANCE)) {
        double mid = sqrt(lo * hi);

        TRY(keeps(&kept, s, mid, seed));
        *(kept ? &lo : &hi) = mid;
    }
    *out = lo;
    return OK;
}

int study_simulated_serving_goodputs(double *out, const struct study_simulated_serving *s,
                                     int64_t n, int64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        TRY(study_simulated_serving_goodput(&out[i], s, (uint64_t)(seed + i)));
    return OK;
}

void study_simulated_serving_mean(struct frame *f, double *x, const double *v, int64_t n,
                                  const char *why)
{
    double mean = stats_mean(v, (size_t)n), half = stats_mean_half95(v, (size_t)n);

    frame_set(f, x, mean, why);
    frame_interval(f, x, mean - half, mean + half);
}
