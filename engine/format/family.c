#include "format/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct format_expert_keys mixtral_keys = {.n_experts = "num_local_experts"};
static const struct format_expert_keys qwen2_keys = {
    .n_experts = "num_experts",
    .expert_hidden = "moe_intermediate_size",
    .norm_topk = "norm_topk_prob",
    .shared_hidden = "shared_expert_intermediate_size",
};
static const struct format_expert_keys qwen3_keys = {
    .n_experts = "num_experts",
    .expert_hidden = "moe_intermediate_size",
    .norm_topk = "norm_topk_prob",
};

static const struct format_expert_keys olmoe_keys = {
    .n_experts = "num_experts",
    .norm_topk = "norm_topk_prob",
};
/* DeepSeek's, and those of all that came after it */
static const struct format_expert_keys deepseek_keys = {
    .n_experts = "n_routed_experts",
    .expert_hidden = "moe_intermediate_size",
    .norm_topk = "norm_topk_prob",
    .n_shared = "n_shared_experts",
    .n_dense = "first_k_dense_replace",
};
static const struct format_expert_keys bailing_keys = {
    .n_experts = "num_experts",
    .expert_hidden = "moe_intermediate_size",
    .norm_topk = "norm_topk_prob",
    .n_shared = "num_shared_experts",
    .n_dense = "first_k_dense_replace",
};
static const struct format_expert_keys ernie_keys = {
    .n_experts = "moe_num_experts",
    .n_active = "moe_k",
    .expert_hidden = "moe_intermediate_size",
    .n_shared = "moe_num_shared_experts",
    .n_dense = "moe_layer_start_index",
};
static const struct format_expert_keys granite_keys = {
    .n_experts = "num_local_experts",
    .shared_hidden = "shared_intermediate_size",
};
static const char text_only[] =
    "folders have an encoder of images next to the text model";

