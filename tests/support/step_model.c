#include "tests/support/step_model.h"

#include <math.h>

#include "ranks/procs.h"
#include "tests/support/test.h"
#include "tests/support/kv.h"

const struct step_trait step_traits[] = {
    {"gqa f32", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .scale_factor = 1},
    {"odd sizes, tied, interleaved, bf16", 37, 2, 3, 3, 10, 43, 47, KERN_BF16,
     .tied = true, .interleaved = true, .scale_factor = 1},
    {"one group, bias, f16", 112, 2, 7, 1, 16, 70, 64, KERN_F16, .tied = true,
     .bias = true, .interleaved = true, .scale_factor = 1},
    {"biases of all, half-split", 40, 1, 4, 4, 8, 33, 33, KERN_F32, .bias = true,
     .o_bias = true, .scale_factor = 1},
    {"scaled frequencies, bf16", 64, 2, 8, 4, 64, 96, 80, KERN_BF16, .scale_factor = 8},
    {"types differ by tensor", 48, 2, 4, 2, 12, 48, 50, KERN_F32, .mixed = REF_MIXED,
     .interleaved = true, .scale_factor = 1},
    {"normalised heads, bf16", 44, 2, 6, 2, 14, 48, 50, KERN_BF16, .qk_norm = true,
     .interleaved = true, .scale_factor = 1},
    {"all experts, f32", 48, 2, 4, 2, 12, 0, 50, KERN_F32, .scale_factor = 1,
     .n_experts = 3, .n_active = 3, .expert_hidden = 40, .norm_topk = true},
    {"all experts and a shared one, bf16", 40, 1, 4, 4, 10, 72, 47, KERN_BF16,
     .scale_factor = 1, .n_experts = 2, .n_active = 2, .expert_hidden = 150},
    {"one head, one layer", 16, 1, 1, 1, 2, 5, 3, KERN_F32, .scale_factor = 1},
    {"biases of all, bf16", 52, 2, 6, 2, 10, 40, 37, KERN_BF16, .bias = true,
     .o_bias = true, .interleaved = true, .scale_factor = 1},
};
const int step_n_traits = sizeof(step_traits) / sizeof(step_traits[0]);

const struct step_trait step_quant_traits[] = {
    {"q4_0", 64, 2, 4, 2, 16, 352, 50, KERN_Q4_0, .interleaved = true, .scale_factor = 1},
    {"q4_1, odd heads, tied, bias", 96, 2, 5, 5, 32, 160, 47, KERN_Q4_1, .tied = true,
     .bias = true, .scale_factor = 1},
    {"q8_0, normalised heads", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .qk_norm = true,
     .interleaved = true, .scale_factor = 1},
    {"q4_k with more bits for some", 256, 3, 8, 2, 32, 256, 37, KERN_Q4_K,
     .mixed = REF_MIXED, .bias = true, .o_bias = true, .interleaved = true,
     .scale_factor = 1},
    {"q5_k with more bits for some, tied", 256, 2, 4, 4, 64, 512, 33, KERN_Q5_K,
     .mixed = REF_MIXED, .tied = true, .scale_factor = 1},
    {"q6_k, one group", 256, 1, 16, 1, 16, 256, 48, KERN_Q6_K, .scale_factor = 1},
    {"q5_0, one group", 96, 2, 6, 1, 16, 288, 31, KERN_Q5_0, .scale_factor = 1},
    {"q5_1, tied", 64, 1, 4, 4, 32, 224, 40, KERN_Q5_1, .tied = true, .scale_factor = 1},
    {"w4c", 64, 2, 4, 2, 16, 352, 50, KERN_W4C, .interleaved = true, .scale_factor = 1},
    {"q4_0 with keys and values in q8_0", 96, 2, 8, 2, 20, 288, 50, KERN_Q4_0,
     .bias = true, .qk_norm = true, .interleaved = true, .mixed = REF_MIXED_KEYS,
     .scale_factor = 1},
    {"iq4_xs, tied", 256, 1, 8, 2, 32, 256, 40, KERN_IQ4_XS, .tied = true,
     .scale_factor = 1},
    {"iq4_nl", 64, 2, 4, 2, 16, 352, 50, KERN_IQ4_NL, .scale_factor = 1},
    {"w4g128", 128, 1, 4, 2, 32, 256, 37, KERN_W4G128, .scale_factor = 1},
    {"w8g128, tied", 128, 2, 4, 4, 32, 384, 37, KERN_W8G128, .tied = true,
     .scale_factor = 1},
    {"q3_k", 256, 1, 8, 2, 32, 512, 37, KERN_Q3_K, .scale_factor = 1},
    {"q2_k", 256, 1, 8, 4, 32, 256, 37, KERN_Q2_K, .scale_factor = 1},
    {"all experts and a shared one, q4_0", 64, 2, 4, 2, 16, 96, 50, KERN_Q4_0,
     .scale_factor = 1, .n_experts = 2, .n_active = 2, .expert_hidden = 288},
};
const int step_n_quant_traits = sizeof(step_quant_traits) / sizeof(step_quant_traits[0]);

