/* tests/cluster/world.h - small clusters for tests: invented machines with simple times, requests
 * from a list or drawn, and what must hold after each event. Include it once in a test. */
#ifndef TESTS_CLUSTER_WORLD_H
#define TESTS_CLUSTER_WORLD_H

#include <math.h>

#include "cluster/cluster.h"
#include "tests/support/test.h"

#define WORLD_MACHINES 8
#define MS             INT64_C(1000000)

/* A prompt takes 1 ms and 10 us a token, a step of decode 2 ms and 50 us a sequence. */
static double world_prompt_ms(const struct cluster_perf *p, double n_tok, double sum_sq)
{
    (void)p, (void)sum_sq;
    return 1 + 0.01 * n_tok;
}

static double world_token_ms(const struct cluster_perf *p, double batch, double ctx_tok)
{
    (void)p, (void)ctx_tok;
    return 2 + 0.05 * batch;
}

static const struct cluster_perf_kind world_kind = {
    .name = "test", .prompt_ms = world_prompt_ms, .token_ms = world_token_ms};
static const struct cluster_perf world_perf = {.kind = &world_kind};

struct world {
    struct cluster_opts o;
    struct cluster_machine_opts m[WORLD_MACHINES];
    struct cluster_stat stat;
    /* requests: drawn */
    struct rng rng;
    int64_t n_left, t_ns, mean_gap_ns, max_prompt, max_output;
    /* what was seen; the first thing that is wrong */
    char wrong[160];
    int64_t n_done, n_wrong, max_paused, n_tok, n_moves, sum_latency_ns;
    double max_wait_ns;
};

#define WRONG(w, ...)                                                                    \
    do {                                                                                 \
        if ((w)->n_wrong++ == 0)                                                         \
            snprintf((w)->wrong, sizeof((w)->wrong), __VA_ARGS__);                       \
    } while (0)

static bool world_next(void *ctx, struct cluster_arrival *a)
{
    struct world *w = ctx;

    if (w->n_left-- <= 0)
        return false;
    w->t_ns += (int64_t)(rng_exp(&w->rng) * (double)w->mean_gap_ns);
    *a = (struct cluster_arrival){
        w->t_ns, 1 + (int64_t)rng_below(&w->rng, (uint64_t)w->max_prompt),
        1 + (int64_t)rng_below(&w->rng, (uint64_t)w->max_output)};
    return true;
}

static enum cluster_pool world_opposite(enum cluster_pool kind)
{
    return kind == CLUSTER_PROMPT ? CLUSTER_TOKEN : CLUSTER_PROMPT;
}

/* Invariants 1, 2 and 12: the shortest queue of the pool; the opposite pool only where the own one
 * is above its threshold; where all are, the shorter queue. */
static void world_routed(void *ctx, const struct cluster_decision *d)
{
    struct world *w = ctx;
    const struct cluster_choice *c = d->choice;

    for (int i = 0; i < c->n; i++)
        if (c->loads[i] < c->loads[d->chosen])
            WRONG(w, "jsq: load %d, but %d has %d", (int)c->loads[d->chosen], i,
                  (int)c->loads[i]);
    if (d->pool == world_opposite(d->kind) && d->own_load >= 0 &&
        d->own_load <= d->threshold)
        WRONG(w, "opposite: own load %d is not above %d", (int)d->own_load,
              (int)d->threshold);
    /* The opposite pool is empty then. */
    if (d->pool != world_opposite(d->kind) && d->own_load > d->threshold &&
        d->mixed_load > d->threshold &&
        c->loads[d->chosen] > fmin((double)d->own_load, (double)d->mixed_load))
        WRONG(w, "overload: load %d, own %d, mixed %d", (int)c->loads[d->chosen],
              (int)d->own_load, (int)d->mixed_load);
}

