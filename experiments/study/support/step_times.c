#include "experiments/study/support/step_times.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "serve/serve.h"

struct engine {
    struct serve *serve;
    const struct step_times_opts *o;
    int32_t *prompt;
    int64_t *ids;
    int64_t n_ended, n_submitted;
};

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int open_engine(struct engine *e, const struct cluster_point *points, int n)
{
    const struct step_times_opts *o = e->o;
    int64_t most_tok = 1, most_seqs = 1, longest = 1, extra = o->n_steps + 4;
    struct serve_opts so;
    int rc;

    if (!o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(opt_init(serve_opt_table, &so));
    rc = opt_set(serve_opt_table, &so, "model", o->model, "study");
    if (rc == OK)
        rc = opt_set(serve_opt_table, &so, "policy", "continuous", "study");
    so.precision = o->precision;
    so.kv_type = o->kv_type;
    so.threads = o->threads;
    so.max_step_tok = 1;
    for (int i = 0; i < n; i++) {
        const struct cluster_point *p = &points[i];

        so.max_step_tok = max64(so.max_step_tok, p->batch * p->prompt_tok);
        most_tok = max64(most_tok, p->batch * (p->prompt_tok + extra));
        most_seqs = max64(most_seqs, p->batch);
        longest = max64(longest, p->prompt_tok);
    }
    so.max_seqs = most_seqs;
    so.max_tok = longest + extra;
    so.kv_budget_tok = max64(most_tok, so.max_tok);
    if (rc == OK)
        rc = serve_open(&e->serve, &so);
    opt_free(serve_opt_table, &so);
    e->prompt = mem_new(MEM_OTHER, (size_t)longest, sizeof(*e->prompt));
    e->ids = mem_new(MEM_OTHER, (size_t)most_seqs, sizeof(*e->ids));
    return rc;
}

static void close_engine(struct engine *e)
{
    serve_close(&e->serve);
    mem_free(e->prompt);
    mem_free(e->ids);
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct engine *e = ctx;

    (void)request, (void)id, (void)logits;
    e->n_ended += finish != SERVE_RUNNING;
}

static int submit(struct engine *e, int64_t n_prompt, int64_t *id)
{
    const struct serve_request r = {.prompt = e->prompt,
                                    .n_prompt = n_prompt,
                                    .max_new = e->o->n_steps + 3,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token,
                                    .ctx = e};
    struct rng rng;

    rng_init(&rng, (uint64_t)++e->n_submitted, "prompt");
    for (int64_t i = 0; i < n_prompt; i++)
        e->prompt[i] = (int32_t)rng_below(&rng, (uint64_t)serve_vocab(e->serve));
    return serve_submit(e->serve, &r, id);
}

static int timed_step(struct engine *e, double *ms)
{
    uint64_t begin = clock_ns();
    bool busy;
    int rc = serve_step(e->serve, &busy);

    *ms = 1e-6 * (double)(clock_ns() - begin);
    return rc;
}

static int one_step(struct engine *e, enum serve_phase phase, int64_t n_tok, double *ms)
{
    const struct serve_totals *t = serve_totals_of(e->serve, phase);
    int64_t before = t->n_tok;

    TRY(timed_step(e, ms));
    return t->n_tok - before == n_tok
               ? OK
               : err_set(ERR_STATE, "a step of %lld tokens computed %lld",
                         (long long)n_tok, (long long)(t->n_tok - before));
}

/* One measurement of a point; steps_ms: [n_steps]. */
static int measure(struct engine *e, const struct cluster_point *p, double *prompt_ms,
                   double *steps_ms)
{
    int64_t ended = e->n_ended;
    double ms;
    int rc = OK;

    for (int64_t i = 0; i < p->batch; i++)
        TRY(submit(e, p->prompt_tok, &e->ids[i]));
    TRY(one_step(e, SERVE_PREFILL, p->batch * p->prompt_tok, prompt_ms));
    for (int64_t i = 0; rc == OK && i < e->o->n_steps; i++)
        rc = one_step(e, SERVE_DECODE, p->batch, &steps_ms[i]);
    for (int64_t i = 0; i < p->batch; i++)
        serve_cancel(e->serve, e->ids[i]);
    while (rc == OK && e->n_ended < ended + p->batch)
        rc = timed_step(e, &ms);
    return rc;
}

/* prompts [n][rounds], steps [n][rounds][n_steps] */
static int measure_all(struct engine *e, const struct cluster_point *points, int n,
                       double *prompts, double *steps, struct study_cell *cell)
{
    int64_t rounds = e->o->rounds, n_steps = e->o->n_steps;

    TRY(measure(e, &points[0], prompts, steps)); /* warms up */
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < n; i++) {
            study_progress(cell, (double)(r * n + i) / (double)(rounds * n),
                           "steps, all points in turn");
            TRY(measure(e, &points[i], prompts + i * rounds + r,
                        steps + (i * rounds + r) * n_steps));
        }
    return OK;
}

static double estimate(const double *ms, int64_t n, double *spread)
{
    double low = stats_percentile(ms, (size_t)n, 0.1);

    *spread = stats_median(ms, (size_t)n) / low - 1;
    return low;
}

int study_step_times(struct cluster_point *points, int n, double *spread,
                     const struct step_times_opts *o, struct study_cell *cell)
{
    struct engine e = {.o = o};
    int64_t n_prompts = o->rounds, n_steps = o->rounds * o->n_steps;
    double *prompts = mem_new(MEM_OTHER, (size_t)(n * n_prompts), sizeof(*prompts));
    double *steps = mem_new(MEM_OTHER, (size_t)(n * n_steps), sizeof(*steps));
    int rc = open_engine(&e, points, n);

    if (rc == OK)
        rc = measure_all(&e, points, n, prompts, steps, cell);
    for (int i = 0; rc == OK && i < n; i++) {
        points[i].prompt_ms = estimate(prompts + i * n_prompts, n_prompts, &spread[i]);
        points[i].token_ms = estimate(steps + i * n_steps, n_steps, &spread[n + i]);
        points[i].output_tok = o->n_steps;
    }
    close_engine(&e);
    mem_free(prompts);
    mem_free(steps);
    return rc;
}
