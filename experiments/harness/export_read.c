#include "experiments/harness/export_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "experiments/harness/metrics.h"

#define TEXT_MAX ((size_t)1 << 20)

static int damaged(const struct export_result *r, const char *what, const char *name)
{
    H5Eclear2(H5E_DEFAULT);
    return err_set(ERR_FORMAT, "%s: %s: expected %s", r->path, name, what);
}

static int out_of_memory(const struct export_result *r)
{
    return err_set(ERR_NOMEM, "%s: out of memory", r->path);
}

/* --- attributes as JSON */

static json_t *text_value(hid_t attribute, hid_t type)
{
    size_t n = H5Tget_size(type);
    json_t *v = NULL;
    char *text;

    if (n > TEXT_MAX || H5Tis_variable_str(type) > 0)
        return NULL;
    text = mem_new(MEM_HARNESS, n + 1, 1);
    if (text && H5Aread(attribute, type, text) >= 0)
        v = json_stringn(text, strlen(text));
    mem_free(text);
    return v;
}

static json_t *attribute_value(hid_t attribute)
{
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    json_t *v = NULL;
    int64_t i = 0;
    double d = 0;

    if (type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        if (H5Tget_class(type) == H5T_STRING)
            v = text_value(attribute, type);
        else if (H5Tget_class(type) == H5T_INTEGER &&
                 H5Aread(attribute, H5T_NATIVE_INT64, &i) >= 0)
            v = H5Tget_size(type) == 1 ? json_boolean(i) : json_integer(i);
        else if (H5Tget_class(type) == H5T_FLOAT &&
                 H5Aread(attribute, H5T_NATIVE_DOUBLE, &d) >= 0)
            v = isfinite(d) ? json_real(d) : json_null();
    }
    H5Sclose(space);
    H5Tclose(type);
    return v;
}

static herr_t take_attribute(hid_t loc, const char *name, const H5A_info_t *info,
                             void *obj)
{
    hid_t a = H5Aopen(loc, name, H5P_DEFAULT);
    json_t *v = a >= 0 ? attribute_value(a) : NULL;

    (void)info;
    if (a >= 0)
        H5Aclose(a);
    return v && json_object_set_new(obj, name, v) == 0 ? 0 : -1;
}

/* In the order of their names, whatever order they were written in. */
static int attributes_json(const struct export_result *r, hid_t loc, json_t **out)
{
    hsize_t at = 0;

    *out = json_object();
    if (!*out)
        return out_of_memory(r);
    if (H5Aiterate2(loc, H5_INDEX_NAME, H5_ITER_INC, &at, take_attribute, *out) >= 0)
        return OK;
    json_decref(*out);
    *out = NULL;
    return damaged(r, "readable scalars", "attributes");
}

/* --- groups of scalars with a unit: summary and headline */

static herr_t take_scalar(hid_t group, const char *name, const H5L_info_t *info,
                          void *obj)
{
    hid_t set = H5Dopen2(group, name, H5P_DEFAULT);
    hsize_t at = 0;
    json_t *v = json_object();
    double x = NAN;
    int bad =
        !v || set < 0 ||
        H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &x) < 0 ||
        H5Aiterate2(set, H5_INDEX_NAME, H5_ITER_INC, &at, take_attribute, v) < 0 ||
        json_object_set_new(v, "value", isfinite(x) ? json_real(x) : json_null()) != 0;

    (void)info;
    if (set >= 0)
        H5Dclose(set);
    if (bad) {
        json_decref(v);
        return -1;
    }
    return json_object_set_new(obj, name, v) == 0 ? 0 : -1;
}

static int scalars_json(const struct export_result *r, hid_t loc, const char *name,
                        json_t **out)
{
    hid_t group = H5Gopen2(loc, name, H5P_DEFAULT);
    hsize_t at = 0;
    herr_t bad = -1;

    *out = json_object();
    if (!*out) {
        H5Gclose(group);
        return out_of_memory(r);
    }
    if (group >= 0) {
        bad = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, take_scalar, *out);
        H5Gclose(group);
    }
    if (bad >= 0)
        return OK;
    json_decref(*out);
    *out = NULL;
    return damaged(r, "a group of numbers", name);
}

/* --- the file */

int export_open(struct export_result *r, const char *path)
{
    H5G_info_t info;

    *r = (struct export_result){.file = -1, .cells = -1, .path = path};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* we say it in one line */
    if (access(path, R_OK) != 0)
        return err_set(ERR_NOTFOUND, "%s: cannot open: %m", path);
    r->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (r->file < 0)
        return damaged(r, "an HDF5 file", "offset 0");
    r->cells = H5Gopen2(r->file, "/cells", H5P_DEFAULT);
    if (r->cells < 0 || H5Gget_info(r->cells, &info) < 0) {
        export_close(r);
        return damaged(r, "a group: this file is not a result of this program", "/cells");
    }
    r->n_cells = (size_t)info.nlinks;
    return OK;
}

