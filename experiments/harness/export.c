#include "experiments/harness/export.h"

#include <string.h>

#include "base/name.h"
#include "experiments/harness/export_forms.h"

static const char *const words[] = {
    [EXPORT_CSV_REQUESTS] = "csv",
    [EXPORT_CSV_CELLS] = "csv-cells",
    [EXPORT_JSON] = "json",
    [EXPORT_MARKDOWN] = "markdown",
    NULL,
};

int export_format_find(const char *name, enum export_format *out)
{
    int i = name_index(words, name);

    if (i < 0)
        return name_unknown(ERR_NOTFOUND, name, words,
                            "format \"%s\": expected csv, csv-cells, json or markdown",
                            name);
    *out = (enum export_format)i;
    return OK;
}

int export_cells(const struct export_result *r, json_t **out)
{
    json_t *cell;
    int rc = OK;

    *out = json_array();
    if (!*out)
        return err_set(ERR_NOMEM, "%s: out of memory", r->path);
    for (size_t i = 0; rc == OK && i < r->n_cells; i++) {
        rc = export_cell(r, i, &cell);
        if (rc == OK && json_array_append_new(*out, cell) != 0)
            rc = err_set(ERR_NOMEM, "%s: out of memory", r->path);
    }
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int export_file(const char *h5_path, enum export_format format, FILE *f)
{
    static int (*const forms[])(const struct export_result *r, FILE *f) = {
        [EXPORT_CSV_REQUESTS] = export_csv_requests,
        [EXPORT_CSV_CELLS] = export_csv_cells,
        [EXPORT_JSON] = export_json,
        [EXPORT_MARKDOWN] = export_markdown,
    };
    struct export_result r;
    int rc = export_open(&r, h5_path);

    if (rc != OK)
        return rc;
    rc = forms[format](&r, f);
    export_close(&r);
    if (rc == OK && (fflush(f) != 0 || ferror(f)))
        rc = err_set(ERR_IO, "%s: cannot write the export: %m", h5_path);
    return rc;
}