const struct format_family format_families[] = {
    {
        .arch = "llama",
        .hf_class = "LlamaForCausalLM",
        .hf_type = "llama",
        .attention_bias = true,
        .rope_interleaved = true,
    },
    {
        .arch = "llama",
        .hf_class = "MistralForCausalLM",
        .hf_type = "mistral",
        .rope_interleaved = true,
        .window = FORMAT_WINDOW_ALWAYS,
        .window_default = 4096,
    },
    {
        .arch = "llama",
        .hf_class = "MixtralForCausalLM",
        .hf_type = "mixtral",
        .rope_interleaved = true,
        .experts = &mixtral_keys,
        .norm_topk = true,
        .hf_naming = MODEL_NAMES_HF_MIXTRAL,
        .window = FORMAT_WINDOW_ALWAYS,
    },
    {
        .arch = "qwen2",
        .hf_class = "Qwen2ForCausalLM",
        .hf_type = "qwen2",
        .qkv_bias = true,
        .window = FORMAT_WINDOW_IF_SET,
    },
    {
        .arch = "qwen3",
        .hf_class = "Qwen3ForCausalLM",
        .hf_type = "qwen3",
        .attention_bias = true,
        .qk_norm = true,
        .window = FORMAT_WINDOW_IF_SET,
    },
    {
        .arch = "qwen2moe",
        .hf_class = "Qwen2MoeForCausalLM",
        .hf_type = "qwen2_moe",
        .qkv_bias = true,
        .experts = &qwen2_keys,
        .window = FORMAT_WINDOW_IF_SET,
    },
    {
        .arch = "qwen3moe",
        .hf_class = "Qwen3MoeForCausalLM",
        .hf_type = "qwen3_moe",
        .attention_bias = true,
        .qk_norm = true,
        .experts = &qwen3_keys,
        .norm_topk = true,
        .window = FORMAT_WINDOW_IF_SET,
    },
    {
        .arch = "granite",
        .hf_class = "GraniteForCausalLM",
        .hf_type = "granite",
        .attention_bias = true,
        .rope_interleaved = true,
        .rope_switch = true,
        .numbers = 1u << FORMAT_EMBED_SCALE | 1u << FORMAT_RESIDUAL_SCALE |
                   1u << FORMAT_ATTN_SCALE | 1u << FORMAT_LOGIT_DIVISOR,
    },
    {
        .arch = "smollm3",
        .hf_class = "SmolLM3ForCausalLM",
        .hf_type = "smollm3",
        .attention_bias = true,
        .rope_interleaved = true,
        .no_rope_every = 4,
        .hf_tied = true,
        .window = FORMAT_WINDOW_IF_SET,
    },
    {
        .arch = "olmo2",
        .hf_class = "Olmo2ForCausalLM",
        .hf_type = "olmo2",
        .attention_bias = true,
        .qk_norm = true,
        .qk_norm_row = true,
        .norms = MODEL_NORM_AFTER,
        .window_every = 4, /* files of OLMo 3 have this arch, too */
        .window_unscaled = true,
    },
    {
        .arch = "olmo2",
        .hf_class = "Olmo3ForCausalLM",
        .hf_type = "olmo3",
        .attention_bias = true,
        .qk_norm = true,
        .qk_norm_row = true,
        .norms = MODEL_NORM_AFTER,
        .window = FORMAT_WINDOW_ALWAYS,
        .window_default = 4096,
        .window_every = 4,
        .window_unscaled = true,
    },
    {
        .arch = "phi3",
        .hf_class = "Phi3ForCausalLM",
        .hf_type = "phi3",
        .fused = MODEL_NAMES_FUSED_QKV | MODEL_NAMES_FUSED_GATE_UP,
        .window = FORMAT_WINDOW_ALWAYS,
    },
    {
        .arch = "stablelm",
        .hf_class = "StableLmForCausalLM",
        .hf_type = "stablelm",
        .layer_norm = true,
        .norm_bias = true,
        .attention_bias = true,
        .bias_key = "use_qkv_bias",
        .no_o_bias = true,
        .rotary_frac = 0.25,
    },
    {
        .arch = "glm4",
        .hf_class = "Glm4ForCausalLM",
        .hf_type = "glm4",
        .norms = MODEL_NORM_AROUND,
        .attention_bias = true,
        .no_o_bias = true,
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .rotary_frac = 0.5,
        .hf_naming = MODEL_NAMES_HF_GLM,
        .fused = MODEL_NAMES_FUSED_GATE_UP,
    },
    {
        .arch = "command-r",
        .hf_class = "CohereForCausalLM",
        .hf_type = "cohere",
        .layer_norm = true,
        .parallel = true,
        .attention_bias = true,
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .hf_tied = true,
        .numbers = 1u << FORMAT_LOGIT_SCALE,
    },
    {
        .arch = "gpt-oss",
        .hf_class = "GptOssForCausalLM",
        .hf_type = "gpt_oss",
        .gguf_only = "folders have all experts in one tensor, by columns or in MXFP4",
        .activation = MODEL_SWIGLU_OAI,
        .sinks = true,
        .expert_bias = true,
        .attention_bias = true,
        .fused = MODEL_NAMES_POST_NORM,
        .experts = &mixtral_keys,
        .norm_topk = true, /* the softmax is over the chosen experts */
        .window = FORMAT_WINDOW_ALWAYS,
        .window_every = 2,
    },
    {
        .arch = "starcoder2",
        .hf_class = "Starcoder2ForCausalLM",
        .hf_type = "starcoder2",
        .activation = MODEL_GELU,
        .layer_norm = true,
        .norm_bias = true,
        .no_gate = true,
        .attention_bias = true,
        .bias_key = "use_bias",
        .hf_bias = true,
        .hf_tied = true,
        .eps_key = "norm_epsilon",
        .hf_naming = MODEL_NAMES_HF_STARCODER,
        .window = FORMAT_WINDOW_ALWAYS,
    },
    {
        .arch = "cohere2",
        .hf_class = "Cohere2ForCausalLM",
        .hf_type = "cohere2",
        .layer_norm = true,
        .parallel = true,
        .attention_bias = true,
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .hf_tied = true,
        .no_rope_every = 4,
        .numbers = 1u << FORMAT_LOGIT_SCALE,
        .window = FORMAT_WINDOW_ALWAYS,
        .window_default = 4096,
        .window_every = 4,
    },
    {
        .arch = "gemma",
        .hf_class = "GemmaForCausalLM",
        .hf_type = "gemma",
        .activation = MODEL_GELU,
        .attention_bias = true,
        .hf_tied = true,
        .gemma = true,
    },
    {
        .arch = "gemma2",
        .hf_class = "Gemma2ForCausalLM",
        .hf_type = "gemma2",
        .activation = MODEL_GELU,
        .norms = MODEL_NORM_AROUND,
        .attention_bias = true,
        .hf_tied = true,
        .hf_naming = MODEL_NAMES_HF_GEMMA,
        .numbers = 1u << FORMAT_ATTN_SOFTCAP | 1u << FORMAT_LOGIT_SOFTCAP,
        .window = FORMAT_WINDOW_ALWAYS,
        .window_default = 4096,
        .gguf_window_default = 4096,
        .window_every = 2,
        .gemma = true,
        .wide_layers = 46,
    },
    {
        .arch = "gemma3",
        .hf_class = "Gemma3ForCausalLM",
        .hf_type = "gemma3_text",
        .activation = MODEL_GELU,
        .norms = MODEL_NORM_AROUND,
        .qk_norm = true,
        .attention_bias = true,
        .hf_tied = true,
        .hf_naming = MODEL_NAMES_HF_GEMMA,
        .numbers = 1u << FORMAT_ATTN_SOFTCAP | 1u << FORMAT_LOGIT_SOFTCAP,
        .window = FORMAT_WINDOW_ALWAYS,
        .window_default = 4096,
        .window_every = 6,
        .rope_local_theta = 10000,
        .gemma = true,
        .wide_layers = 62,
    },
    {
        .arch = "olmoe",
        .hf_class = "OlmoeForCausalLM",
        .hf_type = "olmoe",
        .attention_bias = true,
        .qk_norm = true,
        .qk_norm_row = true,
        .experts = &olmoe_keys,
    },
    {
        .arch = "granitemoe",
        .hf_class = "GraniteMoeForCausalLM",
        .hf_type = "granitemoe",
        .gguf_only = "folders have all experts in one tensor",
        .attention_bias = true,
        .rope_interleaved = true,
        .rope_switch = true,
        .experts = &granite_keys,
        .norm_topk = true, /* the softmax is over the chosen experts */
        .shared_plain = true,
        .numbers = 1u << FORMAT_EMBED_SCALE | 1u << FORMAT_RESIDUAL_SCALE |
                   1u << FORMAT_ATTN_SCALE | 1u << FORMAT_LOGIT_DIVISOR,
    },
    {
        .arch = "ernie4_5",
        .hf_class = "Ernie4_5ForCausalLM",
        .hf_type = "ernie4_5",
        .attention_bias = true,
        .bias_key = "use_bias",
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .hf_tied = true,
    },
    {
        .arch = "seed_oss",
        .hf_class = "SeedOssForCausalLM",
        .hf_type = "seed_oss",
        .attention_bias = true,
        .no_o_bias = true,
        .hf_bias = true,
        .fused = MODEL_NAMES_POST_NORM,
    },
    {
        .arch = "xverse",
        .hf_class = "XverseForCausalLM",
        .hf_type = "xverse",
        .rope_interleaved = true,
    },
    {
        .arch = "internlm2",
        .hf_class = "InternLM2ForCausalLM",
        .hf_type = "internlm2",
        .gguf_only = "folders have Q, K and V by groups of heads in one tensor",
        .attention_bias = true,
        .rope_interleaved = true,
    },
    {
        .arch = "exaone",
        .hf_class = "ExaoneForCausalLM",
        .hf_type = "exaone",
        .gguf_only = "folders have names of their own",
    },
    {
        .arch = "chatglm",
        .hf_class = "ChatGLMModel",
        .hf_type = "chatglm",
        .gguf_only = "folders have names of their own",
        .attention_bias = true,
        .no_o_bias = true,
        .rope_interleaved = true,
        .rotary_frac = 0.5,
        .fused = MODEL_NAMES_FUSED_QKV | MODEL_NAMES_FUSED_GATE_UP,
    },
    {
        .arch = "qwen2vl",
        .hf_class = "Qwen2VLForConditionalGeneration",
        .hf_type = "qwen2_vl",
        .gguf_only = text_only,
        .sections = true,
        .qkv_bias = true,
    },
    {
        .arch = "qwen3vl",
        .hf_class = "Qwen3VLForConditionalGeneration",
        .hf_type = "qwen3_vl",
        .gguf_only = text_only,
        .sections = true,
        .qk_norm = true,
    },
    {
        .arch = "qwen3vlmoe",
        .hf_class = "Qwen3VLMoeForConditionalGeneration",
        .hf_type = "qwen3_vl_moe",
        .gguf_only = text_only,
        .sections = true,
        .qk_norm = true,
        .experts = &qwen3_keys,
        .norm_topk = true,
    },
    {
        .arch = "deepseek",
        .hf_class = "DeepseekForCausalLM",
        .hf_type = "deepseek",
        .attention_bias = true,
        .rope_interleaved = true,
        .experts = &deepseek_keys,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_DEEPSEEK,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "deepseek2",
        .hf_class = "DeepseekV2ForCausalLM",
        .hf_type = "deepseek_v2",
        .latent = true,
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .experts = &deepseek_keys,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_DEEPSEEK,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "deepseek2",
        .hf_class = "DeepseekV3ForCausalLM",
        .hf_type = "deepseek_v3",
        .latent = true,
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .experts = &deepseek_keys,
        .norm_topk = true, /* these three are in the keys and tensors of a GGUF file */
        .router_sigmoid = true,
        .router_choice = true,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_DEEPSEEK,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "deepseek2",
        .hf_class = "Glm4MoeLiteForCausalLM",
        .hf_type = "glm4_moe_lite",
        .latent = true,
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .experts = &deepseek_keys,
        .norm_topk = true,
        .router_sigmoid = true,
        .router_choice = true,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_DEEPSEEK,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "dots1",
        .hf_class = "Dots1ForCausalLM",
        .hf_type = "dots1",
        .attention_bias = true,
        .qk_norm = true,
        .experts = &deepseek_keys,
        .norm_topk = true,
        .router_sigmoid = true,
        .router_choice = true,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_DEEPSEEK,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
        .window = FORMAT_WINDOW_IF_SET,
    },
    {
        .arch = "glm4moe",
        .hf_class = "Glm4MoeForCausalLM",
        .hf_type = "glm4_moe",
        .attention_bias = true,
        .no_o_bias = true,
        .qk_norm_key = "use_qk_norm",
        .rotary_frac = 0.5,
        .experts = &deepseek_keys,
        .norm_topk = true,
        .router_sigmoid = true,
        .router_choice = true,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_DEEPSEEK,
        .fused = MODEL_NAMES_POST_NORM,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "ernie4_5-moe",
        .hf_class = "Ernie4_5_MoeForCausalLM",
        .hf_type = "ernie4_5_moe",
        .attention_bias = true,
        .bias_key = "use_bias",
        .rope_interleaved = true,
        .hf_rope_interleaved = true,
        .hf_tied = true,
        .experts = &ernie_keys,
        .norm_topk = true,
        .router_choice = true,
        .shared_plain = true,
        .hf_naming = MODEL_NAMES_HF_ERNIE,
    },
    {
        .arch = "bailingmoe",
        .hf_class = "BailingMoeForCausalLM",
        .hf_type = "bailing_moe",
        .gguf_only = "folders have Q, K and V in one tensor with a name of its own",
        .rope_interleaved = true,
        .experts = &bailing_keys,
        .norm_topk = true,
        .shared_plain = true,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "bailingmoe2",
        .hf_class = "BailingMoeV2ForCausalLM",
        .hf_type = "bailing_moe_v2",
        .gguf_only = "folders have Q, K and V in one tensor with a name of its own",
        .qk_norm = true,
        .rotary_frac = 0.5,
        .fused = MODEL_NAMES_FUSED_QKV,
        .experts = &bailing_keys,
        .norm_topk = true,
        .router_sigmoid = true,
        .router_choice = true,
        .shared_plain = true,
        .numbers = 1u << FORMAT_EXPERT_SCALE,
    },
    {
        .arch = "minimax-m2",
        .hf_class = "MiniMaxM2ForCausalLM",
        .hf_type = "minimax_m2",
        .gguf_only = "folders have FP8 with a scale for each block",
        .qk_norm = true,
        .qk_norm_row = true,
        .rotary_frac = 0.5,
        .experts = &mixtral_keys,
        .norm_topk = true,
        .router_sigmoid = true,
        .router_choice = true,
    },
    {0},
};

