/* tests/support/tok_files.h - the same small vocabulary written in every format a
 * tokenizer reads, for tests that need no real data. */
#ifndef TESTS_SUPPORT_TOK_FILES_H
#define TESTS_SUPPORT_TOK_FILES_H

#include <stddef.h>
#include <stdint.h>

/* The merges, best first: `left` and `right` become one token. */
struct tok_files_merge {
    const char *left, *right;
};
extern const struct tok_files_merge tok_files_merges[];
extern const int tok_files_n_merges;

/* In SentencePiece formats: ids 0 <unk>, 1 <s>, 2 </s>, 3.. bytes, then characters, then
 * merges in order. In byte-level formats: ids 0..255 bytes, then merges in order, then
 * <|begin_of_text|>, <|end_of_text|>, and (not in rank files) <ud>, recognised always. */
#define TOK_FILES_SPM_TEXT 259
#define TOK_FILES_BPE_TEXT 256
extern const char tok_files_chars[]; /* the single characters SentencePiece knows */

enum tok_files_kind {
    TOK_FILES_LLAMA2C,
    TOK_FILES_GGUF_SPM,
    TOK_FILES_JSON_SPM,
    TOK_FILES_GGUF_BPE, /* pre gpt-2 */
    TOK_FILES_JSON_BPE, /* no pre-tokenizer: the whole text is one word */
    TOK_FILES_JSON_NFC, /* qwen2's expression after normal form C */
    TOK_FILES_RANKS,    /* to be opened with tok_files_rank_opts */
    TOK_FILES_N
};
extern const char *const tok_files_name[TOK_FILES_N];
struct tok_opts;
extern const struct tok_opts tok_files_rank_opts;

/* Write one below test_dir(); returns its path, lent until the next call. */
const char *tok_files_write(enum tok_files_kind kind);
/* Open that file as it wants to be opened. Fails the test on error. */
struct tok;
struct tok *tok_files_open(enum tok_files_kind kind);

#endif
