/* make/parts.h - shared by the files of `model make`: the named shapes, the generator
 * of values, the generated vocabulary, and a file as a head of bytes followed by tensors.
 * Private to this module. Other files include make/make.h. */
#ifndef MAKE_PARTS_H
#define MAKE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/family.h"
#include "format/format.h"
#include "make/make.h"
#include "base/text.h"

/* --- named shapes (config.c) */

enum make_family {
    MAKE_LLAMA2, /* SentencePiece-like vocabulary, specials first */
    MAKE_LLAMA3, /* byte-level BPE, specials last */
    MAKE_QWEN2,
    MAKE_REFACT,    /* Granite's words: digits alone */
    MAKE_DBRX,      /* Llama 3's words, of which all are merged from their parts */
    MAKE_GLM4,      /* the same */
    MAKE_COMMAND_R, /* as MAKE_REFACT */
    MAKE_STABLELM2, /* Qwen 2's words */
    MAKE_STARCODER, /* as MAKE_REFACT */
    MAKE_TEKKEN,    /* Mistral's since Nemo: specials first, words by case */
    MAKE_O200K,     /* gpt-oss, Phi-4-mini: words by case */
};

/* How text is cut before merging, as the published tokenizers of each family say it. */
extern const struct make_words {
    const char *pre;   /* tokenizer.ggml.pre of byte-level BPE */
    const char *regex; /* of a Split */
    bool gpt2;         /* GPT-2's words follow */
} make_words[];

struct make_shape {
    const char *name;
    enum make_family family; /* of the vocabulary */
    const char *hf_class;    /* of the row of format/family.h */
    int dim, hidden, n_layers, n_heads, n_kv_heads, head_dim, vocab, max_tok;
    int n_experts, n_active, expert_hidden; /* 0: dense; hidden is the shared expert's */
    bool norm_topk;
    int n_groups, n_active_groups;
    int latent_dim, nope_dim, value_dim, rope_dims, q_rank; /* 0: no latent attention */
    /* Of the dense layers that the published file speaks of, 0: none; and how many it has. */
    int dense_hidden, n_dense;
    double rope_theta, norm_eps;
    float numbers[FORMAT_N_NUMBERS]; /* as in struct model_config; 0: none */
    double rotary_frac;              /* of a head that is rotated; 0: all */
    int window;                      /* of layers that have one; 0: none */

    double linear; /* divides rotary frequencies; 0: nothing does */
    struct {
        double factor; /* 0: no YaRN */
        int original_tok;
        double mscale; /* of latent attention: mscale and mscale_all_dim */
    } yarn;
    int short_tok; /* the context that Phi-3's first divisors are for; 0: it has none */
    bool tied, attention_bias, qk_norm; /* qk_norm: of a family whose files say it */
    int bos_id, eos_id;
    bool adds_bos;  /* the published tokenizer puts BOS first */
    int special_at; /* first of the special tokens at the end; vocab: none */
    struct {
        double factor, low, high; /* factor 0: no Llama-3 scaling */
        int original_tok;
    } scale;
};

MUST int make_shape(const char *name, const struct make_shape **out);

/* --- a vocabulary of exact size (vocab.c) */

enum make_token_kind {
    MAKE_TOKEN_NORMAL = 1, /* the numbers of tokenizer.ggml.token_type */
    MAKE_TOKEN_UNKNOWN = 2,
    MAKE_TOKEN_CONTROL = 3,
    MAKE_TOKEN_BYTE = 6
};

#define MAKE_TOKEN_BYTES 64

struct make_piece {
    char text[7]; /* a space stands for the word mark */
    uint8_t n;
};

struct make_vocab {
    const struct make_shape *shape;
    bool spm; /* SentencePiece with byte fallback, else byte-level BPE */
    /* [0, n_lead) specials, then 256 bytes, [single_at, piece_at) characters,
     * [piece_at, special_at) strings, [special_at, vocab) specials */
    int n_lead, single_at, piece_at, special_at;
    struct make_piece *piece; /* [special_at - piece_at], shorter ones first */
};

MUST int make_vocab_init(struct make_vocab *v, const struct make_shape *s, bool spm);
void make_vocab_fini(struct make_vocab *v);
enum make_token_kind make_token(const struct make_vocab *v, int id,
                                char out[MAKE_TOKEN_BYTES]);
/* The two parts that merge into token id, piece_at <= id < special_at, with a space
 * between. */
void make_merge(const struct make_vocab *v, int id, char out[MAKE_TOKEN_BYTES]);

/* --- a file to write (gguf.c and safetensors.c plan it, make.c writes it) */

struct make_tensor {
    enum format_role role;
    int layer, expert; /* expert: the first one */
    int n_experts;     /* whose rows it has, one after another; 0: it is not of experts */
    int64_t rows, cols; /* rows: of all experts together */
    enum kern_type type;
    const void *given;  /* NULL: generated */
    const char *name;   /* of one that is given */
    uint64_t at, bytes; /* from the start of the data */
};

struct make_plan {
    const struct make_opts *opts;
    const struct make_shape *shape;
    const struct format_family *family;
    struct model_config config;
    /* of the MLP of dense layers; of an expert, where the family has no key of its own for that */
    int dense_hidden;
    struct make_tensor *tensor;
    int n_tensors;
    uint64_t data_bytes;
    enum kern_type plain_type; /* that values are generated in */
    size_t cols_max;           /* of a tensor */
    bool stacked;              /* one tensor has the rows of all experts */

    bool interleave;  /* write Q and K rows as interleaved rotary pairs */
    struct text head; /* what stands before the data */
};

/* head for GGUF; may add tensors. */
MUST int make_gguf_head(struct make_plan *p);
MUST int make_safetensors_head(struct make_plan *p);
/* config.json, tokenizer.json and tokenizer_config.json into a directory. */
MUST int make_hf_files(const struct make_plan *p, const char *dir);

#endif
