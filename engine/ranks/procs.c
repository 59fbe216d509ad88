/* The ranks of a model as processes: what they share, what each runs, and how a step is
 * published and completed. */
#include "ranks/procs.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "model/act.h"
#include "par/rank.h"
#include "step/step.h"

#define READY 1 /* the first value of `done`; steps count on from it */

/* The report of a rank, on cache lines of its own. Read the other members only after waiting
 * for `done`. */
struct report {
    struct par_flag done; /* the last step it has finished */
    int rc;
    int n_threads;
    struct par_thread_stat threads[CPU_MAX];
};

/* The part of the state that is in shared memory. */
struct control {
    struct par_flag
        go[PAR_RANKS_MAX]; /* the step that a rank is to run; written by rank 0 */
    atomic_bool closing;
    struct model_step step; /* written before `go`, and not again until all are done */
};

struct model_procs {
    struct model *m;
    struct model_procs_opts o; /* arrays: while opening only */
    int n, rank;               /* ranks; which of them this process is */

    /* Shared, all in one mapping. */
    void *mem;
    size_t mem_bytes;
    struct control *control;
    struct report *reports; /* [n] */
    struct model_chunk *chunks;
    struct kv_slot *slots;
    int32_t *ids;
    float *logits; /* [max_chunks, vocab] */
    void *comm;    /* what every wait but those of the sums can be ended by */

    /* This process's own. */
    struct par_team *team;
    int n_cpus, cpus[CPU_MAX]; /* of the team's threads */
    struct par_rank self;
    uint64_t n_published;
    struct par_ranks *children;
    atomic_bool told; /* on_fail was called */

    struct model_phase *phases[]; /* [o.n_phases] */
};

/* ---- ranks of threads ---- */

/* Thread i of the phase's rank: a label, where nothing is pinned. */
static int cpu_of(const struct model_procs *p, int f, int rank, int i)
{
    int n_threads = p->phases[f]->n_threads;

    return p->o.cpus ? p->o.cpus[f][rank * n_threads + i] : i;
}

static int thread_on(const struct model_procs *p, int cpu)
{
    int t = 0;

    while (t < p->n_cpus && p->cpus[t] != cpu)
        t++;
    return t;
}

/* A team for all phases: a thread that one of them does not use sleeps through it. */
static int number_threads(struct model_procs *p)
{
    p->n_cpus = 0;
    for (int f = 0; f < p->o.n_phases; f++) {
        const struct model_phase *ph = p->phases[f];

        for (int i = 0; i < ph->n_threads && p->rank < ph->n_ranks; i++) {
            int cpu = cpu_of(p, f, p->rank, i), t = thread_on(p, cpu);

            if (t == p->m->n_threads)
                return err_set(ERR_ARG,
                               "rank %d: more CPUs than the %d threads of the model",
                               p->rank, p->m->n_threads);
            p->cpus[t] = cpu;
            p->n_cpus += t == p->n_cpus;
        }
    }
    return OK;
}

/* The thread slots of this process's team. */
static void fill_slots(struct model_procs *p, int f)
{
    struct model_phase *ph = p->phases[f];

    ph->n_team = 0;
    for (int t = 0; t < p->n_cpus; t++)
        ph->thread_slots[t].rank = -1;
    for (int i = 0; i < ph->n_threads && p->rank < ph->n_ranks; i++) {
        int t = thread_on(p, cpu_of(p, f, p->rank, i));

        ph->thread_slots[t] = (struct model_thread_slot){p->rank, i};
        ph->n_team = t + 1 > ph->n_team ? t + 1 : ph->n_team;
    }
}

/* Prepare a rank in its process. */
static int prepare_rank(struct model_procs *p, int rank)
{
    int rc;

    p->rank = rank;
    rc = number_threads(p);
    if (rc == OK)
        rc = par_team_open(&p->team, p->cpus, p->n_cpus, p->o.cpus != NULL);
    if (rc != OK)
        return rc;
    p->m->team = p->team;
    for (int f = 0; f < p->o.n_phases; f++)
        fill_slots(p, f);
    return par_comm_join(&p->self, p->comm, rank, par_team_spin_ns(p->team));
}

/* ---- a rank's process ---- */

static void report(struct model_procs *p, int rc, uint64_t step)
{
    struct report *r = &p->reports[p->rank];

    r->rc = rc;
    r->n_threads = p->n_cpus;
    for (int i = 0; i < p->n_cpus; i++)
        par_team_stat(p->team, i, &r->threads[i]);
    par_flag_set(&p->self, &r->done, step);
}

/* Serve steps until this rank is told to end, or another one has failed. */
static int serve_steps(struct model_procs *p)
{
    struct par_flag *go = &p->control->go[p->rank];
    uint64_t step = READY;

    while (par_flag_wait(&p->self, go, step + 1) == OK) {
        step = atomic_load_explicit(&go->v, memory_order_acquire);
        report(p, model_step_run(p->m, &p->control->step), step);
    }
    return atomic_load(&p->control->closing) ? OK
                                             : err_set(ERR_STATE, "another rank aborted");
}

