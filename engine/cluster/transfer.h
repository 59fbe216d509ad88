/* cluster/transfer.h - how long the keys and values of a prompt take to another machine.
 *
 * serial: they leave when the prompt is computed. Layer-wise: those of a layer leave when the
 * layer is computed; n_layers layers take c each to compute and x each to send, so that the
 * last one arrives at n_layers c + x + max(0, (n_layers - 1)(x - c)), plus alpha.
 * Alpha is a constant of the synchronisation; the paper's Fig. 14 is alpha (8 and 5 ms), since
 * 1,500 tokens of Llama2-70B, with its grouped-query attention, would take 0.25 ms more.
 * A link carries flows one after the other: what earlier flows have left to send comes first.
 * Paper: Splitwise IV-C.   Threads: pure functions; a link has one owner. */
#ifndef CLUSTER_TRANSFER_H
#define CLUSTER_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

struct cluster_transfer {
    int n_layers;
    double compute_ns; /* of one layer; serial: of the whole prompt / n_layers */
    double send_ns;    /* of one layer on the slower of both links */
    double alpha_ns;
    bool layer_wise;
};

/* When the transfer ends, counted from the start of the prompt's computation, on idle links. */
double cluster_transfer_finish_ns(const struct cluster_transfer *t);
/* The part of it for which the request waits after the prompt is computed. */
double cluster_transfer_visible_ns(const struct cluster_transfer *t);

struct cluster_link {
    double free_ns; /* the work accepted so far is sent by then */
};
/* The same at absolute times, when the prompt's computation starts at start_ns, with the work that
 * both links have. The links take the flow. NULL links: any number of flows at once. */
double cluster_transfer_send(const struct cluster_transfer *t, double start_ns,
                             struct cluster_link *out, struct cluster_link *in);

#endif
