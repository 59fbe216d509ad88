#include "experiments/study/counted/counted.h"

#include <math.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/mem.h"
#include "characterize/counters/publish.h"
#include "cpu/cpu.h"
#include "experiments/study/support/serving.h"

static const char *const soft_names[] = {"page-faults", "context-switches", "task-clock"};

const struct study_total study_totals[] = {
    {"n_steps", offsetof(struct serve_totals, n_steps)},
    {"n_tok", offsetof(struct serve_totals, n_tok)},
    {"weight_bytes", offsetof(struct serve_totals, weight_bytes)},
    {"kv_bytes", offsetof(struct serve_totals, kv_bytes)},
    {"flop", offsetof(struct serve_totals, flop)},
    {"wait_ns", offsetof(struct serve_totals, wait_ns)},
};

/* The counters that a thread opened, and alone starts and stops. */
struct own {
    struct counters_meter *meter;
    struct counters *soft;
    uint64_t ticks;
    int rc;
};

struct run_state {
    const struct study_counted_opts *o;
    struct study_counted *out;
    struct study_serving engine;
    struct own own[CPU_MAX];
    int n_threads, n_passes, pass;
    struct counters *sde;
    uint64_t ns; /* of the first pass, by the clock of thread 0 */
};

/* --- on each thread */

static void open_here(void *ctx, int id, int n)
{
    const struct counters_provider *perf;
    struct run_state *w = ctx;
    struct own *own = &w->own[id];

    if (id == 0)
        w->n_threads = n;
    own->rc = counters_provider_find("perf_event", &perf);
    if (own->rc == OK)
        own->rc = counters_meter_open(&own->meter, &w->out->list, id == 0);
    if (own->rc == OK)
        own->rc = counters_open(&own->soft, perf, soft_names, STUDY_N_SOFT);
}

static void close_here(void *ctx, int id, int n)
{
    struct run_state *w = ctx;

    (void)n;
    counters_meter_close(&w->own[id].meter);
    counters_close(&w->own[id].soft);
}

static void start_here(void *ctx, int id, int n)
{
    struct run_state *w = ctx;

    (void)n;
    if (w->pass == 0)
        counters_start(w->own[id].soft, 0);
    counters_meter_start(w->own[id].meter, w->pass);
    if (w->pass > 0)
        return;
    if (id == 0)
        w->ns = clock_ns();
    w->own[id].ticks = clock_ticks();
}

static void stop_here(void *ctx, int id, int n)
{
    struct run_state *w = ctx;

    (void)n;
    if (w->pass == 0) {
        w->own[id].ticks = clock_ticks() - w->own[id].ticks;
        if (id == 0)
            w->ns = clock_ns() - w->ns;
    }
    counters_meter_stop(w->own[id].meter, w->pass);
    if (w->pass == 0)
        counters_stop(w->own[id].soft, 0);
}

/* --- the work */

/* All requests of a pass; sequences that were prefilled first decode while others still
 * wait for their turn, so each may have that many tokens more. */
static int submit(struct run_state *w, int64_t *ids)
{
    int64_t more = w->o->phase == SERVE_DECODE ? w->o->steps + w->o->batch : 0;

    for (int64_t i = 0; i < w->o->batch; i++)
        TRY(study_serving_submit(&w->engine, (uint64_t)w->o->seed, w->o->prompt_tok,
                                 1 + more, &ids[i]));
    return OK;
}

/* The counted steps of a pass, between the start and stop of all counters. */
static int counted_steps(struct run_state *w, int64_t prefilled)
{
    const struct serve_totals *prefill = serve_totals_of(w->engine.serve, SERVE_PREFILL);
    struct serve_totals before;
    int rc = OK;

    serve_each_thread(w->engine.serve, start_here, w);
    if (w->pass == 0)
        counters_start(w->sde, 0);
    before = *serve_totals_of(w->engine.serve, w->o->phase);
    if (w->o->phase == SERVE_PREFILL)
        while (rc == OK && prefill->n_tok < prefilled)
            rc = study_serving_step(&w->engine);
    else
        for (int64_t i = 0; i < w->o->steps && rc == OK; i++)
            rc = study_serving_step(&w->engine);
    if (w->pass == 0) {
        counters_stop(w->sde, 0);
        w->out->own =
            serve_totals_since(serve_totals_of(w->engine.serve, w->o->phase), &before);
    }
    serve_each_thread(w->engine.serve, stop_here, w);
    return rc;
}

