#include "experiments/study/support/served_load.h"

#include "base/clock.h"
#include "base/rng.h"
#include "experiments/study/support/serving.h"

struct run {
    const struct served_load_opts *o;
    struct served_load *out;
    struct study_serving engine;
    struct rng arrivals;
    uint64_t begin_ns, next_ns;
};

static int open_engine(struct run *r)
{
    const struct served_load_opts *o = r->o;
    int64_t longest = 1;
    struct serve_opts so;

    for (int64_t i = 0; i < o->n; i++) {
        int64_t all = o->prompt_tok[i] + o->output_tok[i];

        longest = all > longest ? all : longest;
    }
    if (!o->model)
        return err_set(ERR_ARG, "study.engine_model: expected a path, found none");
    TRY(study_serving_opts(&so, o->model, o->policy));
    so.max_seqs = o->max_seqs;
    so.max_step_tok = o->max_step_tok;
    so.max_tok = longest;
    return study_serving_open(&r->engine, &so);
}

static int submit(struct run *r)
{
    int64_t number = r->engine.n_submitted, i = number % r->o->n;

    return study_serving_submit(&r->engine, (r->o->seed << 32) + (uint64_t)number,
                                r->o->prompt_tok[i], r->o->output_tok[i], NULL);
}

static int64_t n_tok(const struct run *r)
{
    return serve_totals_of(r->engine.serve, SERVE_PREFILL)->n_tok +
           serve_totals_of(r->engine.serve, SERVE_DECODE)->n_tok;
}

static int step(struct run *r)
{
    uint64_t begin = clock_ns();
    int64_t tok = n_tok(r);
    double s;

    TRY(study_serving_step(&r->engine));
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
        if (r->engine.n_live > 0)
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
    rc = open_engine(&r);
    if (rc == OK) {
        r.begin_ns = r.next_ns = clock_ns();
        draw_next(&r);
        rc = serve_arrivals(&r, cell);
        /* the last step may end later than the time of the arrivals */
        out->all_s = 1e-9 * (double)(clock_ns() - r.begin_ns) - o->warmup_s;
    }
    out->n_submitted = r.engine.n_submitted;
    out->n_ended = out->n_submitted - r.engine.n_live;
    study_serving_close(&r.engine);
    return rc;
}
