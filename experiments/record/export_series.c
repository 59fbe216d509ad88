/* The arrays of all cells as CSV: a row for each element. */
#include <math.h>

#include "experiments/record/export_read.h"

/* The names of the arrays of all cells, in the order of their first appearance. */
static json_t *names_of(const struct export_result *r)
{
    json_t *names = json_object(), *v;
    const char *name;

    for (size_t i = 0; i < r->n_cells; i++) {
        json_t *cell = export_read_cell(r, i, true);

        json_object_foreach(json_object_get(cell, "series"), name, v)
            json_object_set_new(names, name, json_true());
        json_decref(cell);
    }
    return names;
}

static size_t longest_of(const json_t *series)
{
    size_t n = 0;
    json_t *v;
    const char *name;

    json_object_foreach((json_t *)series, name, v)
    {
        size_t k = json_array_size(json_object_get(v, "v"));

        n = k > n ? k : n;
    }
    return n;
}

void export_csv_series(const struct export_result *r, FILE *f)
{
    json_t *names = names_of(r), *v;
    const char *name;

    fputs("cell", f);
    json_object_foreach(names, name, v) fprintf(f, ",%s", name);
    fputs("\r\n", f);
    for (size_t i = 0; i < r->n_cells; i++) {
        json_t *cell = export_read_cell(r, i, true);
        const json_t *series = json_object_get(cell, "series");
        size_t n = longest_of(series);

        for (size_t k = 0; k < n; k++) {
            fprintf(f, "%zu", i);
            json_object_foreach(names, name, v)
            {
                const json_t *x = json_array_get(
                    json_object_get(json_object_get(series, name), "v"), k);

                fputc(',', f);
                if (json_is_number(x))
                    fprintf(f, "%.17g", json_number_value(x));
            }
            fputs("\r\n", f);
        }
        json_decref(cell);
    }
    json_decref(names);
}
