/* What families have that Llama has not, each against the float64 reference: all types of weights,
 * plain C and the best variants, several ranks and threads, types of keys and values, and the bits
 * of a deterministic model. */
#include <math.h>

#include "cpu/cpu.h"
#include "ranks/phase.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

static void granite(struct model_config *c)
{
    c->embed_scale = 12, c->residual_scale = 0.22f, c->logit_scale = 1 / 8.0f;
    c->attn_scale = 0.11f;
}

static void smollm3(struct model_config *c)
{
    model_config_flag(c, MODEL_LAYER_NO_ROPE, 2);
}

static void olmo2(struct model_config *c)
{
    c->qk_norm_row = true, c->norms = MODEL_NORM_AFTER;
}

static void olmoe(struct model_config *c)
{
    c->qk_norm_row = true;
}

static void phi3(struct model_config *c)
{
    c->rope_dims = c->head_dim / 4 * 2, c->rope_length = 1.19f, c->rope_short_tok = 16;
    for (int i = 0; i < c->head_dim / 2; i++)
        c->rope_long[i] = (float)(1 + 3 * i);
}

static void stablelm(struct model_config *c)
{
    c->layer_norm = c->norm_bias = true, c->rope_dims = 4;
}

static void glm4(struct model_config *c)
{
    c->norms = MODEL_NORM_AROUND, c->rope_dims = c->head_dim / 4 * 2;
}

static void chatglm(struct model_config *c)
{
    c->rope_dims = c->head_dim / 4 * 2;
}

static void command_r(struct model_config *c)
{
    c->layer_norm = c->parallel = true, c->logit_scale = 0.0625f;
}

static void cohere2(struct model_config *c)
{
    command_r(c);
    model_config_window(c, 9, 4, false);
    model_config_flag(c, MODEL_LAYER_NO_ROPE, 4);
}

static void starcoder2(struct model_config *c)
{
    c->activation = MODEL_GELU, c->layer_norm = c->norm_bias = true;
    c->no_gate = c->mlp_bias = true;
    model_config_window(c, 9, 0, false);
}

/* ... by another activation, and with scaled sums */
static void no_gate(struct model_config *c)
{
    c->no_gate = c->mlp_bias = true, c->residual_scale = 0.5f;
}

static void gemma(struct model_config *c)
{
    c->activation = MODEL_GELU, c->embed_scale = 7;
}

static void gemma2(struct model_config *c)
{
    c->norms = MODEL_NORM_AROUND, c->activation = MODEL_GELU;
    c->embed_scale = 7, c->attn_softcap = 2, c->logit_softcap = 3, c->attn_scale = 0.4f;
    model_config_window(c, 9, 2, false);
}

static void gemma3(struct model_config *c)
{
    c->norms = MODEL_NORM_AROUND, c->activation = MODEL_GELU;
    c->embed_scale = 7, c->rope_local_theta = 100;
    model_config_window(c, 17, 3, false);
}

/* YaRN for four times 12 tokens, as transformers computes it. */
static void yarn(struct model_config *c)
{
    const int dims = c->head_dim;
    const double per_turn = dims / (2 * log((double)c->rope_theta));
    double low = fmax(floor(per_turn * log(12 / (32 * 2 * M_PI))), 0);
    double high = fmin(ceil(per_turn * log(12 / (0.05 * 2 * M_PI))), dims - 1);

    for (int i = 0; i < dims / 2; i++) {
        double plain = pow((double)c->rope_theta, -2.0 * i / dims);
        double far = fmin(fmax((i - low) / (high - low), 0), 1);

        c->rope_factor[i] = (float)(plain / (plain / 4 * far + plain * (1 - far)));
    }
    c->rope_length = (float)(1 + 0.1 * log(4));
}

static void dynamic_ntk(struct model_config *c)
{
    c->rope_ntk = 4, c->rope_short_tok = 16;
    for (int i = 0; i < c->head_dim / 2; i++)
        c->rope_long[i] = 1;
}

/* YaRN, but in layers with a window. */
static void olmo3(struct model_config *c)
{
    olmo2(c);
    yarn(c);
    c->rope_local_theta = c->rope_theta;
    model_config_window(c, 9, 4, false);
}

