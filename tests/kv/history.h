/* tests/kv/history.h - random histories of an allocator, compared with a naive one: a map of
 * which block owns each token of the arena, and the tokens' content. Include it once in a
 * test.
 *
 * Several placement domains have an arena and an allocator each, and the same bounds. A
 * history ends when everything is released, and all is as before: another may follow. One that
 * breaks a rule is shortened as far as it still breaks one, and printed. */
#ifndef TESTS_KV_HISTORY_H
#define TESTS_KV_HISTORY_H

#include "kv/alloc.h"
#include "kv/buckets.h"
#include "tests/support/test.h"

enum history_kind {
    HISTORY_RESERVE,
    HISTORY_GROW,
    HISTORY_COPY, /* the copy that is due, as between two steps */
    HISTORY_RELEASE,
    HISTORY_LEARN, /* other bounds */
    HISTORY_N_KINDS
};
static const char *const history_kinds[] = {"reserve", "grow", "copy", "release",
                                            "learn"};

struct history_op {
    int kind;
    uint32_t pick; /* which sequence, modulo those that live */
    int64_t n, m;  /* sizes in tokens, or a seed of bounds */
};

struct history_setup {
    const struct kv_alloc *alloc;
    struct kv_arena arena; /* bounds: set by history_open() */
    int64_t keep_tok;      /* tokens that stay free when a sequence gets memory */
    int n_domains;         /* 0: one */
};

/* Return the broken rule that `call` names. */
#define TRY_RULE(call)                                                                   \
    do {                                                                                 \
        const char *rule_ = (call);                                                      \
        if (rule_)                                                                       \
            return rule_;                                                                \
    } while (0)

#define HISTORY_ARENA   8192 /* tokens at most */
#define HISTORY_LIVE    64   /* sequences at most */
#define HISTORY_DOMAINS 3

struct history_seq {
    struct kv_extent e;
    struct kv_move move; /* due */
    int64_t n_tok, serial;
};

/* A domain. */
struct history {
    const struct history_setup *setup;
    const struct kv_alloc *alloc;
    void *state;
    bool superblocks; /* blocks are parts of superblocks of max_tok tokens */
    struct history_seq live[HISTORY_LIVE];
    int n_live, n_due;
    int64_t n_serial, reserved_tok;
    int64_t owner[HISTORY_ARENA];   /* 1 + id of the block that has the token; 0: free */
    int64_t content[HISTORY_ARENA]; /* what was written there */
    int64_t n_moves, n_refused, n_in_place; /* what happened */
};

static int64_t history_content(const struct history_seq *s, int64_t i)
{
    return s->serial * 100000 + i + 1;
}

/* Where the sequence's i-th token is. */
static int64_t history_at(const struct history *h, const struct history_seq *s, int64_t i)
{
    int64_t each = h->setup->arena.block_tok;

    return s->e.blocks ? s->e.blocks[i / each] * each + i % each : s->e.first_tok + i;
}

/* The tokens from `from` on of the sequence's memory get an owner. */
static const char *history_own(struct history *h, const struct history_seq *s,
                               int64_t from)
{
    const struct kv_arena *a = &h->setup->arena;

    if (!h->alloc->paged &&
        (s->e.first_tok % a->align_tok != 0 || s->e.cap_tok % a->align_tok != 0))
        return "a block is not aligned";
    if (s->e.cap_tok < s->n_tok)
        return "a block is too small";
    for (int64_t i = from; i < s->e.cap_tok; i++) {
        int64_t t = history_at(h, s, i);

        if (t < 0 || t >= a->n_tok)
            return "a block is outside of the arena";
        if (h->owner[t] != 0)
            return "two blocks overlap";
        h->owner[t] = 1 + s->e.id;
        h->reserved_tok++;
    }
    return NULL;
}

static void history_disown(struct history *h, int64_t first_tok, int64_t id)
{
    for (int64_t t = first_tok; t < HISTORY_ARENA && h->owner[t] == 1 + id; t++) {
        h->owner[t] = 0;
        h->content[t] = 0;
        h->reserved_tok--;
    }
}

static void history_write(struct history *h, const struct history_seq *s, int64_t from)
{
    for (int64_t i = from; i < s->n_tok; i++)
        h->content[history_at(h, s, i)] = history_content(s, i);
}

/* Execute the copy that is due. */
static void history_copy(struct history *h, struct history_seq *s)
{
    struct kv_move *m = &s->move;

    if (m->old_id < 0)
        return;
    memmove(&h->content[m->to_tok], &h->content[m->from_tok],
            (size_t)m->n_tok * sizeof(h->content[0]));
    history_disown(h, m->from_tok, m->old_id);
    kv_alloc_moved(h->alloc, h->state, m);
    h->n_due--;
}

