#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "experiments/conformance/run.h"

/* --- where two answers part */

/* Up to CONFORM_CONTEXT bytes that begin at p and end before `end`, for a person. */
static void show(char *out, size_t capacity, const char *p, const char *end)
{
    char part[CONFORM_CONTEXT + 1];
    size_t n = (size_t)(end - p);

    if (n > CONFORM_CONTEXT)
        n = CONFORM_CONTEXT;
    memcpy(part, p, n);
    part[n] = '\0';
    utf8_show(out, capacity, part);
}

static void show_texts(struct conform_finding *f, const char *a, size_t n_a,
                       const char *b, size_t n_b)
{
    size_t at = 0, from;

    while (at < n_a && at < n_b && a[at] == b[at])
        at++;
    while (at > 0 && at < n_a && (a[at] & 0xc0) == 0x80) /* inside of a character */
        at--;
    from = at > CONFORM_CONTEXT ? at - CONFORM_CONTEXT : 0;
    while (from < at && (a[from] & 0xc0) == 0x80)
        from++;
    f->at_byte = (int64_t)at;
    show(f->before, sizeof(f->before), a + from, a + at);
    show(f->want_after, sizeof(f->want_after), a + at, a + n_a);
    show(f->got_after, sizeof(f->got_after), b + at, b + n_b);
}

/* Index of the first id that differs, or -1. `shorter`: b may end before a. */
static int64_t first_id(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b,
                        bool shorter)
{
    int64_t i = 0;

    while (i < n_a && i < n_b && a[i] == b[i])
        i++;
    return i == n_b && (shorter || n_a == n_b) ? -1 : i;
}

static int64_t id_at(const int32_t *ids, int64_t n, int64_t i)
{
    return i < n ? ids[i] : -1;
}

/* A text that is a beginning may end with a part of a character, shown as U+FFFD, and a model
 * may write a token's text differently at the start of a text: only whole answers have to
 * have equal texts where ids are known. */
static bool texts_differ(const struct conform_comparison *c, bool ids_known)
{
    const struct text *want = &c->want->text, *got = &c->got->text;

    if (ids_known && (c->skip || c->shorter))
        return false;
    if (c->shorter)
        return got->n > want->n || memcmp(want->p, got->p, got->n) != 0;
    return got->n != want->n || memcmp(want->p, got->p, got->n) != 0;
}

bool conform_differ(struct conform_finding *f, const struct conform_comparison *c)
{
    const bool ids = c->want->has_ids && c->got->has_ids;
    const int32_t *want =
        ids && c->skip <= c->want->n_ids ? c->want->ids + c->skip : NULL;
    const int64_t n_want = want ? c->want->n_ids - c->skip : 0;
    bool differ;

    f->at_tok = f->want_id = f->got_id = -1;
    if (ids) {
        f->at_tok = first_id(want, n_want, c->got->ids, c->got->n_ids, c->shorter);
        f->want_id = f->at_tok < 0 ? -1 : id_at(want, n_want, f->at_tok);
        f->got_id = f->at_tok < 0 ? -1 : id_at(c->got->ids, c->got->n_ids, f->at_tok);
    }
    differ = f->at_tok >= 0 || texts_differ(c, ids);
    if (differ && !c->skip)
        show_texts(f, c->want->text.p, c->want->text.n, c->got->text.p, c->got->text.n);
    else if (differ)
        show(f->got_after, sizeof(f->got_after), c->got->text.p,
             c->got->text.p + c->got->text.n);
    if (f->at_tok >= 0)
        f->at_tok += c->skip;
    return differ;
}

/* --- noise */

enum conform_mode conform_mode_of(const struct conform_request *q)
{
    return q->seed ? CONFORM_SAMPLED : CONFORM_GREEDY;
}

struct conform_tally conform_sum(const struct conform_tally t[CONFORM_N_MODES])
{
    return (struct conform_tally){t[CONFORM_GREEDY].n + t[CONFORM_SAMPLED].n,
                                  t[CONFORM_GREEDY].n_differ +
                                      t[CONFORM_SAMPLED].n_differ};
}

static double log_choose(double n, double k)
{
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

double conform_p_value(const struct conform_tally *floor,
                       const struct conform_tally *cases)
{
    const double n = (double)cases->n, m = (double)floor->n;
    const double all = (double)(cases->n_differ + floor->n_differ);
    const double most = all < n ? all : n;
    double p = 0;

    for (double k = (double)cases->n_differ; k <= most; k++)
        if (all - k <= m)
            p += exp(log_choose(n, k) + log_choose(m, all - k) - log_choose(n + m, all));
    return p < 1 ? p : 1;
}