static void gpt_oss(struct model_config *c)
{
    c->sinks = c->expert_bias = true, c->activation = MODEL_SWIGLU_OAI;
    model_config_window(c, 9, 2, false);
    yarn(c);
}

/* Layers without experts first, and routers of their own. */
static void glm4_moe(struct model_config *c)
{
    c->rope_dims = c->head_dim / 4 * 2, c->router_sigmoid = c->shared_plain = true;
    c->expert_scale = 1.7f, c->n_dense = 1, c->dense_hidden = 70;
}

static void deepseek(struct model_config *c)
{
    c->shared_plain = true, c->expert_scale = 0.6f, c->n_dense = 2, c->dense_hidden = 352;
}

/* Latent attention: three sizes of a head that are all different. */
static void latent(struct model_config *c)
{
    c->latent_dim = 32, c->nope_dim = 12, c->value_dim = 16, c->rope_dims = 16;
    model_config_latent(c, 4, 0.707);
    for (int i = 0; i < c->rope_dims / 2; i++)
        c->rope_factor[i] = (float)(1 + i);
}

static void low_rank(struct model_config *c)
{
    latent(c);
    c->q_rank = 22; /* neither whole panels nor as many as dim */
}

static void low_rank_wide(struct model_config *c)
{
    latent(c);
    c->q_rank = 96;
}

static void deepseek2(struct model_config *c)
{
    latent(c);
    c->shared_plain = true, c->n_dense = 1, c->dense_hidden = 70;
}

/* ... with as many elements as its files have */
static void deepseek2_wide(struct model_config *c)
{
    c->latent_dim = 512, c->nope_dim = 128, c->value_dim = 128, c->rope_dims = 64;
    model_config_latent(c, 0, 0);
    for (int i = 0; i < c->rope_dims / 2; i++)
        c->rope_factor[i] = 1;
}

static void granite_shared(struct model_config *c)
{
    granite(c);
    c->shared_plain = true;
}

/* Its attention, without experts. */
static void sinks(struct model_config *c)
{
    c->sinks = true;
}

