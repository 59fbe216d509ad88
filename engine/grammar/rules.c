#include "grammar/rules.h"

#include <string.h>

#include "base/mem.h"

int grammar_grow(void *array, int *capacity, int n, size_t size)
{
    int more = *capacity ? *capacity * 2 : 64;
    void *p; /* the pointer at `array` may be of any type */

    if (n < *capacity)
        return OK;
    memcpy(&p, array, sizeof(p));
    p = mem_resize(MEM_OTHER, p, (size_t)more, size);
    if (!p)
        return ERR_NOMEM;
    memcpy(array, &p, sizeof(p));
    *capacity = more;
    return OK;
}

int32_t grammar_state_add(struct grammar_rules *r, enum grammar_state_kind kind,
                          int32_t next, int32_t arg)
{
    if (r->rc == OK && r->n_states == GRAMMAR_STATES_MAX)
        r->rc = err_set(ERR_LIMIT,
                        "grammar: expected at most %d states: fewer or shorter "
                        "repetitions",
                        GRAMMAR_STATES_MAX);
    if (r->rc == OK)
        r->rc = grammar_grow(&r->states, &r->cap_states, r->n_states, sizeof(*r->states));
    if (r->rc != OK)
        return 0;
    r->states[r->n_states] = (struct grammar_state){kind, next, arg};
    return r->n_states++;
}

void grammar_rules_fini(struct grammar_rules *r)
{
    mem_free(r->states);
    mem_free(r->entry);
    mem_free(r->repeats);
    *r = (struct grammar_rules){0};
}

void grammar_part_or(struct grammar_rules *r, struct grammar_part *p, int32_t in)
{
    p->in = p->in < 0 ? in : grammar_state_add(r, GRAMMAR_SPLIT, p->in, in);
}

/* Code points whose sequences have n bytes, of which all but the last byte are alike or each byte
 * takes all of a range. */
static void add_sequence(struct grammar_rules *r, struct grammar_part *p, int32_t lo,
                         int32_t hi, int n)
{
    static const int lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int32_t next = p->out;

    for (int i = 0; i < n - 1; i++)
        next = grammar_state_add(r, GRAMMAR_BYTES, next,
                                 0x8080 | (lo >> 6 * i & 63) | (hi >> 6 * i & 63) << 8);
    grammar_part_or(r, p,
                    grammar_state_add(r, GRAMMAR_BYTES, next,
                                      lead[n] | lo >> 6 * (n - 1) |
                                          (lead[n] | hi >> 6 * (n - 1)) << 8));
}

void grammar_part_chars(struct grammar_rules *r, struct grammar_part *p, int32_t lo,
                        int32_t hi)
{
    static const int32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, 0x10ffff};
    int32_t end = hi;
    int n = 1 + (lo > 0x7f) + (lo > 0x7ff) + (lo > 0xffff);

    if (lo > hi)
        return;
    for (int i = 5; i >= 0; i--)
        end = lo <= ends[i] && ends[i] < end ? ends[i] : end;
    for (int i = n - 1; i > 0;
         i--) { /* up to where a byte would change, or whole bytes */
        const int32_t m = (1 << 6 * i) - 1;

        if ((lo & ~m) != (end & ~m) && (lo & m))
            end = lo | m;
        else if ((lo & ~m) != (end & ~m) && (end & m) != m)
            end = (end & ~m) - 1;
    }
    if (lo < 0xd800 || lo > 0xdfff) /* surrogates are not characters */
        add_sequence(r, p, lo, end, n);
    grammar_part_chars(r, p, end + 1, hi);
}

/* n states from `from` on once more; returns how far the copies are from them. */
static int32_t copy(struct grammar_rules *r, int32_t from, int32_t n)
{
    const int32_t shift = r->n_states - from;

    for (int32_t i = from; i < from + n && r->rc == OK; i++) {
        struct grammar_state s = r->states[i];

        s.next += s.next >= from ? shift : 0;
        s.arg += s.kind == GRAMMAR_SPLIT && s.arg >= from ? shift : 0;
        (void)grammar_state_add(r, s.kind, s.next, s.arg);
    }
    return r->rc == OK ? shift : 0;
}

void grammar_part_repeat(struct grammar_rules *r, struct grammar_part *p, int32_t from,
                         int least, int most)
{
    const int32_t n = r->n_states - from;
    const int copies = most >= 0 ? most : least > 0 ? least : 1;
    const struct grammar_part one = *p;
    int32_t end = grammar_state_add(r, GRAMMAR_SPLIT, -1, -1), next = end;

    if (most > least && most > 1 && r->rc == OK)
        r->rc =
            grammar_grow(&r->repeats, &r->cap_repeats, r->n_repeats, sizeof(*r->repeats));
    if (most > least && most > 1 && r->rc == OK)
        r->repeats[r->n_repeats++] =
            (struct grammar_repeat){end + 1, n + 1, most - (least > 1 ? least : 1)};
    for (int i = copies - 1; i >= 0 && r->rc == OK;
         i--) { /* from the last to the first */
        const int32_t shift = i > 0 ? copy(r, from, n) : 0, in = one.in + shift;
        const bool loops = most < 0 && i == copies - 1;
        int32_t split = in;

        if (loops || i >= least)
            split = grammar_state_add(r, GRAMMAR_SPLIT, in, end);
        r->states[one.out + shift].next = loops ? split : next;
        next = i >= least ? split : in;
    }
    *p = (struct grammar_part){next, end};
}

