#include <math.h>

#include "datasets/build.h"
#include "datasets/csv.h"

#define MAX_S 4e9 /* differences in nanoseconds fit 64 bits; 127 years */

struct columns {
    const struct dataset_csv_form *form;
    int prompt, output, arrival;
};

static int find_columns(const struct dataset_csv *t, struct columns *c)
{
    int rc = OK;

    c->arrival = -1;
    if (c->form->arrival)
        rc = dataset_csv_column(t, c->form->arrival, c->form->needs_arrival, &c->arrival);
    if (rc == OK)
        rc = dataset_csv_column(t, c->form->prompt, 1, &c->prompt);
    if (rc == OK)
        rc = dataset_csv_column(t, c->form->output, 1, &c->output);
    return rc;
}

static int seconds_ns(const struct dataset_csv *t, int column, int64_t *ns)
{
    double s;
    int rc = dataset_csv_number(t, column, &s);

    if (rc == OK && !(fabs(s) <= MAX_S))
        rc = dataset_csv_refuse(t, column, "a time of at most 4e9 seconds");
    if (rc == OK)
        *ns = (int64_t)(s * 1e9);
    return rc;
}

static int read_row(struct dataset *d, const struct dataset_csv *t,
                    const struct columns *c, bool *full)
{
    struct dataset_item it = {.arrival_s = NAN};
    int64_t ns = 0;

    if (c->arrival >= 0)
        TRY((c->form->time_ns ? c->form->time_ns : seconds_ns)(t, c->arrival, &ns));
    TRY(dataset_csv_count(t, c->prompt, DATASET_MAX_TOK, &it.n_prompt));
    TRY(dataset_csv_count(t, c->output, DATASET_MAX_TOK, &it.n_output));
    return c->arrival >= 0
               ? dataset_offer_at(d, &it, ns, dataset_input_where(t->in), full)
               : dataset_offer(d, &it, full);
}

int dataset_read_csv(struct dataset *d, const struct dataset_opts *o,
                     const struct dataset_csv_form *form)
{
    struct columns c = {.form = form};
    struct dataset_csv t;
    bool full = false;
    int more, rc = dataset_csv_init(&t, o->path);

    if (rc != OK)
        return rc;
    rc = find_columns(&t, &c);
    while (rc == OK && !full) {
        rc = dataset_csv_next(&t, &more);
        if (rc != OK || !more)
            break;
        rc = read_row(d, &t, &c, &full);
    }
    dataset_csv_fini(&t);
    return rc;
}