/* Routers that do more than to take the largest products. */
static void by_sigmoids(struct model_config *c)
{
    c->router_sigmoid = c->router_choice = c->shared_plain = true, c->expert_scale = 2.5f;
    c->n_dense = 1, c->dense_hidden = 70;
}

static void by_sigmoids_in_blocks(struct model_config *c)
{
    by_sigmoids(c);
    c->dense_hidden = 160;
}

static void by_choice(struct model_config *c)
{
    c->router_choice = c->shared_plain = true;
}

static void by_groups(struct model_config *c)
{
    by_sigmoids(c);
    c->n_groups = 4, c->n_active_groups = 2;
}

static void by_groups_of_softmax(struct model_config *c)
{
    c->n_groups = 3, c->n_active_groups = 2, c->n_dense = 2, c->dense_hidden = 24;
}

#define EXPERTS(e, k, h)                                                                 \
    .scale_factor = 1, .n_experts = e, .n_active = k, .expert_hidden = h
const struct step_trait step_expert_traits[] = {
    {"2 of 8", 48, 2, 4, 2, 12, 0, 50, KERN_F32, EXPERTS(8, 2, 40), .norm_topk = true,
     .interleaved = true},
    {"4 of 60 and a shared one", 40, 2, 4, 4, 10, 72, 47, KERN_BF16, EXPERTS(60, 4, 17),
     .bias = true},
    {"8 of 128", 36, 2, 8, 2, 8, 0, 33, KERN_F16, EXPERTS(128, 8, 24), .norm_topk = true,
     .bias = true, .o_bias = true, .qk_norm = true},
    {"1 of 5 and a shared one, types differ by tensor", 48, 2, 4, 2, 12, 48, 50, KERN_F32,
     EXPERTS(5, 1, 200), .mixed = REF_MIXED},
    {"one expert", 48, 1, 4, 2, 12, 0, 50, KERN_BF16, EXPERTS(1, 1, 90)},
    {"equal products", 48, 2, 6, 2, 8, 16, 50, KERN_F32, EXPERTS(7, 3, 33),
     .norm_topk = true, .flat_router = true},
    {"2 of 4, q4_0", 64, 2, 4, 2, 16, 0, 50, KERN_Q4_0, EXPERTS(4, 2, 288),
     .norm_topk = true, .interleaved = true},
    {"3 of 6 and a shared one, q8_0", 64, 2, 8, 4, 8, 96, 35, KERN_Q8_0,
     EXPERTS(6, 3, 64)},
    {"2 of 3, q4_k with more bits for some", 256, 1, 8, 2, 32, 0, 37, KERN_Q4_K,
     EXPERTS(3, 2, 256), .mixed = REF_MIXED},
    {"2 of 8, q4_k with keys and values in q8_0", 256, 2, 8, 2, 32, 0, 37, KERN_Q4_K,
     EXPERTS(8, 2, 256), .mixed = REF_MIXED_KEYS, .interleaved = true},
    {"2 of 4, q6_k", 256, 1, 8, 2, 32, 0, 37, KERN_Q6_K, EXPERTS(4, 2, 512)},
    {"2 of 4, mxfp4", 64, 2, 4, 2, 16, 0, 50, KERN_MXFP4, EXPERTS(4, 2, 160)},
    {"2 of 4, w4c", 64, 2, 4, 2, 16, 0, 50, KERN_W4C, EXPERTS(4, 2, 160)},
    {"3 of 9 by sigmoids, behind a layer without", 48, 2, 4, 2, 12, 36, 50, KERN_F32,
     EXPERTS(9, 3, 40), .norm_topk = true, .family = by_sigmoids},
    {"sigmoids that do not add up to 1", 40, 3, 4, 4, 10, 0, 47, KERN_BF16,
     EXPERTS(6, 2, 17), .family = by_sigmoids},
    {"equal products and numbers for the choice", 48, 2, 6, 2, 8, 16, 50, KERN_F32,
     EXPERTS(7, 3, 33), .norm_topk = true, .flat_router = true, .family = by_choice},
    {"3 of 12 by 2 of 4 groups", 48, 2, 4, 2, 12, 36, 50, KERN_F16, EXPERTS(12, 3, 40),
     .norm_topk = true, .family = by_groups},
    {"groups of one", 48, 2, 4, 2, 12, 36, 50, KERN_F32, EXPERTS(4, 2, 40),
     .family = by_groups},
    {"3 of 9 by 2 of 3 groups, behind two layers without", 36, 3, 8, 2, 8, 0, 33,
     KERN_F32, EXPERTS(9, 3, 24), .family = by_groups_of_softmax},
    {"2 of 4 by sigmoids, q4_0", 64, 2, 4, 2, 16, 64, 50, KERN_Q4_0, EXPERTS(4, 2, 288),
     .norm_topk = true, .interleaved = true, .family = by_sigmoids_in_blocks},
};
const int step_n_expert_traits =
    sizeof(step_expert_traits) / sizeof(step_expert_traits[0]);

