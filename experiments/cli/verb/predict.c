#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/text_number.h"
#include "experiments/cli/verb.h"
#include "experiments/job/job.h"
#include "experiments/predict/predictor.h"
#include "experiments/record/head.h"
#include "measure/card.h"

struct predict_opts {
    bool smoke, history;
    char *predictor, *out;
};

#define OPT_OF struct predict_opts
static const struct opt_row table[] = {
    VERB_SMOKE_ROW,
    OPT_ROW(BOOL, history, "false",
            "In place of a prediction: how well predictions hold. First a retrospective, "
            "each published number predicted as if its record were not there; then the "
            "predictions by which records were scored (`testbed run --prediction`)."),
    OPT_ROW(
        STR, predictor, NULL,
        "Predict by this one only: records, roof or unit. Default: of those that know "
        "a headline, the one whose interval is narrowest.",
        .unit = "NAME"),
    OPT_ROW(STR, out, NULL, "Write the prediction to this file. Default: print it.",
            .unit = "PATH"),
    {0},
};

/* ---- a prediction ---- */

/* The number in `names`; -1: it is not there. */
static int index_in(const json_t *names, const char *name)
{
    const json_t *at = json_object_get(names, name);

    return at ? (int)json_integer_value(at) : -1;
}

/* The headlines of a job, as "headline" of a prediction has them. */
static json_t *predict_headlines(const struct job *j, const struct predict_errors *e,
                                 struct predict_view *v, const struct predict_options *o)
{
    json_t *headline = json_object();

    for (int k = 0; k < j->n_headlines; k++) {
        struct predict_interval i;

        v->name = j->headlines[k].name;
        v->unit = j->headlines[k].unit ? j->headlines[k].unit
                                       : job_metric_unit(j, j->headlines[k].metric);
        predict_one(&i, e, v, o);
        json_object_set_new(headline, v->name, predict_json(&i, v->unit));
    }
    return headline;
}

static int predict_job(json_t **out, const struct job *j, const struct predict_data *d,
                       const struct predict_options *o)
{
    char machine[PREDICTION_MACHINE_BYTES];
    struct predict_view v = {
        .data = d, .hidden = -1, .is_timed = export_is_timed(j->evidence)};
    struct predict_errors *e;
    json_t *headline, *card = NULL;
    int rc;

    TRY(prediction_machine(machine));
    v.machine = index_in(d->machines, machine);
    v.experiment = index_in(d->experiments, j->stem);
    if (measure_card_read_in(&card, MEASURE_CARD_DIR, "") != OK)
        err_clear(); /* then that of a published record of this kind, or no roof */
    v.card = card || v.machine < 0 ? card : d->cards[v.machine];
    e = predict_errors_new(d, v.hidden);
    headline = predict_headlines(j, e, &v, o);
    rc = prediction_new(out, j->stem, j->resolved,
                        o->predictor ? o->predictor : "narrowest", headline);
    json_decref(headline);
    predict_errors_free(&e);
    json_decref(card);
    return rc;
}

static int put_prediction(const json_t *prediction, const char *path)
{
    char *text;

    if (path) {
        TRY(json_write_file(prediction, path));
        printf("%s: sha256 %s\n", path, json_str_at(prediction, "sha256", ""));
        return OK;
    }
    text = json_text(prediction, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!text)
        return ERR_NOMEM;
    puts(text);
    mem_free(text);
    return OK;
}

/* ---- history ---- */

static void print_calibration(const char *name, const struct predict_calibration *c)
{
    printf("%s: %zu headlines of %zu experiments (%zu of two machines or more), %zu "
           "machines\n",
           name, c->n, c->n_experiments, c->n_two, c->n_machines);
    for (int l = 0; l < PREDICTION_LEVELS; l++)
        printf("  %d %%: %.1f %% inside (%.1f to %.1f), half of the intervals within %s "
               "%%\n",
               prediction_levels[l], 100 * c->inside[l].value, 100 * c->inside[l].lo,
               100 * c->inside[l].hi, TEXT_NUMBER(100 * c->half_frac[l], 3));
    printf("  of the intervals of 95 %%, %.1f %% (%.1f to %.1f) are within %g %%\n",
           100 * c->narrow.value, 100 * c->narrow.lo, 100 * c->narrow.hi,
           100 * PREDICTION_NARROW_FRAC);
}

