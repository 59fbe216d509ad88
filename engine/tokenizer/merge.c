/* One word to tokens: symbols in a doubly linked list, candidates for merging in a heap.
 *
 * Each merge removes a symbol and adds at most two candidates, so a word of n bytes costs
 * O(n log n) whatever it holds; a candidate whose symbols have changed since is
 * recognised by its length and dropped when it comes up. */
#include "tokenizer/tok.h"

#include <string.h>

#include "base/utf8.h"

struct tok_sym {
    uint32_t at, n; /* bytes of the word; n = 0: merged into its left neighbour */
    int32_t prev, next;
    int32_t id; /* -1: not a token by itself */
};

/* The right symbol is the left one's next: if that has changed, so has n. */
struct tok_cand {
    uint64_t key; /* priority, then index of the left symbol: smallest first */
    int32_t id;   /* what the two become */
    uint32_t n;   /* bytes of both when this was found */
};

int tok_ids_push(struct tok_ids *v, int32_t id)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 64;
        int32_t *p = mem_resize(MEM_TOKENIZER, v->id, cap, sizeof(*p));

        if (!p)
            return ERR_NOMEM;
        v->id = p;
        v->cap = cap;
    }
    v->id[v->n++] = id;
    return OK;
}

/* --- the heap: four children to a node, which halves the levels of a binary one */

