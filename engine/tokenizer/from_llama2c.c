/* llama2.c's tokenizer.bin: int32 longest token, then per token float32 score, int32
 * length, bytes; all little-endian. Ids: 0 unknown, 1 BOS, 2 EOS, 3 to 258 the bytes,
 * then text in which spaces are spaces. The number of tokens follows from the end of the
 * file. */
#include "tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BYTE 3
#define FIRST_TEXT (FIRST_BYTE + 256)

struct record {
    float score;
    int32_t n;
    const char *text;
};

/* Read the record at *at and step past it; false at a rule broken. */
static bool next_record(const char *data, size_t size, size_t *at, int32_t longest,
                        struct record *r)
{
    if (size - *at < 8)
        return false;
    memcpy(&r->score, data + *at, 4);
    memcpy(&r->n, data + *at + 4, 4);
    if (isnan(r->score) || r->n < 0 || r->n > longest || (size_t)r->n > size - *at - 8)
        return false;
    r->text = data + *at + 8;
    *at += 8 + (size_t)r->n;
    return true;
}

static int set(struct tok *t, int32_t id, const struct record *r)
{
    static const char *const named[FIRST_BYTE] = {"<unk>", "<s>", "</s>"};
    int byte = tok_byte_text(r->text, (size_t)r->n);
    char c = (char)byte;

    t->score[id] = r->score;
    if (id < FIRST_BYTE)
        return tok_vocab_set(t, id, named[id], strlen(named[id]),
                             id == 0 ? TOK_UNKNOWN : TOK_CONTROL);
    if (id >= FIRST_TEXT)
        return tok_vocab_set(t, id, r->text, (size_t)r->n, TOK_NORMAL);
    if (byte != id - FIRST_BYTE)
        return err_set(ERR_FORMAT, "token %d, expected <0x%02X>", id, id - FIRST_BYTE);
    return tok_vocab_set(t, id, &c, 1, TOK_BYTE);
}

int tok_from_llama2c(struct tok *t, const char *path, const char *data, size_t size)
{
    struct record r;
    int32_t longest = 0, n = 0;
    size_t at = 4;
    int rc = OK;

    if (size >= 4)
        memcpy(&longest, data, 4);
    if (size < 4 || longest < 1 || longest > 1 << 20)
        return err_set(
            ERR_FORMAT,
            "%s: not a tokenizer: expected GGUF, tokenizer.json, a rank file or "
            "llama2.c's tokenizer.bin",
            path);
    for (; at < size; n++)
        if (n == TOK_VOCAB_MAX || !next_record(data, size, &at, longest, &r))
            return err_set(ERR_FORMAT,
                           "%s: offset %zu: token %d: expected a score and a length of 0 "
                           "to %d bytes inside the file",
                           path, at, n, longest);
    if (n < FIRST_TEXT)
        return err_set(ERR_FORMAT, "%s: %d tokens, expected at least %d", path, n,
                       FIRST_TEXT);
    rc = tok_vocab_init(t, n, true);
    at = 4;
    for (int32_t id = 0; id < n && rc == OK; id++)
        rc = next_record(data, size, &at, longest, &r) ? set(t, id, &r) : ERR_FORMAT;
    t->by = TOK_BY_SCORE;
    t->chars = t->adds_bos = true;
    t->space_prefix = TOK_PREFIX_ALWAYS;
    t->unk = 0, t->bos = 1, t->eos = 2;
    snprintf(t->kind, sizeof(t->kind), "spm");
    if (rc == OK)
        rc = tok_vocab_finish(t);
    return rc == OK ? OK : err_prefix(rc, "%s", path);
}
