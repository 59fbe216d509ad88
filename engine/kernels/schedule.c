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
    int64_t grain = kern_mat_grain(w);
    int64_t k_parts = (w->k_pad + (w->n_units > 1 ? grain - 1 : 0)) / grain;

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

/* ---- the default schedule, by a cost model ----
 *
 * For every micro-kernel the model estimates the cycles in which all m rows are
 * multiplied with one row of K of one panel, and it chooses the micro-kernel with the
 * fewest. The first block of rows reads the panels from memory while it computes, so it
 * takes as long as the slower of the two. The other blocks find the panels in the
 * second-level cache. Few rows therefore get a single block, however few panels it has,
 * and many rows get the block with the most multiply-adds for each load. Measured on Zen
 * 5, the schedule is within a few per cent of the best slice for every m; the tuner can
 * find that one.
 *
 * The rates of memory are constants, not those of the machine card, so that the same machine
 * always gets the same schedule. They matter little: from 3 to 20 bytes a cycle AVX2 keeps its
 * choice for all but 6 of 256 pairs of matrix and m <= 64, and AVX-512 changes between one
 * and two panels, which differ by at most 6 % on Zen 4 except for m = 6 to 12 (up to
 * 20 %). */

#define MEMORY_BYTES_PER_CYCLE 10.0 /* of one core while no other reads */
#define SHARED_BYTES_PER_CYCLE 6.25 /* of one core while others read, too */
#define L2_BYTES_PER_CYCLE     32.0
#define FMA_LATENCY            4.0
#define LOADS_PER_CYCLE        2.0
#define SLICE_N_PANELS         8
/* The faster of reading and multiplying adds this share of its time to that of the slower one. It
 * decides between tiles that read equally long: of 8 rows, two panels take 0.84 of the time of one
 * on Zen 5 where memory is fast, and as long where it is slow. Where reading takes FEW_STREAMS_MIN
 * times as long as the multiply-adds alone, as many panels are read at a time as the processor
 * likes best (cpu_prefetch()): with one, Zen 4 takes 0.9 to 0.97 of the time. */
#define OVERLAP_LOSS    0.1
#define FEW_STREAMS_MIN 1.6
/* A factor for each block after the first, which starts new sums and loads its rows of
 * A. */
#define BLOCK_OVERHEAD 1.05

/* A product of at most STREAM_ROWS rows is bound by reading B. B is then read strictly in the
 * order of memory, panel by panel, whatever that costs in loads of A and C. One Zen 5 core
 * reads a matrix that is split along K at 40 GB/s in this order, and at 28 GB/s when tiles
 * jump from unit to unit. With more rows a split matrix is still read in this order as long
 * as reading takes longer than multiplying: with two threads that is 1.2 to 1.4 times as
 * fast on Zen 5. Where the rows of A take more than half of the first-level cache, they and
 * the prefetched units displace each other there, and this order, which reads only a slice's
 * columns of A at a time, is the faster one for longer, until multiplying takes
 * STREAM_COMPUTE_MAX times as long: on Zen 4, with 5 to 16 rows, 0.72 to 1.0 of the time.
 *
 * A slice of a split matrix has as many units as make STREAM_BYTES of a panel, so that
 * starting a tile takes little of its time; twice as many with more than STREAM_FEW_ROWS,
 * as a tile starts by loading the sums of each row and ends by storing them. Units of 64 and
 * 128 rows of 4 bits take 0.72 to 0.95 of the time that they take one by one. Longer slices
 * jump between more places in memory: 8 KiB of each panel take up to 1.5 times as long. */
#define STREAM_ROWS        4
#define STREAM_FEW_ROWS    2
#define STREAM_COMPUTE_MAX 2.0
#define STREAM_BYTES       2048.0

static double max2(double a, double b)
{
    return a > b ? a : b;
}

static int64_t round_down(int64_t x, int64_t step)
{
    return x < step ? step : x / step * step;
}

/* Rows of K that one instruction multiplies for a row of A. Products of 8 bits multiply four;
 * making floats of their sums takes a quarter of the time. Tiles multiply 32 of 16 rows in 16
 * cycles; making floats of what tiles of bytes sum takes twice that. */
static double k_per_product(enum kern_a_format fmt)
{
    switch (fmt) {
    case KERN_A_F32:
    case KERN_A_F16_TWICE:
        break;
    case KERN_A_BF16_PAIR:
        return 2;
    case KERN_A_BF16_ROWS:
        return 16;
    case KERN_A_I8:
        return 3;
    case KERN_A_I8_ROWS:
        return 8;
    }
    return 1;
}

