#include "kernels/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"

static const char *const order_names[KERN_N_ORDERS] = {"nmk", "mnk", "knm"};

const char *kern_order_name(enum kern_order o)
{
    return order_names[o];
}

int kern_order_parse(const char *word, enum kern_order *out)
{
    for (int i = 0; i < KERN_N_ORDERS; i++) {
        if (strcmp(word, order_names[i]) == 0) {
            *out = (enum kern_order)i;
            return OK;
        }
    }
    return err_set(ERR_ARG, "order \"%s\": expected nmk, mnk or knm", word);
}

int kern_schedule_check(const struct kern_schedule *s, const struct kern_variant *v,
                        const struct kern_mat *w, int64_t m, int n_threads)
{
    int64_t k_parts = w->n_units > 1 ? w->n_units : w->k_pad / 2;

    if (s->np < 1 || s->np > KERN_NP_MAX || !kern_gemm_rows(v, s->np))
        return err_set(ERR_ARG, "%s: no micro-kernel of %d panels", v->name, s->np);
    if (s->mr < 1 || s->mr > kern_gemm_rows(v, s->np))
        return err_set(ERR_ARG, "%s: %d rows by %d panels, at most %d rows fit", v->name,
                       s->mr, s->np, kern_gemm_rows(v, s->np));
    if (s->bm < 1 || s->bn < 1 || s->bk < 2)
        return err_set(ERR_ARG, "a slice of %lld x %lld x %lld, at least 1 x 1 x 2",
                       (long long)s->bm, (long long)s->bn, (long long)s->bk);
    if (s->order < 0 || s->order >= KERN_N_ORDERS)
        return err_set(ERR_ARG, "order %d, below %d", (int)s->order, KERN_N_ORDERS);
    if (s->pm < 1 || s->pn < 1 || s->pk < 1 || s->pm * s->pn * s->pk != n_threads)
        return err_set(ERR_ARG, "%d x %d x %d threads, expected a product of %d", s->pm,
                       s->pn, s->pk, n_threads);
    if (s->pm > 1 && s->pm > kern_a_blocks(m, s->mr))
        return err_set(ERR_ARG, "%d threads along M, which has %lld blocks of rows",
                       s->pm, (long long)kern_a_blocks(m, s->mr));
    if (s->pk > 1 && s->pk > k_parts)
        return err_set(ERR_ARG, "%d threads along K, which has %lld parts", s->pk,
                       (long long)k_parts);
    return OK;
}

static void print_size(char *out, size_t n, int64_t x)
{
    if (x >= KERN_ALL)
        snprintf(out, n, "all");
    else
        snprintf(out, n, "%lld", (long long)x);
}

void kern_schedule_print(const struct kern_schedule *s, char *out, size_t n)
{
    char bm[24], bn[24], bk[24];

    print_size(bm, sizeof(bm), s->bm);
    print_size(bn, sizeof(bn), s->bn);
    print_size(bk, sizeof(bk), s->bk);
    snprintf(out, n, "%dx%d %sx%sx%s %dx%dx%d %s", s->mr, s->np, bm, bn, bk, s->pm, s->pn,
             s->pk, order_names[s->order]);
}

/* ---- the default: a cost model ----
 *
 * Of every micro-kernel it estimates the cycles that one row of K of one panel takes with
 * all m rows, and takes the cheapest. The first block of rows brings the panels in from
 * memory while it computes, so it takes the longer of the two; the others find them in
 * the second-level cache. So few rows want one block, however narrow, and many rows want
 * the block that multiplies most for each load. Measured on Zen 5 it is within a few per
 * cent of the best slice for every m; the tuner finds the rest. */

#define MEMORY_BYTES_PER_CYCLE 10.0 /* one core's, alone */
#define SHARED_BYTES_PER_CYCLE 6.25 /* and while others read, too */
#define L2_BYTES_PER_CYCLE     32.0
#define FMA_LATENCY            4.0
#define FMA_PER_CYCLE          2.0
#define LOADS_PER_CYCLE        2.0
#define SLICE_N_PANELS         8
/* Every further block starts its sums again and brings its own rows of A. */
#define BLOCK_OVERHEAD 1.05

/* So few rows are bound by reading B, so B is read strictly in the order of memory, panel
 * by panel, whatever that costs in loads of A and C: a split matrix then streams at 40
 * GB/s from one Zen 5 core, against 28 when tiles jump from unit to unit. A split matrix
 * is read so whenever reading takes longer than multiplying; with two threads that is 1.2
 * to 1.4 times as fast. */
#define STREAM_ROWS 4

static double max2(double a, double b)
{
    return a > b ? a : b;
}

static int64_t round_down(int64_t x, int64_t step)
{
    return x < step ? step : x / step * step;
}

/* Cycles for one row of K of np panels with a block of h rows, operands at hand. */
static double block_cycles(const struct kern_variant *v, double h, int np)
{
    double vecs = ceil((double)np * KERN_PANEL / v->vec_cols), sums = h * vecs;
    double cycles = max2(sums / FMA_PER_CYCLE, (h + vecs) / LOADS_PER_CYCLE);

    if (sums < FMA_LATENCY * FMA_PER_CYCLE)
        cycles = max2(cycles, FMA_LATENCY);
    return cycles / (v->a_format == KERN_A_BF16_PAIR ? 2 : 1);
}

static double panel_row_bytes(const struct kern_mat *w)
{
    return (double)KERN_PANEL * (double)kern_type_bytes(w->type);
}

/* Cycles for a core to read one row of K of np panels. */
static double read_cycles(const struct kern_mat *w, int np, int n_threads)
{
    return np * panel_row_bytes(w) /
           (n_threads > 1 ? SHARED_BYTES_PER_CYCLE : MEMORY_BYTES_PER_CYCLE);
}

