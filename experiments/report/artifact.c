#include "experiments/report/artifact.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/job/job.h"

#define STATE_BYTES   ((size_t)1 << 20)
#define LEAST_MINUTES 0.1 /* building up and tearing down take that long at least */

static double per_minute(int n, const struct artifact_item *i)
{
    return n / (i->minutes > LEAST_MINUTES ? i->minutes : LEAST_MINUTES);
}

static int compare(double first, double second)
{
    return first > second ? -1 : first < second;
}

static int by_value(const void *a, const void *b)
{
    const struct artifact_item *x = a, *y = b;
    int c = compare(per_minute(x->n_should, x), per_minute(y->n_should, y));

    if (c == 0)
        c = compare(per_minute(x->n_claims, x), per_minute(y->n_claims, y));
    if (c == 0)
        c = compare(y->minutes, x->minutes);
    return c ? c : strcmp(x->name, y->name);
}

void artifact_sort(struct artifact_item *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
}

static int read_item(struct artifact_item *out, const char *name,
                     const struct claims *claims)
{
    struct job *j = NULL;
    int rc = job_read(&j, name, NULL);

    *out = (struct artifact_item){.name = name};
    if (rc != OK)
        return rc;
    out->minutes = j->cost.minutes;
    job_free(&j);
    for (size_t i = 0; i < claims->n; i++) {
        const struct claim *c = &claims->v[i];

        if (c->why || !c->experiment || strcmp(c->experiment, name) != 0)
            continue;
        out->n_claims++;
        out->n_should += c->should != CLAIM_NO_RECORD;
    }
    return OK;
}

int artifact_read(struct artifact_list *out, const struct claims *claims)
{
    const json_t *name;
    size_t i;

    *out = (struct artifact_list){0};
    TRY(job_names(&out->names));
    out->v = mem_new(MEM_HARNESS, json_array_size(out->names) + 1, sizeof(*out->v));
    json_array_foreach(out->names, i, name)
        TRY(read_item(&out->v[out->n++], json_string_value(name), claims));
    artifact_sort(out->v, out->n);
    return OK;
}

void artifact_fini(struct artifact_list *l)
{
    mem_free(l->v);
    json_decref(l->names);
    *l = (struct artifact_list){0};
}

int artifact_state_read(json_t **out, const char *path)
{
    const char *name;
    json_t *run;
    int rc = path ? json_read_file(out, path, STATE_BYTES) : ERR_NOTFOUND;

    if (rc == ERR_NOTFOUND) {
        *out = json_object();
        return OK;
    }
    if (rc == OK && !json_is_object(*out))
        rc = err_set(ERR_FORMAT, "%s: expected an object", path);
    if (rc == OK)
        json_object_foreach(*out, name, run)
        {
            double minutes = 0;

            rc = json_get_f64(run, "minutes", &minutes, path);
            if (rc == OK && !(minutes >= 0))
                rc = err_set(ERR_FORMAT, "%s: %s: expected minutes from 0", path, name);
            if (rc != OK)
                break;
        }
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
