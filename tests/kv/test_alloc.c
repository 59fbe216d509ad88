/* Every allocator over random histories: blocks never overlap, are contiguous and aligned,
 * keep their content, move only where growing says so, and all memory comes back. That each
 * of these checks can fail is shown by allocators that break one rule each. */
#include "tests/kv/history.h"
#include "tests/support/faults.h"

#define N_LONG    50 /* histories of N_OPS operations: 100,000 of each allocator */
#define N_OPS     2000
#define N_SHORT   100000 /* histories of up to SHORT_OPS operations */
#define SHORT_OPS 40

#define ARENA                                                                            \
    .n_tok = 2048 + 37, .max_tok = 256, .align_tok = 16, .block_tok = 16,                \
    .max_seqs = HISTORY_LIVE, .n_fixed = 5

extern const struct kv_alloc kv_alloc_static, kv_alloc_paged, kv_alloc_s3, kv_alloc_odma,
    kv_alloc_odma_paper;

/* What happened in all histories of a setup. */
struct happened {
    int64_t n_moves, n_in_place, n_refused;
};

static void add_happened(struct happened *all)
{
    for (int d = 0; d < HISTORY_DOMAINS; d++) {
        struct history *h = &history_now[d];

        all->n_moves += h->n_moves;
        all->n_in_place += h->n_in_place;
        all->n_refused += h->n_refused;
        h->n_moves = h->n_in_place = h->n_refused = 0;
    }
}

/* Whether sequences grow in place. */
enum in_place { NEVER, SOMETIMES, AS_IT_MAY_BE };

static void check_happened(const struct happened *all, bool moves, enum in_place in_place)
{
    assert_true(all->n_refused > 1000); /* the arena was too small on purpose */
    print_message("# %lld moved, %lld grew in place, %lld were refused\n",
                  (long long)all->n_moves, (long long)all->n_in_place,
                  (long long)all->n_refused);
    assert_true(moves ? all->n_moves > 100 : all->n_moves == 0);
    if (in_place != AS_IT_MAY_BE)
        assert_true(in_place ? all->n_in_place > 100 : all->n_in_place == 0);
}

/* Long histories, which fill the arena in every way. */
static void over_long_histories(const struct history_setup *setup, bool moves,
                                enum in_place in_place)
{
    static struct history_op ops[N_OPS];
    struct happened all = {0};

    for (uint64_t i = 0; i < N_LONG; i++) {
        history_draw(ops, N_OPS, setup->arena.max_tok, test_seed() * 1000 + i);
        history_check(setup, ops, N_OPS, test_seed());
        add_happened(&all);
    }
    check_happened(&all, moves, in_place);
}

/* Many short ones in small arenas, one after the other in the same allocators: each finds them as
 * the first one did. */
static void over_short_histories(const struct history_setup *of, bool moves,
                                 enum in_place in_place)
{
    struct history_setup setup = *of;
    struct happened all = {0};
    struct rng r;

    setup.n_domains = HISTORY_DOMAINS;
    setup.arena.max_tok = 64;
    setup.arena.n_tok = 2 * 64 + 29;
    rng_init(&r, test_seed(), "lengths");
    history_open(&setup);
    for (uint64_t i = 0; i < N_SHORT; i++) {
        struct history_op ops[SHORT_OPS];
        int n = 1 + (int)rng_below(&r, SHORT_OPS), at;
        const char *rule;

        history_draw(ops, n, setup.arena.max_tok, test_seed() * N_SHORT + i);
        rule = history_play(&setup, ops, n, &at);
        if (rule) {
            history_close();
            history_check(&setup, ops, n, test_seed());
            fail_msg("%s: %s, after %d other histories (TEST_SEED=%llu)",
                     setup.alloc->name, rule, (int)i, (unsigned long long)test_seed());
        }
    }
    add_happened(&all);
    history_close();
    check_happened(&all, moves, in_place);
}

static void over_histories(const struct history_setup *setup, bool moves,
                           enum in_place in_place)
{
    over_long_histories(setup, moves, in_place);
    over_short_histories(setup, moves, in_place);
}

/* A new allocator is among them. */
TEST(histories_of_each)
{
    for (int i = 0; kv_allocs[i]; i++) {
        const struct history_setup s = {.alloc = kv_allocs[i], .arena = {ARENA}};

        over_histories(&s, kv_allocs[i]->several_sizes, AS_IT_MAY_BE);
    }
}

