/* The shapes that have names: each as in the published configuration of that model. */
#include "make/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"

#define LLAMA .hf_class = "LlamaForCausalLM"
#define SPM(vocab)                                                                       \
    .family = MAKE_LLAMA2, .bos_id = 1, .eos_id = 2, .adds_bos = true,                   \
    .special_at = (vocab)
#define LLAMA2(vocab)  LLAMA, SPM(vocab), .rope_theta = 1e4
#define MISTRAL(vocab) .hf_class = "MistralForCausalLM", SPM(vocab), .rope_theta = 1e6
#define QWEN2          .family = MAKE_QWEN2, .hf_class = "Qwen2ForCausalLM"
#define QWEN3                                                                            \
    .family = MAKE_QWEN2, .hf_class = "Qwen3ForCausalLM", .rope_theta = 1e6,             \
    .norm_eps = 1e-6, .tied = true
#define MIXTRAL                                                                          \
    .hf_class = "MixtralForCausalLM", SPM(32000), .vocab = 32000, .norm_eps = 1e-5,      \
    .norm_topk = true
#define QWEN2_MOE                                                                        \
    .family = MAKE_QWEN2, .hf_class = "Qwen2MoeForCausalLM", .rope_theta = 1e6,          \
    .norm_eps = 1e-6
#define QWEN3_MOE                                                                        \
    .family = MAKE_QWEN2, .hf_class = "Qwen3MoeForCausalLM", .rope_theta = 1e6,          \
    .norm_eps = 1e-6, .norm_topk = true
#define LLAMA3                                                                           \
    LLAMA, .family = MAKE_LLAMA3, .vocab = 128256, .rope_theta = 5e5, .norm_eps = 1e-5,  \
           .bos_id = 128000, .eos_id = 128001, .adds_bos = true, .special_at = 128000
#define LLAMA32_SCALE .scale = {32, 1, 4, 8192}