static void print_retrospective(const struct predict_data *d, const char *predictor)
{
    for (int k = 0; k < 4; k++) {
        const struct predict_options o = {
            .predictor = predictor, .is_known = k % 2, .pool = PREDICT_POOL};
        struct predict_calibration c;
        char name[128];

        predict_calibrate(&c, d, &o, k < 2, PREDICT_AS_IT_IS);
        snprintf(name, sizeof(name), "retrospective, a machine %s, %s",
                 o.is_known ? "with records of other experiments" : "without any record",
                 k < 2 ? "headlines that another host has" : "all headlines");
        print_calibration(name, &c);
    }
}

/* Of records in this folder and published ones: what predictions before a run came to. */
static int print_prospective(const struct predict_data *d)
{
    struct predict_scored s = {0};
    json_t *names, *name, *head;
    char path[512];
    double n;
    size_t i;

    TRY(job_names(&names));
    json_array_foreach(d->heads, i, head) predict_scored_add(&s, head);
    json_array_foreach(names, i, name)
    {
        snprintf(path, sizeof(path), "results/%.200s/latest.json",
                 json_string_value(name));
        if (export_head(&head, path) != OK) {
            err_clear(); /* there is none, or one that gives no number */
            continue;
        }
        predict_scored_add(&s, head);
        json_decref(head);
    }
    n = (double)s.score.n[PREDICTION_N];
    printf("prospective: %zu records, %g headlines", json_object_size(s.seen), n);
    for (int l = 0; l < PREDICTION_LEVELS && n > 0; l++)
        printf(", %.1f %% inside %d %%",
               100 * (double)s.score.n[PREDICTION_INSIDE + l] / n, prediction_levels[l]);
    if (n > 0)
        printf("; %.1f %% within %g %%", 100 * (double)s.score.n[PREDICTION_NARROW] / n,
               100 * PREDICTION_NARROW_FRAC);
    printf("\n");
    json_decref(names);
    json_decref(s.seen);
    return OK;
}

static int predict(const struct verb_words *w)
{
    const struct predict_opts *o = w->opts;
    const struct predict_options how = {
        .predictor = o->predictor, .is_known = true, .pool = PREDICT_POOL};
    const struct job_read_opts read = {o->smoke, w->sets, w->n_sets};
    struct predict_data data = {0};
    json_t *prediction = NULL;
    struct job *j = NULL;
    int rc = OK;

    if (o->history == (w->n_rest > 0))
        return err_set(ERR_ARG, "predict: expected either the name of an experiment or "
                                "--history");
    if (o->predictor && !name_find(predictors, o->predictor, "predictor"))
        return ERR_ARG;
    if (!o->history && job_read(&j, w->rest[0], &read) != OK)
        return verb_fail(PROGRAM_USAGE);
    rc = predict_data_read(&data);
    if (rc == OK && o->history) {
        print_retrospective(&data, o->predictor);
        rc = print_prospective(&data);
    } else if (rc == OK) {
        rc = predict_job(&prediction, j, &data, &how);
        rc = rc == OK ? put_prediction(prediction, o->out) : rc;
    }
    json_decref(prediction);
    predict_data_fini(&data);
    job_free(&j);
    return rc == OK ? PROGRAM_OK : verb_fail(VERB_INVALID);
}

const struct verb verb_predict = {
    .name = "predict",
    .help = "Predict the headlines of a run, before it.",
    .usage =
        {"testbed predict NAME|FILE [--set KEY=VALUE]... [options], or --history",
         "State what a run will find, before it: for each headline a value and "
         "intervals of 50, 80 and 95 %, from the published records of other hosts, as "
         "JSON with a time and a hash. `testbed run --prediction FILE` scores it.",
         "  testbed predict quickstart --out quickstart.prediction.json\n"
         "  testbed predict --history\n",
         VERB_EXIT_STATUS},
    .n_optional = 1,
    .takes_set = true,
    .opts = {{table}},
    .opts_bytes = sizeof(struct predict_opts),
    .run = predict,
};