void export_close(struct export_result *r)
{
    if (r->cells >= 0)
        H5Gclose(r->cells);
    if (r->file >= 0)
        H5Fclose(r->file);
    r->cells = r->file = -1;
}

int export_root(const struct export_result *r, json_t **attributes, json_t **headline)
{
    int rc = attributes_json(r, r->file, attributes);

    *headline = NULL;
    if (rc != OK)
        return rc;
    rc = scalars_json(r, r->file, "headline", headline);
    if (rc != OK) {
        json_decref(*attributes);
        *attributes = NULL;
    }
    return rc;
}

static int open_cell(const struct export_result *r, size_t index, hid_t *out)
{
    char name[24];

    snprintf(name, sizeof(name), "%04zu", index);
    *out = H5Gopen2(r->cells, name, H5P_DEFAULT);
    return *out < 0 ? damaged(r, "a cell of this number", name) : OK;
}

int export_cell(const struct export_result *r, size_t index, json_t **out)
{
    json_t *attributes = NULL, *summary = NULL;
    hid_t cell;
    int rc = open_cell(r, index, &cell);

    *out = NULL;
    if (rc != OK)
        return rc;
    rc = attributes_json(r, cell, &attributes);
    if (rc == OK)
        rc = scalars_json(r, cell, "summary", &summary);
    if (rc == OK) {
        *out = json_pack("{s:O s:O}", "attributes", attributes, "summary", summary);
        rc = *out ? OK : out_of_memory(r);
    }
    json_decref(attributes);
    json_decref(summary);
    H5Gclose(cell);
    return rc;
}

/* --- requests */

static size_t width_of(enum record_column_kind kind)
{
    return kind == RECORD_COLUMN_ERROR ? EXPORT_ERROR_WIDTH
           : kind == RECORD_COLUMN_BOOL || kind == RECORD_COLUMN_STATUS ? 1
                                                                        : 8;
}

static int read_column(const struct export_result *r, hid_t group,
                       const struct record_column *c, size_t *n, void **out)
{
    hid_t set = H5Dopen2(group, c->name, H5P_DEFAULT);
    hid_t space = set >= 0 ? H5Dget_space(set) : -1, text = H5Tcopy(H5T_C_S1);
    hid_t types[] = {
        [RECORD_COLUMN_I64] = H5T_NATIVE_INT64, [RECORD_COLUMN_F64] = H5T_NATIVE_DOUBLE,
        [RECORD_COLUMN_BOOL] = H5T_NATIVE_INT8, [RECORD_COLUMN_STATUS] = H5T_NATIVE_INT8,
        [RECORD_COLUMN_ERROR] = text,
    };
    hssize_t got = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    int rc = OK;

    if (got < 0 || (*n != SIZE_MAX && *n != (size_t)got) ||
        H5Tset_size(text, EXPORT_ERROR_WIDTH) < 0 ||
        H5Tset_cset(text, H5T_CSET_UTF8) < 0) {
        rc = damaged(r, "a column as long as the others", c->name);
        goto out;
    }
    *n = (size_t)got;
    *out = mem_new(MEM_HARNESS, *n, width_of(c->kind));
    if (!*out)
        rc = ERR_NOMEM;
    else if (*n > 0 &&
             H5Dread(set, types[c->kind], H5S_ALL, H5S_ALL, H5P_DEFAULT, *out) < 0)
        rc = damaged(r, "a readable column", c->name);
out:
    H5Tclose(text);
    if (space >= 0)
        H5Sclose(space);
    if (set >= 0)
        H5Dclose(set);
    return rc;
}

int export_requests(const struct export_result *r, size_t index,
                    struct export_requests *out)
{
    hid_t cell, group;
    int rc = open_cell(r, index, &cell), i = 0;

    *out = (struct export_requests){0};
    if (rc != OK)
        return rc;
    if (H5Lexists(cell, "requests", H5P_DEFAULT) <= 0) {
        H5Gclose(cell);
        return OK; /* it serves nothing */
    }
    group = H5Gopen2(cell, "requests", H5P_DEFAULT);
    out->n = SIZE_MAX;
    for (const struct record_column *c = record_columns; rc == OK && c->name; c++)
        rc = group < 0 ? damaged(r, "a group", "requests")
                       : read_column(r, group, c, &out->n, &out->column[i++]);
    if (group >= 0)
        H5Gclose(group);
    H5Gclose(cell);
    if (rc != OK)
        export_requests_free(out);
    return rc;
}

void export_requests_free(struct export_requests *q)
{
    for (int i = 0; i < EXPORT_COLUMNS_MAX; i++)
        mem_free(q->column[i]);
    *q = (struct export_requests){0};
}