TEST(histories_of_paged)
{
    struct history_setup s = {.alloc = &kv_alloc_paged, .arena = {ARENA}};

    s.keep_tok = 4 * 64;
    s.arena.keep_frac = 0.1;
    s.arena.block_tok = 64;
    over_long_histories(&s, false, SOMETIMES);
}

TEST(histories_of_odma)
{
    struct history_setup s = {.alloc = &kv_alloc_odma, .arena = {ARENA}};

    s.arena.align_tok = 8;
    over_long_histories(&s, true, SOMETIMES);
    s.arena.align_tok = 1; /* as many sizes as there can be */
    s.arena.n_tok = HISTORY_ARENA - 1;
    over_long_histories(&s, true, SOMETIMES);
}

/* With a pool of large blocks in reserve, where memory doubles and where it becomes large. */
TEST(histories_of_odma_with_a_reserve)
{
    struct history_setup s = {.alloc = &kv_alloc_odma, .arena = {ARENA}};

    s.arena.large_frac = 0.25;
    over_histories(&s, true, SOMETIMES);
    s.arena.to_large = true;
    over_histories(&s, true, SOMETIMES);
}

/* With and without the pool; sizes that are no multiples of four units too. */
TEST(histories_of_odma_paper)
{
    struct history_setup s = {.alloc = &kv_alloc_odma_paper, .arena = {ARENA}};

    s.arena.large_frac = 0.25;
    over_histories(&s, true, NEVER);
    s.arena.large_frac = 0;
    over_long_histories(&s, true, NEVER);
    s.arena.max_tok = 208;
    s.arena.large_frac = 0.5;
    over_long_histories(&s, true, NEVER);
    s.arena.max_tok = 48;
    over_long_histories(&s, true, NEVER);
}

/* --- allocators that break one rule each */

enum sabotage {
    SHIFTED,    /* a block begins where another ends too late */
    MISALIGNED, /* begins at no multiple of the alignment */
    PROMISED,   /* says that it holds more than it does */
    SMALL,      /* does not hold the next token */
    LOST,       /* is never released */
    TOO_EARLY,  /* the block that a sequence leaves is released before its copy */
    SHORT_COPY, /* a token less is to be copied */
    REFUSED,    /* says that memory is short */
    GREEDY,     /* grows a refused sequence all the same */
    SLOW,       /* looks at everything */
    N_SABOTAGES
};
static const char *const found_as[] = {
    "two blocks overlap",
    "a block is not aligned",
    "the reserved tokens are not those of the live blocks",
    "there is no space for the next token",
    "memory is lost",
    "the reserved tokens are not those of the live blocks",
    "a move does not name what to copy",
    "after all were released, fewer large blocks fit than before",
    "a refused sequence has changed",
    "an operation takes more than constant time",
};
static enum sabotage sabotage;
static int64_t slow_visits;

static int broken_open(void **state, const struct kv_arena *a)
{
    slow_visits = 0;
    return kv_alloc_odma.open(state, a);
}

static int broken_reserve(void *state, const struct kv_need *need, struct kv_extent *out)
{
    int rc = kv_alloc_odma.reserve(state, need, out);

    slow_visits += sabotage == SLOW ? 1000 : 0;
    if (rc != OK)
        return rc;
    if (sabotage == SHIFTED && out->first_tok > 0)
        out->first_tok -= 16;
    if (sabotage == MISALIGNED)
        out->first_tok += 1;
    if (sabotage == PROMISED)
        out->cap_tok += 16;
    if (sabotage == SMALL)
        out->cap_tok = need->prompt_tok / 16 * 16;
    if (sabotage == REFUSED) {
        kv_alloc_odma.release(state, out->id);
        return err_set(ERR_NOMEM, "no");
    }
    return OK;
}

static int broken_grow(void *state, struct kv_extent *e, int64_t used_tok,
                       int64_t want_tok, struct kv_move *m)
{
    int rc = kv_alloc_odma.grow(state, e, used_tok, want_tok, m);

    if (rc == OK && m->old_id >= 0 && sabotage == TOO_EARLY)
        kv_alloc_odma.release(state, m->old_id);
    if (rc == OK && m->old_id >= 0 && sabotage == SHORT_COPY)
        m->n_tok--;
    if (rc != OK && sabotage == GREEDY)
        e->cap_tok += 16;
    return rc;
}

static void broken_moved(void *state, int64_t id)
{
    if (sabotage != TOO_EARLY)
        kv_alloc_odma.moved(state, id);
}

static void broken_release(void *state, int64_t id)
{
    if (sabotage != LOST)
        kv_alloc_odma.release(state, id);
}

