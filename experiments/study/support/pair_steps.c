#include "experiments/study/support/pair_steps.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "cpu/cpu.h"
#include "experiments/study/support/serving.h"
#include "par/rank.h"
#include "par/shm.h"

#define STEPS_MAX  4096
#define NEW_TOK    128 /* of each sequence in a window, at most */
#define ROUNDS_MAX 64
#define POLL_NS    UINT64_C(200000)
#define LEAD_NS    UINT64_C(5000000) /* from both being ready to the window */
#define LOST_NS    UINT64_C(120000000000)

enum kind { PROMPTS, TOKENS, IDLE };

/* Shared. `command` counts the windows; each engine answers with `ready` and `done`. */
struct board {
    atomic_int command, ready[2], done[2], kind[2];
    _Atomic uint64_t begin_ns, end_ns;
    atomic_bool stop;
    double step_ms[2]; /* of the window; NaN: no whole step was in it */
};

struct pair {
    const struct pair_steps_opts *o;
    struct board *board;
};

/* ---- an engine's process ---- */

struct engine {
    const struct pair_steps_opts *o;
    struct study_serving serving;
    double ms[STEPS_MAX];
    size_t n;
};

static int64_t longest_tok(const struct pair_steps_opts *o)
{
    return (o->prompt_tok > o->ctx_tok ? o->prompt_tok : o->ctx_tok) + NEW_TOK;
}

static int open_engine(struct engine *e)
{
    const struct pair_steps_opts *o = e->o;
    struct serve_opts so;
    int rc;

    TRY(study_serving_opts(&so, o->model, "continuous"));
    rc = opt_set(serve_opt_table, &so, "kv_alloc", "paged", "study");
    if (rc != OK) {
        opt_free(serve_opt_table, &so);
        return rc;
    }
    so.precision = o->precision;
    so.threads = 1;
    so.max_seqs = o->batch;
    so.max_tok = longest_tok(o);
    so.kv_budget_tok = (o->batch + 1) * (longest_tok(o) + 16);
    so.max_step_tok = o->batch * longest_tok(o);
    return study_serving_open(&e->serving, &so);
}

static int submit(struct engine *e, int64_t n_prompt, int64_t max_new, int64_t *id)
{
    return study_serving_submit(&e->serving, (uint64_t)e->serving.n_submitted + 1,
                                n_prompt, max_new, id);
}

/* Steps until the end, or until a sequence has all of its tokens; those that are in the window as a
 * whole count. */
static int steps_in_window(struct engine *e, const struct board *b, enum kind kind)
{
    uint64_t begin = atomic_load(&b->begin_ns), end = atomic_load(&b->end_ns), t0, t1;

    e->n = 0;
    while ((t0 = clock_ns()) < end &&
           (kind == PROMPTS || e->serving.n_live == e->o->batch)) {
        if (kind == PROMPTS)
            TRY(submit(e, e->o->prompt_tok, 1, NULL));
        TRY(kind == PROMPTS ? study_serving_finish(&e->serving)
                            : study_serving_step(&e->serving));
        t1 = clock_ns();
        if (t0 >= begin && t1 <= end && e->n < STEPS_MAX)
            e->ms[e->n++] = 1e-6 * (double)(t1 - t0);
    }
    return OK;
}

static int window(struct engine *e, struct board *b, int rank, int command)
{
    enum kind kind = (enum kind)atomic_load(&b->kind[rank]);
    int64_t ids[1024];
    int64_t n = kind == TOKENS ? e->o->batch : 0;

    for (int64_t i = 0; i < n; i++)
        TRY(submit(e, e->o->ctx_tok, NEW_TOK, &ids[i]));
    if (n > 0)
        TRY(study_serving_step(&e->serving)); /* their prompts */
    atomic_store(&b->ready[rank], command);
    while (atomic_load(&b->begin_ns) == 0)
        clock_sleep_until_ns(clock_ns() + POLL_NS, 0);
    if (kind != IDLE)
        TRY(steps_in_window(e, b, kind));
    b->step_ms[rank] = stats_median(e->ms, kind == IDLE ? 0 : e->n);
    TRY(study_serving_cancel(&e->serving, ids, n));
    atomic_store(&b->done[rank], command);
    return OK;
}

static int engine_main(void *arg, int rank)
{
    const struct pair *p = arg;
    struct board *b = p->board;
    struct engine e = {.o = p->o};
    int rc = open_engine(&e), seen = 0;

    atomic_store(&b->done[rank], rc == OK ? 0 : -1);
    while (rc == OK && !atomic_load(&b->stop)) {
        int command = atomic_load(&b->command);

        if (command == seen)
            clock_sleep_until_ns(clock_ns() + POLL_NS, 0);
        else
            rc = window(&e, b, rank, seen = command);
    }
    study_serving_close(&e.serving);
    return rc;
}

/* ---- the study's process ---- */

