#include "format/support.h"

#include <string.h>

#define STATE    "state-space layers (a recurrent state in place of keys and values)"
#define ENCODER  "attention in both directions (it encodes texts and writes none)"
#define LATENT   "latent attention (MLA)"
#define ALIBI    "biases of attention by distance (ALiBi)"
#define LEARNED  "learned embeddings of positions"
#define UNGATED  "an MLP without a gate"
#define SQUARED  "an MLP of squared ReLU without a gate"
#define IMAGES   "rotary embeddings by sections (images)"
#define DIFFUSE  "attention in both directions (texts are written by diffusion)"
#define DRAFT    "hidden states of another model (it is a draft for one)"
#define SHAPES   "layers of different shapes"
#define ROW_ONLY "a row in the table of families (no operator is missing)"

const struct format_refused format_refusals[] = {
    {"clip", NULL, "a vision encoder"},
    {"llama4", "llama4_text", "attention in chunks"},
    {"deci", "nemotron-nas", SHAPES},
    {"falcon", NULL, UNGATED " in parallel with attention"},
    {"grok", "grok-1", "soft-capping of the router and norms after attention's output"},
    {"gpt2", NULL, LEARNED},
    {"gptj", NULL, UNGATED " in parallel with attention"},
    {"gptneox", "gpt_neox", UNGATED " in parallel with attention"},
    {"mpt", NULL, ALIBI},
    {"baichuan", NULL, ALIBI},
    {"starcoder", "gpt_bigcode", LEARNED},
    {"refact", "gpt_refact", ALIBI},
    {"bert", NULL, ENCODER},
    {"modern-bert", "modernbert", ENCODER},
    {"nomic-bert", "nomic_bert", ENCODER},
    {"nomic-bert-moe", NULL, ENCODER},
    {"neo-bert", "neobert", ENCODER},
    {"jina-bert-v2", NULL, ENCODER},
    {"jina-bert-v3", "xlm-roberta", ENCODER},
    {"eurobert", NULL, ENCODER},
    {"bloom", NULL, ALIBI},
    {"qwen", NULL, ROW_ONLY},
    {"qwen3next", "qwen3_next", STATE},
    {"qwen35", "qwen3_5", STATE},
    {"qwen35moe", "qwen3_5_moe", STATE},
    {"phi2", "phi", UNGATED " in parallel with attention"},
    {"phimoe", NULL, "experts chosen by the sparse mixer"},
    {"plamo", NULL, ROW_ONLY},
    {"plamo2", NULL, STATE},
    {"plamo3", NULL, ROW_ONLY},
    {"codeshell", NULL, UNGATED},
    {"orion", NULL, ROW_ONLY},
    {"minicpm", NULL, ROW_ONLY},
    {"minicpm3", NULL, LATENT " with factors that no key of a file has"},
    {"gemma3n", "gemma3n_text", "embeddings for each layer (AltUp)"},
    {"gemma4", "gemma4_text", "embeddings for each layer, and layers that share keys"},
    {"gemma4-assistant", NULL, DRAFT},
    {"gemma-embedding", NULL, ENCODER},
    {"mamba", NULL, STATE},
    {"mamba2", NULL, STATE},
    {"jamba", NULL, STATE},
    {"falcon-h1", "falcon_h1", STATE},
    {"cohere2moe", "cohere2_moe", "experts in parallel with attention"},
    {"dbrx", NULL, "queries, keys and values that are clamped"},
    {"olmo", NULL, "LayerNorm without weights"},
    {"openelm", NULL, SHAPES},
    {"arctic", NULL, "an MLP in parallel with experts"},
    {"deepseek2-ocr", NULL, "a vision encoder"},
    {"deepseek32", "deepseek_v32", LATENT " with an index of tokens"},
    {"deepseek4", "deepseek_v4", LATENT " with an index of tokens"},
    {"glm-dsa", "glm_moe_dsa", LATENT " with an index of tokens"},
    {"bitnet", NULL, "norms inside of attention and of the MLP"},
    {"t5", NULL, "an encoder next to the decoder"},
    {"t5encoder", NULL, ENCODER},
    {"jais", NULL, ALIBI},
    {"jais2", NULL, SQUARED},
    {"nemotron", NULL, SQUARED},
    {"nemotron_h", NULL, STATE},
    {"nemotron_h_moe", NULL, STATE},
    {"exaone4", NULL, ROW_ONLY},
    {"exaone-moe", "exaone_moe", ROW_ONLY},
    {"rwkv6", NULL, STATE},
    {"rwkv6qwen2", NULL, STATE},
    {"rwkv7", NULL, STATE},
    {"arwkv7", NULL, STATE},
    {"granitehybrid", "granitemoehybrid", STATE},
    {"chameleon", NULL, "tokens of images"},
    {"wavtokenizer-dec", NULL, "a decoder of sound"},
    {"plm", NULL, SQUARED},
    {"arcee", NULL, SQUARED},
    {"afmoe", NULL, "a gate of attention's output"},
    {"laguna", NULL, "a gate of attention's output"},
    {"hunyuan-moe", "hunyuan_v1_moe", "norms of heads behind their rotation"},
    {"hunyuan-dense", "hunyuan_v1_dense", "norms of heads behind their rotation"},
    {"hunyuan_vl", NULL, IMAGES},
    {"hy_v3", NULL, ROW_ONLY},
    {"lfm2", NULL, STATE},
    {"lfm2moe", "lfm2_moe", STATE},
    {"dream", "Dream", DIFFUSE},
    {"smallthinker", NULL, "a router before attention"},
    {"llada", NULL, DIFFUSE},
    {"llada-moe", NULL, DIFFUSE},
    {"grovemoe", "grove_moe", "experts that share parts (chunks)"},
    {"apertus", NULL, "an MLP of xIELU without a gate"},
    {"cogvlm", NULL, "experts for images"},
    {"rnd1", NULL, DIFFUSE},
    {"pangu-embedded", "PanguEmbedded", ROW_ONLY},
    {"mistral3", "ministral3", "queries scaled by their position"},
    {"eagle3", NULL, DRAFT},
    {"dflash", NULL, DRAFT},
    {"mistral4", NULL, LATENT " with a scale of queries by position"},
    {"paddleocr", "paddleocr_vl", IMAGES},
    {"mimo2", "mimo_v2_flash", "values of another size than keys"},
    {"step35", "step3p5", "a gate of attention's output"},
    {"llama-embed", NULL, ENCODER},
    {"maincoder", NULL, ROW_ONLY},
    {"kimi-linear", "kimi_linear", STATE},
    {"talkie", NULL, "norms of heads behind their rotation"},
    {"mellum", NULL, ROW_ONLY},
    {0},
};

int format_refuse(const char *where, const char *key, const char *name)
{
    for (const struct format_refused *r = format_refusals; r->arch; r++)
        if (strcmp(name, r->arch) == 0 || (r->hf_type && strcmp(name, r->hf_type) == 0))
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s: expected an architecture that `sandwich model "
                           "explain-support` lists as known, found %s, which needs %s",
                           where, key, name, r->missing);
    return OK;
}