#define AT(member) offsetof(struct model_config, member)
const struct format_number_key format_numbers[FORMAT_N_NUMBERS] = {
    [FORMAT_EMBED_SCALE] = {"embedding_scale", "embedding_multiplier", AT(embed_scale)},
    [FORMAT_RESIDUAL_SCALE] = {"residual_scale", "residual_multiplier",
                               AT(residual_scale)},
    [FORMAT_ATTN_SCALE] = {"attention.scale", "attention_multiplier", AT(attn_scale)},
    [FORMAT_LOGIT_SCALE] = {"logit_scale", "logit_scale", AT(logit_scale)},
    [FORMAT_LOGIT_DIVISOR] = {"logit_scale", "logits_scaling", AT(logit_scale)},
    [FORMAT_ATTN_SOFTCAP] = {"attn_logit_softcapping", "attn_logit_softcapping",
                             AT(attn_softcap)},
    [FORMAT_LOGIT_SOFTCAP] = {"final_logit_softcapping", "final_logit_softcapping",
                              AT(logit_softcap)},
    [FORMAT_EXPERT_SCALE] = {"expert_weights_scale", "routed_scaling_factor",
                             AT(expert_scale)},
};
#undef AT

const char *const format_activation_names[MODEL_N_ACTIVATIONS][2] = {
    [MODEL_SILU] = {"silu", "swish"},
    [MODEL_GELU] = {"gelu_pytorch_tanh", "gelu_new"},
    [MODEL_SWIGLU_OAI] = {"silu", "swish"}, /* swiglu_limit says which */
};

