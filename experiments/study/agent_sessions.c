/* Sessions of agents on a simulated CPU machine: turns with tools between them, a prefix that
 * grows, parallel calls that share it, and memory for keys and values that is short. Which way to
 * divide it serves the most sessions within the objectives? */
#include <math.h>
#include <string.h>

#include "experiments/frame/frame.h"
#include "experiments/study/support/agent_machine.h"

#define PRECISION 20 /* the number of agents is sought to a 20th of it */

#define OPTIONS(X)                                                                       \
    X(ENUM, policy, "lru",                                                               \
      "Memory. static, s3, odma, paged: each turn by itself. odma_session: for the "     \
      "predicted session, which holds it. Others: paged, shared and reused, and one of " \
      "engine/kv/evict/ says what is given up. lru_again: lru with other draws.",        \
      .values = STUDY_AGENTS_POLICIES)                                                   \
    OPTIONS_AGENT(X)                                                                     \
    X(INT, memory_tok, "1048576", "Memory for keys and values.", .unit = "tok",          \
      .min = 2048, .max = 1 << 26)                                                       \
    X(INT, agents, "16", "Agents whose latencies and memory are reported.", .min = 1,    \
      .max = STUDY_AGENTS_MAX)                                                           \
    X(F64, hours, "2.5", "Simulated time, of which a fifth is not counted.",             \
      .unit = "h", .min = 1e-2, .max = 1000)                                             \
    X(F64, ttft_ms, "10000", "Objective: time to the first token of a turn.",            \
      .unit = "ms", .min = 1, .max = 1e9)                                                \
    X(F64, tpot_ms, "200", "Objective: time per later token.", .unit = "ms", .min = 1,   \
      .max = 1e9)                                                                        \
    X(F64, target_frac, "0.9", "Share of turns within both.", .min = 0, .max = 1)        \
    X(F64, cpu_gbps, "1000", "Bandwidth, as it is reached.", .unit = "GB/s", .min = 1,   \
      .max = 1e9)                                                                        \
    X(F64, cpu_tflops, "100", "Its arithmetic, as it is reached.", .unit = "TFLOP/s",    \
      .min = 1e-3, .max = 1e9)                                                           \
    X(F64, sigma, "0.3", "Errors of predicted lengths, as in odma_replay.", .min = 0,    \
      .max = 10)                                                                         \
    X(INT, seed, "1", "Seed of all that is random.", .min = 1, .max = 1 << 30)

#define RESULTS(X)                                                                       \
    X(goodput_per_h, "/h", HIGHER,                                                       \
      "turns within both objectives per hour / turns of a mean session: the highest of " \
      "all numbers of agents with which target_frac of the turns are within both")       \
    X(over_lru, "", HIGHER | SOME, "goodput_per_h / that of lru with the same seed")     \
    X(goodput_agents, "", HIGHER, "the number of agents; 0: one is too many")            \
    X(attained_frac, "", HIGHER, "with `agents`: turns and calls within both")           \
    X(sessions_per_h, "/h", HIGHER, "with `agents`: turns per hour / of a mean session") \
    X(ttft_first_p50_ms, "ms", LOWER | SOME, "with `agents`: first turns, median TTFT")  \
    X(ttft_later_p50_ms, "ms", LOWER | SOME, "with `agents`: others and calls, median")  \
    X(ttft_later_p95_ms, "ms", LOWER | SOME, "with `agents`: the same, 95th percentile") \
    X(recomputed_frac, "", LOWER | SOME, "with `agents`: prompt tokens not new / all")   \
    X(used_frac, "", HIGHER, "with `agents`: memory with tokens of running turns")       \
    X(kept_frac, "", 0, "with `agents`: memory with tokens of sessions between turns")

FRAME_TYPES;

struct agent_sessions {
    FRAME_CELL;
};

