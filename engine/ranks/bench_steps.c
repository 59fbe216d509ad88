#include "ranks/bench_steps.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

static void touch_pool(void *arg, struct par_self *self)
{
    kv_pool_touch(arg, self->id, self->n);
}

static int open_kv(struct model_bench_steps *t, struct par_team *team)
{
    const struct kv_need need = {.prompt_tok = t->max_tok};
    struct kv_pool_opts o = {.max_tok = t->max_tok};
    struct kv_shape shape;
    int rc;

    model_kv_shape(t->model, &shape);
    TRY(kv_pool_bytes(&o.budget_bytes, &shape, &o, t->n_seqs));
    t->kv = mem_new(MEM_OTHER, (size_t)t->n_seqs, sizeof(*t->kv));
    if (!t->kv)
        return ERR_NOMEM;
    rc = kv_pool_open(&t->pool, &shape, &o);
    if (rc == OK)
        par_team_run(team, par_team_size(team), touch_pool, t->pool);
    for (int i = 0; i < t->n_seqs && rc == OK; i++)
        rc = kv_reserve(t->pool, &need, &t->kv[i]);
    return rc;
}

static int open_batch(struct model_bench_steps *t, uint64_t seed)
{
    int vocab = model_config_of(t->model)->vocab;
    size_t n_seqs = (size_t)t->n_seqs;
    int64_t n_ids = t->max_tok > t->n_seqs ? t->max_tok : t->n_seqs;
    struct rng r;

    t->ids = mem_new(MEM_OTHER, (size_t)n_ids, sizeof(*t->ids));
    t->chunks = mem_new(MEM_OTHER, n_seqs, sizeof(*t->chunks));
    t->logits = mem_new(MEM_ACTIVATIONS, n_seqs * (size_t)vocab, sizeof(*t->logits));
    if (!t->ids || !t->chunks || !t->logits)
        return ERR_NOMEM;
    rng_init(&r, seed, "ids");
    for (int64_t i = 0; i < n_ids; i++)
        t->ids[i] = (int32_t)rng_below(&r, (uint64_t)vocab);
    for (int i = 0; i < t->n_seqs; i++)
        t->chunks[i] = (struct model_chunk){
            .kv = &t->kv[i], .ids = t->ids + i, .n_tok = 1, .want_logits = true};
    return OK;
}

int model_bench_steps_open(struct model_bench_steps *out, struct model *m,
                           struct par_team *team, int n_seqs, int64_t max_tok,
                           int64_t step_tok, uint64_t seed)
{
    int rc;

    *out = (struct model_bench_steps){
        .model = m, .n_seqs = n_seqs, .max_tok = max_tok, .step_tok = step_tok};
    rc = open_kv(out, team);
    if (rc == OK)
        rc = open_batch(out, seed);
    if (rc != OK)
        model_bench_steps_close(out);
    return rc;
}

void model_bench_steps_close(struct model_bench_steps *t)
{
    mem_free(t->logits);
    mem_free(t->chunks);
    mem_free(t->ids);
    mem_free(t->kv);
    kv_pool_close(&t->pool);
    memset(t, 0, sizeof(*t));
}

/* A model that computes NaN is fast or slow for reasons of its own. Called when a step has
 * been timed. */
static int check_logits(const struct model_bench_steps *t, int n_seqs)
{
    int64_t vocab = model_config_of(t->model)->vocab;

    for (int64_t i = 0; i < n_seqs * vocab; i++)
        if (!isfinite(t->logits[i]))
            return err_set(ERR_FORMAT,
                           "sequence %lld: the logit of id %lld is %g: the model has "
                           "weights that are NaN or infinite, or too large to compute "
                           "with",
                           (long long)(i / vocab), (long long)(i % vocab),
                           (double)t->logits[i]);
    return OK;
}

static double since(uint64_t t0_ns)
{
    return (double)(clock_ns() - t0_ns) * 1e-9;
}

