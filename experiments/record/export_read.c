#include "experiments/record/export_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/refuse.h"

#define TEXT_MAX     ((size_t)1 << 20)
#define DOCUMENT_MAX ((size_t)64 << 20)
/* Longer texts and names stand in attributes_json only. */
#define SCALAR_TEXT_MAX 4096
#define NAME_MAX_BYTES  256
/* No deflated byte becomes more than 1032. */
#define INFLATE_MAX 1100

struct shape { /* of a dataset */
    H5T_class_t class;
    size_t width;
    int rank_max;
    const char *what; /* after "expected" */
};

static _Noreturn void damaged(const struct export_result *r, const char *name,
                              const char *expected)
{
    child_exit(err_set(ERR_FORMAT, "%s: %s: expected %s", r->path, name, expected));
}

/* Steals `value`. */
static void set(const struct export_result *r, json_t *obj, const char *name,
                json_t *value)
{
    if (json_object_set_new(obj, name, value) != 0)
        damaged(r, "a name", "UTF-8");
}

/* --- attributes as JSON */

static json_t *text_value(hid_t attribute, hid_t type)
{
    size_t n = H5Tget_size(type);
    json_t *v = NULL;
    char *text;

    if (n == 0 || n > TEXT_MAX || H5Tis_variable_str(type) != 0)
        return NULL;
    text = mem_new(MEM_HARNESS, n + 1, 1);
    if (H5Aread(attribute, type, text) >= 0)
        v = json_string(text);
    mem_free(text);
    return v;
}

/* NULL: not a scalar text or number. */
static json_t *attribute_value(hid_t attribute)
{
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    json_t *v = NULL;
    int64_t i = 0;
    double d = 0;

    if (type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        H5T_class_t class = H5Tget_class(type);
        size_t n = H5Tget_size(type);

        if (class == H5T_STRING)
            v = text_value(attribute, type);
        else if (class == H5T_INTEGER && n <= 8 &&
                 H5Aread(attribute, H5T_NATIVE_INT64, &i) >= 0)
            v = n == 1 ? json_boolean(i) : json_integer(i);
        else if (class == H5T_FLOAT && n <= 8 &&
                 H5Aread(attribute, H5T_NATIVE_DOUBLE, &d) >= 0)
            v = json_number(d);
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return v;
}

struct attribute_list {
    const struct export_result *r;
    json_t *obj;
};

static herr_t take_attribute(hid_t loc, const char *name, const H5A_info_t *info,
                             void *ctx)
{
    struct attribute_list *t = ctx;
    hid_t a = H5Aopen(loc, name, H5P_DEFAULT);
    json_t *v = a >= 0 ? attribute_value(a) : NULL;

    (void)info;
    if (!v)
        damaged(t->r, name, "one number, or one text in UTF-8");
    H5Aclose(a);
    set(t->r, t->obj, name, v);
    return 0;
}

/* In the order of their names, whatever order they were written in. */
static json_t *attributes_json(const struct export_result *r, hid_t loc)
{
    struct attribute_list t = {r, json_object()};
    hsize_t at = 0;

    if (H5Aiterate2(loc, H5_INDEX_NAME, H5_ITER_INC, &at, take_attribute, &t) < 0)
        damaged(r, "attributes", "readable attributes");
    return t.obj;
}

/* --- datasets */

/* Its bytes are in this file, as many as its extent needs. */
static bool is_stored(const struct export_result *r, hid_t dataset, uint64_t n,
                      size_t width)
{
    hid_t p = H5Dget_create_plist(dataset);
    uint64_t stored = H5Dget_storage_size(dataset);
    bool here =
        p >= 0 && H5Pget_external_count(p) == 0 && H5Pget_layout(p) != H5D_VIRTUAL;

    if (p >= 0)
        H5Pclose(p);
    return here && stored <= r->file_bytes && n <= stored * INFLATE_MAX / width;
}

static hid_t open_dataset(const struct export_result *r, hid_t group, const char *name,
                          const struct shape *want, size_t *n)
{
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    hid_t type = dataset >= 0 ? H5Dget_type(dataset) : -1;
    hid_t space = dataset >= 0 ? H5Dget_space(dataset) : -1;
    hssize_t points = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;

    if (type < 0 || points < 0 || H5Tget_class(type) != want->class ||
        H5Tget_size(type) != want->width || H5Tis_variable_str(type) > 0)
        damaged(r, name, want->what);
    if (H5Sget_simple_extent_ndims(space) > want->rank_max ||
        (!want->rank_max && points != 1))
        damaged(r, name, want->what);
    if (!is_stored(r, dataset, (uint64_t)points, want->width))
        damaged(r, name, "as many bytes in the file as its extent needs");
    *n = (size_t)points;
    H5Sclose(space);
    H5Tclose(type);
    return dataset;
}

/* --- groups of scalars with a unit: summary and headline */

static herr_t take_scalar(hid_t group, const char *name, const H5L_info_t *info,
                          void *ctx)
{
    static const struct shape one = {H5T_FLOAT, sizeof(double), 0, "one number"};
    struct attribute_list *t = ctx;
    size_t n;
    hid_t dataset = open_dataset(t->r, group, name, &one, &n);
    json_t *v = attributes_json(t->r, dataset);
    double x = NAN;

    (void)info;
    if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &x) < 0)
        damaged(t->r, name, one.what);
    H5Dclose(dataset);
    set(t->r, v, "value", json_number(x));
    export_refuse(name, v);
    set(t->r, t->obj, name, v);
    return 0;
}

