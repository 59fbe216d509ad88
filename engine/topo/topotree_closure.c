#include "topo/topotree.h"

#include "base/mem.h"

typedef int (*visit_fn)(void *arg, const struct topo_tree *t);

/* Every chain of groups over the children of the nodes at level `parents` and of those
 * above them. Each group takes the nodes that the group before it made, so a chain is
 * written in one way only: from the bottom up. */
MUST static int chains(const struct topo_tree *t, int parents, visit_fn fn, void *arg)
{
    int rc, arity;

    if (parents < 0)
        return fn(arg, t);
    rc = chains(t, parents - 1, fn, arg);
    arity = t->levels[parents].arity;
    for (int n = 2; n < arity && rc == OK; n++) {
        if (arity % n != 0)
            continue;
        for (int stride = 1; stride <= arity / n && rc == OK; stride++) {
            struct topo_tree *g;

            if (arity / n % stride != 0)
                continue;
            rc = topo_tree_group(&g, t, n, stride, parents + 1);
            if (rc == OK)
                rc = chains(g, parents, fn, arg);
            mem_free(g);
        }
    }
    return rc;
}

int topo_tree_closure(const struct topo_tree *t, visit_fn fn, void *arg)
{
    return chains(t, t->n_levels - 2, fn, arg);
}

/* No number up to the largest machine (65536) has more divisors than 128. */
#define DIVISORS_MAX 128

/* S(c) = 1 + sum over n | c, 2 <= n < c of d(c / n) * S(c / n), d the number of divisors:
 * the strides; a double, for it may not fit 64 bits. */
static double n_chains(int c)
{
    int divisor[DIVISORS_MAX], n_divisors = 0;
    double s[DIVISORS_MAX], d[DIVISORS_MAX];

    for (int i = 1; i <= c && n_divisors < DIVISORS_MAX; i++)
        if (c % i == 0)
            divisor[n_divisors++] = i;
    for (int i = 0; i < n_divisors; i++) {
        s[i] = 1;
        d[i] = 0;
        for (int k = 0; k <= i; k++)
            d[i] += divisor[i] % divisor[k] == 0;
        for (int k = 1; k < i; k++) /* the group leaves divisor[k] children, not 1 */
            if (divisor[i] % divisor[k] == 0)
                s[i] += d[k] * s[k];
    }
    return s[n_divisors - 1];
}

int64_t topo_tree_closure_count(const struct topo_tree *t)
{
    double n = 1;

    for (int l = 0; l < t->n_levels - 1; l++)
        n *= n_chains(t->levels[l].arity);
    return n < (double)INT64_MAX ? (int64_t)n : INT64_MAX;
}
