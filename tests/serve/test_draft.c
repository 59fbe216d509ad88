/* Guesses of the next tokens: whoever guesses and however wrongly, requests get the tokens that
 * they get without, alone and together, sampled or not, whatever the memory; and what was guessed
 * is counted. */
#include "base/file.h"
#include "kv/alloc.h"
#include "serve/draft.h"
#include "tests/serve/tiny.h"
#include "tests/support/tiny_model.h"

enum { N = 5 };

static char other_path[600], large_path[600];

/* A model of the same vocabulary that says other things. */
static int make(void **state)
{
    int32_t vocab = VOCAB + 1;
    size_t n;
    char *bytes;

    if (tiny_make(state) != 0)
        return -1;
    assert_ok(file_read(&bytes, &n, tiny_path, 1 << 20));
    snprintf(other_path, sizeof(other_path), "%s/other.bin", test_dir());
    for (size_t i = 7 * 4 + 3; i < 7 * 4 + VOCAB * DIM * 4; i += 8)
        bytes[i] = (char)(bytes[i] ^ 0x80); /* the sign of every other weight */
    test_write(other_path, bytes, n);
    mem_free(bytes);
    bytes = mem_new(MEM_TEST, 1, n + DIM * 4);
    memset(bytes, 0, n + DIM * 4);
    memcpy(bytes, (const int32_t[]){DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, vocab, SEQ},
           28);
    snprintf(large_path, sizeof(large_path), "%s/large.bin", test_dir());
    test_write(large_path, bytes, n + DIM * 4);
    mem_free(bytes);
    return 0;
}

static void set(struct serve_opts *o, const char *name, const char *value)
{
    assert_ok(opt_set(serve_opt_table, o, name, value, "test"));
}

/* `draft` NULL: none. */
static struct serve_opts opts(const char *draft, int draft_tok)
{
    struct serve_opts o = tiny_opts();

    set(&o, "policy", "continuous");
    o.deterministic = true;
    o.max_seqs = N;
    o.draft_tok = draft_tok;
    o.draft_adapt = false;
    if (draft)
        set(&o, "draft", draft);
    return o;
}

static struct serve_draft_stat stat_of(const struct serve *s)
{
    struct serve_draft_stat d;

    serve_draft_stat(s, &d);
    return d;
}

/* Requests that come at once: of several lengths, every other one sampled. The last repeats
 * itself. */
static void generate(struct serve *s, struct tiny_got got[N])
{
    int32_t ids[N][SEQ];
    long before;
    int64_t id;

    for (int i = 0; i < N; i++) {
        int n = 3 + 5 * i;
        struct serve_request r;

        tiny_prompt(ids[i], n, (uint64_t)i);
        for (int k = 4; i == N - 1 && k < n; k++)
            ids[i][k] = ids[i][k % 4];
        r = tiny_request(ids[i], n, 1 + 9 * i, &got[i]);
        r.ignore_eos = i != 2;
        if (i % 2)
            r.sampling = (struct serve_sampling){
                .temperature = 1, .top_p = 0.9, .typical_p = i == 3 ? 0.9 : 0, .seed = i};
        if (i > 1) /* what was taken counts, what was guessed does not */
            r.sampling.frequency_penalty = 0.5, r.sampling.repetition_penalty = 1.2;
        assert_ok(serve_submit(s, &r, &id));
    }
    before = mem_n_allocs();
    tiny_run(s);
    assert_int_equal(mem_n_allocs(), before);
    for (int i = 0; i < N; i++)
        assert_true(got[i].finish == SERVE_LENGTH || got[i].finish == SERVE_EOS);
}

static void generate_with(struct serve_opts *o, struct tiny_got got[N],
                          struct serve_draft_stat *d)
{
    struct serve *s = tiny_open(o);

