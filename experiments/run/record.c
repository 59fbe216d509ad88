/* A measured cell on its way into the journal: what all kinds of cells say of themselves.
 */
#include "experiments/run/session.h"

#include <math.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "measure/card.h"

/* The codes of the warnings, each once, as one text: a list is no attribute in HDF5, where a
 * table of cells and `testbed compare` look for them. */
static json_t *codes_of(const json_t *warnings)
{
    json_t *codes = json_object(), *w, *text;
    struct text t = {0};
    const char *code;
    size_t i;

    json_array_foreach(warnings, i, w)
        json_object_set(codes, json_string_value(json_object_get(w, "code")), w);
    json_object_foreach(codes, code, w) text_printf(&t, "%s%s", t.n ? " " : "", code);
    text = json_stringn(t.p ? t.p : "", t.n);
    text_fini(&t);
    json_decref(codes);
    return text;
}

static json_t *attributes(const struct job_cell *c, const struct record_cell *r,
                          const char *error)
{
    json_t *a = json_deep_copy(c->settings), *warnings = json_warnings_take();

    json_object_set(a, "axes", c->axes);
    json_object_set_new(a, "repeat", json_integer(c->repeat));
    json_object_set_new(a, "label", json_string_lossy(c->label));
    if (json_array_size(warnings) > 0)
        json_object_set_new(a, "warned", codes_of(warnings));
    json_object_set_new(a, "warnings", warnings);
    if (r->state == RECORD_DONE)
        json_object_update(a, (json_t *)r->attributes);
    else
        json_object_set_new(a, "error", json_string_lossy(error));
    return a;
}

/* A share above what its bound allows says that the bound is wrong: it is n/a, with a warning in
 * the cell. */
static void refuse_shares(const struct job_cell *c, struct record_cell *r)
{
    for (size_t i = 0; i < r->n_values; i++) {
        struct metrics_value *v = &r->values[i];

        if (!metrics_exceeds_bound(v->name, v->unit, v->value, v->why))
            continue;
        log_warning("bound_exceeded", v->value, MEASURE_SHARE_MAX, "%s: %s: %s", c->key,
                    v->name, v->why);
        v->value = NAN;
        v->has_interval = false;
    }
}

int run_record(struct run_session *s, const struct job_cell *c, struct record_cell *r,
               const char *error)
{
    json_t *a;
    int rc;

    if (r->state != RECORD_DONE)
        r->n_rows = r->n_values = r->n_series = 0;
    refuse_shares(c, r);
    a = attributes(c, r, error);        /* which takes the warnings */
    if (!json_object_get(a, "trial")) { /* a trial is part of its cell */
        s->outcome->n_done += r->state == RECORD_DONE;
        s->outcome->n_skipped += r->state == RECORD_SKIPPED;
        s->outcome->n_failed += r->state == RECORD_FAILED;
    }
    r->key = c->key;
    r->attributes = a;
    if (!r->evidence)
        r->evidence = s->job->evidence;
    rc = journal_cell(s->journal, r);
    json_decref(a);
    return rc;
}
