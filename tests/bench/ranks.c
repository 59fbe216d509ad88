/* Ranks of one thread each, as threads and as processes, beside one rank of all threads:
 * the same steps, each between two of the one rank's. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "kv/kv.h"
#include "model/procs.h"
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

struct contest {
    struct packing own[N_MODES];
    struct model_phase *one;            /* of own[THREADS] */
    struct model_phase *ranks[N_MODES]; /* of own[the same] */
    float *logits;
    int32_t ids[512];
    /* Time of ranks over that of the one rank, in the same round: [N_PREFILL] is
     * decode's. */
    double frac[N_MODES][N_PREFILL + 1][BENCH_ROUNDS_MAX];
};

static int packing_open(struct packing *p, const char *path, struct par_team *team,
                        const struct model_opts *o)
{
    struct format_file *f = NULL;
    struct kv_shape shape;
    int rc = format_open(&f, path);

    if (rc == OK)
        rc = model_open(&p->model, f, team, o);
    format_close(&f);
    if (rc != OK)
        return rc;
    model_kv_shape(p->model, &shape);
    rc = kv_pool_open_shared(&p->pool, NULL, &shape,
                             kv_token_bytes(&shape) * MAX_TOK + (1 << 21), MAX_TOK);
    return rc == OK ? kv_reserve(p->pool, MAX_TOK, &p->kv) : rc;
}

static void packing_close(struct packing *p)
{
    model_procs_close(p->model);
    if (p->pool)
        kv_release(p->pool, &p->kv);
    kv_pool_close(&p->pool);
}

static int open_processes(struct bench *b, struct contest *c, const char *path,
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

static int contest_open(struct bench *b, struct contest *c, const char *path,
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

static void contest_close(struct contest *c)
{
    for (int m = 0; m < N_MODES; m++)
        packing_close(&c->own[m]);
    for (int m = 0; m < N_MODES; m++)
        model_phase_close(&c->ranks[m]);
    model_phase_close(&c->one);
    for (int m = 0; m < N_MODES; m++)
        model_close(&c->own[m].model);
    mem_free(c->logits);
    mem_free(c);
}

static double step_s(struct contest *c, struct model_phase *phase, int mode, int64_t pos0,
                     int64_t n)
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

/* What else runs on the machine weighs on both: the mean of the one rank's two steps. */
static double frac_of(struct contest *c, int mode, int64_t pos0, int64_t n)
{
    double before = step_s(c, c->one, THREADS, pos0, n);
    double ranks = step_s(c, c->ranks[mode], mode, pos0, n);

    return 2 * ranks / (before + step_s(c, c->one, THREADS, pos0, n));
}

static void one_round(struct contest *c, int r)
{
    for (int p = 0; p <= N_PREFILL; p++) {
        bool decode = p == N_PREFILL;
        int64_t pos0 = decode ? BENCH_CONTEXT : 0, n = decode ? 1 : prefill_sizes[p];
        int n_frac = decode ? N_STEPS : 1;

        for (int m = 0; m < N_MODES; m++) {
            double frac[N_STEPS];

            step_s(c, c->ranks[m], m, pos0, 1); /* awake */
            for (int i = 0; i < n_frac; i++)
                frac[i] = frac_of(c, m, pos0, n);
            c->frac[m][p][r] = stats_median(frac, (size_t)n_frac);
        }
    }
}

static int report(struct bench *b, const struct contest *c, int mode, int p,
                  const char *arch, const char *tag)
{
    size_t n = (size_t)b->o.rounds;
    double frac = stats_median(c->frac[mode][p], n), mad = stats_mad(c->frac[mode][p], n);
    char what[32] = "decode", name[160];
    int rc;

    if (p < N_PREFILL)
        snprintf(what, sizeof(what), "prefill%lld", (long long)prefill_sizes[p]);
    printf(
        "%-20s %-12s %-10s %d ranks (%s) of 1 thread are %.3f times as fast as 1 of %d "
        "(+- %.1f %%)\n",
        arch, tag, what, b->n_threads, modes[mode], 1 / frac, b->n_threads,
        100 * mad / frac);
    snprintf(name, sizeof(name), "%s_ranks_%s_over_threads_%s_%s", what, modes[mode],
             arch, tag);
    rc = bench_headline(b, name, 1 / frac, "1", true);
    if (rc != OK)
        return rc;
    return bench_row(b, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:f}", "model",
                                  arch, "type", tag, "what", "ranks", "rank_mode",
                                  modes[mode], "step", what, "n_ranks", b->n_threads,
                                  "time_frac", frac, "time_frac_mad", mad));
}

int bench_ranks(struct bench *b, const char *path, const char *precision,
                const char *arch, const char *tag)
{
    struct contest *c = mem_new(MEM_TEST, 1, sizeof(*c));
    const struct model_opts o = {
        .weight_type = KERN_N_TYPES,
        .kv_type = KERN_F32,
        .precision = strcmp(precision, "relaxed") == 0 ? KERN_RELAXED : KERN_EXACT,
        .deterministic = b->o.deterministic,
        .max_step_tok = 512,
        .max_tok = MAX_TOK};
    int rc;

    if (!c)
        return ERR_NOMEM;
    rc = contest_open(b, c, path, &o);
    for (int m = 0; m < N_MODES && rc == OK; m++)
        step_s(c, c->ranks[m], m, 0, 512); /* warm up; fills the context, too */
    for (int r = 0; r < b->o.rounds && rc == OK; r++)
        one_round(c, r);
    for (int m = 0; m < N_MODES && rc == OK; m++)
        for (int p = 0; p <= N_PREFILL && rc == OK; p++)
            rc = report(b, c, m, p, arch, tag);
    contest_close(c);
    return rc;
}
