/* The shapes that have names: each as in the published configuration of that model. */
#include "make/parts.h"

#include <math.h>
#include <pthread.h>
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

#define GRANITE                                                                          \
    .family = MAKE_REFACT, .hf_class = "GraniteForCausalLM", .rope_theta = 5e6,          \
    .norm_eps = 1e-5, .tied = true
#define SMOLLM3                                                                          \
    .family = MAKE_DBRX, .hf_class = "SmolLM3ForCausalLM", .norm_eps = 1e-6, .tied = true
#define OLMO2                                                                            \
    .family = MAKE_DBRX, .hf_class = "Olmo2ForCausalLM", .rope_theta = 5e5,              \
    .norm_eps = 1e-6

#define PHI3       .hf_class = "Phi3ForCausalLM", .norm_eps = 1e-5
#define PHI3_DBRX  PHI3, .family = MAKE_DBRX
#define PHI3_O200K PHI3, .family = MAKE_O200K
#define STABLELM                                                                         \
    .family = MAKE_STABLELM2, .hf_class = "StableLmForCausalLM", .norm_eps = 1e-5,       \
    .rope_theta = 1e4, .rotary_frac = 0.25, .attention_bias = true
#define GLM4                                                                             \
    .family = MAKE_GLM4, .hf_class = "Glm4ForCausalLM", .norm_eps = 1e-5,                \
    .rope_theta = 1e4, .rotary_frac = 0.5, .attention_bias = true
#define COHERE                                                                           \
    .family = MAKE_COMMAND_R, .hf_class = "CohereForCausalLM", .norm_eps = 1e-5,         \
    .rope_theta = 8e6, .tied = true, .numbers = {[FORMAT_LOGIT_SCALE] = 0.0625f}

#define TEKKEN(vocab_)                                                                   \
    .hf_class = "MistralForCausalLM", .family = MAKE_TEKKEN, .rope_theta = 1e8,          \
    .norm_eps = 1e-5, .vocab = (vocab_), .special_at = (vocab_), .bos_id = 1,            \
    .eos_id = 2, .adds_bos = true
#define OLMO3                                                                            \
    .family = MAKE_DBRX, .hf_class = "Olmo3ForCausalLM", .rope_theta = 5e5,              \
    .norm_eps = 1e-6
#define COHERE2                                                                          \
    .family = MAKE_COMMAND_R, .hf_class = "Cohere2ForCausalLM", .norm_eps = 1e-5,        \
    .rope_theta = 5e4, .tied = true, .numbers = {[FORMAT_LOGIT_SCALE] = 0.25f}
#define GPT_OSS                                                                          \
    .family = MAKE_O200K, .hf_class = "GptOssForCausalLM", .norm_eps = 1e-5,             \
    .rope_theta = 150000, .attention_bias = true, .norm_topk = true
#define STARCODER2                                                                       \
    .family = MAKE_STARCODER, .hf_class = "Starcoder2ForCausalLM", .norm_eps = 1e-5,     \
    .attention_bias = true, .tied = true
#define OLMOE                                                                            \
    .family = MAKE_DBRX, .hf_class = "OlmoeForCausalLM", .rope_theta = 1e4,              \
    .norm_eps = 1e-5
#define GRANITE_MOE                                                                      \
    .family = MAKE_REFACT, .hf_class = "GraniteMoeForCausalLM", .rope_theta = 1.5e6,     \
    .norm_eps = 1e-6, .tied = true, .norm_topk = true
#define ERNIE                                                                            \
    .hf_class = "Ernie4_5ForCausalLM", .rope_theta = 5e5, .norm_eps = 1e-5, .tied = true
#define SEED_OSS                                                                         \
    .family = MAKE_DBRX, .hf_class = "SeedOssForCausalLM", .rope_theta = 1e7,            \
    .norm_eps = 1e-6, .attention_bias = true
#define DEEPSEEK                                                                         \
    .family = MAKE_DBRX, .hf_class = "DeepseekForCausalLM", .rope_theta = 1e4,           \
    .norm_eps = 1e-6, .numbers = {[FORMAT_EXPERT_SCALE] = 1}
