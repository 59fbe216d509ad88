/* Requests that begin like a sequence before them: they get the tokens that they get alone,
 * whatever is kept, copied, gone on in or given up; what was taken from others is counted; and all
 * memory comes back. */
#include "serve/engine.h"
#include "tests/serve/tiny.h"
#include "tests/support/leftovers.h"

#define N_HISTORIES 60
#define N_CHATS     3
#define N_TURNS     4

static void set(struct serve_opts *o, const char *name, const char *value)
{
    assert_ok(opt_set(serve_opt_table, o, name, value, "test"));
}

static struct serve_opts opts(const char *alloc, bool reuse)
{
    struct serve_opts o = tiny_opts();

    set(&o, "policy", "continuous");
    set(&o, "kv_alloc", alloc);
    o.deterministic = true;
    o.kv_reuse = reuse;
    o.max_seqs = 4;
    return o;
}

/* The first n ids are those of the stem, the others the request's own. */
static void ids_of(int32_t *ids, int n, int n_stem, uint64_t stem, uint64_t own)
{
    int32_t of_stem[SEQ];

    tiny_prompt(ids, n, own);
    tiny_prompt(of_stem, n_stem, stem);
    memcpy(ids, of_stem, (size_t)n_stem * sizeof(*ids));
}

static struct tiny_got generate(struct serve *s, const int32_t *ids, int n, int max_new)
{
    struct tiny_got g;
    struct serve_request r = tiny_request(ids, n, max_new, &g);
    int64_t id;

    assert_ok(serve_submit(s, &r, &id));
    tiny_run(s);
    assert_int_equal(g.finish, SERVE_LENGTH);
    return g;
}

static struct serve_kv_stat stat_of(const struct serve *s)
{
    struct serve_kv_stat kv;

    serve_kv_stat(s, &kv);
    return kv;
}

