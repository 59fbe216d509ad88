/* A measured cell on its way into the journal: what all kinds of cells say of themselves.
 */
#include "experiments/harness/run_session.h"

#include <math.h>

#include "base/json.h"
#include "base/log.h"

json_t *run_json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *warnings_json(void)
{
    struct log_warning w[64];
    json_t *list = json_array();
    int n;

    while (list && (n = log_warnings_take(w, 64)) > 0)
        for (int i = 0; i < n; i++)
            json_array_append_new(list,
                                  json_pack("{s:s, s:o, s:o, s:o}", "code", w[i].code,
                                            "observed", run_json_number(w[i].observed),
                                            "threshold", run_json_number(w[i].threshold),
                                            "text", json_string_lossy(w[i].text)));
    return list;
}

static json_t *attributes(const struct job_cell *c, const struct record_cell *r,
                          const char *error)
{
    json_t *a = json_deep_copy(c->settings);

    if (!a)
        return NULL;
    json_object_set(a, "axes", c->axes);
    json_object_set_new(a, "repeat", json_integer(c->repeat));
    json_object_set_new(a, "label", json_string_lossy(c->label));
    json_object_set_new(a, "warnings", warnings_json());
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
    s->outcome->n_done += r->state == RECORD_DONE;
    s->outcome->n_skipped += r->state == RECORD_SKIPPED;
    s->outcome->n_failed += r->state == RECORD_FAILED;
    r->key = c->key;
    r->attributes = a;
    if (r->state != RECORD_DONE)
        r->n_rows = r->n_values = r->n_series = 0;
    rc = journal_cell(s->journal, r);
    json_decref(a);
    return rc;
}
