/* What a step costs by arithmetic is what it executes: every product, panel of weights,
 * query-key pair, key and value of random steps through random models is counted where it
 * happens, and for one shape the figures are worked by hand. */
#include <pthread.h>

#include "model/state.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "make/make.h"
#include "kernels/attn_pieces.h"
#include "tests/support/ref_model.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

/* ---- by hand ---- */

static const struct model_cost_types bf16_f32 = {.weight = KERN_BF16, .kv = KERN_KV_F32};

/* "tiny": 3 layers, dim 84, 6 heads and 2 KV heads of 14, hidden 202, vocabulary 1003. A
 * QKV projection has 84 x 140 weights, an output projection 84 x 84, a feed-forward
 * 84 x 606, the head 84 x 1003; a layer keeps 56 numbers of a token. */
TEST(tiny_by_hand)
{
    const struct model_chunk two[] = {{.n_tok = 4, .pos0 = 0},
                                      {.n_tok = 1, .pos0 = 6, .want_logits = true}};
    struct model_config c;
    struct model_cost x;

    assert_ok(make_config("tiny", &c));
    x = model_cost_step(&c, bf16_f32, two, 2);
    assert_true(x.qkv.flop == 2 * 84 * 140 * 15); /* 3 layers of 5 rows */
    assert_true(x.o.flop == 2 * 84 * 84 * 11);    /* 2 layers of 5, and 1 row */
    assert_true(x.ffn.flop == 2 * 84 * 606 * 11);
    assert_true(x.head.flop == 2 * 84 * 1003);
    /* 2 layers of 1 + 2 + 3 + 4 and 7 pairs, and 7 */
    assert_true(x.attn.flop == 4 * 84 * (2 * 17 + 7));
    assert_true(x.flop == 1810200);
    assert_true(x.qkv.weight_bytes == 3 * 84 * 140 * 2);
    assert_true(x.other.weight_bytes == 5 * 84 * 2 + 7 * 84 * 4);
    assert_true(x.weight_bytes == 590016);
    assert_true(x.kv_read_bytes == 56 * 4 * (2 * (4 + 7) + 7));
    assert_true(x.kv_write_bytes == 56 * 4 * 3 * 5);
    assert_true(x.read_bytes == x.weight_bytes + x.kv_read_bytes);

    /* No logits: the last layer ends with its keys and values, the head is not read. */
    x = model_cost_step(&c, bf16_f32, two, 1);
    assert_true(x.flop == 2 * (84 * 140 * 12 + (84 * 84 + 84 * 606) * 8) + 4 * 84 * 20);
    assert_true(x.weight_bytes ==
                2 * (84 * 140 * 3 + (84 * 84 + 84 * 606) * 2 + 4 * 84) + 5 * 84 * 4);
    assert_true(x.kv_read_bytes == 56 * 4 * 2 * 4);

    c.tied = true; /* a row of the embedding is a row of the head, if that is read */
    x = model_cost_step(&c, bf16_f32, two, 2);
    assert_true(x.weight_bytes == 590016 - 5 * 84 * 2);
    x = model_cost_step(&c, bf16_f32, two, 1);
    assert_true(x.other.weight_bytes == 4 * 84 * 2 + 5 * 84 * 4);
    c.qkv_bias = true;
    x = model_cost_step(&c, bf16_f32, two, 1);
    assert_true(x.other.weight_bytes == 4 * 84 * 2 + (5 * 84 + 3 * 140) * 4);
    c.o_bias = true; /* of the two layers that go on behind attention */
    assert_true(model_cost_step(&c, bf16_f32, two, 1).other.weight_bytes ==
                x.other.weight_bytes + 2 * 84 * 4);
    c.o_bias = false;
    c.qk_norm = true; /* two norms of a head in each layer */
    x = model_cost_step(&c, bf16_f32, two, 1);
    assert_true(x.other.weight_bytes == 4 * 84 * 2 + (5 * 84 + 3 * 140 + 6 * 14) * 4);
}