/* Cycles to multiply a block of h rows with one row of K of np panels, when the operands
 * are in the first-level cache. */
static double block_cycles(const struct kern_variant *v, double h, int np)
{
    double vecs = ceil((double)np * KERN_PANEL / v->vec_cols), sums = h * vecs;
    double fma_per_cycle = cpu_fma_per_cycle(32 * v->vec_cols);
    double cycles = max2(sums / fma_per_cycle, (h + vecs) / LOADS_PER_CYCLE);

    if (sums < FMA_LATENCY * fma_per_cycle)
        cycles = max2(cycles, FMA_LATENCY);
    return cycles / k_per_product(v->a_format);
}

/* Bytes of one row of K of one panel. */
static double panel_row_bytes(const struct kern_mat *w)
{
    return KERN_PANEL * kern_type_weight_bytes(w->type);
}

/* Cycles in which one core reads one row of K of np panels from memory. */
static double read_cycles(const struct kern_mat *w, int np, int n_threads)
{
    return np * panel_row_bytes(w) /
           (n_threads > 1 ? SHARED_BYTES_PER_CYCLE : MEMORY_BYTES_PER_CYCLE);
}

/* Cycles of a block that is multiplied while it is read: not quite as long as the slower of the
 * two takes. */
static double overlapped(double multiply, double read)
{
    return multiply > read ? multiply + OVERLAP_LOSS * read
                           : read + OVERLAP_LOSS * multiply;
}

/* Cycles per panel to multiply all m rows with one row of K, in tiles of np panels. */
static double cost(const struct kern_variant *v, const struct kern_mat *w, int64_t m,
                   int n_threads, int mr, int np)
{
    double from_l2 = np * panel_row_bytes(w) / L2_BYTES_PER_CYCLE;
    double n_blocks = (double)kern_a_blocks(m, mr);
    double cycles = block_cycles(v, (double)m / n_blocks, np);

    return (overlapped(cycles, read_cycles(w, np, n_threads)) +
            (n_blocks - 1) * BLOCK_OVERHEAD * max2(cycles, from_l2)) /
           np;
}

/* Is B read in few streams, as FEW_STREAMS_MIN explains? */
static bool few_streams(const struct kern_variant *v, const struct kern_mat *w, int64_t m,
                        int n_threads)
{
    double vecs = (double)KERN_PANEL / v->vec_cols;
    double fma = (double)m * vecs / cpu_fma_per_cycle(32 * v->vec_cols) /
                 k_per_product(v->a_format);

    return m <= kern_gemm_rows(v, 1) &&
           read_cycles(w, 1, n_threads) >= FEW_STREAMS_MIN * fma;
}

static void choose_micro_kernel(struct kern_schedule *s, const struct kern_variant *v,
                                const struct kern_mat *w, int64_t m, int n_threads)
{
    double best = INFINITY;
    int streams = cpu_prefetch()->streams;
    int np_max = few_streams(v, w, m, n_threads) ? streams : KERN_NP_MAX;

    for (int np = 1; np <= np_max; np++) {
        int mr = kern_gemm_rows(v, np);
        double c = mr ? cost(v, w, m, n_threads, mr, np) : INFINITY;
        /* A tie: the streams that the processor likes, or else fewer. */
        double tie = np <= streams && m <= mr ? 1.001 : 0.999;

        if (c < best * tie) {
            best = c;
            s->mr = mr;
            s->np = np;
        }
    }
}

bool kern_schedule_computes(const struct kern_variant *v, const struct kern_mat *w,
                            int64_t m, int n_threads)
{
    return block_cycles(v, (double)m, 1) >= read_cycles(w, 1, n_threads);
}

/* Is B read in the order of memory, as STREAM_ROWS explains? */
static bool streams(const struct kern_variant *v, const struct kern_mat *w, int64_t m,
                    int n_threads)
{
    bool a_in_cache =
        kern_a_bytes(v->a_format, m, w->k_pad) <= (size_t)cpu_cache_bytes(1) / 2;

    if (m > kern_gemm_rows(v, 1))
        return false;
    return m <= STREAM_ROWS ||
           (w->n_units > 1 &&
            block_cycles(v, (double)m, 1) <
                (a_in_cache ? 1 : STREAM_COMPUTE_MAX) * read_cycles(w, 1, n_threads));
}

