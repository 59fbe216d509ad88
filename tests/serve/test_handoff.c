/* A prompt computed by one engine and its tokens by another: the same ids and the same bits of
 * every logit as in one engine, whatever the allocators, ranks, pieces of the prompt and types on
 * both sides, whoever is canceled or preempted; and no memory that a transport has is given to
 * another request. */
#include "format/quantize.h"
#include "kv/alloc.h"
#include "make/make.h"
#include "serve/engine.h"
#include "tests/serve/handoff.h"
#include "tests/support/kv.h"
#include "tests/support/leftovers.h"
#include "tests/support/tiny_model.h"

#define N_REQUESTS 12

struct side {
    const char *alloc;
    int ranks, rank_mode;
    int64_t max_step_tok, max_seqs, kv_budget_tok;
    int admit;
};
static const struct side plain = {"static", 1, SERVE_RANKS_THREADS, 256,
                                  6,        0, SERVE_ADMIT_MAX};

static void set(struct serve_opts *o, const char *name, const char *value)
{
    assert_ok(opt_set(serve_opt_table, o, name, value, "test"));
}

/* Weights of 4 bits have rows of whole blocks. */
static const char *model_path(enum kern_type type)
{
    static char path[600], plain_path[600];
    const struct make_opts make = {.arch = "tiny-quant",
                                   .type = KERN_F32,
                                   .seed = 1,
                                   .format = "gguf",
                                   .out = plain_path,
                                   .n_threads = 1};
    struct format_quantize_opts o = {.in = plain_path, .out = path, .n_threads = 1};

    if (type == KERN_F32)
        return tiny_model(type);
    if (!path[0]) {
        snprintf(path, sizeof(path), "%s/quant.gguf", test_dir());
        snprintf(plain_path, sizeof(plain_path), "%s/plain.gguf", test_dir());
        assert_ok(make_model(&make));
        assert_ok(kern_quant_scheme_find(kern_type_name(type), &o.scheme));
        assert_ok(format_quantize(&o));
    }
    return path;
}

static struct serve *open_side(const struct side *d, enum kern_type type,
                               const char *kv_type)
{
    struct serve_opts o;
    struct serve *s;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)model_path(type);
    o.pin = false;
    o.deterministic = true;
    o.max_tok = 64;
    set(&o, "policy", "mixed");
    set(&o, "kv_type", kv_type);
    set(&o, "kv_alloc", d->alloc);
    o.kv_block = 16;
    o.threads = o.ranks = d->ranks;
    o.rank_mode = d->rank_mode;
    o.max_step_tok = d->max_step_tok;
    o.max_seqs = d->max_seqs;
    o.kv_budget_tok = d->kv_budget_tok;
    o.kv_admit = d->admit;
    o.kv_patience = 2;
    assert_ok(serve_open(&s, &o));
    o.model = NULL;
    opt_free(serve_opt_table, &o);
    return s;
}

static void alone(struct pair_answer *want, enum kern_type type, const char *kv_type)
{
    struct serve *s = open_side(&plain, type, kv_type);

    for (int i = 0; i < N_REQUESTS; i++)
        want[i] = pair_alone(s, i);
    serve_close(&s);
}

static void run_all(const struct pair_opts *o, const struct pair_answer *want)
{
    struct pair p[N_REQUESTS];
    int n_layers = 0;

    for (int i = 0; i < N_REQUESTS; i++)
        pair_submit(&p[i], o, i);
    for (int steps = 0; pair_step(p, N_REQUESTS); steps++)
        assert_true(steps < 2000);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_same_answer(&p[i].answer, &want[i]);
        n_layers = p[i].shape.n_layers;
        assert_true(p[i].n_calls >= n_layers);
        assert_int_equal(p[i].n_calls % n_layers, 0);
    }
    assert_int_equal(reserved_bytes(o->prompt), 0);
    assert_int_equal(reserved_bytes(o->token), 0);
}