int model_bench_steps_prefill(struct model_bench_steps *t, struct model_phase *p,
                              int64_t n_tok, double *seconds)
{
    uint64_t t0 = clock_ns();
    int rc = OK;

    for (int64_t at = 0; at < n_tok && rc == OK; at += t->step_tok) {
        int64_t left = n_tok - at;
        const struct model_chunk c = {.kv = &t->kv[0],
                                      .ids = t->ids + at,
                                      .n_tok = left < t->step_tok ? left : t->step_tok,
                                      .pos0 = at,
                                      .want_logits = left <= t->step_tok};

        rc = model_forward(p, &c, 1, t->logits);
    }
    *seconds = since(t0);
    return rc == OK && n_tok > 0 ? check_logits(t, 1) : rc;
}

int model_bench_steps_piece(struct model_bench_steps *t, struct model_phase *p,
                            int64_t n_tok, int64_t ctx_tok, double *seconds)
{
    const struct model_chunk c = {.kv = &t->kv[0],
                                  .ids = t->ids,
                                  .n_tok = n_tok,
                                  .pos0 = ctx_tok,
                                  .want_logits = true};
    uint64_t t0 = clock_ns();
    int rc = model_forward(p, &c, 1, t->logits);

    *seconds = since(t0);
    return rc == OK ? check_logits(t, 1) : rc;
}

int model_bench_steps_batch(struct model_bench_steps *t, struct model_phase *p,
                            int n_seqs, int64_t ctx_tok, double *seconds)
{
    uint64_t t0;
    int rc;

    for (int i = 0; i < n_seqs; i++)
        t->chunks[i].pos0 = ctx_tok;
    t0 = clock_ns();
    rc = model_forward(p, t->chunks, n_seqs, t->logits);
    *seconds = since(t0);
    return rc == OK ? check_logits(t, n_seqs) : rc;
}

int model_bench_steps_decode(struct model_bench_steps *t, struct model_phase *p,
                             int64_t ctx_tok, double *seconds)
{
    return model_bench_steps_batch(t, p, t->n_seqs, ctx_tok, seconds);
}

int model_bench_steps_of(struct model_bench_steps *t, struct model_phase *p, bool decode,
                         int64_t n_tok, double *seconds)
{
    return decode ? model_bench_steps_decode(t, p, n_tok, seconds)
                  : model_bench_steps_prefill(t, p, n_tok, seconds);
}

/* --- with a model and a team of its own */

int model_bench_open(struct model_bench *out, const struct format_file *f,
                     const struct model_bench_opts *o)
{
    struct model_opts mo = {.weight_type = KERN_N_TYPES,
                            .kv_type = o->kv_type,
                            .precision = o->precision,
                            .one_rank = o->one_rank,
                            .deterministic = o->deterministic,
                            .max_step_tok =
                                o->step_tok > o->n_seqs ? o->step_tok : o->n_seqs,
                            .max_tok = o->max_tok,
                            .caller_bytes = o->caller_bytes};
    int rc;

    memset(out, 0, sizeof(*out));
    rc = cpu_budget_get(&out->budget);
    out->team = o->team;
    out->team_lent = o->team;
    if (rc == OK && !o->team)
        rc = par_team_open_by(&out->team, o->kind ? o->kind : &par_team_kind_pthread,
                              o->cpus ? o->cpus : out->budget.cpus,
                              o->cpus ? o->n_cpus : out->budget.n, 1);
    if (rc == OK)
        rc = model_open(&out->model, f, out->team, &mo);
    if (rc == OK)
        rc = model_bench_steps_open(&out->steps, out->model, out->team, o->n_seqs,
                                    o->max_tok, mo.max_step_tok, o->seed);
    if (rc != OK)
        model_bench_close(out);
    return rc;
}

void model_bench_close(struct model_bench *b)
{
    model_bench_steps_close(&b->steps);
    model_close(&b->model);
    if (!b->team_lent)
        par_team_close(&b->team);
}