/* clang-format off */
static const struct make_shape shapes[] = {
    {"llama-160m", LLAMA2(32000), .dim = 768, .hidden = 3072, .n_layers = 12, .n_heads = 12,
     .n_kv_heads = 12, .head_dim = 64, .vocab = 32000, .max_tok = 2048, .norm_eps = 1e-6},
    {"llama-68m", LLAMA2(32000), .dim = 768, .hidden = 3072, .n_layers = 2, .n_heads = 12,
     .n_kv_heads = 12, .head_dim = 64, .vocab = 32000, .max_tok = 2048, .norm_eps = 1e-6},
    {"sheared-llama-1.3b", LLAMA2(32000), .dim = 2048, .hidden = 5504, .n_layers = 24,
     .n_heads = 16, .n_kv_heads = 16, .head_dim = 128, .vocab = 32000, .max_tok = 4096,
     .norm_eps = 1e-5},
    {"llama-3.2-1b", LLAMA3, .dim = 2048, .hidden = 8192, .n_layers = 16, .n_heads = 32,
     .n_kv_heads = 8, .head_dim = 64, .max_tok = 131072, .tied = true, LLAMA32_SCALE},
    {"llama-3.2-3b", LLAMA3, .dim = 3072, .hidden = 8192, .n_layers = 28, .n_heads = 24,
     .n_kv_heads = 8, .head_dim = 128, .max_tok = 131072, .tied = true, LLAMA32_SCALE},
    {"llama-3-8b", LLAMA3, .dim = 4096, .hidden = 14336, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 8, .head_dim = 128, .max_tok = 8192},
    {"mistral-7b", MISTRAL(32768), .dim = 4096, .hidden = 14336, .n_layers = 32,
     .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .vocab = 32768, .max_tok = 32768,
     .norm_eps = 1e-5},
    {"qwen-1.8b", QWEN2, .dim = 2048, .hidden = 5504, .n_layers = 24, .n_heads = 16,
     .n_kv_heads = 16, .head_dim = 128, .vocab = 151936, .max_tok = 32768, .rope_theta = 1e6,
     .norm_eps = 1e-6, .bos_id = 151643, .eos_id = 151643, .special_at = 151643},
    {"deepseek-r1-distill-qwen-7b", QWEN2, .dim = 3584, .hidden = 18944, .n_layers = 28,
     .n_heads = 28, .n_kv_heads = 4, .head_dim = 128, .vocab = 152064, .max_tok = 131072,
     .rope_theta = 1e4, .norm_eps = 1e-6, .bos_id = 151646, .eos_id = 151643,
     .adds_bos = true, .special_at = 151643},
    {"qwen3-0.6b", QWEN3, .dim = 1024, .hidden = 3072, .n_layers = 28, .n_heads = 16,
     .n_kv_heads = 8, .head_dim = 128, .vocab = 151936, .max_tok = 40960,
     .bos_id = 151643, .eos_id = 151645, .special_at = 151643},
    {"mixtral-8x7b", MIXTRAL, .dim = 4096, .n_experts = 8, .n_active = 2,
     .expert_hidden = 14336, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8, .head_dim = 128,
     .max_tok = 32768, .rope_theta = 1e6},
    {"qwen3-30b-a3b", QWEN3_MOE, .dim = 2048, .n_experts = 128, .n_active = 8,
     .expert_hidden = 768, .dense_hidden = 6144, .n_layers = 48, .n_heads = 32,
     .n_kv_heads = 4, .head_dim = 128, .vocab = 151936, .max_tok = 40960, .bos_id = 151643,
     .eos_id = 151645, .special_at = 151643},
    {"qwen1.5-moe-a2.7b", QWEN2_MOE, .dim = 2048, .hidden = 5632, .n_experts = 60,
     .n_active = 4, .expert_hidden = 1408, .dense_hidden = 5632, .n_layers = 24,
     .n_heads = 16, .n_kv_heads = 16, .head_dim = 128, .vocab = 151936, .max_tok = 8192,
     .bos_id = 151643, .eos_id = 151643, .special_at = 151643},
    /* No published model: eight times the MLP of llama-160m, to measure with. */
    {"mixtral-8x160m", MIXTRAL, .dim = 768, .n_experts = 8, .n_active = 2,
     .expert_hidden = 3072, .n_layers = 12, .n_heads = 12, .n_kv_heads = 12, .head_dim = 64,
     .max_tok = 2048, .rope_theta = 1e4},
    /* For tests: grouped heads, and no size a multiple of a vector. */
    {"tiny", LLAMA2(1003), .dim = 84, .hidden = 202, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 14, .vocab = 1003, .max_tok = 256, .norm_eps = 1e-5},
    /* ... and heads that do not add up to dim */
    {"tiny-mistral", MISTRAL(601), .dim = 68, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 12, .vocab = 601, .max_tok = 256, .norm_eps = 1e-5},
    {"tiny-llama3", LLAMA, .family = MAKE_LLAMA3, .dim = 72, .hidden = 190, .n_layers = 3,
     .n_heads = 9, .n_kv_heads = 3, .head_dim = 8, .vocab = 777, .max_tok = 256,
     .rope_theta = 5e5, .norm_eps = 1e-5, .bos_id = 512, .eos_id = 513, .adds_bos = true,
     .special_at = 512, .tied = true, .scale = {32, 1, 4, 64}},
    {"tiny-llama-bias", LLAMA2(601), .dim = 68, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 12, .vocab = 601, .max_tok = 256, .norm_eps = 1e-5,
     .attention_bias = true},
    {"tiny-qwen2", QWEN2, .dim = 70, .hidden = 174, .n_layers = 3, .n_heads = 7,
     .n_kv_heads = 1, .head_dim = 10, .vocab = 515, .max_tok = 256, .rope_theta = 1e6,
     .norm_eps = 1e-6, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-qwen3", QWEN3, .dim = 60, .hidden = 166, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 18, .vocab = 515, .max_tok = 256, .bos_id = 512,
     .eos_id = 514, .special_at = 512},
    /* ... and rows of whole blocks of every quantised type */
    {"tiny-quant", LLAMA2(601), .dim = 256, .hidden = 768, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 32, .vocab = 601, .max_tok = 256, .norm_eps = 1e-5},
    /* ... and mixtures of experts */
    {"tiny-moe", .hf_class = "MixtralForCausalLM", SPM(601), .dim = 256,
     .n_experts = 6, .n_active = 2, .expert_hidden = 512, .norm_topk = true, .n_layers = 3,
     .n_heads = 8, .n_kv_heads = 2, .head_dim = 32, .vocab = 601, .max_tok = 256,
     .norm_eps = 1e-5, .rope_theta = 1e6},
    {"tiny-qwen2-moe", QWEN2_MOE, .dim = 70, .hidden = 174, .n_experts = 7, .n_active = 3,
     .expert_hidden = 46, .dense_hidden = 174, .n_layers = 3, .n_heads = 7, .n_kv_heads = 1,
     .head_dim = 10, .vocab = 515, .max_tok = 256, .bos_id = 512, .eos_id = 512,
     .special_at = 512},
    {"tiny-qwen3-moe", QWEN3_MOE, .dim = 60, .n_experts = 9, .n_active = 4,
     .expert_hidden = 34, .dense_hidden = 166, .n_layers = 3, .n_heads = 6, .n_kv_heads = 2,
     .head_dim = 18, .vocab = 515, .max_tok = 256, .bos_id = 512, .eos_id = 514,
     .special_at = 512},
    /* ... and one whose matrix down has rows of blocks of 32 only, as sheared-llama-1.3b */
    {"tiny-quant-32", LLAMA2(601), .dim = 256, .hidden = 352, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 32, .vocab = 601, .max_tok = 256, .norm_eps = 1e-5},
};
/* clang-format on */
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

