/* How well predictions of headlines hold: a retrospective, in which each published number is
 * predicted as if its record were not there, and the score of predictions that were made before a
 * published record's run. */
#include <math.h>
#include <string.h>

#include "experiments/frame/frame.h"
#include "experiments/predict/predict.h"

enum { PREDICTOR_NARROWEST };
enum { MACHINE_NEW, MACHINE_KNOWN };
enum { NUMBERS_SEEN, NUMBERS_ALL };

static const char *const predictor_names[] = {NULL, "records", "roof", "unit"};

#define OPTIONS(X)                                                                       \
    X(ENUM, predictor, "narrowest",                                                      \
      "What predicts: of those that know a headline the one whose interval is "          \
      "narrowest, or one of them (testbed predict --help).",                             \
      .values = "narrowest|records|roof|unit")                                           \
    X(ENUM, machine, "known",                                                            \
      "new: no record of the machine that is predicted is seen; known: those of its "    \
      "other experiments are.",                                                          \
      .values = "new|known")                                                             \
    X(ENUM, numbers, "seen",                                                             \
      "Which are predicted: headlines that another host has, or all of them.",           \
      .values = "seen|all")                                                              \
    X(ENUM, pool, "unit",                                                                \
      "Whose errors make an interval: those of all headlines, of its kind of evidence "  \
      "(timed or not), or also of its kind of unit.",                                    \
      .values = "all|evidence|unit")                                                     \
    X(ENUM, control, "none",                                                             \
      "halved: intervals of half the width; exchanged: each is scored by the number of " \
      "the next headline of its record. Neither may hold.",                              \
      .values = "none|halved|exchanged")

#define RESULTS(X)                                                                       \
    X(inside_50, "", SOME, "share of the numbers inside their interval of 50 %")         \
    X(inside_80, "", SOME, "share inside their interval of 80 %")                        \
    X(inside_95, "", SOME, "share inside their interval of 95 %")                        \
    X(narrow_frac, "", HIGHER | SOME,                                                    \
      "share whose interval of 95 % reaches at most 15 % to each side")                  \
    X(half_50, "%", LOWER | SOME, "median of half the intervals of 50 %")                \
    X(half_80, "%", LOWER | SOME, "of those of 80 %")                                    \
    X(half_95, "%", LOWER | SOME, "of those of 95 %")                                    \
    X(n_headlines, "", 0, "numbers that were predicted")                                 \
    X(n_experiments, "", 0, "of that many experiments")                                  \
    X(n_experiments_two, "", 0, "of these, with records of two machines or more")        \
    X(n_machines, "", 0, "of that many machines")                                        \
    X(scored_records, "", 0, "published records that a prediction came before")          \
    X(scored_headlines, "", 0, "headlines of these that it has an interval for")         \
    X(scored_inside_50, "", SOME, "share of these inside their interval of 50 %")        \
    X(scored_inside_80, "", SOME, "share inside that of 80 %")                           \
    X(scored_inside_95, "", SOME, "share inside that of 95 %")                           \
    X(scored_narrow_frac, "", HIGHER | SOME,                                             \
      "share whose interval of 95 % is within 15 %")

FRAME_TYPES;

struct prediction_calibration {
    FRAME_CELL;
    struct predict_data data;
};

static void put_share(struct prediction_calibration *c, double *x,
                      const struct predict_share *s)
{
    frame_set(c->f, x, s->value, "no headline is predicted so");
    frame_interval(c->f, x, s->lo, s->hi);
}

static void calibrate(struct prediction_calibration *c)
{
    const struct predict_options o = {.predictor = predictor_names[c->o->predictor],
                                      .is_known = c->o->machine == MACHINE_KNOWN,
                                      .pool = c->o->pool};
    struct predict_calibration found;

    predict_calibrate(&found, &c->data, &o, c->o->numbers == NUMBERS_SEEN, c->o->control);
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        put_share(c, frame_named(c->f, "inside_%d", prediction_levels[l]),
                  &found.inside[l]);
        frame_set(c->f, frame_named(c->f, "half_%d", prediction_levels[l]),
                  100 * found.half_frac[l], "no headline is predicted so");
    }
    put_share(c, &c->r->narrow_frac, &found.narrow);
    c->r->n_headlines = (double)found.n;
    c->r->n_experiments = (double)found.n_experiments;
    c->r->n_experiments_two = (double)found.n_two;
    c->r->n_machines = (double)found.n_machines;
}

static void put_scored(struct prediction_calibration *c)
{
    const char *const why = "no published record has a prediction";
    struct predict_scored s = {0};
    const json_t *head;
    double n;
    size_t i;

    json_array_foreach(c->data.heads, i, head) predict_scored_add(&s, head);
    n = (double)s.score.n[PREDICTION_N];
    c->r->scored_records = (double)json_object_size(s.seen);
    c->r->scored_headlines = n;
    for (int l = 0; l < PREDICTION_LEVELS; l++)
        frame_set(c->f, frame_named(c->f, "scored_inside_%d", prediction_levels[l]),
                  (double)s.score.n[PREDICTION_INSIDE + l] / n, why);
    frame_set(c->f, &c->r->scored_narrow_frac, (double)s.score.n[PREDICTION_NARROW] / n,
              why);
    json_decref(s.seen);
}

static int prediction_calibration_run(struct prediction_calibration *c)
{
    FRAME_CLOSE(c->f, predict_data_fini, &c->data);
    TRY(predict_data_read(&c->data));
    put_scored(c);
    calibrate(c);
    return OK;
}

STUDY(prediction_calibration, "how well predictions of published numbers hold");
