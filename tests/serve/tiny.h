/* tests/serve/tiny.h - a small random llama2c file, an engine on it, requests and what
 * they got, for the tests of the public API. */
#ifndef TESTS_SERVE_TINY_H
#define TESTS_SERVE_TINY_H

#include <math.h>

#include "serve/serve.h"
#include "tests/support/test.h"

enum { DIM = 32, HIDDEN = 40, LAYERS = 2, HEADS = 4, KV_HEADS = 2, VOCAB = 50, SEQ = 64 };

static char tiny_path[600];

static inline int tiny_make(void **state)
{
    const int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, SEQ};
    int kv = DIM / HEADS * KV_HEADS;
    int n = VOCAB * DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * DIM * kv) +
            3 * LAYERS * DIM * HIDDEN + DIM + SEQ * DIM / HEADS;
    char *buf = mem_new(MEM_TEST, 1, sizeof(header) + (size_t)n * 4);
    struct rng rng;

    (void)state;
    assert_non_null(buf);
    rng_init(&rng, test_seed(), "weights");
    memcpy(buf, header, sizeof(header));
    for (int i = 0; i < n; i++) {
        float x = (float)(rng_normal(&rng) * 0.5);

        memcpy(buf + sizeof(header) + 4 * (size_t)i, &x, 4);
    }
    snprintf(tiny_path, sizeof(tiny_path), "%s/model.bin", test_dir());
    test_write(tiny_path, buf, sizeof(header) + (size_t)n * 4);
    mem_free(buf);
    return 0;
}

static inline struct serve_opts tiny_opts(void)
{
    struct serve_opts o;

    assert_ok(opt_init(serve_opt_table, &o));
    o.model = tiny_path;
    o.pin = false; /* the tests may run beside others */
    return o;
}

static inline void tiny_free_opts(struct serve_opts *o)
{
    o->model = NULL;
    opt_free(serve_opt_table, o);
}

static inline struct serve *tiny_open(struct serve_opts *o)
{
    struct serve *s;

    assert_ok(serve_open(&s, o));
    tiny_free_opts(o);
    return s;
}

static inline struct serve *tiny_open_default(void)
{
    struct serve_opts o = tiny_opts();

    return tiny_open(&o);
}

/* What one request got. */
struct tiny_got {
    int32_t ids[SEQ];
    int n;
    enum serve_finish finish;
    int64_t request;
    struct serve *cancel_after_first; /* cancel from inside the call */
};

static inline void tiny_on_token(void *ctx, int64_t request, int32_t id,
                                 const float *logits, enum serve_finish finish)
{
    struct tiny_got *g = ctx;

    assert_int_equal(g->finish, SERVE_RUNNING); /* nothing comes after the end */
    g->request = request;
    g->finish = finish;
    if (id < 0) {
        assert_null(logits);
        assert_int_not_equal(finish, SERVE_RUNNING);
        return;
    }
    assert_true(isfinite(logits[0]) && isfinite(logits[VOCAB - 1]));
    assert_in_range(id, 0, VOCAB - 1);
    assert_true(g->n < SEQ);
    g->ids[g->n++] = id;
    if (g->cancel_after_first)
        serve_cancel(g->cancel_after_first, request);
}

static inline void tiny_prompt(int32_t *ids, int n, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, "prompt");
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, VOCAB);
}

static inline struct serve_request tiny_request(const int32_t *ids, int n, int max_new,
                                                struct tiny_got *g)
{
    memset(g, 0, sizeof(*g));
    return (struct serve_request){.prompt = ids,
                                  .n_prompt = n,
                                  .max_new = max_new,
                                  .ignore_eos = true,
                                  .sampling = {.top_p = 1},
                                  .on_token = tiny_on_token,
                                  .ctx = g};
}

static inline void tiny_run(struct serve *s)
{
    bool busy = true;

    for (int steps = 0; busy; steps++) {
        assert_ok(serve_step(s, &busy));
        assert_true(steps < 10000);
    }
}

/* One request alone. */
static inline void tiny_generate(struct serve *s, int n_prompt, int max_new,
                                 uint64_t seed, struct tiny_got *g)
{
    int32_t ids[SEQ] = {0};
    struct serve_request r = tiny_request(ids, n_prompt, max_new, g);
    int64_t id;

    tiny_prompt(ids, n_prompt, seed);
    assert_ok(serve_submit(s, &r, &id));
    memset(ids, 0xff, sizeof(ids)); /* it was copied */
    tiny_run(s);
    assert_int_equal(g->request, id);
    assert_int_equal(g->finish, SERVE_LENGTH);
    assert_int_equal(g->n, max_new);
}

static inline void tiny_assert_same(const struct tiny_got *a, const struct tiny_got *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof(a->ids[0]));
}

#endif
