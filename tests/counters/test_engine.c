/* The engine's own totals: what they are by hand, and that their export through PAPI carries
 * them. */
#include <math.h>

#include "characterize/counters/counters.h"
#include "characterize/counters/publish.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "serve/serve.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

enum { PROMPT = 10, NEW = 6 };

/* The architecture "tiny": 3 layers of 6 heads and 2 KV heads of 14, dim 84, hidden 202,
 * vocabulary 1003, bf16 weights, keys and values as f32. */
enum { L = 3, D = 84, Q = 84, KV = 56, H = 202, V = 1003 };

static struct serve *open_tiny(int64_t threads, int64_t max_step_tok)
{
    struct serve_opts o;
    struct serve *s;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = (char *)tiny_model(KERN_BF16);
    o.pin = false;
    o.threads = threads;
    o.max_step_tok = max_step_tok;
    assert_ok(serve_open(&s, &o));
    o.model = NULL;
    opt_free(serve_opt_table, &o);
    return s;
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    (void)request, (void)id, (void)logits, (void)finish;
    ++*(int *)ctx;
}

static void generate(struct serve *s)
{
    int32_t prompt[PROMPT];
    int n_got = 0;
    struct serve_request r = {.prompt = prompt,
                              .n_prompt = PROMPT,
                              .max_new = NEW,
                              .ignore_eos = true,
                              .sampling = {.top_p = 1},
                              .on_token = on_token,
                              .ctx = &n_got};
    bool busy = true;
    int64_t id;

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 3 + i;
    assert_ok(serve_submit(s, &r, &id));
    while (busy)
        assert_ok(serve_step(s, &busy));
    assert_int_equal(n_got, NEW);
}

TEST(totals_by_hand)
{
    struct serve *s = open_tiny(1, 64);
    const struct serve_totals *p = serve_totals_of(s, SERVE_PREFILL);
    const struct serve_totals *d = serve_totals_of(s, SERVE_DECODE);
    /* matrices of 2 bytes with the head and a row of the embedding; norms of 4 */
    const int64_t qkv = D * (Q + KV), rest = Q * D + 3 * D * H;
    const int64_t weights = 2 * (L * (qkv + rest) + V * D + D) + 4 * (2 * L + 1) * D;
    const int64_t more_rows = 2 * (PROMPT - 1) * D; /* of the embedding */
    const int64_t kv = L * KV * 4;                  /* a token's */

    generate(s);
    assert_int_equal(p->n_steps, 1);
    assert_int_equal(p->n_tok, PROMPT);
    assert_int_equal(p->weight_bytes, weights + more_rows);
    assert_int_equal(p->kv_bytes, PROMPT * kv);
    /* the last layer behind QKV, and the head, for one row */
    assert_int_equal(p->flop,
                     2 * (L * qkv * PROMPT + rest * ((L - 1) * PROMPT + 1) + V * D) +
                         4 * Q * ((L - 1) * 55 + PROMPT));
    assert_true((double)p->flop == serve_prefill_flop(s, PROMPT));
    assert_int_equal(d->n_steps, NEW - 1);
    assert_int_equal(d->n_tok, NEW - 1);
    assert_int_equal(d->weight_bytes, (NEW - 1) * weights);
    assert_int_equal(d->kv_bytes, (11 + 12 + 13 + 14 + 15) * kv);
    assert_int_equal(d->flop, (NEW - 1) * 2 * (L * (qkv + rest) + V * D) +
                                  4 * Q * L * (11 + 12 + 13 + 14 + 15));
    assert_true(p->forward_ns > 0 && d->forward_ns > d->wait_ns);
    serve_close(&s);
}

/* A prompt in pieces costs the same operations; pieces without logits read neither the
 * head, nor the last layer behind its keys and values. */
TEST(pieces)
{
    struct serve *s = open_tiny(1, 4);
    const struct serve_totals *p = serve_totals_of(s, SERVE_PREFILL);
    const int64_t rest = Q * D + 3 * D * H;
    const int64_t whole = serve_token_bytes(s, 0);

    generate(s);
    assert_int_equal(p->n_steps, 3); /* 4 + 4 + 2 */
    assert_int_equal(p->n_tok, PROMPT);
    assert_true((double)p->flop == serve_prefill_flop(s, PROMPT));
    assert_int_equal(p->weight_bytes, 3 * whole + 2 * (PROMPT - 3) * D -
                                          2 * (2 * (rest + V * D) + 4 * 2 * D));
    assert_int_equal(p->kv_bytes, KV * 4 * ((L - 1) * (4 + 8 + 10) + 10));
    serve_close(&s);
}

static const struct {
    const char *name;
    size_t offset;
} members[] = {
    {"n_steps", offsetof(struct serve_totals, n_steps)},
    {"n_tok", offsetof(struct serve_totals, n_tok)},
    {"weight_bytes", offsetof(struct serve_totals, weight_bytes)},
    {"kv_bytes", offsetof(struct serve_totals, kv_bytes)},
    {"flop", offsetof(struct serve_totals, flop)},
    {"wait_ns", offsetof(struct serve_totals, wait_ns)},
};
enum { N_MEMBERS = sizeof(members) / sizeof(members[0]), N_ALL = 2 * N_MEMBERS };

static const int64_t *total(const struct serve *s, int i)
{
    return (const int64_t *)((const char *)serve_totals_of(s, i / N_MEMBERS) +
                             members[i % N_MEMBERS].offset);
}

TEST(papi_reads_the_same)
{
    struct serve *s = open_tiny(2, 64);
    const struct counters_provider *sde;
    char names[N_ALL][32];
    const char *events[N_ALL];
    struct counters_value v[N_ALL];
    int64_t before[N_ALL];
    struct counters *c;

    for (int i = 0; i < N_ALL; i++) {
        snprintf(names[i], sizeof(names[i]), "%s.%s",
                 i < N_MEMBERS ? "prefill" : "decode", members[i % N_MEMBERS].name);
        events[i] = names[i];
        assert_ok(counters_publish(names[i], total(s, i)));
    }
    generate(s); /* not counted */
    for (int i = 0; i < N_ALL; i++)
        before[i] = *total(s, i);
    assert_ok(counters_provider_find("sde", &sde));
    assert_ok(counters_open(&c, sde, events, N_ALL));
    assert_int_equal(counters_passes(c), 1);
    counters_start(c, 0);
    generate(s);
    generate(s);
    counters_stop(c, 0);
    counters_read(c, v);
    for (int i = 0; i < N_ALL; i++) {
        if (v[i].value != (double)(*total(s, i) - before[i]))
            fail_msg("%s: PAPI says %.17g, the engine %lld", events[i], v[i].value,
                     (long long)(*total(s, i) - before[i]));
        assert_true(v[i].value > 0 || i % N_MEMBERS == 5);
    }
    counters_close(&c);
    counters_withdraw(NULL);
    serve_close(&s);
}

static void note_thread(void *ctx, int id, int n)
{
    ((int *)ctx)[id] = n;
}

TEST(each_thread_once)
{
    struct serve *s = open_tiny(2, 64);
    int seen[3] = {0};

    serve_each_thread(s, note_thread, seen);
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], 2);
    assert_int_equal(seen[2], 0);
    serve_close(&s);
}