static void broken_stat(const void *state, struct kv_alloc_stat *out)
{
    kv_alloc_odma.stat(state, out);
    out->n_visited += slow_visits;
}

TEST(every_rule_can_be_broken)
{
    static struct history_op ops[N_OPS];
    struct kv_alloc broken = kv_alloc_odma;
    const struct history_setup s = {.alloc = &broken, .arena = {ARENA}};

    broken.open = broken_open;
    broken.reserve = broken_reserve;
    broken.grow = broken_grow;
    broken.moved = broken_moved;
    broken.release = broken_release;
    broken.stat = broken_stat;
    for (sabotage = 0; sabotage < N_SABOTAGES; sabotage++) {
        const char *rule;
        int n, at;

        history_draw(ops, N_OPS, s.arena.max_tok, test_seed());
        assert_non_null(history_run(&s, ops, N_OPS, &at));
        n = history_shrink(&s, ops, N_OPS);
        rule = history_run(&s, ops, n, &at);
        assert_non_null(rule);
        if (strcmp(rule, found_as[sabotage]) != 0 || n > 40)
            fail_msg("sabotage %d: \"%s\" after %d operations", sabotage, rule, n);
    }
}

/* --- single rules */

/* A refusal names what is short. */
TEST(refusals_give_the_reason)
{
    static const struct {
        const struct kv_alloc *alloc;
        const char *why;
    } all[] = {
        {&kv_alloc_static, "all 8 are in use"},
        {&kv_alloc_paged, "2 of 130 blocks of 16 tokens are free, 16 are needed"},
        {&kv_alloc_s3, "no free run of 256 tokens: 2048 of 2080 tokens"},
        {&kv_alloc_odma, "2048 of 2080 tokens are reserved"},
        {&kv_alloc_odma_paper, "no free block of 256 tokens: 2048 of 2048 tokens"},
    };
    const struct kv_need large = {.prompt_tok = 255, .gen_tok = 1, .large = true},
                         too_long = {.prompt_tok = 256, .gen_tok = 1},
                         none = {.prompt_tok = 0};
    const struct kv_arena a = {ARENA};
    struct kv_extent e;
    void *regions;

    for (int i = 0; i < 5; i++) {
        assert_ok(kv_alloc_open(all[i].alloc, &regions, &a));
        for (int k = 0; k < 8; k++)
            assert_ok(all[i].alloc->reserve(regions, &large, &e));
        assert_err(all[i].alloc->reserve(regions, &large, &e), ERR_NOMEM, all[i].why);
        assert_err(all[i].alloc->reserve(regions, &too_long, &e), ERR_LIMIT,
                   "257 tokens, the longest is 256");
        assert_err(all[i].alloc->reserve(regions, &none, &e), ERR_ARG, "0 tokens");
        all[i].alloc->close(regions);
    }
}

/* Without bounds every sequence gets a large block, as with static: the same places, whatever
 * is predicted. */
static void is_static(const struct kv_alloc *alloc)
{
    const struct kv_arena a = {ARENA};
    void *fixed, *dynamic;
    struct kv_extent e[2];

    assert_ok(kv_alloc_open(&kv_alloc_static, &fixed, &a));
    assert_ok(kv_alloc_open(alloc, &dynamic, &a));
    for (int i = 0; i < 9; i++) {
        struct kv_need need = {.prompt_tok = 10 + i, .gen_tok = 1 + 20 * i};
        int rc = kv_alloc_static.reserve(fixed, &need, &e[0]);

        assert_int_equal(rc, alloc->reserve(dynamic, &need, &e[1]));
        assert_int_equal(rc, i < 8 ? OK : ERR_NOMEM);
        assert_int_equal(e[0].first_tok, e[1].first_tok);
        assert_int_equal(e[0].cap_tok, e[1].cap_tok);
    }
    kv_alloc_static.close(fixed);
    alloc->close(dynamic);
}

TEST(no_buckets_are_static)
{
    is_static(&kv_alloc_odma);
    is_static(&kv_alloc_odma_paper);
}

/* A table of one block, of the longest sequence, is a slot: with such blocks paged gives memory
 * to the same sequences as static. With blocks of 16 tokens, the smallest, no table has more than
 * one that is not full, which all histories check. */
