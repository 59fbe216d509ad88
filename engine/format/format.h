/* format/format.h - one view of a model on disk, whatever its format.
 *
 * A reader plug-in maps the file, refuses what breaks a rule (file, offset, rule, found)
 * and fills this struct; callers do not depend on the format. Tensor bytes stay in the
 * mapping: the weights are packed from there, and the mapping can be dropped piece by
 * piece as it is read.
 * Hostile input must not crash, hang or take memory out of proportion to the file.
 * Threads: immutable once open. */
#ifndef FORMAT_H
#define FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "format/config.h"

enum format_role {
    FORMAT_EMBED, /* [vocab, dim] */
    FORMAT_HEAD,  /* [vocab, dim]; absent when tied */
    FORMAT_OUT_NORM,
    FORMAT_OUT_NORM_BIAS,
    FORMAT_ATTN_NORM, /* from here on: one per layer */
    FORMAT_Q,         /* [n_heads*head_dim, dim] */
    FORMAT_K,
    FORMAT_V,
    FORMAT_O, /* [dim, n_heads*head_dim] */
    FORMAT_Q_BIAS,
    FORMAT_K_BIAS,
    FORMAT_V_BIAS,
    FORMAT_FFN_NORM,
    FORMAT_GATE, /* [model_mlp_hidden(), dim] */
    FORMAT_UP,
    FORMAT_DOWN,   /* [dim, model_mlp_hidden()] */
    FORMAT_Q_NORM, /* [head_dim], the same weights for every head; of a row, of all heads */
    FORMAT_K_NORM,
    FORMAT_ROUTER,       /* [n_experts, dim] */
    FORMAT_SHARED_SCALE, /* [dim] */
    FORMAT_SHARED_GATE, /* [hidden, dim]: a mixture has these in place of FORMAT_GATE, ... */
    FORMAT_SHARED_UP,
    FORMAT_SHARED_DOWN,
    FORMAT_O_BIAS,     /* [dim] */
    FORMAT_ATTN_AFTER, /* [dim] norms of what attention and the MLP give */
    FORMAT_FFN_AFTER,
    FORMAT_ATTN_NORM_BIAS,
    FORMAT_FFN_NORM_BIAS,
    FORMAT_UP_BIAS,       /* [model_mlp_hidden()] */
    FORMAT_DOWN_BIAS,     /* [dim] */
    FORMAT_SINKS,         /* [n_heads] */
    FORMAT_ROUTER_BIAS,   /* [n_experts] */
    FORMAT_ROUTER_CHOICE, /* [n_experts]: added to scores to choose by */
    FORMAT_KV_A,          /* [latent_dim + rope_dims, dim], of latent attention */
    FORMAT_KV_A_NORM,     /* [latent_dim] */
    FORMAT_Q_A,           /* [q_rank, dim]: queries of low rank */
    FORMAT_Q_A_NORM,      /* [q_rank] */
    FORMAT_Q_B, /* [n_heads*(nope_dim + rope_dims), q_rank], in place of FORMAT_Q */
    FORMAT_K_B, /* [n_heads*latent_dim, nope_dim] */
    FORMAT_V_B, /* [n_heads*value_dim, latent_dim] */
    /* Both in one, as folders and older GGUF files have them, of each head the transposed part of
     * FORMAT_K_B and that of FORMAT_V_B: [n_heads*(nope_dim + value_dim), latent_dim]. An open file
     * has the two. */
    FORMAT_KV_B,
    FORMAT_N_ROLES,
    FORMAT_EXPERT_GATE = FORMAT_N_ROLES, /* [expert_hidden, dim]: one for each expert */
    FORMAT_EXPERT_UP,
    FORMAT_EXPERT_DOWN,      /* [dim, expert_hidden] */
    FORMAT_EXPERT_GATE_BIAS, /* [expert_hidden] */
    FORMAT_EXPERT_UP_BIAS,
    FORMAT_EXPERT_DOWN_BIAS, /* [dim] */
    FORMAT_ALL_ROLES
};
#define FORMAT_N_EXPERT_ROLES (FORMAT_ALL_ROLES - FORMAT_N_ROLES)

