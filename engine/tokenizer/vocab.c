#include "tokenizer/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/utf8.h"

int tok_vocab_init(struct tok *t, int n_vocab, bool scores)
{
    if (n_vocab < 1 || n_vocab > TOK_VOCAB_MAX)
        return err_set(ERR_LIMIT, "vocabulary of %d tokens, expected 1 to %d", n_vocab,
                       TOK_VOCAB_MAX);
    t->n_vocab = n_vocab;
    t->span = mem_new(MEM_TOKENIZER, (size_t)n_vocab, sizeof(*t->span));
    t->type = mem_new(MEM_TOKENIZER, (size_t)n_vocab, 1);
    if (scores)
        t->score = mem_new(MEM_TOKENIZER, (size_t)n_vocab, sizeof(*t->score));
    return t->span && t->type && (!scores || t->score) ? OK : ERR_NOMEM;
}

static int arena_reserve(struct tok *t, size_t n)
{
    size_t cap = t->cap_bytes ? t->cap_bytes : 1 << 16;
    char *p;

    if (n > TOK_ARENA_MAX - t->n_bytes)
        return err_set(ERR_LIMIT, "the tokens' texts exceed %zu bytes", TOK_ARENA_MAX);
    if (t->n_bytes + n <= t->cap_bytes)
        return OK;
    while (cap < t->n_bytes + n)
        cap *= 2;
    p = mem_resize(MEM_TOKENIZER, t->bytes, cap, 1);
    if (!p)
        return ERR_NOMEM;
    t->bytes = p;
    t->cap_bytes = cap;
    return OK;
}

static bool is_special(uint8_t type)
{
    return type == TOK_CONTROL || type == TOK_USER || type == TOK_UNKNOWN;
}

int tok_vocab_set(struct tok *t, int32_t id, const char *text, size_t n,
                  enum tok_type type)
{
    int rc;

    if (id < 0 || id >= t->n_vocab)
        return err_set(ERR_FORMAT, "token id %d, expected less than %d", id, t->n_vocab);
    if (t->type[id] != TOK_HOLE)
        return err_set(ERR_FORMAT, "token id %d is given twice", id);
    if (is_special((uint8_t)type) && n > TOK_SPECIAL_MAX)
        return err_set(ERR_LIMIT, "special token %d has %zu bytes, expected at most %d",
                       id, n, TOK_SPECIAL_MAX);
    rc = arena_reserve(t, n);
    if (rc != OK)
        return rc;
    if (n > 0)
        memcpy(t->bytes + t->n_bytes, text, n);
    t->span[id] = (struct tok_span){(uint32_t)t->n_bytes, (uint32_t)n};
    t->n_bytes += n;
    t->type[id] = (uint8_t)type;
    if (n > t->longest)
        t->longest = n;
    return OK;
}

/* --- text to id */

/* The slot holding these bytes, or the empty one where they belong. */
static uint32_t text_slot(const struct tok *t, const char *s, size_t n)
{
    uint32_t i = (uint32_t)hash_bytes(s, n) & t->text_mask;

    for (; t->by_text[i] >= 0; i = (i + 1) & t->text_mask) {
        const struct tok_span *p = &t->span[t->by_text[i]];

        if (p->n == n && memcmp(t->bytes + p->at, s, n) == 0)
            break;
    }
    return i;
}

int32_t tok_vocab_find(const struct tok *t, const char *s, size_t n)
{
    return n == 0 || n > t->longest ? -1 : t->by_text[text_slot(t, s, n)];
}

static uint32_t table_size(size_t n)
{
    uint32_t size = 64;

    while (size < 2 * n)
        size *= 2;
    return size;
}

static int index_texts(struct tok *t)
{
    uint32_t size = table_size((size_t)t->n_vocab);

    t->by_text = mem_new(MEM_TOKENIZER, size, sizeof(*t->by_text));
    if (!t->by_text)
        return ERR_NOMEM;
    memset(t->by_text, 0xff, size * sizeof(*t->by_text));
    t->text_mask = size - 1;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        const struct tok_span *p = &t->span[id];
        int type = t->type[id];
        uint32_t slot;

        if (p->n == 0 || (type != TOK_NORMAL && type != TOK_USER && type != TOK_UNUSED))
            continue;
        slot = text_slot(t, t->bytes + p->at, p->n);
        if (t->by_text[slot] < 0) /* of two tokens with one text the first counts */
            t->by_text[slot] = id;
    }
    return OK;
}

