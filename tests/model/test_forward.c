/* The forward step against the float64 reference: every shape trait, every ISA level this
 * machine executes, 1 to 3 threads, both KV types, and any way of cutting sequences into
 * steps. */
#include <math.h>

#include "cpu/cpu.h"
#include "kv/kv.h"
#include "model/model.h"
#include "tests/support/ref_model.h"
#include "tests/support/test.h"

#define MAX_TOK 48
#define N_SEQS  8

struct trait {
    const char *name;
    int dim, n_layers, n_heads, n_kv_heads, head_dim, hidden, vocab;
    enum kern_type type;
    bool tied, bias, interleaved, mixed;
    float scale_factor; /* of the lower rotary frequencies */
};

static const struct trait traits[] = {
    {"gqa f32", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .scale_factor = 1},
    {"odd sizes, tied, interleaved, bf16", 37, 2, 3, 3, 10, 43, 47, KERN_BF16,
     .tied = true, .interleaved = true, .scale_factor = 1},
    {"one group, bias, f16", 112, 2, 7, 1, 16, 70, 64, KERN_F16, .tied = true,
     .bias = true, .interleaved = true, .scale_factor = 1},
    {"bias, half-split", 40, 1, 4, 4, 8, 33, 33, KERN_F32, .bias = true,
     .scale_factor = 1},
    {"scaled frequencies, bf16", 64, 2, 8, 4, 64, 96, 80, KERN_BF16, .scale_factor = 8},
    {"types differ by tensor", 48, 2, 4, 2, 12, 48, 50, KERN_F32, .mixed = true,
     .interleaved = true, .scale_factor = 1},
    {"one head, one layer", 16, 1, 1, 1, 2, 5, 3, KERN_F32, .scale_factor = 1},
};
#define N_TRAITS ((int)(sizeof(traits) / sizeof(traits[0])))

static void config_of(const struct trait *t, struct model_config *c)
{
    memset(c, 0, sizeof(*c));
    snprintf(c->arch, sizeof(c->arch), "llama");
    c->dim = t->dim, c->n_layers = t->n_layers, c->n_heads = t->n_heads;
    c->n_kv_heads = t->n_kv_heads, c->head_dim = t->head_dim, c->hidden = t->hidden;
    c->vocab = t->vocab, c->max_tok = MAX_TOK;
    c->norm_eps = 1e-5f, c->rope_theta = 10000;
    c->tied = t->tied, c->qkv_bias = t->bias, c->weight_type = t->type;
    c->bos_id = c->eos_id = -1;
    for (int i = 0; i < t->head_dim / 2; i++)
        c->rope_factor[i] = i < t->head_dim / 4 ? 1 : t->scale_factor;
}

/* One opened model beside its reference. */
struct fixture {
    struct ref_model ref;
    struct par_team *team;
    struct model *model;
    struct model_phase *phase; /* of n_threads threads */
    struct kv_pool *pool;
    int vocab, n_threads;
    double *want[N_SEQS]; /* [MAX_TOK, vocab] */
    int32_t ids[N_SEQS][MAX_TOK];
    double max_abs;
};

/* From now on steps are computed by so many ranks of so many threads. */
static void fixture_phase(struct fixture *x, int n_ranks, int n_threads)
{
    const struct model_phase_opts o = {.n_ranks = n_ranks, .n_threads = n_threads};

    model_phase_close(&x->phase);
    assert_ok(model_phase_open(&x->phase, x->model, &o));
}

static void fixture_open(struct fixture *x, const struct trait *t,
                         const struct model_opts *o, int n_threads)
{
    static const int cpus[8];
    struct model_config c;
    struct kv_shape shape;
    struct rng rng;

    memset(x, 0, sizeof(*x));
    config_of(t, &c);
    x->vocab = c.vocab, x->n_threads = n_threads;
    ref_model_init(&x->ref, &c, t->interleaved, t->mixed, test_seed());
    rng_init(&rng, test_seed(), "ids");
    for (int s = 0; s < N_SEQS; s++) {
        x->want[s] = mem_new(MEM_TEST, (size_t)(MAX_TOK * c.vocab), sizeof(double));
        assert_non_null(x->want[s]);
        for (int i = 0; i < MAX_TOK; i++)
            x->ids[s][i] = (int32_t)rng_below(&rng, (uint64_t)c.vocab);
        ref_model_forward(&x->ref, x->ids[s], MAX_TOK, x->want[s]);
        for (int i = 0; i < MAX_TOK * c.vocab; i++)
            x->max_abs = fmax(x->max_abs, fabs(x->want[s][i]));
    }
    assert_ok(par_team_open(&x->team, cpus, n_threads, 0));
    assert_ok(model_open(&x->model, &x->ref.f, x->team, o));
    fixture_phase(x, 1, n_threads);
    model_kv_shape(x->model, &shape);
    assert_ok(kv_pool_open(&x->pool, NULL, &shape,
                           N_SEQS * (kv_token_bytes(&shape) * MAX_TOK + 64), MAX_TOK,
                           -1));
}