#define DEEPSEEK2                                                                        \
    .family = MAKE_DBRX, .hf_class = "DeepseekV2ForCausalLM", .rope_theta = 1e4,         \
    .norm_eps = 1e-6, .numbers = {[FORMAT_EXPERT_SCALE] = 1}
#define DEEPSEEK3                                                                        \
    .family = MAKE_DBRX, .hf_class = "DeepseekV3ForCausalLM", .rope_theta = 5e4,         \
    .norm_eps = 1e-5, .norm_topk = true, .numbers = {[FORMAT_EXPERT_SCALE] = 2.446f}
#define GLM4_LITE                                                                        \
    .family = MAKE_GLM4, .hf_class = "Glm4MoeLiteForCausalLM", .rope_theta = 1e6,        \
    .norm_eps = 1e-5, .norm_topk = true, .numbers = {[FORMAT_EXPERT_SCALE] = 1.8f}
#define DOTS1                                                                            \
    .family = MAKE_QWEN2, .hf_class = "Dots1ForCausalLM", .rope_theta = 1e7,             \
    .norm_eps = 1e-5, .norm_topk = true, .numbers = {[FORMAT_EXPERT_SCALE] = 2.5f}
#define GLM4_MOE                                                                         \
    .family = MAKE_GLM4, .hf_class = "Glm4MoeForCausalLM", .rope_theta = 1e6,            \
    .norm_eps = 1e-5, .norm_topk = true, .rotary_frac = 0.5, .attention_bias = true,     \
    .numbers = {[FORMAT_EXPERT_SCALE] = 1}
#define ERNIE_MOE                                                                        \
    .hf_class = "Ernie4_5_MoeForCausalLM", .rope_theta = 5e5, .norm_eps = 1e-5,          \
    .norm_topk = true, .tied = true
#define LING                                                                             \
    .family = MAKE_DBRX, .hf_class = "BailingMoeForCausalLM", .rope_theta = 6e5,         \
    .norm_eps = 1e-6, .norm_topk = true, .numbers = {[FORMAT_EXPERT_SCALE] = 1}
#define LING2                                                                            \
    .family = MAKE_DBRX, .hf_class = "BailingMoeV2ForCausalLM", .rope_theta = 6e5,       \
    .norm_eps = 1e-6, .norm_topk = true, .rotary_frac = 0.5,                             \
    .numbers = {[FORMAT_EXPERT_SCALE] = 2.5f}
#define MINIMAX_M2                                                                       \
    .family = MAKE_DBRX, .hf_class = "MiniMaxM2ForCausalLM", .rope_theta = 5e6,          \
    .norm_eps = 1e-6, .norm_topk = true, .rotary_frac = 0.5
#define GEMMA(vocab)                                                                     \
    SPM(vocab), .hf_class = "GemmaForCausalLM", .norm_eps = 1e-6, .rope_theta = 1e4,     \
                .tied = true
#define GEMMA2(vocab)                                                                    \
    SPM(vocab), .hf_class = "Gemma2ForCausalLM", .norm_eps = 1e-6, .rope_theta = 1e4,    \
                .tied = true,                                                            \
                .numbers = {[FORMAT_ATTN_SOFTCAP] = 50, [FORMAT_LOGIT_SOFTCAP] = 30}