static void run_sides(const struct side *prompt, const struct side *token, bool serial,
                      bool early, enum kern_type type, const char *kv_type,
                      const struct pair_answer *want)
{
    struct pair_opts o = {.prompt = open_side(prompt, type, kv_type),
                          .token = open_side(token, type, kv_type),
                          .serial = serial,
                          .early = early};

    run_all(&o, want);
    serve_close(&o.prompt);
    serve_close(&o.token);
}

/* All pairs of allocators, with one and two ranks on either side, whole prompts and pieces. */
static void all_pairs(enum kern_type type, const char *kv_type)
{
    static const char *const allocs[] = {"static", "paged", "odma"};
    struct pair_answer want[N_REQUESTS];

    alone(want, type, kv_type);
    for (int i = 0; i < 9; i++) {
        struct side prompt = plain, token = plain;

        prompt.alloc = allocs[i / 3];
        token.alloc = allocs[i % 3];
        prompt.ranks = 1 + i % 2;
        token.ranks = 2 - i % 2;
        prompt.max_step_tok = i % 4 == 0 ? 256 : 7;
        token.admit = i % 2 ? SERVE_ADMIT_NOW : SERVE_ADMIT_MAX;
        run_sides(&prompt, &token, i % 3 == 2, i % 4 == 1, type, kv_type, want);
    }
}

static bool two_cpus(void)
{
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    return b.n >= 2;
}

TEST(same_bits_f32)
{
    if (!two_cpus())
        test_skip("one CPU only");
    all_pairs(KERN_F32, "f32");
}

TEST(same_bits_bf16)
{
    if (!two_cpus())
        test_skip("one CPU only");
    all_pairs(KERN_F32, "bf16");
}

TEST(same_bits_q8)
{
    if (!two_cpus())
        test_skip("one CPU only");
    all_pairs(KERN_F32, "q8");
}

TEST(same_bits_q4_0)
{
    if (!two_cpus())
        test_skip("one CPU only");
    all_pairs(KERN_Q4_0, "q8");
}

TEST(ranks_of_processes)
{
    struct pair_answer want[N_REQUESTS];
    struct side prompt = plain, token = plain;

    if (!two_cpus())
        test_skip("one CPU only");
    alone(want, KERN_F32, "f32");
    prompt.ranks = token.ranks = 2;
    prompt.rank_mode = token.rank_mode = SERVE_RANKS_PROCESSES;
    prompt.alloc = "paged";
    prompt.max_step_tok = 9;
    run_sides(&prompt, &token, false, false, KERN_F32, "f32", want);
    left_no_child();
}

/* The token side has memory for few: the others wait, first there and then also on the prompt
 * side, whose memory they hold. */
TEST(target_full)
{
    struct pair_answer want[N_REQUESTS];

    alone(want, KERN_F32, "f32");
    for (int i = 0; i < 4; i++) {
        struct side prompt = plain, token = plain;

        prompt.max_seqs = 2;
        token.max_seqs = i % 2 ? 6 : 1;
        token.kv_budget_tok = i % 2 ? 64 : 0;
        token.alloc = i % 2 ? "paged" : "static";
        run_sides(&prompt, &token, i % 2, i < 2, KERN_F32, "f32", want);
    }
}

/* A request that grows until there is no memory is computed again from its prompt, there. */
TEST(preempted_on_the_token_side)
{
    struct pair_answer want[N_REQUESTS];
    struct side token = plain;
    struct serve_kv_stat kv;
    struct pair_opts o;

    token.alloc = "paged";
    token.admit = SERVE_ADMIT_NOW;
    token.kv_budget_tok = 80;
    alone(want, KERN_F32, "f32");
    o = (struct pair_opts){.prompt = open_side(&plain, KERN_F32, "f32"),
                           .token = open_side(&token, KERN_F32, "f32")};
    run_all(&o, want);
    serve_kv_stat(o.token, &kv);
    assert_true(kv.n_preempted > 0 && kv.n_recomputed_tok > 0);
    serve_kv_stat(o.prompt, &kv);
    assert_int_equal(kv.n_preempted, 0);
    serve_close(&o.prompt);
    serve_close(&o.token);
}