TEST(short_forms_are_steps)
{
    const struct model_chunk seqs[] = {{.n_tok = 1, .pos0 = 9, .want_logits = true},
                                       {.n_tok = 1, .pos0 = 9, .want_logits = true}};
    struct model_chunk piece = {.n_tok = 10};
    struct model_config c;
    struct model_cost a, b, d;

    assert_ok(make_config("llama-160m", &c));
    a = model_cost_step(&c, bf16_f32, seqs, 2);
    b = model_cost_decode(&c, bf16_f32, 10, 2);
    assert_memory_equal(&a, &b, sizeof(a));
    /* linear in the context, which may be a mean */
    a = model_cost_decode(&c, bf16_f32, 11, 2);
    d = model_cost_decode(&c, bf16_f32, 10.5, 2);
    assert_true(2 * d.flop == a.flop + b.flop);
    assert_true(2 * d.read_bytes == a.read_bytes + b.read_bytes);
    /* a prompt in two pieces takes the operations of the whole */
    a = model_cost_step(&c, bf16_f32, &piece, 1);
    b = model_cost_prefill(&c, bf16_f32, 7, 10);
    d = model_cost_prefill(&c, bf16_f32, 17, 0);
    assert_true(a.flop + b.flop == d.flop);
    assert_true(a.kv_write_bytes + b.kv_write_bytes == d.kv_write_bytes);
}

/* ---- as executed ---- */

enum part { QKV, O, FFN, HEAD, OTHER, N_PARTS };
enum { N_TOK = 40, N_SEQS = 3, MAX_STEP = 64 };

/* What the running step did, and which bytes of weights and of keys and values it has
 * read: one mark for the first byte of a row of a panel, or of a token's key or value. */
static struct {
    pthread_mutex_t lock;
    struct model *m;
    double flop[N_PARTS], bytes[N_PARTS], attn_flop, kv_bytes;
    uint8_t *weight_seen, *kv_seen;
    const char *kv_base;
    size_t kv_pool_bytes;
    const struct kern_variant *attn, *norm; /* the model's own */
} run = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void reset(void)
{
    memset(run.flop, 0, sizeof(run.flop));
    memset(run.bytes, 0, sizeof(run.bytes));
    run.attn_flop = run.kv_bytes = 0;
    memset(run.weight_seen, 0, run.m->weights_bytes);
    memset(run.kv_seen, 0, run.kv_pool_bytes);
}

static void read_weights(enum part part, const void *p, double bytes)
{
    size_t at = (size_t)((const char *)p - (const char *)run.m->weights);

    assert_true(at < run.m->weights_bytes);
    run.bytes[part] += run.weight_seen[at] ? 0 : bytes;
    run.weight_seen[at] = 1;
}

static bool within(const void *p, const struct kern_mat *w)
{
    return (const char *)p >= (const char *)w->data &&
           (const char *)p < (const char *)w->data + w->bytes;
}

static enum part part_of(const void *data)
{
    for (int i = 0; i < run.m->c.n_layers; i++) {
        const struct model_layer *l = &run.m->layers[i];

        if (within(data, &l->mats[MODEL_MAT_QKV]) ||
            within(data, &l->mats[MODEL_MAT_V]) ||
            within(data, &l->mats[MODEL_MAT_Q_A]) ||
            within(data, &l->mats[MODEL_MAT_LATENT_K]))
            return QKV;
        if (within(data, &l->mats[MODEL_MAT_O]) ||
            within(data, &l->mats[MODEL_MAT_LATENT_V]))
            return O;
        if (within(data, &l->mats[MODEL_MAT_GATE_UP]) ||
            within(data, &l->mats[MODEL_MAT_DOWN]))
            return FFN;
    }
    assert_true(within(data, &run.m->head));
    return HEAD;
}

/* The linker leads every call of kern_gemm_run() here. */
void __real_kern_gemm_run(const struct kern_gemm_job *j);
void __wrap_kern_gemm_run(const struct kern_gemm_job *j);

