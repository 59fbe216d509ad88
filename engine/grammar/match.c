/* Sets of stacks, the steps between them, and masks.
 *
 * A stack is a state and its tail: where the rule that called goes on, and that one's tail. Equal
 * tails and equal sets are one, by number, so that a step of a set by a byte is done once and then
 * looked up. The tables of a grammar only grow. A grammar whose tables are half full is not used
 * for further requests: these begin with a new one.
 *
 * A token has few bytes, so that it does not tell the copies of a repeated part after which many
 * follow from one another. Sets that differ in nothing else, such as those in a string of at most
 * 200 characters, have one mask, but for the few tokens that are longer than SHORT_TOK. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"
#include "grammar/rules.h"

#define KEPT_MAX       8     /* grammars that are kept for further requests */
#define SETS_MAX       16384 /* of stacks; a step of one is 2 bytes, 512 for all bytes */
#define TAILS_MAX      (1 << 16)
#define ITEMS_MAX      (1 << 19)
#define WORK_MAX       4096               /* stacks looked at in one step */
#define KEEP_FROM      2048               /* nodes that a walk passes, to keep its mask */
#define MASK_BYTES_MAX ((size_t)16 << 20) /* of masks that are kept, of a grammar */
#define SHORT_TOK      24                 /* bytes */

enum { TAIL_END }; /* no caller: the end of the text */
enum { NO_SET = 0, NOT_YET = -1 };

struct grammar_vocab {
    const struct tok *tok;
    struct grammar_trie trie; /* no ids: not made yet */
    int n_vocab, n_stops;
    int32_t *stops;
    pthread_mutex_t lock;           /* of what follows, and while the trie is made */
    struct grammar *kept[KEPT_MAX]; /* NULL: none */
    int next_kept;
};

struct tail {
    int32_t next, parent;
    int32_t depth;
    int32_t like; /* the one that stands for it and its like in masks; NOT_YET */
};
struct set {
    int32_t first, n; /* its stacks in `items` */
    int32_t like;     /* as of tails */
    bool ends;        /* one of them is the end of the text */
    uint64_t *mask;   /* NULL: not kept */
    int16_t to[256];  /* by byte: another set; NOT_YET */
};

struct grammar {
    struct grammar_vocab *v;
    struct grammar_rules rules;
    enum grammar_kind kind;
    char *text;
    size_t n_text;
    atomic_int n_refs;

    pthread_mutex_t lock; /* of all below */
    struct set *sets;
    struct tail *tails;
    uint64_t *items; /* state << 32 | tail, ascending within a set */
    int n_sets, n_tails, n_items, cap_sets, cap_tails, cap_items, start;
    struct map set_of, tail_of;
    int32_t *state_like; /* [n_states] as of tails; itself */
    size_t mask_bytes;

    /* For one step, or one walk. */
    uint64_t work[WORK_MAX], seen[2 * WORK_MAX], out[WORK_MAX];
    uint32_t seen_in[2 * WORK_MAX], step;
    int n_work, n_seen, n_out;
    int32_t *at; /* [longest + 1] the set after each byte of the path */
};

struct grammar_matcher {
    struct grammar *g;
    int set;          /* negative: an error, which is in `why` */
    uint64_t *bits;   /* [words] */
    int bits_of;      /* the set that they are of; NOT_YET */
    bool drops_space; /* until a token has come */
    char why[160];
};

static size_t n_words(const struct grammar_vocab *v)
{
    return ((size_t)v->n_vocab + 63) / 64;
}

static void set_bit(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= UINT64_C(1) << id % 64;
}

/* ---- sets of stacks; with the lock held. Numbers are negative after an error. ---- */

static int too_many(void)
{
    return err_set(ERR_LIMIT, "grammar: it is too ambiguous here: too many stacks");
}

static int tail_of(struct grammar *g, int32_t next, int32_t parent)
{
    const uint64_t key = 2 + ((uint64_t)next << 32 | (uint64_t)parent);
    int64_t at;

    if (map_find(&g->tail_of, key, &at))
        return (int)at;
    if (g->n_tails == TAILS_MAX)
        return too_many();
    TRY(grammar_grow(&g->tails, &g->cap_tails, g->n_tails, sizeof(*g->tails)));
    TRY(map_put(&g->tail_of, key, g->n_tails));
    g->tails[g->n_tails] =
        (struct tail){next, parent, g->tails[parent].depth + 1, NOT_YET};
    return g->n_tails++;
}