    generate(s, got);
    *d = stat_of(s);
    assert_in_range(d->n_checked, 0, d->n_guessed);
    assert_in_range(d->n_right, 0, d->n_checked);
    serve_close(&s);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

static void same(const struct tiny_got a[N], const struct tiny_got b[N])
{
    for (int i = 0; i < N; i++) {
        tiny_assert_same(&a[i], &b[i]);
        assert_int_equal(a[i].finish, b[i].finish);
    }
}

TEST(same_tokens_whoever_guesses)
{
    const char *const drafts[] = {"lookup", tiny_path, other_path};
    const char *const kv_types[] = {"f32", "bf16", "q8"};
    struct tiny_got alone[N], got[N];
    struct serve_draft_stat d;

    for (int k = 0; k < 3; k++) {
        struct serve_opts o = opts(NULL, 4);

        set(&o, "kv_type", kv_types[k]);
        generate_with(&o, alone, &d);
        assert_true(d.n_guessed == 0 && d.n_checked == 0 && d.bytes == 0);
        for (int i = 0; i < 3; i++)
            for (int n_tok = 1; n_tok <= 9; n_tok += 4) {
                o = opts(drafts[i], n_tok);
                set(&o, "kv_type", kv_types[k]);
                generate_with(&o, got, &d);
                assert_true(d.n_guessed > 0);
                assert_true((d.bytes > 0) == (i > 0));
                same(got, alone);
            }
    }
}

/* Memory of any kind, too little of it, so that requests are preempted, and few rows of a step. */
TEST(same_tokens_in_any_memory)
{
    const char *const drafts[] = {"lookup", tiny_path, other_path};
    struct tiny_got alone[N], got[N];
    struct serve_opts o = opts(NULL, 4);
    struct serve_draft_stat d;

    generate_with(&o, alone, &d);
    for (int a = 0; kv_allocs[a]; a++)
        for (int i = 0; i < 3; i++)
            for (int tight = 0; tight < 2; tight++) {
                o = opts(drafts[i], 4);
                set(&o, "kv_alloc", kv_allocs[a]->name);
                o.kv_admit = SERVE_ADMIT_NOW;
                o.kv_budget_tok = tight ? SEQ + 16 : 0;
                o.max_step_tok = tight ? 7 : 512;
                o.kv_reuse = tight;
                o.draft_adapt = tight;
                generate_with(&o, got, &d);
                same(got, alone);
            }
}

/* A model's own guesses are all right, and one step brings all of them. */
TEST(right_guesses_save_steps)
{
    struct serve_opts o = opts(tiny_path, 4);
    struct serve *s = tiny_open(&o);
    struct tiny_got got;

    tiny_generate(s, 6, 41, 1, &got);
    /* the prompt gives the first, then 8 steps five each */
    assert_int_equal(serve_totals_of(s, SERVE_DECODE)->n_steps, 8);
    assert_int_equal(serve_totals_of(s, SERVE_DECODE)->n_tok, 40);
    assert_int_equal(stat_of(s).n_guessed, 32);
    assert_int_equal(stat_of(s).n_checked, 32);
    assert_int_equal(stat_of(s).n_right, 32);
    serve_close(&s);
}

/* Of a sampled request: what the model would have said itself, and what it says. */
struct said {
    int32_t likely[SEQ], ids[SEQ];
    int n;
};

static void hear(void *ctx, int64_t request, int32_t id, const float *logits,
                 enum serve_finish finish)
{
    struct said *k = ctx;
    int best = 0;

    (void)request, (void)finish;
    for (int i = 1; i < VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    k->likely[k->n] = best;
    k->ids[k->n++] = id;
}

/* Its own model guesses what is likely after what was said, also after wrong guesses. k: what it
 * says at this temperature. */
static struct serve_draft_stat say(struct said *k, double temperature, bool adapts)
{
    struct serve_opts o = opts(tiny_path, 3);
    struct serve_draft_stat d;
    struct serve *s;
    struct serve_request r;
    struct tiny_got unused;
    int32_t ids[6];
    int64_t id;