/* Tokens that the arena divides, the last ones of which only large blocks get. */
static int64_t history_arena_tok(const struct history *h, int64_t *pool_tok)
{
    const struct kv_arena *a = &h->setup->arena;
    int64_t each = h->superblocks ? a->max_tok : a->align_tok;
    int64_t all = a->n_tok / a->max_tok, n = 0;

    while ((double)n < a->large_frac * (double)all && n < all - 1)
        n++;
    *pool_tok = n * a->max_tok;
    return a->n_tok / each * each;
}

static struct kv_bounds history_bounds; /* of all domains */

static bool history_is_large(const struct history *h, const struct kv_need *need)
{
    const struct kv_bounds *b = &history_bounds;
    int64_t n = need->gen_tok + (b->of_total ? need->prompt_tok : 0);

    return !h->alloc->learns || need->large || b->n == 0 || n > b->tok[b->n - 1];
}

/* A refusal is right only if there is no space for the longest sequence besides keep_tok: for one
 * of the large bucket anywhere, for another outside of the large blocks. */
static const char *history_refused(struct history *h, int64_t keep_tok, bool large)
{
    const struct kv_arena *a = &h->setup->arena;
    int64_t pool_tok, n = history_arena_tok(h, &pool_tok), gap = 0;

    h->n_refused++;
    err_clear();
    if (h->n_live == 0)
        return "an empty arena refused a sequence";
    for (int64_t t = 0; t < n - (large ? 0 : pool_tok); t++) {
        if (h->superblocks && t % a->max_tok == 0)
            gap = 0;
        gap = h->owner[t] == 0 ? gap + 1 : 0;
        if (gap >= a->max_tok + keep_tok)
            return "memory was refused although there is some";
    }
    return NULL;
}

static const char *history_reserve(struct history *h, const struct history_op *op)
{
    struct kv_need need = {
        .prompt_tok = op->n, .gen_tok = op->m, .large = op->pick % 8 == 0};
    struct history_seq *s = &h->live[h->n_live];
    int64_t max_tok = h->setup->arena.max_tok, pool_tok;
    bool large = history_is_large(h, &need);
    int rc;

    if (h->n_live == HISTORY_LIVE)
        return NULL;
    memset(s, 0, sizeof(*s));
    rc = h->alloc->reserve(h->state, &need, &s->e);
    if ((rc == ERR_LIMIT) != (op->n + (op->m > 0) > max_tok))
        return "the limit is not the longest sequence";
    if (rc != OK)
        return rc == ERR_NOMEM   ? history_refused(h, h->setup->keep_tok, large)
               : rc == ERR_LIMIT ? NULL
                                 : "another error";
    s->n_tok = op->n;
    s->serial = h->n_serial++;
    s->move.old_id = -1;
    if (s->e.cap_tok < op->n + (op->m > 0))
        return "there is no space for the next token";
    if (!large && s->e.first_tok >= history_arena_tok(h, &pool_tok) - pool_tok)
        return "a large block of the reserve was given to another sequence";
    h->n_live++;
    TRY_RULE(history_own(h, s, 0));
    history_write(h, s, 0);
    return NULL;
}

static const char *history_grow(struct history *h, struct history_seq *s, int64_t want)
{
    struct kv_extent before = s->e;
    int64_t n_tok = s->n_tok;
    struct kv_move m = {.old_id = -1};
    int rc;

    history_copy(h, s); /* a sequence that moves twice has been copied in between */
    rc = h->alloc->grow(h->state, &s->e, n_tok, want, &m);
    if (rc != OK) {
        if (memcmp(&before, &s->e, sizeof(before)) != 0 || m.old_id >= 0)
            return "a refused sequence has changed";
        if ((rc == ERR_LIMIT) != (want > h->setup->arena.max_tok))
            return "the limit is not the longest sequence";
        err_clear();
        return rc == ERR_NOMEM ? history_refused(h, 0, true) : NULL;
    }
    s->n_tok = want > n_tok ? want : n_tok;
    s->move = m;
    if (m.old_id < 0) {
        h->n_in_place += s->e.cap_tok > before.cap_tok;
        if (before.id != s->e.id || before.first_tok != s->e.first_tok)
            return "a sequence moved without a word";
        TRY_RULE(history_own(h, s, before.cap_tok));
    } else {
        h->n_moves++;
        h->n_due++;
        if (h->alloc->paged || m.old_id != before.id || m.from_tok != before.first_tok ||
            m.to_tok != s->e.first_tok || m.n_tok != n_tok)
            return "a move does not name what to copy";
        TRY_RULE(history_own(h, s, 0));
    }
    history_write(h, s, n_tok);
    return NULL;
}