static json_t *members_json(const struct export_result *r, hid_t loc, const char *name,
                            H5L_iterate_t take)
{
    hid_t group = H5Gopen2(loc, name, H5P_DEFAULT);
    struct attribute_list t = {r, json_object()};
    hsize_t at = 0;

    if (group < 0 || H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, take, &t) < 0)
        damaged(r, name, "a group of numbers");
    H5Gclose(group);
    return t.obj;
}

static herr_t take_series(hid_t group, const char *name, const H5L_info_t *info,
                          void *ctx)
{
    static const struct shape list = {H5T_FLOAT, sizeof(double), 1, "a list of numbers"};
    struct attribute_list *t = ctx;
    size_t n;
    hid_t dataset = open_dataset(t->r, group, name, &list, &n);
    json_t *out = attributes_json(t->r, dataset), *v = json_array();
    double *x = mem_new(MEM_HARNESS, n + 1, sizeof(*x));

    (void)info;
    if (n > 0 &&
        H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) < 0)
        damaged(t->r, name, list.what);
    H5Dclose(dataset);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(v, json_number(x[i]));
    mem_free(x);
    set(t->r, out, "v", v);
    set(t->r, t->obj, name, out);
    return 0;
}

/* --- the file */

static void check_version(const struct export_result *r)
{
    const json_t *v = json_object_get(r->root, "schema_version");
    const json_int_t version = json_integer_value(v);

    if (version < 1 || version > RECORD_SCHEMA_VERSION)
        child_exit(err_set(ERR_FORMAT,
                           "%s: schema_version: expected 1 to %d, found %lld: not a "
                           "record of this version",
                           r->path, RECORD_SCHEMA_VERSION, (long long)version));
}

