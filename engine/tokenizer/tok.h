/* tokenizer/tok.h - shared by the files of the tokenizer only.
 *
 * A vocabulary is held as the bytes that appear in running text: byte-level BPE's
 * printable stand-ins ("Ġ") and SentencePiece's "▁" are undone on loading, so that
 * encoding looks up spans of the text itself and decoding copies them. */
#ifndef TOKENIZER_TOK_H
#define TOKENIZER_TOK_H

#include "base/mem.h"
#include "tokenizer/tokenizer.h"

#define TOK_TEXT_MAX    ((size_t)1 << 30) /* bytes of one text: offsets fit 31 bits */
#define TOK_VOCAB_MAX   (1 << 22)         /* the largest published is about 2^18 */
#define TOK_ARENA_MAX   ((size_t)1 << 30) /* bytes of all tokens together */
#define TOK_SPECIAL_MAX 512               /* bytes: bounds matching at one position */
#define TOK_EXPR_MAX    8                 /* pre-tokenizer expressions applied in turn */

/* Bits of struct tok's `strip`: the special token takes the whitespace on its side; or it is
 * looked for in the text as it is normalised. */
enum { TOK_STRIP_LEFT = 1, TOK_STRIP_RIGHT = 2, TOK_NORMALISED = 4 };

/* Where SentencePiece puts a space before text, to be dropped again in decoding. */
enum tok_prefix {
    TOK_PREFIX_NEVER,
    TOK_PREFIX_FIRST,  /* before the first text, unless a special token comes first */
    TOK_PREFIX_ALWAYS, /* and after each special token */
};

/* Numbered as in GGUF's tokenizer.ggml.token_type. */
enum tok_type {
    TOK_HOLE, /* an id without a token */
    TOK_NORMAL,
    TOK_UNKNOWN,
    TOK_CONTROL, /* recognised in text only when asked, shown only when asked */
    TOK_USER,    /* always recognised, always shown */
    TOK_UNUSED,
    TOK_BYTE, /* stands for one byte of a character that has no token */
    TOK_N_TYPES
};

struct tok_span {
    uint32_t at, n; /* into the vocabulary's bytes */
};

struct tok_special {
    int32_t id;
    bool control;
};

/* A merge of byte-level BPE: the tokens `left` and `right`, adjacent, become `id`. */
struct tok_merge {
    int32_t left, right; /* left < 0: an empty slot */
    int32_t id;
    uint32_t rank;
};

/* The rule by which the next pair of neighbours to merge is chosen. */
enum tok_by {
    TOK_BY_SCORE, /* highest score of the joined text (SentencePiece) */
    TOK_BY_ID,    /* lowest id of the joined text (rank files: the id is the rank) */
    TOK_BY_PAIR,  /* lowest rank in the list of merges */
};

struct tok {
    /* tokens; all arrays have n_vocab entries */
    int n_vocab;
    struct tok_span *span;
    uint8_t *type;
    float *score; /* TOK_BY_SCORE only */
    char *bytes;
    size_t n_bytes, cap_bytes;
    size_t longest;

    int32_t *by_text; /* open addressing; -1 empty */
    uint32_t text_mask;
    struct tok_merge *merge; /* open addressing, TOK_BY_PAIR only */
    uint32_t merge_mask;
    struct tok_special
        *special;   /* sorted by bytes; those of normalised text at the end */
    uint8_t *strip; /* [n_vocab]; NULL: no token has such bits */
    int n_special, n_normalised;
    bool special_first[256]; /* the first bytes of special tokens of raw text */
    int32_t byte_id[256];    /* -1: none */

    enum tok_by by;
    bool chars; /* symbols start as characters (SentencePiece) rather than bytes */
    enum tok_prefix space_prefix;
    bool prefix_once;    /* ... but not where the text begins with a space */
    bool prefix_special; /* normalised special tokens have a space before them */
    bool no_bytes;       /* characters without a token are unknown: no tokens of bytes */
    bool fuse_unk;       /* neighbouring unknown tokens of a word become one */
    bool cut_at_space; /* no token has a space after another character: words are separate
                        */
    bool whole_word;   /* a word that is a token is not merged from its parts */
    bool nfc;          /* text is brought to normal form C first */
    int n_expr;
    struct pcre2_real_code_8 *expr[TOK_EXPR_MAX];
    unsigned drops; /* bit k: text that expression k does not match is left out */

