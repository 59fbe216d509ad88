#include "experiments/record/prediction.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cpu/cpu.h"
#include "experiments/record/published.h"

#define FORMAT    "prediction"
#define VERSION   1
#define BYTES_MAX ((size_t)4 << 20)

const int prediction_levels[PREDICTION_LEVELS] = {50, 80, 95};
const char *const prediction_level_names[PREDICTION_LEVELS] = {"50", "80", "95"};

int prediction_machine(char out[PREDICTION_MACHINE_BYTES])
{
    struct cpu_budget budget;
    struct cpu_info cpu;
    json_t *head;

    TRY(cpu_budget_get(&budget));
    cpu_info_get(&cpu);
    head =
        json_pack("{s:{s:o, s:i}, s:{s:o, s:o}}", "run", "cpu_model",
                  json_string_lossy(cpu.model_name), "n_cpus", budget.n, "cpu", "family",
                  json_sprintf("%d", cpu.family), "model", json_sprintf("%d", cpu.model));
    export_machine_name(out, PREDICTION_MACHINE_BYTES, head);
    json_decref(head);
    return OK;
}

int prediction_hash(char out[PREDICTION_HASH_BYTES], const json_t *document)
{
    char *text = json_text(document, JSON_COMPACT | JSON_SORT_KEYS);
    struct sha256 s;

    if (!text)
        return ERR_NOMEM;
    sha256_init(&s);
    sha256_add(&s, text, strlen(text));
    sha256_end(&s, out);
    mem_free(text);
    return OK;
}

/* Of all members but itself. */
static int hash_of(char out[PREDICTION_HASH_BYTES], const json_t *prediction)
{
    json_t *rest = json_copy((json_t *)prediction);
    int rc;

    json_object_del(rest, "sha256");
    rc = prediction_hash(out, rest);
    json_decref(rest);
    return rc;
}

int prediction_new(json_t **out, const char *experiment, const json_t *job,
                   const char *predictor, json_t *headline)
{
    char machine[PREDICTION_MACHINE_BYTES], hash[PREDICTION_HASH_BYTES], utc[32];
    json_t *p;
    int rc;

    *out = NULL;
    TRY(prediction_machine(machine));
    TRY(prediction_hash(hash, job));
    clock_utc(utc, sizeof(utc));
    p = json_pack("{s:s s:i s:s s:s s:s s:s s:s s:b s:s s:O}", "format", FORMAT,
                  "version", VERSION, "experiment", experiment, "job_sha256", hash,
                  "machine", machine, "predictor", predictor, "commit", build_info.commit,
                  "dirty", build_info.dirty, "utc", utc, "headline", headline);
    rc = hash_of(hash, p);
    if (rc == OK)
        json_object_set_new(p, "sha256", json_string(hash)), *out = json_incref(p);
    json_decref(p);
    return rc;
}

/* ---- reading ---- */

static int check_number(const json_t *one, const char *where)
{
    double value, within[2] = {INFINITY, -INFINITY};
    const char *why;

    if (json_object_get(one, "why"))
        return json_get_str(one, "why", &why, where);
    TRY(json_get_f64(one, "value", &value, where));
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        double ends[2];

        TRY(json_get_f64s(one, prediction_level_names[l], ends, 2, where));
        if (!(ends[0] <= ends[1] && ends[0] <= within[0] && ends[1] >= within[1]))
            return err_set(ERR_FORMAT,
                           "%s: %s: expected an interval round that of the level below, "
                           "found [%g, %g]",
                           where, prediction_level_names[l], ends[0], ends[1]);
        memcpy(within, ends, sizeof(within));
    }
    return OK;
}

static int check(const json_t *p, const char *path)
{
    static const char *const known[] = {
        "format", "version", "experiment", "job_sha256", "machine", "predictor",
        "commit", "dirty",   "utc",        "headline",   "sha256",  NULL};
    static const char *const texts[] = {"format",  "experiment", "job_sha256",
                                        "machine", "predictor",  "commit",
                                        "utc",     "sha256"};
    char hash[PREDICTION_HASH_BYTES], where[512];
    const char *text = "", *name;
    const json_t *headline;
    json_t *one;
    int64_t version;

    TRY(json_check_keys(p, known, path));
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        TRY(json_get_str(p, texts[i], &text, path));
    TRY(json_get_int(p, "version", VERSION, VERSION, &version, path));
    TRY(json_get_obj(p, "headline", &headline, path));
    json_object_foreach((json_t *)headline, name, one)
    {
        snprintf(where, sizeof(where), "%.200s: headline.%.200s", path, name);
        TRY(check_number(one, where));
    }
    TRY(hash_of(hash, p));
    if (strcmp(hash, text) != 0)
        return err_set(ERR_FORMAT,
                       "%s: sha256: expected %.16s..., that of the other members, found "
                       "%.16s...: it was changed after it was made",
                       path, hash, text);
    return OK;
}

int prediction_read(json_t **out, const char *path)
{
    json_t *p;
    int rc;

    *out = NULL;
    TRY(json_read_file(&p, path, BYTES_MAX));
    rc = check(p, path);
    if (rc == OK)
        *out = json_incref(p);
    json_decref(p);
    return rc;
}

