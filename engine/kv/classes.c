#include "kv/classes.h"

#include <assert.h>

#include "base/mem.h"

/* Lists link indices; -1 ends them. */
struct superblock {
    int k;          /* blocks of its class; 0: empty */
    int n_begun;    /* the first n_begun blocks have been handed out since it was empty */
    int n_live;     /* blocks in use */
    int first_free; /* of those begun */
    int prev,
        next; /* of the class's superblocks with free blocks, or of the empty ones */
};

struct block {
    int n;          /* blocks of an extent that begins here; 0: inside of one; -1: free */
    int prev, next; /* of the superblock's free blocks */
};

struct kv_classes {
    int64_t superblock_tok, large_tok, align_tok;
    int k_large, k_max; /* the classes of the largest and the smallest blocks */
    int n_superblocks, first_empty, n_empty;
    struct superblock *supers;     /* [n_superblocks] */
    struct block *blocks;          /* [n_superblocks][k_max] */
    int first[KV_CLASSES_MAX + 1]; /* of a class's superblocks with free blocks */
    int64_t n_large_free;          /* large blocks that could be reserved at once */
    int64_t n_small;               /* extents that a sequence could outgrow */
    struct kv_alloc_stat stat;
};

static int64_t block_tok(const struct kv_classes *c, int k)
{
    return c->superblock_tok / k / c->align_tok * c->align_tok;
}

static int class_of(const struct kv_classes *c, int64_t n_tok)
{
    int64_t aligned = (n_tok + c->align_tok - 1) / c->align_tok * c->align_tok;
    int64_t k = c->superblock_tok / aligned;

    return k < c->k_max ? (int)k : c->k_max;
}

int kv_classes_open(struct kv_classes **out, const struct kv_arena *a)
{
    struct kv_classes *c;
    int64_t n, k_max;

    *out = NULL;
    if (a->superblock_larges < 1 || a->superblock_larges > KV_CLASSES_MAX)
        return err_set(ERR_ARG,
                       "kv: a superblock of %lld large blocks: expected 1 to %d of them",
                       (long long)a->superblock_larges, KV_CLASSES_MAX);
    n = a->n_tok / a->max_tok / a->superblock_larges;
    k_max = a->max_tok / a->align_tok * a->superblock_larges;
    k_max = k_max < KV_CLASSES_MAX ? k_max : KV_CLASSES_MAX;
    if (n < 1 || n > INT32_MAX / k_max)
        return err_set(n < 1 ? ERR_NOMEM : ERR_ARG,
                       "kv: %lld tokens are %lld superblocks of %lld x %lld tokens: "
                       "expected 1 to %lld of them",
                       (long long)a->n_tok, (long long)n, (long long)a->superblock_larges,
                       (long long)a->max_tok, (long long)(INT32_MAX / k_max));
    c = mem_new(MEM_KV, 1, sizeof(*c));
    if (!c)
        return ERR_NOMEM;
    c->large_tok = a->max_tok;
    c->superblock_tok = a->max_tok * a->superblock_larges;
    c->align_tok = a->align_tok;
    c->k_large = (int)a->superblock_larges;
    c->k_max = (int)k_max;
    c->n_superblocks = c->n_empty = (int)n;
    c->n_large_free = n * c->k_large;
    c->stat.arena_tok = n * c->superblock_tok;
    c->supers = mem_new(MEM_KV, (size_t)n, sizeof(*c->supers));
    c->blocks = mem_new(MEM_KV, (size_t)(n * k_max), sizeof(*c->blocks));
    if (!c->supers || !c->blocks) {
        kv_classes_close(&c);
        return ERR_NOMEM;
    }
    for (int k = 0; k <= KV_CLASSES_MAX; k++)
        c->first[k] = -1;
    for (int i = 0; i < c->n_superblocks; i++)
        c->supers[i].next = i + 1 < c->n_superblocks ? i + 1 : -1;
    *out = c;
    return OK;
}

void kv_classes_close(struct kv_classes **c)
{
    if (!*c)
        return;
    mem_free((*c)->supers);
    mem_free((*c)->blocks);
    mem_free(*c);
    *c = NULL;
}

static void link_superblock(struct kv_classes *c, int i)
{
    struct superblock *s = &c->supers[i];
    int first = c->first[s->k];

    s->prev = -1;
    s->next = first;
    if (first >= 0)
        c->supers[first].prev = i;
    c->first[s->k] = i;
}

static void unlink_superblock(struct kv_classes *c, int i)
{
    struct superblock *s = &c->supers[i];

    if (s->prev >= 0)
        c->supers[s->prev].next = s->next;
    else
        c->first[s->k] = s->next;
    if (s->next >= 0)
        c->supers[s->next].prev = s->prev;
}

static struct block *blocks_of(const struct kv_classes *c, int i)
{
    return &c->blocks[(int64_t)i * c->k_max];
}

/* Take block b, which is free, out of the superblock. */
static void take(struct kv_classes *c, int i, int b)
{
    struct superblock *s = &c->supers[i];
    struct block *all = blocks_of(c, i), *x = &all[b];

    c->stat.n_visited++;
    if (b == s->n_begun) {
        s->n_begun++;
    } else {
        assert(b < s->n_begun && x->n == -1);
        if (x->prev >= 0)
            all[x->prev].next = x->next;
        else
            s->first_free = x->next;
        if (x->next >= 0)
            all[x->next].prev = x->prev;
    }
    x->n = 0;
    c->stat.reserved_tok += block_tok(c, s->k);
    c->n_large_free -= s->k == c->k_large;
    if (++s->n_live == s->k)
        unlink_superblock(c, i);
}

