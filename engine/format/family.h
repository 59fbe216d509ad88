/* format/family.h - the families of models that are read and made: one row each.
 *
 * A row says what a file of the family does not say itself: its names in GGUF files and in
 * config.json, which vectors a layer has, how a head's rotary pairs are stored, and what the
 * keys of its experts are called. All else is read from the file. README.md has the recipe for
 * a new family.
 * Threads: any. */
#ifndef FORMAT_FAMILY_H
#define FORMAT_FAMILY_H

#include <stddef.h>

#include "format/config.h"

enum model_naming {
    MODEL_NAMES_HF,     /* model.layers.3.self_attn.q_proj.weight */
    MODEL_NAMES_HF_GLM, /* ... with norms around */
    MODEL_NAMES_HF_GEMMA,
    MODEL_NAMES_HF_STARCODER,
    MODEL_NAMES_HF_MIXTRAL,  /* model.layers.3.block_sparse_moe.experts.5.w3.weight */
    MODEL_NAMES_HF_DEEPSEEK, /* model.layers.3.mlp.shared_experts.up_proj.weight */
    MODEL_NAMES_HF_ERNIE,    /* ... and of what is added to scores */
    MODEL_NAMES_GGUF, /* blk.3.attn_q.weight; of all experts blk.3.ffn_up_exps.weight */
    MODEL_NAMES_GGUF_EXPERTS, /* older: blk.3.ffn_up.5.weight; of roles of experts only */
    MODEL_NAMES_MASK = 15,
    /* With one of these: a tensor has the rows of Q, K and V, or of gate and up. */
    MODEL_NAMES_FUSED_QKV = 16,
    MODEL_NAMES_FUSED_GATE_UP = 32,
    /* In GGUF files the norm of what the MLP reads is called post_attention_norm. */
    MODEL_NAMES_POST_NORM = 64
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
    const char *n_active;      /* NULL: num_experts_per_tok */
    const char *expert_hidden; /* NULL: it is intermediate_size */
    const char *norm_topk;     /* absent in the file: false. NULL: the row's norm_topk */
    const char
        *shared_hidden; /* or how often the size of an expert the shared one has: */
    const char *n_shared;
    const char *n_dense; /* layers at the beginning that have none */
};

/* Numbers of a configuration that only some families have. */
enum format_number {
    FORMAT_EMBED_SCALE,
    FORMAT_RESIDUAL_SCALE,
    FORMAT_ATTN_SCALE,
    FORMAT_LOGIT_SCALE,
    FORMAT_LOGIT_DIVISOR, /* files have the reciprocal of logit_scale */
    FORMAT_ATTN_SOFTCAP,
    FORMAT_LOGIT_SOFTCAP,
    FORMAT_EXPERT_SCALE,
    FORMAT_N_NUMBERS
};
extern const struct format_number_key {
    const char *gguf, *hf; /* gguf: after "<arch>." */
    size_t at;             /* of the float in struct model_config */
} format_numbers[FORMAT_N_NUMBERS];
/* Number i of a configuration. */
static inline float *format_number_of(const struct model_config *c, int i)
{
    return (float *)((char *)c + format_numbers[i].at);
}
/* As files have it; also the other way. */
static inline float format_number_in_file(int i, float v)
{
    return i == FORMAT_LOGIT_DIVISOR && v != 0 ? 1 / v : v;
}

struct format_family {
    const char *arch;      /* general.architecture of GGUF files, and model_config.arch */
    const char *hf_class;  /* the first of `architectures` in config.json */
    const char *hf_type;   /* model_type in config.json */
    const char *gguf_only; /* NULL, or why a folder is not read */
    enum model_activation activation;
    bool latent; /* attention; see struct model_config */
    bool sinks, expert_bias;
    bool qkv_bias, qk_norm;
    bool qk_norm_row;
    const char *qk_norm_key; /* of config.json; a GGUF file has the tensors. NULL: none */
    enum model_norms norms;
    unsigned numbers; /* 1 << enum format_number of those its files may have, or-ed */

    bool
        sections; /* pairs rotate by three positions, which are equal in texts; Qwen-VL */
    int no_rope_every; /* each n-th layer does not rotate, unless the file says; 0: none */
    bool layer_norm, norm_bias, parallel;
    bool attention_bias;   /* of config.json: true gives Q, K, V and the output biases */
    const char *bias_key;  /* of config.json in its place; NULL: attention_bias */
    bool hf_bias;          /* where config.json does not say */
    bool no_gate;          /* with the biases above those of the MLP, too */
    const char *eps_key;   /* of config.json; NULL: rms_norm_eps or layer_norm_eps */
    bool no_o_bias;        /* neither gives the output one */
    bool rope_interleaved; /* in GGUF files, see format_file.rope_interleaved */
    bool hf_rope_interleaved; /* in folders */
    bool hf_tied;             /* where config.json does not say */
    double rotary_frac;       /* partial_rotary_factor where it does not say; 0: 1 */
    int fused; /* enum model_naming: as its files are made; readers look at the tensors */
    /* NULL: dense. A dense row and one of experts may share an arch: the number of experts in
     * the GGUF file decides. */
    const struct format_expert_keys *experts;
    bool norm_topk;                                   /* where a GGUF file does not say */
    bool router_sigmoid, router_choice, shared_plain; /* see struct model_config */
    enum model_naming hf_naming;
    enum format_window window; /* of config.json; in GGUF files a window is always used */
    int window_default;        /* where config.json has no sliding_window; 0: none */
    int gguf_window_default;   /* where a GGUF file has no sliding_window; 0: none */
    int window_every; /* each n-th layer has none, unless the file says; 0: all have */
    bool
        window_unscaled; /* layers with a window rotate by rope_theta alone, without scaling */
    bool
        rope_switch; /* in GGUF files rope.scaling.finetuned false means: no layer rotates */
    double rope_local_theta; /* where the file does not say; 0: none */
    bool gemma;              /* embedded tokens are scaled by sqrt(dim); config.json has
                   query_pre_attn_scalar, and norms there are 1 less */
    int wide_layers; /* in GGUF files with so many layers scores are scaled by 1 / sqrt(dim /
                        n_heads); 0: never */
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

/* Does a file of the family have this key of the table of numbers? f may be NULL. */
bool format_family_reads(const struct format_family *f, bool gguf, const char *key);

/* Set what follows from the row and the sizes, which have been read. */
void format_family_derive(const struct format_family *f, struct model_config *c);
/* model_config_window(), and how the layers with a window rotate; rope_theta has been read. */
void format_family_window(const struct format_family *f, struct model_config *c,
                          int window, int every, bool flagged);
/* Set what the row knows of struct model_config. */
void format_family_apply(const struct format_family *f, struct model_config *c);

/* The names of an activation in config.json: its own, and another that means the same. */
extern const char *const format_activation_names[MODEL_N_ACTIVATIONS][2];

#endif