/* ---- checks ---- */

enum property { NULLABLE, ENDS, SAFE, N_PROPERTIES };
struct check {
    const struct grammar_rules *r;
    int32_t *todo;          /* [n_states] */
    int32_t *seen;          /* [n_states] the last walk that came by */
    bool *is[N_PROPERTIES]; /* [n_rules] what is known of them so far */
    int32_t walk, unsafe;   /* unsafe: the rule for which one is not SAFE */
};

static void visit(struct check *c, int *n, int32_t state)
{
    if (state < 0 || c->seen[state] == c->walk)
        return;
    c->seen[state] = c->walk;
    c->todo[(*n)++] = state;
}

/* NULLABLE: a way without bytes leads to the rule's end. ENDS: any way does. SAFE: all rules that
 * it may call before it has read a byte are. Given of which rules this is known. */
static bool holds(struct check *c, int rule, enum property of)
{
    const bool *through = c->is[of == ENDS ? ENDS : NULLABLE];
    int n = 0;

    c->walk++;
    visit(c, &n, c->r->entry[rule]);
    while (n > 0) {
        const struct grammar_state *s = &c->r->states[c->todo[--n]];

        if (s->kind == GRAMMAR_END && of != SAFE)
            return true;
        if (s->kind == GRAMMAR_CALL && of == SAFE && !c->is[SAFE][s->arg]) {
            c->unsafe = s->arg;
            return false;
        }
        if (s->kind == GRAMMAR_SPLIT)
            visit(c, &n, s->arg);
        if (s->kind == GRAMMAR_SPLIT || (s->kind == GRAMMAR_BYTES && of == ENDS) ||
            (s->kind == GRAMMAR_CALL && through[s->arg]))
            visit(c, &n, s->next);
    }
    return of == SAFE;
}

/* The first rule that does not have the property; -1: all have. */
static int find_without(struct check *c, enum property of)
{
    int other;
    bool more;

    do {
        more = false;
        other = -1;
        for (int i = c->r->n_rules - 1; i >= 0; i--) {
            if (c->is[of][i])
                continue;
            c->is[of][i] = holds(c, i, of);
            more |= c->is[of][i];
            other = c->is[of][i] ? other : i;
        }
    } while (more);
    return other;
}

/* A state that only goes on to another is left out of the way. */
static int32_t skip_over(struct grammar_rules *r, int32_t at)
{
    while (at > 0 && r->states[at].kind == GRAMMAR_SPLIT && r->states[at].arg < 0 &&
           r->states[at].next >= 0) {
        struct grammar_state *s = &r->states[at], *next = &r->states[s->next];

        if (next->kind == GRAMMAR_SPLIT && next->arg < 0)
            s->next = next->next; /* so that long chains are followed once */
        at = s->next;
    }
    return at;
}

int grammar_rules_check(struct grammar_rules *r, int *rule, const char **why)
{
    const size_t n = (size_t)r->n_states, n_rules = (size_t)r->n_rules;
    bool *is = mem_new(MEM_OTHER, n_rules * N_PROPERTIES, sizeof(*is));
    struct check c = {.r = r,
                      .todo = mem_new(MEM_OTHER, n, sizeof(*c.todo)),
                      .seen = mem_new(MEM_OTHER, n, sizeof(*c.seen)),
                      .is = {is, is + n_rules, is + 2 * n_rules}};
    int rc = is && c.todo && c.seen ? OK : ERR_NOMEM;

    for (int i = 0; i < r->n_states; i++) {
        r->states[i].next = skip_over(r, r->states[i].next);
        if (r->states[i].kind == GRAMMAR_SPLIT)
            r->states[i].arg = skip_over(r, r->states[i].arg);
    }
    for (int i = 0; i < r->n_rules; i++)
        r->entry[i] = skip_over(r, r->entry[i]);
    if (rc == OK) {
        (void)find_without(&c, NULLABLE);
        *why = "has no end: a text of it is never complete";
        *rule = find_without(&c, ENDS);
        if (*rule < 0) {
            *why = "is left-recursive: it calls itself before it has read a byte";
            *rule = find_without(&c, SAFE);
            for (int i = 0; *rule >= 0 && i < r->n_rules; i++) { /* into the circle */
                (void)holds(&c, *rule, SAFE);
                *rule = c.unsafe;
            }
        }
        rc = *rule < 0 ? OK : ERR_ARG;
    }
    mem_free(is);
    mem_free(c.todo);
    mem_free(c.seen);
    return rc;
}
