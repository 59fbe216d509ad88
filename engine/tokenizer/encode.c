#include "tokenizer/tok.h"

#include <string.h>

/* The longest special token that the text begins with; -1: none. */
static int32_t special_at(const struct tok *t, const char *s, size_t n, bool control)
{
    int lo = 0, hi = t->n_special;
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

/* SentencePiece's view of a text: a space before it if asked, "▁" the same as a space. */
static int spm_text(struct tok_work *w, const char *s, size_t n, bool at_start,
                    size_t *out)
{
    size_t prefix = at_start && w->t->space_prefix;

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

/* Text without special tokens in it. */
static int segment(struct tok_work *w, const char *s, size_t n, bool at_start)
{
    char *norm = NULL;
    size_t n_norm = 0;
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
        rc = spm_text(w, s, n, at_start, &n);
        if (rc == OK)
            rc = spm_words(w, w->buf, n);
    } else {
        rc = tok_pre_words(w, s, n);
    }
    mem_free(norm);
    return rc;
}

static int encode(struct tok_work *w, const char *s, size_t n, bool control)
{
    const struct tok *t = w->t;
    size_t from = 0;
    bool at_start = true;
    int rc = OK;

    for (size_t i = 0; i < n && rc == OK;) {
        int32_t id = -1;

        if (t->special_first[(unsigned char)s[i]])
            id = special_at(t, s + i, n - i, control);
        if (id < 0) {
            i++;
            continue;
        }
        rc = segment(w, s + from, i - from, at_start);
        if (rc == OK)
            rc = tok_ids_push(&w->out, id);
        i += t->span[id].n;
        from = i;
        /* As in tok_stream_put(): a control token starts a new text, others continue it.
         */
        at_start = t->type[id] == TOK_CONTROL;
    }
    return rc == OK ? segment(w, s + from, n - from, at_start) : rc;
}

int tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags,
               int32_t **ids, size_t *n_ids)
{
    struct tok_work w = {.t = t};
    int rc = OK;

    *ids = NULL;
    *n_ids = 0;
    if (n > TOK_TEXT_MAX)
        return err_set(ERR_LIMIT, "text of %zu bytes, expected at most %zu", n,
                       TOK_TEXT_MAX);
    if ((flags & TOK_BOS) && t->bos >= 0)
        rc = tok_ids_push(&w.out, t->bos);
    if (rc == OK)
        rc = encode(&w, text, n, flags & TOK_SPECIAL);
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