static void history_release(struct history *h, int i)
{
    struct history_seq *s = &h->live[i];

    history_copy(h, s);
    for (int64_t k = 0; k < s->e.cap_tok && h->alloc->paged; k++) {
        h->owner[history_at(h, s, k)] = 0;
        h->reserved_tok--;
    }
    if (!h->alloc->paged)
        history_disown(h, s->e.first_tok, s->e.id);
    h->alloc->release(h->state, s->e.id);
    h->live[i] = h->live[--h->n_live];
}

/* Bounds as the bucket manager makes them: ascending, aligned. */
static void history_learn(const struct kv_arena *a, int64_t seed)
{
    struct kv_bounds *b = &history_bounds;
    int64_t tok = 0;
    struct rng r;

    rng_init(&r, (uint64_t)seed, "bounds");
    b->n = 0;
    b->align_tok = a->align_tok;
    b->of_total = seed % 2;
    for (uint64_t n = rng_below(&r, 5); n > 0; n--) {
        tok += (1 + (int64_t)rng_below(&r, 96 / (uint64_t)a->align_tok)) * a->align_tok;
        if (tok <= a->max_tok)
            b->tok[b->n++] = tok;
    }
    b->epoch++;
}

/* What must hold after every operation. */
static const char *history_holds(const struct history *h, int64_t visited,
                                 int64_t n_blocks)
{
    struct kv_alloc_stat st;

    h->alloc->stat(h->state, &st);
    if (st.reserved_tok != h->reserved_tok)
        return "the reserved tokens are not those of the live blocks";
    if (st.n_live != h->n_live + h->n_due)
        return "the live blocks are miscounted";
    /* Some blocks, and twice those that it adds, gives or wants. */
    if (st.n_visited < visited || st.n_visited - visited > 32 + 2 * n_blocks)
        return "an operation takes more than constant time";
    for (int k = 0; k < h->n_live; k++) {
        const struct history_seq *s = &h->live[k];

        if (h->alloc->paged && s->e.cap_tok - s->n_tok > h->setup->arena.block_tok)
            return "a table has more than one block that is not full";
        for (int64_t i = 0; s->move.old_id < 0 && i < s->n_tok; i++)
            if (h->content[history_at(h, s, i)] != history_content(s, i))
                return "a token's content changed";
    }
    return NULL;
}

static const char *history_step(struct history *h, const struct history_op *op)
{
    struct history_seq *s = h->n_live > 0 ? &h->live[op->pick % h->n_live] : NULL;
    int64_t changed_tok = h->reserved_tok;
    struct kv_alloc_stat st;

    h->alloc->stat(h->state, &st);
    if (op->kind == HISTORY_RESERVE)
        TRY_RULE(history_reserve(h, op));
    if (op->kind == HISTORY_GROW && s)
        TRY_RULE(history_grow(h, s, s->n_tok + op->m));
    if (op->kind == HISTORY_COPY && s)
        history_copy(h, s);
    if (op->kind == HISTORY_RELEASE && s)
        history_release(h, (int)(op->pick % h->n_live));
    if (op->kind == HISTORY_LEARN)
        history_learn(&h->setup->arena, op->n);
    changed_tok = llabs(h->reserved_tok - changed_tok);
    changed_tok += op->kind == HISTORY_GROW ? op->m : 0;
    return history_holds(h, st.n_visited, changed_tok / h->setup->arena.align_tok);
}

/* Everything is released, and then the arena is as it was: as many large blocks fit. */
static const char *history_drain(struct history *h)
{
    struct kv_need large = {.prompt_tok = h->setup->arena.max_tok, .large = true};
    struct kv_extent e[HISTORY_LIVE];
    struct kv_alloc_stat st;
    int64_t n = 0;

    while (h->n_live > 0)
        history_release(h, 0);
    h->alloc->stat(h->state, &st);
    if (st.reserved_tok != 0 || h->reserved_tok != 0 || st.n_live != 0)
        return "memory is lost";
    while (n < HISTORY_LIVE && h->alloc->reserve(h->state, &large, &e[n]) == OK)
        n++;
    err_clear();
    if (n * h->setup->arena.max_tok > st.arena_tok ||
        (n + 1) * h->setup->arena.max_tok <= st.arena_tok)
        return "after all were released, fewer large blocks fit than before";
    while (n > 0)
        h->alloc->release(h->state, e[--n].id);
    return NULL;
}

static struct history history_now[HISTORY_DOMAINS]; /* large, so not on the stack */

static int history_n_domains(const struct history_setup *setup)
{
    return setup->n_domains > 0 ? setup->n_domains : 1;
}

/* The arena is not a multiple of the longest sequence, so that only an allocator that divides
 * superblocks has such a multiple. */
