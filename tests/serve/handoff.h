/* tests/serve/handoff.h - two engines of one process, a request of both, and a transport that
 * copies while steps run. */
#ifndef TESTS_SERVE_HANDOFF_H
#define TESTS_SERVE_HANDOFF_H

#include "base/hash_stream.h"
#include "kernels/kern.h"
#include "kv/slot_runs.h"
#include "serve/handoff.h"
#include "tests/support/test.h"

#define PAIR_LAYERS_MAX 8
#define PAIR_NEW_MAX    32
#define PAIR_PROMPT_MAX 64

/* What a request got, from one engine or two. */
struct pair_answer {
    int32_t ids[PAIR_NEW_MAX];
    uint64_t logits[PAIR_NEW_MAX]; /* hash of each token's */
    int n;
    enum serve_finish finish;
};

struct pair_opts {
    struct serve *prompt, *token;
    bool serial; /* copy when the prompt is computed, not layer by layer */
    bool early;  /* compute the prompt before there is memory on the token side */
};

/* A request of both. */
struct pair {
    const struct pair_opts *o;
    struct kv_shape shape;
    int i;
    int64_t n_prompt, prompt_id, token_id; /* prompt_id -1: not submitted */
    const struct kv_slot *from, *to;       /* NULL: not yet */
    int64_t stored[PAIR_LAYERS_MAX], copied[PAIR_LAYERS_MAX];
    int n_calls;
    bool canceled; /* by the test */
    bool prompt_ended, done;
    int32_t first_id;
    struct pair_answer answer;
};

static inline void answer_add(struct pair_answer *a, int32_t id, const float *logits,
                              int vocab, enum serve_finish finish)
{
    struct hash_stream h;

    a->finish = finish;
    if (id < 0)
        return;
    assert_true(a->n < PAIR_NEW_MAX);
    hash_stream_init(&h);
    hash_stream_add(&h, logits, (size_t)vocab * sizeof(*logits));
    a->logits[a->n] = hash_stream_end(&h);
    a->ids[a->n++] = id;
}

static inline void pair_copy(struct pair *p, int layer)
{
    int64_t lo = p->copied[layer], hi = p->stored[layer];

    if (!p->to || !p->from || lo == hi)
        return;
    kv_slot_copy(p->to, p->from, &p->shape, layer, lo, hi, NULL);
    p->copied[layer] = hi;
}

static inline void pair_on_layer(void *ctx, int64_t request, const struct kv_slot *slot,
                                 int layer, int64_t lo, int64_t hi)
{
    struct pair *p = ctx;

    if (request != p->prompt_id || lo != p->stored[layer] || lo >= hi ||
        (layer > 0 && p->stored[layer - 1] != hi))
        abort(); /* on a thread of the team: no assertion of the test's */
    p->n_calls++;
    p->from = slot;
    p->stored[layer] = hi;
    if (!p->o->serial)
        pair_copy(p, layer);
}

/* The transport has sent all: one side goes on and the other gives its memory back. */
static inline void pair_finish(struct pair *p)
{
    if (!p->prompt_ended || !p->to || p->done || p->canceled)
        return;
    for (int l = 0; l < p->shape.n_layers; l++) {
        assert_int_equal(p->stored[l], p->n_prompt);
        pair_copy(p, l);
        assert_true(kv_slot_hash(p->to, &p->shape, l, 0, p->n_prompt) ==
                    kv_slot_hash(p->from, &p->shape, l, 0, p->n_prompt));
    }
    p->done = true;
    assert_ok(serve_arrived(p->o->token, p->token_id, p->first_id));
    assert_ok(serve_release(p->o->prompt, p->prompt_id));
}

static inline void pair_submit_prompt(struct pair *p);

static inline void pair_on_memory(void *ctx, int64_t request, const struct kv_slot *slot)
{
    struct pair *p = ctx;

    assert_int_equal(request, p->token_id);
    assert_true(slot->cap_tok >= p->n_prompt);
    p->to = slot;
    if (!p->o->early)
        pair_submit_prompt(p);
}

static inline void pair_on_first(void *ctx, int64_t request, int32_t id,
                                 const float *logits, enum serve_finish finish)
{
    struct pair *p = ctx;

    (void)request;
    p->prompt_ended = finish == SERVE_LENGTH;
    if (!p->prompt_ended) {
        assert_int_equal(finish, SERVE_CANCELED);
        return;
    }
    p->first_id = id;
    answer_add(&p->answer, id, logits, serve_vocab(p->o->prompt), SERVE_RUNNING);
}

