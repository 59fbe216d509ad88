/* experiments/predict/predict.h - headlines of a run before it, with intervals that were found to
 * hold.
 *
 * A predictor (predictor.h) gives a number for a headline by what published records of other hosts
 * say. How far it is off is not assumed: it is asked for each number of the published records as
 * if that record were not there, and what it missed numbers of the same class by, in other
 * experiments, are its intervals (split conformal prediction; Vovk, Gammerman, Shafer, "Algorithmic
 * learning in a random world", 2.2). So a predictor needs no model of its errors, and heavy tails
 * are as heavy as they are. Where several know a headline, the one with the narrowest interval
 * is taken.   Threads: one owner. */
#ifndef PREDICT_PREDICT_H
#define PREDICT_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "experiments/record/prediction.h"

/* A headline of a published record that has a value. */
struct predict_number {
    const char *name, *unit; /* lent by the data */
    int experiment, machine; /* indices */
    /* Noise of a machine can change it, and what its job measures. */
    bool is_timed, job_is_timed;
    double value;
};

#define PREDICT_MACHINES_MAX 64

struct predict_data {          /* all zero: none */
    struct predict_number *of; /* [n], by experiment, name and machine */
    size_t n, capacity;
    json_t *heads;                  /* as they were read */
    json_t *experiments, *machines; /* {name: index} */
    const json_t
        *cards[PREDICT_MACHINES_MAX]; /* the newest of each machine; NULL: none */
};

/* Read the heads of all published records; predict_data_fini() also after an error.
 * ERR_NOTFOUND: there are none. ERR_FORMAT, ERR_LIMIT. */
MUST int predict_data_read(struct predict_data *out);
void predict_data_fini(struct predict_data *d);
/* Add the headlines of a head. Its reference is taken. ERR_LIMIT: more machines than
 * PREDICT_MACHINES_MAX. predict_data_sort() comes after the last one. */
MUST int predict_data_add(struct predict_data *d, const char *machine,
                          const char *experiment, json_t *head);
void predict_data_sort(struct predict_data *d);

/* ---- intervals ---- */

enum predict_pool { PREDICT_ALL, PREDICT_EVIDENCE, PREDICT_UNIT };
enum predict_control { PREDICT_AS_IT_IS, PREDICT_HALVED, PREDICT_EXCHANGED };

#define PREDICT_POOL                                                                     \
    PREDICT_UNIT /* that of `testbed predict`; prediction_calibration varies it */

struct predict_options {
    const char
        *predictor; /* its name; NULL: of those that know a headline, the narrowest */
    bool is_known;  /* errors on the same machine, in other experiments, count */
    int pool; /* whose errors count: of all headlines, those of its kind of evidence, and of its
                 kind of unit */
};

/* What is asked for: a headline of a machine's run of an experiment. */
struct predict_view {
    const struct predict_data *data;
    const char *name, *unit;
    int experiment, machine; /* -1: none that is published */
    int hidden;              /* a machine of which no record is seen; -1: none */
    bool is_timed;           /* by the job; a record of another host knows better */
    const json_t *card;      /* of the machine; NULL: none */
};

struct predict_errors; /* what each predictor missed each number by */
/* hidden: as in struct predict_view. predict_errors_free(). */
struct predict_errors *predict_errors_new(const struct predict_data *d, int hidden);
void predict_errors_free(struct predict_errors **e);
/* The view of number k of the data as if its record were not there. */
struct predict_view predict_view_of(const struct predict_errors *e, size_t k);

struct predict_interval {
    const char *predictor; /* NULL: none knows this headline */
    double value, lo[PREDICTION_LEVELS], hi[PREDICTION_LEVELS];
    int n_hosts; /* other hosts that have this headline */
};
/* *out. `e` was made for v->hidden. */
void predict_one(struct predict_interval *out, const struct predict_errors *e,
                 const struct predict_view *v, const struct predict_options *o);
/* The same as a member of a prediction's "headline". New reference. */
json_t *predict_json(const struct predict_interval *i, const char *unit);

/* ---- calibration: a retrospective on published records ---- */

struct predict_share {
    double value, lo, hi; /* 95 % interval by the jackknife over experiments; NaN: none */
};
struct predict_calibration {
    struct predict_share inside[PREDICTION_LEVELS];
    struct predict_share narrow;         /* 95 % within PREDICTION_NARROW_FRAC */
    double half_frac[PREDICTION_LEVELS]; /* median */
    size_t n, n_experiments, n_two,
        n_machines; /* n_two: experiments of two machines or more */
};
/* Predict each number as if its record were not there, and score it.
 *   is_seen   only headlines that another host has
 *   control   PREDICT_HALVED: intervals of half the width; PREDICT_EXCHANGED: each is scored by
 *             the number of the next headline of its record */
void predict_calibrate(struct predict_calibration *out, const struct predict_data *d,
                       const struct predict_options *o, bool is_seen, int control);

/* ---- predictions that were made before a run ---- */

struct predict_scored {            /* all zero: none */
    struct prediction_score score; /* the sum */
    json_t *seen;                  /* {hash: true}, one for each record; json_decref() */
};
/* Add the score of a record, by its head, unless it has none or it was added before. */
void predict_scored_add(struct predict_scored *s, const json_t *head);

#endif
