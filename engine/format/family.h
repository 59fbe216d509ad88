/* format/family.h - the families of models that are read and made: one row each.
 *
 * A row says what a file of the family does not say itself: its names in GGUF files and in
 * config.json, which vectors a layer has, how a head's rotary pairs are stored, and what the
 * keys of its experts are called. All else is read from the file. README.md has the recipe for
 * a new family.
 * Threads: any. */
#ifndef FORMAT_FAMILY_H
#define FORMAT_FAMILY_H

#include "format/config.h"

enum model_naming {
    MODEL_NAMES_HF,         /* model.layers.3.self_attn.q_proj.weight */
    MODEL_NAMES_HF_MIXTRAL, /* model.layers.3.block_sparse_moe.experts.5.w3.weight */
    MODEL_NAMES_GGUF, /* blk.3.attn_q.weight; of all experts blk.3.ffn_up_exps.weight */
    MODEL_NAMES_GGUF_EXPERTS /* older: blk.3.ffn_up.5.weight; of roles of experts only */
};

/* When attention is limited to the last sliding_window tokens. */
enum format_window {
    FORMAT_WINDOW_NEVER,  /* use_sliding_window: true is refused */
    FORMAT_WINDOW_IF_SET, /* where use_sliding_window is true */
    FORMAT_WINDOW_ALWAYS
};

/* Keys of config.json; NULL: the family has none. */
struct format_expert_keys {
    const char *n_experts;
    const char *expert_hidden; /* NULL: it is intermediate_size */
    const char *norm_topk;     /* absent in the file: false. NULL: the row's norm_topk */
    const char *shared_hidden;
};

struct format_family {
    const char *arch;     /* general.architecture of GGUF files, and model_config.arch */
    const char *hf_class; /* the first of `architectures` in config.json */
    const char *hf_type;  /* model_type in config.json */
    enum model_activation activation;
    bool qkv_bias, qk_norm;
    bool attention_bias;   /* of config.json: true gives Q, K, V and the output biases */
    bool rope_interleaved; /* in GGUF files, see format_file.rope_interleaved */
    /* NULL: dense. A dense row and one of experts may share an arch: the number of experts in
     * the GGUF file decides. */
    const struct format_expert_keys *experts;
    bool norm_topk; /* where a GGUF file does not say */
    enum model_naming hf_naming;
    enum format_window window; /* of config.json; in GGUF files a window is always used */
    int window_default;        /* where config.json has no sliding_window; 0: none */
};
extern const struct format_family format_families[]; /* the last has no arch */

/* NULL: none has the name. Of an arch with several rows: the first. */
const struct format_family *format_family_of_arch(const char *arch);
const struct format_family *format_family_of_class(const char *hf_class);
/* The row of a configuration that format_family_apply() filled: of several with its arch, the
 * first that has experts if it has some. */
const struct format_family *format_family_of(const struct model_config *c);
/* The first dense family whose layers have these vectors; with qk_norm, biases do not count. */
const struct format_family *format_family_like(bool qkv_bias, bool qk_norm);

/* Set what the row knows: arch, activation, qkv_bias and qk_norm. */
void format_family_apply(const struct format_family *f, struct model_config *c);

/* "llama, qwen2 or qwen3": the arch of all rows, each once; or their classes. */
#define FORMAT_FAMILY_NAMES_BYTES 1024
void format_family_names(bool hf_class, char out[FORMAT_FAMILY_NAMES_BYTES]);

/* The names of an activation in config.json: its own, and another that means the same. */
extern const char *const format_activation_names[MODEL_N_ACTIVATIONS][2];

#endif
