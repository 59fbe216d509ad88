/* measure/card.h - the machine card: what this machine can do at most.
 *
 * This module writes a card, checks it and answers from it; characterize/ measures its values and
 * keeps it as results/machine/<host>.json. Every program that states a share of bandwidth or of
 * peak reads it here, so that all divide by the same number. A card is used only if it is whole,
 * unchanged since it was measured, and of this machine; a record may hold any card, so what is
 * missing in one that is asked for a value is NaN.   Threads: any. */
#ifndef MEASURE_CARD_H
#define MEASURE_CARD_H

#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "cpu/cpu.h"
#include "measure/noise.h"

#define MEASURE_CARD_DIR "results/machine"
/* Raised when a value changes its meaning: older cards are then measured again. */
#define MEASURE_CARD_VERSION 5

/* <dir>/<host><suffix>.json, and <host>-avx2<suffix>.json where CPU_ISA_ENV hides what this
 * processor has beyond AVX2, so that neither card replaces the other. The host's name keeps
 * only those characters that are safe in a file name. ERR_ARG: it does not fit into n. */
MUST int measure_card_path(char *out, size_t n, const char *dir, const char *suffix);
/* The card in a file; NULL: this host's in MEASURE_CARD_DIR. *out is a new reference, NULL
 * on error. As json_read_file(), then as measure_card_check(). */
MUST int measure_card_read(json_t **out, const char *path);
/* The same for measure_card_path() of `dir` and `suffix`. */
MUST int measure_card_read_in(json_t **out, const char *dir, const char *suffix);
/* Is this a card that bounds what this machine does? ERR_FORMAT: another version, a value
 * that no machine has, or one that was changed after it was measured. ERR_STATE: measured on
 * another CPU, or with other CPUs, microcode or instruction sets than this process has.
 * `where` begins the error line, which says what was expected and found. */
MUST int measure_card_check(const json_t *card, const char *where);
/* A value of the card, as a probe reports it. */
struct measure_card_row {
    char name[48]; /* "read_gbps" */
    char unit[16]; /* "GB/s" */
    int n_threads;
    double estimate, lo, hi; /* as measure/compare.h; NaN: unavailable */
    int n_trials;
    char why[96]; /* why it is unavailable or not trusted, else "" */
};

/* *out: new reference, NULL on error. ERR_NOMEM.
 * measure_card_new(): the card of what was measured on the CPUs of `b` in duration_s, complete as
 * measure_card_seal() makes it. measure_card_of(): what the functions below answer from alone. */
MUST int measure_card_new(json_t **out, const struct measure_card_row *rows, int n,
                          const struct cpu_budget *b, const struct measure_noise *noise,
                          double duration_s);
MUST int measure_card_of(json_t **out, const struct measure_card_row *rows, int n);
/* Complete `card`, which holds what was measured on the CPUs of `b`, by format, version,
 * identity of this machine and checksum. ERR_NOMEM. */
MUST int measure_card_seal(json_t *card, const struct cpu_budget *b);

/* A measurement exceeded a bound of this host's card in `dir`: remove the file, so that the next
 * run measures. */
void measure_card_drop(const char *dir);

/* A value with an estimate and a reason was measured, but is not trusted: the machine was
 * busy, or the trials differed by more than this share of the estimate. Below it the values
 * of a busy machine were those of the quiet one (measure/noise.h); above it they were up to
 * 40 % too low. */
#define MEASURE_CARD_SPREAD_MAX 0.1
/* A share of a measured bound above this is not a result: the bound is wrong, the share NaN. */
#define MEASURE_SHARE_MAX 1.02
/* reached / bound; NaN above MEASURE_SHARE_MAX. */
double measure_share(double reached, double bound);
/* The first such reason among values whose names begin with `prefix`, of n threads (0: of
 * any number); lent. NULL: every one is trusted. */
const char *measure_card_doubt(const json_t *card, const char *prefix, int n_threads);

/* Why a bound of one thread or of all is not trusted; lent. NULL: all are. A slow family of
 * instructions bounds nothing. */
const char *measure_card_doubtful(const json_t *card, int n_threads);

/* The bounds: NaN where there is none, or where a value that is not trusted may exceed it.
 * Between two measured thread counts the answer is on the line through both; beyond the
 * largest it is that one's (they share the CPUs). */
double measure_card_read_gbps(const json_t *card, int n_threads);
/* Peak of computing with weights of `type` (kern_type_name()) at `precision`
 * (kern_precision_name()) by the fastest instruction family this machine has; GFLOP/s. */
double measure_card_peak_gflops(const json_t *card, const char *type,
                                const char *precision, int n_threads);

/* The bounds of a system with n threads: as the two before, but NaN and why also where the card
 * says that more threads do less. `why` is left as it is where there is one. */
double measure_card_read_bound(const json_t *card, int n_threads, char why[96]);
double measure_card_peak_bound(const json_t *card, const char *type,
                               const char *precision, int n_threads, char why[96]);

/* The value with exactly this name and thread count; NaN when there is none,
 * and then *why, if not NULL, says why: lent by the card, or constant. */
double measure_card_value(const json_t *card, const char *name, int n_threads,
                          const char **why);
/* The smallest and the largest of all values whose names begin with `prefix`; n_threads 0:
 * of any number of threads. NaN when there is none, and then *why as above. */
struct measure_card_range {
    double least, most;
};
struct measure_card_range measure_card_range(const json_t *card, const char *prefix,
                                             int n_threads, const char **why);

/* The card as one table for people, a line a value. *text is owned by the caller,
 * mem_free(). */
MUST int measure_card_text(const json_t *card, char **text);

#endif