static int wait_for(struct par_ranks *ranks, atomic_int *words, int value)
{
    uint64_t limit = clock_ns() + LOST_NS;

    while (atomic_load(&words[0]) != value || atomic_load(&words[1]) != value) {
        TRY(par_ranks_check(ranks));
        if (clock_ns() > limit)
            return err_set(ERR_LIMIT, "an engine does not answer");
        clock_sleep_until_ns(clock_ns() + POLL_NS, 0);
    }
    return OK;
}

/* One window with these kinds of steps; ms [2]. */
static int measure(struct pair *p, struct par_ranks *ranks, enum kind a, enum kind b,
                   double *ms)
{
    struct board *board = p->board;
    int command = atomic_load(&board->command) + 1;
    uint64_t begin;

    atomic_store(&board->begin_ns, 0);
    atomic_store(&board->kind[0], a);
    atomic_store(&board->kind[1], b);
    atomic_store(&board->command, command);
    TRY(wait_for(ranks, board->ready, command));
    begin = clock_ns() + LEAD_NS;
    atomic_store(&board->end_ns, begin + (uint64_t)(1e9 * p->o->window_s));
    atomic_store(&board->begin_ns, begin);
    /* This process takes no time of the CPUs that are measured. */
    clock_sleep_until_ns(atomic_load(&board->end_ns), 0);
    TRY(wait_for(ranks, board->done, command));
    ms[0] = board->step_ms[0];
    ms[1] = board->step_ms[1];
    return OK;
}

struct ratios {
    double v[2][2][2 * ROUNDS_MAX];
    size_t n[2][2];
};

static int round_of_all(struct pair *p, struct par_ranks *ranks, struct ratios *r)
{
    double alone[2][2], ms[2];

    for (int k = PROMPTS; k <= TOKENS; k++)
        for (int e = 0; e < 2; e++) {
            TRY(measure(p, ranks, e ? IDLE : (enum kind)k, e ? (enum kind)k : IDLE, ms));
            alone[e][k] = ms[e];
        }
    for (int a = PROMPTS; a <= TOKENS; a++)
        for (int b = PROMPTS; b <= TOKENS; b++) {
            const int kind[2] = {a, b};

            TRY(measure(p, ranks, (enum kind)a, (enum kind)b, ms));
            for (int e = 0; e < 2; e++) {
                double ratio = ms[e] / alone[e][kind[e]];

                if (ratio > 0)
                    r->v[kind[e]][kind[!e]][r->n[kind[e]][kind[!e]]++] = ratio;
            }
        }
    return OK;
}

static int all_rounds(struct pair *p, struct par_ranks *ranks, struct ratios *r,
                      struct study_cell *cell)
{
    TRY(wait_for(ranks, p->board->done, 0));
    for (int64_t i = 0; i < p->o->rounds; i++) {
        study_progress(cell, (double)i / (double)p->o->rounds,
                       "steps alone and next to others");
        TRY(round_of_all(p, ranks, r));
    }
    return OK;
}

static int check(const struct pair_steps_opts *o, struct cpu_budget *b)
{
    if (o->rounds < 1 || o->rounds > ROUNDS_MAX / 2 || o->batch < 1 || o->batch > 1024)
        return err_set(ERR_ARG, "pairs: expected 1 to %d rounds and a batch of 1 to 1024",
                       ROUNDS_MAX / 2);
    TRY(cpu_budget_get(b));
    return b->n >= 2 ? OK : err_set(ERR_NOTFOUND, "two machines need two CPUs");
}

int study_pair_steps(double slowdown[2][2], const struct pair_steps_opts *o,
                     struct study_cell *cell)
{
    struct ratios *r = mem_new(MEM_HARNESS, 1, sizeof(*r));
    struct cpu_budget b;
    struct par_shm shm = {0};
    struct pair p = {.o = o};
    struct par_ranks *ranks = NULL;
    int rc = check(o, &b);
    const int *const cpus[2] = {&b.cpus[0], &b.cpus[rc == OK ? b.n - 1 : 0]};
    const int n_cpus[2] = {1, 1};
    const char *const names[2] = {"the first engine", "the second engine"};
    const struct par_ranks_opts ro = {.n_ranks = 2,
                                      .fn = engine_main,
                                      .arg = &p,
                                      .names = names,
                                      .cpus = cpus,
                                      .n_cpus = n_cpus};

    if (rc == OK)
        rc = par_shm_open(&shm, sizeof(*p.board));
    p.board = shm.base;
    if (rc == OK) {
        atomic_store(&p.board->done[0], -2);
        atomic_store(&p.board->done[1], -2);
        rc = par_ranks_open(&ranks, &ro);
    }
    if (rc == OK)
        rc = all_rounds(&p, ranks, r, cell);
    if (p.board)
        atomic_store(&p.board->stop, true);
    par_ranks_close(&ranks);
    par_shm_close(&shm);
    for (int k = 0; k < 2; k++)
        for (int n = 0; n < 2; n++) {
            double m = stats_median(r->v[k][n], r->n[k][n]);

            slowdown[k][n] = m > 1 ? m : 1;
        }
    mem_free(r);
    return rc;
}