static void fixture_close(struct fixture *x)
{
    kv_pool_close(&x->pool);
    model_phase_close(&x->phase);
    model_close(&x->model);
    par_team_close(&x->team);
    for (int s = 0; s < N_SEQS; s++)
        mem_free(x->want[s]);
    ref_model_fini(&x->ref);
}

static void compare(const struct fixture *x, const float *got, int seq, int64_t pos,
                    double tolerance, const char *what)
{
    const double *want = x->want[seq] + pos * x->vocab;

    for (int i = 0; i < x->vocab; i++) {
        if (!(fabs((double)got[i] - want[i]) <= tolerance * x->max_abs))
            fail_msg("%s: %d threads, seed %llu, sequence %d, position %lld, logit %d: "
                     "%.9g, reference %.9g",
                     what, x->n_threads, (unsigned long long)test_seed(), seq,
                     (long long)pos, i, (double)got[i], want[i]);
    }
}

/* Run n_seqs sequences to their end in steps of random chunks, with and without logits,
 * in random company; check every row of logits that was asked for. */
static void run_random_steps(struct fixture *x, int n_seqs, int64_t max_step_tok,
                             double tolerance, uint64_t seed, const char *what)
{
    float *logits = mem_new(MEM_TEST, (size_t)(N_SEQS * x->vocab + 1), sizeof(float));
    struct kv_region kv[N_SEQS];
    int64_t pos[N_SEQS] = {0};
    int n_left = n_seqs, n_checked = 0;
    struct rng rng;

    assert_non_null(logits);
    rng_init(&rng, seed, "steps");
    for (int s = 0; s < n_seqs; s++)
        assert_ok(kv_reserve(x->pool, MAX_TOK, &kv[s]));
    while (n_left > 0) {
        struct model_chunk chunks[N_SEQS];
        int who[N_SEQS], n = 0, n_want = 0;
        int64_t room = max_step_tok;

        for (int s = 0; s < n_seqs && room > 0; s++) {
            int64_t left = MAX_TOK - pos[s], most = left < room ? left : room;
            int64_t len = rng_below(&rng, 2) ? 1 : 1 + (int64_t)rng_below(&rng, 40);

            if (left == 0 || rng_below(&rng, 4) == 0)
                continue;
            len = len < most ? len : most;
            chunks[n] = (struct model_chunk){.kv = &kv[s],
                                             .ids = x->ids[s] + pos[s],
                                             .n_tok = len,
                                             .pos0 = pos[s],
                                             .want_logits = rng_below(&rng, 3) > 0};
            who[n++] = s;
            room -= len;
        }
        if (n == 0)
            continue;
        for (int i = 0; i < n; i++)
            n_want += chunks[i].want_logits;
        logits[n_want * x->vocab] = 1234.5f; /* the guard behind the last row */
        assert_ok(model_forward(x->phase, chunks, n, logits));
        assert_true(logits[n_want * x->vocab] == 1234.5f);
        for (int i = 0, row = 0; i < n; i++) {
            pos[who[i]] += chunks[i].n_tok;
            n_left -= pos[who[i]] == MAX_TOK;
            if (!chunks[i].want_logits)
                continue;
            compare(x, logits + row++ * x->vocab, who[i], pos[who[i]] - 1, tolerance,
                    what);
            n_checked++;
        }
    }
    assert_true(n_checked > 0);
    for (int s = 0; s < n_seqs; s++)
        kv_release(x->pool, &kv[s]);
    mem_free(logits);
}