/* The real columns and rows of K of a thread's part; the rest only fills panels. */
void __wrap_kern_gemm_run(const struct kern_gemm_job *j)
{
    const struct kern_mat *w = j->w;
    int64_t n_blocks = kern_a_blocks(j->m, j->s.mr);
    int64_t rows =
        kern_a_row(j->m, n_blocks, j->i_hi) - kern_a_row(j->m, n_blocks, j->i_lo);
    int64_t k_hi = j->k_hi < w->k ? j->k_hi : w->k;
    double elem = (double)kern_type_bytes(w->type);

    pthread_mutex_lock(&run.lock);
    for (int64_t p = j->p_lo; rows > 0 && p < j->p_hi; p++) {
        int64_t left = w->n - p * KERN_PANEL,
                cols = left < KERN_PANEL ? left : KERN_PANEL;
        enum part part = part_of(w->data);

        for (int64_t k = j->k_lo; k < k_hi; k++) {
            int64_t unit = w->n_units > 1 ? k / w->k_unit : 0, row = k - unit * w->k_unit;
            /* bf16 keeps two rows in one: each has half of the bytes */
            const char *at = (const char *)kern_mat_at(w, unit, p) +
                             (size_t)(row * KERN_PANEL) * kern_type_bytes(w->type);

            run.flop[part] += 2.0 * (double)(rows * cols);
            read_weights(part, at, elem * (double)cols);
        }
        if (j->bias)
            read_weights(OTHER, j->bias + p * KERN_PANEL, KERN_PANEL * sizeof(float));
    }
    pthread_mutex_unlock(&run.lock);
    __real_kern_gemm_run(j);
}

static void counted_attn(const struct kern_attn_args *a)
{
    size_t row = kern_kv_bytes(run.m->kv_type, a->head_dim);
    int64_t end = a->pos0 + a->n_tok < a->kv_hi ? a->pos0 + a->n_tok : a->kv_hi;

    pthread_mutex_lock(&run.lock);
    for (int64_t i = 0; i < a->n_tok; i++)
        for (int64_t t = a->kv_lo; t < end && t <= a->pos0 + i; t++)
            run.attn_flop += 4.0 * a->g * a->head_dim;
    for (int64_t t = a->kv_lo; t < end; t++) {
        const struct kern_attn_piece at = kern_attn_token(a, t, row);
        size_t k = (size_t)((const char *)at.k - run.kv_base);
        size_t v = (size_t)((const char *)at.v - run.kv_base);

        assert_true(k < run.kv_pool_bytes && v < run.kv_pool_bytes);
        run.kv_bytes += (double)row * (!run.kv_seen[k] + !run.kv_seen[v]);
        run.kv_seen[k] = run.kv_seen[v] = 1;
    }
    pthread_mutex_unlock(&run.lock);
    run.attn->fn.attn(a);
}

static void counted_norm(float *out, const float *x, const float *w, int64_t n, float eps)
{
    pthread_mutex_lock(&run.lock);
    read_weights(OTHER, w, (double)n * sizeof(float));
    pthread_mutex_unlock(&run.lock);
    run.norm->fn.rmsnorm(out, x, w, n, eps);
}

/* A shape whose heads and feed-forward fill whole panels: columns that only fill a panel,
 * or that two ranks compute since their heads share one, are not counted as cost. */
static void draw_config(struct rng *r, struct model_config *c)
{
    static const enum kern_type types[] = {KERN_F32, KERN_F16, KERN_BF16};
    int group = 1 + (int)rng_below(r, 4);

    memset(c, 0, sizeof(*c));
    snprintf(c->arch, sizeof(c->arch), "llama");
    c->head_dim = KERN_PANEL * (1 + (int)rng_below(r, 3));
    c->n_kv_heads = 1 + (int)rng_below(r, 3);
    c->n_heads = group * c->n_kv_heads;
    c->n_layers = 1 + (int)rng_below(r, 3);
    c->dim = 17 + (int)rng_below(r, 80);
    c->hidden = 16 * (1 + (int)rng_below(r, 9));
    c->vocab = 20 + (int)rng_below(r, 80);
    c->max_tok = N_TOK;
    c->norm_eps = 1e-5f, c->rope_theta = 10000;
    c->tied = rng_below(r, 2), c->qkv_bias = rng_below(r, 2);
    c->qk_norm = rng_below(r, 2);
    c->weight_type = types[rng_below(r, 3)];
    c->bos_id = c->eos_id = -1;
    if (rng_below(r, 4) == 0) {
        c->qkv_bias = c->qk_norm = false;
        c->rope_dims = 16, c->latent_dim = 16 * (1 + (int)rng_below(r, 3));
        c->nope_dim = 16 * (1 + (int)rng_below(r, 2));
        c->value_dim = 16 * (1 + (int)rng_below(r, 3));
        c->q_rank = (int)rng_below(r, 3) * 17;
        model_config_latent(c, 0, 0);
    }
    for (int i = 0; i < c->head_dim / 2; i++)
        c->rope_factor[i] = 1;
}

