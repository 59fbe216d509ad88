#include "experiments/study/support/served_load.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "serve/serve.h"

struct run {
    const struct served_load_opts *o;
    struct served_load *out;
    struct serve *serve;
    struct rng arrivals, tokens;
    int32_t *prompt;
    uint64_t begin_ns, next_ns;
    int64_t n_live;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct run *r = ctx;

    (void)request, (void)id, (void)logits;
    if (finish == SERVE_RUNNING)
        return;
    r->out->n_ended++;
    r->n_live--;
}

static int open_engine(struct run *r)
{
    const struct served_load_opts *o = r->o;
    int64_t longest = 1, prompt = 1;
    struct serve_opts so;
    int rc;

    for (int64_t i = 0; i < o->n; i++) {
        int64_t all = o->prompt_tok[i] + o->output_tok[i];

        longest = all > longest ? all : longest;
        prompt = o->prompt_tok[i] > prompt ? o->prompt_tok[i] : prompt;
    }
    if (!o->model)
        return err_set(ERR_ARG, "study.engine_model: expected a path, found none");
    TRY(opt_init(serve_opt_table, &so));
    rc = opt_set(serve_opt_table, &so, "model", o->model, "study");
    if (rc == OK)
        rc = opt_set(serve_opt_table, &so, "policy", o->policy, "study");
    so.max_seqs = o->max_seqs;
    so.max_step_tok = o->max_step_tok;
    so.max_tok = longest;
    if (rc == OK)
        rc = serve_open(&r->serve, &so);
    opt_free(serve_opt_table, &so);
    r->prompt = mem_new(MEM_OTHER, (size_t)prompt, sizeof(*r->prompt));
    return rc;
}

static int submit(struct run *r)
{
    const struct served_load_opts *o = r->o;
    int64_t i = r->out->n_submitted++ % o->n, id;
    const struct serve_request q = {.prompt = r->prompt,
                                    .n_prompt = o->prompt_tok[i],
                                    .max_new = o->output_tok[i],
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token,
                                    .ctx = r};

    for (int64_t k = 0; k < q.n_prompt; k++)
        r->prompt[k] = (int32_t)rng_below(&r->tokens, (uint64_t)serve_vocab(r->serve));
    r->n_live++;
    return serve_submit(r->serve, &q, &id);
}

static int64_t n_tok(const struct run *r)
{
    return serve_totals_of(r->serve, SERVE_PREFILL)->n_tok +
           serve_totals_of(r->serve, SERVE_DECODE)->n_tok;
}

static int step(struct run *r)
{
    uint64_t begin = clock_ns();
    int64_t tok = n_tok(r);
    double s;
    bool busy;

    TRY(serve_step(r->serve, &busy));
    tok = n_tok(r) - tok;
    s = 1e-9 * (double)(clock_ns() - begin);
    if (tok < 1 || 1e-9 * (double)(begin - r->begin_ns) < r->o->warmup_s)
        return OK;
    r->out->by_tok_s[tok < SERVED_LOAD_TOK_MAX ? tok : SERVED_LOAD_TOK_MAX] += s;
    r->out->busy_s += s;
    r->out->n_steps++;
    return OK;
}

static void draw_next(struct run *r)
{
    r->next_ns += (uint64_t)(1e9 * rng_exp(&r->arrivals) / r->o->rate);
}

static int serve_arrivals(struct run *r, struct study_cell *cell)
{
    uint64_t end_ns = r->begin_ns + (uint64_t)(1e9 * r->o->duration_s), now;

    while ((now = clock_ns()) < end_ns) {
        while (r->next_ns <= now) {
            TRY(submit(r));
            draw_next(r);
        }
        if (r->n_live > 0)
            TRY(step(r));
        else
            clock_sleep_until_ns(r->next_ns < end_ns ? r->next_ns : end_ns, 0);
        study_progress(cell, (double)(now - r->begin_ns) / (double)(end_ns - r->begin_ns),
                       "requests as they arrive");
    }
    return OK;
}

int study_served_load(struct served_load *out, const struct served_load_opts *o,
                      struct study_cell *cell)
{
    struct run r = {.o = o, .out = out};
    int rc;

    *out = (struct served_load){0};
    rng_init(&r.arrivals, o->seed, "arrivals");
    rng_init(&r.tokens, o->seed, "prompt");
    rc = open_engine(&r);
    if (rc == OK) {
        r.begin_ns = r.next_ns = clock_ns();
        draw_next(&r);
        rc = serve_arrivals(&r, cell);
        /* the last step may end later than the time of the arrivals */
        out->all_s = 1e-9 * (double)(clock_ns() - r.begin_ns) - o->warmup_s;
    }
    serve_close(&r.serve);
    mem_free(r.prompt);
    return rc;
}
