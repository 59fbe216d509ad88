#include "kv/runs.h"

#include <assert.h>

#include "base/mem.h"

#define N_LEVELS 4 /* of 64 bits each: 16 million lengths */

/* A unit of the arena. Lists link units; -1 ends them. */
struct unit {
    int32_t n_used;     /* a run in use of this number of units begins here */
    int32_t n_free;     /* a free run begins here */
    int32_t n_free_end; /* a free run ends here */
    int32_t prev, next; /* where a free run begins: others of its length */
};

struct kv_runs {
    int64_t align_tok;
    int32_t n_units, large;   /* units of the arena, and of the longest sequence */
    struct unit *units;       /* [n_units] */
    int32_t *first;           /* [large + 1] free runs of each length; the last list has
                                 the longer ones as well */
    uint64_t *bits[N_LEVELS]; /* bit i of a level: there is a bit in word i of the one
                                 below, or of the lowest, a free run of length i */
    struct kv_alloc_stat stat;
};

/* --- lengths that have a free run */

static void set_bit(struct kv_runs *r, int32_t i)
{
    bool more = true; /* a bit of the level above is yet to be set */

    for (int k = 0; k < N_LEVELS && more; k++, i /= 64) {
        uint64_t *word = &r->bits[k][i / 64];

        r->stat.n_visited++;
        more = *word == 0;
        *word |= UINT64_C(1) << i % 64;
    }
}

static void clear_bit(struct kv_runs *r, int32_t i)
{
    for (int k = 0; k < N_LEVELS; k++, i /= 64) {
        r->stat.n_visited++;
        r->bits[k][i / 64] &= ~(UINT64_C(1) << i % 64);
        if (r->bits[k][i / 64])
            return;
    }
}

/* The least i' >= i whose bit is set; -1: none. */
static int32_t next_bit(struct kv_runs *r, int32_t i)
{
    int64_t n = r->large + 1; /* bits of the level */

    for (int k = 0; k < N_LEVELS && i < n; k++, n = (n + 63) / 64) {
        uint64_t word = r->bits[k][i / 64] >> i % 64;

        r->stat.n_visited++;
        if (word) {
            i += __builtin_ctzll(word);
            while (k-- > 0)
                i = i * 64 + __builtin_ctzll(r->bits[k][i]);
            return i;
        }
        i = i / 64 + 1;
    }
    return -1;
}

/* --- free runs */

static int32_t list_of(const struct kv_runs *r, int32_t n)
{
    return n < r->large ? n : r->large;
}

static void add_free(struct kv_runs *r, int32_t at, int32_t n)
{
    int32_t list = list_of(r, n), next = r->first[list];

    r->units[at].n_free = r->units[at + n - 1].n_free_end = n;
    r->units[at].prev = -1;
    r->units[at].next = next;
    r->first[list] = at;
    if (next >= 0)
        r->units[next].prev = at;
    else
        set_bit(r, list);
}

static void take_free(struct kv_runs *r, int32_t at)
{
    struct unit *u = &r->units[at];
    int32_t n = u->n_free, list = list_of(r, n);

    if (u->next >= 0)
        r->units[u->next].prev = u->prev;
    if (u->prev >= 0)
        r->units[u->prev].next = u->next;
    else
        r->first[list] = u->next;
    if (r->first[list] < 0)
        clear_bit(r, list);
    u->n_free = r->units[at + n - 1].n_free_end = 0;
}

/* A run in use of n units begins or goes on at the beginning of a free one. */
static void use(struct kv_runs *r, int32_t at, int32_t n)
{
    int32_t n_free = r->units[at].n_free;

    assert(n <= n_free);
    take_free(r, at);
    if (n < n_free)
        add_free(r, at + n, n_free - n);
    r->stat.reserved_tok += n * r->align_tok;
}

/* --- */

static int32_t units_of(const struct kv_runs *r, int64_t n_tok)
{
    return (int32_t)((n_tok + r->align_tok - 1) / r->align_tok);
}

