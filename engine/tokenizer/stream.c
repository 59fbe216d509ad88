#include "tokenizer/tok.h"

#include <string.h>

#include "base/utf8.h"

void tok_stream_init(struct tok_stream *s, const struct tok *t)
{
    *s = (struct tok_stream){.t = t, .at_start = t->space_prefix != TOK_PREFIX_NEVER};
}

bool tok_skips_space(const struct tok *t, int32_t id)
{
    return t->space_prefix != TOK_PREFIX_NEVER && t->type[id] != TOK_USER &&
           t->span[id].n > 0 && t->bytes[t->span[id].at] == ' ';
}

/* U+FFFD for a fault, whatever its length (Unicode 3.9, maximal subparts). */
static size_t put_fault(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

/* Emit what is certain of the held bytes; at most 3 stay. */
static size_t settle(struct tok_stream *s, char *out)
{
    size_t n = 0;

    while (s->n_held > 0) {
        int len = utf8_len((const char *)s->held, (size_t)s->n_held);

        if (len == 0)
            break;
        if (len > 0) {
            memcpy(out + n, s->held, (size_t)len);
            n += (size_t)len;
        } else {
            len = -len;
            n += put_fault(out + n);
        }
        s->n_held -= len;
        memmove(s->held, s->held + len, (size_t)s->n_held);
    }
    return n;
}

int tok_stream_put(struct tok_stream *s, int32_t id, char *out, size_t capacity,
                   size_t *n_out)
{
    const char *piece;
    size_t n, done = 0;
    int rc = tok_piece(s->t, id, false, &piece, &n);

    *n_out = 0;
    if (rc != OK)
        return rc;
    if (capacity < 8 + 3 * n)
        return err_set(ERR_ARG, "%zu bytes for text, expected at least %zu", capacity,
                       8 + 3 * n);
    if (s->t->type[id] == TOK_CONTROL)
        s->at_start = s->t->space_prefix == TOK_PREFIX_ALWAYS;
    if (n > 0) {
        if (s->at_start && tok_skips_space(s->t, id))
            piece++, n--;
        s->at_start = false;
    }
    for (size_t i = 0; i < n; i++) {
        s->held[s->n_held++] = (unsigned char)piece[i];
        done += settle(s, out + done);
    }
    *n_out = done;
    return OK;
}

size_t tok_stream_flush(struct tok_stream *s, char *out, size_t capacity)
{
    if (s->n_held == 0 || capacity < 3)
        return 0;
    s->n_held = 0;
    return put_fault(out);
}