#define MOE .n_experts = 3, .n_active = 3, .expert_hidden = 40, .norm_topk = true
static const struct step_trait traits[] = {
    {"granite", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .o_bias = true, .bias = true,
     .interleaved = true, .scale_factor = 1, .family = granite},
    {"granite, tied, bf16", 37, 2, 3, 3, 10, 43, 47, KERN_BF16, .tied = true,
     .scale_factor = 1, .family = granite},
    {"granite, q8_0", 64, 2, 4, 2, 16, 352, 50, KERN_Q8_0, .interleaved = true,
     .scale_factor = 1, .family = granite},
    {"granite, experts", 48, 2, 4, 2, 12, 0, 50, KERN_F32, .scale_factor = 1, MOE,
     .family = granite},
    {"smollm3", 48, 4, 4, 2, 12, 40, 50, KERN_F32, .interleaved = true, .scale_factor = 1,
     .family = smollm3},
    {"smollm3, bf16", 64, 3, 8, 4, 8, 96, 80, KERN_BF16, .scale_factor = 1,
     .family = smollm3},
    {"smollm3, q8_0", 64, 3, 8, 4, 8, 288, 35, KERN_Q8_0, .scale_factor = 1,
     .family = smollm3},
    {"olmo2", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .qk_norm = true, .scale_factor = 1,
     .family = olmo2},
    {"olmo2, odd sizes, bf16", 37, 2, 6, 3, 10, 43, 47, KERN_BF16, .qk_norm = true,
     .interleaved = true, .scale_factor = 1, .family = olmo2},
    {"olmo2, K and V apart, q4_0", 96, 2, 8, 2, 20, 288, 50, KERN_Q4_0, .qk_norm = true,
     .mixed = REF_MIXED_KEYS, .scale_factor = 1, .family = olmo2},
    {"olmo2, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .qk_norm = true,
     .scale_factor = 1, .family = olmo2},
    {"olmo2, experts", 48, 2, 4, 2, 12, 0, 50, KERN_F32, .qk_norm = true,
     .scale_factor = 1, MOE, .family = olmo2},
    {"olmoe", 48, 2, 4, 2, 12, 0, 50, KERN_F32, .qk_norm = true, .scale_factor = 1,
     .n_experts = 5, .n_active = 5, .expert_hidden = 40, .family = olmoe},
    {"phi3", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .scale_factor = 1, .family = phi3},
    {"phi3, bf16", 64, 2, 8, 8, 16, 96, 80, KERN_BF16, .scale_factor = 1, .family = phi3},
    {"phi3, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .scale_factor = 1, .family = phi3},
    {"stablelm", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .bias = true, .scale_factor = 1,
     .family = stablelm},
    {"stablelm, odd sizes, bf16", 37, 2, 3, 3, 10, 43, 47, KERN_BF16, .scale_factor = 1,
     .family = stablelm},
    {"stablelm, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .bias = true,
     .scale_factor = 1, .family = stablelm},
    {"glm4", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .bias = true, .interleaved = true,
     .scale_factor = 1, .family = glm4},
    {"glm4, bf16", 64, 2, 8, 2, 16, 96, 80, KERN_BF16, .bias = true, .interleaved = true,
     .scale_factor = 1, .family = glm4},
    {"glm4, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .bias = true, .interleaved = true,
     .scale_factor = 1, .family = glm4},
    {"chatglm", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .bias = true, .interleaved = true,
     .scale_factor = 1, .family = chatglm},
    {"command-r, tied", 48, 2, 4, 4, 12, 40, 50, KERN_F32, .tied = true,
     .interleaved = true, .scale_factor = 1, .family = command_r},
    {"command-r, tied, bf16", 37, 2, 6, 3, 10, 43, 47, KERN_BF16, .tied = true,
     .interleaved = true, .scale_factor = 1, .family = command_r},
    {"command-r, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .interleaved = true,
     .scale_factor = 1, .family = command_r},
    {"command-r, experts", 48, 2, 4, 2, 12, 0, 50, KERN_F32, .scale_factor = 1, MOE,
     .family = command_r},
    {"gpt-oss", 48, 3, 4, 2, 12, 0, 50, KERN_F32, .bias = true, .o_bias = true,
     .scale_factor = 1, MOE, .family = gpt_oss},
    {"gpt-oss, odd sizes, bf16", 37, 2, 6, 3, 10, 0, 47, KERN_BF16, .bias = true,
     .o_bias = true, .scale_factor = 1, MOE, .family = gpt_oss},
    {"gpt-oss, q8_0", 64, 2, 8, 2, 16, 0, 35, KERN_Q8_0, .bias = true, .o_bias = true,
     .scale_factor = 1, .n_experts = 3, .n_active = 3, .expert_hidden = 288,
     .norm_topk = true, .family = gpt_oss},
    {"glm-4.5", 48, 2, 4, 2, 16, 36, 50, KERN_F32, .bias = true, .scale_factor = 1, MOE,
     .family = glm4_moe},
    {"glm-4.5, odd sizes, bf16", 37, 3, 6, 3, 10, 43, 47, KERN_BF16, .bias = true,
     .qk_norm = true, .scale_factor = 1, MOE, .family = glm4_moe},
    {"deepseek", 48, 3, 4, 4, 12, 24, 50, KERN_F32, .interleaved = true,
     .scale_factor = 1, .n_experts = 4, .n_active = 4, .expert_hidden = 24,
     .family = deepseek},
    {"deepseek, q8_0", 64, 3, 8, 4, 8, 64, 35, KERN_Q8_0, .scale_factor = 1,
     .n_experts = 2, .n_active = 2, .expert_hidden = 288, .family = deepseek},
    {"latent attention", 48, 2, 5, 1, 48, 40, 50, KERN_F32, .scale_factor = 1,
     .family = latent},
    {"latent attention, interleaved, bf16", 37, 2, 8, 1, 48, 43, 47, KERN_BF16,
     .interleaved = true, .scale_factor = 1, .family = latent},
    {"queries of low rank", 48, 2, 5, 1, 48, 40, 50, KERN_F32, .scale_factor = 1,
     .family = low_rank},
    {"queries of low rank, bf16", 37, 2, 8, 1, 48, 43, 47, KERN_BF16, .interleaved = true,
     .scale_factor = 1, .family = low_rank_wide},
    {"queries of low rank, types differ by tensor", 48, 2, 4, 1, 48, 48, 50, KERN_F32,
     .mixed = REF_MIXED, .scale_factor = 1, .family = low_rank_wide},
    {"latent attention, types differ by tensor", 48, 2, 4, 1, 48, 48, 50, KERN_F32,
     .mixed = REF_MIXED, .scale_factor = 1, .family = latent},
    {"deepseek2", 48, 3, 6, 1, 48, 24, 50, KERN_F16, .interleaved = true,
     .scale_factor = 1, MOE, .family = deepseek2},
    {"deepseek2, wide", 64, 1, 2, 1, 576, 40, 50, KERN_BF16, .interleaved = true,
     .scale_factor = 1, .family = deepseek2_wide},
    {"deepseek2, wide, q8_0", 64, 1, 3, 1, 576, 64, 50, KERN_Q8_0, .interleaved = true,
     .scale_factor = 1, .family = deepseek2_wide},
    {"granite, experts and a shared one", 48, 2, 4, 2, 12, 52, 50, KERN_F32,
     .scale_factor = 1, MOE, .family = granite_shared},
    {"sinks", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .scale_factor = 1, .family = sinks},
    {"sinks, f16", 40, 2, 5, 1, 12, 40, 50, KERN_F16, .scale_factor = 1, .family = sinks},
    {"starcoder2", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .bias = true, .o_bias = true,
     .scale_factor = 1, .family = starcoder2},
    {"starcoder2, odd sizes, tied, bf16", 37, 2, 6, 3, 10, 43, 47, KERN_BF16,
     .tied = true, .bias = true, .o_bias = true, .scale_factor = 1, .family = starcoder2},
    {"starcoder2, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .bias = true, .o_bias = true,
     .scale_factor = 1, .family = starcoder2},
    {"no gate, f16", 48, 2, 4, 2, 12, 300, 50, KERN_F16, .scale_factor = 1,
     .family = no_gate},
    {"no gate, q4_0", 64, 2, 4, 2, 16, 352, 50, KERN_Q4_0, .scale_factor = 1,
     .family = no_gate},
    {"cohere2, tied", 48, 5, 4, 2, 12, 40, 50, KERN_F32, .tied = true,
     .interleaved = true, .scale_factor = 1, .family = cohere2},
    {"gemma, tied", 48, 2, 4, 1, 12, 40, 50, KERN_F32, .tied = true, .scale_factor = 1,
     .family = gemma},
    {"gemma2", 48, 3, 4, 2, 12, 40, 50, KERN_F32, .scale_factor = 1, .family = gemma2},
    {"gemma2, tied, bf16", 37, 3, 6, 3, 10, 43, 47, KERN_BF16, .tied = true,
     .scale_factor = 1, .family = gemma2},
    {"gemma2, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .scale_factor = 1,
     .family = gemma2},
    {"gemma3", 48, 4, 4, 2, 12, 40, 50, KERN_F32, .qk_norm = true, .scale_factor = 8,
     .family = gemma3},
    {"gemma3, tied, bf16", 37, 3, 6, 1, 10, 43, 47, KERN_BF16, .tied = true,
     .qk_norm = true, .scale_factor = 8, .family = gemma3},
    {"gemma3, q8_0", 64, 3, 8, 4, 8, 288, 35, KERN_Q8_0, .qk_norm = true,
     .scale_factor = 8, .family = gemma3},
    {"yarn", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .interleaved = true, .scale_factor = 1,
     .family = yarn},
    {"yarn, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .bias = true, .scale_factor = 1,
     .family = yarn},
    {"dynamic ntk", 48, 2, 4, 2, 12, 40, 50, KERN_F32, .scale_factor = 1,
     .family = dynamic_ntk},
    {"dynamic ntk, q8_0", 64, 2, 8, 4, 8, 288, 35, KERN_Q8_0, .scale_factor = 1,
     .family = dynamic_ntk},
    {"olmo3", 48, 4, 4, 2, 12, 40, 50, KERN_F32, .qk_norm = true, .scale_factor = 1,
     .family = olmo3},
};
#define N_TRAITS ((int)(sizeof(traits) / sizeof(traits[0])))
#define TEAM     12

/* Ranks of which some have whole KV groups, some a part of one, and some a part of a head. */
static void open_phases(struct step_model *x, const struct step_trait *t,
                        const struct model_opts *o)
{
    static const int degrees[] = {1, 2, 3, 4, 6, 8, 12};

    step_model_open(x, t, o, TEAM);
    for (size_t i = 0; i < sizeof(degrees) / sizeof(degrees[0]); i++) {
        struct model_phase_opts p = {.n_ranks = degrees[i], .n_threads = 1};
        struct model_phase *probe;

        if (model_phase_open(&probe, x->model, &p) == OK) {
            model_phase_close(&probe);
            step_model_phase(x, degrees[i], 1);
            if (degrees[i] <= 2)
                step_model_phase(x, degrees[i], 2);
        }
        err_clear(); /* types of blocks, and heads, do not allow each number of ranks */
    }
    step_model_phase(x, 1, 3);
}

static void run(const struct step_trait *t, const struct model_opts *o, const char *isa,
                double tolerance)
{
    struct step_model x;
    char what[160];

    snprintf(what, sizeof(what), "%s, isa %s, kv %s%s", t->name, isa,
             kern_kv_type_name(o->kv_type), o->deterministic ? ", deterministic" : "");
    open_phases(&x, t, o);
    if (o->deterministic)
        step_model_keep_bits(&x);
    for (int i = 0; i < 6; i++)
        step_model_run(&x, 1 + 2 * i % STEP_MODEL_SEQS, o->max_step_tok, tolerance,
                       test_seed() + (uint64_t)i, what);
    step_model_close(&x);
}

static void exact_on(const char *isa)
{
    const struct model_opts o = step_model_opts();

    for (int t = 0; t < N_TRAITS; t++)
        run(&traits[t], &o, isa, 1e-4);
}

TEST(test_exact)
{
    assert_ok(cpu_isa_limit("ref"));
    exact_on("ref");
    assert_ok(cpu_isa_limit("auto"));
    exact_on("auto");
}

TEST(test_kv_types)
{
    struct model_opts o = step_model_opts();
    struct model_config c;

    for (int t = 0; t < N_TRAITS; t++) {
        o.kv_type = KERN_KV_BF16;
        run(&traits[t], &o, "auto", STEP_MODEL_BF16);
        o.kv_type = KERN_KV_Q8;
        step_trait_config(&traits[t], &c);
        /* A latent vector and what is rotated have one scale. */
        run(&traits[t], &o, "auto", STEP_MODEL_Q8_KV * (c.latent_dim > 0 ? 2 : 1));
    }
}

/* The same bits by any ranks and threads. */
TEST(test_deterministic)
{
    struct model_opts o = step_model_opts();

    o.deterministic = true;
    for (int t = 0; t < N_TRAITS; t++)
        run(&traits[t], &o, "auto", 1e-4);
}

/* The reference tells a family from Llama, so that a difference that the engine left out would be
 * found. */
TEST(test_families_differ)
{
    for (int t = 0; t < N_TRAITS; t++) {
        struct step_trait plain = traits[t];
        struct ref_model r;
        struct model_config c;
        int32_t ids[6] = {1, 2, 3, 4, 5, 6};
        double *x = mem_new(MEM_TEST, (size_t)(12 * plain.vocab), sizeof(*x)), most = 0;

        assert_non_null(x);
        step_trait_config(&plain, &c);
        if (c.latent_dim > 0) { /* no weights of Llama are there */
            mem_free(x);
            continue;
        }
        ref_model_init(&r, &c, false, REF_SAME, false, 1);
        ref_model_forward(&r, ids, 6, x);
        plain.family = NULL;
        step_trait_config(&plain, &r.f.config);
        /* there are no weights of these */
        r.f.config.no_gate = c.no_gate, r.f.config.shared_plain = c.shared_plain;
        r.f.config.n_dense = c.n_dense, r.f.config.dense_hidden = c.dense_hidden;
        ref_model_forward(&r, ids, 6, x + 6 * plain.vocab);
        for (int i = 0; i < 6 * plain.vocab; i++)
            most = fmax(most, fabs(x[i] - x[i + 6 * plain.vocab]));
        assert_true(most > 1e-3);
        mem_free(x);
        ref_model_fini(&r);
    }
}
