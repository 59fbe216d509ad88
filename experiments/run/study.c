/* One cell of a study: its options, its values, what it says of itself. */
#include "experiments/load/study.h"
#include "experiments/run/session.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/run/energy.h"
#include "measure/noise.h"

struct study_cell {
    const struct study *study;
    const json_t *card;
    struct progress *progress;
    struct metrics_value *values; /* one for each metric, in the table's order */
    struct metrics_series *series;
    size_t n_values, n_series;
    json_t *notes;
    json_t *evidence; /* {name: kind}; "" for all that it does not name */
    void *kept;
    struct run_energy energy;
    int rc; /* of the first report that failed, and its message */
    char error[512];
};

static void fail(struct study_cell *c, int rc)
{
    if (c->rc != OK)
        return;
    c->rc = rc;
    snprintf(c->error, sizeof(c->error), "%s", err_msg());
}

static bool is_given(const struct metrics_value *v)
{
    return isfinite(v->value) || v->why[0];
}

/* `interval`: the ends of its interval; NULL: it has none. */
static int add_value(struct study_cell *c, const char *name, double value,
                     const double *interval, const char *why)
{
    const struct study_metric *m = study_metric_find(c->study, name);
    struct metrics_value *v;

    if (!m)
        return err_prefix(ERR_ARG, "study_value");
    v = &c->values[m - c->study->metrics];
    if (is_given(v))
        return err_set(ERR_ARG, "study_value: %s is given twice", name);
    if (!isfinite(value) && (!why || !why[0]))
        return err_set(ERR_ARG, "study_value: %s is missing without a reason", name);
    v->value = isfinite(value) ? value : NAN;
    if (!isfinite(value)) {
        snprintf(v->why, sizeof(v->why), "%s", why);
    } else if (interval) {
        v->has_interval = isfinite(interval[0]) && isfinite(interval[1]);
        v->lo = interval[0];
        v->hi = interval[1];
    }
    return OK;
}

void study_value(struct study_cell *c, const char *name, double value, const char *why)
{
    int rc = add_value(c, name, value, NULL, why);

    if (rc != OK)
        fail(c, rc);
}

void study_value_interval(struct study_cell *c, const char *name, double value, double lo,
                          double hi, const char *why)
{
    int rc = add_value(c, name, value, (const double[]){lo, hi}, why);

    if (rc != OK)
        fail(c, rc);
}

void study_series(struct study_cell *c, const char *name, const char *unit,
                  const double *v, size_t n)
{
    double *copy = mem_new(MEM_HARNESS, n, sizeof(*copy));
    struct metrics_series *s;

    c->series = mem_resize(MEM_HARNESS, c->series, c->n_series + 1, sizeof(*s));
    s = &c->series[c->n_series++];
    *s = (struct metrics_series){.v = copy, .n = n};
    snprintf(s->name, sizeof(s->name), "%s", name);
    snprintf(s->unit, sizeof(s->unit), "%s", unit);
    if (n)
        memcpy(copy, v, n * sizeof(*copy));
}

static int add_evidence(struct study_cell *c, const char *kind, const char *names)
{
    if (!metrics_evidence_find(kind))
        return name_unknown(ERR_ARG, kind, metrics_evidence,
                            "study_evidence: \"%s\" is not a kind of evidence", kind);
    do {
        size_t n = strcspn(names, " ");

        json_object_setn_new(c->evidence, names, n, json_string(kind));
        names += n;
        names += strspn(names, " ");
    } while (*names);
    return OK;
}

void study_evidence(struct study_cell *c, const char *kind, const char *names)
{
    int rc = add_evidence(c, kind, names ? names : "");

    if (rc != OK)
        fail(c, rc);
}

void study_note(struct study_cell *c, const char *key, json_t *value)
{
    if (!value || json_object_set_new(c->notes, key, value) != 0)
        fail(c, err_set(ERR_NOMEM, "study_note: %s: out of memory", key));
}

void study_note_text(struct study_cell *c, const char *key, const char *text)
{
    study_note(c, key, json_string_lossy(text));
}

void study_progress(struct study_cell *c, double fraction, const char *what)
{
    run_energy_read_seldom(&c->energy);
    progress_step(c->progress, fraction, what, clock_ns());
}

const json_t *study_machine(const struct study_cell *c)
{
    return c->card;
}

void *study_kept(struct study_cell *c)
{
    return c->kept;
}

/* --- a cell */

static int begin(struct study_cell *c, struct run_session *s)
{
    const struct study_metric *m;

    *c = (struct study_cell){.study = s->job->study,
                             .card = s->card,
                             .progress = s->progress,
                             .notes = json_object(),
                             .evidence = json_object()};
    for (m = c->study->metrics; m->name; m++)
        c->n_values++;
    if (!s->study_kept && c->study->kept_bytes)
        s->study_kept = mem_new(MEM_HARNESS, 1, c->study->kept_bytes);
    c->kept = s->study_kept;
    c->values = mem_new(MEM_HARNESS, c->n_values, sizeof(*c->values));
    for (size_t i = 0; i < c->n_values; i++) {
        struct metrics_value *v = &c->values[i];

        m = &c->study->metrics[i];
        if (strlen(m->name) >= sizeof(v->name) || strlen(m->unit) >= sizeof(v->unit))
            return err_set(ERR_LIMIT, "study %s: metric %s: its name or unit is too long",
                           c->study->name, m->name);
        snprintf(v->name, sizeof(v->name), "%s", m->name);
        snprintf(v->unit, sizeof(v->unit), "%s", m->unit);
        v->value = NAN;
    }
    return OK;
}