static void history_open(const struct history_setup *setup)
{
    struct kv_arena arena = setup->arena;
    struct kv_alloc_stat st;

    memset(history_now, 0, sizeof(history_now));
    history_bounds = (struct kv_bounds){.n = 0};
    arena.bounds = &history_bounds;
    assert_true(arena.n_tok <= HISTORY_ARENA);
    assert_true(arena.n_tok / arena.max_tok < HISTORY_LIVE);
    for (int d = 0; d < history_n_domains(setup); d++) {
        struct history *h = &history_now[d];

        h->setup = setup;
        h->alloc = setup->alloc;
        assert_ok(kv_alloc_open(h->alloc, &h->state, &arena));
        h->alloc->stat(h->state, &st);
        h->superblocks = st.arena_tok % arena.max_tok == 0;
    }
}

static void history_close(void)
{
    for (int d = 0; d < HISTORY_DOMAINS && history_now[d].state; d++)
        history_now[d].alloc->close(history_now[d].state);
}

/* An operation of one domain, which the others do not notice. */
static const char *history_any_step(const struct history_setup *setup,
                                    const struct history_op *op)
{
    int n = history_n_domains(setup), d = (int)((op->pick >> 16) % (uint32_t)n);
    struct kv_alloc_stat before[HISTORY_DOMAINS] = {{0}}, after;

    for (int i = 0; i < n; i++)
        setup->alloc->stat(history_now[i].state, &before[i]);
    TRY_RULE(history_step(&history_now[d], op));
    for (int i = 0; i < n; i++) {
        setup->alloc->stat(history_now[i].state, &after);
        if (i != d && memcmp(&before[i], &after, sizeof(after)) != 0)
            return "an operation changed another domain";
    }
    return NULL;
}

/* NULL, or the rule that the operations break; *at: by which of them. */
static const char *history_play(const struct history_setup *setup,
                                const struct history_op *ops, int n, int *at)
{
    long n_allocs = mem_n_allocs();

    *at = 0;
    while (*at < n)
        TRY_RULE(history_any_step(setup, &ops[(*at)++]));
    for (int d = 0; d < history_n_domains(setup); d++)
        TRY_RULE(history_drain(&history_now[d]));
    return mem_n_allocs() == n_allocs ? NULL : "an operation takes memory of the system";
}

/* The same of allocators that have just been opened. */
static const char *history_run(const struct history_setup *setup,
                               const struct history_op *ops, int n, int *at)
{
    const char *rule;

    history_open(setup);
    rule = history_play(setup, ops, n, at);
    history_close();
    return rule;
}

/* Leave out pieces, halves first, as long as a rule is still broken. */
static int history_shrink(const struct history_setup *setup, struct history_op *ops,
                          int n)
{
    struct history_op *less = calloc((size_t)n, sizeof(*less));
    int at;

    assert_non_null(less);
    for (int piece = n / 2; piece > 0; piece /= 2) {
        for (int i = 0; i + piece <= n;) {
            memcpy(less, ops, (size_t)i * sizeof(*ops));
            memcpy(less + i, ops + i + piece, (size_t)(n - i - piece) * sizeof(*ops));
            if (history_run(setup, less, n - piece, &at)) {
                n -= piece;
                memcpy(ops, less, (size_t)n * sizeof(*ops));
            } else {
                i += piece;
            }
        }
    }
    free(less);
    return n;
}

static void history_draw(struct history_op *ops, int n, int64_t max_tok, uint64_t seed)
{
    struct rng r;

    rng_init(&r, seed, "history");
    for (int i = 0; i < n; i++) {
        static const int kinds[] = {HISTORY_RESERVE, HISTORY_RESERVE, HISTORY_RESERVE,
                                    HISTORY_GROW,    HISTORY_GROW,    HISTORY_GROW,
                                    HISTORY_GROW,    HISTORY_COPY,    HISTORY_COPY,
                                    HISTORY_RELEASE, HISTORY_RELEASE, HISTORY_LEARN};
        struct history_op *op = &ops[i];

        op->kind = kinds[rng_below(&r, 12)];
        op->pick = (uint32_t)rng_u64(&r);
        op->n = 1 + (int64_t)rng_below(&r, (uint64_t)max_tok / (op->pick % 16 ? 4 : 1));
        op->m = (int64_t)rng_below(&r, (uint64_t)max_tok / 3);
    }
}

/* Shorten and print what breaks a rule, and fail. */
static void history_check(const struct history_setup *setup, struct history_op *ops,
                          int n, uint64_t seed)
{
    const char *rule;
    int at;

    if (!history_run(setup, ops, n, &at))
        return;
    n = history_shrink(setup, ops, n);
    rule = history_run(setup, ops, n, &at);
    for (int i = 0; i < n; i++)
        print_message("  %s pick %u n %lld m %lld\n", history_kinds[ops[i].kind],
                      ops[i].pick, (long long)ops[i].n, (long long)ops[i].m);
    fail_msg("%s: %s, by operation %d of %d (TEST_SEED=%llu)", setup->alloc->name, rule,
             at, n, (unsigned long long)seed);
}

#endif