    int bos, eos, unk; /* -1: none */
    int n_stop, stop[TOK_STOP_MAX];
    bool adds_bos;
    char kind[32];
};

/* --- vocab.c: filling and searching a vocabulary */
MUST int tok_vocab_init(struct tok *t, int n_vocab, bool scores);
/* Give `id` its text. ERR_FORMAT if it has one already. */
MUST int tok_vocab_set(struct tok *t, int32_t id, const char *text, size_t n,
                       enum tok_type type);
/* Call it after the last tok_vocab_set(). Builds the indices; if t->bos or t->eos is -1, it
 * looks for the usual names. Bytes that cannot be encoded at all give a warning. */
MUST int tok_vocab_finish(struct tok *t);
/* The token with exactly these bytes among those that text may become; -1: none. */
int32_t tok_vocab_find(const struct tok *t, const char *s, size_t n);
/* The same among all tokens, special ones first, to find BOS and EOS by name. */
int32_t tok_vocab_named(const struct tok *t, const char *s, size_t n);
/* Add a token that ends a text; -1, a known one and those beyond TOK_STOP_MAX change nothing. */
void tok_vocab_stop(struct tok *t, int32_t id);
/* "<0x0A>" gives 10, anything else -1. */
int tok_byte_text(const char *s, size_t n);
/* Undo the printable alphabet of byte-level BPE; *n_out <= n. Returns false, with `out`
 * undefined, if a character is outside the alphabet. */
bool tok_unprint(const char *s, size_t n, char *out, size_t *n_out);
/* "▁" to space; returns the new length, <= n. out may be s. */
size_t tok_unmark(const char *s, size_t n, char *out);

/* Allocate n merges, then add each by the ids of its parts. The joined text must be a
 * token. */
MUST int tok_merges_init(struct tok *t, size_t n);
MUST int tok_merges_add(struct tok *t, int32_t left, int32_t right, uint32_t rank);
const struct tok_merge *tok_merges_find(const struct tok *t, int32_t left, int32_t right);

/* --- pre.c: pre-tokenizers */
/* Use the expression of a known pre-tokenizer, by its name or by a GGUF name for it.
 * ERR_UNSUPPORTED names the known ones. Sets t->kind and t->whole_word. */
MUST int tok_pre_named(struct tok *t, const char *name, size_t n);
/* Add an expression. If it is a known one, t->kind gets its name. */
MUST int tok_pre_regex(struct tok *t, const char *regex, size_t n);
const char *
tok_pre_text(const char *name); /* of a known one that has a single expression */

/* --- buffers of one tok_encode() call, reused from word to word */
struct tok_ids {
    int32_t *id;
    size_t n, cap;
};
struct tok_sym;
struct tok_cand;
struct tok_work {
    const struct tok *t;
    struct tok_ids out;
    const struct tok_part *part; /* of the text, and where this one ends */
    size_t part_end;
    struct tok_sym *sym;
    struct tok_cand *heap;
    size_t cap_sym, cap_heap, n_heap;
    char *buf; /* the text with its prefix and its spaces */
    size_t cap_buf;
    struct pcre2_real_match_data_8 *match[TOK_EXPR_MAX];
    struct pcre2_real_match_context_8 *match_ctx;
    struct pcre2_real_jit_stack_8 *jit_stack;
    uint64_t n_steps, max_steps; /* of matching, in all of the text */
};
MUST int tok_ids_push(struct tok_ids *v, int32_t id);

/* merge.c: the tokens of one word, appended to w->out. */
MUST int tok_word(struct tok_work *w, const char *s, size_t n);
/* pre.c: cut a text into words and call tok_word() for each. */
MUST int tok_pre_words(struct tok_work *w, const char *s, size_t n);
void tok_pre_work_fini(struct tok_work *w);
void tok_pre_fini(struct tok *t);

/* nfc.c: normal form C of valid UTF-8, linear in n. *out is mem_free()d by the caller;
 * NULL when the text is certainly in that form already. */
MUST int tok_nfc(const char *s, size_t n, char **out, size_t *n_out);

/* --- from_*.c: one source format each. t is zeroed except for the ids, which are -1. */
MUST int tok_from_gguf(struct tok *t, const char *path, const struct tok_opts *o);
MUST int tok_from_hf(struct tok *t, const char *path, const struct tok_opts *o);

#endif
