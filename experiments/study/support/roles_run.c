#include "experiments/study/support/roles_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "roles/roles.h"
#include "serve/serve.h"

#define WAIT_NS UINT64_C(100000000)

struct run {
    const struct roles_run_opts *o;
    struct serve *serve;
    struct rng tokens;
    int32_t *prompt;
    uint64_t begin_ns;
    int n_ended, n_failed;
};

struct flight {
    struct run *run;
    struct roles_run_request *r;
    int64_t n_tok;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct flight *f = ctx;
    double ms = 1e-6 * (double)(clock_ns() - f->run->begin_ns) - 1e3 * f->r->arrival_s;

    (void)request, (void)logits;
    if (id >= 0 && f->n_tok++ == 0)
        f->r->first_ms = ms;
    f->r->last_ms = ms;
    if (finish == SERVE_RUNNING)
        return;
    f->run->n_ended++;
    f->run->n_failed += f->n_tok != f->r->n_output;
}

static int set_engine(struct serve_opts *so, const struct roles_run_opts *o)
{
    TRY(opt_set(serve_opt_table, so, "model", o->model, "study"));
    TRY(opt_set(serve_opt_table, so, "policy", "continuous", "study"));
    so->precision = o->precision;
    so->max_seqs = o->max_seqs;
    so->max_step_tok = o->max_step_tok;
    so->max_tok = o->max_tok;
    return OK;
}

static int open_machines(struct run *r)
{
    const struct roles_run_opts *o = r->o;
    struct roles_opts ro;
    struct serve_opts so;
    int rc = opt_init(serve_opt_table, &so), rc2 = opt_init(roles_opt_table, &ro);

    rc = rc == OK ? rc2 : rc;
    if (rc == OK)
        rc = set_engine(&so, o);
    if (rc == OK)
        rc = opt_set(roles_opt_table, &ro, "roles", o->roles, "study");
    if (rc == OK)
        rc = opt_set(roles_opt_table, &ro, "transport", o->transport, "study");
    if (rc == OK)
        rc = roles_open(&r->serve, &so, &ro);
    opt_free(serve_opt_table, &so);
    opt_free(roles_opt_table, &ro);
    r->prompt = mem_new(MEM_OTHER, (size_t)o->max_tok, sizeof(*r->prompt));
    return rc;
}

static int submit(struct run *r, struct flight *f)
{
    const struct serve_request q = {.prompt = r->prompt,
                                    .n_prompt = f->r->n_prompt,
                                    .max_new = f->r->n_output,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token,
                                    .ctx = f};
    int64_t id;

    for (int64_t i = 0; i < q.n_prompt; i++)
        r->prompt[i] = (int32_t)rng_below(&r->tokens, (uint64_t)serve_vocab(r->serve));
    return serve_submit(r->serve, &q, &id);
}

static int serve_all(struct run *r, struct flight *flights, int n,
                     struct study_cell *cell)
{
    int next = 0;
    bool busy;

    r->begin_ns = clock_ns() + WAIT_NS;
    while (r->n_ended < n) {
        uint64_t now = clock_ns(), due = UINT64_MAX;

        for (; next < n; next++) {
            due = r->begin_ns + (uint64_t)(1e9 * flights[next].r->arrival_s);
            if (due > now)
                break;
            TRY(submit(r, &flights[next]));
            due = UINT64_MAX;
        }
        TRY(serve_step(r->serve, &busy));
        now = clock_ns();
        if (!busy && due > now)
            serve_wait(r->serve, due - now < WAIT_NS ? due - now : WAIT_NS);
        study_progress(cell, (double)r->n_ended / n, "requests as they arrive");
    }
    return OK;
}

int study_roles_run(struct roles_run_request *requests, int n,
                    const struct roles_run_opts *o, struct study_cell *cell)
{
    struct flight *flights = mem_new(MEM_HARNESS, (size_t)n, sizeof(*flights));
    struct run r = {.o = o};
    int rc;

    rng_init(&r.tokens, o->seed, "prompt");
    for (int i = 0; i < n; i++)
        flights[i] = (struct flight){.run = &r, .r = &requests[i]};
    rc = open_machines(&r);
    if (rc == OK)
        rc = serve_all(&r, flights, n, cell);
    serve_close(&r.serve);
    if (rc == OK && r.n_failed > 0)
        rc =
            err_set(ERR_STATE, "%d requests did not get all of their tokens", r.n_failed);
    mem_free(r.prompt);
    mem_free(flights);
    return rc;
}
