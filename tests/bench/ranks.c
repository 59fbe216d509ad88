/* Ranks of one thread each, as threads and as processes, compared with one rank of all threads:
 * the same steps, each between two of the one rank's. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv.h"
#include "ranks/procs.h"
#include "tests/bench/bench.h"

#define N_STEPS 12 /* tokens a round */
#define MAX_TOK 1024
static const int64_t prefill_sizes[] = BENCH_PREFILL_SIZES;
#define N_PREFILL (int)(sizeof(prefill_sizes) / sizeof(prefill_sizes[0]))

enum { THREADS, PROCESSES, N_MODES };
static const char *const modes[] = {"threads", "processes"};

/* One packing of the weights, with its keys and values: a model whose ranks are processes
 * is of no use to others. */
struct packing {
    struct model *model;
    struct par_team *team; /* NULL: lent */
    struct kv_pool *pool;
    struct kv_slot kv;
};

struct comparison {
    struct packing own[N_MODES];
    struct model_phase *one;            /* of own[THREADS] */
    struct model_phase *ranks[N_MODES]; /* of own[the same] */
    float *logits;
    int32_t ids[512];
    struct measure *measure[N_PREFILL + 1]; /* [N_PREFILL] is decode's */
    int p;                                  /* the one that is measured now */
};

static int packing_open(struct packing *p, const char *path, struct par_team *team,
                        const struct model_opts *o)
{
    const struct kv_need need = {.prompt_tok = MAX_TOK};
    struct kv_pool_opts kv = {.max_tok = MAX_TOK, .shared = true};
    struct format_file *f = NULL;
    struct kv_shape shape;
    int rc = format_open(&f, path);

    if (rc == OK)
        rc = model_open(&p->model, f, team, o);
    format_close(&f);
    if (rc != OK)
        return rc;
    model_kv_shape(p->model, &shape);
    rc = kv_pool_bytes(&kv.budget_bytes, &shape, &kv, 1);
    if (rc == OK)
        rc = kv_pool_open(&p->pool, &shape, &kv);
    return rc == OK ? kv_reserve(p->pool, &need, &p->kv) : rc;
}

static void packing_close(struct packing *p)
{
    model_procs_close(p->model);
    if (p->pool)
        kv_release(p->pool, &p->kv);
    kv_pool_close(&p->pool);
}

static int open_processes(struct bench *b, struct comparison *c, const char *path,
                          struct model_opts o)
{
    struct packing *p = &c->own[PROCESSES];
    const struct model_phase_opts ranks = {.n_ranks = b->n_threads, .n_threads = 1};
    const struct model_procs_opts procs = {
        .phases = &c->ranks[PROCESSES], .n_phases = 1, .cpus = &b->cpus, .max_chunks = 1};
    int rc;

    o.shared = true;
    rc = par_team_open(&p->team, b->cpus, b->n_threads, 1);
    if (rc == OK)
        rc = packing_open(p, path, p->team, &o);
    if (rc == OK)
        rc = model_phase_open(&c->ranks[PROCESSES], p->model, &ranks);
    par_team_close(&p->team);
    return rc == OK ? model_procs_open(p->model, &procs) : rc;
}

static int comparison_open(struct bench *b, struct comparison *c, const char *path,
                           const struct model_opts *o)
{
    const struct model_phase_opts one = {.n_ranks = 1, .n_threads = b->n_threads};
    const struct model_phase_opts ranks = {.n_ranks = b->n_threads, .n_threads = 1};
    struct packing *p = &c->own[THREADS];
    int vocab, rc = open_processes(b, c, path, *o);

    if (rc == OK)
        rc = packing_open(p, path, b->team, o);
    if (rc == OK)
        rc = model_phase_open(&c->one, p->model, &one);
    if (rc == OK)
        rc = model_phase_open(&c->ranks[THREADS], p->model, &ranks);
    if (rc != OK)
        return rc;
    vocab = model_config_of(p->model)->vocab;
    c->logits = mem_new(MEM_TEST, (size_t)vocab, sizeof(float));
    for (int i = 0; i < 512; i++)
        c->ids[i] = 3 + i * 37 % (vocab - 3);
    return c->logits ? OK : ERR_NOMEM;
}