void export_read(struct export_result *r, const char *path, void *bytes, size_t n)
{
    H5G_info_t info;
    hid_t access;

    *r = (struct export_result){.path = path};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* our one line replaces its trace */
    access = H5Pcreate(H5P_FILE_ACCESS);
    /* A record never changes once it has its name, so a lock says nothing, not even that
     * of its writer, which may still be ending. */
    if (access < 0 || H5Pset_file_locking(access, false, true) < 0 ||
        (bytes && (H5Pset_fapl_core(access, (size_t)1 << 16, false) < 0 ||
                   H5Pset_file_image(access, bytes, n) < 0)))
        child_exit(err_set(ERR_NOMEM, "%s: out of memory", path));
    /* HDF5 refuses an image by the name of a file that exists. */
    r->file = H5Fopen(bytes ? "/dev/null/image" : path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (r->file < 0 || H5Fget_filesize(r->file, &r->file_bytes) < 0)
        damaged(r, "offset 0", "an HDF5 file");
    r->cells = H5Gopen2(r->file, "/cells", H5P_DEFAULT);
    if (r->cells < 0 || H5Gget_info(r->cells, &info) < 0)
        damaged(r, "/cells", "a group, as in every result of this program");
    r->n_cells = (size_t)info.nlinks;
    r->root = attributes_json(r, r->file);
    check_version(r);
    r->headline = members_json(r, r->file, "headline", take_scalar);
}

static hid_t open_cell(const struct export_result *r, size_t index)
{
    char name[24];
    hid_t cell;

    snprintf(name, sizeof(name), "%04zu", index);
    cell = H5Gopen2(r->cells, name, H5P_DEFAULT);
    if (cell < 0)
        damaged(r, name, "a cell of this number");
    return cell;
}

/* mem_free() */
static char *read_text(const struct export_result *r, hid_t loc, const char *name)
{
    hid_t dataset = H5Dopen2(loc, name, H5P_DEFAULT);
    hid_t type = dataset >= 0 ? H5Dget_type(dataset) : -1;
    hid_t space = dataset >= 0 ? H5Dget_space(dataset) : -1;
    size_t n = type >= 0 ? H5Tget_size(type) : 0;
    char *text;

    if (n == 0 || n > DOCUMENT_MAX || H5Tget_class(type) != H5T_STRING ||
        H5Tis_variable_str(type) != 0 || H5Sget_simple_extent_npoints(space) != 1 ||
        !is_stored(r, dataset, 1, n))
        damaged(r, name, "a text");
    text = mem_new(MEM_HARNESS, n + 1, 1);
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text) < 0)
        damaged(r, name, "a readable text");
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    return text;
}

char *export_read_document(const struct export_result *r, const char *name)
{
    return H5Lexists(r->file, name, H5P_DEFAULT) > 0 ? read_text(r, r->file, name) : NULL;
}

hid_t export_open_object(const struct export_result *r, const char *path,
                         const char *name, const char *attribute, char text[65])
{
    hid_t group = H5Gopen2(r->file, path, H5P_DEFAULT), object = -1, a;
    const bool is_root = strcmp(name, "/") == 0;
    json_t *v = NULL;

    if (group >= 0 && (is_root || H5Lexists(group, name, H5P_DEFAULT) > 0))
        object = H5Oopen(group, name, H5P_DEFAULT);
    if (group >= 0)
        H5Gclose(group);
    if (object < 0)
        return -1;
    if (H5Aexists(object, attribute) > 0) {
        a = H5Aopen(object, attribute, H5P_DEFAULT);
        v = a >= 0 ? attribute_value(a) : NULL;
        H5Aclose(a);
    }
    snprintf(text, 65, "%s", json_is_string(v) ? json_string_value(v) : "");
    json_decref(v);
    return object;
}

/* Every scalar below `from`, nested ones by dotted name, unless one of that name is there. */
static void take_scalars(json_t *out, const char *prefix, const json_t *from)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)from, key, v)
    {
        char name[NAME_MAX_BYTES];
        int n = snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "." : "", key);

        if (n >= (int)sizeof(name) || json_object_get(out, name))
            continue;
        if (json_is_object(v))
            take_scalars(out, name, v);
        else if (json_is_number(v) || json_is_boolean(v) ||
                 (json_is_string(v) && json_string_length(v) <= SCALAR_TEXT_MAX))
            json_object_set(out, name, v);
    }
}

/* Records of version 1 have some of them as attributes of HDF5. */
static json_t *cell_attributes(const struct export_result *r, hid_t cell)
{
    char *text = read_text(r, cell, "attributes_json");
    json_t *doc, *attributes = attributes_json(r, cell);

    if (json_read_own(&doc, text, strlen(text), "attributes_json") != OK)
        child_exit(err_prefix(ERR_FORMAT, "%s", r->path));
    take_scalars(attributes, "", doc);
    json_decref(doc);
    mem_free(text);
    return attributes;
}

json_t *export_read_cell(const struct export_result *r, size_t index, bool with_series)
{
    hid_t cell = open_cell(r, index);
    json_t *out = json_object(), *attributes = cell_attributes(r, cell);
    char where[40];

    snprintf(where, sizeof(where), "/cells/%04zu", index);
    if (!json_is_string(json_object_get(attributes, "key")))
        damaged(r, where, "a \"key\" in attributes_json that is a text");
    set(r, out, "attributes", attributes);
    set(r, out, "summary", members_json(r, cell, "summary", take_scalar));
    if (with_series)
        set(r, out, "series",
            H5Lexists(cell, "series", H5P_DEFAULT) > 0
                ? members_json(r, cell, "series", take_series)
                : json_object());
    H5Gclose(cell);
    return out;
}

