/* The cost for ranks to add up a vector that each has: twice a layer where a model is
 * split. Every algorithm, for messages from one hidden state to a prompt's. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "characterize/trial.h"
#include "par/coll.h"

/* Bytes: one number, small and large hidden states, a prompt of hundreds of tokens. */
static const size_t sizes[] = {4, 4096, 32768, 1 << 20};
#define N_SIZES     (int)(sizeof(sizes) / sizeof(sizes[0]))
#define MAX_FLOATS  ((size_t)1 << 18)
#define TRIAL_BYTES (4 << 20) /* of messages a trial */
#define CALLS_MAX   500
#define SPIN_NS     50000 /* longer than any of these takes where each rank has a CPU */

struct job {
    const struct par_coll *coll;
    void *mem;
    size_t mem_bytes;
    struct par_rank *ranks;
    float *x; /* [rank, MAX_FLOATS], zero: sums stay finite however often they are made */
    size_t n_floats;
    int n_ranks, n_calls, rc;
    double seconds;
    struct par_team *team;
};

static void reduce(void *arg, struct par_self *self)
{
    struct job *j = arg;
    float *x = j->x + (size_t)self->id * MAX_FLOATS;
    uint64_t start_ns;
    int rc = OK;

    par_barrier(self);
    start_ns = clock_ns();
    for (int i = 0; i < j->n_calls && rc == OK; i++)
        rc = par_allreduce(&j->ranks[self->id], j->coll, x, j->n_floats);
    if (self->id == 0) {
        j->seconds = (double)(clock_ns() - start_ns) * 1e-9;
        j->rc = rc;
    }
}

static void name_of(char *name, size_t n, const struct job *j)
{
    snprintf(name, n, "allreduce_ns_%s_%zuB", j->coll->name, j->n_floats * 4);
}

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    (void)i;
    par_team_run(j->team, j->n_ranks, reduce, j);
    t->seconds = j->seconds;
    return j->rc;
}

MUST static int measure(struct probe_ctx *c, struct job *j, double budget_s)
{
    struct measure *m = NULL;
    char name[48];
    int rc;

    j->n_calls = (int)(TRIAL_BYTES / (j->n_floats * 4));
    j->n_calls = j->n_calls > CALLS_MAX ? CALLS_MAX : j->n_calls;
    name_of(name, sizeof(name), j);
    rc = probe_measure(&m, 1, budget_s, trial, j);
    if (rc == OK)
        rc = probe_report_ns(c, name, j->n_ranks, m, 0, j->n_calls);
    measure_close(&m);
    return rc;
}

MUST static int open(struct job *j)
{
    int rc = OK;

    j->mem_bytes = par_comm_bytes(j->n_ranks, MAX_FLOATS);
    j->mem = mem_map(MEM_HARNESS, j->mem_bytes, MEM_NODE_ANY);
    j->ranks = mem_new(MEM_HARNESS, (size_t)j->n_ranks, sizeof(*j->ranks));
    j->x = mem_new(MEM_HARNESS, (size_t)j->n_ranks * MAX_FLOATS, sizeof(*j->x));
    if (!j->mem || !j->ranks || !j->x)
        return ERR_NOMEM;
    rc = par_comm_init(j->mem, j->n_ranks, MAX_FLOATS);
    for (int r = 0; r < j->n_ranks && rc == OK; r++)
        rc = par_comm_join(&j->ranks[r], j->mem, r, SPIN_NS);
    return rc;
}

static int run(struct probe_ctx *c)
{
    struct job j = {.n_ranks = c->n_threads_max, .team = c->team};
    int n = 0, rc;

    if (j.n_ranks < 2)
        return probe_report_none(c, "allreduce_ns", "ns", 1,
                                 "one CPU only: nothing to add up");
    j.n_ranks = j.n_ranks > PAR_RANKS_MAX ? PAR_RANKS_MAX : j.n_ranks;
    rc = open(&j);
    if (rc == ERR_NOMEM)
        rc = probe_report_none(c, "allreduce_ns", "ns", j.n_ranks, err_msg());
    else
        while (par_colls[n])
            n++;
    for (int i = 0; i < n && rc == OK; i++) {
        j.coll = par_colls[i];
        for (int k = 0; k < N_SIZES && rc == OK; k++) {
            j.n_floats = sizes[k] / 4;
            rc = measure(c, &j, c->budget_s / (n * N_SIZES));
        }
    }
    mem_free(j.x);
    mem_free(j.ranks);
    if (j.mem)
        mem_unmap(MEM_HARNESS, j.mem, j.mem_bytes);
    return rc;
}

const struct probe probe_allreduce = {
    .name = "allreduce",
    .help = "all-reduce among the threads by algorithm and size of the message",
    .full = true,
    .run = run,
};
