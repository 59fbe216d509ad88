/* The vocabulary in a GGUF file's metadata: tokenizer.ggml.*. */
#include "tokenizer/tok.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file_map.h"
#include "base/log.h"
#include "format/gguf.h"
#include "tokenizer/keys.h"

#define KEY(name) "tokenizer.ggml." name

/* One of the parallel arrays. n < 0: any length. */
struct array {
    const void *handle;
    enum gguf_type type;
    uint64_t n;
};

static int get_array(const struct gguf *g, const char *key, uint64_t n_tokens,
                     enum gguf_type wanted, struct array *out)
{
    int rc = gguf_get_array(g, key, &out->type, &out->n, &out->handle);

    if (rc != OK)
        return rc;
    if (wanted != GGUF_I32 && out->type != wanted)
        return err_set(ERR_FORMAT, "%s: expected an array of %s", key,
                       wanted == GGUF_F32 ? "float32" : "strings");
    if (n_tokens && out->n != n_tokens)
        return err_set(ERR_FORMAT, "%s: %llu elements for %llu tokens", key,
                       (unsigned long long)out->n, (unsigned long long)n_tokens);
    return OK;
}

static int set_bytes(struct tok *t, int32_t id, const char *s, size_t n)
{
    int byte = tok_byte_text(s, n);
    char c = (char)byte;

    if (byte < 0)
        return err_set(ERR_FORMAT, "token %d: expected <0xXX> for a byte, found \"%.*s\"",
                       id, (int)(n < 32 ? n : 32), s);
    return tok_vocab_set(t, id, &c, 1, TOK_BYTE);
}

static int set_token(struct tok *t, int32_t id, const char *s, size_t n, int type)
{
    size_t m = 0;
    char *text;
    int rc;

    if (type == TOK_BYTE)
        return set_bytes(t, id, s, n);
    if (type != TOK_NORMAL && type != TOK_UNUSED && (type != TOK_USER || !t->chars))
        return tok_vocab_set(t, id, s, n, (enum tok_type)type);
    text = mem_new(MEM_TOKENIZER, n, 1);
    if (!text)
        return ERR_NOMEM;
    if (t->chars)
        m = tok_unmark(s, n, text);
    else if (tok_unprint(s, n, text, &m))
        ;
    else /* outside the alphabet: it means itself */
        memcpy(text, s, m = n);
    rc = tok_vocab_set(t, id, text, m, (enum tok_type)type);
    mem_free(text);
    return rc;
}

static int set_tokens(struct tok *t, const struct gguf *g)
{
    struct array tokens, scores = {0}, types = {0};

    TRY(get_array(g, KEY("tokens"), 0, GGUF_STRING, &tokens));
    if (tokens.n > TOK_VOCAB_MAX)
        return err_set(ERR_LIMIT, KEY("tokens") ": %llu tokens, expected at most %d",
                       (unsigned long long)tokens.n, TOK_VOCAB_MAX);
    if (t->by == TOK_BY_SCORE)
        TRY(get_array(g, KEY("scores"), tokens.n, GGUF_F32, &scores));
    if (gguf_has(g, KEY("token_type")))
        TRY(get_array(g, KEY("token_type"), tokens.n, GGUF_I32, &types));
    TRY(tok_vocab_init(t, (int)tokens.n, t->by == TOK_BY_SCORE));
    for (uint64_t i = 0; i < tokens.n; i++) {
        int64_t type = TOK_NORMAL;
        const char *s;
        size_t n;

        TRY(gguf_array_str(tokens.handle, i, &s, &n));
        if (types.handle)
            TRY(gguf_array_int(types.handle, i, &type));
        if (scores.handle)
            TRY(gguf_array_f32(scores.handle, i, &t->score[i]));
        if (type <= TOK_HOLE || type >= TOK_N_TYPES)
            return err_set(ERR_FORMAT, KEY("token_type") ": token %llu has type %lld",
                           (unsigned long long)i, (long long)type);
        if (scores.handle && isnan(t->score[i]))
            return err_set(ERR_FORMAT, KEY("scores") ": token %llu has score NaN",
                           (unsigned long long)i);
        TRY(set_token(t, (int32_t)i, s, n, (int)type));
    }
    return OK;
}

/* The token a merge's part means; `text` is scratch of at least n bytes. */
static int32_t part(const struct tok *t, const char *s, size_t n, char *text)
{
    size_t m;

    return tok_unprint(s, n, text, &m) ? tok_vocab_find(t, text, m) : -1;
}

static int set_merges(struct tok *t, const struct gguf *g)
{
    struct array merges;
    char *text = mem_new(MEM_TOKENIZER, 2 * t->longest + 2, 1);
    int rc = text ? get_array(g, KEY("merges"), 0, GGUF_STRING, &merges) : ERR_NOMEM;

    if (rc == OK)
        rc = tok_merges_init(t, merges.n);
    for (uint64_t i = 0; rc == OK && i < merges.n; i++) {
        const char *s, *space = NULL;
        int32_t l = -1, r = -1;
        size_t n;

        rc = gguf_array_str(merges.handle, i, &s, &n);
        if (rc != OK)
            break;
        /* Printable bytes are at most twice as long as the bytes. */
        if (n <= 4 * t->longest + 1)
            space = memchr(s, ' ', n);
        if (space && (size_t)(space - s) <= 2 * t->longest &&
            n - (size_t)(space - s) - 1 <= 2 * t->longest) {
            l = part(t, s, (size_t)(space - s), text);
            r = part(t, space + 1, n - (size_t)(space - s) - 1, text);
        }
        if (l < 0 || r < 0)
            rc = err_set(ERR_FORMAT, KEY("merges") ": merge %llu: expected two tokens",
                         (unsigned long long)i);
        else
            rc = tok_merges_add(t, l, r, (uint32_t)i);
    }
    mem_free(text);
    return rc;
}

