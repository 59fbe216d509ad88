#include "format/family.h"

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
    {0},
};

const char *const format_activation_names[MODEL_N_ACTIVATIONS][2] = {
    [MODEL_SILU] = {"silu", "swish"},
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
}

/* Rows with one arch stand together. */
void format_family_names(bool hf_class, char out[FORMAT_FAMILY_NAMES_BYTES])
{
    const char *name;
    size_t n = 0;

    out[0] = 0;
    for (const struct format_family *f = format_families; f->arch; f++) {
        name = hf_class ? f->hf_class : f->arch;
        if (f[1].arch && !hf_class && strcmp(f[1].arch, name) == 0)
            continue;
        n += (size_t)snprintf(out + n, FORMAT_FAMILY_NAMES_BYTES - n, "%s%s",
                              n == 0      ? ""
                              : f[1].arch ? ", "
                                          : " or ",
                              name);
        if (n >= FORMAT_FAMILY_NAMES_BYTES)
            return;
    }
}