const struct format_family *format_family_of_arch(const char *arch)
{
    for (const struct format_family *f = format_families; f->arch; f++)
        if (strcmp(f->arch, arch) == 0)
            return f;
    return NULL;
}

const struct format_family *format_family_of_class(const char *hf_class)
{
    for (const struct format_family *f = format_families; f->arch; f++)
        if (strcmp(f->hf_class, hf_class) == 0)
            return f;
    return NULL;
}

const struct format_family *format_family_of(const struct model_config *c)
{
    for (const struct format_family *f = format_families; f->arch; f++)
        if (strcmp(f->arch, c->arch) == 0 && (f->experts != NULL) == (c->n_experts > 0))
            return f;
    return format_family_of_arch(c->arch);
}

const struct format_family *format_family_like(bool qkv_bias, bool qk_norm)
{
    const struct format_family *f = format_families;

    while (f->experts || f->qk_norm != qk_norm || (!qk_norm && f->qkv_bias != qkv_bias))
        f++;
    return f;
}

void format_family_apply(const struct format_family *f, struct model_config *c)
{
    snprintf(c->arch, sizeof(c->arch), "%s", f->arch);
    c->activation = f->activation;
    c->qkv_bias = f->qkv_bias;
    c->qk_norm = f->qk_norm;
    c->qk_norm_row = f->qk_norm_row;
    c->norms = f->norms;
    c->layer_norm = f->layer_norm;
    c->norm_bias = f->norm_bias;
    c->parallel = f->parallel;
    c->no_gate = f->no_gate;
    c->sinks = f->sinks;
    c->expert_bias = f->expert_bias;
    c->router_sigmoid = f->router_sigmoid;
    c->router_choice = f->router_choice;
    c->shared_plain = f->shared_plain;
    c->rope_local_theta = (float)f->rope_local_theta;
    model_config_flag(c, MODEL_LAYER_NO_ROPE, f->no_rope_every);
}