/* An id with a role: absent, or 2^32 - 1, is none. */
static int role(const struct gguf *g, const char *key, int n_vocab, int *out)
{
    int64_t id = -1;
    int rc = gguf_opt_int(g, key, &id);

    if (rc != OK)
        return rc;
    if (id == UINT32_MAX)
        id = -1;
    if (id < -1 || id >= n_vocab)
        return err_set(ERR_FORMAT, "%s: id %lld, expected less than %d", key,
                       (long long)id, n_vocab);
    *out = (int)id;
    return OK;
}

static int set_pre(struct tok *t, const struct gguf *g, const char *path,
                   const struct tok_opts *o)
{
    const char *pre = "default";
    size_t n = strlen(pre);
    int rc = gguf_opt_str(g, KEY("pre"), &pre, &n);

    if (rc != OK)
        return rc;
    if (!o->pre && !gguf_has(g, KEY("pre")))
        log_warning(
            "no_pre_tokenizer", NAN, NAN,
            "%s has no " KEY("pre") ", so text may be divided in another way than "
                                    "the model was trained with: name one with "
                                    "--pre-tokenizer (" TOK_PRE_NAMES ")",
            path);
    rc = o->pre ? tok_pre_named(t, o->pre, strlen(o->pre)) : tok_pre_named(t, pre, n);
    if (rc != OK)
        return err_prefix(rc, "%s", o->pre ? "--pre-tokenizer" : KEY("pre"));
    /* unless the file says */
    t->adds_bos =
        strcmp(t->kind, "bpe/llama-3") == 0 || strcmp(t->kind, "bpe/tekken") == 0;
    return rc;
}

/* Many files name an end of text only, though the model ends its turn with another token. */
static void set_stops(struct tok *t)
{
    static const char *const names[] = {"<|eot_id|>", "<|eom_id|>",    "<|im_end|>",
                                        "<|end|>",    "<end_of_turn>", "<|endoftext|>"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int32_t id = tok_vocab_named(t, names[i], strlen(names[i]));

        if (id >= 0 && (t->type[id] == TOK_CONTROL || t->type[id] == TOK_USER))
            tok_vocab_stop(t, id);
    }
}

static int check_keys(const struct gguf *g)
{
    const size_t n = strlen(KEY(""));
    char key[160];
    int rc = OK;

    for (uint64_t i = 0; rc == OK && i < gguf_n_keys(g); i++) {
        struct gguf_record r;

        gguf_key_at(g, i, &r);
        snprintf(key, sizeof(key), "%.*s", (int)(r.key_n < 159 ? r.key_n : 159), r.key);
        if (strncmp(key, KEY(""), n) == 0)
            rc = tok_key_check(TOK_KEYS_GGUF, key + n, gguf_number(g, key), KEY(""));
    }
    return rc;
}

static int load(struct tok *t, const struct gguf *g, const char *path,
                const struct tok_opts *o)
{
    const char *model;
    size_t n;
    bool prefix;
    int eot = -1, eom = -1;

    TRY(gguf_get_str(g, KEY("model"), &model, &n));
    TRY(check_keys(g));
    prefix = n == 5 && memcmp(model, "llama", 5) == 0;
    if (prefix) {
        t->by = TOK_BY_SCORE;
        t->chars = t->adds_bos = true;
        snprintf(t->kind, sizeof(t->kind), "spm");
    } else if (n == 4 && memcmp(model, "gpt2", 4) == 0) {
        t->by = TOK_BY_PAIR;
        TRY(set_pre(t, g, path, o));
    } else {
        return err_set(ERR_UNSUPPORTED,
                       KEY("model") ": \"%.*s\", expected \"llama\" or \"gpt2\"",
                       (int)(n < 32 ? n : 32), model);
    }
    TRY(gguf_opt_bool(g, KEY("add_space_prefix"), &prefix));
    if (prefix && !t->chars)
        return err_set(ERR_UNSUPPORTED,
                       KEY("add_space_prefix") ": expected false with "
                                               "model \"gpt2\", found true");
    t->space_prefix = prefix ? TOK_PREFIX_ALWAYS : TOK_PREFIX_NEVER;
    TRY(gguf_opt_bool(g, KEY("add_bos_token"), &t->adds_bos));
    TRY(set_tokens(t, g));
    TRY(role(g, KEY("bos_token_id"), t->n_vocab, &t->bos));
    TRY(role(g, KEY("eos_token_id"), t->n_vocab, &t->eos));
    TRY(role(g, KEY("unknown_token_id"), t->n_vocab, &t->unk));
    TRY(tok_vocab_finish(t));
    TRY(role(g, KEY("eot_token_id"), t->n_vocab, &eot));
    TRY(role(g, KEY("eom_token_id"), t->n_vocab, &eom));
    tok_vocab_stop(t, eot);
    tok_vocab_stop(t, eom);
    set_stops(t);
    return t->by == TOK_BY_PAIR ? set_merges(t, g) : OK;
}

int tok_from_gguf(struct tok *t, const char *path, const struct tok_opts *o)
{
    struct gguf *g = NULL;
    int rc = gguf_open(&g, path);

    if (rc != OK)
        return rc;
    rc = load(t, g, path, o);
    if (rc == OK)
        rc = file_map_check();
    gguf_close(&g);
    return rc == OK ? OK : err_prefix(rc, "%s", path);
}
