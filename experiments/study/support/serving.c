#include "experiments/study/support/serving.h"

#include "base/mem.h"
#include "base/rng.h"

#define WAIT_NS UINT64_C(100000000)

int study_serving_opts(struct serve_opts *out, const char *model, const char *policy)
{
    int rc;

    if (!model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(opt_init(serve_opt_table, out));
    rc = opt_set(serve_opt_table, out, "model", model, "study");
    if (rc == OK)
        rc = opt_set(serve_opt_table, out, "policy", policy, "study");
    if (rc != OK)
        opt_free(serve_opt_table, out);
    return rc;
}

int study_serving_open(struct study_serving *s, struct serve_opts *o)
{
    int rc = serve_open_with(&s->serve, o, &(struct serve_how){.pace = s->pace});

    opt_free(serve_opt_table, o);
    if (rc == OK)
        s->prompt = mem_new(MEM_OTHER, (size_t)s->serve->max_tok, sizeof(*s->prompt));
    return rc;
}

void study_serving_close(struct study_serving *s)
{
    serve_close(&s->serve); /* its requests end */
    mem_free(s->prompt);
    s->prompt = NULL;
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct study_serving *s = ctx;

    s->n_live -= finish != SERVE_RUNNING;
    if (s->on_token)
        s->on_token(s->ctx, request, id, logits, finish);
}

int study_serving_submit(struct study_serving *s, uint64_t seed, int64_t n_prompt,
                         int64_t max_new, int64_t *id)
{
    const struct serve_request r = {.prompt = s->prompt,
                                    .n_prompt = n_prompt,
                                    .max_new = max_new,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token,
                                    .ctx = s};
    struct rng rng;
    int64_t ignored;
    int rc;

    if (n_prompt > s->serve->max_tok)
        return err_set(ERR_LIMIT, "a prompt of %lld tokens exceeds the longest sequence",
                       (long long)n_prompt);
    rng_init(&rng, seed, "prompt");
    for (int64_t i = 0; i < n_prompt; i++)
        s->prompt[i] = (int32_t)rng_below(&rng, (uint64_t)serve_vocab(s->serve));
    s->n_submitted++;
    s->n_live++;
    rc = serve_submit(s->serve, &r, id ? id : &ignored);
    s->n_live -= rc != OK;
    return rc;
}

int study_serving_step(struct study_serving *s)
{
    bool busy;

    TRY(serve_step(s->serve, &busy));
    if (!busy && s->n_live > 0) /* machines that are processes compute */
        serve_wait(s->serve, WAIT_NS);
    return OK;
}

int study_serving_prefill(struct study_serving *s, int64_t n_tok)
{
    const struct serve_totals *t = serve_totals_of(s->serve, SERVE_PREFILL);
    int64_t all = t->n_tok + n_tok;

    while (t->n_tok < all)
        TRY(study_serving_step(s));
    return OK;
}

int study_serving_finish(struct study_serving *s)
{
    while (s->n_live > 0)
        TRY(study_serving_step(s));
    return OK;
}

int study_serving_cancel(struct study_serving *s, const int64_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        serve_cancel(s->serve, ids[i]);
    return study_serving_finish(s);
}
