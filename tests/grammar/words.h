/* tests/grammar/words.h - a vocabulary of single bytes and some words. */
#ifndef TESTS_GRAMMAR_WORDS_H
#define TESTS_GRAMMAR_WORDS_H

#include "grammar/grammar.h"
#include "tests/support/faults.h"

enum { WORDS_EOS = 2, WORDS_BYTES = 3, WORDS_TEXT = 259 };
static const char *const words[] = {
    " ",   "a",    "aa",       "ab",
    "ba",  "aab",  "bb",       "()",
    "((",  "))",   "x+",       "+x",
    "x)",  " a",   " {",       "{}",
    "\":", "\", ", "\xce\xb1", "\xce\xb1\xce\xb2",
    "1",   "true", "null",     "\"a\":",
    "],",  "[[",   "\\\"",     "\xb1\xce",
    "{\"", "00",   "12",       "aabaabaabaabaabaabaabaabaabaabaab"};
#define N_WORDS ((int)(sizeof(words) / sizeof(words[0])))

/* A llama2.c file: <unk>, <s>, </s>, the bytes, n words. */
static inline struct tok *words_open(const char *const *text, int n)
{
    const char *path = test_path("words.bin");
    FILE *f = fopen(path, "wb");
    struct tok *t;

    assert_non_null(f);
    fwrite(&(int32_t){40}, 4, 1, f);
    for (int i = 0; i < WORDS_TEXT + n; i++) {
        static const char *const first[] = {"<unk>", "<s>", "</s>"};
        char byte[8];
        const char *word;
        int32_t bytes;

        snprintf(byte, sizeof(byte), "<0x%02X>", (unsigned)(i - WORDS_BYTES) & 255);
        word = i < WORDS_BYTES ? first[i] : i < WORDS_TEXT ? byte : text[i - WORDS_TEXT];
        bytes = (int32_t)strlen(word);
        fwrite(&(float){(float)-i}, 4, 1, f);
        fwrite(&bytes, 4, 1, f);
        fwrite(word, 1, (size_t)bytes, f);
    }
    fclose(f);
    assert_ok(tok_open(&t, path, NULL));
    assert_int_equal(tok_vocab(t), WORDS_TEXT + n);
    return t;
}

/* The model has a few ids more than the tokenizer. */
static inline struct grammar_vocab *words_vocab(const struct tok *t)
{
    struct grammar_vocab *v;

    assert_ok(grammar_vocab_open(&v, t, tok_vocab(t) + 5, &(int32_t){WORDS_EOS}, 1));
    return v;
}

/* Of a test program, from words_setup() to words_teardown(). */
static struct tok *tok;
static struct grammar_vocab *vocab;

static inline int words_setup(void **state)
{
    (void)state;
    tok = words_open(words, N_WORDS);
    vocab = words_vocab(tok);
    return 0;
}

static inline int words_teardown(void **state)
{
    (void)state;
    grammar_vocab_close(&vocab);
    tok_close(&tok);
    return 0;
}

static inline bool words_bit(const uint64_t *bits, int32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

#endif