/* Whole requests and handed over ones on the same engines. */
TEST(mixed_with_whole_requests)
{
    struct pair_answer want[N_REQUESTS];
    struct side d = plain;
    struct pair p[N_REQUESTS], whole[2 * N_REQUESTS];
    struct pair_opts o;

    alone(want, KERN_F32, "f32");
    d.alloc = "paged";
    d.admit = SERVE_ADMIT_NOW;
    d.kv_budget_tok = 120;
    d.max_step_tok = 20;
    o = (struct pair_opts){.prompt = open_side(&d, KERN_F32, "f32"),
                           .token = open_side(&d, KERN_F32, "f32")};
    for (int i = 0; i < N_REQUESTS; i++)
        for (int k = 0; k < 2; k++) {
            int32_t ids[PAIR_PROMPT_MAX];
            struct serve_request r = pair_request(i, serve_vocab(o.prompt), ids);
            struct pair *w = &whole[2 * i + k];
            int64_t id;

            *w = (struct pair){.o = &o};
            r.on_token = alone_on_token;
            r.ctx = w;
            assert_ok(serve_submit(k ? o.prompt : o.token, &r, &id));
            if (k == 0)
                pair_submit(&p[i], &o, i);
        }
    for (int steps = 0; pair_step(p, N_REQUESTS); steps++)
        assert_true(steps < 5000);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_same_answer(&p[i].answer, &want[i]);
        assert_same_answer(&whole[2 * i].answer, &want[i]);
        assert_same_answer(&whole[2 * i + 1].answer, &want[i]);
    }
    assert_int_equal(reserved_bytes(o.prompt) + reserved_bytes(o.token), 0);
    serve_close(&o.prompt);
    serve_close(&o.token);
}

/* Memory in order of arrival: one that waits in the loop goes before what comes later. */
TEST(waiting_requests_go_first)
{
    struct side d = plain;
    struct pair p, whole[2];
    struct pair_opts o;
    int64_t id;
    bool busy;

    d.max_seqs = 1;
    o = (struct pair_opts){.prompt = open_side(&plain, KERN_F32, "f32"),
                           .token = open_side(&d, KERN_F32, "f32")};
    for (int i = 0; i < 2; i++) {
        int32_t ids[PAIR_PROMPT_MAX];
        struct serve_request r = pair_request(i, serve_vocab(o.token), ids);

        whole[i] = (struct pair){.o = &o};
        r.on_token = alone_on_token;
        r.ctx = &whole[i];
        assert_ok(serve_submit(o.token, &r, &id));
    }
    pair_submit(&p, &o, 2);
    do {
        assert_null(p.to);
        assert_ok(serve_step(o.token, &busy));
    } while (whole[1].answer.finish == SERVE_RUNNING);
    assert_non_null(p.to);
    while (pair_step(&p, 1))
        ;
    assert_int_equal(p.answer.finish, SERVE_LENGTH);
    serve_close(&o.prompt);
    serve_close(&o.token);
}

/* ---- cancel ---- */

/* A canceled request ends at once; its memory stays as long as a transport may have it. */
TEST(canceled_memory_stays)
{
    struct side d = plain;
    struct pair_opts o;
    struct pair p;
    bool busy;

    d.max_step_tok = 4; /* the prompt of request 0 has 20 tokens */
    o = (struct pair_opts){.prompt = open_side(&d, KERN_F32, "f32"),
                           .token = open_side(&d, KERN_F32, "f32"),
                           .early = true};
    pair_submit(&p, &o, 0);
    assert_true(pair_step(&p, 1) && p.from && p.to);
    p.canceled = true;
    serve_cancel(o.prompt, p.prompt_id);
    serve_cancel(o.token, p.token_id);
    (void)pair_step(&p, 1);
    assert_int_equal(p.answer.finish, SERVE_CANCELED);
    for (int i = 0; i < 3; i++) {
        assert_ok(serve_step(o.prompt, &busy));
        assert_false(busy);
        assert_ok(serve_step(o.token, &busy));
        assert_false(busy);
        assert_true(reserved_bytes(o.prompt) > 0 && reserved_bytes(o.token) > 0);
        assert_ptr_equal(p.to->base, kv_head_at(p.to, 0, 0)); /* both slots still are */
        assert_true(p.from->cap_tok >= p.n_prompt);
    }
    assert_ok(serve_release(o.prompt, p.prompt_id));
    assert_ok(serve_arrived(o.token, p.token_id, 1)); /* too late: that releases it */
    assert_ok(serve_step(o.prompt, &busy));
    assert_ok(serve_step(o.token, &busy));
    assert_int_equal(reserved_bytes(o.prompt) + reserved_bytes(o.token), 0);
    assert_err(serve_release(o.prompt, p.prompt_id), ERR_NOTFOUND, "no such request");
    assert_err(serve_arrived(o.token, p.token_id, 1), ERR_NOTFOUND, "no such request");
    serve_close(&o.prompt);
    serve_close(&o.token);
}

