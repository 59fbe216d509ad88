#include "cluster/transfer.h"

#include <math.h>
#include <stddef.h>

double cluster_transfer_finish_ns(const struct cluster_transfer *t)
{
    double n = t->n_layers, c = t->compute_ns, x = t->send_ns;

    if (!t->layer_wise)
        return n * c + n * x + t->alpha_ns;
    return n * c + x + fmax(0, (n - 1) * (x - c)) + t->alpha_ns;
}

double cluster_transfer_visible_ns(const struct cluster_transfer *t)
{
    return cluster_transfer_finish_ns(t) - t->n_layers * t->compute_ns;
}

double cluster_transfer_send(const struct cluster_transfer *t, double start_ns,
                             struct cluster_link *out, struct cluster_link *in)
{
    double finish = start_ns + cluster_transfer_finish_ns(t);
    double work = t->n_layers * t->send_ns;
    double first = start_ns + t->compute_ns * (t->layer_wise ? 1 : t->n_layers);
    struct cluster_link *const links[] = {out, in};

    for (int i = 0; i < 2; i++) {
        if (!links[i])
            continue;
        links[i]->free_ns = fmax(links[i]->free_ns, first) + work;
        finish = fmax(finish, links[i]->free_ns + t->alpha_ns);
    }
    return finish;
}