/* Bytes of keys and values that no longer hold the pattern, which is NaN. */
static double written(const struct kv_slot *kv)
{
    size_t row = kern_kv_bytes(run.m->kv_type, run.m->c.head_dim);
    uint8_t pattern[sizeof(float) * KERN_HEAD_DIM_MAX];
    double n = 0;

    memset(pattern, 0xff, sizeof(pattern));

    for (int l = 0; l < run.m->c.n_layers; l++)
        for (int i = 0; i < 2 * run.m->c.n_kv_heads; i++)
            for (int64_t t = 0; t < kv->cap_tok; t++)
                n += memcmp(kv_token_at(kv, l, i / 2, i % 2, t, row), pattern, row)
                         ? (double)row
                         : 0;
    return n;
}

#define CHECK_EQUAL(what, got, want)                                                     \
    do {                                                                                 \
        if ((got) != (want))                                                             \
            fail_msg("seed %llu, step %d, %s: executed %.17g, model_cost_step() %.17g",  \
                     (unsigned long long)test_seed(), n_step, what, (double)(got),       \
                     (double)(want));                                                    \
    } while (0)

static void check_step(const struct model_chunk *chunks, int n, int n_step, double wrote)
{
    const struct model_config *c = &run.m->c;
    struct model_cost x = model_cost_step(c, model_cost_types_of(run.m), chunks, n);
    double rows = 0, embedding;
    bool logits = false;

    for (int i = 0; i < n; i++) {
        rows += (double)chunks[i].n_tok;
        logits |= chunks[i].want_logits;
    }
    CHECK_EQUAL("QKV FLOP", run.flop[QKV], x.qkv.flop);
    CHECK_EQUAL("output FLOP", run.flop[O], x.o.flop);
    CHECK_EQUAL("feed-forward FLOP", run.flop[FFN], x.ffn.flop);
    CHECK_EQUAL("head FLOP", run.flop[HEAD], x.head.flop);
    CHECK_EQUAL("attention FLOP", run.attn_flop, x.attn.flop);
    CHECK_EQUAL("FLOP",
                run.flop[QKV] + run.flop[O] + run.flop[FFN] + run.flop[HEAD] +
                    run.attn_flop,
                x.flop);
    CHECK_EQUAL("QKV bytes", run.bytes[QKV], x.qkv.weight_bytes);
    CHECK_EQUAL("output bytes", run.bytes[O], x.o.weight_bytes);
    CHECK_EQUAL("feed-forward bytes", run.bytes[FFN], x.ffn.weight_bytes);
    CHECK_EQUAL("head bytes", run.bytes[HEAD], x.head.weight_bytes);
    /* embedding rows are looked up by no kernel that could be counted */
    embedding =
        c->tied && logits ? 0 : rows * c->dim * (double)kern_type_bytes(c->weight_type);
    CHECK_EQUAL("other bytes", run.bytes[OTHER] + embedding, x.other.weight_bytes);
    CHECK_EQUAL("keys and values read", run.kv_bytes, x.kv_read_bytes);
    CHECK_EQUAL("keys and values written", wrote, x.kv_write_bytes);
}

/* Random chunks of N_SEQS sequences, until all are full, by any of the phases. */
static void drive(struct rng *r, struct model_phase *const *phases, int n_phases,
                  struct kv_slot *kv)
{
    int32_t ids[N_TOK] = {0};
    int64_t pos[N_SEQS] = {0}, all = 0;
    float *logits = mem_new(MEM_TEST, (size_t)(N_SEQS * run.m->c.vocab), sizeof(float));
    double before = 0;

