#include "experiments/study/support/roles_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "roles/roles.h"

#define WAIT_NS     UINT64_C(100000000)
#define REPORTS_MAX 100 /* waits for a machine's report, of WAIT_NS each */

int study_roles_open(struct study_serving *s, struct serve_opts *o, const char *roles,
                     const char *transport, bool checksums)
{
    struct roles_opts ro;
    int rc = opt_init(roles_opt_table, &ro);

    if (rc == OK)
        rc = opt_set(roles_opt_table, &ro, "roles", roles, "study");
    if (rc == OK)
        rc = opt_set(roles_opt_table, &ro, "transport", transport, "study");
    ro.checksums = checksums;
    if (rc == OK)
        rc = roles_open_paced(&s->serve, o, &ro, s->pace);
    opt_free(roles_opt_table, &ro);
    opt_free(serve_opt_table, o);
    if (rc == OK)
        s->prompt = mem_new(MEM_OTHER, (size_t)s->serve->max_tok, sizeof(*s->prompt));
    return rc;
}

struct flight {
    int64_t id, n_tok;
    struct roles_run_request *r;
};

struct roles_run {
    struct study_serving serving;
    struct flight *flights; /* [n] */
    int n, n_submitted, n_failed;
    uint64_t begin_ns;
};

static void roles_run_token(void *ctx, int64_t request, int32_t id, const float *logits,
                            enum serve_finish finish)
{
    struct roles_run *run = ctx;
    struct flight *f = run->flights;
    double ms;

    (void)logits;
    while (f->id != request)
        f++;
    ms = 1e-6 * (double)(clock_ns() - run->begin_ns) - 1e3 * f->r->arrival_s;
    if (id >= 0 && f->n_tok++ == 0)
        f->r->first_ms = ms;
    f->r->last_ms = ms;
    run->n_failed += finish != SERVE_RUNNING && f->n_tok != f->r->n_output;
}

static int roles_run_open(struct roles_run *run, const struct roles_run_opts *o)
{
    struct serve_opts so;

    TRY(study_serving_opts(&so, o->model, "continuous"));
    so.precision = o->precision;
    so.max_seqs = o->max_seqs;
    so.max_step_tok = o->max_step_tok;
    so.max_tok = o->max_tok;
    run->serving.pace = o->pace;
    run->serving.on_token = roles_run_token;
    run->serving.ctx = run;
    if (!o->roles) {
        so.threads = 1;
        return study_serving_open(&run->serving, &so);
    }
    return study_roles_open(&run->serving, &so, o->roles, o->transport, true);
}

/* Submit what has arrived. *due_ns: when the next one does; UINT64_MAX: none is left. */
static int submit_arrived(struct roles_run *run, uint64_t seed, uint64_t *due_ns)
{
    uint64_t now = clock_ns();

    for (; run->n_submitted < run->n; run->n_submitted++) {
        struct flight *f = &run->flights[run->n_submitted];

        *due_ns = run->begin_ns + (uint64_t)(1e9 * f->r->arrival_s);
        if (*due_ns > now)
            return OK;
        TRY(study_serving_submit(&run->serving, seed + (uint64_t)run->n_submitted,
                                 f->r->n_prompt, f->r->n_output, &f->id));
    }
    *due_ns = UINT64_MAX;
    return OK;
}

static int serve_all(struct roles_run *run, uint64_t seed, struct study_cell *cell)
{
    uint64_t due, now;
    bool busy;

    run->begin_ns = clock_ns() + WAIT_NS;
    while (run->n_submitted < run->n || run->serving.n_live > 0) {
        TRY(submit_arrived(run, seed, &due));
        TRY(serve_step(run->serving.serve, &busy));
        now = clock_ns();
        if (!busy && due > now)
            serve_wait(run->serving.serve, due - now < WAIT_NS ? due - now : WAIT_NS);
        study_progress(cell, (double)(run->n_submitted - run->serving.n_live) / run->n,
                       "requests as they arrive");
    }
    return OK;
}

/* Machines report what they computed after the tokens of their last step: wait for that. */
static int count_busy(struct roles_run *run, double *busy_ms)
{
    int64_t expected = 0;
    bool busy;

    for (int i = 0; i < run->n; i++)
        expected += run->flights[i].r->n_prompt + run->flights[i].r->n_output - 1;
    for (int waits = 0; waits < REPORTS_MAX; waits++) {
        int64_t n_tok = 0;

        for (int k = 0; k < SERVE_N_PHASES; k++) {
            const struct serve_totals *t = serve_totals_of(run->serving.serve, k);

            n_tok += t->n_tok;
            busy_ms[k] = 1e-6 * (double)(t->forward_ns + t->sample_ns + t->sched_ns);
        }
        if (n_tok >= expected)
            return OK;
        serve_wait(run->serving.serve, WAIT_NS);
        TRY(serve_step(run->serving.serve, &busy));
    }
    return err_set(ERR_STATE, "machines did not report all of their steps");
}

int study_roles_run(struct roles_run_request *requests, int n_before, int n,
                    double busy_ms[2][2], const struct roles_run_opts *o,
                    struct study_cell *cell)
{
    struct roles_run run = {.n = 0};
    int rc = roles_run_open(&run, o);

    run.flights = mem_new(MEM_HARNESS, (size_t)n, sizeof(*run.flights));
    for (int i = 0; i < n; i++)
        run.flights[i] = (struct flight){.id = -1, .r = &requests[i]};
    for (int part = 0; part < 2 && rc == OK; part++) {
        run.n = part ? n : n_before;
        rc = serve_all(&run, o->seed, cell);
        if (rc == OK)
            rc = count_busy(&run, busy_ms[part]);
    }
    for (int k = 0; k < 2; k++)
        busy_ms[1][k] -= busy_ms[0][k];
    study_serving_close(&run.serving);
    if (rc == OK && run.n_failed > 0)
        rc = err_set(ERR_STATE, "%d requests did not get all of their tokens",
                     run.n_failed);
    mem_free(run.flights);
    return rc;
}
