/* A measured cell on its way into the journal: what all kinds of cells say of themselves.
 */
#include "experiments/harness/run_session.h"

#include "base/json.h"

static json_t *attributes(const struct job_cell *c, const struct record_cell *r,
                          const char *error)
{
    json_t *a = json_deep_copy(c->settings), *warnings = json_warnings_take();

    if (!a || !warnings) {
        json_decref(a);
        json_decref(warnings);
        return NULL;
    }
    json_object_set(a, "axes", c->axes);
    json_object_set_new(a, "repeat", json_integer(c->repeat));
    json_object_set_new(a, "label", json_string_lossy(c->label));
    json_object_set_new(a, "warnings", warnings);
    if (r->state == RECORD_DONE)
        json_object_update(a, (json_t *)r->attributes);
    else
        json_object_set_new(a, "error", json_string_lossy(error));
    return a;
}

int run_record(struct run_session *s, const struct job_cell *c, struct record_cell *r,
               const char *error)
{
    json_t *a = attributes(c, r, error);
    int rc;

    if (!a)
        return err_set(ERR_NOMEM, "%s: out of memory", c->key);
    if (!json_object_get(a, "trial")) { /* a trial is part of its cell */
        s->outcome->n_done += r->state == RECORD_DONE;
        s->outcome->n_skipped += r->state == RECORD_SKIPPED;
        s->outcome->n_failed += r->state == RECORD_FAILED;
    }
    r->key = c->key;
    r->attributes = a;
    if (r->state != RECORD_DONE)
        r->n_rows = r->n_values = r->n_series = 0;
    rc = journal_cell(s->journal, r);
    json_decref(a);
    return rc;
}