    assert_non_null(logits);
    for (int i = 0; i < N_TOK; i++)
        ids[i] = (int32_t)rng_below(r, (uint64_t)run.m->c.vocab);
    for (int n_step = 0; all < N_SEQS * N_TOK; n_step++) {
        struct model_chunk chunks[N_SEQS];
        int64_t room = MAX_STEP;
        double after = 0;
        int n = 0;

        for (int s = 0; s < N_SEQS && room > 0; s++) {
            int64_t most = N_TOK - pos[s] < room ? N_TOK - pos[s] : room, len;

            if (most == 0 || rng_below(r, 4) == 0)
                continue;
            len = rng_below(r, 2) ? 1 : 1 + (int64_t)rng_below(r, (uint64_t)most);
            chunks[n++] = (struct model_chunk){.kv = &kv[s],
                                               .ids = ids + pos[s],
                                               .n_tok = len,
                                               .pos0 = pos[s],
                                               .want_logits = rng_below(r, 2)};
            pos[s] += len, all += len, room -= len;
        }
        if (n == 0)
            continue;
        reset();
        assert_ok(
            model_forward(phases[rng_below(r, (uint64_t)n_phases)], chunks, n, logits));
        for (int s = 0; s < N_SEQS; s++)
            after += written(&kv[s]);
        check_step(chunks, n, n_step, after - before);
        before = after;
    }
    mem_free(logits);
}

/* The model's attention and norm, counted. */
static void count_kernels(struct model *m, struct kern_variant *attn,
                          struct kern_variant *norm)
{
    enum kern_op op = kern_kv_attn(m->kv_type);

    run.m = m;
    run.attn = m->kern.v[op];
    run.norm = m->kern.v[KERN_RMSNORM];
    *attn = *run.attn;
    attn->fn.attn = counted_attn;
    *norm = *run.norm;
    norm->fn.rmsnorm = counted_norm;
    m->kern.v[op] = attn;
    m->kern.v[KERN_RMSNORM] = norm;
}

static void one_model(struct rng *r)
{
    static const struct model_phase_opts shapes[] = {{.n_ranks = 1, .n_threads = 1},
                                                     {.n_ranks = 1, .n_threads = 2},
                                                     {.n_ranks = 2, .n_threads = 1}};
    static const int cpus[2];
    struct model_opts o = {.weight_type = KERN_N_TYPES,
                           .kv_type = (enum kern_kv_type)rng_below(r, KERN_N_KV_TYPES),
                           .precision = KERN_EXACT,
                           .deterministic = rng_below(r, 3) == 0,
                           .max_step_tok = MAX_STEP};
    struct model_phase *phases[3] = {0};
    struct kv_slot kv[N_SEQS];
    struct kern_variant attn, norm;
    struct kv_pool *pool = NULL;
    struct par_team *team = NULL;
    struct model *m = NULL;
    struct model_config c;
    struct kv_shape shape;
    struct ref_model ref;
    int n_phases;

    draw_config(r, &c);
    /* Two ranks would both multiply with the first matrix of queries of low rank. */
    n_phases = o.deterministic || c.n_heads < 2 || c.q_rank > 0 ? 2 : 3;
    ref_model_init(&ref, &c, false, false, false, test_seed());
    assert_ok(par_team_open(&team, cpus, 2, 0));
    assert_ok(model_open(&m, &ref.f, team, &o));
    for (int i = 0; i < n_phases; i++)
        assert_ok(model_phase_open(&phases[i], m, &shapes[i]));
    model_kv_shape(m, &shape);
    test_kv_open(&pool, &shape, (struct kv_pool_opts){.max_tok = N_TOK}, N_SEQS);
    kv_pool_memory(pool, (void **)&run.kv_base, &run.kv_pool_bytes);
    memset((void *)run.kv_base, 0xff, run.kv_pool_bytes);
    for (int s = 0; s < N_SEQS; s++)
        test_kv_reserve(pool, N_TOK, &kv[s]);
    count_kernels(m, &attn, &norm);
    run.weight_seen = mem_new(MEM_TEST, m->weights_bytes, 1);
    run.kv_seen = mem_new(MEM_TEST, run.kv_pool_bytes, 1);
    assert_true(run.weight_seen && run.kv_seen);
    drive(r, phases, n_phases, kv);
    mem_free(run.weight_seen);
    mem_free(run.kv_seen);
    for (int i = 0; i < n_phases; i++)
        model_phase_close(&phases[i]);
    kv_pool_close(&pool);
    model_close(&m);
    par_team_close(&team);
    ref_model_fini(&ref);
}

TEST(steps_cost_what_they_execute)
{
    struct rng r;

    rng_init(&r, test_seed(), "cost");
    for (int i = 0; i < 24; i++)
        one_model(&r);
}
