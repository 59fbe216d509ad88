#include "tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_map.h"
#include "base/hash_stream.h"

/* ---- tiktoken rank files: one "base64-of-token rank" a line ----
 *
 * The rank is the id. Special tokens are not in the file; the caller names them, and they
 * follow the last rank. */

#define TOKEN_MAX_BYTES 4096

static int sextet(unsigned char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* False unless s is whole groups of four with at most two '=' at the end. */
static bool decode64(const char *s, size_t n, char *out, size_t *n_out)
{
    size_t pad = 0, m = 0;

    if (n == 0 || n % 4 != 0 || n / 4 * 3 > TOKEN_MAX_BYTES)
        return false;
    while (pad < 2 && s[n - 1 - pad] == '=')
        pad++;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;

        for (size_t k = i; k < i + 4; k++) {
            int d = k >= n - pad ? 0 : sextet((unsigned char)s[k]);

            if (d < 0)
                return false;
            v = v << 6 | (uint32_t)d;
        }
        out[m++] = (char)(v >> 16);
        out[m++] = (char)(v >> 8);
        out[m++] = (char)v;
    }
    *n_out = m - pad;
    return true;
}

struct line {
    char token[TOKEN_MAX_BYTES];
    size_t n;
    int32_t rank;
};

/* Parse [*at, end of line) and step past it. 1: a token, 0: a blank line, -1: neither. */
static int next_line(const char *data, size_t size, size_t *at, struct line *l)
{
    const char *s = data + *at, *nl = memchr(s, '\n', size - *at), *space;
    size_t n = nl ? (size_t)(nl - s) : size - *at;
    int64_t rank = 0;

    *at += n + (nl != NULL);
    if (n > 0 && s[n - 1] == '\r')
        n--;
    if (n == 0)
        return 0;
    space = memchr(s, ' ', n);
    if (!space || space + 1 == s + n || s + n - space > 9)
        return -1;
    for (const char *p = space + 1; p < s + n; p++) {
        if (*p < '0' || *p > '9')
            return -1;
        rank = 10 * rank + (*p - '0');
    }
    if (rank >= TOK_VOCAB_MAX)
        return -1;
    l->rank = (int32_t)rank;
    return decode64(s, (size_t)(space - s), l->token, &l->n) ? 1 : -1;
}

static int set_all(struct tok *t, const char *path, const char *data, size_t size,
                   struct line *l)
{
    int rc = OK;

    for (size_t at = 0, from = 0; at < size && rc == OK; from = at) {
        if (next_line(data, size, &at, l) <= 0)
            continue;
        rc = tok_vocab_set(t, l->rank, l->token, l->n, TOK_NORMAL);
        if (rc != OK)
            rc = err_prefix(rc, "%s: offset %zu", path, from);
    }
    return rc;
}

static int set_specials(struct tok *t, int32_t first, const struct tok_opts *o)
{
    int rc = OK;

    for (int i = 0; i < o->n_specials && rc == OK; i++)
        rc = tok_vocab_set(t, first + i, o->specials[i], strlen(o->specials[i]),
                           TOK_CONTROL);
    return rc;
}

static int from_ranks(struct tok *t, const char *path, const char *data, size_t size,
                      const struct tok_opts *o)
{
    struct line *l = NULL;
    int32_t top = -1, n = 0;
    int rc;

    if (!o->pre)
        return err_set(ERR_ARG, "%s: a rank file needs the name of its pre-tokenizer",
                       path);
    if (o->n_specials < 0 || o->n_specials > TOK_VOCAB_MAX)
        return err_set(ERR_ARG, "%d special tokens", o->n_specials);
    l = mem_new(MEM_TOKENIZER, 1, sizeof(*l));
    if (!l)
        return ERR_NOMEM;
    for (size_t at = 0, from = 0; at < size; from = at) {
        int is = next_line(data, size, &at, l);

        if (is < 0) {
            rc = err_set(ERR_FORMAT, "%s: offset %zu: expected \"base64 rank\"", path,
                         from);
            goto out;
        }
        n += is;
        if (is && l->rank > top)
            top = l->rank;
    }
    if (n > TOK_VOCAB_MAX || top > 2 * n) {
        rc = err_set(ERR_FORMAT, "%s: highest rank %d among %d tokens", path, top, n);
        goto out;
    }
    t->by = TOK_BY_ID;
    rc = tok_vocab_init(t, top + 1 + o->n_specials, false);
    if (rc == OK)
        rc = set_all(t, path, data, size, l);
    if (rc == OK)
        rc = set_specials(t, top + 1, o);
    if (rc == OK)
        rc = tok_pre_named(t, o->pre, strlen(o->pre));
    if (rc == OK && (rc = tok_vocab_finish(t)) != OK)
        rc = err_prefix(rc, "%s", path);
    if (rc == OK) {
        t->whole_word = true;
        /* Llama-3's convention, which a rank file cannot express. */
        t->adds_bos = t->bos >= 0 && strcmp(t->kind, "bpe/llama-3") == 0;
    }
out:
    mem_free(l);
    return rc;
}

#define FIRST_BYTE 3
#define FIRST_TEXT (FIRST_BYTE + 256)

/* ---- llama2.c's tokenizer.bin ----
 *
 * int32 longest token, then per token float32 score, int32 length, bytes; all little-endian.
 * Ids: 0 unknown, 1 BOS, 2 EOS, 3 to 258 the bytes, then text in which spaces are spaces.
 * The number of tokens follows from the end of the file. */

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

static int from_llama2c(struct tok *t, const char *path, const char *data, size_t size)
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