/* fork() leaves shared memory to be found page by page: not in a request's first step. */
static void find_pages(const struct model_procs *p)
{
    madvise(p->m->act, p->m->act_bytes, MADV_POPULATE_WRITE);
    if (p->o.pool) {
        void *kv;
        size_t bytes;

        kv_pool_memory(p->o.pool, &kv, &bytes);
        madvise(kv, bytes, MADV_POPULATE_WRITE);
    }
    for (int f = 0; f < p->o.n_phases; f++) {
        const struct model_phase *ph = p->phases[f];

        madvise(ph->act, ph->act_bytes, MADV_POPULATE_WRITE);
        if (ph->comms)
            madvise(ph->comms, ph->comms_bytes, MADV_POPULATE_WRITE);
    }
}

static int rank_main(void *arg, int rank)
{
    struct model_procs *p = arg;
    int rc;

    close_range(3, ~0u,
                0); /* files and sockets of the caller's do not belong to this process */
    rc = prepare_rank(p, rank);
    if (rc == OK) {
        find_pages(p);
        report(p, OK, READY);
        rc = serve_steps(p);
    }
    par_team_close(&p->team);
    return rc;
}

/* ---- the end of all waits ---- */

static void abort_all(struct model_procs *p)
{
    par_comm_abort(p->comm);
    for (int f = 0; f < p->o.n_phases; f++) {
        struct model_phase *ph = p->phases[f];

        for (int t = 0; t < ph->n_threads && ph->n_ranks > 1; t++)
            par_comm_abort(ph->ranks[0].endpoints[t].comm);
    }
}

/* Called again and again by the thread that watches the children. */
static void abort_comms(void *mem)
{
    struct model_procs *p = mem;

    abort_all(p);
    if (p->o.on_fail && !atomic_load(&p->control->closing) &&
        !atomic_exchange(&p->told, true))
        p->o.on_fail(p->o.ctx);
}

/* ---- a step, by rank 0 ---- */

static void share_step(struct model_procs *p, const struct model_step *s)
{
    int32_t *ids = p->ids;

    for (int i = 0; i < s->n_chunks; i++) {
        const struct model_chunk *c = &s->chunks[i];

        p->slots[i] = *c->kv;
        memcpy(ids, c->ids, (size_t)c->n_tok * sizeof(*ids));
        p->chunks[i] = *c;
        p->chunks[i].kv = &p->slots[i];
        p->chunks[i].ids = ids;
        ids += c->n_tok;
    }
    p->control->step = *s;
    p->control->step.chunks = p->chunks;
    p->control->step.logits = p->logits;
}

/* The error of the watcher, which names the failed rank, or else `rc`. */
static int why(const struct model_procs *p, int rc)
{
    int named = par_ranks_check(p->children);

    return named != OK ? named : rc;
}

static int wait_for(struct model_procs *p, uint64_t step, int n_ranks)
{
    for (int r = 1; r < n_ranks; r++) {
        int rc = par_flag_wait(&p->self, &p->reports[r].done, step);

        if (rc == OK)
            rc = p->reports[r].rc;
        if (rc != OK)
            return why(p, err_set(rc, "rank %d of %d aborted", r, n_ranks));
    }
    return OK;
}

int model_procs_step(struct model_procs *p, const struct model_step *s)
{
    int rc = par_ranks_check(p->children), n = s->phase->n_ranks;

    if (rc == OK && s->n_chunks > p->o.max_chunks)
        rc = err_set(ERR_ARG, "a step of %d chunks, at most %lld", s->n_chunks,
                     (long long)p->o.max_chunks);
    if (rc != OK)
        return rc;
    share_step(p, s);
    p->n_published++;
    for (int r = 1; r < n; r++)
        par_flag_set(&p->self, &p->control->go[r], p->n_published);
    rc = model_step_run(p->m, &p->control->step);
    report(p, rc, p->n_published);
    rc = rc == OK ? wait_for(p, p->n_published, n) : why(p, rc);
    model_rank_waited(&p->self, p->team, 0);
    for (int i = 0; i < p->m->c.n_layers && rc == OK && s->phase->stored; i++)
        s->phase->stored(s->phase->stored_ctx, i);
    if (rc == OK && s->n_logits > 0) /* else there may be no room for any */
        memcpy(s->logits, p->logits,
               (size_t)(s->n_logits * p->m->c.vocab) * sizeof(float));
    return rc;
}

/* ---- opening and closing ---- */

static int check_opts(const struct model *m, const struct model_procs_opts *o)
{
    if (!m->shared)
        return err_set(ERR_STATE, "the model was not opened for ranks as processes");
    if (m->procs)
        return err_set(ERR_STATE, "the ranks have their processes already");
    if (o->n_phases < 1 || o->max_chunks < 1)
        return err_set(ERR_ARG, "ranks for %d phases and steps of %lld chunks",
                       o->n_phases, (long long)o->max_chunks);
    return OK;
}