#define GEMMA3(vocab)                                                                    \
    SPM(vocab), .hf_class = "Gemma3ForCausalLM", .norm_eps = 1e-6, .rope_theta = 1e6,    \
                .tied = true

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
    {"granite-3.3-2b", GRANITE, .dim = 2048, .hidden = 8192, .n_layers = 40, .n_heads = 32,
     .n_kv_heads = 8, .head_dim = 64, .vocab = 49159, .max_tok = 131072,
     .special_at = 49152, .bos_id = 0, .eos_id = 0,
     .numbers = {12, 0.22f, 0.015625f, 0, 0.125f}},
    {"smollm3-3b", SMOLLM3, .dim = 2048, .hidden = 11008, .n_layers = 36, .n_heads = 16,
     .n_kv_heads = 4, .head_dim = 128, .vocab = 128256, .max_tok = 65536, .rope_theta = 5e6,
     .bos_id = 128000, .eos_id = 128012, .special_at = 128000},
    {"olmo-2-1b", OLMO2, .dim = 2048, .hidden = 8192, .n_layers = 16, .n_heads = 16,
     .n_kv_heads = 16, .head_dim = 128, .vocab = 100352, .max_tok = 4096, .bos_id = 100257,
     .eos_id = 100257, .special_at = 100256},
    {"phi-3.5-mini", PHI3, SPM(32064), .rope_theta = 1e4, .dim = 3072, .hidden = 8192,
     .n_layers = 32, .n_heads = 32, .n_kv_heads = 32, .head_dim = 96,
     .vocab = 32064, .max_tok = 131072,
     .short_tok = 4096},
    {"phi-4-14b", PHI3_DBRX, .dim = 5120, .hidden = 17920, .n_layers = 40, .n_heads = 40,
     .n_kv_heads = 10, .head_dim = 128, .vocab = 100352, .max_tok = 16384,
     .rope_theta = 250000, .bos_id = 100257, .eos_id = 100257, .special_at = 100256},
    {"phi-4-mini", PHI3_O200K, .dim = 3072, .hidden = 8192, .n_layers = 32, .n_heads = 24,
     .n_kv_heads = 8, .head_dim = 128, .vocab = 200064, .max_tok = 131072, .tied = true,
     .rope_theta = 1e4, .rotary_frac = 0.75, .short_tok = 4096, .bos_id = 199999,
     .eos_id = 199999, .special_at = 199998},
    {"mistral-small-24b", TEKKEN(131072), .dim = 5120, .hidden = 32768, .n_layers = 40,
     .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .max_tok = 32768},
    {"ministral-8b", TEKKEN(131072), .dim = 4096, .hidden = 12288, .n_layers = 36,
     .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .max_tok = 32768},
    {"olmo-3-7b", OLMO3, .dim = 4096, .hidden = 11008, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 32, .head_dim = 128, .vocab = 100278, .max_tok = 65536, .window = 4096,
     .yarn = {8, 8192}, .bos_id = 100257, .eos_id = 100257, .special_at = 100256},
    {"stablelm-2-1.6b", STABLELM, .dim = 2048, .hidden = 5632, .n_layers = 24,
     .n_heads = 32, .n_kv_heads = 32, .head_dim = 64, .vocab = 100352, .max_tok = 4096,
     .bos_id = 100257, .eos_id = 100257, .special_at = 100256},
    {"glm-4-9b", GLM4, .dim = 4096, .hidden = 13696, .n_layers = 40, .n_heads = 32,
     .n_kv_heads = 2, .head_dim = 128, .vocab = 151552, .max_tok = 32768,
     .bos_id = 151331, .eos_id = 151329, .special_at = 151329},
    {"command-r-35b", COHERE, .dim = 8192, .hidden = 22528, .n_layers = 40, .n_heads = 64,
     .n_kv_heads = 64, .head_dim = 128, .vocab = 256000, .max_tok = 8192, .bos_id = 5,
     .eos_id = 255001, .special_at = 255029},
    {"gpt-oss-20b", GPT_OSS, .dim = 2880, .n_experts = 32, .n_active = 4,
     .expert_hidden = 2880, .dense_hidden = 2880, .n_layers = 24, .n_heads = 64,
     .n_kv_heads = 8, .head_dim = 64, .vocab = 201088, .max_tok = 131072, .window = 128,
     .yarn = {32, 4096}, .bos_id = 199998, .eos_id = 200002, .special_at = 199998},
    {"olmoe-1b-7b", OLMOE, .dim = 2048, .n_experts = 64, .n_active = 8,
     .expert_hidden = 1024, .n_layers = 16, .n_heads = 16, .n_kv_heads = 16,
     .head_dim = 128, .vocab = 50304, .max_tok = 4096, .bos_id = 50279, .eos_id = 50279,
     .special_at = 50279},
    {"granite-3.1-1b-a400m", GRANITE_MOE, .dim = 1024, .n_experts = 32, .n_active = 8,
     .expert_hidden = 512, .n_layers = 24, .n_heads = 16, .n_kv_heads = 8, .head_dim = 64,
     .vocab = 49155, .max_tok = 131072, .special_at = 49152,
     .bos_id = 0, .eos_id = 0, .numbers = {12, 0.22f, 0.015625f, 0, 1 / 6.0f}},
    {"ernie-4.5-0.3b", ERNIE, SPM(103424), .dim = 1024, .hidden = 3072, .n_layers = 18,
     .n_heads = 16, .n_kv_heads = 2, .head_dim = 128, .vocab = 103424, .max_tok = 131072},
    {"deepseek-moe-16b", DEEPSEEK, .dim = 2048, .hidden = 2816, .n_experts = 64,
     .n_active = 6, .expert_hidden = 1408, .n_dense = 1, .dense_hidden = 10944,
     .n_layers = 28, .n_heads = 16, .n_kv_heads = 16, .head_dim = 128, .vocab = 102400,
     .max_tok = 4096, .bos_id = 100000, .eos_id = 100001, .special_at = 100000},
    {"deepseek-v2-lite", DEEPSEEK2, .dim = 2048, .hidden = 2816, .n_experts = 64,
     .n_active = 6, .expert_hidden = 1408, .n_dense = 1, .dense_hidden = 10944,
     .n_layers = 27, .n_heads = 16, .latent_dim = 512, .nope_dim = 128, .value_dim = 128,
     .rope_dims = 64, .vocab = 102400, .max_tok = 163840, .yarn = {40, 4096, 0.707},
     .bos_id = 100000, .eos_id = 100001, .special_at = 100000},
    {"moonlight-16b-a3b", DEEPSEEK3, .dim = 2048, .hidden = 2816, .n_experts = 64,
     .n_active = 6, .expert_hidden = 1408, .n_dense = 1, .dense_hidden = 11264,
     .n_layers = 27, .n_heads = 16, .latent_dim = 512, .nope_dim = 128, .value_dim = 128,
     .rope_dims = 64, .vocab = 163840, .max_tok = 8192, .bos_id = 163584,
     .eos_id = 163585, .special_at = 163584},
    {"glm-4.7-flash", GLM4_LITE, .dim = 2048, .hidden = 1536, .n_experts = 64,
     .n_active = 4, .expert_hidden = 1536, .n_dense = 1, .dense_hidden = 10240,
     .n_layers = 47, .n_heads = 20, .latent_dim = 512, .q_rank = 768, .nope_dim = 192,
     .value_dim = 256, .rope_dims = 64, .vocab = 154880, .max_tok = 202752,
     .bos_id = 154822, .eos_id = 154820, .special_at = 154820},
    {"glm-4.5-air", GLM4_MOE, .dim = 4096, .hidden = 1408, .n_experts = 128, .n_active = 8,
     .expert_hidden = 1408, .n_dense = 1, .dense_hidden = 10944, .n_layers = 46,
     .n_heads = 96, .n_kv_heads = 8, .head_dim = 128, .vocab = 151552, .max_tok = 131072,
     .bos_id = 151331, .eos_id = 151329, .special_at = 151329},
    {"ernie-4.5-21b-a3b", ERNIE_MOE, SPM(103424), .dim = 2560, .hidden = 3072,
     .n_experts = 64, .n_active = 6, .expert_hidden = 1536, .n_dense = 1,
     .dense_hidden = 12288, .n_layers = 28, .n_heads = 20, .n_kv_heads = 4,
     .head_dim = 128, .vocab = 103424, .max_tok = 131072},
    {"ling-lite", LING, .dim = 2048, .hidden = 2816, .n_experts = 64, .n_active = 6,
     .expert_hidden = 1408, .dense_hidden = 5632, .n_layers = 28, .n_heads = 16,
     .n_kv_heads = 4, .head_dim = 128, .vocab = 126464, .max_tok = 16384,
     .bos_id = 126080, .eos_id = 126081, .special_at = 126080},
    {"ling-mini-2.0", LING2, .dim = 2048, .hidden = 512, .n_experts = 256, .n_active = 8,
     .n_groups = 8, .n_active_groups = 4, .expert_hidden = 512, .n_dense = 1,
     .dense_hidden = 5120, .n_layers = 20, .n_heads = 16, .n_kv_heads = 4,
     .head_dim = 128, .vocab = 157184, .max_tok = 32768, .bos_id = 156891,
     .eos_id = 156892, .special_at = 156891},
    {"seed-oss-36b", SEED_OSS, .dim = 5120, .hidden = 27648, .n_layers = 64, .n_heads = 80,
     .n_kv_heads = 8, .head_dim = 128, .vocab = 155136, .max_tok = 524288, .bos_id = 0,
     .eos_id = 2, .special_at = 155000},
    {"starcoder2-3b", STARCODER2, .dim = 3072, .hidden = 12288, .n_layers = 30,
     .n_heads = 24, .n_kv_heads = 2, .head_dim = 128, .vocab = 49152, .max_tok = 16384,
     .rope_theta = 999999.4420358813, .window = 4096, .bos_id = 0, .eos_id = 0,
     .special_at = 49151},
    {"command-r7b", COHERE2, .dim = 4096, .hidden = 14336, .n_layers = 32, .n_heads = 32,
     .n_kv_heads = 8, .head_dim = 128, .vocab = 256000, .max_tok = 8192, .window = 4096,
     .bos_id = 5, .eos_id = 255001, .special_at = 255029},
    {"gemma-2b", GEMMA(256000), .dim = 2048, .hidden = 16384, .n_layers = 18, .n_heads = 8,
     .n_kv_heads = 1, .head_dim = 256, .vocab = 256000, .max_tok = 8192},
    {"gemma-2-2b", GEMMA2(256000), .dim = 2304, .hidden = 9216, .n_layers = 26,
     .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .vocab = 256000, .max_tok = 8192,
     .window = 4096},
    {"gemma-3-1b", GEMMA3(262144), .dim = 1152, .hidden = 6912, .n_layers = 26,
     .n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .vocab = 262144, .max_tok = 32768,
     .window = 512},
    {"gemma-3-4b", GEMMA3(262144), .dim = 2560, .hidden = 10240, .n_layers = 34,
     .n_heads = 8, .n_kv_heads = 4, .head_dim = 256, .vocab = 262144, .max_tok = 131072,
     .window = 1024, .linear = 8},
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
    /* ... and of the families that differ in more than their shape */
    {"tiny-granite", GRANITE, .dim = 72, .hidden = 190, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 12, .vocab = 515, .max_tok = 256, .special_at = 512,
     .bos_id = 512, .eos_id = 512, .numbers = {12, 0.22f, 0.0625f, 0, 0.125f}},
    {"tiny-smollm3", SMOLLM3, .dim = 64, .hidden = 150, .n_layers = 5, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 8, .vocab = 777, .max_tok = 256, .rope_theta = 5e6,
     .bos_id = 512, .eos_id = 513, .special_at = 512},
    {"tiny-olmo2", OLMO2, .dim = 60, .hidden = 166, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 3, .head_dim = 10, .vocab = 777, .max_tok = 256, .bos_id = 513,
     .eos_id = 513, .special_at = 512},
    {"tiny-phi3", PHI3, SPM(601), .rope_theta = 1e4, .dim = 66, .hidden = 150,
     .n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .head_dim = 16,
     .vocab = 601, .max_tok = 256, .rotary_frac = 0.75,
     .short_tok = 32},
    {"tiny-stablelm", STABLELM, .dim = 72, .hidden = 190, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 6, .head_dim = 16, .vocab = 777, .max_tok = 256, .bos_id = 512,
     .eos_id = 512, .special_at = 512},
    {"tiny-glm4", GLM4, .dim = 60, .hidden = 166, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 16, .vocab = 777, .max_tok = 256, .bos_id = 512,
     .eos_id = 512, .special_at = 512},
    {"tiny-command-r", COHERE, .dim = 64, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 4, .head_dim = 8, .vocab = 515, .max_tok = 256, .bos_id = 512,
     .eos_id = 513, .special_at = 512},
    {"tiny-gpt-oss", GPT_OSS, .dim = 60, .n_experts = 5, .n_active = 2,
     .expert_hidden = 46, .dense_hidden = 46, .n_layers = 4, .n_heads = 6, .n_kv_heads = 2,
     .head_dim = 16, .vocab = 515, .max_tok = 256, .window = 9, .yarn = {4, 64},
     .bos_id = 512, .eos_id = 513, .special_at = 512},
    {"tiny-starcoder2", STARCODER2, .dim = 60, .hidden = 166, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 10, .vocab = 515, .max_tok = 256, .rope_theta = 1e5,
     .window = 9, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-olmoe", OLMOE, .dim = 60, .n_experts = 9, .n_active = 4, .expert_hidden = 34,
     .n_layers = 3, .n_heads = 6, .n_kv_heads = 6, .head_dim = 10, .vocab = 777,
     .max_tok = 256, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-granite-moe", GRANITE_MOE, .dim = 72, .n_experts = 5, .n_active = 2,
     .expert_hidden = 46, .n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .head_dim = 12,
     .vocab = 515, .max_tok = 256, .special_at = 512, .bos_id = 512, .eos_id = 512,
     .numbers = {12, 0.22f, 0.0625f, 0, 0.125f}},
    {"tiny-ernie", ERNIE, SPM(601), .dim = 68, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 12, .vocab = 601, .max_tok = 256},
    {"tiny-seed-oss", SEED_OSS, .dim = 60, .hidden = 166, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 12, .vocab = 777, .max_tok = 256, .bos_id = 512,
     .eos_id = 512, .special_at = 512},
    {"tiny-deepseek", DEEPSEEK, .hidden = 68, .n_experts = 7, .n_active = 3,
     .expert_hidden = 34, .n_dense = 1, .dense_hidden = 118, .dim = 60, .n_layers = 3,
     .n_heads = 6, .n_kv_heads = 6, .head_dim = 10, .vocab = 777, .max_tok = 256,
     .bos_id = 512, .eos_id = 512, .special_at = 512},
    /* as many layers as V2 Lite: by them llama.cpp of 2025 knows that queries have one matrix */
    {"tiny-deepseek2", DEEPSEEK2, .hidden = 34, .n_experts = 5, .n_active = 2,
     .expert_hidden = 34, .n_dense = 1, .dense_hidden = 74, .dim = 48, .n_layers = 27,
     .n_heads = 3, .latent_dim = 32, .nope_dim = 20, .value_dim = 16, .rope_dims = 16,
     .vocab = 777, .max_tok = 256, .yarn = {4, 64, 0.707}, .bos_id = 512, .eos_id = 512,
     .special_at = 512},
    {"tiny-deepseek3", DEEPSEEK3, .hidden = 34, .n_experts = 8, .n_active = 3,
     .expert_hidden = 34, .n_dense = 1, .dense_hidden = 74, .dim = 40, .n_layers = 27,
     .n_heads = 5, .latent_dim = 48,
     .nope_dim = 12, .value_dim = 32, .rope_dims = 16, .vocab = 777, .max_tok = 256,
     .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-glm4-lite", GLM4_LITE, .hidden = 34, .n_experts = 6, .n_active = 2,
     .expert_hidden = 34, .n_dense = 1, .dense_hidden = 74, .dim = 40, .n_layers = 3,
     .n_heads = 5, .latent_dim = 48, .q_rank = 26,
     .nope_dim = 12, .value_dim = 32, .rope_dims = 16, .vocab = 777, .max_tok = 256,
     .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-dots1", DOTS1, .hidden = 68, .n_experts = 7, .n_active = 3,
     .expert_hidden = 34, .n_dense = 2, .dense_hidden = 118, .dim = 60, .n_layers = 4,
     .n_heads = 6, .n_kv_heads = 6, .head_dim = 12, .vocab = 515, .max_tok = 256,
     .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-glm4-moe", GLM4_MOE, .qk_norm = true, .hidden = 34, .n_experts = 8,
     .n_active = 2, .n_groups = 4, .n_active_groups = 2, .expert_hidden = 34,
     .n_dense = 1, .dense_hidden = 118, .dim = 60, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 16, .vocab = 777, .max_tok = 256, .bos_id = 512,
     .eos_id = 512, .special_at = 512},
    {"tiny-ernie-moe", ERNIE_MOE, SPM(601), .hidden = 68, .n_experts = 7, .n_active = 3,
     .expert_hidden = 34, .n_dense = 1, .dense_hidden = 118, .dim = 60, .n_layers = 3,
     .n_heads = 6, .n_kv_heads = 2, .head_dim = 12, .vocab = 601, .max_tok = 256},
    {"tiny-ling", LING, .hidden = 68, .n_experts = 7, .n_active = 3, .expert_hidden = 34,
     .dense_hidden = 118, .dim = 60, .n_layers = 3, .n_heads = 6, .n_kv_heads = 2,
     .head_dim = 12, .vocab = 777, .max_tok = 256, .bos_id = 512, .eos_id = 512,
     .special_at = 512},
    {"tiny-ling2", LING2, .hidden = 34, .n_experts = 12, .n_active = 3, .n_groups = 4,
     .n_active_groups = 2, .expert_hidden = 34, .n_dense = 1, .dense_hidden = 118,
     .dim = 60, .n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .head_dim = 16,
     .vocab = 777, .max_tok = 256, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-minimax-m2", MINIMAX_M2, .n_experts = 9, .n_active = 4, .expert_hidden = 34,
     .dim = 60, .n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .head_dim = 16,
     .vocab = 777, .max_tok = 256, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-xverse", .hf_class = "XverseForCausalLM", SPM(601), .rope_theta = 1e4,
     .norm_eps = 1e-6, .dim = 64, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 8, .vocab = 601, .max_tok = 256},
    {"tiny-internlm2", .hf_class = "InternLM2ForCausalLM", SPM(601), .rope_theta = 1e6,
     .norm_eps = 1e-5, .dim = 64, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 8, .vocab = 601, .max_tok = 256},
    {"tiny-exaone", .hf_class = "ExaoneForCausalLM", SPM(601), .rope_theta = 5e5,
     .norm_eps = 1e-5, .dim = 68, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 12, .vocab = 601, .max_tok = 256},
    {"tiny-chatglm", .hf_class = "ChatGLMModel", .family = MAKE_GLM4, .rope_theta = 1e4,
     .norm_eps = 1e-5, .rotary_frac = 0.5, .attention_bias = true, .dim = 64,
     .hidden = 150, .n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,
     .vocab = 777, .max_tok = 256, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-qwen2-vl", .hf_class = "Qwen2VLForConditionalGeneration",
     .family = MAKE_QWEN2, .rope_theta = 1e6, .norm_eps = 1e-6, .dim = 64, .hidden = 150,
     .n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .vocab = 515,
     .max_tok = 256, .bos_id = 512, .eos_id = 512, .special_at = 512},
    {"tiny-qwen3-vl", .hf_class = "Qwen3VLForConditionalGeneration", .family = MAKE_QWEN2,
     .rope_theta = 5e6, .norm_eps = 1e-6, .dim = 60, .hidden = 166, .n_layers = 3,
     .n_heads = 6, .n_kv_heads = 2, .head_dim = 18, .vocab = 515, .max_tok = 256,
     .bos_id = 512, .eos_id = 514, .special_at = 512},
    {"tiny-qwen3-vl-moe", .hf_class = "Qwen3VLMoeForConditionalGeneration",
     .family = MAKE_QWEN2, .rope_theta = 5e6, .norm_eps = 1e-6, .norm_topk = true,
     .dim = 60, .n_experts = 9, .n_active = 4, .expert_hidden = 34, .dense_hidden = 166,
     .n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .head_dim = 18, .vocab = 515,
     .max_tok = 256, .bos_id = 512, .eos_id = 514, .special_at = 512},
    {"tiny-cohere2", COHERE2, .dim = 64, .hidden = 150, .n_layers = 5, .n_heads = 8,
     .n_kv_heads = 4, .head_dim = 8, .vocab = 515, .max_tok = 256, .window = 9,
     .bos_id = 512, .eos_id = 513, .special_at = 512},
    {"tiny-gemma", GEMMA(601), .dim = 60, .hidden = 166, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 1, .head_dim = 16, .vocab = 601, .max_tok = 256},
    {"tiny-gemma2", GEMMA2(601), .dim = 60, .hidden = 166, .n_layers = 4, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 16, .vocab = 601, .max_tok = 256, .window = 9},
    {"tiny-gemma3", GEMMA3(601), .dim = 64, .hidden = 150, .n_layers = 7, .n_heads = 4,
     .n_kv_heads = 1, .head_dim = 12, .vocab = 601, .max_tok = 256, .window = 9,
     .linear = 8},
    {"tiny-tekken", TEKKEN(601), .dim = 68, .hidden = 150, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 12, .max_tok = 256},
    {"tiny-olmo3", OLMO3, .dim = 60, .hidden = 166, .n_layers = 5, .n_heads = 6,
     .n_kv_heads = 3, .head_dim = 10, .vocab = 777, .max_tok = 256, .window = 9,
     .yarn = {4, 64}, .bos_id = 513, .eos_id = 513, .special_at = 512},
    {"tiny-phi4-mini", PHI3_O200K, .dim = 66, .hidden = 150, .n_layers = 3, .n_heads = 6,
     .n_kv_heads = 2, .head_dim = 16, .vocab = 777, .max_tok = 256, .rotary_frac = 0.75,
     .short_tok = 32, .tied = true, .rope_theta = 1e4, .bos_id = 512, .eos_id = 512,
     .special_at = 512},
    /* ... and one whose matrix down has rows of blocks of 32 only, as sheared-llama-1.3b */
    {"tiny-quant-32", LLAMA2(601), .dim = 256, .hidden = 352, .n_layers = 3, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 32, .vocab = 601, .max_tok = 256, .norm_eps = 1e-5},
    {"tiny-quant-gpt-oss", GPT_OSS, .dim = 256, .n_experts = 3, .n_active = 2,
     .expert_hidden = 256, .dense_hidden = 256, .n_layers = 2, .n_heads = 8,
     .n_kv_heads = 2, .head_dim = 32, .vocab = 515, .max_tok = 256, .window = 9,
     .yarn = {4, 64}, .bos_id = 512, .eos_id = 513, .special_at = 512},
};
/* clang-format on */
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const char *names[N_SHAPES + 1];