/* ---- a run ---- */

static int expect_same(const json_t *prediction, const char *key, const char *is,
                       const char *where)
{
    const char *said = json_str_at(prediction, key, "");

    return strcmp(said, is) == 0
               ? OK
               : err_set(ERR_STATE,
                         "%s: %s: expected that of this run, %.64s, found %.64s", where,
                         key, is, said);
}

int prediction_admit(const json_t *prediction, const json_t *header, size_t n_cells,
                     const char *where)
{
    char hash[PREDICTION_HASH_BYTES], machine[PREDICTION_MACHINE_BYTES];
    const json_t *begun_with = json_object_get(header, "prediction");
    const char *utc = json_str_at(prediction, "utc", ""),
               *begin = json_str_at(header, "utc", "");

    TRY(expect_same(prediction, "experiment", json_str_at(header, "experiment", ""),
                    where));
    TRY(prediction_hash(hash, json_object_get(header, "job")));
    TRY(expect_same(prediction, "job_sha256", hash, where));
    TRY(prediction_machine(machine));
    TRY(expect_same(prediction, "machine", machine, where));
    if (begun_with)
        return expect_same(prediction, "sha256", json_str_at(begun_with, "sha256", ""),
                           where);
    if (strcmp(utc, begin) > 0) /* of one form, so that texts order as times do */
        return err_set(ERR_STATE,
                       "%s: utc: expected a time before the run began, at %s, found %s "
                       "(--fresh begins again)",
                       where, begin, utc);
    return n_cells == 0
               ? OK
               : err_set(ERR_STATE,
                         "%s: expected a prediction that is given before the first cell, "
                         "found a run that has begun %zu (--fresh begins again)",
                         where, n_cells);
}

/* ---- scores ---- */

double prediction_half_frac(double lo, double hi, double value)
{
    if (lo > 0)
        return sqrt(hi / lo) - 1;
    if (hi < 0)
        return sqrt(lo / hi) - 1;
    return hi > lo ? (hi - lo) / 2 / fabs(value) : 0;
}

void prediction_score_add(struct prediction_score *s, const json_t *one, double value)
{
    double lo = NAN, hi = NAN;

    if (!json_is_number(json_object_get(one, "value")))
        return;
    if (isnan(value)) {
        s->n[PREDICTION_MISSING]++;
        return;
    }
    s->n[PREDICTION_N]++;
    for (int l = 0; l < PREDICTION_LEVELS; l++) {
        const json_t *ends = json_object_get(one, prediction_level_names[l]);

        lo = json_number_value(json_array_get(ends, 0));
        hi = json_number_value(json_array_get(ends, 1));
        s->n[PREDICTION_INSIDE + l] += value >= lo && value <= hi;
    }
    s->n[PREDICTION_NARROW] +=
        prediction_half_frac(lo, hi, json_f64_at(one, "value")) <= PREDICTION_NARROW_FRAC;
}

static const char *const counts[PREDICTION_COUNTS] = {
    "prediction_n",         "prediction_inside_50", "prediction_inside_80",
    "prediction_inside_95", "prediction_narrow",    "prediction_missing"};

json_t *prediction_note(const json_t *prediction, const struct prediction_score *s)
{
    json_t *note =
        json_pack("{s:O s:O s:O s:O}", "prediction", prediction, "prediction_sha256",
                  json_object_get(prediction, "sha256"), "prediction_utc",
                  json_object_get(prediction, "utc"), "prediction_predictor",
                  json_object_get(prediction, "predictor"));

    for (int i = 0; i < PREDICTION_COUNTS; i++)
        json_object_set_new(note, counts[i], json_integer((json_int_t)s->n[i]));
    return note;
}

bool prediction_score_of(struct prediction_score *out, const json_t *run)
{
    for (int i = 0; i < PREDICTION_COUNTS; i++)
        out->n[i] = (size_t)json_int_at(run, counts[i]);
    return json_object_get(run, "prediction_sha256") != NULL;
}

void prediction_put(struct text *out, const json_t *run)
{
    struct prediction_score s;

    if (!prediction_score_of(&s, run))
        return;
    text_printf(out, "of %zu headlines", s.n[PREDICTION_N]);
    for (int l = PREDICTION_LEVELS - 1; l >= 0; l--)
        text_printf(out, "%s %zu inside %d %%", l == PREDICTION_LEVELS - 1 ? "" : ",",
                    s.n[PREDICTION_INSIDE + l], prediction_levels[l]);
    text_printf(out, "; 95 %% within %g %% of %zu", 100 * PREDICTION_NARROW_FRAC,
                s.n[PREDICTION_NARROW]);
    if (s.n[PREDICTION_MISSING])
        text_printf(out, "; %zu without a value", s.n[PREDICTION_MISSING]);
    text_printf(out, "; predicted by %s at %s, sha256 %.16s",
                json_str_at(run, "prediction_predictor", "?"),
                json_str_at(run, "prediction_utc", "?"),
                json_str_at(run, "prediction_sha256", "?"));
}