TEST(blocks_of_the_longest_are_static)
{
    struct kv_arena a = {ARENA};
    void *slots, *tables;
    int64_t id[8][2];
    int n = 0, n_refused = 0;
    struct rng r;

    a.block_tok = a.max_tok;
    rng_init(&r, test_seed(), "limit");
    assert_ok(kv_alloc_open(&kv_alloc_static, &slots, &a));
    assert_ok(kv_alloc_open(&kv_alloc_paged, &tables, &a));
    for (int i = 0; i < 1000; i++) {
        struct kv_need need = {.prompt_tok = 1 + (int64_t)rng_below(&r, 256),
                               .gen_tok = (int64_t)rng_below(&r, 2)};
        struct kv_alloc_stat st[2];
        struct kv_extent e[2];

        if (n > 0 && rng_below(&r, 5) < 2) {
            int k = (int)rng_below(&r, (uint64_t)n--);

            kv_alloc_static.release(slots, id[k][0]);
            kv_alloc_paged.release(tables, id[k][1]);
            memcpy(id[k], id[n], sizeof(id[k]));
        } else {
            int rc = kv_alloc_static.reserve(slots, &need, &e[0]);

            assert_int_equal(rc, kv_alloc_paged.reserve(tables, &need, &e[1]));
            n_refused += rc != OK;
            if (rc != OK)
                continue;
            assert_int_equal(e[0].cap_tok, e[1].cap_tok);
            id[n][0] = e[0].id;
            id[n++][1] = e[1].id;
        }
        kv_alloc_static.stat(slots, &st[0]);
        kv_alloc_paged.stat(tables, &st[1]);
        assert_int_equal(st[0].reserved_tok, st[1].reserved_tok);
        assert_int_equal(st[0].n_live, st[1].n_live);
    }
    assert_true(n_refused > 50);
    kv_alloc_static.close(slots);
    kv_alloc_paged.close(tables);
}

/* Of ten blocks two stay free for the sequences that have some, unless a sequence is alone or will
 * not grow. */
TEST(blocks_are_kept_for_growth)
{
    struct kv_arena a = {ARENA};
    const struct kv_need seven = {.prompt_tok = 100, .gen_tok = 1},
                         two = {.prompt_tok = 16, .gen_tok = 1},
                         one = {.prompt_tok = 10, .gen_tok = 1},
                         fixed = {.prompt_tok = 16},
                         all = {.prompt_tok = 159, .gen_tok = 1};
    const struct kv_alloc *p = &kv_alloc_paged;
    struct kv_extent e[3];
    struct kv_move m;
    void *regions;

    a.n_tok = a.max_tok = 160;
    a.keep_frac = 1;
    assert_err(kv_alloc_open(p, &regions, &a), ERR_ARG, "a share of 1");
    a.keep_frac = 0.11;
    assert_ok(kv_alloc_open(p, &regions, &a));
    assert_ok(p->reserve(regions, &seven, &e[0]));
    assert_err(p->reserve(regions, &two, &e[1]), ERR_NOMEM,
               "3 of 10 blocks of 16 tokens are free, 2 are needed and 2 kept");
    assert_ok(p->reserve(regions, &one, &e[1]));
    assert_err(p->reserve(regions, &one, &e[2]), ERR_NOMEM, "2 of 10");
    assert_ok(p->grow(regions, &e[0], 101, 113, &m));
    assert_ok(p->reserve(regions, &fixed, &e[2]));
    assert_err(p->grow(regions, &e[0], 113, 129, &m), ERR_NOMEM,
               "1 are needed and 0 kept");
    for (int i = 0; i < 3; i++)
        p->release(regions, e[i].id);
    assert_ok(p->reserve(regions, &all, &e[0]));
    assert_int_equal(e[0].cap_tok, 160);
    p->close(regions);
}

/* A sequence gets the shortest free run that holds it.
 * Regression: odma and s3 rounded buckets up to parts of a superblock, so that learned
 * bounds were worth little in small memory. */
TEST(the_shortest_run_that_holds_it)
{
    const struct kv_arena a = {.n_tok = 70 * 4096, .max_tok = 69 * 4096, .align_tok = 1};
    static const int32_t sizes[] = {5000, 1, 63, 1, 66, 1, 4095, 1, 4098, 1, 70000, 1};
    struct kv_need need = {.gen_tok = 0};
    struct kv_bounds bounds = {.n = 1, .of_total = true, .align_tok = 1};
    struct kv_extent e[12], x;
    struct kv_arena with = a;
    void *regions;

    with.bounds = &bounds;
    assert_ok(kv_alloc_open(&kv_alloc_odma, &regions, &with));
    for (int i = 0; i < 12; i++) {
        bounds.tok[0] = need.prompt_tok = sizes[i];
        assert_ok(kv_alloc_odma.reserve(regions, &need, &e[i]));
    }
    for (int i = 0; i < 12; i += 2)
        kv_alloc_odma.release(regions, e[i].id);
    for (int i = 0; i < 12; i += 2)
        for (int32_t n = sizes[i] - 1; n <= sizes[i]; n++) {
            bounds.tok[0] = need.prompt_tok = n;
            assert_ok(kv_alloc_odma.reserve(regions, &need, &x));
            assert_int_equal(x.first_tok, e[i].first_tok);
            kv_alloc_odma.release(regions, x.id);
        }
    bounds.tok[0] = need.prompt_tok =
        70 * 4096 - 83327; /* one more than what is at the end */
    assert_err(kv_alloc_odma.reserve(regions, &need, &x), ERR_NOMEM,
               "no free run of 203393");
    kv_alloc_odma.close(regions);
}