/* What a transport does when a request is canceled: it stops, and gives the memory back. */
static void drop(struct pair *p)
{
    p->canceled = true;
    serve_cancel(p->o->prompt, p->prompt_id);
    serve_cancel(p->o->token, p->token_id);
    if (p->done) /* it had been sent */
        return;
    if (p->prompt_id >= 0)
        assert_ok(serve_release(p->o->prompt, p->prompt_id));
    assert_ok(serve_release(p->o->token, p->token_id));
}

TEST(canceled_at_any_point)
{
    struct pair_answer want[N_REQUESTS];
    int n_canceled = 0, n_ended = 0;
    struct rng r;

    alone(want, KERN_F32, "f32");
    rng_init(&r, test_seed(), "cancel");
    for (int round = 0; round < 40; round++) {
        struct side prompt = plain, token = plain;
        struct pair p[N_REQUESTS];
        struct pair_opts o;

        prompt.alloc = test_kv_alloc(rng_u64(&r));
        token.alloc = test_kv_alloc(rng_u64(&r));
        prompt.max_step_tok = 1 + (int64_t)rng_below(&r, 40);
        prompt.max_seqs = 1 + (int64_t)rng_below(&r, 5);
        token.max_seqs = 1 + (int64_t)rng_below(&r, 5);
        token.admit = (int)rng_below(&r, 2);
        token.kv_budget_tok = 64 + (int64_t)rng_below(&r, 100);
        o = (struct pair_opts){.prompt = open_side(&prompt, KERN_F32, "f32"),
                               .token = open_side(&token, KERN_F32, "f32"),
                               .serial = rng_below(&r, 2)};
        for (int i = 0; i < N_REQUESTS; i++)
            pair_submit(&p[i], &o, i);
        for (int steps = 0; pair_step(p, N_REQUESTS); steps++) {
            struct pair *victim = &p[rng_below(&r, N_REQUESTS)];

            assert_true(steps < 2000);
            if (rng_below(&r, 8) == 0 && !victim->canceled &&
                victim->answer.finish == SERVE_RUNNING)
                drop(victim);
        }
        for (int i = 0; i < N_REQUESTS; i++) {
            if (p[i].answer.finish == SERVE_CANCELED) {
                assert_true(p[i].canceled);
                assert_memory_equal(p[i].answer.logits, want[i].logits,
                                    (size_t)p[i].answer.n * sizeof(want[i].logits[0]));
                n_canceled++;
            } else {
                assert_same_answer(&p[i].answer, &want[i]);
                n_ended++;
            }
        }
        assert_int_equal(reserved_bytes(o.prompt) + reserved_bytes(o.token), 0);
        serve_close(&o.prompt);
        serve_close(&o.token);
    }
    assert_true(n_canceled > 50 && n_ended > 50);
}

TEST(closed_at_any_point)
{
    for (int n_steps = 0; n_steps < 12; n_steps++) {
        struct side d = plain;
        struct pair p[N_REQUESTS];
        struct pair_opts o;

        d.max_step_tok = 9;
        d.max_seqs = 3;
        o = (struct pair_opts){.prompt = open_side(&d, KERN_F32, "f32"),
                               .token = open_side(&d, KERN_F32, "f32")};
        for (int i = 0; i < N_REQUESTS; i++)
            pair_submit(&p[i], &o, i);
        for (int k = 0; k < n_steps; k++)
            (void)pair_step(p, N_REQUESTS);
        serve_close(&o.prompt);
        serve_close(&o.token);
        for (int i = 0; i < N_REQUESTS; i++)
            assert_true(p[i].answer.finish != SERVE_RUNNING);
        assert_int_equal(mem_used_bytes(MEM_KV), 0);
    }
}