void step_trait_config(const struct step_trait *t, struct model_config *c)
{
    memset(c, 0, sizeof(*c));
    snprintf(c->arch, sizeof(c->arch), "llama");
    c->dim = t->dim, c->n_layers = t->n_layers, c->n_heads = t->n_heads;
    c->n_kv_heads = t->n_kv_heads, c->head_dim = t->head_dim, c->hidden = t->hidden;
    c->vocab = t->vocab, c->max_tok = STEP_MODEL_TOK;
    c->norm_eps = 1e-5f, c->rope_theta = 10000;
    c->tied = t->tied, c->qkv_bias = t->bias, c->o_bias = t->o_bias,
    c->qk_norm = t->qk_norm;
    c->n_experts = t->n_experts, c->n_active = t->n_active;
    c->expert_hidden = t->expert_hidden, c->norm_topk = t->norm_topk;
    c->weight_type = t->type;
    c->bos_id = c->eos_id = -1;
    for (int i = 0; i < t->head_dim / 2; i++)
        c->rope_factor[i] = i < t->head_dim / 4 ? 1 : t->scale_factor;
    if (t->family)
        t->family(c);
}

struct model_opts step_model_opts(void)
{
    return (struct model_opts){.weight_type = KERN_N_TYPES,
                               .kv_type = KERN_KV_F32,
                               .precision = KERN_EXACT,
                               .max_step_tok = 96};
}

