#include "kv/least.h"

#include <math.h>

#include "base/mem.h"

/* Bins without weight need no bound: only the others are numbered, from 1. */
struct kv_least {
    int64_t n_bins, n; /* n: bins with weight */
    int n_bounds;
    int64_t *bin;  /* [n_bins + 1] the bin of a number */
    double *below; /* [n_bins + 1] weight of the bins up to a number */
    double
        *cost[2]; /* [n_bins + 1] least memory of the lengths up to a number, with k - 1
                         and with k bounds, the last of which is there */
    int64_t *before; /* [n_bounds, n_bins + 1] the bound before the last one; 0: none */
};

void kv_least_close(struct kv_least **l)
{
    if (!*l)
        return;
    mem_free((*l)->bin);
    mem_free((*l)->below);
    mem_free((*l)->cost[0]);
    mem_free((*l)->cost[1]);
    mem_free((*l)->before);
    mem_free(*l);
    *l = NULL;
}

int kv_least_open(struct kv_least **out, int64_t n_bins, int n_bounds)
{
    struct kv_least *l = mem_new(MEM_KV, 1, sizeof(*l));
    size_t n = (size_t)n_bins + 1;

    *out = NULL;
    if (!l)
        return ERR_NOMEM;
    *l = (struct kv_least){.n_bins = n_bins, .n_bounds = n_bounds};
    l->bin = mem_new(MEM_KV, n, sizeof(*l->bin));
    l->below = mem_new(MEM_KV, n, sizeof(*l->below));
    l->cost[0] = mem_new(MEM_KV, n, sizeof(*l->cost[0]));
    l->cost[1] = mem_new(MEM_KV, n, sizeof(*l->cost[1]));
    l->before = mem_new(MEM_KV, n * (size_t)(n_bounds + 1), sizeof(*l->before));
    if (!l->bin || !l->below || !l->cost[0] || !l->cost[1] || !l->before) {
        kv_least_close(&l);
        return ERR_NOMEM;
    }
    *out = l;
    return OK;
}

/* The memory of the lengths after number i up to number j, in a bucket that ends at j. */
static double memory(const struct kv_least *l, int64_t i, int64_t j)
{
    return (l->below[j] - l->below[i]) * (double)(l->bin[j] + 1);
}

/* The least memory with one bound more, for the last bound at each number in [low, high]; the
 * one before is in [first, last]. */
static void add_bound(struct kv_least *l, int64_t *before, int64_t low, int64_t high,
                      int64_t first, int64_t last)
{
    int64_t mid = low + (high - low) / 2, best = first;

    if (low > high)
        return;
    l->cost[1][mid] = INFINITY;
    for (int64_t i = first; i <= last && i < mid; i++) {
        double cost = l->cost[0][i] + memory(l, i, mid);

        if (cost < l->cost[1][mid]) {
            l->cost[1][mid] = cost;
            best = i;
        }
    }
    before[mid] = best;
    add_bound(l, before, low, mid - 1, first, best);
    add_bound(l, before, mid + 1, high, best, last);
}

static void number_bins(struct kv_least *l, const int64_t *weight)
{
    l->n = 0;
    for (int64_t i = 0; i < l->n_bins; i++) {
        if (weight[i] == 0)
            continue;
        l->n++;
        l->bin[l->n] = i;
        l->below[l->n] = l->below[l->n - 1] + (double)weight[i];
    }
}

int kv_least_find(struct kv_least *l, int64_t *bins, const int64_t *weight)
{
    int64_t at;
    int n;

    number_bins(l, weight);
    n = l->n < l->n_bounds ? (int)l->n : l->n_bounds;
    for (int64_t j = 0; j <= l->n; j++)
        l->cost[0][j] = j ? INFINITY : 0;
    for (int k = 0; k < n; k++) {
        double *cost = l->cost[0];

        l->cost[1][0] = INFINITY; /* a bound at no length */
        add_bound(l, l->before + k * (l->n_bins + 1), 1, l->n, 0, l->n - 1);
        l->cost[0] = l->cost[1];
        l->cost[1] = cost;
    }
    at = l->n;
    for (int k = n - 1; k >= 0; k--) {
        bins[k] = l->bin[at];
        at = l->before[k * (l->n_bins + 1) + at];
    }
    return n;
}
