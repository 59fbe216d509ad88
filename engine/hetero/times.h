/* hetero/times.h - how long the slices of a layer take on a CPU, an accelerator and the link, and
 * which slices are the best.
 *
 * The weights W [m, h] of a product of n_tok tokens are cut along h into CC (on the CPU, computed
 * there), CG (on the CPU, sent and computed on the accelerator) and GG (on the accelerator). A
 * layer is a row of n_gemms such products. The launch of kernels, the link, the accelerator and
 * the CPU work at once, each one product after the other; a product on the accelerator waits for
 * its weights, and these for the launch. In a prompt the accelerator may also take over
 * n_accel_tok of the tokens that CC computes, for which CC is sent, too (CG').
 *
 * The paper lets CPU and link work at once as fast as each alone. Both read the host's memory, so
 * while both do, each may be slower by a factor of its own, 1 + contention, which
 * hetero_contention_fit() finds from runs alone and together.
 * Paper: ScheInfer IV-A, Eqs. 3 to 13, and IV-B, Eq. 15.   Threads: pure functions. */
#ifndef HETERO_TIMES_H
#define HETERO_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Each time is a start and a rate (Eq. 3). A rate of products is in seconds per weight and
 * token. */
struct hetero_machine {
    double launch_s; /* of one kernel or copy */
    double link_start_s, link_s_per_byte;
    double accel_start_s, accel_s_per_mac;
    double cpu_start_s, cpu_s_per_mac;
    /* Weights times tokens a second, at most. 0: the rates above hold for any number of tokens, as
     * the paper has it. Otherwise they are those of one token, which is bound by reading the
     * weights, and more tokens cost nothing until this bound. */
    double accel_macs_per_s, cpu_macs_per_s;
    /* While the link copies, the CPU takes 1 + cpu_contention times as long; while the CPU
     * computes, the link 1 + link_contention. 0: none, as the paper has it. */
    double cpu_contention, link_contention;
};

struct hetero_gemm {
    int64_t n_tok, m, h;
    double bytes_per_weight;
};

/* Shares of h; cc = 1 - cg - gg. */
struct hetero_slices {
    double cg, gg;
    int64_t n_accel_tok; /* in [0, n_tok] */
};

/* The product of n_tok tokens with that many weights, on the accelerator or the CPU. */
double hetero_product_s(const struct hetero_machine *m, bool on_accel, double weights,
                        double n_tok);

/* The parts of the time of one product. */
struct hetero_times {
    double launch_s, link_s, accel_s, cpu_s;
    double cpu_contention, link_contention; /* of the machine */
};
/* as_printed: with the slips of Eqs. 4 and 15: the link starts even where nothing is sent, and
 * what is on the accelerator is sent as well. */
struct hetero_times hetero_times_of(const struct hetero_machine *machine,
                                    const struct hetero_gemm *g,
                                    const struct hetero_slices *s, bool as_printed);

/* When the accelerator has computed the last of n_gemms products, and the CPU, each alone. */
double hetero_accel_finish_s(const struct hetero_times *t, int n_gemms);
double hetero_cpu_finish_s(const struct hetero_times *t, int n_gemms);
/* Both at once. While the CPU computes the link is slower, and the CPU for as long as the link then
 * copies, which it does for the same share of the accelerator's time from beginning to end. */
struct hetero_finish {
    double accel_s, cpu_s;
};
struct hetero_finish hetero_finish_of(const struct hetero_times *t, int n_gemms);
/* The later of both: the layer's time. */
double hetero_finish_s(const struct hetero_times *t, int n_gemms);

/* Contention from times of the same work alone and together. The one that ends first worked all the
 * time next to the other; the other one for that long only, and alone for the rest. Neither is
 * below 0, which only noise can say. */
struct hetero_pair {
    double cpu_alone_s, link_alone_s, cpu_s, link_s;
};
void hetero_contention_fit(const struct hetero_pair *pairs, int n, double *cpu_contention,
                           double *link_contention);

/* ---- the best slices of a layer ----
 *
 * h is cut at multiples of h / n_units, since a slice holds whole panels and quantisation blocks.
 * As more is sent, the accelerator never finishes earlier and the CPU never later, apart from
 * jumps where a slice becomes empty. So the best share is one of both ends or next to where
 * both finish together, which bisection finds. That is the paper's search among edge points
 * (Eq. 13), without its three cases and exact for shares that can be had. Where CPU and link slow
 * each other, sending more can end earlier or later, so that all numbers are tried. */

struct hetero_layer {
    struct hetero_machine machine;
    struct hetero_gemm gemm;
    int n_gemms;
    int n_units;     /* at least 1 */
    bool as_printed; /* hetero_times_of() */
};

double hetero_layer_s(const struct hetero_layer *l, int cg_units, int gg_units,
                      int64_t n_accel_tok);
/* The best number of units of CG, with gg_units of GG and no token taken over, in *cg_units: the
 * least of equally good ones. Returns the layer's time. */
double hetero_best_cg(const struct hetero_layer *l, int gg_units, int *cg_units);
/* The best number of tokens that the accelerator takes over from CC, with given slices. */
double hetero_best_tokens(const struct hetero_layer *l, int cg_units, int gg_units,
                          int64_t *n_accel_tok);

enum hetero_type { HETERO_FP16, HETERO_INT4 };
/* Table I. testbed: 'A', 'B' or 'C'. Its link is faster than the bus that the text names;
 * bus_limit: take the bus's 31.5 GB/s (A, B) or 15.75 GB/s (C). ERR_NOTFOUND. */
MUST int hetero_machine_printed(struct hetero_machine *out, char testbed,
                                enum hetero_type type, bool bus_limit);

#endif