static void give(struct kv_classes *c, int i, int b)
{
    struct superblock *s = &c->supers[i];
    struct block *all = blocks_of(c, i);

    c->stat.n_visited++;
    c->stat.reserved_tok -= block_tok(c, s->k);
    c->n_large_free += s->k == c->k_large;
    all[b] = (struct block){.n = -1, .prev = -1, .next = s->first_free};
    if (s->first_free >= 0)
        all[s->first_free].prev = b;
    s->first_free = b;
    if (s->n_live-- == s->k)
        link_superblock(c, i);
}

static void begin_superblock(struct kv_classes *c, int k)
{
    int i = c->first_empty;

    c->first_empty = c->supers[i].next;
    c->n_empty--;
    c->n_large_free -= k == c->k_large ? 0 : c->k_large;
    c->supers[i] = (struct superblock){.k = k, .first_free = -1};
    link_superblock(c, i);
}

static void end_superblock(struct kv_classes *c, int i)
{
    struct superblock *s = &c->supers[i];

    unlink_superblock(c, i);
    c->n_large_free += s->k == c->k_large ? 0 : c->k_large;
    s->k = 0;
    s->next = c->first_empty;
    c->first_empty = i;
    c->n_empty++;
}

/* Whether class k has a free block now, in a superblock that may have to begin. */
static bool find_block(struct kv_classes *c, int k, int64_t keep)
{
    bool large = k == c->k_large;
    int64_t left = c->n_large_free;

    /* Nobody can outgrow a large block, and the first sequence has all there is. */
    if (c->stat.n_live == 0 || (large && c->n_small == 0))
        keep = 0;
    if (c->first[k] >= 0 && (!large || left - 1 >= keep))
        return true;
    if (c->n_empty == 0 || left - (large ? 1 : c->k_large) < keep)
        return false;
    begin_superblock(c, k);
    return true;
}

int kv_classes_reserve(struct kv_classes *c, int64_t n_tok, int64_t keep,
                       struct kv_extent *out)
{
    int k = class_of(c, n_tok), i, b;
    struct superblock *s;

    if (!find_block(c, k, keep))
        return err_set(ERR_NOMEM,
                       "kv: no free block of %lld tokens: %lld of %lld tokens are "
                       "reserved, %d of %d superblocks are empty, and the large blocks "
                       "kept for sequences that outgrow theirs are %lld",
                       (long long)n_tok, (long long)c->stat.reserved_tok,
                       (long long)c->stat.arena_tok, c->n_empty, c->n_superblocks,
                       (long long)keep);
    i = c->first[k];
    s = &c->supers[i];
    b = s->first_free >= 0 ? s->first_free : s->n_begun;
    take(c, i, b);
    blocks_of(c, i)[b].n = 1;
    c->stat.n_live++;
    *out = (struct kv_extent){.id = (int64_t)i * c->k_max + b,
                              .first_tok = i * c->superblock_tok + b * block_tok(c, k),
                              .cap_tok = block_tok(c, k)};
    c->n_small += out->cap_tok < c->large_tok;
    return OK;
}

bool kv_classes_extend(struct kv_classes *c, struct kv_extent *e, int64_t n_tok)
{
    int i = (int)(e->id / c->k_max), b = (int)(e->id % c->k_max);
    struct superblock *s = &c->supers[i];
    struct block *all = blocks_of(c, i);
    int64_t each = block_tok(c, s->k), n = (n_tok + each - 1) / each;

    if (b + n > s->k)
        return false;
    for (int x = b + all[b].n; x < b + n; x++) {
        c->stat.n_visited++;
        if (x < s->n_begun && all[x].n != -1)
            return false;
    }
    for (int x = b + all[b].n; x < b + n; x++)
        take(c, i, x);
    all[b].n = (int)n;
    c->n_small -= e->cap_tok < c->large_tok && n * each >= c->large_tok;
    e->cap_tok = n * each;
    return true;
}

int kv_classes_move(struct kv_classes *c, struct kv_extent *e, int64_t used_tok,
                    int64_t n_tok, struct kv_move *m)
{
    struct kv_extent to;

    TRY(kv_classes_reserve(c, n_tok, 0, &to));
    *m = (struct kv_move){.from_tok = e->first_tok,
                          .to_tok = to.first_tok,
                          .n_tok = used_tok,
                          .old_id = e->id};
    *e = to;
    return OK;
}

void kv_classes_release(struct kv_classes *c, int64_t id)
{
    int i = (int)(id / c->k_max), b = (int)(id % c->k_max);
    int n = blocks_of(c, i)[b].n;

    assert(n > 0);
    c->stat.n_live--;
    c->n_small -= n * block_tok(c, c->supers[i].k) < c->large_tok;
    for (int x = b; x < b + n; x++)
        give(c, i, x);
    if (c->supers[i].n_live == 0)
        end_superblock(c, i);
}

void kv_classes_stat(const struct kv_classes *c, struct kv_alloc_stat *out)
{
    *out = c->stat;
}