json_t *export_read_cells(const struct export_result *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_cells; i++)
        json_array_append_new(list, export_read_cell(r, i, false));
    return list;
}

/* --- requests */

static void *read_column(const struct export_result *r, hid_t group,
                         const struct record_column *c, size_t *n)
{
    static const struct shape shapes[] = {
        [RECORD_COLUMN_I64] = {H5T_INTEGER, 8, 1, "a column of 64-bit integers"},
        [RECORD_COLUMN_F64] = {H5T_FLOAT, 8, 1, "a column of doubles"},
        [RECORD_COLUMN_BOOL] = {H5T_INTEGER, 1, 1, "a column of bytes"},
        [RECORD_COLUMN_STATUS] = {H5T_INTEGER, 1, 1, "a column of bytes"},
        [RECORD_COLUMN_ERROR] = {H5T_STRING, RECORD_ERROR_BYTES, 1, "a column of texts"},
    };
    const struct shape *shape = &shapes[c->kind];
    hid_t dataset = open_dataset(r, group, c->name, shape, n);
    hid_t type = shape->class == H5T_FLOAT    ? H5Tcopy(H5T_NATIVE_DOUBLE)
                 : shape->class == H5T_STRING ? H5Dget_type(dataset)
                 : shape->width == 8          ? H5Tcopy(H5T_NATIVE_INT64)
                                              : H5Tcopy(H5T_NATIVE_INT8);
    void *data = mem_new(MEM_HARNESS, *n, shape->width);

    if (*n > 0 && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        damaged(r, c->name, "a readable column");
    H5Tclose(type);
    H5Dclose(dataset);
    return data;
}

/* As many tokens as the offsets say, in the order of the requests. */
static void read_tokens(const struct export_result *r, hid_t cell,
                        struct export_requests *q)
{
    static const struct record_column offset = {.name = "offset"},
                                      time = {.name = "time_ns"};
    hid_t group = H5Gopen2(cell, "tokens", H5P_DEFAULT);
    size_t n_offset, n_time;

    if (group < 0)
        damaged(r, "tokens", "a group");
    q->token_offset = read_column(r, group, &offset, &n_offset);
    q->token_ns = read_column(r, group, &time, &n_time);
    H5Gclose(group);
    if (n_offset != q->n + 1 || q->token_offset[0] != 0 ||
        q->token_offset[q->n] != (int64_t)n_time)
        damaged(r, "tokens/offset",
                "one element more than requests, the last of them the "
                "number of tokens");
    for (size_t i = 0; i < q->n; i++)
        if (q->token_offset[i] > q->token_offset[i + 1])
            damaged(r, "tokens/offset", "offsets that do not decrease");
}

void export_read_requests(const struct export_result *r, size_t index, bool with_tokens,
                          struct export_requests *out)
{
    hid_t cell = open_cell(r, index), group;
    size_t n;

    *out = (struct export_requests){0};
    if (H5Lexists(cell, "requests", H5P_DEFAULT) > 0) {
        group = H5Gopen2(cell, "requests", H5P_DEFAULT);
        if (group < 0)
            damaged(r, "requests", "a group");
        for (int i = 0; record_columns[i].name; i++) {
            out->column[i] = read_column(r, group, &record_columns[i], &n);
            if (i > 0 && n != out->n)
                damaged(r, record_columns[i].name, "a column as long as the others");
            out->n = n;
        }
        H5Gclose(group);
        if (with_tokens && out->n > 0)
            read_tokens(r, cell, out);
    }
    H5Gclose(cell);
}

void export_requests_free(struct export_requests *q)
{
    for (int i = 0; i < EXPORT_COLUMNS_MAX; i++)
        mem_free(q->column[i]);
    mem_free(q->token_ns);
    mem_free(q->token_offset);
    *q = (struct export_requests){0};
}
