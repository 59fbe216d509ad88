/* experiments/study/support/agent_machine.h - agents on a simulated CPU machine whose memory for
 * keys and values is short: their turns go through the engine's serving loop and allocators, in
 * virtual time. Agents work all the time: one that ends a session begins the next. Each has its
 * own draws, the same under every policy.   Threads: a run has one owner. */
#ifndef STUDY_AGENT_MACHINE_H
#define STUDY_AGENT_MACHINE_H

#include "experiments/study/support/agent_session.h"

#define STUDY_AGENTS_MAX 512

/* How memory is divided: those from LRU on are paged, share blocks and give up idle ones by the
 * policy of kv/evict/ of that name. lru_again is lru with other draws. */
#define STUDY_AGENTS_POLICIES                                                            \
    "static|s3|odma|odma_session|paged|lru|lru_again|lru_ended|expected_return|oracle"
enum { STUDY_AGENTS_ODMA_SESSION = 3, STUDY_AGENTS_LRU = 5, STUDY_AGENTS_LRU_AGAIN };

struct study_agents_opts {
    struct study_agent_opts sessions;
    int policy; /* of STUDY_AGENTS_POLICIES */
    int64_t n_agents, memory_tok, seed;
    double hours; /* of simulated time, of which a fifth is not counted */
    double ttft_ms, tpot_ms, cpu_gbps, cpu_tflops;
    double sigma; /* errors of predicted lengths */
};

struct study_agents_result {
    double attained_frac;                 /* turns and calls within both objectives */
    double sessions_per_h, goodput_per_h; /* by turns, and by those within both */
    double ttft_first_p50_ms, ttft_later_p50_ms, ttft_later_p95_ms; /* NaN: none ended */
    double recomputed_frac; /* prompt tokens that are not new / all; NaN: none */
    double used_frac,
        kept_frac; /* of memory: by running turns, by sessions between turns */
};

/* Errors of the loop and its parts, as where a request can never have memory. */
MUST int study_agents_run(struct study_agents_result *out,
                          const struct study_agents_opts *o);

#endif
