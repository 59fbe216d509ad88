/* tiktoken rank files: one "base64-of-token rank" a line; the rank is the id. Special
 * tokens are not in the file; the caller names them, and they follow the last rank. */
#include "tokenizer/tok.h"

#include <string.h>

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

int tok_from_ranks(struct tok *t, const char *path, const char *data, size_t size,
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