static void close_checked(struct serve **s)
{
    serve_close(s);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

/* ---- what is taken ---- */

TEST(what_is_taken_is_counted)
{
    struct serve_opts o = opts("paged", true);
    struct serve *s = tiny_open(&o);
    int32_t ids[SEQ];

    ids_of(ids, 30, 30, 1, 1);
    (void)generate(s, ids, 30, 4); /* 33 tokens have keys and values */
    assert_true(stat_of(s).n_reused == 0 && stat_of(s).n_reused_tok == 0);
    (void)generate(s, ids, 30, 4); /* the last token of a prompt is always computed */
    assert_int_equal(stat_of(s).n_reused, 1);
    assert_int_equal(stat_of(s).n_reused_tok, 29);
    for (int n = 20; n >= 15; n -= 5) { /* exactly n tokens are alike; 15 are too few */
        ids_of(ids, 30, n + 1, 1, 2);
        ids[n] = (ids[n] + 1) % VOCAB;
        (void)generate(s, ids, 30, 4);
        assert_int_equal(stat_of(s).n_reused, 2);
        assert_int_equal(stat_of(s).n_reused_tok, 29 + 20);
    }
    close_checked(&s);
}

TEST(it_is_off_unless_asked_for)
{
    struct serve *s = tiny_open_default();
    int32_t ids[SEQ];

    tiny_prompt(ids, 30, 1);
    (void)generate(s, ids, 30, 4);
    (void)generate(s, ids, 30, 4);
    assert_true(stat_of(s).n_reused == 0 && stat_of(s).reserved_tok == 0);
    close_checked(&s);
}

/* A prompt is answered from what is kept after its first token only. */
TEST(computed_tokens_are_fewer)
{
    int64_t n_tok[2];
    int32_t ids[SEQ];

    for (int reuse = 0; reuse < 2; reuse++) {
        struct serve_opts o = opts("static", reuse);
        struct serve *s = tiny_open(&o);

        tiny_prompt(ids, 40, 1);
        (void)generate(s, ids, 40, 4);
        n_tok[reuse] = serve_totals_of(s, SERVE_PREFILL)->n_tok;
        (void)generate(s, ids, 40, 4);
        n_tok[reuse] = serve_totals_of(s, SERVE_PREFILL)->n_tok - n_tok[reuse];
        close_checked(&s);
    }
    assert_int_equal(n_tok[0], 40);
    assert_int_equal(n_tok[1], 1);
}

/* ---- the same tokens ---- */

/* Chats with one system prompt, in turns: each prompt is all that was said before. */
static void chat(struct serve *s, struct tiny_got got[N_CHATS][N_TURNS])
{
    int32_t said[N_CHATS][SEQ];
    int n[N_CHATS];
    long before;

    for (int c = 0; c < N_CHATS; c++) {
        n[c] = 24;
        ids_of(said[c], n[c], 18, 9, (uint64_t)c);
    }
    for (int t = 0; t < N_TURNS; t++) {
        int64_t id;

        for (int c = 0; c < N_CHATS; c++) { /* all at once */
            struct serve_request r = tiny_request(said[c], n[c], 5, &got[c][t]);

            if (c == 1)
                r.sampling =
                    (struct serve_sampling){.temperature = 1, .top_p = 0.9, .seed = t};
            assert_ok(serve_submit(s, &r, &id));
        }
        before = mem_n_allocs();
        tiny_run(s);
        assert_int_equal(mem_n_allocs(), before);
        for (int c = 0; c < N_CHATS; c++) {
            memcpy(said[c] + n[c], got[c][t].ids, 5 * sizeof(said[c][0]));
            n[c] += 5;
            tiny_prompt(said[c] + n[c], 3, (uint64_t)(100 * t + c));
            n[c] += 3;
        }
    }
}

static void same(struct tiny_got a[N_CHATS][N_TURNS], struct tiny_got b[N_CHATS][N_TURNS])
{
    for (int c = 0; c < N_CHATS; c++)
        for (int t = 0; t < N_TURNS; t++)
            tiny_assert_same(&a[c][t], &b[c][t]);
}

static void chat_with(const char *alloc, const char *kv_type, int64_t budget_tok,
                      int64_t ranks, struct tiny_got got[N_CHATS][N_TURNS], bool reuse)
{
    struct serve_opts o = opts(alloc, reuse);
    struct serve *s;

    set(&o, "kv_type", kv_type);
    o.kv_budget_tok = budget_tok;
    o.ranks = o.threads = ranks;
    o.kv_admit = SERVE_ADMIT_NOW;
    s = tiny_open(&o);
    chat(s, got);
    if (reuse && budget_tok == 0) {
        assert_true(stat_of(s).n_reused >= N_CHATS * (N_TURNS - 1));
        /* Each turn after the first has all but what was said last. */
        assert_true(stat_of(s).n_reused_tok >= 3 * (28 + 36 + 44));
    }
    close_checked(&s);
}

TEST(turns_of_chats_get_the_same_tokens)
{
    static const char *const kv_types[] = {"f32", "bf16", "q8"};
    static const int64_t budgets[] = {0, 2 * SEQ, SEQ + 16, SEQ};
    struct tiny_got alone[N_CHATS][N_TURNS], got[N_CHATS][N_TURNS];

    for (int k = 0; k < 3; k++) {
        chat_with("static", kv_types[k], 0, 1, alone, false);
        for (int a = 0; kv_allocs[a]; a++)
            for (int b = 0; b < 4; b++) {
                chat_with(kv_allocs[a]->name, kv_types[k], budgets[b], 1, got, true);
                same(got, alone);
            }
    }
    left_no_child();
}

TEST(ranks_get_the_same_tokens)
{
    struct tiny_got alone[N_CHATS][N_TURNS], got[N_CHATS][N_TURNS];
    struct cpu_budget budget;

    assert_ok(cpu_budget_get(&budget));
    if (budget.n < 2) {
        print_message("# skip: one CPU\n");
        skip();
    }
    chat_with("static", "f32", 0, 1, alone, false);
    for (int a = 0; kv_allocs[a]; a++) {
        chat_with(kv_allocs[a]->name, "f32", 0, 2, got, true);
        same(got, alone);
    }
}

/* ---- histories ---- */

struct history {
    struct serve *s, *plain;
    struct rng rng;
    struct tiny_got got[24];
    int32_t ids[24][SEQ];
    int n_prompt[24], max_new[24];
    int n;
    size_t kv_bytes; /* of the plain one */
};

static int below(struct history *h, int n)
{
    return (int)rng_below(&h->rng, (uint64_t)n);
}

static void submit(struct history *h)
{
    int i = h->n++, n_stem;
    struct serve_request r;
    int64_t id;

    h->n_prompt[i] = 10 + below(h, 40);
    h->max_new[i] = 1 + below(h, SEQ - h->n_prompt[i]);
    n_stem = below(h, h->n_prompt[i]);
    ids_of(h->ids[i], h->n_prompt[i], n_stem, (uint64_t)below(h, 3), (uint64_t)i);
    r = tiny_request(h->ids[i], h->n_prompt[i], h->max_new[i], &h->got[i]);
    assert_ok(serve_submit(h->s, &r, &id));
    if (below(h, 8) == 0)
        h->got[i].cancel_after_first = h->s;
}

static void run_history(struct history *h, uint64_t seed)
{
    struct serve_opts o;
    bool busy = true;
    int n_allocs = 0;

    rng_init(&h->rng, seed, "history");
    h->n = 0;
    while (kv_allocs[n_allocs])
        n_allocs++;
    o = opts(kv_allocs[below(h, n_allocs)]->name, true);
    o.kv_admit = below(h, 2) ? SERVE_ADMIT_NOW : SERVE_ADMIT_MAX;
    o.kv_budget_tok = below(h, 2) ? SEQ + below(h, 3 * SEQ) : 0;
    o.max_seqs = 1 + below(h, 5);
    o.max_step_tok = 5 + below(h, 60);
    o.kv_patience = below(h, 4);
    h->s = tiny_open(&o);
    while (busy || h->n < 24) {
        if (h->n < 24 && below(h, 3) == 0)
            submit(h);
        assert_ok(serve_step(h->s, &busy));
    }
    for (int i = 0; i < h->n; i++) {
        struct tiny_got alone;

        if (h->got[i].finish == SERVE_CANCELED) {
            assert_true(h->got[i].n < h->max_new[i]);
            continue;
        }
        assert_int_equal(h->got[i].finish, SERVE_LENGTH);
        alone = generate(h->plain, h->ids[i], h->n_prompt[i], h->max_new[i]);
        tiny_assert_same(&h->got[i], &alone);
    }
    serve_close(&h->s);
    assert_int_equal(mem_used_bytes(MEM_KV), h->kv_bytes);
}

TEST(random_histories)
{
    static struct history h;
    struct serve_opts o = opts("static", false);
    const char *text = getenv("REUSE_HISTORIES");
    int n = text ? atoi(text) : N_HISTORIES;

    h.plain = tiny_open(&o);
    h.kv_bytes = mem_used_bytes(MEM_KV);
    for (int k = 0; k < n; k++)
        run_history(&h, test_seed() + (uint64_t)k);
    serve_close(&h.plain);
}

TEST_GROUP(tiny_make, NULL);
