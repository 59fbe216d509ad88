/* A measured cell on its way into the journal: what all kinds of cells say of themselves.
 */
#include "experiments/run/session.h"

#include <math.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "experiments/record/head.h"
#include "measure/card.h"
#include "measure/noise.h"

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

static bool was_disturbed(const json_t *warnings)
{
    json_t *w;
    size_t i;

    json_array_foreach((json_t *)warnings, i,
                       w) if (measure_noise_is(json_str_at(w, "code", ""))) return true;
    return false;
}

#define RETRIED_FREELY 3
#define RETRIED_ONE_IN 10

bool run_retry(struct run_session *s)
{
    const bool again = s->was_disturbed && s->n_retries_in_turn < s->o->retries &&
                       s->n_retried < RETRIED_FREELY + s->n_recorded / RETRIED_ONE_IN;

    s->n_retries_in_turn = again ? s->n_retries_in_turn + 1 : 0;
    if (!again)
        return false;
    s->n_retried++;
    s->outcome->n_invalid -=
        s->was_invalid; /* which was of the attempt that no longer counts */
    log_info("something else used the machine: this is measured again");
    run_system_close(&s->system);
    return true;
}

int run_record(struct run_session *s, const struct job_cell *c, struct record_cell *r,
               const char *error)
{
    json_t *a;
    int rc;

    if (r->state != RECORD_DONE)
        r->n_rows = r->n_values = r->n_series = 0;
    refuse_shares(c, r);
    a = attributes(c, r, error); /* which takes the warnings */
    s->n_recorded++;
    s->state = r->state;
    if (!r->evidence)
        r->evidence = s->job->evidence;
    s->was_disturbed = r->state == RECORD_DONE && export_is_timed(r->evidence) &&
                       was_disturbed(json_object_get(a, "warnings"));
    s->was_invalid = json_is_false(json_object_get(a, "valid"));
    r->key = c->key;
    r->attributes = a;
    rc = journal_cell(s->journal, r);
    json_decref(a);
    return rc;
}
