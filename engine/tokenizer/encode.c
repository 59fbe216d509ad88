#include "tokenizer/tok.h"

#include <string.h>

#include "base/utf8.h"

/* The longest special token that the text begins with, of raw text or of normalised text;
 * -1: none. */
static int32_t special_at(const struct tok *t, const char *s, size_t n, bool control,
                          bool normalised)
{
    int lo = normalised ? t->n_special : 0;
    int hi = normalised ? t->n_special + t->n_normalised : t->n_special;
    int32_t found = -1;

    /* All of [lo, hi) begin with the first i bytes of s; a token that ends there is
     * first. */
    for (size_t i = 0; lo < hi; i++) {
        const struct tok_special *p = &t->special[lo];

        for (; lo < hi && t->span[p->id].n == i; lo++, p++)
            if (control || !p->control)
                found = p->id;
        if (i == n)
            break;
        for (int end = hi, mid; lo < end;) {
            mid = lo + (end - lo) / 2;
            p = &t->special[mid];
            if ((unsigned char)t->bytes[t->span[p->id].at + i] < (unsigned char)s[i])
                lo = mid + 1;
            else
                end = mid;
        }
        for (int from = lo, mid; from < hi;) {
            mid = from + (hi - from) / 2;
            p = &t->special[mid];
            if ((unsigned char)t->bytes[t->span[p->id].at + i] <= (unsigned char)s[i])
                from = mid + 1;
            else
                hi = mid;
        }
    }
    return found;
}

/* SentencePiece's view of a text: a space before it if asked, "▁" the same as a space.
 * `first`: it begins the whole text. */
static int spm_text(struct tok_work *w, const char *s, size_t n, bool first, size_t *out,
                    size_t *n_prefix)
{
    const struct tok *t = w->t;
    bool has_one = s[0] == ' ' || (n >= 3 && memcmp(s, "\xE2\x96\x81", 3) == 0);
    size_t prefix = first ? t->space_prefix != TOK_PREFIX_NEVER
                          : t->space_prefix == TOK_PREFIX_ALWAYS;

    if (has_one && t->prefix_once)
        prefix = 0;

    if (n + 1 > w->cap_buf) {
        mem_free(w->buf);
        w->cap_buf = 0;
        w->buf = mem_new(MEM_TOKENIZER, n + 1, 1);
        if (!w->buf)
            return ERR_NOMEM;
        w->cap_buf = n + 1;
    }
    w->buf[0] = ' ';
    *out = prefix + tok_unmark(s, n, w->buf + prefix);
    *n_prefix = prefix;
    return OK;
}

static int spm_words(struct tok_work *w, const char *s, size_t n)
{
    size_t from = 0;
    int rc = OK;

    for (size_t i = 1; w->t->cut_at_space && i < n && rc == OK; i++) {
        if (s[i] == ' ' && s[i - 1] != ' ') {
            rc = tok_word(w, s + from, i - from);
            from = i;
        }
    }
    return rc == OK && from < n ? tok_word(w, s + from, n - from) : rc;
}

/* A place in a text, raw and as spm_text() writes it. */
struct place {
    size_t raw, norm;
};

static void go_to(struct place *p, size_t norm, const char *s, size_t n)
{
    while (p->norm < norm) {
        p->raw += n - p->raw >= 3 && memcmp(s + p->raw, "\xE2\x96\x81", 3) == 0 ? 3 : 1;
        p->norm++;
    }
}

/* May the bytes [from, to) of the whole text be a control token? Calls come in order. */
static bool may_be_control(struct tok_work *w, size_t from, size_t to)
{
    while (from >= w->part_end)
        w->part_end += (++w->part)->n;
    return w->part->special && to <= w->part_end;
}

/* Words between the special tokens of normalised text in w->buf[n_norm], which was s[n] from
 * `at` of the whole text on. */
static int normalised(struct tok_work *w, const char *s, size_t n, size_t at,
                      size_t n_norm, size_t n_prefix)
{
    const struct tok *t = w->t;
    const size_t skip = t->prefix_special;
    struct place p = {0, n_prefix};
    const char *buf = w->buf;
    size_t from = 0;
    int rc = OK;

    for (size_t i = 0; i + skip < n_norm && rc == OK;) {
        size_t begin = i + skip, left = n_norm - begin;
        int32_t id = -1;

        if (!skip || buf[i] == ' ')
            id = special_at(t, buf + begin, left, true, true);
        if (id >= 0 && t->type[id] != TOK_USER) {
            struct place end;

            go_to(&p, begin, s, n);
            end = p;
            go_to(&end, begin + t->span[id].n, s, n);
            if (!may_be_control(w, at + p.raw, at + end.raw))
                id = special_at(t, buf + begin, left, false, true);
        }
        if (id < 0) {
            i++;
            continue;
        }
        rc = spm_words(w, buf + from, i - from);
        if (rc == OK)
            rc = tok_ids_push(&w->out, id);
        from = i = begin + t->span[id].n;
    }
    return rc == OK ? spm_words(w, buf + from, n_norm - from) : rc;
}