static void run_trait(const struct trait *t, const char *isa, const struct model_opts *o,
                      int n_threads, double tolerance)
{
    struct fixture x;
    char what[160];

    snprintf(what, sizeof(what), "%s, isa %s, %s, kv %s", t->name, isa,
             o->precision == KERN_EXACT ? "exact" : "relaxed",
             kern_type_name(o->kv_type));
    fixture_open(&x, t, o, n_threads);
    run_random_steps(&x, 1, o->max_step_tok, tolerance, test_seed(), what);
    run_random_steps(&x, 3, o->max_step_tok, tolerance, test_seed() + 1, what);
    run_random_steps(&x, N_SEQS, o->max_step_tok, tolerance, test_seed() + 2, what);
    fixture_close(&x);
}

/* Call fn for "ref" and for every level this machine executes. */
static void each_isa(void (*fn)(const char *isa))
{
    uint64_t have = cpu_isa_detected();

    assert_ok(cpu_isa_limit("ref"));
    fn("ref");
    for (int b = 0; b < CPU_N_ISA; b++) {
        if (!(have >> b & 1))
            continue;
        assert_ok(cpu_isa_limit(cpu_isa_word(b)));
        fn(cpu_isa_word(b));
    }
    assert_ok(cpu_isa_limit("auto"));
}

static struct model_opts exact_opts(void)
{
    return (struct model_opts){.weight_type = KERN_N_TYPES,
                               .kv_type = KERN_F32,
                               .precision = KERN_EXACT,
                               .max_step_tok = 96};
}

static void exact_on(const char *isa)
{
    const struct model_opts o = exact_opts();

    for (int t = 0; t < N_TRAITS; t++)
        for (int n = 1; n <= 3; n++)
            run_trait(&traits[t], isa, &o, n, 1e-4);
}

static void test_exact(void **state)
{
    (void)state;
    each_isa(exact_on);
}

/* bf16 keeps 8 bits: 2^-9 relative in each key and value. */
static void bf16_kv_on(const char *isa)
{
    struct model_opts o = exact_opts();

    o.kv_type = KERN_BF16;
    for (int t = 0; t < N_TRAITS; t++)
        run_trait(&traits[t], isa, &o, 2, 2e-2);
}

static void test_bf16_kv(void **state)
{
    (void)state;
    each_isa(bf16_kv_on);
}

static void relaxed_on(const char *isa)
{
    struct model_opts o = exact_opts();

    o.precision = KERN_RELAXED;
    for (int t = 0; t < N_TRAITS; t++)
        run_trait(&traits[t], isa, &o, 2, 2e-2);
}

static void test_relaxed(void **state)
{
    (void)state;
    each_isa(relaxed_on);
}

/* f16 and bf16 files widened to f32 give the same answer. */
static void test_widened(void **state)
{
    struct model_opts o = exact_opts();

    (void)state;
    o.weight_type = KERN_F32;
    for (int t = 0; t < N_TRAITS; t++)
        run_trait(&traits[t], "auto", &o, 2, 1e-4);
}

static void test_small_steps(void **state)
{
    struct model_opts o = exact_opts();

    (void)state;
    for (o.max_step_tok = 1; o.max_step_tok <= 5; o.max_step_tok += 2)
        run_trait(&traits[0], "auto", &o, 2, 1e-4);
}

static void test_allocates_nothing(void **state)
{
    const struct model_opts o = exact_opts();
    struct kv_region kv;
    struct fixture x;
    float logits[64];
    long before;

    (void)state;
    fixture_open(&x, &traits[0], &o, 2);
    assert_ok(kv_reserve(x.pool, MAX_TOK, &kv));
    before = mem_n_allocs();
    for (int64_t i = 0; i < MAX_TOK; i++) {
        const struct model_chunk c = {
            .kv = &kv, .ids = x.ids[0] + i, .n_tok = 1, .pos0 = i, .want_logits = true};

        assert_ok(model_forward(x.phase, &c, 1, logits));
    }
    assert_int_equal(mem_n_allocs(), before);
    kv_release(x.pool, &kv);
    fixture_close(&x);
}

/* A step may use fewer threads than the team has: plans give phases different ones. */
static void test_fewer_threads(void **state)
{
    const struct model_opts o = exact_opts();
    struct fixture x;

    (void)state;
    fixture_open(&x, &traits[4], &o, 3);
    for (x.n_threads = 3; x.n_threads >= 1; x.n_threads--) {
        fixture_phase(&x, 1, x.n_threads);
        run_random_steps(&x, 3, o.max_step_tok, 1e-4, test_seed(), "fewer threads");
    }
    fixture_close(&x);
}