/* The size of a part when `whole` is cut into the fewest equal parts of at most
 * `most`. */
static int64_t equal_parts(int64_t whole, int64_t most)
{
    int64_t parts = (whole + most - 1) / most;

    return (whole + parts - 1) / parts;
}

/* The rows of a slice when m rows of `per_row` bytes are cut into equal slices of at most
 * `most` bytes. */
static int64_t rows_within(const struct kern_schedule *s, int64_t m, int64_t per_row,
                           size_t most)
{
    int64_t blocks = round_down((int64_t)most / per_row, s->mr) / s->mr;

    return s->mr * equal_parts(kern_a_blocks(m, s->mr), blocks);
}

/* Set the slice for several row blocks and a matrix that is split along K, where the
 * variant prefetches what is multiplied next. B is read in the order of memory: as many
 * units of np panels as the first-level cache holds, then those of the next panels. The
 * slice's rows of A take at most half of the second-level cache. */
static void cut_split(struct kern_schedule *s, const struct kern_variant *v,
                      const struct kern_mat *w, int64_t m)
{
    double b_row = panel_row_bytes(w) * s->np;

    s->bk = round_down((int64_t)((double)cpu_cache_bytes(1) / b_row), w->k_unit);
    s->bm = rows_within(s, m, (int64_t)kern_a_bytes(v->a_format, 1, s->bk),
                        cpu_cache_bytes(2) / 2);
    s->bn = KERN_ALL;
    s->order = KERN_ORDER_MNK;
}

/* Set the slice for several row blocks in all other cases. All row blocks of a slice
 * share np panels of B, so bk is as many rows of K of these as half the second-level
 * cache holds. The slice's rows of A are read again for each np panels, so they must stay
 * in a cache: at most 3/32 of the third-level cache, which other cores and programs use,
 * too. (With 32 MB of it, products that read 8 MB of A again and again sometimes ran at
 * half speed.) Where the variant prefetches B, B may be read more often, so A is limited
 * to the second-level cache. Quantised B is read so much faster than it is multiplied that
 * half of that cache is the limit, and so it is with tiles. */
static void cut(struct kern_schedule *s, const struct kern_variant *v,
                const struct kern_mat *w, int64_t m)
{
    int64_t unit = kern_mat_grain(w);
    double b_row = panel_row_bytes(w) * s->np;
    int64_t b_max = round_down((int64_t)((double)cpu_cache_bytes(2) / 2 / b_row), unit);
    int64_t a_row = (int64_t)kern_a_bytes(v->a_format, 1, w->k_pad);
    size_t a_max = v->prefetches_next ? cpu_cache_bytes(2) : cpu_cache_bytes(3) / 32 * 3;

    if (kern_a_is_i8(v->a_format) || v->a_format == KERN_A_BF16_ROWS)
        a_max = cpu_cache_bytes(2) / 2;

    if (b_max < w->k_pad)
        s->bk = (equal_parts(w->k_pad, b_max) + unit - 1) / unit * unit;
    if (m * a_row > (int64_t)a_max) {
        s->bm = rows_within(s, m, a_row, a_max);
        s->order = KERN_ORDER_MNK;
    }
}

/* Set the micro-kernel and slice that read B in the order of memory, for few rows. Where
 * B is not split and the variant prefetches, a tile has as many panels as still fit m
 * rows: one panel has too few sums to hide the latency of multiply-adds. Other variants read
 * as many streams as the processor likes. */
static void stream(struct kern_schedule *s, const struct kern_variant *v,
                   const struct kern_mat *w, int64_t m)
{
    double least = m > STREAM_FEW_ROWS ? 2 * STREAM_BYTES : STREAM_BYTES;
    const struct cpu_prefetch *p = cpu_prefetch();
    int np_max = v->prefetches_next ? KERN_NP_MAX : m >= p->streams_rows ? p->streams : 1;

    s->mr = (int)m;
    s->np = 1;
    if (w->n_units > 1) {
        s->bn = KERN_ALL;
        s->bk =
            w->k_unit * (int64_t)ceil(least / (panel_row_bytes(w) * (double)w->k_unit));
        s->order = KERN_ORDER_KNM;
        return;
    }
    for (int np = 2; np <= np_max; np++)
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
    else if (kern_a_blocks(m, s->mr) > 1) /* one block reads B once: no slice to fit */
        cut(s, v, w, m);
}