/* A stack that is to be looked at, unless it was in this step. */
static int push(struct grammar *g, int32_t state, int32_t tail)
{
    const uint64_t item = (uint64_t)state << 32 | (uint64_t)tail;
    size_t at = (size_t)hash_u64(item) % (2 * WORK_MAX);

    while (g->seen_in[at] == g->step) {
        if (g->seen[at] == item)
            return OK;
        at = (at + 1) % (2 * WORK_MAX);
    }
    if (g->n_seen == WORK_MAX)
        return too_many();
    g->seen[at] = item;
    g->seen_in[at] = g->step;
    g->n_seen++;
    g->work[g->n_work++] = item;
    return OK;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The number of the set in g->out. */
static int set_of(struct grammar *g)
{
    uint64_t hash;
    int64_t at;

    if (g->n_out == 0)
        return NO_SET;
    qsort(g->out, (size_t)g->n_out, sizeof(g->out[0]), by_value);
    hash = hash_bytes(g->out, (size_t)g->n_out * sizeof(g->out[0]));
    if (map_find(&g->set_of, hash, &at))
        return (int)at;
    if (g->n_sets == SETS_MAX || g->n_items + g->n_out > ITEMS_MAX)
        return too_many();
    TRY(grammar_grow(&g->sets, &g->cap_sets, g->n_sets, sizeof(*g->sets)));
    g->sets[g->n_sets] =
        (struct set){.first = g->n_items, .n = g->n_out, .like = NOT_YET};
    memset(g->sets[g->n_sets].to, 0xff, sizeof(g->sets[0].to)); /* NOT_YET */
    for (int i = 0; i < g->n_out; i++) {
        TRY(grammar_grow(&g->items, &g->cap_items, g->n_items, sizeof(*g->items)));
        g->items[g->n_items++] = g->out[i];
        g->sets[g->n_sets].ends |= g->rules.states[g->out[i] >> 32].kind == GRAMMAR_END;
    }
    TRY(map_put(&g->set_of, hash, g->n_sets));
    return g->n_sets++;
}

/* Follow all that reads no byte; returns the set of the stacks that this leads to. */
static int close_over(struct grammar *g)
{
    while (g->n_work > 0) {
        const uint64_t item = g->work[--g->n_work];
        const struct grammar_state *s = &g->rules.states[item >> 32];
        int tail = (int)(uint32_t)item;

        if (s->kind == GRAMMAR_SPLIT) {
            TRY(push(g, s->next, tail));
            if (s->arg >= 0)
                TRY(push(g, s->arg, tail));
        } else if (s->kind == GRAMMAR_CALL) {
            if (s->next != 0 && g->tails[tail].depth == GRAMMAR_DEPTH_MAX)
                continue;
            tail = s->next == 0 ? tail : tail_of(g, s->next, tail);
            if (tail < 0)
                return tail;
            TRY(push(g, g->rules.entry[s->arg], tail));
        } else if (s->kind == GRAMMAR_END && tail != TAIL_END) {
            TRY(push(g, g->tails[tail].next, g->tails[tail].parent));
        } else {
            g->out[g->n_out++] = item;
        }
    }
    return set_of(g);
}

static void begin_step(struct grammar *g)
{
    g->step++;
    g->n_work = g->n_seen = g->n_out = 0;
}

/* All bytes around this one that the same of its states read lead to the same set. */
static int step(struct grammar *g, int set, uint8_t byte)
{
    const int first = g->sets[set].first, n = g->sets[set].n;
    int to = g->sets[set].to[byte], lo = 0, hi = 255;

    if (to != NOT_YET)
        return to;
    begin_step(g);
    for (int i = first; i < first + n; i++) {
        const struct grammar_state *s = &g->rules.states[g->items[i] >> 32];
        const int from = s->arg & 255, last = s->arg >> 8;

        if (s->kind != GRAMMAR_BYTES)
            continue;
        if (from <= byte && byte <= last)
            TRY(push(g, s->next, (int32_t)(uint32_t)g->items[i]));
        if (from <= byte)
            lo = last < byte ? (lo > last ? lo : last + 1) : (lo > from ? lo : from);
        if (last >= byte)
            hi = from > byte ? (hi < from ? hi : from - 1) : (hi < last ? hi : last);
    }
    to = close_over(g);
    for (int i = lo; i <= hi && to >= 0; i++)
        g->sets[set].to[i] = (int16_t)to;
    return to;
}

/* ---- masks; with the lock held ---- */

static void drop_masks(struct grammar *g)
{
    for (int i = 0; i < g->n_sets; i++) {
        mem_free(g->sets[i].mask);
        g->sets[i].mask = NULL;
    }
    g->mask_bytes = 0;
}

static int tail_like(struct grammar *g, int tail)
{
    int parent, like = tail == TAIL_END ? TAIL_END : g->tails[tail].like;

    if (like != NOT_YET)
        return like;
    parent = tail_like(g, g->tails[tail].parent);
    like = parent < 0 ? parent : tail_of(g, g->state_like[g->tails[tail].next], parent);
    g->tails[tail].like = like < 0 ? NOT_YET : like;
    return like;
}

static int set_like(struct grammar *g, int set)
{
    const int first = g->sets[set].first, n = g->sets[set].n;
    int like = g->sets[set].like;

    if (like != NOT_YET)
        return like;
    begin_step(g);
    for (int i = first; i < first + n; i++) {
        const int tail = tail_like(g, (int)(uint32_t)g->items[i]);

        if (tail < 0)
            return tail;
        TRY(push(g, g->state_like[g->items[i] >> 32], tail));
    }
    g->n_out = g->n_work;
    memcpy(g->out, g->work, (size_t)g->n_out * sizeof(g->out[0]));
    like = set_of(g);
    if (like >= 0)
        g->sets[set].like = like;
    return like;
}

/* Set the bits of the tokens with more than this many bytes that the set takes, and perhaps of
 * others that it takes; returns how many nodes it has passed. */
static int walk(struct grammar *g, int set, int longer_than, uint64_t *bits)
{
    const struct grammar_trie *t = &g->v->trie;
    int n_passed = 0;

    g->at[0] = set;
    for (int i = 0; i < t->n_nodes; n_passed++) {
        const struct grammar_node *n = &t->nodes[i];
        const int next =
            n->deepest > longer_than ? step(g, g->at[n->depth - 1], n->byte) : NO_SET;

        if (next < 0)
            return next;
        g->at[n->depth] = next;
        for (int k = n->first_token; next != NO_SET && k < n[1].first_token; k++)
            set_bit(bits, t->ids[k]);
        i = next == NO_SET ? n->skip : i + 1;
    }
    return n_passed;
}

/* The mask of a set that stands for itself. */
static int find_mask(struct grammar *g, int set, uint64_t *bits)
{
    const size_t bytes = n_words(g->v) * sizeof(*bits);
    int n_passed;

    if (g->sets[set].mask) {
        memcpy(bits, g->sets[set].mask, bytes);
        return OK;
    }
    memset(bits, 0, bytes);
    n_passed = walk(g, set, 0, bits);
    if (n_passed < 0)
        return n_passed;
    for (int i = 0; g->sets[set].ends && i < g->v->n_stops; i++)
        set_bit(bits, g->v->stops[i]);
    if (n_passed < KEEP_FROM || bytes > MASK_BYTES_MAX)
        return OK;
    if (g->mask_bytes + bytes > MASK_BYTES_MAX)
        drop_masks(g);
    g->sets[set].mask = mem_new(MEM_OTHER, n_words(g->v), sizeof(*bits));
    if (!g->sets[set].mask)
        return ERR_NOMEM;
    memcpy(g->sets[set].mask, bits, bytes);
    g->mask_bytes += bytes;
    return OK;
}

static int mask_of(struct grammar *g, int set, uint64_t *bits)
{
    const int like = set_like(g, set);

    if (like < 0)
        return like;
    TRY(find_mask(g, like, bits));
    if (like != set && g->v->trie.longest > SHORT_TOK) {
        const int n_passed = walk(g, set, SHORT_TOK, bits);

        return n_passed < 0 ? n_passed : OK;
    }
    return OK;
}

/* ---- matchers ---- */

/* The matcher has come to this set, or to an error. */
static void come_to(struct grammar_matcher *m, int set)
{
    m->set = set;
    if (set < 0)
        snprintf(m->why, sizeof(m->why), "%s", err_msg());
}

const uint64_t *grammar_allowed(void *matcher)
{
    struct grammar_matcher *m = matcher;
    struct grammar *g = m->g;
    int rc = m->set < 0 ? m->set : OK;

    pthread_mutex_lock(&g->lock);
    if (rc == OK && m->bits_of != m->set) {
        rc = mask_of(g, m->set, m->bits);
        m->bits_of = m->set;
        if (rc != OK)
            come_to(m, rc);
    }
    pthread_mutex_unlock(&g->lock);
    if (rc != OK)
        return NULL;
    for (int32_t id = 0; m->drops_space && id < g->v->n_vocab; id++)
        if (id < tok_vocab(g->v->tok) && tok_skips_space(g->v->tok, id))
            m->bits[id / 64] &= ~(UINT64_C(1) << id % 64);
    return m->bits;
}

static bool is_stop(const struct grammar_vocab *v, int32_t id)
{
    for (int i = 0; i < v->n_stops; i++)
        if (v->stops[i] == id)
            return true;
    return false;
}

void grammar_take(void *matcher, int32_t id)
{
    struct grammar_matcher *m = matcher;
    const bool stops = is_stop(m->g->v, id);
    const char *bytes = "";
    size_t n = 0;
    int set = m->set, rc = stops ? OK : tok_piece(m->g->v->tok, id, false, &bytes, &n);

    if (set < 0)
        return;
    pthread_mutex_lock(&m->g->lock);
    for (size_t i = 0; i < n && set > 0 && rc == OK; i++)
        set = step(m->g, set, (uint8_t)bytes[i]);
    pthread_mutex_unlock(&m->g->lock);
    if (m->drops_space)
        m->bits_of = NOT_YET;
    m->drops_space = false;
    come_to(m, rc != OK ? rc : stops ? NO_SET : set);
}

const char *grammar_why(const struct grammar_matcher *m)
{
    return m->set < 0 ? m->why : "";
}

/* ---- grammars ---- */

static void free_grammar(struct grammar *g)
{
    drop_masks(g);
    grammar_rules_fini(&g->rules);
    map_fini(&g->set_of);
    map_fini(&g->tail_of);
    mem_free(g->text);
    mem_free(g->sets);
    mem_free(g->tails);
    mem_free(g->items);
    mem_free(g->at);
    mem_free(g->state_like);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

static void unref(struct grammar *g)
{
    if (g && --g->n_refs == 0)
        free_grammar(g);
}

static int read_rules(struct grammar *g)
{
    char *rules = NULL;
    int rc;

    if (g->kind == GRAMMAR_GBNF)
        return grammar_rules_read(&g->rules, g->text, g->n_text);
    TRY(grammar_from_schema(&rules, g->text, g->n_text, "r0"));
    rc = grammar_rules_read(&g->rules, rules, strlen(rules));
    mem_free(rules);
    return rc == OK ? OK : err_prefix(rc, "schema");
}

/* A token of n bytes is in n copies at most, since each takes a byte. So it comes to no end from
 * the copy that n - 1 others may follow, which stands for all before it. The next one would not do:
 * where copies take one byte each, the token does not fit into it and those that follow. */
static void find_like(struct grammar *g)
{
    const int longest = g->v->trie.longest < SHORT_TOK ? g->v->trie.longest : SHORT_TOK,
              stands = longest > 1 ? longest - 1 : 0;

    for (int32_t i = 0; i < g->rules.n_states; i++)
        g->state_like[i] = i;
    for (int i = 0; i < g->rules.n_repeats; i++) {
        const struct grammar_repeat *r = &g->rules.repeats[i];

        for (int32_t k = (stands + 1) * r->stride; k < r->n * r->stride; k++)
            g->state_like[r->from + k] = r->from + stands * r->stride + k % r->stride;
    }
}

/* The first tail and sets. */
static int open_tables(struct grammar *g)
{
    g->at = mem_new(MEM_OTHER, (size_t)g->v->trie.longest + 1, sizeof(*g->at));
    g->state_like = mem_new(MEM_OTHER, (size_t)g->rules.n_states, sizeof(*g->state_like));
    if (!g->at || !g->state_like)
        return ERR_NOMEM;
    find_like(g);
    TRY(grammar_grow(&g->tails, &g->cap_tails, 0, sizeof(*g->tails)));
    TRY(grammar_grow(&g->sets, &g->cap_sets, 0, sizeof(*g->sets)));
    g->n_tails = TAIL_END + 1;
    g->n_sets = NO_SET + 1; /* which leads to itself */
    begin_step(g);
    TRY(push(g, g->rules.entry[0], TAIL_END));
    g->start = close_over(g);
    return g->start < 0 ? g->start : OK;
}

static int new_grammar(struct grammar **out, struct grammar_vocab *v,
                       enum grammar_kind kind, const char *text, size_t n)
{
    struct grammar *g = mem_new(MEM_OTHER, 1, sizeof(*g));
    int rc;

    if (!g)
        return ERR_NOMEM;
    g->v = v;
    g->kind = kind;
    g->n_refs = 1;
    g->n_text = n;
    g->text = mem_new(MEM_OTHER, n, 1);
    rc = g->text ? thread_mutex_init(&g->lock) : ERR_NOMEM;
    if (rc == OK)
        memcpy(g->text, text, n);
    if (rc == OK)
        rc = read_rules(g);
    if (rc == OK)
        rc = open_tables(g);
    if (rc == OK)
        *out = g, g = NULL;
    if (g)
        free_grammar(g);
    return rc;
}

/* With a reference more; NULL: none that is kept will do. *at: the one that may go. */
static struct grammar *find(struct grammar_vocab *v, enum grammar_kind kind,
                            const char *text, size_t n, int *at)
{
    *at = v->next_kept;
    for (int i = 0; i < KEPT_MAX && v->kept[i]; i++) {
        struct grammar *g = v->kept[i], *found = g;

        if (g->kind != kind || g->n_text != n || memcmp(g->text, text, n) != 0)
            continue;
        *at = i;
        pthread_mutex_lock(&g->lock);
        if (g->n_sets > SETS_MAX / 2 || g->n_tails > TAILS_MAX / 2 ||
            g->n_items > ITEMS_MAX / 2)
            found = NULL;
        pthread_mutex_unlock(&g->lock);
        g->n_refs += found != NULL;
        return found;
    }
    return NULL;
}

/* *out: with a reference. Another thread may make the same one at the same time. */
static int find_or_make(struct grammar **out, struct grammar_vocab *v,
                        enum grammar_kind kind, const char *text, size_t n)
{
    struct grammar *gone;
    int rc = OK, at;

    pthread_mutex_lock(&v->lock);
    if (!v->trie.ids)
        rc = grammar_trie_open(&v->trie, v->tok, v->n_vocab);
    *out = rc == OK ? find(v, kind, text, n, &at) : NULL;
    pthread_mutex_unlock(&v->lock);
    if (*out || rc != OK)
        return rc;
    TRY(new_grammar(out, v, kind, text, n));
    pthread_mutex_lock(&v->lock);
    if (at == v->next_kept)
        v->next_kept = (at + 1) % KEPT_MAX;
    gone = v->kept[at];
    v->kept[at] = *out;
    (*out)->n_refs++;
    pthread_mutex_unlock(&v->lock);
    unref(gone);
    return OK;
}

int grammar_matcher_open(struct grammar_matcher **out, struct grammar_vocab *v,
                         enum grammar_kind kind, const char *text, size_t n,
                         bool drops_space)
{
    struct grammar_matcher *m;
    int rc;

    *out = NULL;
    if (n > GRAMMAR_TEXT_MAX)
        return err_set(ERR_LIMIT, "grammar: %zu bytes: expected at most %zu", n,
                       GRAMMAR_TEXT_MAX);
    m = mem_new(MEM_OTHER, 1, sizeof(*m));
    if (!m)
        return ERR_NOMEM;
    m->bits = mem_new(MEM_OTHER, n_words(v), sizeof(*m->bits));
    rc = m->bits ? find_or_make(&m->g, v, kind, text, n) : ERR_NOMEM;
    if (rc == OK) {
        m->set = m->g->start;
        m->bits_of = NOT_YET;
        m->drops_space = drops_space;
        *out = m, m = NULL;
    }
    grammar_matcher_close(&m);
    return rc;
}

void grammar_matcher_close(struct grammar_matcher **pm)
{
    struct grammar_matcher *m = *pm;

    *pm = NULL;
    if (!m)
        return;
    unref(m->g);
    mem_free(m->bits);
    mem_free(m);
}

int grammar_vocab_open(struct grammar_vocab **out, const struct tok *tok, int n_vocab,
                       const int32_t *stops, int n_stops)
{
    struct grammar_vocab *v = mem_new(MEM_OTHER, 1, sizeof(*v));
    int rc;

    *out = NULL;
    if (!v)
        return ERR_NOMEM;
    v->tok = tok;
    v->n_vocab = n_vocab;
    v->stops = mem_new(MEM_OTHER, (size_t)n_stops, sizeof(*v->stops));
    rc = v->stops ? thread_mutex_init(&v->lock) : ERR_NOMEM;
    for (int i = 0; rc == OK && i < n_stops; i++)
        v->stops[v->n_stops++] = stops[i];
    *out = v;
    if (rc != OK)
        grammar_vocab_close(out);
    return rc;
}

void grammar_vocab_close(struct grammar_vocab **pv)
{
    struct grammar_vocab *v = *pv;

    *pv = NULL;
    if (!v)
        return;
    for (int i = 0; i < KEPT_MAX; i++)
        unref(v->kept[i]);
    grammar_trie_fini(&v->trie);
    mem_free(v->stops);
    pthread_mutex_destroy(&v->lock);
    mem_free(v);
}