void step_model_each_isa(void (*fn)(const char *isa))
{
    uint64_t have = cpu_isa_detected();
    const char *san = getenv("SAN");

    if (san && strstr(san, "thread")) { /* how threads are ordered is the same for all */
        fn("auto");
        return;
    }
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

void step_model_phase(struct step_model *x, int n_ranks, int n_threads)
{
    const struct model_phase_opts o = {.n_ranks = n_ranks, .n_threads = n_threads};
    int i = x->n_phases++;

    assert_true(i < STEP_MODEL_PHASES);
    assert_ok(model_phase_open(&x->phases[i], x->model, &o));
    snprintf(x->phase_names[i], sizeof(x->phase_names[i]), "%d x %d", n_ranks, n_threads);
}

void step_model_close_phases(struct step_model *x)
{
    while (x->n_phases > 0)
        model_phase_close(&x->phases[--x->n_phases]);
}

/* Routers whose choice rounding could change are drawn again. */
#define MARGIN_MIN 1e-4

static void compute_ref(struct step_model *x, const struct model_config *c,
                        const struct step_trait *t, uint64_t seed)
{
    struct rng rng;

    ref_model_init(&x->ref, c, t->interleaved, t->mixed, t->flat_router, seed);
    rng_init(&rng, seed, "ids");
    x->max_abs = 0;
    for (int s = 0; s < STEP_MODEL_SEQS; s++) {
        x->want[s] =
            mem_new(MEM_TEST, (size_t)(STEP_MODEL_TOK * c->vocab), sizeof(double));
        assert_non_null(x->want[s]);
        for (int i = 0; i < STEP_MODEL_TOK; i++)
            x->ids[s][i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
        ref_model_forward(&x->ref, x->ids[s], STEP_MODEL_TOK, x->want[s]);
        for (int i = 0; i < STEP_MODEL_TOK * c->vocab; i++)
            x->max_abs = fmax(x->max_abs, fabs(x->want[s][i]));
    }
}

static void close_ref(struct step_model *x)
{
    for (int s = 0; s < STEP_MODEL_SEQS; s++)
        mem_free(x->want[s]);
    ref_model_fini(&x->ref);
}

void step_model_open(struct step_model *x, const struct step_trait *t,
                     const struct model_opts *o, int n_threads)
{
    static const int cpus[64];
    struct model_config c;
    struct kv_shape shape;

    memset(x, 0, sizeof(*x));
    step_trait_config(t, &c);
    x->vocab = c.vocab;
    for (uint64_t seed = test_seed();; seed++) {
        compute_ref(x, &c, t, seed);
        if (x->ref.margin >= MARGIN_MIN)
            break;
        close_ref(x);
    }
    assert_ok(par_team_open(&x->team, cpus, n_threads, 0));
    assert_ok(model_open(&x->model, &x->ref.f, x->team, o));
    model_kv_shape(x->model, &shape);
    test_kv_open(&x->pool, &shape,
                 (struct kv_pool_opts){.max_tok = STEP_MODEL_TOK, .shared = o->shared},
                 STEP_MODEL_SEQS);
}

void step_model_kv(struct step_model *x, const char *alloc, bool shared)
{
    struct kv_pool_opts o = {.alloc = alloc,
                             .max_tok = STEP_MODEL_TOK,
                             .block_tok = 16,
                             .max_seqs = STEP_MODEL_SEQS,
                             .shared = shared,
                             .bounds = &x->bounds};
    struct kv_shape shape;

    x->bounds =
        (struct kv_bounds){.n = 2, .of_total = true, .align_tok = 16, .tok = {16, 32}};
    kv_pool_close(&x->pool);
    model_kv_shape(x->model, &shape);
    test_kv_open(&x->pool, &shape, o, 2 * STEP_MODEL_SEQS); /* both places of a move */
}

void step_model_multiprocess(struct step_model *x)
{
    const struct model_procs_opts o = {
        .phases = x->phases, .n_phases = x->n_phases, .max_chunks = STEP_MODEL_SEQS};

    par_team_close(&x->team);
    assert_ok(model_procs_open(x->model, &o));
}

void step_model_close(struct step_model *x)
{
    model_procs_close(x->model);
    kv_pool_close(&x->pool);
    step_model_close_phases(x);
    model_close(&x->model);
    par_team_close(&x->team);
    for (int s = 0; s < STEP_MODEL_SEQS; s++)
        mem_free(x->bits[s]);
    close_ref(x);
}

/* Returns the sum of the squared errors. */
static double compare(const struct step_model *x, const float *got, int seq, int64_t pos,
                      double tolerance, int phase, const char *what)
{
    const double *want = x->want[seq] + pos * x->vocab;
    double sum = 0;

    if (x->bits[seq] &&
        memcmp(x->bits[seq] + pos * x->vocab, got, (size_t)x->vocab * sizeof(*got)) != 0)
        fail_msg("%s: ranks x threads %s, seed %llu, sequence %d, position %lld: other "
                 "bits than alone, a token at a time, by %s",
                 what, x->phase_names[phase], (unsigned long long)test_seed(), seq,
                 (long long)pos, x->phase_names[0]);
    for (int i = 0; i < x->vocab; i++) {
        double error = (double)got[i] - want[i];

        sum += error * error;
        if (!(fabs(error) <= tolerance * x->max_abs))
            fail_msg("%s: ranks x threads %s, seed %llu, sequence %d, position %lld, "
                     "logit %d: "
                     "%.9g, reference %.9g",
                     what, x->phase_names[phase], (unsigned long long)test_seed(), seq,
                     (long long)pos, i, (double)got[i], want[i]);
    }
    return sum;
}

void step_model_keep_bits(struct step_model *x)
{
    for (int s = 0; s < STEP_MODEL_SEQS; s++) {
        struct kv_slot kv;

        mem_free(x->bits[s]);
        x->bits[s] =
            mem_new(MEM_TEST, (size_t)(STEP_MODEL_TOK * x->vocab), sizeof(float));
        assert_non_null(x->bits[s]);
        test_kv_reserve(x->pool, STEP_MODEL_TOK, &kv);
        for (int64_t i = 0; i < STEP_MODEL_TOK; i++) {
            const struct model_chunk c = {.kv = &kv,
                                          .ids = x->ids[s] + i,
                                          .n_tok = 1,
                                          .pos0 = i,
                                          .want_logits = true};

            assert_ok(model_forward(x->phases[0], &c, 1, x->bits[s] + i * x->vocab));
        }
        kv_release(x->pool, &kv);
    }
}

void step_model_run(struct step_model *x, int n_seqs, int64_t max_step_tok,
                    double tolerance, uint64_t seed, const char *what)
{
    float *logits =
        mem_new(MEM_TEST, (size_t)(STEP_MODEL_SEQS * x->vocab + 1), sizeof(float));
    struct kv_slot kv[STEP_MODEL_SEQS];
    int64_t pos[STEP_MODEL_SEQS] = {0};
    int n_left = n_seqs, n_checked = 0;
    struct rng rng, memory;
    double sum = 0;

    assert_non_null(logits);
    rng_init(&rng, seed, "steps");
    rng_init(&memory, seed, "memory");
    for (int s = 0; s < n_seqs; s++)
        test_kv_reserve(x->pool, 1 + (int64_t)rng_below(&memory, STEP_MODEL_TOK), &kv[s]);
    while (n_left > 0) {
        struct model_chunk chunks[STEP_MODEL_SEQS];
        int who[STEP_MODEL_SEQS], n = 0, n_want = 0;
        int phase = (int)rng_below(&rng, (uint64_t)x->n_phases);
        int64_t room = max_step_tok;

        for (int s = 0; s < n_seqs && room > 0; s++) {
            int64_t left = STEP_MODEL_TOK - pos[s], most = left < room ? left : room;
            int64_t len = rng_below(&rng, 2) ? 1 : 1 + (int64_t)rng_below(&rng, 40);

            if (left == 0 || rng_below(&rng, 4) == 0)
                continue;
            len = len < most ? len : most;
            assert_ok(kv_grow(x->pool, &kv[s], pos[s], pos[s] + len));
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
        assert_ok(model_forward(x->phases[phase], chunks, n, logits));
        assert_true(logits[n_want * x->vocab] == 1234.5f);
        for (int i = 0, row = 0; i < n; i++) {
            pos[who[i]] += chunks[i].n_tok;
            n_left -= pos[who[i]] == STEP_MODEL_TOK;
            if (!chunks[i].want_logits)
                continue;
            sum += compare(x, logits + row++ * x->vocab, who[i], pos[who[i]] - 1,
                           tolerance, phase, what);
            n_checked++;
        }
    }
    assert_true(n_checked > 0);
    sum = sqrt(sum / ((double)n_checked * x->vocab)) / x->max_abs;
    if (sum > tolerance / 6)
        fail_msg(
            "%s, seed %llu: root mean square of the errors %.3g of the largest logit",
            what, (unsigned long long)test_seed(), sum);
    for (int s = 0; s < n_seqs; s++)
        kv_release(x->pool, &kv[s]);
    mem_free(logits);
}