static int open_lists(struct kv_runs *r)
{
    int64_t n = r->large + 1;

    r->units = mem_new(MEM_KV, (size_t)r->n_units, sizeof(*r->units));
    r->first = mem_new(MEM_KV, (size_t)n, sizeof(*r->first));
    if (!r->units || !r->first)
        return ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        r->first[i] = -1;
    for (int k = 0; k < N_LEVELS; k++) {
        n = (n + 63) / 64;
        r->bits[k] = mem_new(MEM_KV, (size_t)n, sizeof(*r->bits[k]));
        if (!r->bits[k])
            return ERR_NOMEM;
    }
    return OK;
}

int kv_runs_open(struct kv_runs **out, const struct kv_arena *a)
{
    int64_t n = a->n_tok / a->align_tok, large = a->max_tok / a->align_tok;
    struct kv_runs *r;

    *out = NULL;
    if (n > INT32_MAX || large >= 1 << 6 * N_LEVELS)
        return err_set(
            ERR_ARG,
            "kv: an arena of %lld x %lld tokens, sequences of %lld: expected at "
            "most %d and %d",
            (long long)n, (long long)a->align_tok, (long long)large, INT32_MAX,
            (1 << 6 * N_LEVELS) - 1);
    r = mem_new(MEM_KV, 1, sizeof(*r));
    if (!r)
        return ERR_NOMEM;
    r->align_tok = a->align_tok;
    r->n_units = (int32_t)n;
    r->large = (int32_t)large;
    r->stat.arena_tok = n * a->align_tok;
    if (open_lists(r) != OK) {
        kv_runs_close(&r);
        return ERR_NOMEM;
    }
    add_free(r, 0, r->n_units);
    *out = r;
    return OK;
}

void kv_runs_close(struct kv_runs **r)
{
    if (!*r)
        return;
    mem_free((*r)->units);
    mem_free((*r)->first);
    for (int k = 0; k < N_LEVELS; k++)
        mem_free((*r)->bits[k]);
    mem_free(*r);
    *r = NULL;
}

int kv_runs_reserve(struct kv_runs *r, int64_t n_tok, struct kv_extent *out)
{
    int32_t n = units_of(r, n_tok), list = next_bit(r, n), at;

    if (list < 0)
        return err_set(ERR_NOMEM,
                       "kv: no free run of %lld tokens: %lld of %lld tokens are reserved",
                       (long long)n_tok, (long long)r->stat.reserved_tok,
                       (long long)r->stat.arena_tok);
    at = r->first[list];
    use(r, at, n);
    r->units[at].n_used = n;
    r->stat.n_live++;
    *out = (struct kv_extent){
        .id = at, .first_tok = at * r->align_tok, .cap_tok = n * r->align_tok};
    return OK;
}

bool kv_runs_extend(struct kv_runs *r, struct kv_extent *e, int64_t n_tok,
                    int64_t most_tok)
{
    struct unit *u = &r->units[e->id];
    int32_t right = (int32_t)e->id + u->n_used, more = units_of(r, most_tok) - u->n_used;
    int32_t n_free = right < r->n_units ? r->units[right].n_free : 0;

    r->stat.n_visited++;
    if (u->n_used + n_free < units_of(r, n_tok))
        return false;
    more = more < n_free ? more : n_free;
    use(r, right, more);
    u->n_used += more;
    e->cap_tok = u->n_used * r->align_tok;
    return true;
}

int kv_runs_move(struct kv_runs *r, struct kv_extent *e, int64_t used_tok, int64_t n_tok,
                 struct kv_move *m)
{
    struct kv_extent to;

    TRY(kv_runs_reserve(r, n_tok, &to));
    kv_alloc_move(e, &to, used_tok, m);
    return OK;
}

void kv_runs_release(struct kv_runs *r, int64_t id)
{
    int32_t at = (int32_t)id, n = r->units[at].n_used, right = at + n, left = 0;

    assert(n > 0);
    r->stat.n_live--;
    r->stat.reserved_tok -= n * r->align_tok;
    r->units[at].n_used = 0;
    if (right < r->n_units && r->units[right].n_free > 0) {
        n += r->units[right].n_free;
        take_free(r, right);
    }
    if (at > 0)
        left = r->units[at - 1].n_free_end;
    if (left > 0)
        take_free(r, at - left);
    add_free(r, at - left, n + left);
}

void kv_runs_stat(const struct kv_runs *r, struct kv_alloc_stat *out)
{
    *out = r->stat;
}