/* --- special tokens, sorted so that the text narrows a range of them byte by byte */

static bool is_normalised(const struct tok *t, int32_t id)
{
    return t->strip && t->strip[id] & TOK_NORMALISED;
}

static int special_cmp(const void *pa, const void *pb, void *ctx)
{
    const struct tok_special *a = pa, *b = pb;
    const struct tok *t = ctx;
    int later = is_normalised(t, a->id) - is_normalised(t, b->id);
    const struct tok_span *sa = &t->span[a->id], *sb = &t->span[b->id];
    int c = memcmp(t->bytes + sa->at, t->bytes + sb->at, sa->n < sb->n ? sa->n : sb->n);

    if (later != 0)
        return later;
    if (c != 0)
        return c;
    if (sa->n != sb->n)
        return sa->n < sb->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int index_specials(struct tok *t)
{
    size_t n = 0;

    for (int id = 0; id < t->n_vocab; id++)
        n += is_special(t->type[id]);
    t->special = mem_new(MEM_TOKENIZER, n, sizeof(*t->special));
    if (!t->special)
        return ERR_NOMEM;
    for (int32_t id = 0; id < t->n_vocab; id++) {
        bool control = t->type[id] != TOK_USER;

        if (!is_special(t->type[id]) || t->span[id].n == 0)
            continue;
        t->special[t->n_special++] = (struct tok_special){id, control};
        if (is_normalised(t, id))
            t->n_normalised++;
        else
            t->special_first[(unsigned char)t->bytes[t->span[id].at]] = true;
    }
    qsort_r(t->special, (size_t)t->n_special, sizeof(*t->special), special_cmp, t);
    t->n_special -= t->n_normalised;
    return OK;
}

/* --- single bytes, and the ids with a role */

static void index_bytes(struct tok *t)
{
    for (int b = 0; b < 256; b++) {
        char c = (char)b, named[8];

        /* by its name where the file does not say that it is a byte */
        snprintf(named, sizeof(named), "<0x%02X>", (unsigned)b);
        t->byte_id[b] = t->no_bytes ? -1
                        : t->chars  ? tok_vocab_find(t, named, 6)
                                    : tok_vocab_find(t, &c, 1);
    }
    for (int32_t id = t->n_vocab - 1; id >= 0; id--)
        if (t->type[id] == TOK_BYTE)
            t->byte_id[(unsigned char)t->bytes[t->span[id].at]] = id;
}

int32_t tok_vocab_named(const struct tok *t, const char *s, size_t n)
{
    int32_t normal = -1;

    for (int32_t id = 0; id < t->n_vocab; id++) {
        const struct tok_span *p = &t->span[id];

        if (t->type[id] == TOK_HOLE || p->n != n || memcmp(t->bytes + p->at, s, n) != 0)
            continue;
        if (t->type[id] == TOK_CONTROL)
            return id;
        if (normal < 0)
            normal = id;
    }
    return normal;
}

static int guess(const struct tok *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = tok_vocab_named(t, *names, strlen(*names));

        if (id >= 0 && (t->type[id] == TOK_CONTROL || t->type[id] == TOK_USER))
            return id;
    }
    return -1;
}

void tok_vocab_stop(struct tok *t, int32_t id)
{
    for (int i = 0; i < t->n_stop; i++)
        if (t->stop[i] == id)
            return;
    if (id >= 0 && t->n_stop < TOK_STOP_MAX)
        t->stop[t->n_stop++] = id;
}

/* Without an unknown token a byte that has no token is left out, as others do it. */
static void check_bytes(const struct tok *t)
{
    int n = 0, first = 0;

    for (int b = 255; b >= 0; b--)
        if (t->byte_id[b] < 0)
            n++, first = b;
    if (n > 0 && t->unk < 0)
        log_warning(
            "bytes_without_token", n, 0,
            "the vocabulary has no token for %d bytes, the first 0x%02X, and none "
            "for what is unknown: they are left out of a text",
            n, (unsigned)first);
}