/* Text without special tokens of raw text in it; it begins at `at` of the whole text. */
static int segment(struct tok_work *w, const char *s, size_t n, size_t at)
{
    char *norm = NULL;
    size_t n_norm = 0, n_prefix = 0;
    int rc = OK;

    if (n == 0)
        return OK;
    if (w->t->nfc) {
        rc = tok_nfc(s, n, &norm, &n_norm);
        if (rc != OK)
            return rc;
        if (norm)
            s = norm, n = n_norm;
    }
    if (w->t->chars) {
        rc = spm_text(w, s, n, at == 0, &n_norm, &n_prefix);
        if (rc == OK)
            rc = w->t->n_normalised > 0 ? normalised(w, s, n, at, n_norm, n_prefix)
                                        : spm_words(w, w->buf, n_norm);
    } else {
        rc = tok_pre_words(w, s, n);
    }
    mem_free(norm);
    return rc;
}

/* White_Space of Unicode. */
static bool is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* Bytes of whitespace that s[n] begins with. */
static size_t spaces_after(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n) {
        int len = utf8_len(s + i, n - i);

        if (len <= 0 || !is_space(utf8_code(s + i, len)))
            break;
        i += (size_t)len;
    }
    return i;
}

/* ... and that it ends with. */
static size_t spaces_before(const char *s, size_t n)
{
    size_t i = n;

    for (size_t len = 1; len <= 3 && len <= i;) {
        const char *c = s + i - len;

        if (utf8_len(c, len) == (int)len && is_space(utf8_code(c, (int)len)))
            i -= len, len = 1;
        else
            len++;
    }
    return n - i;
}

/* `parts` together have n bytes. A control token is within one part. */
static int encode(struct tok_work *w, const char *s, size_t n,
                  const struct tok_part *parts)
{
    const struct tok *t = w->t;
    size_t from = 0, part_end = n > 0 ? parts->n : 0;
    int rc = OK;

    w->part = parts;
    w->part_end = part_end;
    for (size_t i = 0; i < n && rc == OK;) {
        size_t end = i;
        int32_t id = -1;

        while (i >= part_end)
            part_end += (++parts)->n;
        if (t->special_first[(unsigned char)s[i]] && parts->special)
            id = special_at(t, s + i, part_end - i, true, false);
        if (t->special_first[(unsigned char)s[i]] && id < 0)
            id = special_at(t, s + i, n - i, false, false);
        if (id < 0) {
            i++;
            continue;
        }
        i += t->span[id].n;
        if (t->strip && t->strip[id] & TOK_STRIP_LEFT)
            end -= spaces_before(s + from, end - from);
        if (t->strip && t->strip[id] & TOK_STRIP_RIGHT)
            i += spaces_after(s + i, n - i);
        rc = segment(w, s + from, end - from, from);
        if (rc == OK)
            rc = tok_ids_push(&w->out, id);
        from = i;
    }
    return rc == OK ? segment(w, s + from, n - from, from) : rc;
}

int tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags,
               int32_t **ids, size_t *n_ids)
{
    const struct tok_part whole = {n, flags & TOK_SPECIAL};

    return tok_encode_parts(t, text, &whole, 1, flags, ids, n_ids);
}

int tok_encode_parts(const struct tok *t, const char *text, const struct tok_part *parts,
                     size_t n_parts, unsigned flags, int32_t **ids, size_t *n_ids)
{
    struct tok_work w = {.t = t};
    size_t n = 0;
    int rc = OK;

    *ids = NULL;
    *n_ids = 0;
    for (size_t i = 0; i < n_parts; i++)
        n += parts[i].n;
    if (n > TOK_TEXT_MAX)
        return err_set(ERR_LIMIT, "text of %zu bytes, expected at most %zu", n,
                       TOK_TEXT_MAX);
    if ((flags & TOK_BOS) && t->bos >= 0)
        rc = tok_ids_push(&w.out, t->bos);
    if (rc == OK)
        rc = encode(&w, text, n, parts);
    if (rc == OK && !w.out.id) { /* an empty answer is an array too */
        w.out.id = mem_new(MEM_TOKENIZER, 1, sizeof(*w.out.id));
        rc = w.out.id ? OK : ERR_NOMEM;
    }
    if (rc == OK) {
        *ids = w.out.id, w.out.id = NULL;
        *n_ids = w.out.n;
    }
    tok_pre_work_fini(&w);
    mem_free(w.out.id);
    mem_free(w.sym);
    mem_free(w.heap);
    mem_free(w.buf);
    return rc;
}