static inline void pair_on_token(void *ctx, int64_t request, int32_t id,
                                 const float *logits, enum serve_finish finish)
{
    struct pair *p = ctx;

    assert_int_equal(request, p->token_id);
    assert_int_equal(p->answer.finish, SERVE_RUNNING);
    answer_add(&p->answer, id, logits, serve_vocab(p->o->token), finish);
}

/* The i-th request: of its own length, every third one draws its tokens. */
static inline struct serve_request pair_request(int i, int vocab,
                                                int32_t ids[PAIR_PROMPT_MAX])
{
    struct serve_request r = {.prompt = ids,
                              .n_prompt = 1 + (17 * i + 19) % 40,
                              .max_new = 2 + (5 * i) % 17,
                              .ignore_eos = true,
                              .sampling = {.top_p = 1}};
    struct rng rng;

    rng_init(&rng, (uint64_t)i, "prompt");
    for (int k = 0; k < r.n_prompt; k++)
        ids[k] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    if (i % 3 == 2)
        r.sampling = (struct serve_sampling){.temperature = 1, .top_p = 0.9, .seed = i};
    return r;
}

static inline void pair_submit_prompt(struct pair *p)
{
    const struct serve_handoff h = {
        .side = SERVE_PROMPT_SIDE, .on_layer = pair_on_layer, .ctx = p};
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(p->i, serve_vocab(p->o->prompt), ids);

    r.max_new = 1;
    r.on_token = pair_on_first;
    r.ctx = p;
    r.handoff = &h;
    assert_ok(serve_submit(p->o->prompt, &r, &p->prompt_id));
}

static inline void pair_submit(struct pair *p, const struct pair_opts *o, int i)
{
    const struct serve_handoff h = {
        .side = SERVE_TOKEN_SIDE, .on_memory = pair_on_memory, .ctx = p};
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(i, serve_vocab(o->token), ids);

    *p = (struct pair){.o = o, .i = i, .n_prompt = r.n_prompt, .prompt_id = -1};
    serve_kv_shape(o->token, &p->shape);
    assert_in_range(p->shape.n_layers, 1, PAIR_LAYERS_MAX);
    r.ctx = p;
    r.handoff = &h;
    r.on_token = pair_on_token;
    assert_ok(serve_submit(o->token, &r, &p->token_id));
    if (o->early)
        pair_submit_prompt(p);
}

/* How often requests have got from one engine to the other. */
static inline int pair_progress(const struct pair *p, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += (p[i].prompt_id >= 0) + p[i].done;
    return sum;
}

/* One step of both sides; false: neither has anything to do. */
static inline bool pair_step(struct pair *p, int n)
{
    const struct pair_opts *o = p[0].o;
    int before = pair_progress(p, n);
    bool prompt_busy, token_busy;

    assert_ok(serve_step(o->prompt, &prompt_busy));
    assert_ok(serve_step(o->token, &token_busy));
    for (int i = 0; i < n; i++)
        pair_finish(&p[i]);
    return prompt_busy || token_busy || pair_progress(p, n) > before;
}

static inline int64_t reserved_bytes(struct serve *s)
{
    struct serve_kv_stat kv;

    serve_kv_stat(s, &kv);
    return kv.reserved_bytes;
}

/* The i-th request in one engine, alone. */
static inline void alone_on_token(void *ctx, int64_t request, int32_t id,
                                  const float *logits, enum serve_finish finish)
{
    struct pair *p = ctx;

    (void)request;
    answer_add(&p->answer, id, logits, serve_vocab(p->o->prompt), finish);
}

static inline struct pair_answer pair_alone(struct serve *s, int i)
{
    int32_t ids[PAIR_PROMPT_MAX];
    struct serve_request r = pair_request(i, serve_vocab(s), ids);
    const struct pair_opts o = {.prompt = s};
    struct pair p = {.o = &o};
    bool busy = true;
    int64_t id;

    r.on_token = alone_on_token;
    r.ctx = &p;
    assert_ok(serve_submit(s, &r, &id));
    while (busy)
        assert_ok(serve_step(s, &busy));
    assert_int_equal(p.answer.finish, SERVE_LENGTH);
    assert_int_equal(p.answer.n, r.max_new);
    return p.answer;
}

static inline void assert_same_answer(const struct pair_answer *a,
                                      const struct pair_answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof(a->ids[0]));
    assert_memory_equal(a->logits, b->logits, (size_t)a->n * sizeof(a->logits[0]));
}

#endif
