/* model/file/file.h - one view of a model on disk, whatever its format.
 *
 * A reader plug-in maps the file, refuses what breaks a rule (file, offset, rule, found)
 * and fills this struct; nothing above it knows formats. Tensor bytes stay in the
 * mapping: the weights are packed from there, and the mapping can be dropped piece by
 * piece as it is read.
 * Hostile input must not crash, hang or take memory out of proportion to the file.
 * Threads: immutable once open. */
#ifndef MODEL_FILE_H
#define MODEL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "model/config.h"

enum model_role {
    MODEL_EMBED, /* [vocab, dim] */
    MODEL_HEAD,  /* [vocab, dim]; absent when tied */
    MODEL_OUT_NORM,
    MODEL_ATTN_NORM, /* from here on: one a layer */
    MODEL_Q,         /* [n_heads*head_dim, dim] */
    MODEL_K,
    MODEL_V,
    MODEL_O, /* [dim, n_heads*head_dim] */
    MODEL_Q_BIAS,
    MODEL_K_BIAS,
    MODEL_V_BIAS,
    MODEL_FFN_NORM,
    MODEL_GATE, /* [hidden, dim] */
    MODEL_UP,
    MODEL_DOWN, /* [dim, hidden] */
    MODEL_N_ROLES
};

/* Row-major [rows, cols], cols = input features; vectors have rows = 1. */
struct model_tensor {
    const void *data; /* NULL: absent. Not aligned: read through memcpy or packing. */
    enum kern_type type;
    int64_t rows, cols;
};

struct model_file {
    struct model_config config;
    char format[16]; /* "gguf", "safetensors", "llama2c" */
    char path[512];
    /* Q and K rows in a head come as interleaved pairs (2i, 2i+1) rather than halves. */
    bool rope_interleaved;
    int64_t file_bytes;
    struct model_tensor global[MODEL_ATTN_NORM];                   /* by role */
    struct model_tensor (*layer)[MODEL_N_ROLES - MODEL_ATTN_NORM]; /* [n_layers] */
    void *state;                                                   /* the reader's */
    const struct model_reader *reader;
};

static inline const struct model_tensor *
model_layer_tensor(const struct model_file *f, int layer, enum model_role role)
{
    return &f->layer[layer][role - MODEL_ATTN_NORM];
}

/* Open a .gguf file, a directory with config.json, or a llama2.c .bin. Every tensor that
 * the configuration needs is present with the right shape, or the open fails.
 * *out is owned by the caller. */
MUST int model_file_open(struct model_file **out, const char *path);
void model_file_close(struct model_file **f);

/* The tensor's bytes were read and will not be needed again: drop the pages from memory
 * (they come back from disk if touched). Keeps peak resident memory near one copy of the
 * weights. */
void model_file_drop(const struct model_tensor *t);

struct model_reader {
    const char *name;
    /* Does the path look like ours (magic, directory content)? Never sets an error. */
    int (*probe)(const char *path);
    int (*open)(struct model_file *f, const char *path);
    void (*close)(struct model_file *f);
};
extern const struct model_reader *const model_readers[]; /* written by make */

/* The names and shapes every reader checks against, from the configuration. */
MUST int model_file_check_tensors(const struct model_file *f);

#endif
