#include "topo/service_config.h"

#include <stdio.h>

#include "topo/mix.h"

/* ---- operators ---- */

/* The largest of R floor parts [r * S / R, (r + 1) * S / R) times R over S. */
static double floor_imbalance(int n_units, int n_ranks)
{
    int largest = (n_units + n_ranks - 1) / n_ranks;

    return (double)largest * n_ranks / n_units;
}

/* Whole KV heads while there are enough of them, then whole query heads (whose KV head
 * several ranks then read), then parts of a query head's sequence: of R > H ranks, rank r
 * works for head r * H / R, so a head has R / H of them, rounded down or up, and those of
 * the heads with fewer have most to do. */
static void split_attention(struct topo_config *c, const struct topo_limits *l)
{
    int heads = l->n_heads ? l->n_heads : l->n_kv_heads;
    int kv_heads = l->n_kv_heads ? l->n_kv_heads : heads;
    int ranks = c->n_ranks;

    c->n_sequence_splits = 1;
    c->attention_imbalance = 1;
    if (!heads)
        return;
    if (ranks <= kv_heads) {
        c->attention_imbalance = floor_imbalance(kv_heads, ranks);
    } else if (ranks <= heads) {
        c->attention_imbalance = floor_imbalance(heads, ranks);
    } else {
        c->n_sequence_splits = (ranks + heads - 1) / heads;
        c->attention_imbalance = (double)ranks / ((double)heads * (ranks / heads));
    }
}

MUST static int check_limits(int ranks, const struct topo_limits *l)
{
    if (l->max_ranks && ranks > l->max_ranks)
        return err_set(ERR_UNSUPPORTED, "%d ranks: at most %d can run", ranks,
                       l->max_ranks);
    if (l->strict && l->n_heads && l->n_heads % ranks != 0)
        return err_set(ERR_UNSUPPORTED, "%d ranks: they do not divide %d heads", ranks,
                       l->n_heads);
    if (l->strict && l->n_kv_heads && l->n_kv_heads % ranks != 0)
        return err_set(ERR_UNSUPPORTED, "%d ranks: they do not divide %d KV heads", ranks,
                       l->n_kv_heads);
    if (l->n_ffn_units && ranks > l->n_ffn_units)
        return err_set(ERR_UNSUPPORTED,
                       "%d ranks: the feed-forward layer has only %d units", ranks,
                       l->n_ffn_units);
    return l->check ? l->check(l->model, ranks) : OK;
}

int topo_config_cut(struct topo_config *out, const struct topo_tree *t, int level,
                    const struct topo_limits *limits)
{
    static const struct topo_limits none;
    const struct topo_limits *l = limits ? limits : &none;
    struct topo_config c = {.tree = t, .level = level};
    int rc;

    *out = (struct topo_config){0};
    if (level < 0 || level >= t->n_levels)
        return err_set(ERR_ARG, "a cross-section at level %d: expected 0 to %d", level,
                       t->n_levels - 1);
    c.n_ranks = topo_tree_n_nodes(t, level);
    c.n_threads = topo_tree_span(t, level);
    rc = check_limits(c.n_ranks, l);
    if (rc != OK)
        return rc;
    split_attention(&c, l);
    c.ffn_imbalance = l->n_ffn_units ? floor_imbalance(l->n_ffn_units, c.n_ranks) : 1;
    *out = c;
    return OK;
}

/* ---- what a configuration does ---- */

/* Sets have no order, so the members' hashes are added: of the CPUs of a rank, and again
 * of the ranks. A rank's number says only which of the equal parts it takes. */
uint64_t topo_config_key(const struct topo_config *c)
{
    const int *pu = c->tree->pus;
    uint64_t ranks = 0;

    for (int r = 0; r < c->n_ranks; r++) {
        uint64_t cpus = 0;

        for (int i = 0; i < c->n_threads; i++, pu++)
            cpus += topo_mix(TOPO_MIX_STEP *
                             (uint64_t)(c->tree->machine->pus[*pu].os_index + 1));
        ranks += topo_mix(cpus + TOPO_MIX_STEP);
    }
    return topo_mix(ranks + TOPO_MIX_STEP * (uint64_t)c->n_ranks);
}

int topo_config_nodes(const struct topo_config *c, int rank, int *nodes, int max)
{
    const struct topo_machine *m = c->tree->machine;
    const int *pu = c->tree->pus + (size_t)rank * (size_t)c->n_threads;
    int n = 0, last = -1;

    for (;;) { /* the next larger node each time: a short list, no memory */
        int next = m->n_nodes;

        for (int i = 0; i < c->n_threads; i++) {
            int node = m->pus[pu[i]].node;

            if (node > last && node < next)
                next = node;
        }
        if (next == m->n_nodes)
            return n;
        if (n < max)
            nodes[n] = next;
        n++;
        last = next;
    }
}

/* `fewest` to `most` nodes of a rank, `sharing` ranks on the first rank's. */
static void print_nodes(char *out, size_t n, int n_ranks, int fewest, int most,
                        int sharing)
{
    const char *each = n_ranks > 1 ? " each" : "";

    if (fewest != most)
        snprintf(out, n, "%d to %d memory nodes each", fewest, most);
    else if (most != 1)
        snprintf(out, n, "%d memory nodes%s", most, each);
    else if (sharing > 1)
        snprintf(out, n, "%d on each memory node", sharing);
    else
        snprintf(out, n, "one memory node%s", each);
}

void topo_config_print(const struct topo_config *c, char *out, size_t n)
{
    int fewest = c->tree->machine->n_nodes, most = 0, first = -1, sharing = 0;
    char memory[48];

    for (int r = 0; r < c->n_ranks; r++) {
        int node = -1, k = topo_config_nodes(c, r, &node, 1);

        fewest = k < fewest ? k : fewest;
        most = k > most ? k : most;
        if (r == 0)
            first = node;
        sharing += node == first;
    }
    print_nodes(memory, sizeof(memory), c->n_ranks, fewest, most, sharing);
    snprintf(out, n, "%d rank%s x %d thread%s, %s", c->n_ranks,
             c->n_ranks == 1 ? "" : "s", c->n_threads, c->n_threads == 1 ? "" : "s",
             memory);
}