/* Row-major [rows, cols], cols = input features; vectors have rows = 1. */
struct format_tensor {
    const void *data; /* NULL: absent. Not aligned: read through memcpy or packing. */
    enum kern_type type;
    int64_t rows, cols;
    int64_t planes; /* matrices one after another; 0 counts as 1 */
    bool in_memory; /* the reader made them: no file has these bytes, see format_drop() */
};

struct format_file {
    struct model_config config;
    char format[16]; /* "gguf", "safetensors", "llama2c", "onnx" */
    char path[512];
    /* Q and K rows (and norm weights) of a head are interleaved pairs (2i, 2i+1), not halves. */
    bool rope_interleaved;
    float norm_offset; /* added to the weights of all norms; Gemma's folders: 1 */
    int fused; /* enum model_naming: which tensors have the rows of several roles */
    int64_t file_bytes;
    struct format_tensor global[FORMAT_ATTN_NORM];                    /* by role */
    struct format_tensor (*layer)[FORMAT_N_ROLES - FORMAT_ATTN_NORM]; /* [n_layers] */
    /* [n_layers * n_experts]; NULL in a dense model */
    struct format_tensor (*expert)[FORMAT_N_EXPERT_ROLES];
    void *latent; /* tensors that were made of FORMAT_KV_B; NULL: none */
    void *state;  /* the reader's */
    const struct format_reader *reader;
};

static inline const struct format_tensor *
format_layer_tensor(const struct format_file *f, int layer, enum format_role role)
{
    return &f->layer[layer][role - FORMAT_ATTN_NORM];
}

static inline const struct format_tensor *
format_expert_tensor(const struct format_file *f, int layer, int expert,
                     enum format_role role)
{
    return &f->expert[layer * f->config.n_experts + expert][role - FORMAT_EXPERT_GATE];
}

/* Open a .gguf file, a directory with config.json, a llama2.c .bin, or ONNX. Every tensor that
 * the configuration needs is present with the right shape, or the open fails.
 * *out is owned by the caller. */
MUST int format_open(struct format_file **out, const char *path);
void format_close(struct format_file **f);

/* A hash of the configuration and of a sample of the bytes of each tensor: other weights of the
 * same shape have another one, and so has the same model in another format. Reads some pages of
 * each tensor. */
uint64_t format_identity(const struct format_file *f);
/* That of the model `path` in hexadecimal, as files that are made for it have it: "" in those that
 * do not name a model. Errors of format_open(). */
#define FORMAT_IDENTITY_BYTES 17
MUST int format_identity_of(char out[FORMAT_IDENTITY_BYTES], const char *path);

/* The name of a role's tensor in this file; in a format without names, as GGUF has it.
 * `layer` is ignored for the roles before FORMAT_ATTN_NORM, `expert` for those that are not of
 * experts. */
#define MODEL_NAME_BYTES 96
void format_tensor_name(const struct format_file *f, enum format_role role, int layer,
                        int expert, char out[MODEL_NAME_BYTES]);

/* Begin to read a tensor from disk, and do not wait for it. */
void format_will_need(const struct format_tensor *t);
/* Drop the pages of a tensor whose bytes are no longer needed (they are read from disk again
 * if touched; what is in memory alone stays). This keeps peak resident memory near one copy of
 * the weights. */
void format_drop(const struct format_tensor *t);

struct format_reader {
    const char *name;
    /* Does the path look like this format (magic, directory content)? Sets no error. */
    int (*probe)(const char *path);
    int (*open)(struct format_file *f, const char *path);
    void (*close)(struct format_file *f);
};
extern const struct format_reader *const format_readers[]; /* written by make */

/* Check names and shapes of all tensors against the configuration. */
MUST int format_check_tensors(const struct format_file *f);

#endif
