/* roles/roles.h - prompt machines and token machines, each a process with an engine of its own.
 *
 * The caller's process has the front: requests, and the choice of a prompt machine and a token
 * machine for each, by a router of cluster/router.h. The token machine reserves memory, the prompt
 * machine computes the prompt and the first token, keys and values go from the one to the other by
 * a transport of cluster/transport.h, and the token machine goes on (serve/handoff.h). A request of
 * one new token is the prompt machine's alone.
 * A mixed machine computes both of its requests. Machines move to the mixed pool and back by the
 * rules of cluster/pools.h. A request stays on its prompt machine where it would close a circle of
 * machines that wait for each other's memory.
 * A machine that dies or stops is named within a second, by a warning, and is started again. What
 * it had of requests is computed again by whatever machines there are, also of another kind: the
 * prompt and the tokens that the client has, as where a request was preempted, so that it gets each
 * token once, and with `deterministic` those it would have got anyway. Requests of which too many
 * attempts failed end with SERVE_ERROR; when no machine is left, all do, and serve_step() returns
 * ERR_STATE: the engine can then only be closed.
 * Paper: Splitwise IV.   Threads: as of serve/serve.h. */
#ifndef ROLES_ROLES_H
#define ROLES_ROLES_H

#include "base/opt.h"
#include "serve/serve.h"

struct roles_opts {
    char *roles;     /* "prompt=1,token=1" (roles/spec.h); NULL: no roles, one engine */
    char *transport; /* a name of cluster_transports */
    char *router;    /* a name of cluster_routers */
    int transfer;    /* enum cluster_transfer_mode */
    int64_t serial_below_tok;
    bool checksums;
    int64_t restarts;                  /* of each machine, within ten minutes */
    int64_t attempts;                  /* at each request */
    double link_gbps, link_latency_ms; /* an emulated link; 0: as fast as it goes */
    /* Machines on other hosts, or started by hand: where the front waits for them; or, of such a
     * machine, its kind and where the front is. HOST:PORT. Under mpirun none of these is needed. */
    char *machines, *front;
    char *key_file; /* the key of both; NULL: only within this host */
    int role;
    int64_t prompt_threshold_tok,
        token_threshold_seqs; /* 0: none, and no machine moves */
};
enum { ROLES_AS_FRONT, ROLES_AS_PROMPT, ROLES_AS_TOKEN }; /* role */
extern const struct opt_row roles_opt_table[];
#define ROLES_MEASURED (-1) /* serial_below_tok: measured at start */

/* Start the machines, wait until they are ready, and open an engine in front of them. Each gets
 * as many CPUs of the budget as its kind has threads; those without divide the rest in equal parts.
 * With fewer CPUs all run on all, unpinned. Call it before other threads hold locks: it forks.
 * ERR_ARG, ERR_NOTFOUND: an option is wrong. ERR_STATE: a machine could not start; it says why. */
MUST int roles_open(struct serve **out, const struct serve_opts *engine,
                    const struct roles_opts *o);
/* The same, with machines whose steps take a given time (serve/serve.h). `pace` is lent until it is
 * closed. */
MUST int roles_open_paced(struct serve **out, const struct serve_opts *engine,
                          const struct roles_opts *o, const struct serve_pace *pace);

/* Whether this process is to be a machine: by its role, or by its rank under mpirun. */
bool roles_is_machine(const struct roles_opts *o);
/* Be one, until the front closes. ERR_ARG, ERR_NOTFOUND, ERR_UNSUPPORTED: an option is wrong.
 * ERR_IO: the front cannot be reached. Errors of the engine. */
MUST int roles_machine_serve(const struct serve_opts *engine, const struct roles_opts *o);

/* How keys and values of requests that are submitted from now on leave prompt machines: prompts of
 * fewer tokens than serial_below_tok when they are computed, others layer by layer; over an
 * emulated link of this speed, 0: as fast as it goes. While no request runs.
 * ERR_STATE: *s has no machines. */
struct roles_link {
    int64_t serial_below_tok;
    double gbps, latency_ms;
};
MUST int roles_link_set(struct serve *s, const struct roles_link *l);

#endif