static void fill_names(void)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        names[i] = shapes[i].name;
}

const char *const *make_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill_names);
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
        .n_groups = s->n_groups,
        .n_active_groups = s->n_active_groups,
        .n_dense = s->n_dense,
        .latent_dim = s->latent_dim,
        .nope_dim = s->nope_dim,
        .value_dim = s->value_dim,
        .q_rank = s->q_rank,
        .dense_hidden = s->n_dense > 0 ? s->dense_hidden : 0,
        .vocab = s->vocab,
        .max_tok = s->max_tok,
        .norm_eps = (float)s->norm_eps,
        .rope_theta = (float)s->rope_theta,
        .tied = s->tied,
        .bos_id = s->bos_id,
        .eos_id = s->eos_id,
    };
    format_family_apply(format_family_of_class(s->hf_class), out);
    for (i = 0; i < FORMAT_N_NUMBERS; i++)
        if (s->numbers[i] != 0)
            *format_number_of(out, i) = s->numbers[i];
    out->o_bias = s->attention_bias && !format_family_of(out)->no_o_bias;
    out->qkv_bias |= s->attention_bias;
    out->mlp_bias = out->no_gate && s->attention_bias;
    out->qk_norm |= s->qk_norm;
    out->rope_dims =
        s->latent_dim > 0 ? s->rope_dims : (int)(s->rotary_frac * s->head_dim);
    if (s->latent_dim > 0)
        model_config_latent(out, s->yarn.factor, s->yarn.mscale);
    snprintf(out->name, sizeof(out->name), "%s", s->name);
    format_family_derive(format_family_of(out), out);

    format_family_window(format_family_of(out), out, s->window,
                         format_family_of(out)->window_every, false);
    for (i = 0; i < MODEL_HEAD_DIM_MAX / 2; i++)
        out->rope_factor[i] = out->rope_long[i] = s->linear > 0 ? (float)s->linear : 1;
    if (s->short_tok >
        0) { /* divisors that grow with the wavelength: not the published ones */
        out->rope_short_tok = s->short_tok;
        for (i = 0; i < model_rope_dims(out) / 2; i++)
            out->rope_long[i] = (float)(1 + i * s->max_tok / s->short_tok / 8);
        out->rope_length = (float)sqrt(1 + log((double)s->max_tok / s->short_tok) /
                                               log((double)s->short_tok));
    }
    if (s->yarn.factor > 0) { /* the usual borders, as readers have them */
        model_config_rope_yarn(out, s->yarn.factor, 32, 1, s->yarn.original_tok, true);
        if (s->latent_dim == 0)
            out->rope_length = (float)model_config_yarn_length(s->yarn.factor, 1);
    }
    if (s->scale.factor > 0)
        model_config_rope_llama3(out, s->scale.factor, s->scale.low, s->scale.high,
                                 s->scale.original_tok);
    return model_config_check(out, s->name);
}