void format_family_derive(const struct format_family *f, struct model_config *c)
{
    if (f->gemma)
        c->embed_scale = sqrtf((float)c->dim);
}

void format_family_window(const struct format_family *f, struct model_config *c,
                          int window, int every, bool flagged)
{
    model_config_window(c, window, every, flagged);
    if (f->window_unscaled && c->window > 0 && c->rope_local_theta == 0)
        c->rope_local_theta = c->rope_theta;
}

bool format_family_reads(const struct format_family *f, bool gguf, const char *key)
{
    const char *local = gguf ? "rope.freq_base_swa" : "rope_local_base_freq";

    if (f && (f->rope_local_theta > 0 || (gguf && f->window_unscaled)) &&
        strcmp(key, local) == 0)
        return true;
    if (f && f->latent &&
        (strcmp(key, gguf ? "attention.kv_lora_rank" : "kv_lora_rank") == 0 ||
         strcmp(key, gguf ? "attention.q_lora_rank" : "q_lora_rank") == 0))
        return true;
    if (f && f->qk_norm_key && !gguf && strcmp(key, f->qk_norm_key) == 0)
        return true;
    if (f && f->sections && gguf && strcmp(key, "rope.dimension_sections") == 0)
        return true;
    for (int i = 0; f && i < FORMAT_N_NUMBERS; i++)
        if (f->numbers >> i & 1 &&
            strcmp(key, gguf ? format_numbers[i].gguf : format_numbers[i].hf) == 0)
            return true;
    return false;
}