/* Is it a line "base64 number"? Only the first one is looked at. */
/* ---- opening a file of any format ---- */

static bool looks_like_ranks(const char *s, size_t n)
{
    size_t i = 0, digits = 0;

    while (i < n && i < 4096 && s[i] > ' ' && s[i] < 0x7f)
        i++;
    if (i == 0 || i >= n || s[i] != ' ')
        return false;
    for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        digits++;
    return digits > 0 && (i == n || s[i] == '\n' || s[i] == '\r');
}

static int from_content(struct tok *t, const char *path, const char *data, size_t n,
                        const struct tok_opts *o)
{
    size_t blank = 0;

    if (n >= 4 && memcmp(data, "GGUF", 4) == 0)
        return tok_from_gguf(t, path, o);
    while (blank < n && blank < 64 && strchr(" \t\r\n", data[blank]) && data[blank])
        blank++;
    if (blank < n && data[blank] == '{')
        return tok_from_hf(t, path, o);
    if (looks_like_ranks(data, n))
        return from_ranks(t, path, data, n, o);
    if (n >= 2 && data[0] == 0x0a && data[1] != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: offset 0: a SentencePiece model; use the tokenizer.json, "
                       "tokenizer.bin or GGUF file made from it",
                       path);
    return from_llama2c(t, path, data, n);
}

/* Map the file only to tell what it is: a few sources are then read in place. */
static int from_file(struct tok *t, const char *path, const struct tok_opts *o)
{
    struct file_map map;
    int rc = file_map_open(&map, path), lost;

    if (rc != OK)
        return rc;
    rc = from_content(t, path, (const char *)map.base, map.bytes, o);
    lost = file_map_check(); /* then an error of the content is only its consequence */
    file_map_close(&map);
    return lost != OK ? lost : rc;
}

/* No token has a space after another character, so no merge crosses into a new word. */
static bool words_are_separate(const struct tok *t)
{
    for (int id = 0; id < t->n_vocab; id++) {
        const char *s = t->bytes + t->span[id].at;

        if (t->type[id] == TOK_CONTROL || t->type[id] == TOK_UNKNOWN)
            continue;
        for (uint32_t i = 1; i < t->span[id].n; i++)
            if (s[i] == ' ' && s[i - 1] != ' ')
                return false;
    }
    return true;
}

int tok_open(struct tok **out, const char *path, const struct tok_opts *opts)
{
    static const struct tok_opts none;
    char inside[4096];
    struct stat st;
    struct tok *t;
    int rc;

    *out = NULL;
    t = mem_new(MEM_TOKENIZER, 1, sizeof(*t));
    if (!t)
        return ERR_NOMEM;
    t->bos = t->eos = t->unk = -1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if ((size_t)snprintf(inside, sizeof(inside), "%s/tokenizer.json", path) >=
            sizeof(inside)) {
            rc = err_set(ERR_ARG, "path of %zu bytes is too long", strlen(path));
            goto out;
        }
        path = inside;
    }
    rc = from_file(t, path, opts ? opts : &none);
    if (rc != OK)
        goto out;
    if (t->chars && opts && opts->pre) {
        rc = err_set(
            ERR_ARG,
            "%s: pre-tokenizer %.40s: expected a byte-level vocabulary, found one "
            "of SentencePiece, which has none",
            path, opts->pre);
        goto out;
    }
    if (t->chars)
        t->cut_at_space = words_are_separate(t);
    *out = t, t = NULL;
out:
    tok_close(&t);
    return rc;
}

void tok_close(struct tok **pt)
{
    struct tok *t = *pt;

    *pt = NULL;
    if (!t)
        return;
    tok_pre_fini(t);
    mem_free(t->span);
    mem_free(t->type);
    mem_free(t->score);
    mem_free(t->bytes);
    mem_free(t->by_text);
    mem_free(t->merge);
    mem_free(t->special);
    mem_free(t->strip);
    mem_free(t);
}

int tok_vocab(const struct tok *t)
{
    return t->n_vocab;
}

int tok_bos(const struct tok *t)
{
    return t->bos;
}

int tok_eos(const struct tok *t)
{
    return t->eos;
}

int tok_stops(const struct tok *t, int32_t out[TOK_STOP_MAX])
{
    for (int i = 0; i < t->n_stop; i++)
        out[i] = t->stop[i];
    return t->n_stop;
}

bool tok_adds_bos(const struct tok *t)
{
    return t->adds_bos;
}

const char *tok_kind(const struct tok *t)
{
    return t->kind;
}

size_t tok_longest(const struct tok *t)
{
    return t->longest;
}

int tok_piece(const struct tok *t, int32_t id, bool special, const char **s, size_t *n)
{
    bool hidden;

    *s = "";
    *n = 0;
    if (id < 0 || id >= t->n_vocab)
        return err_set(ERR_ARG, "token id %d, expected 0 to %d", id, t->n_vocab - 1);
    hidden = t->type[id] == TOK_CONTROL || t->type[id] == TOK_UNKNOWN;
    if (t->span[id].n > 0 && (special || !hidden)) {
        *s = t->bytes + t->span[id].at;
        *n = t->span[id].n;
    }
    return OK;
}

uint64_t tok_identity(const struct tok *t)
{
    struct hash_stream h;

    hash_stream_init(&h);
    for (int i = 0; i < t->n_vocab; i++) {
        hash_stream_add(&h, &t->span[i].n, sizeof(t->span[i].n));
        hash_stream_add(&h, t->bytes + t->span[i].at, t->span[i].n);
    }
    return hash_stream_end(&h);
}