/* One run of the same deterministic work; `count` false warms up. */
static int one_pass(struct run_state *w, bool count)
{
    int64_t ids[64], prompts_tok = w->o->batch * w->o->prompt_tok;
    int64_t prefilled =
        serve_totals_of(w->engine.serve, SERVE_PREFILL)->n_tok + prompts_tok;

    TRY(submit(w, ids));
    if (w->o->phase == SERVE_DECODE || !count)
        TRY(study_serving_prefill(&w->engine, prompts_tok));
    if (count)
        TRY(counted_steps(w, prefilled));
    return study_serving_cancel(&w->engine, ids, w->o->batch);
}

/* --- opening */

static int open_engine(struct run_state *w)
{
    struct serve_opts so;

    TRY(study_serving_opts(&so, w->o->model, "continuous"));
    so.max_step_tok = w->o->batch * w->o->prompt_tok; /* all prompts in one step */
    so.threads = w->o->threads;
    so.max_seqs = w->o->batch;
    so.max_tok = w->o->prompt_tok + w->o->steps + w->o->batch + 2;
    return study_serving_open(&w->engine, &so);
}

static int open_sde(struct run_state *w)
{
    const char *t = (const char *)serve_totals_of(w->engine.serve, w->o->phase);
    const struct counters_provider *p;
    const char *names[STUDY_N_TOTALS];

    TRY(counters_provider_find("sde", &p));
    for (int i = 0; i < STUDY_N_TOTALS; i++) {
        names[i] = study_totals[i].name;
        TRY(counters_publish(names[i], (const int64_t *)(t + study_totals[i].offset)));
    }
    return counters_open(&w->sde, p, names, STUDY_N_TOTALS);
}

static int open_counters(struct run_state *w)
{
    struct counters_cpu cpu;

    TRY(counters_cpu_get(&cpu));
    TRY(counters_list_find(&w->out->list, w->o->events, &cpu));
    TRY(open_sde(w));
    serve_each_thread(w->engine.serve, open_here, w);
    w->n_passes = 1; /* even without hardware: SDE and time need a run */
    for (int i = 0; i < w->n_threads; i++) {
        if (w->own[i].rc != OK)
            return err_set(w->own[i].rc, "thread %d cannot open its counters", i);
        if (counters_meter_passes(w->own[i].meter) > w->n_passes)
            w->n_passes = counters_meter_passes(w->own[i].meter);
    }
    return OK;
}

static void close_all(struct run_state *w)
{
    if (w->engine.serve)
        serve_each_thread(w->engine.serve, close_here, w);
    counters_close(&w->sde);
    counters_withdraw(NULL);
    study_serving_close(&w->engine);
}

/* --- what came of it */

static void add_up(struct run_state *w)
{
    struct counters_value one[COUNTERS_EVENTS_MAX];
    struct study_counted *s = w->out;

    for (int i = 0; i < COUNTERS_EVENTS_MAX; i++)
        s->raw[i] = counters_zero();
    for (int i = 0; i < STUDY_N_SOFT; i++)
        s->soft[i] = counters_zero();
    s->ticks = 0;
    for (int t = 0; t < w->n_threads; t++) {
        counters_meter_read(w->own[t].meter, one);
        for (int i = 0; i < s->list.n_events; i++)
            counters_add(&s->raw[i], &one[i]);
        counters_read(w->own[t].soft, one);
        for (int i = 0; i < STUDY_N_SOFT; i++)
            counters_add(&s->soft[i], &one[i]);
        s->ticks += (double)w->own[t].ticks;
    }
    counters_metrics(&s->list, s->raw, s->metrics);
    counters_read(w->sde, s->totals);
    s->tick_ghz = (double)w->own[0].ticks / (double)w->ns;
    if (s->ticks == 0)
        s->ticks = s->tick_ghz = NAN;
    s->n_threads = w->n_threads;
    s->n_passes = w->n_passes;
}

static int run_all(struct run_state *w, struct study_cell *progress)
{
    TRY(open_engine(w));
    TRY(open_counters(w));
    TRY(one_pass(w, false));
    for (w->pass = 0; w->pass < w->n_passes; w->pass++) {
        study_progress(progress, 0.6 * w->pass / w->n_passes, "counted passes");
        TRY(one_pass(w, true));
    }
    add_up(w);
    return OK;
}

int study_counted_run(struct study_counted *out, const struct study_counted_opts *o,
                      struct study_cell *progress)
{
    struct run_state *w = mem_new(MEM_OTHER, 1, sizeof(*w));
    int rc;

    if (!w)
        return ERR_NOMEM;
    w->o = o;
    w->out = out;
    rc = run_all(w, progress);
    close_all(w);
    mem_free(w);
    return rc;
}