const char *const *make_names(void)
{
    static const char *const names[] = {"llama-160m",
                                        "llama-68m",
                                        "sheared-llama-1.3b",
                                        "llama-3.2-1b",
                                        "llama-3.2-3b",
                                        "llama-3-8b",
                                        "mistral-7b",
                                        "qwen-1.8b",
                                        "deepseek-r1-distill-qwen-7b",
                                        "qwen3-0.6b",
                                        "mixtral-8x7b",
                                        "qwen3-30b-a3b",
                                        "qwen1.5-moe-a2.7b",
                                        "mixtral-8x160m",
                                        "tiny",
                                        "tiny-mistral",
                                        "tiny-llama3",
                                        "tiny-llama-bias",
                                        "tiny-qwen2",
                                        "tiny-qwen3",
                                        "tiny-quant",
                                        "tiny-moe",
                                        "tiny-qwen2-moe",
                                        "tiny-qwen3-moe",
                                        "tiny-quant-32",
                                        NULL};

    _Static_assert(sizeof(names) / sizeof(names[0]) == N_SHAPES + 1, "one name a shape");
    return names;
}

int make_shape(const char *name, const struct make_shape **out)
{
    int i = name_index(make_names(), name);

    *out = i < 0 ? NULL : &shapes[i];
    return *out ? OK
                : name_not_in(name, make_names(), "no architecture is named \"%.60s\"",
                              name);
}

int make_config(const char *arch, struct model_config *out)
{
    const struct make_shape *s;
    int i, rc = make_shape(arch, &s);

    if (rc != OK)
        return rc;
    *out = (struct model_config){
        .dim = s->dim,
        .n_layers = s->n_layers,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .hidden = s->hidden,
        .n_experts = s->n_experts,
        .n_active = s->n_active,
        .expert_hidden = s->expert_hidden,
        .norm_topk = s->norm_topk,
        .vocab = s->vocab,
        .max_tok = s->max_tok,
        .norm_eps = (float)s->norm_eps,
        .rope_theta = (float)s->rope_theta,
        .tied = s->tied,
        .bos_id = s->bos_id,
        .eos_id = s->eos_id,
    };
    format_family_apply(format_family_of_class(s->hf_class), out);
    out->o_bias = s->attention_bias;
    out->qkv_bias |= s->attention_bias;
    snprintf(out->name, sizeof(out->name), "%s", s->name);
    for (i = 0; i < MODEL_HEAD_DIM_MAX / 2; i++)
        out->rope_factor[i] = 1;
    if (s->scale.factor > 0)
        model_config_rope_llama3(out, s->scale.factor, s->scale.low, s->scale.high,
                                 s->scale.original_tok);
    return model_config_check(out, s->name);
}
