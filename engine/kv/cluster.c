#include "kv/cluster.h"

#include <math.h>

int64_t kv_cluster_budget(const struct kv_device *d, int n)
{
    int64_t least = n > 0 ? d[0].arena_tok : 0;

    for (int i = 1; i < n; i++)
        least = d[i].arena_tok < least ? d[i].arena_tok : least;
    return least;
}

void kv_cluster_bounds(struct kv_bounds *out, const struct kv_bounds *learned,
                       const struct kv_device *d, int n)
{
    int64_t budget_tok = kv_cluster_budget(d, n);

    *out = *learned;
    while (out->n > 0 && out->tok[out->n - 1] > budget_tok)
        out->n--;
}

int kv_cluster_choose(const struct kv_device *d, int n, int64_t size_tok, double work)
{
    double best = INFINITY;
    int chosen = -1;

    for (int i = 0; i < n; i++) {
        double memory = (double)(d[i].reserved_tok + size_tok) / (double)d[i].arena_tok;
        double share = fmax((d[i].load + work) / d[i].capacity, memory);

        if (memory <= 1 && share < best) {
            best = share;
            chosen = i;
        }
    }
    return chosen;
}