static void place(struct model_procs *p, struct model_arena *a)
{
    const struct model *m = p->m;
    int64_t most = p->o.max_chunks;

    p->control = model_take(a, 1, sizeof(*p->control));
    p->reports = model_take(a, p->n, sizeof(*p->reports));
    p->chunks = model_take(a, most, sizeof(*p->chunks));
    p->slots = model_take(a, most, sizeof(*p->slots));
    p->ids = model_take(a, m->max_step_tok, sizeof(*p->ids));
    p->logits = model_take(a, most * m->c.vocab, sizeof(*p->logits));
    p->comm = model_take(a, 1, par_comm_bytes(p->n, 1));
}

static int open_shared(struct model_procs *p)
{
    struct model_arena a = {0};

    place(p, &a);
    p->mem_bytes = a.used;
    p->mem = mem_map_shared(MEM_ACTIVATIONS, p->mem_bytes);
    if (!p->mem)
        return ERR_NOMEM;
    a = (struct model_arena){.base = p->mem};
    place(p, &a);
    return par_comm_init(p->comm, p->n, 1);
}

/* Make the weights read-only, so that pages shared by fork() stay shared. */
static int protect_weights(const struct model *m)
{
    if (mprotect(m->weights, m->weights_bytes, PROT_READ) != 0)
        return err_set(ERR_IO, "cannot make the weights read-only: %m");
    return OK;
}

static int start(struct model_procs *p)
{
    const struct par_ranks_opts o = {.n_ranks = p->n,
                                     .first = 1,
                                     .fn = rank_main,
                                     .arg = p,
                                     .abort = abort_comms,
                                     .mem = p};
    int rc = open_shared(p);

    if (rc == OK)
        rc = protect_weights(p->m);
    if (rc == OK)
        rc = par_ranks_open(&p->children, &o);
    if (rc == OK)
        rc = prepare_rank(p, 0);
    p->n_published = READY;
    if (rc == OK)
        rc = wait_for(p, READY, p->n);
    p->self.wait_ns = 0; /* it belongs to no step */
    return rc;
}

int model_procs_open(struct model *m, const struct model_procs_opts *o)
{
    struct model_procs *p;
    int rc = check_opts(m, o);

    if (rc != OK)
        return rc;
    p = mem_new(MEM_OTHER, 1, sizeof(*p) + (size_t)o->n_phases * sizeof(p->phases[0]));
    if (!p)
        return ERR_NOMEM;
    p->m = m;
    p->o = *o;
    p->n = 1;
    m->procs = p;
    m->team = NULL; /* its owner has closed it */
    for (int f = 0; f < o->n_phases; f++) {
        p->phases[f] = o->phases[f];
        p->n = o->phases[f]->n_ranks > p->n ? o->phases[f]->n_ranks : p->n;
        o->phases[f]->multiprocess = true;
    }
    rc = start(p);
    p->o.phases = NULL; /* what `o` points to is the caller's again */
    p->o.cpus = NULL;
    p->o.pool = NULL;
    if (rc != OK)
        model_procs_close(m);
    return rc;
}

void model_procs_close(struct model *m)
{
    struct model_procs *p = m ? m->procs : NULL;

    if (!p)
        return;
    if (p->children) {
        atomic_store(&p->control->closing, true);
        par_ranks_close(&p->children);
    }
    par_team_close(&p->team);
    if (p->mem)
        mem_unmap(MEM_ACTIVATIONS, p->mem, p->mem_bytes);
    mem_free(p);
    m->procs = NULL;
    m->team = NULL;
}

int model_procs_check(const struct model *m)
{
    return m->procs ? par_ranks_check(m->procs->children) : OK;
}

int model_procs_n(const struct model *m)
{
    return m->procs ? m->procs->n : 0;
}

pid_t model_procs_pid(const struct model *m, int rank)
{
    return rank == 0 ? getpid() : par_ranks_pid(m->procs->children, rank);
}

bool model_procs_thread(const struct model *m, int rank, int thread,
                        struct par_thread_stat *out)
{
    const struct report *r = &m->procs->reports[rank];

    if (rank < 0 || rank >= m->procs->n || thread < 0 || thread >= r->n_threads)
        return false;
    *out = r->threads[thread];
    return true;
}

uint64_t model_wait_ns(const struct model *m)
{
    const struct model_procs *p = m->procs;
    struct par_thread_stat t;
    uint64_t sum = 0;

    for (int i = 0; i < par_team_size(m->team); i++) {
        par_team_stat(m->team, i, &t);
        sum += t.wait_ns;
    }
    for (int r = 1; p && r < p->n; r++)
        for (int i = 0; model_procs_thread(m, r, i, &t); i++)
            sum += t.wait_ns;
    return sum;
}

struct par_team *model_team(const struct model *m)
{
    return m->team;
}