static double cost(const struct kern_variant *v, const struct kern_mat *w, int64_t m,
                   int n_threads, int mr, int np)
{
    double from_l2 = np * panel_row_bytes(w) / L2_BYTES_PER_CYCLE;
    double n_blocks = (double)kern_a_blocks(m, mr);
    double cycles = block_cycles(v, (double)m / n_blocks, np);

    return (max2(cycles, read_cycles(w, np, n_threads)) +
            (n_blocks - 1) * BLOCK_OVERHEAD * max2(cycles, from_l2)) /
           np;
}

static void choose_micro_kernel(struct kern_schedule *s, const struct kern_variant *v,
                                const struct kern_mat *w, int64_t m, int n_threads)
{
    double best = INFINITY;

    for (int np = 1; np <= KERN_NP_MAX; np++) {
        int mr = kern_gemm_rows(v, np);
        double c = mr ? cost(v, w, m, n_threads, mr, np) : INFINITY;

        if (c < best * 0.999) { /* on a tie fewer panels: fewer streams to read */
            best = c;
            s->mr = mr;
            s->np = np;
        }
    }
}

static bool streams(const struct kern_variant *v, const struct kern_mat *w, int64_t m,
                    int n_threads)
{
    if (m > kern_gemm_rows(v, 1))
        return false;
    return m <= STREAM_ROWS || (w->n_units > 1 && read_cycles(w, 1, n_threads) >
                                                      block_cycles(v, (double)m, 1));
}

/* `whole` cut into the fewest equal parts of at most `most`. */
static int64_t equal_parts(int64_t whole, int64_t most)
{
    int64_t parts = (whole + most - 1) / most;

    return (whole + parts - 1) / parts;
}

/* The number of rows whose `per_row` bytes each fit into `most`, in equal slices of m. */
static int64_t rows_within(const struct kern_schedule *s, int64_t m, int64_t per_row,
                           size_t most)
{
    int64_t blocks = round_down((int64_t)most / per_row, s->mr) / s->mr;

    return s->mr * equal_parts(kern_a_blocks(m, s->mr), blocks);
}

/* Several row blocks read a matrix that is split along K in the order of memory, too, where
 * what comes next is prefetched: of a panel as many units as the first level holds, then the
 * next panel. Half the second level is for the rows of A. */
static void cut_split(struct kern_schedule *s, const struct kern_variant *v,
                      const struct kern_mat *w, int64_t m)
{
    int64_t b_row = (int64_t)panel_row_bytes(w) * s->np;

    s->bk = round_down((int64_t)cpu_cache_bytes(1) / b_row, w->k_unit);
    s->bm = rows_within(s, m, (int64_t)kern_a_bytes(v->a_format, 1, s->bk),
                        cpu_cache_bytes(2) / 2);
    s->bn = KERN_ALL;
    s->order = KERN_ORDER_MNK;
}

/* Of B, the columns that all row blocks of a slice share, over as much of K as half the
 * second level holds. Of A, which is read again for every such columns, no more than a
 * small part of the third level, which is not ours alone: products that read 8 MB of A
 * again and again ran at half speed at times with a third-level cache of 32 MB. Where B is
 * prefetched it may be read more often, so no more of A than the second level holds. */
static void cut(struct kern_schedule *s, const struct kern_variant *v,
                const struct kern_mat *w, int64_t m)
{
    int64_t unit = w->n_units > 1 ? w->k_unit : 2;
    int64_t b_row = (int64_t)panel_row_bytes(w) * s->np;
    int64_t b_max = round_down((int64_t)cpu_cache_bytes(2) / 2 / b_row, unit);
    int64_t a_row = (int64_t)kern_a_bytes(v->a_format, 1, w->k_pad);
    size_t a_max = v->prefetches_next ? cpu_cache_bytes(2) : cpu_cache_bytes(3) / 32 * 3;

    if (b_max < w->k_pad)
        s->bk = (equal_parts(w->k_pad, b_max) + unit - 1) / unit * unit;
    if (m * a_row > (int64_t)a_max) {
        s->bm = rows_within(s, m, a_row, a_max);
        s->order = KERN_ORDER_MNK;
    }
}

/* Few rows: B in the order of memory. Where it is not split, as many panels at once as give
 * the multiply-adds of few sums something else to do. */
static void stream(struct kern_schedule *s, const struct kern_variant *v,
                   const struct kern_mat *w, int64_t m)
{
    s->mr = (int)m;
    s->np = 1;
    if (w->n_units > 1) {
        s->bn = KERN_ALL;
        s->bk = w->k_unit;
        s->order = KERN_ORDER_KNM;
        return;
    }
    for (int np = 2; v->prefetches_next && np <= KERN_NP_MAX; np++)
        if (kern_gemm_rows(v, np) >= m)
            s->np = np;
}

void kern_schedule_default(struct kern_schedule *s, const struct kern_variant *v,
                           const struct kern_mat *w, int64_t m, int n_threads)
{
    *s = (struct kern_schedule){.bm = KERN_ALL,
                                .bn = SLICE_N_PANELS,
                                .bk = KERN_ALL,
                                .pm = 1,
                                .pn = n_threads,
                                .pk = 1,
                                .order = KERN_ORDER_NMK};
    if (streams(v, w, m, n_threads)) {
        stream(s, v, w, m);
        return;
    }
    choose_micro_kernel(s, v, w, m, n_threads);
    if (w->n_units > 1 && v->prefetches_next)
        cut_split(s, v, w, m);
    else if (kern_a_blocks(m, s->mr) > 1) /* else B is read once: nothing to keep */
        cut(s, v, w, m);
}
