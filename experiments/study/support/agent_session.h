/* experiments/study/support/agent_session.h - sessions of agents, drawn at random: turns, what each
 * adds to the context, and what comes before it: a tool that takes a time, or parallel calls that
 * share the context. Times and lengths are lognormal; docs/agent-sessions.md says which defaults
 * fit public statistics. The same draws follow from the same stream, whenever they are taken.
 * Threads: a session has one owner. */
#ifndef STUDY_AGENT_SESSION_H
#define STUDY_AGENT_SESSION_H

#include "base/rng.h"
#include "experiments/frame/frame.h"

#define STUDY_FORKS_MAX 8

/* A lognormal number. */
#define STUDY_DRAWN(X, name, median, sigma, unit_, text)                                 \
    X(F64, name, median, text ", median.", .unit = unit_, .min = 0, .max = 1e6)          \
    X(F64, name##_sigma, sigma, "Standard deviation of its logarithm.", .min = 0,        \
      .max = 5)
#define OPTIONS_AGENT(X)                                                                 \
    STUDY_DRAWN(X, pause, "5.2", "1.18", "s", "Time of tools between two turns")         \
    X(F64, pause_between, "0.5", "Share of that variance between sessions, not within.", \
      .min = 0, .max = 1)                                                                \
    STUDY_DRAWN(X, turns, "33", "0.5", "", "Turns of a session")                         \
    X(INT, system_tok, "8192", "System prompt and tools, the same for all.",             \
      .unit = "tok", .min = 64, .max = 1 << 20)                                          \
    STUDY_DRAWN(X, first, "4096", "0.5", "tok", "A session's first input")               \
    STUDY_DRAWN(X, add, "886", "1.2", "tok", "Results of tools that a turn adds")        \
    STUDY_DRAWN(X, answer, "184", "1.27", "tok", "Answer of a turn")                     \
    X(F64, fork_frac, "0.1",                                                             \
      "Turns before which parallel calls run in place of a tool. Each continues the "    \
      "session with an input and an answer of its own; the answers come back.",          \
      .min = 0, .max = 1)                                                                \
    X(INT, forks, "3", "Their number.", .min = 1, .max = STUDY_FORKS_MAX)                \
    X(INT, max_tok, "131072", "Longest context; a session ends before it.",              \
      .unit = "tok", .min = 1024, .max = 1 << 20)

struct study_agent_opts {
    OPTIONS_AGENT(FRAME_OPTION)
};
/* Those of the options `o` of a study that has them. */
#define STUDY_AGENT_COPY(kind, name, ...) .name = o->name,
#define STUDY_AGENT_OPTS                                                                 \
    {                                                                                    \
        OPTIONS_AGENT(STUDY_AGENT_COPY)                                                  \
    }

struct study_agent_session {
    struct rng rng;
    double slow; /* the logarithm of its tools' slowness */
    int64_t n_turns, number, ctx_tok;
    /* The next turn, and what comes before it: tools, or parallel calls. */
    int64_t add_tok, out_tok, fork_add[STUDY_FORKS_MAX], fork_out[STUDY_FORKS_MAX];
    double pause_s;
    int n_forks;
};

/* The first turn of a new session; the caller has opened s->rng. */
void study_agent_begin(const struct study_agent_opts *o, struct study_agent_session *s);
/* The turn after this one. false: this was the last; ctx_tok are the session's tokens. */
bool study_agent_next(const struct study_agent_opts *o, struct study_agent_session *s);

#endif