int tok_vocab_finish(struct tok *t)
{
    static const char *const bos[] = {"<s>", "<|begin_of_text|>", "<|startoftext|>",
                                      NULL};
    static const char *const eos[] = {"</s>", "<|end_of_text|>", "<|endoftext|>", NULL};
    int rc = index_texts(t);

    if (rc == OK)
        rc = index_specials(t);
    if (rc != OK)
        return rc;
    index_bytes(t);
    if (t->bos < 0)
        t->bos = guess(t, bos);
    if (t->eos < 0)
        t->eos = guess(t, eos);
    t->adds_bos = t->adds_bos && t->bos >= 0;
    tok_vocab_stop(t, t->eos);
    check_bytes(t);
    return OK;
}

/* --- pairs to merge */

static uint32_t merge_slot(const struct tok *t, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)hash_u64(pair) & t->merge_mask;

    while (t->merge[i].left >= 0 &&
           (t->merge[i].left != left || t->merge[i].right != right))
        i = (i + 1) & t->merge_mask;
    return i;
}

int tok_merges_init(struct tok *t, size_t n)
{
    uint32_t size;

    if (n > 2 * (size_t)TOK_VOCAB_MAX)
        return err_set(ERR_LIMIT, "%zu merges, expected at most %d", n,
                       2 * TOK_VOCAB_MAX);
    size = table_size(n);
    t->merge = mem_new(MEM_TOKENIZER, size, sizeof(*t->merge));
    if (!t->merge)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < size; i++)
        t->merge[i].left = -1;
    t->merge_mask = size - 1;
    return OK;
}

int tok_merges_add(struct tok *t, int32_t left, int32_t right, uint32_t rank)
{
    const struct tok_span *l = &t->span[left], *r = &t->span[right];
    struct tok_merge *m = &t->merge[merge_slot(t, left, right)];
    char *joined;
    int32_t id;

    if (m->left >= 0)
        return OK; /* a pair listed twice has its first rank */
    joined = mem_new(MEM_TOKENIZER, (size_t)l->n + r->n, 1);
    if (!joined)
        return ERR_NOMEM;
    memcpy(joined, t->bytes + l->at, l->n);
    memcpy(joined + l->n, t->bytes + r->at, r->n);
    id = tok_vocab_find(t, joined, (size_t)l->n + r->n);
    mem_free(joined);
    if (id < 0)
        return err_set(ERR_FORMAT, "merge %u: the joined text is not a token", rank);
    *m = (struct tok_merge){left, right, id, rank};
    return OK;
}

const struct tok_merge *tok_merges_find(const struct tok *t, int32_t left, int32_t right)
{
    const struct tok_merge *m = &t->merge[merge_slot(t, left, right)];

    return m->left >= 0 ? m : NULL;
}

/* --- the printable forms of bytes and spaces */

int tok_byte_text(const char *s, size_t n)
{
    int v = 0;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;

        if (d < 0)
            return -1;
        v = 16 * v + d;
    }
    return v;
}

/* The byte that a character of the printable alphabet stands for. Bytes that print in
 * Latin-1 stand for themselves; the other 68, in order, are U+0100 and following. */
static int unprint_code(int32_t code)
{
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) ||
        (code >= 0xAE && code <= 0xFF))
        return code;
    code -= 0x100;
    if (code < 0)
        return -1;
    if (code <= 0x20)
        return code;
    if (code <= 0x42)
        return code - 0x21 + 0x7F;
    return code == 0x43 ? 0xAD : -1;
}

bool tok_unprint(const char *s, size_t n, char *out, size_t *n_out)
{
    size_t m = 0;

    for (size_t i = 0; i < n;) {
        int len = utf8_len(s + i, n - i);
        int byte = len > 0 ? unprint_code(utf8_code(s + i, len)) : -1;

        if (byte < 0)
            return false;
        out[m++] = (char)byte;
        i += (size_t)len;
    }
    *n_out = m;
    return true;
}

size_t tok_unmark(const char *s, size_t n, char *out)
{
    size_t m = 0;

    for (size_t i = 0; i < n;) {
        if (n - i >= 3 && memcmp(s + i, "\xE2\x96\x81", 3) == 0) {
            out[m++] = ' ';
            i += 3;
        } else {
            out[m++] = s[i++];
        }
    }
    return m;
}