/* 3, 4 and 6. */
static void world_after(void *ctx, int i, const struct cluster_machine_state *s)
{
    struct world *w = ctx;

    if ((unsigned)s->pool >= CLUSTER_N_POOLS)
        WRONG(w, "partition: machine %d is in no pool", i);
    if (s->pool == CLUSTER_MIXED && s->home != CLUSTER_MIXED && w->o.report_ns == 0 &&
        s->n_tasks[world_opposite(s->home)] == 0 &&
        (!w->o.quirks.return_when_idle || s->n_tasks[s->home] == 0))
        WRONG(w, "return: machine %d stays in the mixed pool", i);
    if (s->pool != CLUSTER_MIXED && s->pool != s->home)
        WRONG(w, "identity: machine %d returned to the other pool", i);
    if (s->kv_used_tok > w->m[i].kv_tok || s->kv_used_tok < 0)
        WRONG(w, "memory: machine %d has %d of %d tokens", i, (int)s->kv_used_tok,
              (int)w->m[i].kv_tok);
}

/* 7. */
static void world_step(void *ctx, const struct cluster_step *s)
{
    struct world *w = ctx;

    if (s->n_prompts > 1 && s->n_prompt_tok > 2048)
        WRONG(w, "batch: %d prompts of %d tokens", (int)s->n_prompts,
              (int)s->n_prompt_tok);
    if (s->end_ns <= s->start_ns)
        WRONG(w, "clock: a step of no time");
}

/* 5, 8 and 9. */
static void world_moved(void *ctx, const struct cluster_move *m)
{
    struct world *w = ctx;

    w->n_moves++;
    if (m->kv_bytes != m->n_tok * w->o.kv_bytes_per_tok)
        WRONG(w, "bytes: %d of %d tokens arrived", (int)m->kv_bytes, (int)m->n_tok);
}

static void world_done(void *ctx, const struct cluster_done *d)
{
    struct world *w = ctx;
    int sent = d->n_output > 1 && d->prompt_machine != d->token_machine;

    w->n_done++;
    w->n_tok += d->n_tokens;
    w->sum_latency_ns += d->last_ns - d->arrival_ns;
    w->max_wait_ns = fmax(w->max_wait_ns, (double)(d->first_ns - d->arrival_ns));
    w->max_paused = d->n_paused > w->max_paused ? d->n_paused : w->max_paused;
    if (d->n_tokens != d->n_output || d->n_prompts != 1 || d->n_transfers != sent)
        WRONG(w, "conservation: request %d: %d of %d tokens, %d prompts, %d transfers",
              (int)d->number, (int)d->n_tokens, (int)d->n_output, (int)d->n_prompts,
              (int)d->n_transfers);
    if (d->n_paused > 4)
        WRONG(w, "paused: request %d %d times", (int)d->number, (int)d->n_paused);
}

/* n_prompt prompt machines, n_token token machines, n_mixed mixed ones. */
static void world_init(struct world *w, int n_prompt, int n_token, int n_mixed,
                       uint64_t seed)
{
    *w = (struct world){
        .n_left = 300, .mean_gap_ns = 4 * MS, .max_prompt = 1500, .max_output = 40};
    rng_init(&w->rng, seed, "requests");
    assert_ok(cluster_opts_init(&w->o));
    for (int i = 0; i < n_prompt + n_token + n_mixed; i++)
        w->m[i] = (struct cluster_machine_opts){.home = i < n_prompt ? CLUSTER_PROMPT
                                                        : i < n_prompt + n_token
                                                            ? CLUSTER_TOKEN
                                                            : CLUSTER_MIXED,
                                                .perf = &world_perf,
                                                .kv_tok = 20000,
                                                .link_gbps = 1,
                                                .link_alpha_ns = 1e5};
    w->o.machines = w->m;
    w->o.n_machines = n_prompt + n_token + n_mixed;
    w->o.n_layers = 4;
    w->o.kv_bytes_per_tok = 4000;
    w->o.seed = seed;
    w->o.next = world_next;
    w->o.next_ctx = w;
    w->o.observer = (struct cluster_observer){w,           world_routed, world_step,
                                              world_moved, world_done,   world_after};
}

static inline void world_run(struct world *w)
{
    int rc = cluster_run(&w->stat, &w->o);

    if (w->n_wrong > 0) /* it says more than what follows from it */
        return;
    assert_ok(rc);
    if (w->stat.kv_used_tok != 0)
        WRONG(w, "memory: %d tokens are left at the end", (int)w->stat.kv_used_tok);
    if (w->stat.n_done + w->stat.n_refused != w->stat.n_arrived)
        WRONG(w, "conservation: %d requests are lost",
              (int)(w->stat.n_arrived - w->stat.n_done));
}

#endif