/* ---- wrong calls ---- */

TEST(refusals)
{
    struct side d = plain;
    struct serve_request r;
    struct serve_handoff h = {.side = SERVE_PROMPT_SIDE};
    int32_t ids[PAIR_PROMPT_MAX];
    struct pair_opts o;
    struct pair p[2];
    int64_t id;
    bool busy;

    d.max_seqs = 1;
    o = (struct pair_opts){.prompt = open_side(&d, KERN_F32, "f32"),
                           .token = open_side(&d, KERN_F32, "f32"),
                           .early = true};
    r = pair_request(0, serve_vocab(o.prompt), ids);
    r.on_token = pair_on_first;
    r.handoff = &h;
    assert_err(serve_submit(o.prompt, &r, &id), ERR_ARG, "the prompt side computes 1");
    r = pair_request(1, serve_vocab(o.prompt), ids);
    r.on_token = pair_on_first;
    r.handoff = &h;
    r.max_new = r.n_scored = 1;
    assert_err(serve_submit(o.prompt, &r, &id), ERR_UNSUPPORTED,
               "1 prompt tokens scored");
    for (int i = 0; i < 2; i++)
        pair_submit(&p[i], &o, 1 + i);
    assert_err(serve_arrived(o.token, p[0].token_id, 1), ERR_STATE,
               "before it has memory");
    assert_ok(serve_step(o.token, &busy));
    assert_true(p[0].to && !p[1].to);
    assert_err(serve_arrived(o.token, p[1].token_id, 1), ERR_STATE,
               "before it has memory");
    assert_err(serve_arrived(o.token, p[0].token_id, -1), ERR_ARG, "outside [0, ");
    assert_err(serve_arrived(o.token, p[0].token_id, serve_vocab(o.token)), ERR_ARG,
               "outside [0, ");
    assert_err(serve_arrived(o.token, 99, 1), ERR_NOTFOUND, "request 99");
    assert_err(serve_arrived(o.prompt, p[0].prompt_id, 1), ERR_NOTFOUND, "no such");
    assert_err(serve_release(o.prompt, 99), ERR_NOTFOUND, "request 99");
    assert_ok(serve_arrived(o.token, p[0].token_id, 1));
    assert_err(serve_arrived(o.token, p[0].token_id, 1), ERR_STATE, "arrived before");
    assert_err(serve_release(o.token, p[0].token_id), ERR_STATE, "goes on with");
    assert_ok(serve_step(o.token, &busy));
    assert_err(serve_arrived(o.token, p[0].token_id, 1), ERR_STATE, "arrived before");
    serve_close(&o.prompt);
    serve_close(&o.token);
}

/* While a transport has the only memory nothing can go on, and the engine sleeps. */
TEST(waits_for_a_release)
{
    struct side d = plain;
    struct pair_opts o;
    struct pair p[2];
    bool busy = true;

    d.max_seqs = 1;
    o = (struct pair_opts){.prompt = open_side(&d, KERN_F32, "f32"),
                           .token = open_side(&plain, KERN_F32, "f32"),
                           .early = true};
    for (int i = 0; i < 2; i++)
        pair_submit(&p[i], &o, i);
    for (int steps = 0; busy; steps++) {
        assert_ok(serve_step(o.prompt, &busy));
        assert_true(steps < 20);
    }
    assert_true(p[0].prompt_ended && !p[1].prompt_ended);
    serve_wait(o.prompt, 1000); /* until the time is over: nobody wakes it */
    assert_ok(serve_release(o.prompt, p[0].prompt_id));
    serve_wait(o.prompt, UINT64_MAX); /* the release does */
    assert_ok(serve_step(o.prompt, &busy));
    assert_true(p[1].prompt_ended);
    serve_close(&o.prompt);
    serve_close(&o.token);
}
