/* The call that a layer's keys and values are stored: once for each layer, in order, and what is
 * stored then is what is there at the end of the step. */
#include "base/clock.h"
#include "kv/slot_runs.h"
#include "placement/open.h"
#include "ranks/procs.h"
#include "tests/support/kv.h"
#include "tests/support/leftovers.h"
#include "tests/support/step_model.h"

#define LAYERS_MAX 8
#define N_CHUNKS   2

struct seen {
    struct step_model *x;
    struct kv_shape shape;
    struct kv_slot slots[N_CHUNKS];
    struct model_chunk chunks[N_CHUNKS];
    int n; /* calls in this step */
    uint64_t hash[LAYERS_MAX][N_CHUNKS];
};

static uint64_t hash_of(const struct seen *s, int layer, int chunk)
{
    const struct model_chunk *c = &s->chunks[chunk];

    return kv_slot_hash(c->kv, &s->shape, layer, c->pos0, c->pos0 + c->n_tok);
}

static void on_stored(void *ctx, int layer)
{
    struct seen *s = ctx;

    if (layer == s->n && layer < LAYERS_MAX)
        for (int i = 0; i < N_CHUNKS; i++)
            s->hash[layer][i] = hash_of(s, layer, i);
    s->n++;
}

/* A step of two chunks by each phase: a token or many, with logits, with some and without. */
static void run_steps(struct step_model *x, struct seen *s, struct rng *r)
{
    float *logits = mem_new(MEM_TEST, N_CHUNKS * (size_t)x->vocab, sizeof(*logits));
    int64_t pos = 0;

    assert_non_null(logits);
    for (int i = 0; i < N_CHUNKS; i++)
        test_kv_reserve(x->pool, STEP_MODEL_TOK, &s->slots[i]);
    for (int step = 0; pos < STEP_MODEL_TOK; step++) {
        int64_t left = STEP_MODEL_TOK - pos, n = 1 + (int64_t)rng_below(r, 11);
        struct model_phase *p = x->phases[step % x->n_phases];

        n = step % 4 == 3 || n > left ? 1 : n;
        for (int i = 0; i < N_CHUNKS; i++)
            s->chunks[i] = (struct model_chunk){.kv = &s->slots[i],
                                                .ids = x->ids[i] + pos,
                                                .n_tok = n,
                                                .pos0 = pos,
                                                .want_logits = i < (int)rng_below(r, 3)};
        s->n = 0;
        model_phase_stored_set(p, step % 9 == 8 ? NULL : on_stored, s);
        assert_ok(model_forward(p, s->chunks, N_CHUNKS, logits));
        assert_int_equal(s->n, step % 9 == 8 ? 0 : s->shape.n_layers);
        for (int l = 0; l < s->n; l++)
            for (int i = 0; i < N_CHUNKS; i++)
                assert_true(s->hash[l][i] == hash_of(s, l, i));
        pos += n;
    }
    for (int i = 0; i < N_CHUNKS; i++)
        kv_release(x->pool, &s->slots[i]);
    mem_free(logits);
}

static void check(const struct step_trait *t, bool deterministic, bool processes)
{
    struct model_opts o = step_model_opts();
    struct step_model x;
    struct seen s = {.x = &x};
    struct rng r;

    rng_init(&r, test_seed(), t->name);
    o.deterministic = deterministic;
    o.shared = processes;
    step_model_open(&x, t, &o, 8);
    for (int n_ranks = 1; n_ranks <= 4 && n_ranks <= t->n_heads; n_ranks *= 2)
        for (int n_threads = 1; n_threads <= 2; n_threads++)
            step_model_phase(&x, n_ranks, n_threads);
    step_model_kv(&x, test_kv_alloc(rng_u64(&r)), processes);
    if (processes)
        step_model_multiprocess(&x);
    model_kv_shape(x.model, &s.shape);
    assert_in_range(s.shape.n_layers, 1, LAYERS_MAX);
    for (int round = 0; round < 6; round++)
        run_steps(&x, &s, &r);
    step_model_close(&x);
    left_no_child();
}

TEST(ranks_of_threads)
{
    for (int t = 0; t < step_n_traits; t++) {
        check(&step_traits[t], false, false);
        check(&step_traits[t], true, false);
    }
}

TEST(ranks_of_processes)
{
    for (int t = 0; t < step_n_traits; t += 2)
        check(&step_traits[t], t % 4 == 0, true);
}