static int simulate(struct study_agents_result *r, const struct opts *o, int policy,
                    int64_t n_agents)
{
    return study_agents_run(r, &(struct study_agents_opts){.sessions = STUDY_AGENT_OPTS,
                                                           .policy = policy,
                                                           .n_agents = n_agents,
                                                           .memory_tok = o->memory_tok,
                                                           .seed = o->seed,
                                                           .hours = o->hours,
                                                           .ttft_ms = o->ttft_ms,
                                                           .tpot_ms = o->tpot_ms,
                                                           .cpu_gbps = o->cpu_gbps,
                                                           .cpu_tflops = o->cpu_tflops,
                                                           .sigma = o->sigma});
}

/* The highest with a number of agents that meets the objectives: by steps of a fifth to the first
 * that does not, and then between that and the one before. */
static int find_goodput(const struct opts *o, int policy, double *goodput,
                        int64_t *n_agents)
{
    int64_t lo = 0, hi = STUDY_AGENTS_MAX + 1, n = 1;

    *goodput = 0;
    *n_agents = 0;
    while (hi - lo > 1 + lo / PRECISION) {
        struct study_agents_result r;

        TRY(simulate(&r, o, policy, n));
        *(r.attained_frac < o->target_frac ? &hi : &lo) = n;
        if (lo == n && r.goodput_per_h > *goodput)
            *goodput = r.goodput_per_h, *n_agents = n;
        n = hi > STUDY_AGENTS_MAX && lo + 1 + lo / 5 < STUDY_AGENTS_MAX ? lo + 1 + lo / 5
                                                                        : (lo + hi) / 2;
    }
    return OK;
}

static void report(struct agent_sessions *c, const struct study_agents_result *r)
{
    static const char none[] = "none ended in the time that is counted";

    frame_set(c->f, &c->r->ttft_first_p50_ms, r->ttft_first_p50_ms, none);
    frame_set(c->f, &c->r->ttft_later_p50_ms, r->ttft_later_p50_ms, none);
    frame_set(c->f, &c->r->ttft_later_p95_ms, r->ttft_later_p95_ms, none);
    frame_set(c->f, &c->r->recomputed_frac, r->recomputed_frac,
              "no prompt was computed in the time that is counted");
    c->r->attained_frac = r->attained_frac;
    c->r->sessions_per_h = r->sessions_per_h;
    c->r->used_frac = r->used_frac;
    c->r->kept_frac = r->kept_frac;
}

/* That of lru from the latest cell, for those that differ in their policy alone. */
struct latest_lru {
    struct opts o;
    double goodput;
    bool is_set;
};

static int lru_goodput(struct agent_sessions *c, double *out)
{
    struct latest_lru *k = study_kept(c->out), now = {.o = *c->o, .is_set = true};
    int64_t n_agents;

    now.o.policy = STUDY_AGENTS_LRU;
    if (c->o->policy == STUDY_AGENTS_LRU)
        now.goodput = c->r->goodput_per_h;
    else if (k->is_set && memcmp(&k->o, &now.o, sizeof(now.o)) == 0)
        now.goodput = k->goodput;
    else
        TRY(find_goodput(c->o, STUDY_AGENTS_LRU, &now.goodput, &n_agents));
    *k = now;
    *out = k->goodput;
    return OK;
}

static int agent_sessions_run(struct agent_sessions *c)
{
    const struct opts *o = c->o;
    struct study_agents_result here;
    int64_t n_agents;
    double lru;

    if (o->memory_tok < o->max_tok + o->system_tok || o->max_tok < 2 * o->system_tok)
        return err_set(ERR_ARG, "agents: expected memory_tok >= max_tok + system_tok and "
                                "max_tok >= 2 system_tok");
    TRY(simulate(&here, o, o->policy, o->agents));
    report(c, &here);
    study_progress(c->out, 0.2, "the most agents");
    TRY(find_goodput(o, o->policy, &c->r->goodput_per_h, &n_agents));
    c->r->goodput_agents = (double)n_agents;
    TRY(lru_goodput(c, &lru));
    frame_set(c->f, &c->r->over_lru, lru > 0 ? c->r->goodput_per_h / lru : NAN,
              "lru meets the objectives with no agent");
    return OK;
}

STUDY(agent_sessions, "sessions of agents with tools, and memory that is short",
      .kept_bytes = sizeof(struct latest_lru));
