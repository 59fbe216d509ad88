/* kernels/schedule.h - how a GEMM is computed: micro-kernel, slice, polymerization.
 *
 *     micro-kernel          mr rows x np panels whose sums stay in registers
 *     computation slice     bm rows x bn panels x bk rows of K, which the caches hold
 *     polymerization        the threads divided along M, N and K (pm x pn x pk);
 *                           pk > 1 splits K and ends in a reduction
 *     order                 the order of the slices
 * Every schedule that kern_schedule_check() accepts computes the same product. Schedules
 * differ in time, and those with another pk or bk also in the order of sums.
 * Paper: Sandwich 6. */
#ifndef KERNELS_SCHEDULE_H
#define KERNELS_SCHEDULE_H

#include "kernels/pack.h"

/* Loops over slices, outermost first. NMK keeps the slice of C in the caches, MNK the rows
 * of A. KNM reads a matrix that is split along K in the order of memory. */
enum kern_order { KERN_ORDER_NMK, KERN_ORDER_MNK, KERN_ORDER_KNM, KERN_N_ORDERS };
const char *kern_order_name(enum kern_order o); /* "nmk" */
MUST int kern_order_parse(const char *word, enum kern_order *out);

struct kern_schedule {
    int mr, np;     /* micro-kernel, 1 <= mr <= kern_gemm_rows(v, np) */
    int64_t bm;     /* rows, >= 1; the driver rounds up to a multiple of mr */
    int64_t bn;     /* panels, >= 1; the driver rounds up to a multiple of np */
    int64_t bk;     /* rows of K, >= 2; the driver rounds to even, or to whole units */
    int pm, pn, pk; /* threads along M, N and K; pm * pn * pk is the number of threads */
    enum kern_order order;
};
#define KERN_ALL ((int64_t)1 << 40) /* as bm, bn or bk: the whole side */

/* Can `v` compute m rows of `w` under `s` with n_threads threads? ERR_ARG names the
 * wrong member and its limit. */
MUST int kern_schedule_check(const struct kern_schedule *s, const struct kern_variant *v,
                             const struct kern_mat *w, int64_t m, int n_threads);
/* The schedule without tuning, chosen by a cost model from the shape and the caches. */
void kern_schedule_default(struct kern_schedule *s, const struct kern_variant *v,
                           const struct kern_mat *w, int64_t m, int n_threads);
/* Does multiplying m rows with `w` take longer than reading `w` from memory, by the cost model? */
bool kern_schedule_computes(const struct kern_variant *v, const struct kern_mat *w,
                            int64_t m, int n_threads);
/* "14x2 112x8x512 1x2x1 nmk": mr x np, bm x bn x bk ("all"), pm x pn x pk, order. */
void kern_schedule_print(const struct kern_schedule *s, char *out, size_t n);

#endif