static void grows_to(void *state, struct kv_extent *e, int64_t first_tok, int64_t cap_tok)
{
    int64_t was = e->first_tok, n = e->cap_tok;
    struct kv_move m = {.old_id = -1};

    assert_ok(kv_alloc_odma.grow(state, e, n, n + 1, &m));
    assert_true(e->first_tok == first_tok && e->cap_tok == cap_tok);
    assert_true(was == first_tok
                    ? m.old_id < 0
                    : m.from_tok == was && m.to_tok == first_tok && m.n_tok == n);
    kv_alloc_moved(&kv_alloc_odma, state, &m);
}

/* By the paper's rule a sequence that outgrows its memory gets what is free on its right; else it
 * moves to a large bucket, to twice as much where none is free, or to what it needs. */
TEST(what_an_outgrown_sequence_gets)
{
    struct kv_bounds bounds = {.n = 1, .of_total = true, .align_tok = 16, .tok = {64}};
    const struct kv_need need = {.prompt_tok = 40, .gen_tok = 4};
    struct kv_move m = {.old_id = -1};
    struct kv_extent e[6], x;
    struct kv_arena a = {ARENA};
    void *regions;

    a.n_tok = 640;
    a.bounds = &bounds;
    a.to_large = true;
    assert_ok(kv_alloc_open(&kv_alloc_odma, &regions, &a));
    for (int i = 0; i < 6; i++)
        assert_ok(kv_alloc_odma.reserve(regions, &need, &e[i])); /* 256 tokens are free */
    grows_to(regions, &e[0], 384, 256);
    kv_alloc_odma.release(regions, e[3].id);
    kv_alloc_odma.release(regions, e[4].id);
    grows_to(regions, &e[1], 192, 128);
    bounds.tok[0] = 48;
    assert_ok(kv_alloc_odma.reserve(regions, &need, &x));
    assert_int_equal(x.first_tok, 0);
    grows_to(regions, &e[2], 48, 80);
    grows_to(regions, &e[2], 48, 144); /* all that is free, less than twice as much */
    assert_err(kv_alloc_odma.grow(regions, &x, 48, 49, &m), ERR_NOMEM,
               "no free run of 49");
    assert_true(x.cap_tok == 48 && m.old_id < 0);
    kv_alloc_odma.close(regions);
}

/* Else it moves to twice its memory although a large bucket is free.
 * Regression: where the longest sequence was a dozen times as long as the others, each of the
 * few that outgrew their memory took as much as all of those. */
TEST(an_outgrown_sequence_gets_twice_as_much)
{
    struct kv_bounds bounds = {.n = 1, .of_total = true, .align_tok = 16, .tok = {32}};
    const struct kv_need need = {.prompt_tok = 20, .gen_tok = 4};
    struct kv_arena a = {ARENA};
    struct kv_extent e[3];
    void *regions;

    a.n_tok = 640;
    a.bounds = &bounds;
    assert_ok(kv_alloc_open(&kv_alloc_odma, &regions, &a));
    for (int i = 0; i < 3; i++)
        assert_ok(kv_alloc_odma.reserve(regions, &need, &e[i]));
    grows_to(regions, &e[0], 96, 64);
    grows_to(regions, &e[1], 160, 64);
    grows_to(regions, &e[1], 160, 128); /* in place */
    kv_alloc_odma.close(regions);
}

TEST(failed_allocations_leave_nothing)
{
    const struct kv_arena a = {ARENA};
    void *regions;

    for (int i = 0; kv_allocs[i]; i++) {
        assert_true(
            test_allocations(kv_alloc_open(kv_allocs[i], &regions, &a), !regions) > 0);
        kv_allocs[i]->close(regions);
        assert_int_equal(mem_used_bytes(MEM_KV), 0);
    }
}
