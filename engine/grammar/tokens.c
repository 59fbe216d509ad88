/* The tokens of a vocabulary as a trie of their bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/rules.h"

struct piece {
    const char *bytes;
    size_t n;
    int32_t id;
};

static int by_bytes(const void *pa, const void *pb)
{
    const struct piece *a = pa, *b = pb;
    int order = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);

    if (order == 0)
        order = (a->n > b->n) - (a->n < b->n);
    return order != 0 ? order : a->id - b->id;
}

/* The nodes of the path that the piece before does not have. open: the node of each depth. */
static int add_piece(struct grammar_trie *t, const struct piece *p,
                     const struct piece *before, int32_t *open)
{
    size_t n = 0;

    while (n < p->n && n < before->n && p->bytes[n] == before->bytes[n])
        n++;
    for (size_t i = before->n; i > n; i--) {
        struct grammar_node *node = &t->nodes[open[i]], *parent = &t->nodes[open[i - 1]];

        node->skip = t->n_nodes;
        if (i > 1 && parent->deepest < node->deepest)
            parent->deepest = node->deepest;
    }
    for (; n < p->n; n++) {
        TRY(grammar_grow(&t->nodes, &t->cap_nodes, t->n_nodes, sizeof(*t->nodes)));
        t->nodes[t->n_nodes] = (struct grammar_node){.first_token = t->n_ids,
                                                     .depth = (uint16_t)(n + 1),
                                                     .deepest = (uint16_t)(n + 1),
                                                     .byte = (uint8_t)p->bytes[n]};
        open[n + 1] = t->n_nodes++;
    }
    if (n > 0)
        t->ids[t->n_ids++] = p->id;
    return OK;
}

int grammar_trie_open(struct grammar_trie *t, const struct tok *tok, int n_vocab)
{
    const int n_ids = tok_vocab(tok) < n_vocab ? tok_vocab(tok) : n_vocab;
    struct piece *pieces = mem_new(MEM_OTHER, (size_t)n_ids + 1, sizeof(*pieces));
    struct piece none = {.n = 0}, *before = &none;
    int32_t *open = NULL;
    int n = 0, rc = ERR_NOMEM;

    *t = (struct grammar_trie){.ids = mem_new(MEM_OTHER, (size_t)n_ids, sizeof(*t->ids))};
    if (!pieces || !t->ids)
        goto out;
    for (int i = 0; i < n_ids; i++) {
        struct piece *p = &pieces[n];

        p->id = i;
        if (tok_piece(tok, i, false, &p->bytes, &p->n) != OK || p->n == 0 ||
            p->n >= UINT16_MAX)
            continue;
        t->longest = (int)p->n > t->longest ? (int)p->n : t->longest;
        n++;
    }
    qsort(pieces, (size_t)n, sizeof(*pieces), by_bytes);
    pieces[n] = none; /* which ends the last */
    open = mem_new(MEM_OTHER, (size_t)t->longest + 1, sizeof(*open));
    rc = open ? OK : ERR_NOMEM;
    for (int i = 0; i <= n && rc == OK; before = &pieces[i++])
        rc = add_piece(t, &pieces[i], before, open);
    if (rc == OK)
        rc = grammar_grow(&t->nodes, &t->cap_nodes, t->n_nodes, sizeof(*t->nodes));
    if (rc == OK)
        t->nodes[t->n_nodes] = (struct grammar_node){.first_token = t->n_ids};
out:
    mem_free(open);
    mem_free(pieces);
    if (rc != OK)
        grammar_trie_fini(t);
    return rc;
}

void grammar_trie_fini(struct grammar_trie *t)
{
    mem_free(t->nodes);
    mem_free(t->ids);
    *t = (struct grammar_trie){0};
}
