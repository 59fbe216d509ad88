#include "tokenizer/tok.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_map.h"

/* Is it a line "base64 number"? Only the first one is looked at. */
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
        return tok_from_ranks(t, path, data, n, o);
    if (n >= 2 && data[0] == 0x0a && data[1] != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: offset 0: a SentencePiece model; use the tokenizer.json, "
                       "tokenizer.bin or GGUF file made from it",
                       path);
    return tok_from_llama2c(t, path, data, n);
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
