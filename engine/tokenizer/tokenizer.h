/* tokenizer/tokenizer.h - text to token ids and back.
 *
 * Two algorithms: SentencePiece BPE (merge by score, byte fallback) and byte-level BPE
 * (merge by rank after a pre-tokenizer's regular expressions: TOK_PRE_NAMES). Sources are
 * a GGUF file's metadata, a Hugging Face tokenizer.json (or a directory holding one), a
 * llama2.c tokenizer.bin, or a tiktoken rank file (base64 token, rank) given its
 * pre-tokenizer.
 * Encoding is O(n log n) in the text's length and uses constant stack; it needs 52
 * bytes of memory per byte of the longest word (of the whole text, where SentencePiece does
 * not split at spaces).
 * Threads: a tokenizer is immutable; any thread may encode and decode. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct tok;

#define TOK_PRE_NAMES                                                                    \
    "chatglm-bpe, command-r, dbrx, default, glm4, gpt-2, gpt-4o, llama-3, olmo, "        \
    "qwen2, refact, smaug-bpe, smollm, stablelm2, starcoder or tekken"

struct tok_opts {
    /* TOK_PRE_NAMES: overrides the one in the file; needed for rank files and for byte-level
     * vocabularies in GGUF files that do not name theirs. NULL: the file's own. */
    const char *pre;
    /* Rank files only: the texts of the special tokens, whose ids follow the last
     * rank. */
    const char *const *specials;
    int n_specials;
};

/* `path`: any of the files above, told apart by content. opts may be NULL. */
MUST int tok_open(struct tok **out, const char *path, const struct tok_opts *opts);
void tok_close(struct tok **t);

int tok_vocab(const struct tok *t);
int tok_bos(const struct tok *t); /* -1: none */
int tok_eos(const struct tok *t);
/* The tokens that end a text: EOS, and in GGUF files those whose text says that they end a
 * turn ("<|eot_id|>"). Returns how many. */
#define TOK_STOP_MAX 8
int tok_stops(const struct tok *t, int32_t out[TOK_STOP_MAX]);
bool tok_adds_bos(const struct tok *t);    /* the file asks for BOS before a prompt */
const char *tok_kind(const struct tok *t); /* "spm", "bpe/llama-3", ... for the record */

enum tok_flag {
    TOK_BOS = 1, /* put BOS first, if the tokenizer has one */
    /* Recognise control tokens ("<|eot_id|>") in the text, as chat templates need it. Without
     * it only user-defined tokens are recognised, so that a user's text cannot hold any. */
    TOK_SPECIAL = 2,
};

/* Encode n bytes (any bytes: invalid UTF-8 falls back to bytes, and tok_open() has warned of
 * bytes that the vocabulary cannot express and that are left out). *ids is owned by the
 * caller (mem_free). ERR_LIMIT above 1 GiB of text. */
MUST int tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags,
                    int32_t **ids, size_t *n_ids);

/* The same for a text in parts, of n bytes each: control tokens are recognised inside of those
 * parts that say so, whatever `flags` has, and other tokens also across parts. */
struct tok_part {
    size_t n;
    bool special;
};
MUST int tok_encode_parts(const struct tok *t, const char *text,
                          const struct tok_part *parts, size_t n_parts, unsigned flags,
                          int32_t **ids, size_t *n_ids);

/* The bytes of one token as they appear in running text; special tokens give their text
 * only when `special`. Lent. ERR_ARG outside the vocabulary. */
MUST int tok_piece(const struct tok *t, int32_t id, bool special, const char **s,
                   size_t *n);

/* A hash of the texts of all tokens. */
uint64_t tok_identity(const struct tok *t);

/* A stream decoder: put tokens in, take out only whole UTF-8 sequences. Invalid bytes
 * come out as U+FFFD once it is certain that they stay invalid. */
struct tok_stream {
    const struct tok *t;
    unsigned char held[8];
    int n_held;
    bool at_start; /* SentencePiece: the first space is dropped */
};
void tok_stream_init(struct tok_stream *s, const struct tok *t);
/* Does the token begin with a space that is left out where it is the first of a text? */
bool tok_skips_space(const struct tok *t, int32_t id);
/* Writes at most `capacity` bytes (capacity >= 8 + 3 * the longest token) and returns how
 * many. */
MUST int tok_stream_put(struct tok_stream *s, int32_t id, char *out, size_t capacity,
                        size_t *n_out);
size_t tok_stream_flush(struct tok_stream *s, char *out, size_t capacity);
size_t tok_longest(const struct tok *t); /* bytes of the longest token */

#endif
