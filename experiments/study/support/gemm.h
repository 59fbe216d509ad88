/* experiments/study/support/gemm.h - what the studies of GEMMs share: a matrix as a job
 * names it, the threads, the variant the engine would take, errors and bounds.
 * Threads: one caller; it becomes thread 0 of the team. */
#ifndef STUDY_GEMM_H
#define STUDY_GEMM_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "cpu/cpu.h"
#include "experiments/load/study.h"
#include "tune/measure.h"
#include "tune/space.h"

/* "sheared-llama-1.3b/down 2048x5504/64": a name, N x K, and the unit if there is one; or
 * "llama-3-8b/down": that matrix of an architecture of make/make.h, and m rows of activations.
 * The variant is not set. ERR_ARG: `text` is NULL or something else. ERR_NOTFOUND: the
 * architecture has no such name; the nearest is named. */
MUST int study_matrix_parse(const char *text, int64_t m, struct tune_shape *out);

/* "1 2 4 8", "1..16 32": whole numbers, ascending; `what` begins the error line. */
MUST int study_numbers_parse(const char *text, const char *what, int64_t *out, int max,
                             int *n);

/* The type of the weights, and how exactly products are computed: option `mode`. */
enum study_mode { STUDY_F32, STUDY_BF16, STUDY_BF16_RELAXED }; /* OPTION_MODE's order */
const char *study_mode_type(int mode);                         /* "f32", "bf16" */
const char *study_mode_precision(int mode);                    /* "exact", "relaxed" */

/* The micro-kernel of a cell. An *mr or *np of 0 is replaced by the one with the most sums that
 * `v` keeps in registers, of 8, 4, 2 or 1 rows so that usual slices are whole tiles.
 * ERR_UNSUPPORTED, by which the cell is skipped: `v` has no micro-kernel of that size. */
MUST int study_tile(const struct kern_variant *v, int64_t *mr, int64_t *np);

struct study_threads {
    struct cpu_budget budget;
    struct par_team *team;
    int n;
    size_t cache_bytes; /* what cold weights are rotated beyond */
};
/* n = 0: all CPUs of the budget. ERR_ARG: more than those. cache_mb = 0: the last-level
 * cache. */
MUST int study_threads_open(struct study_threads *out, int64_t n, int64_t cache_mb);
void study_threads_close(struct study_threads *t); /* twice is fine */

/* The RMS error of sampled elements of the bench's latest result against float64,
 * relative to their RMS. */
MUST int study_gemm_error(const struct tune_bench *b, const struct tune_shape *s,
                          int64_t seed, double *out);

/* Read bandwidth now, by the `read` probe over a buffer of that size; NaN where it cannot
 * be measured. 0: the machine card's size, of which next to nothing stays in a cache; a
 * few caches are quicker, and show up to a fifth more than memory gives. */
double study_read_gbps(const struct study_threads *t, size_t buffer_bytes,
                       double budget_s);

/* Peak now, by the `peak` probe: GFLOP/s as measure_card_peak_gflops(). Cores' clocks change by
 * the minute, so what is measured in rounds is compared with the peak of its round. */
double study_peak_now(const struct study_threads *t, const char *type,
                      const char *precision, double budget_s);

/* Nanoseconds in which a line goes from one CPU to another, of the slowest pair, by the `handoff`
 * probe: on which caches a host has put virtual CPUs, which the bandwidth depends on. NaN where
 * it cannot be measured. */
double study_handoff_now(const struct study_threads *t, double budget_s);

/* Peak for `mode` by the machine card (NULL: none); NaN also where the card says that
 * more threads do less: it was measured while other work ran. */
double study_peak_gflops(const json_t *card, int mode, int n_threads);

/* The bound by memory of a product of m rows, when every weight is read once: GFLOP/s. */
double study_memory_roof_gflops(int mode, int64_t m, double read_gbps);
/* The lower of two bounds; NaN where either is. */
double study_roof_gflops(double peak, double memory_roof);

/* Say of the cell which CPU, CPUs and threads. */
void study_note_machine(struct study_cell *c, const struct study_threads *t);
/* The same, and type, precision and variant of the kernel. */
void study_note_setting(struct study_cell *c, const struct study_threads *t, int mode,
                        const struct kern_variant *v);

static inline double study_gflops(const struct tune_shape *s, double seconds)
{
    return 1e-9 * tune_flop(s) / seconds;
}

#endif