static void comparison_close(struct comparison *c)
{
    for (int m = 0; m < N_MODES; m++)
        packing_close(&c->own[m]);
    for (int m = 0; m < N_MODES; m++)
        model_phase_close(&c->ranks[m]);
    model_phase_close(&c->one);
    for (int m = 0; m < N_MODES; m++)
        model_close(&c->own[m].model);
    for (int p = 0; p <= N_PREFILL; p++)
        measure_close(&c->measure[p]);
    mem_free(c->logits);
    mem_free(c);
}

static double step_s(struct comparison *c, struct model_phase *phase, int mode,
                     int64_t pos0, int64_t n)
{
    const struct model_chunk k = {.kv = &c->own[mode].kv,
                                  .ids = c->ids,
                                  .n_tok = n,
                                  .pos0 = pos0,
                                  .want_logits = true};
    uint64_t t0 = clock_ns();

    if (model_forward(phase, &k, 1, c->logits) != OK)
        return NAN;
    return (double)(clock_ns() - t0) * 1e-9;
}

/* By the ranks of one mode or, i == N_MODES, by the one rank of all threads. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct comparison *c = arg;
    bool decode = c->p == N_PREFILL;
    int64_t pos0 = decode ? BENCH_CONTEXT : 0, n = decode ? 1 : prefill_sizes[c->p];
    int mode = i == N_MODES ? THREADS : i, n_steps = decode ? N_STEPS : 1;
    struct model_phase *phase = i == N_MODES ? c->one : c->ranks[i];

    step_s(c, phase, mode, pos0, 1); /* awake */
    t->seconds = 0;
    for (int k = 0; k < n_steps; k++)
        t->seconds += step_s(c, phase, mode, pos0, n) / n_steps;
    return OK;
}

static int report(struct bench *b, const struct comparison *c, int mode, int p,
                  const char *arch, const char *tag)
{
    struct measure_report frac; /* time of ranks over that of the one */
    char what[32] = "decode", name[160];
    int rc;

    measure_ratio(c->measure[p], mode, N_MODES, &frac);
    if (p < N_PREFILL)
        snprintf(what, sizeof(what), "prefill%lld", (long long)prefill_sizes[p]);
    printf(
        "%-20s %-12s %-10s %d ranks (%s) of 1 thread are %.3f times as fast as 1 of %d "
        "(%.3f .. %.3f)\n",
        arch, tag, what, b->n_threads, modes[mode], 1 / frac.estimate, b->n_threads,
        1 / frac.hi, 1 / frac.lo);
    snprintf(name, sizeof(name), "%s_ranks_%s_over_threads_%s_%s", what, modes[mode],
             arch, tag);
    rc = bench_headline(b, name, 1 / frac.estimate, "1", true);
    if (rc != OK)
        return rc;
    return bench_row(b, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f}",
                                  "model", arch, "type", tag, "what", "ranks",
                                  "rank_mode", modes[mode], "step", what, "n_ranks",
                                  b->n_threads, "time_frac", frac.estimate,
                                  "time_frac_lo", frac.lo, "time_frac_hi", frac.hi));
}

int bench_ranks(struct bench *b, const char *path, const char *precision,
                const char *arch, const char *tag)
{
    struct comparison *c = mem_new(MEM_TEST, 1, sizeof(*c));
    const struct model_opts o = {.weight_type = KERN_N_TYPES,
                                 .kv_type = KERN_KV_F32,
                                 .precision = kern_precision_of(precision),
                                 .deterministic = b->o.deterministic,
                                 .max_step_tok = 512,
                                 .max_tok = MAX_TOK};
    const struct measure_opts rounds = {MEASURE_EXACTLY((int)b->o.rounds)};
    int rc;

    if (!c)
        return ERR_NOMEM;
    rc = comparison_open(b, c, path, &o);
    for (int m = 0; m < N_MODES && rc == OK; m++)
        step_s(c, c->ranks[m], m, 0, 512); /* warm up; fills the context, too */
    for (c->p = 0; c->p <= N_PREFILL && rc == OK; c->p++) {
        rc = measure_open(&c->measure[c->p], N_MODES + 1, (int)b->o.rounds);
        if (rc == OK)
            rc = measure_compare(c->measure[c->p], N_MODES + 1, &rounds, trial, c);
    }
    for (int m = 0; m < N_MODES && rc == OK; m++)
        for (int p = 0; p <= N_PREFILL && rc == OK; p++)
            rc = report(b, c, m, p, arch, tag);
    comparison_close(c);
    return rc;
}