static void heap_up(struct tok_cand *h, size_t i, struct tok_cand c)
{
    while (i > 0 && c.key < h[(i - 1) / 4].key) {
        h[i] = h[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h[i] = c;
}

static struct tok_cand heap_pop(struct tok_cand *h, size_t *n)
{
    struct tok_cand top = h[0], last = h[--*n];
    size_t i = 0;

    for (;;) {
        size_t child = 4 * i + 1, end = child + 4 < *n ? child + 4 : *n, best = child;

        if (child >= *n)
            break;
        for (size_t c = child + 1; c < end; c++)
            if (h[c].key < h[best].key)
                best = c;
        if (last.key <= h[best].key)
            break;
        h[i] = h[best];
        i = best;
    }
    h[i] = last;
    return top;
}

/* Scores in descending order as ascending integers. */
static uint32_t score_priority(float score)
{
    uint32_t bits;

    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof(bits));
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

/* The token that the neighbours l and r become; false: none. */
static bool joined(const struct tok *t, const char *word, const struct tok_sym *l,
                   const struct tok_sym *r, uint32_t *priority, int32_t *id)
{
    if (t->by == TOK_BY_PAIR) {
        const struct tok_merge *m =
            l->id >= 0 && r->id >= 0 ? tok_merges_find(t, l->id, r->id) : NULL;

        if (!m)
            return false;
        *priority = m->rank;
        *id = m->id;
        return true;
    }
    *id = tok_vocab_find(t, word + l->at, (size_t)l->n + r->n);
    if (*id < 0)
        return false;
    *priority = t->by == TOK_BY_ID ? (uint32_t)*id : score_priority(t->score[*id]);
    return true;
}

/* --- symbols */

static void symbol_add(struct tok_sym *sym, int32_t *n, size_t at, size_t len, int32_t id)
{
    sym[*n] = (struct tok_sym){(uint32_t)at, (uint32_t)len, *n - 1, *n + 1, id};
    ++*n;
}

/* Do all bytes have a token? */
static bool has_bytes(const struct tok *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->byte_id[(unsigned char)s[i]] < 0)
            return false;
    return true;
}

/* Characters that are tokens; the bytes of those that are not, where merging is by pairs
 * of tokens. Merging by text keeps an unknown character whole: it may be part of a token.
 */
static int32_t split_chars(const struct tok *t, struct tok_sym *sym, const char *s,
                           size_t n)
{
    int32_t n_sym = 0;

    for (size_t i = 0; i < n;) {
        int len = utf8_len(s + i, n - i);
        int32_t id;

        if (len <= 0)
            len = 1;
        id = tok_vocab_find(t, s + i, (size_t)len);
        if (id >= 0 || t->by != TOK_BY_PAIR || !has_bytes(t, s + i, (size_t)len))
            symbol_add(sym, &n_sym, i, (size_t)len, id);
        else
            for (int b = 0; b < len; b++)
                symbol_add(sym, &n_sym, i + (size_t)b, 1,
                           t->byte_id[(unsigned char)s[i + (size_t)b]]);
        i += (size_t)len;
    }
    return n_sym;
}

static int32_t split_bytes(const struct tok *t, struct tok_sym *sym, const char *s,
                           size_t n)
{
    int32_t n_sym = 0;

    for (size_t i = 0; i < n; i++)
        symbol_add(sym, &n_sym, i, 1, t->byte_id[(unsigned char)s[i]]);
    return n_sym;
}

/* Put symbol `left` and its next on the heap if they can merge. */
static void consider(struct tok_work *w, const char *s, int32_t left)
{
    const struct tok_sym *l = &w->sym[left], *r = &w->sym[l->next];
    struct tok_cand c = {.n = l->n + r->n};
    uint32_t priority;

    if (!joined(w->t, s, l, r, &priority, &c.id))
        return;
    c.key = (uint64_t)priority << 32 | (uint32_t)left;
    heap_up(w->heap, w->n_heap++, c);
}

static void merge_all(struct tok_work *w, const char *s, int32_t n_sym)
{
    struct tok_sym *sym = w->sym;

    w->n_heap = 0;
    for (int32_t i = 0; i + 1 < n_sym; i++)
        consider(w, s, i);
    while (w->n_heap > 0) {
        struct tok_cand c = heap_pop(w->heap, &w->n_heap);
        int32_t left = (int32_t)(uint32_t)c.key;
        struct tok_sym *l = &sym[left], *r;

        if (l->n == 0 || l->next >= n_sym)
            continue;
        r = &sym[l->next];
        if (l->n + r->n != c.n)
            continue;
        l->n = c.n;
        l->id = c.id;
        l->next = r->next;
        r->n = 0;
        if (l->next < n_sym) {
            sym[l->next].prev = left;
            consider(w, s, left);
        }
        if (l->prev >= 0)
            consider(w, s, l->prev);
    }
}

/* The tokens that stand; the bytes of what is none, or the unknown token where a byte has
 * no token. */
static int emit(struct tok_work *w, const char *s, int32_t n_sym)
{
    const struct tok *t = w->t;
    bool was_unk = false;
    int rc = OK;

    for (int32_t i = 0; i < n_sym && rc == OK; i = w->sym[i].next) {
        const struct tok_sym *y = &w->sym[i];

        if (y->id < 0 && !has_bytes(t, s + y->at, y->n)) {
            if (t->unk >= 0 && !(t->fuse_unk && was_unk))
                rc = tok_ids_push(&w->out, t->unk);
            was_unk = true;
            continue;
        }
        was_unk = false;
        if (y->id >= 0)
            rc = tok_ids_push(&w->out, y->id);
        for (uint32_t b = 0; b < y->n && y->id < 0 && rc == OK; b++)
            rc = tok_ids_push(&w->out, t->byte_id[(unsigned char)s[y->at + b]]);
    }
    return rc;
}

static int work_reserve(struct tok_work *w, size_t n)
{
    /* Candidates: n - 1 at first, then each of n - 1 merges takes one and adds two.
     * 52 bytes of memory to a byte of the longest word. */
    size_t cap = n < 64 ? 64 : n;

    if (cap > w->cap_sym) {
        struct tok_sym *p = mem_resize(MEM_TOKENIZER, w->sym, cap, sizeof(*p));

        if (!p)
            return ERR_NOMEM;
        w->sym = p;
        w->cap_sym = cap;
    }
    if (2 * cap > w->cap_heap) {
        struct tok_cand *p = mem_resize(MEM_TOKENIZER, w->heap, 2 * cap, sizeof(*p));

        if (!p)
            return ERR_NOMEM;
        w->heap = p;
        w->cap_heap = 2 * cap;
    }
    return OK;
}

int tok_word(struct tok_work *w, const char *s, size_t n)
{
    const struct tok *t = w->t;
    int32_t n_sym, id;
    int rc;

    if (t->whole_word) {
        id = tok_vocab_find(t, s, n);
        if (id >= 0)
            return tok_ids_push(&w->out, id);
    }
    rc = work_reserve(w, n);
    if (rc != OK)
        return rc;
    n_sym = t->chars ? split_chars(t, w->sym, s, n) : split_bytes(t, w->sym, s, n);
    merge_all(w, s, n_sym);
    return emit(w, s, n_sym);
}