static void end(struct study_cell *c)
{
    for (size_t i = 0; i < c->n_series; i++)
        mem_free(c->series[i].v);
    mem_free(c->series);
    mem_free(c->values);
    run_energy_fini(&c->energy);
    json_decref(c->notes);
    json_decref(c->evidence);
}

/* NULL: the study did not state it. */
static const char *kind_of(const struct study_cell *c, const char *name)
{
    return metrics_evidence_find(json_string_value(json_object_get(c->evidence, name)));
}

/* Each name to its values and series. */
static int spread_evidence(struct study_cell *c)
{
    const char *name;
    json_t *kind;

    for (size_t i = 0; i < c->n_values; i++)
        c->values[i].evidence = kind_of(c, c->values[i].name);
    for (size_t i = 0; i < c->n_series; i++)
        c->series[i].evidence = kind_of(c, c->series[i].name);
    json_object_foreach(c->evidence, name, kind)
    {
        bool there = !*name;

        for (size_t i = 0; i < c->n_values; i++)
            there |= strcmp(c->values[i].name, name) == 0;
        for (size_t i = 0; i < c->n_series; i++)
            there |= strcmp(c->series[i].name, name) == 0;
        if (!there)
            return err_set(ERR_ARG, "study_evidence: the cell does not report %s", name);
    }
    return OK;
}

static int run_it(struct study_cell *c, const struct job_cell *job_cell)
{
    const struct study *study = c->study;
    json_t *given = json_copy(json_object_get(job_cell->settings, "study"));
    void *opts = mem_new(MEM_HARNESS, 1, study->opts_bytes);
    void *context = mem_new(MEM_HARNESS, 1, study->context_bytes);
    int rc = opt_init(study->opts, opts);

    if (rc != OK)
        goto out;
    json_object_del(given, "name");
    rc = opt_from_json(study->opts, opts, given, "study");
    if (rc == OK)
        rc = study->run(context, opts, c);
    if (rc == OK && c->rc != OK)
        rc = err_set(c->rc, "%s", c->error);
    if (rc == OK)
        rc = spread_evidence(c);
    opt_free(study->opts, opts);
out:
    json_decref(given);
    mem_free(opts);
    mem_free(context);
    return rc;
}

/* Every cell has every metric, if only with the reason why it is missing. */
static void complete(struct study_cell *c)
{
    for (size_t i = 0; i < c->n_values; i++)
        if (!is_given(&c->values[i]))
            snprintf(c->values[i].why, sizeof(c->values[i].why),
                     "this cell does not measure it");
}

static json_t *measured(const struct study_cell *c, const struct measure_noise *noise,
                        double wall_s)
{
    return json_pack("{s:O, s:o, s:o, s:f, s:I, s:b}", "notes", c->notes, "counters",
                     measure_noise_json(noise), "energy", run_energy_json(&c->energy),
                     "wall_s", wall_s, "rss_peak_bytes", (json_int_t)mem_rss_peak_bytes(),
                     "valid", 1);
}

/* Simulated and computed values do not depend on what else the machine did. */
static bool is_measured(const char *evidence)
{
    return strncmp(evidence, "measured", strlen("measured")) == 0;
}

static enum record_state state_of(int rc)
{
    return rc == OK                                      ? RECORD_DONE
           : rc == ERR_NOTFOUND || rc == ERR_UNSUPPORTED ? RECORD_SKIPPED
                                                         : RECORD_FAILED;
}

int run_study(struct run_session *s, const struct job_cell *job_cell)
{
    struct study_cell c;
    struct record_cell r = {0};
    struct measure_noise noise;
    uint64_t start_ns = clock_ns();
    char error[512] = "";
    json_t *a = NULL;
    int rc = begin(&c, s);

    progress_study(s->progress, job_cell->key, s->weight, clock_ns());
    if (rc == OK)
        rc = measure_noise_begin(&noise);
    if (rc == OK) {
        run_energy_open(&c.energy);
        c.energy.start_ns = clock_ns();
        run_energy_read(&c.energy);
        rc = run_it(&c, job_cell);
        run_energy_read(&c.energy);
    }
    if (rc == OK)
        rc = measure_noise_end(&noise);
    r.state = state_of(rc);
    if (rc == OK) {
        complete(&c);
        r.evidence = kind_of(&c, "");
        if (is_measured(r.evidence ? r.evidence : s->job->evidence))
            measure_noise_warn(&noise, job_cell->key);
        r.values = c.values;
        r.n_values = c.n_values;
        r.series = c.series;
        r.n_series = c.n_series;
        a = measured(&c, &noise, (double)(clock_ns() - start_ns) / 1e9);
        r.attributes = a;
    } else {
        snprintf(error, sizeof(error), "%s", err_msg());
        log_line(r.state == RECORD_SKIPPED ? LOG_INFO : LOG_ERROR, "%s: %s: %s",
                 job_cell->key, record_states[r.state], error);
    }
    rc = run_record(s, job_cell, &r, error);
    json_decref(a);
    end(&c);
    return rc;
}