    o.draft_adapt = adapts;
    s = tiny_open(&o);
    tiny_prompt(ids, 6, 1);
    r = tiny_request(ids, 6, SEQ - 6, &unused);
    r.sampling =
        (struct serve_sampling){.temperature = temperature, .top_p = 1, .seed = 1};
    r.on_token = hear;
    r.ctx = k;
    k->n = 0;
    assert_ok(serve_submit(s, &r, &id));
    tiny_run(s);
    assert_int_equal(k->n, SEQ - 6);
    d = stat_of(s);
    serve_close(&s);
    return d;
}

/* What say() guesses if it makes at most *most guesses for a step, which then() changes. */
static struct serve_draft_stat expected(const struct said *k,
                                        void (*then)(int *most, bool all_right))
{
    struct serve_draft_stat d = {0};
    int most = then ? 0 : 3;

    for (int at = 1, right; at < k->n; at += 1 + right) { /* the tokens of a step */
        int left = k->n - at - 1, n;

        if (most <= 0)
            most++;
        n = most < 0 ? 0 : most < left ? most : left;
        for (right = 0; right < n && k->ids[at + right] == k->likely[at + right];)
            right++;
        d.n_guessed += n;
        d.n_checked += right < n ? right + 1 : right;
        d.n_right += right;
        if (then && n > 0)
            then(&most, right == n);
    }
    return d;
}

static void same_counts(struct serve_draft_stat a, struct serve_draft_stat b)
{
    assert_int_equal(a.n_guessed, b.n_guessed);
    assert_int_equal(a.n_checked, b.n_checked);
    assert_int_equal(a.n_right, b.n_right);
}

TEST(wrong_guesses_are_forgotten)
{
    struct serve_draft_stat d;
    struct said k;

    d = say(&k, 0.7, false);
    assert_true(d.n_right > 0 && d.n_right < d.n_checked);
    same_counts(d, expected(&k, NULL));
}

static void more_or_fewer(int *most, bool all_right)
{
    if (all_right)
        *most = *most + 2 < 3 ? *most + 2 : 3;
    else
        *most = *most == 1 ? -8 : *most - 1;
}

/* One guess to begin with, two more after right ones, one less after a wrong one, and after the
 * last of them none for eight steps. */
TEST(guesses_follow_what_became_of_earlier_ones)
{
    static const double temperatures[] = {0, 0.7, 1, 20};
    struct serve_draft_stat d;
    struct said k;

    for (int i = 0; i < 4; i++) {
        d = say(&k, temperatures[i], true);
        same_counts(d, expected(&k, more_or_fewer));
    }
    /* at the last hardly any was right, so that there were few */
    assert_true(d.n_guessed < SEQ / 4);
    assert_true(say(&k, 20, false).n_guessed > SEQ);
}

/* The last steps have room for fewer, and a request of one token for none. */
TEST(no_guess_beyond_the_end)
{
    struct serve_opts o = opts(tiny_path, 32);
    struct serve *s = tiny_open(&o);
    struct tiny_got got;

    tiny_generate(s, 6, 1, 1, &got);
    tiny_generate(s, 6, 2, 1, &got);
    assert_int_equal(stat_of(s).n_guessed, 0);
    tiny_generate(s, 6, SEQ - 6, 1,
                  &got); /* 58: the prompt gives 1, the steps 33 and 24 */
    assert_int_equal(stat_of(s).n_guessed, 32 + 23);
    serve_close(&s);
}

/* What followed the latest of the places that end most alike. */
static void looks_up(const int32_t *said, int n_said, const int32_t *then, int n_then)
{
    int32_t ids[SEQ];
    struct serve_seq q = {.r = {.n_prompt = n_said}, .ids = ids, .n_draft = 4};
    struct serve_seq *one = &q;

    memcpy(ids, said, (size_t)n_said * sizeof(*ids));
    assert_ok(serve_drafter_lookup.guess(NULL, &one, 1));
    assert_int_equal(q.n_draft, n_then);
    assert_memory_equal(ids + n_said, then, (size_t)n_then * sizeof(*ids));
}
#define IDS(...)                                                                         \
    (const int32_t[]){__VA_ARGS__}, (int)(sizeof((int32_t[]){__VA_ARGS__}) / 4)

TEST(what_lookup_finds)
{
    looks_up(IDS(1, 2, 3, 9, 1, 2, 3), IDS(9, 1, 2, 3));
    looks_up(IDS(1, 2, 8, 1, 2, 7, 0, 1, 2), IDS(7, 0, 1, 2));       /* the latest */
    looks_up(IDS(5, 1, 2, 8, 6, 1, 2, 7, 5, 1, 2), IDS(8, 6, 1, 2)); /* the longest */
    looks_up(IDS(4, 4, 4), IDS(4, 4, 4, 4)); /* into the guesses */
    looks_up(IDS(1, 2, 3, 4, 3), NULL, 0);   /* one token says nothing */
    looks_up(IDS(1), NULL, 0);
    looks_up(IDS(1, 2, 3, 4, 5, 6), NULL, 0);
}

TEST(what_cannot_draft_is_refused)
{
    struct serve_opts o = opts(large_path, 4);
    struct serve *s;

    assert_int_equal(serve_open(&s, &o), ERR_ARG);
    assert_non_null(strstr(err_msg(), "vocabulary: expected 50 tokens"));
    assert_non_null(strstr(err_msg(), "found 51"));
    tiny_free_opts(&o);
    o = opts("nowhere.gguf", 4);
    assert_int_equal(serve_open(&s, &o), ERR_NOTFOUND);
    assert_non_null(strstr(err_msg(), "draft: nowhere.gguf"));
    tiny_free_opts(&o);
    o = opts("lookup", 4);
    o.rank_mode = SERVE_RANKS_PROCESSES;
    assert_int_equal(serve_open(&s, &o), ERR_UNSUPPORTED);
    tiny_free_opts(&o);
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

TEST_GROUP(make, NULL);

/* Its ids are as many, but one of them is another text. */
TEST(other_tokens_are_refused)
{
    struct serve_opts o;
    struct serve *s;
    char path[600], *bytes, *at;
    size_t n;

    assert_ok(file_read(&bytes, &n, tiny_model(KERN_F32), 1 << 24));
    at = memmem(bytes, n, "</s>", 4);
    assert_non_null(at);
    at[1] = '-';
    snprintf(path, sizeof(path), "%s/other_tokens.gguf", test_dir());
    test_write(path, bytes, n);
    mem_free(bytes);
    o = opts(path, 4);
    o.model = NULL; /* it is lent */
    set(&o, "model", tiny_model(KERN_F32));
    assert_err(serve_open(&s, &o), ERR_ARG, "its tokens have other texts");
    set(&o, "draft", tiny_model(KERN_F32));
    assert_ok(serve_open(&s, &o));
    serve_close(&s);
    opt_free(serve_opt_table, &o);
}
