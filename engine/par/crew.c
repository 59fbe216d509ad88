#include "par/crew.h"

#include "base/mem.h"

#define MAGIC UINT64_C(0x53414e4457435245)

/* Before the lanes, in the shared memory: fixed. */
struct head {
    _Alignas(PAR_LINE) uint64_t magic;
    int n_ranks, n_threads;
    size_t max_floats, lane_bytes;
};

struct par_crew {
    struct par_group group;
    int rank, n_ranks, n_threads;
    size_t max_floats;
    /* Set by a thread whose lane ended early, between the two meetings of a call; read
     * after the second. Nobody can set it for a later call before all have read it. */
    _Alignas(64) atomic_int failed;
    struct par_rank lanes[]; /* [t] is thread t's */
};

/* The largest slice of a message. */
static size_t lane_floats(int n_threads, size_t max_floats)
{
    size_t line = PAR_LINE / sizeof(float), lines = par_padded(max_floats) / line;

    return (lines + (size_t)n_threads - 1) / (size_t)n_threads * line;
}

static void *lane_of(void *mem, int t)
{
    const struct head *h = mem;

    return (char *)mem + sizeof(*h) + (size_t)t * h->lane_bytes;
}

static int check(int n_ranks, int n_threads, size_t max_floats)
{
    if (n_threads < 1 || n_threads > PAR_CREW_MAX || max_floats > PAR_FLOATS_MAX)
        return err_set(ERR_ARG,
                       "ranks of %d threads and %zu floats, expected 1 to %d and "
                       "at most %zu",
                       n_threads, max_floats, PAR_CREW_MAX, PAR_FLOATS_MAX);
    if (!par_comm_bytes(n_ranks, max_floats))
        return err_set(ERR_ARG, "%d ranks and %zu floats, expected 1 to %d and 1 or more",
                       n_ranks, max_floats, PAR_RANKS_MAX);
    return OK;
}

size_t par_crew_bytes(int n_ranks, int n_threads, size_t max_floats)
{
    if (check(n_ranks, n_threads, max_floats) != OK)
        return 0;
    return sizeof(struct head) +
           (size_t)n_threads *
               par_comm_bytes(n_ranks, lane_floats(n_threads, max_floats));
}

int par_crew_init(void *mem, int n_ranks, int n_threads, size_t max_floats)
{
    struct head *h = mem;
    int rc = check(n_ranks, n_threads, max_floats);
    size_t each;

    if (rc != OK)
        return rc;
    if ((uintptr_t)mem % PAR_LINE)
        return err_set(ERR_ARG, "lanes at %p, expected a multiple of %d", mem, PAR_LINE);
    each = lane_floats(n_threads, max_floats);
    *h = (struct head){.n_ranks = n_ranks,
                       .n_threads = n_threads,
                       .max_floats = max_floats,
                       .lane_bytes = par_comm_bytes(n_ranks, each)};
    for (int t = 0; t < n_threads && rc == OK; t++)
        rc = par_comm_init(lane_of(mem, t), n_ranks, each);
    if (rc == OK)
        h->magic = MAGIC;
    return rc;
}

void par_crew_abort(void *mem)
{
    const struct head *h = mem;

    for (int t = 0; t < h->n_threads; t++)
        par_comm_abort(lane_of(mem, t));
}

int par_crew_open(struct par_crew **out, void *mem, int rank, struct par_team *t,
                  int first)
{
    const struct head *h = mem;
    struct par_crew *c;
    int rc = OK;

    *out = NULL;
    if ((uintptr_t)mem % PAR_LINE || h->magic != MAGIC)
        return err_set(ERR_STATE, "no ranks' lanes in this memory");
    if (first < 0 || first + h->n_threads > par_team_size(t))
        return err_set(ERR_ARG, "rank %d: threads %d to %d of a team of %d", rank, first,
                       first + h->n_threads - 1, par_team_size(t));
    c = mem_new(MEM_TEAM, 1, sizeof(*c) + (size_t)h->n_threads * sizeof(struct par_rank));
    if (!c)
        return ERR_NOMEM;
    c->rank = rank;
    c->n_ranks = h->n_ranks;
    c->n_threads = h->n_threads;
    c->max_floats = h->max_floats;
    par_group_init(&c->group, first, h->n_threads);
    for (int i = 0; i < h->n_threads && rc == OK; i++)
        rc = par_comm_join(&c->lanes[i], lane_of(mem, i), rank, par_team_spin_ns(t));
    if (rc == OK)
        *out = c, c = NULL;
    mem_free(c);
    return rc;
}

void par_crew_close(struct par_crew **c)
{
    mem_free(*c);
    *c = NULL;
}

int par_crew_rank(const struct par_crew *c)
{
    return c->rank;
}

int par_crew_n_ranks(const struct par_crew *c)
{
    return c->n_ranks;
}

int par_crew_n_threads(const struct par_crew *c)
{
    return c->n_threads;
}

int par_crew_lane(const struct par_crew *c, const struct par_self *self)
{
    return self->id - c->group.first;
}

void par_crew_barrier(struct par_crew *c, struct par_self *self)
{
    par_group_barrier(&c->group, self);
}

/* All of the rank's threads leave with the same answer: a lane may have ended well while
 * another was aborted. */
static int agree(struct par_crew *c, struct par_self *self, int rc)
{
    if (rc != OK)
        atomic_store_explicit(&c->failed, 1, memory_order_relaxed);
    par_group_barrier(&c->group, self);
    if (!atomic_load_explicit(&c->failed, memory_order_relaxed))
        return OK;
    return rc != OK ? rc : err_set(ERR_STATE, "another rank gave up");
}

int par_crew_allreduce(struct par_crew *c, struct par_self *self,
                       const struct par_coll *coll, float *x, size_t n)
{
    int t = par_crew_lane(c, self);
    size_t lo, hi;

    if (n > c->max_floats)
        return err_set(ERR_ARG, "a message of %zu floats, at most %zu", n, c->max_floats);
    par_group_barrier(&c->group, self);
    if (c->n_ranks == 1)
        return OK;
    par_block(n, c->n_threads, t, &lo, &hi);
    return agree(c, self, par_allreduce(&c->lanes[t], coll, x + lo, hi - lo));
}

int par_crew_measure(struct par_crew *c, struct par_self *self)
{
    par_group_barrier(&c->group, self);
    return agree(c, self, par_comm_measure(&c->lanes[par_crew_lane(c, self)]));
}
