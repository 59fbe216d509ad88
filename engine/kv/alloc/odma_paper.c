/* ODMA's buckets over blocks of three sizes, as in the paper: min, mid and max, each with its list
 * of free blocks, and a pool of large blocks (kv/large.h). A sequence gets the smallest block that
 * holds its bucket, and one that outgrows its block moves to a large one or waits.
 *
 * What the paper leaves open: max is the longest sequence, mid half and min a quarter of it,
 * aligned down. Bounds choose a size only. A superblock of max is divided into halves, and these
 * into quarters, where no smaller block is free; free neighbours are one again, so that an empty
 * superblock is a max block, also for the large bucket where its pool is used up. The pool is
 * kv_arena.large_frac of the memory. No block in use moves. odma.c has runs of any aligned length
 * in place of three sizes.
 *   Paper: ODMA 3.4, 3.5. */
#include "base/mem.h"
#include "kv/buckets.h"
#include "kv/large.h"

enum { MIN, MID, MAX, N_SIZES };

/* The free blocks of a superblock, largest ones only: a half is not counted as quarters. */
enum { FULL, QUARTER, HALF, HALF_AND_QUARTER, WHOLE, N_LISTS };

struct superblock {
    int32_t prev, next; /* others with such free blocks; -1: none */
    uint8_t list;       /* which those are */
    uint8_t used;       /* bit q: quarter q is in use */
    uint8_t size[4];    /* of the block that begins at quarter q */
};

struct odma_paper {
    int64_t tok[N_SIZES];
    const struct kv_bounds *bounds;
    struct kv_large *large;
    struct superblock *of;  /* [n] */
    int32_t first[N_LISTS]; /* -1: none */
    struct kv_alloc_stat stat;
};

/* --- lists */

static uint8_t list_of(uint8_t used)
{
    uint8_t low = used & 3, high = used >> 2;
    bool quarter = low == 1 || low == 2 || high == 1 || high == 2;

    if (used == 0)
        return WHOLE;
    return (uint8_t)((low == 0 || high == 0 ? HALF : FULL) + (quarter ? QUARTER : FULL));
}

static void link_in(struct odma_paper *o, int32_t s)
{
    struct superblock *b = &o->of[s];

    o->stat.n_visited++;
    b->list = list_of(b->used);
    b->prev = -1;
    b->next = o->first[b->list];
    if (b->next >= 0)
        o->of[b->next].prev = s;
    o->first[b->list] = s;
}

static void link_out(struct odma_paper *o, int32_t s)
{
    struct superblock *b = &o->of[s];

    o->stat.n_visited++;
    if (b->next >= 0)
        o->of[b->next].prev = b->prev;
    if (b->prev >= 0)
        o->of[b->prev].next = b->next;
    else
        o->first[b->list] = b->next;
}

/* The quarter where a block of the size begins: for a single one, whose neighbour is in use if
 * there is such a quarter. There is space. */
static int quarter_for(int size, uint8_t used)
{
    if (size != MIN)
        return used & 3 ? 2 : 0;
    for (int q = 0; q < 4; q++)
        if (!(used >> q & 1) && used >> (q ^ 1) & 1)
            return q;
    return used & 1 ? 2 : 0;
}

static uint8_t quarters(int size, int q)
{
    return (uint8_t)((size == MAX ? 15 : size == MID ? 3 : 1) << q);
}

static int take(struct odma_paper *o, int size, struct kv_extent *out)
{
    /* The least divided first; FULL ends them. */
    static const uint8_t lists[N_SIZES][N_LISTS] = {
        {QUARTER, HALF_AND_QUARTER, HALF, WHOLE},
        {HALF, HALF_AND_QUARTER, WHOLE},
        {WHOLE}};
    int32_t s = -1;
    int q;

    for (int i = 0; s < 0 && lists[size][i] != FULL; i++)
        s = o->first[lists[size][i]];
    if (s < 0)
        return err_set(
            ERR_NOMEM,
            "kv: no free block of %lld tokens: %lld of %lld tokens are reserved",
            (long long)o->tok[size], (long long)o->stat.reserved_tok,
            (long long)o->stat.arena_tok);
    link_out(o, s);
    q = quarter_for(size, o->of[s].used);
    o->of[s].used |= quarters(size, q);
    o->of[s].size[q] = (uint8_t)size;
    link_in(o, s);
    o->stat.n_live++;
    o->stat.reserved_tok += o->tok[size];
    *out = (struct kv_extent){.id = 4 * (int64_t)s + q,
                              .first_tok = s * o->tok[MAX] + q / 2 * o->tok[MID] +
                                           q % 2 * o->tok[MIN],
                              .cap_tok = o->tok[size]};
    return OK;
}

