#include "http/stop.h"

#include <string.h>

/* One byte further from a state; `n` bytes matched already. */
static size_t advance(const struct http_stop_word *w, size_t n, char c)
{
    if (n == w->n)
        n = w->border[n - 1];
    while (n > 0 && w->text[n] != c)
        n = w->border[n - 1];
    return n + (w->text[n] == c);
}

void http_stop_set(struct http_stop *s, int i, const char *text, size_t n)
{
    struct http_stop_word *w = &s->word[i];

    w->n = n;
    w->matched = 0;
    memcpy(w->text, text, n);
    w->border[0] = 0;
    for (size_t at = 1; at < n; at++)
        w->border[at] = (uint16_t)advance(w, w->border[at - 1], text[at]);
}

bool http_stop_feed(struct http_stop *s, const char *text, size_t n)
{
    for (size_t at = 0; at < n; at++) {
        size_t longest = 0;

        s->n_bytes++;
        for (int i = 0; i < s->n; i++) {
            struct http_stop_word *w = &s->word[i];

            w->matched = advance(w, w->matched, text[at]);
            if (w->matched == w->n && w->n > longest)
                longest = w->n;
        }
        if (longest > 0) {
            s->found_at = s->n_bytes - longest;
            return true;
        }
    }
    return false;
}

size_t http_stop_safe(const struct http_stop *s)
{
    size_t held = 0;

    for (int i = 0; i < s->n; i++)
        if (s->word[i].matched > held)
            held = s->word[i].matched;
    return s->n_bytes - held;
}
