/* experiments/record/prediction.h - what a run will find, stated before it.
 *
 * One JSON file, which `testbed predict` writes and `testbed run --prediction` scores:
 *   "format", "version"
 *   "experiment", "job_sha256"   the run: the job with every default, as its record has it
 *   "machine"      the kind of machine, as in results/published/
 *   "predictor", "commit", "dirty", "utc"   what made it, of which code, and when
 *   "headline"     {name: {"value", "unit", "50", "80", "95", "model"} or {"why"}}: the levels in
 *                  percent have intervals [lo, hi]
 *   "sha256"       of all others, as compact text with sorted keys
 * The hash shows that nothing was changed since. Only who has published it before the run shows
 * that it was there before.   Threads: any. */
#ifndef RECORD_PREDICTION_H
#define RECORD_PREDICTION_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"

#define PREDICTION_LEVELS      3
#define PREDICTION_NARROW_FRAC 0.15
extern const int prediction_levels[PREDICTION_LEVELS]; /* 50, 80 and 95, in percent */
extern const char *const prediction_level_names[PREDICTION_LEVELS];

/* Of the headlines that a prediction and a record both have. */
enum prediction_count {
    PREDICTION_N,
    PREDICTION_INSIDE, /* of the first level; those of the others follow */
    PREDICTION_NARROW = PREDICTION_INSIDE + PREDICTION_LEVELS,
    PREDICTION_MISSING, /* has an interval, but no value in the record */
    PREDICTION_COUNTS
};
/* PREDICTION_NARROW: the 95 % interval reaches at most PREDICTION_NARROW_FRAC to each side. */
struct prediction_score {
    size_t n[PREDICTION_COUNTS];
};

/* The kind of this machine: "amd-epyc-family-26-model-2-2-cpus". ERR_IO. */
#define PREDICTION_MACHINE_BYTES 96
MUST int prediction_machine(char out[PREDICTION_MACHINE_BYTES]);
/* SHA-256 of a document as compact text with sorted keys, as hexadecimal digits. ERR_NOMEM. */
#define PREDICTION_HASH_BYTES 65
MUST int prediction_hash(char out[PREDICTION_HASH_BYTES], const json_t *document);

/* The prediction of a run of the resolved `job` here and now; its other members are borrowed by
 * reference. *out: new reference, NULL on error.   headline: as above */
MUST int prediction_new(json_t **out, const char *experiment, const json_t *job,
                        const char *predictor, json_t *headline);
/* Read a file. *out: new reference, NULL on error. ERR_FORMAT: a member is missing or not as
 * above, levels are not nested, or the hash is not that of the rest. */
MUST int prediction_read(json_t **out, const char *path);
/* May it be scored by the run of `header` (journal.h), whose journal has begun n_cells? `where`
 * begins error lines. ERR_STATE: it is of another experiment, other settings or another kind of
 * machine; written after the run began; or not the one with which it began. */
MUST int prediction_admit(const json_t *prediction, const json_t *header, size_t n_cells,
                          const char *where);

/* Half of an interval as a share: of [a, b] above or below 0 sqrt(b / a) - 1, else half of its
 * length by the size of `value`. NaN: it has no end. */
double prediction_half_frac(double lo, double hi, double value);
/* Score one headline: `one` is a member of "headline" of a prediction; value NaN: the record has
 * none. */
void prediction_score_add(struct prediction_score *s, const json_t *one, double value);
/* What the header of a record says of a prediction and its score: "prediction" and the scalars
 * "prediction_n", "prediction_inside_95", ... New reference. */
json_t *prediction_note(const json_t *prediction, const struct prediction_score *s);
/* The score of a record, by its scalars (head.h, "run"). False: it has no prediction. */
bool prediction_score_of(struct prediction_score *out, const json_t *run);
/* "9 of 10 headlines inside 95 %, ...; predicted by records at 2026-..., sha256 ..."; nothing where
 * the record has no prediction. */
void prediction_put(struct text *out, const json_t *run);

#endif