static int take_large(struct odma_paper *o, struct kv_extent *out)
{
    return kv_large_take(o->large, out) ? OK : take(o, MAX, out);
}

/* --- */

static void odma_paper_close(void *state)
{
    struct odma_paper *o = state;

    kv_large_close(&o->large);
    mem_free(o->of);
    mem_free(o);
}

static int odma_paper_open(void **state, const struct kv_arena *a)
{
    int64_t n = a->n_tok / a->max_tok;
    struct odma_paper *o;
    struct kv_arena rest;
    int rc;

    if (n > INT32_MAX)
        return err_set(ERR_ARG, "kv: %lld blocks of %lld tokens: expected at most %d",
                       (long long)n, (long long)a->max_tok, INT32_MAX);
    o = mem_new(MEM_KV, 1, sizeof(*o));
    if (!o)
        return ERR_NOMEM;
    rc = kv_large_open(&o->large, &rest, a, 4 * n);
    n = rc == OK ? rest.n_tok / rest.max_tok : 0;
    if (rc == OK)
        o->of = mem_new(MEM_KV, (size_t)n, sizeof(*o->of));
    if (rc == OK && !o->of)
        rc = ERR_NOMEM;
    if (rc != OK) {
        odma_paper_close(o);
        return rc;
    }
    o->bounds = a->bounds;
    for (int i = 0; i < N_SIZES; i++)
        o->tok[i] = (a->max_tok / a->align_tok >> (MAX - i)) * a->align_tok;
    o->stat.arena_tok = n * a->max_tok;
    for (int i = 0; i < N_LISTS; i++)
        o->first[i] = -1;
    for (int64_t s = n - 1; s >= 0; s--)
        link_in(o, (int32_t)s);
    o->stat.n_visited = 0;
    *state = o;
    return OK;
}

static int odma_paper_reserve(void *state, const struct kv_need *need,
                              struct kv_extent *out)
{
    struct odma_paper *o = state;
    int64_t n;
    int size = MIN;

    TRY(kv_need_check(need, o->tok[MAX]));
    if (kv_large_wanted(o->bounds, need))
        return take_large(o, out);
    n = kv_bounds_size(o->bounds, need, o->tok[MAX]);
    while (o->tok[size] < n)
        size++;
    return take(o, size, out);
}

static int odma_paper_grow(void *state, struct kv_extent *e, int64_t used_tok,
                           int64_t want_tok, struct kv_move *m)
{
    struct odma_paper *o = state;
    struct kv_extent to;

    TRY(kv_want_check(want_tok, o->tok[MAX]));
    if (want_tok <= e->cap_tok)
        return OK;
    TRY(take_large(o, &to));
    kv_alloc_move(e, &to, used_tok, m);
    return OK;
}

static void odma_paper_release(void *state, int64_t id)
{
    struct odma_paper *o = state;
    int32_t s = (int32_t)(id / 4);
    int q = (int)(id % 4), size;

    if (kv_large_give_back(o->large, id))
        return;
    size = o->of[s].size[q];
    link_out(o, s);
    o->of[s].used &= (uint8_t)~quarters(size, q);
    link_in(o, s);
    o->stat.n_live--;
    o->stat.reserved_tok -= o->tok[size];
}

static void odma_paper_stat(const void *state, struct kv_alloc_stat *out)
{
    const struct odma_paper *o = state;

    *out = o->stat;
    kv_large_stat(o->large, out);
}

static const struct kv_bounds *odma_paper_bounds(const void *state)
{
    return ((const struct odma_paper *)state)->bounds;
}

const struct kv_alloc kv_alloc_odma_paper = {
    .name = "odma_paper",
    .help = "blocks of three sizes for buckets that follow the lengths, and large blocks",
    .several_sizes = true,
    .learns = true,
    .open = odma_paper_open,
    .close = odma_paper_close,
    .reserve = odma_paper_reserve,
    .grow = odma_paper_grow,
    .moved = odma_paper_release,
    .release = odma_paper_release,
    .stat = odma_paper_stat,
    .bounds = odma_paper_bounds,
};