static void test_refusals(void **state)
{
    struct model_opts o = exact_opts();
    int32_t ids[MAX_TOK + 1] = {0};
    struct model_chunk c = {.ids = ids, .n_tok = 1};
    struct kv_region kv;
    struct fixture x;
    struct model *m;
    float logits[64];

    (void)state;
    fixture_open(&x, &traits[0], &o, 1);
    assert_ok(kv_reserve(x.pool, MAX_TOK, &kv));
    c.kv = &kv;
    assert_err(model_forward(x.phase, &c, 0, logits), ERR_ARG, "0 chunks");
    ids[0] = 50;
    assert_err(model_forward(x.phase, &c, 1, logits), ERR_ARG, "id 50 outside [0, 50)");
    ids[0] = -1;
    assert_err(model_forward(x.phase, &c, 1, logits), ERR_ARG, "id -1");
    ids[0] = 0;
    c.pos0 = MAX_TOK;
    assert_err(model_forward(x.phase, &c, 1, logits), ERR_ARG, "past its region of 48");
    c.pos0 = INT64_MAX;
    assert_err(model_forward(x.phase, &c, 1, logits), ERR_ARG, "past its region of 48");
    c.pos0 = 0, c.n_tok = 0;
    assert_err(model_forward(x.phase, &c, 1, logits), ERR_ARG, "0 tokens");
    o.weight_type = KERN_BF16;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_UNSUPPORTED,
               "stored as f32 and cannot be kept as bf16");
    assert_null(m);
    o = exact_opts(), o.max_tok = MAX_TOK + 1;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_LIMIT, "48 tokens");
    o = exact_opts(), o.max_step_tok = 0;
    assert_err(model_open(&m, &x.ref.f, x.team, &o), ERR_ARG, "max_step_tok");
    kv_release(x.pool, &kv);
    fixture_close(&x);
}

/* Every allocation of model_open() fails in turn: a clean error, nothing kept. */
static void test_alloc_fail(void **state)
{
    struct model_opts o = exact_opts();
    struct model_config c;
    struct ref_model ref;
    struct par_team *team;
    const int cpus[1] = {0};
    long n = 0;

    (void)state;
    o.precision = KERN_RELAXED; /* walks the choice by measurement too */
    config_of(&traits[4], &c);
    ref_model_init(&ref, &c, false, false, test_seed());
    assert_ok(par_team_open(&team, cpus, 1, 0));
    for (;; n++) {
        size_t weights = mem_used_bytes(MEM_WEIGHTS),
               act = mem_used_bytes(MEM_ACTIVATIONS);
        struct model *m;
        int rc;

        mem_fail_after(n, 1);
        rc = model_open(&m, &ref.f, team, &o);
        mem_fail_after(-1, 0);
        if (rc == OK) {
            model_close(&m);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(m);
        assert_int_equal(mem_used_bytes(MEM_WEIGHTS), weights);
        assert_int_equal(mem_used_bytes(MEM_ACTIVATIONS), act);
    }
    assert_true(n >= 5);
    par_team_close(&team);
    ref_model_fini(&ref);
}

static void test_facts(void **state)
{
    const struct model_opts o = exact_opts();
    const struct model_load_stat *l;
    uint64_t ns[MODEL_T_N];
    struct kv_shape shape;
    struct fixture x;

    (void)state;
    fixture_open(&x, &traits[4], &o, 2);
    l = model_load_stat_of(x.model);
    assert_true(l->packed_bytes >= l->tensor_bytes);
    assert_true(l->load_s > 0 && l->load_gbps > 0);
    model_kv_shape(x.model, &shape);
    assert_int_equal(shape.n_kv_heads, 4);
    assert_int_equal(shape.elem_bytes, 4);
    run_random_steps(&x, 1, 8, 1e-4, 1, "facts");
    model_times_take(x.model, ns);
    assert_true(ns[MODEL_T_LINEAR] > 0 && ns[MODEL_T_ATTN] > 0 && ns[MODEL_T_HEAD] > 0);
    model_times_take(x.model, ns);
    assert_int_equal(ns[MODEL_T_LINEAR], 0);
    fixture_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),         cmocka_unit_test(test_bf16_kv),
        cmocka_unit_test(test_relaxed),       cmocka_unit_test(test_widened),
        cmocka_unit_test(test_small_steps),   cmocka_unit_test(test_allocates_nothing),
        cmocka_unit_test(test_fewer_threads), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_alloc_fail),    cmocka_unit_test(test_facts),
    };

    return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
