#include "experiments/record/h5.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/load/study.h"
#include "experiments/record/fields.h"

/* Large arrays are chunked and compressed; small ones are not worth the index. */
#define CHUNK_N 8192
#define DEFLATE 1

static herr_t first_cause(unsigned n, const H5E_error2_t *e, void *out)
{
    const char *reason = strstr(e->desc, "error message = "); /* of a system call */

    (void)n;
    snprintf(out, 120, "%s", reason ? reason : e->desc);
    return 1; /* upward walk: the first is the innermost */
}

/* With the innermost cause of HDF5's error, on one line. */
static hid_t need(const struct record_h5 *h, hid_t result, const char *name)
{
    char cause[120] = "no reason given";

    if (result >= 0)
        return result;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_cause, cause);
    for (char *c = cause; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    child_exit(err_set(ERR_IO, "%s: cannot write %s: HDF5: %s", h->path, name, cause));
}

static hid_t make_group(struct record_h5 *h, hid_t parent, const char *name)
{
    return need(h, H5Gcreate2(parent, name, H5P_DEFAULT, h->groups, H5P_DEFAULT), name);
}

void record_h5_create(struct record_h5 *h, const char *path)
{
    hid_t access, creation;

    *h = (struct record_h5){.path = path};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* its stack goes to err_msg() */
    access = need(h, H5Pcreate(H5P_FILE_ACCESS), "properties");
    /* The journal and the file are locked by this program, where there are locks. */
    need(h, H5Pset_file_locking(access, false, true), "properties");
    creation = need(h, H5Pcreate(H5P_FILE_CREATE), "properties");
    h->groups = need(h, H5Pcreate(H5P_GROUP_CREATE), "properties");
    h->datasets = need(h, H5Pcreate(H5P_DATASET_CREATE), "properties");
    need(h, H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110), "properties");
    need(h, H5Pset_obj_track_times(creation, 0), "properties");
    need(h, H5Pset_obj_track_times(h->groups, 0), "properties");
    need(h, H5Pset_obj_track_times(h->datasets, 0), "properties");
    h->file = need(h, H5Fcreate(path, H5F_ACC_TRUNC, creation, access), "the file");
    h->cells = make_group(h, h->file, "cells");
}

static hid_t text_type(const struct record_h5 *h, size_t bytes)
{
    hid_t t = need(h, H5Tcopy(H5T_C_S1), "a text");

    need(h, H5Tset_size(t, bytes ? bytes : 1), "a text");
    need(h, H5Tset_strpad(t, H5T_STR_NULLPAD), "a text");
    need(h, H5Tset_cset(t, H5T_CSET_UTF8), "a text");
    return t;
}

/* --- attributes */

static void attr(struct record_h5 *h, hid_t loc, const char *name, hid_t type,
                 const void *data)
{
    hid_t space = need(h, H5Screate(H5S_SCALAR), name);
    hid_t a = need(h, H5Acreate2(loc, name, type, space, H5P_DEFAULT, H5P_DEFAULT), name);

    need(h, H5Awrite(a, type, data), name);
    H5Aclose(a);
    H5Sclose(space);
}

static void attr_text(struct record_h5 *h, hid_t loc, const char *name, const char *text)
{
    hid_t type = text_type(h, strlen(text));

    attr(h, loc, name, type, text);
    H5Tclose(type);
}

/* A text, number or truth. */
static void attr_json(struct record_h5 *h, hid_t loc, const char *name, const json_t *v)
{
    int64_t i = json_integer_value(v);
    double d = json_real_value(v);
    int8_t b = json_is_true(v);

    if (json_is_string(v))
        attr_text(h, loc, name, json_string_value(v));
    else if (json_is_integer(v))
        attr(h, loc, name, H5T_STD_I64LE, &i);
    else if (json_is_real(v))
        attr(h, loc, name, H5T_IEEE_F64LE, &d);
    else
        attr(h, loc, name, H5T_STD_I8LE, &b);
}

/* The next link of the chain of hashes: the object `name` below `loc` (".": itself), which is
 * whole. */
static void put_chain(struct record_h5 *h, hid_t loc, const char *name, const char *as)
{
    hid_t object = need(h, H5Oopen(loc, name, H5P_DEFAULT), as);

    need(h, record_chain_next(h->chain, object, as) == OK ? 0 : -1, as);
    attr_text(h, object, RECORD_CHAIN_ATTRIBUTE, h->chain);
    H5Oclose(object);
}

/* --- datasets */

static void compress(struct record_h5 *h, hid_t properties, const char *name)
{
    hsize_t chunk = CHUNK_N;

    need(h, H5Pset_chunk(properties, 1, &chunk), name);
    need(h, H5Pset_shuffle(properties), name);
    need(h, H5Pset_deflate(properties, DEFLATE), name);
}

struct data {
    const char *name;
    hid_t type;        /* H5T_IEEE_F64LE or the like; -1: texts, as UTF-8 padded by NUL */
    size_t text_bytes; /* of one such text */
    const void *data;
    size_t n;
    bool scalar; /* one element without a dimension */
    const char *unit;
    const char *meaning; /* NULL: that of `field` in the table */
    const char *field;
    const char *why, *better, *evidence; /* further attributes, NULL: none */
    size_t n_left_out;                   /* another one, 0: none */
    bool interval; /* two more: lo and hi, of a missing number its bounds; NaN: neither */
    double lo, hi;
    bool detectable; /* another one, detectable_frac */
    double detectable_frac;
    const char *detectable_why; /* or its reason; NULL: neither */
};

static void put(struct record_h5 *h, hid_t parent, const struct data *d)
{
    hsize_t n = d->n;
    hid_t type =
        d->type < 0 ? text_type(h, d->text_bytes) : need(h, H5Tcopy(d->type), d->name);
    hid_t space = need(
        h, d->scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &n, NULL), d->name);
    hid_t properties = need(h, H5Pcopy(h->datasets), d->name), set;

    if (!d->scalar && d->n >= CHUNK_N && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
        compress(h, properties, d->name);
    set = need(
        h, H5Dcreate2(parent, d->name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
        d->name);
    if (d->n > 0)
        need(h, H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d->data), d->name);
    attr_text(h, set, "unit", d->unit);
    attr_text(h, set, "meaning",
              d->meaning ? d->meaning : record_field_meaning(d->field));
    if (d->better)
        attr_text(h, set, "better", d->better);
    if (d->why)
        attr_text(h, set, "why", d->why);
    if (d->evidence)
        attr_text(h, set, "evidence", d->evidence);
    if (d->n_left_out)
        attr(h, set, "n_left_out", H5T_STD_I64LE, &(int64_t){(int64_t)d->n_left_out});
    if (d->interval && isfinite(d->lo))
        attr(h, set, d->why ? RECORD_AT_LEAST : "lo", H5T_IEEE_F64LE, &d->lo);
    if (d->interval && isfinite(d->hi))
        attr(h, set, d->why ? RECORD_AT_MOST : "hi", H5T_IEEE_F64LE, &d->hi);
    if (d->detectable)
        attr(h, set, "detectable_frac", H5T_IEEE_F64LE, &d->detectable_frac);
    else if (d->detectable_why)
        attr_text(h, set, "detectable_why", d->detectable_why);
    need(h, H5Dclose(set), d->name);
    H5Pclose(properties);
    H5Sclose(space);
    H5Tclose(type);
}

static void put_text(struct record_h5 *h, hid_t loc, const char *name, const char *text,
                     const char *field)
{
    put(h, loc,
        &(struct data){.name = name,
                       .type = -1,
                       .text_bytes = strlen(text),
                       .data = text,
                       .n = 1,
                       .scalar = true,
                       .unit = "",
                       .field = field});
}

static void put_json(struct record_h5 *h, hid_t loc, const char *name, const json_t *v,
                     const char *field)
{
    char *text = json_text(v, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_ENCODE_ANY);

    put_text(h, loc, name, text, field);
    mem_free(text);
}

/* NaN has one pattern, whatever arithmetic made it: the file is reproducible. */
static void put_scalar(struct record_h5 *h, hid_t group, const struct record_headline *v,
                       const char *meaning)
{
    const double value = isnan(v->value) ? (double)NAN : v->value;
    const char *why = v->why && v->why[0] ? v->why : "no reason given";

    put(h, group,
        &(struct data){.name = v->name,
                       .type = H5T_IEEE_F64LE,
                       .data = &value,
                       .n = 1,
                       .scalar = true,
                       .unit = v->unit,
                       .meaning = meaning,
                       .better = v->better && v->better[0] ? v->better : NULL,
                       .why = isnan(value) ? why : NULL,
                       .evidence = v->evidence,
                       .n_left_out = v->n_left_out,
                       .interval = v->has_interval,
                       .lo = v->lo,
                       .hi = v->hi,
                       .detectable = v->has_detectable,
                       .detectable_frac = v->detectable_frac,
                       .detectable_why = v->detectable_why});
}

/* --- requests and tokens */

static void put_column(struct record_h5 *h, hid_t group, const struct record_column *c,
                       const struct record_cell *cell)
{
    hid_t type = -1;
    size_t width = RECORD_ERROR_BYTES;
    char *data;

    if (c->kind == RECORD_COLUMN_I64 || c->kind == RECORD_COLUMN_F64)
        type = c->kind == RECORD_COLUMN_I64 ? H5T_STD_I64LE : H5T_IEEE_F64LE, width = 8;
    else if (c->kind != RECORD_COLUMN_ERROR)
        type = H5T_STD_I8LE, width = 1; /* of an enum its low byte */
    data = mem_new(MEM_HARNESS, cell->n_rows, width);
    for (size_t i = 0; i < cell->n_rows; i++)
        memcpy(data + i * width, (const char *)&cell->rows[i] + c->offset, width);
    put(h, group,
        &(struct data){.name = c->name,
                       .type = type,
                       .text_bytes = width,
                       .data = data,
                       .n = cell->n_rows,
                       .unit = c->unit,
                       .meaning = c->meaning});
    mem_free(data);
}

static void put_requests(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g = make_group(h, group, "requests");

    for (const struct record_column *c = record_columns; c->name; c++)
        put_column(h, g, c, cell);
    H5Gclose(g);
}

static void put_tokens(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g = make_group(h, group, "tokens");
    int64_t *offset = mem_new(MEM_HARNESS, cell->n_rows + 1, sizeof(*offset)), *time_ns;
    struct data d = {.type = H5T_STD_I64LE};

    for (size_t i = 0; i < cell->n_rows; i++)
        offset[i + 1] = offset[i] + cell->rows[i].n_tok;
    time_ns = mem_new(MEM_HARNESS, (size_t)offset[cell->n_rows], sizeof(*time_ns));
    for (size_t i = 0; i < cell->n_rows; i++)
        if (cell->rows[i].n_tok)
            memcpy(time_ns + offset[i], cell->rows[i].token_ns,
                   (size_t)cell->rows[i].n_tok * sizeof(*time_ns));
    d.name = "offset";
    d.data = offset;
    d.n = cell->n_rows + 1;
    d.unit = "";
    d.field = "/cells/NNNN/tokens/offset";
    put(h, g, &d);
    d.name = "time_ns";
    d.data = time_ns;
    d.n = (size_t)offset[cell->n_rows];
    d.unit = "ns";
    d.field = "/cells/NNNN/tokens/time_ns";
    put(h, g, &d);
    mem_free(time_ns);
    mem_free(offset);
    H5Gclose(g);
}

/* --- summary and series */

/* The study a cell is of; NULL: it served, or of a study that this build lacks. */
static const struct study *study_of(const struct record_cell *cell)
{
    const json_t *study = json_object_get(cell->attributes, "study");
    const char *name = json_string_value(json_object_get(study, "name"));
    const struct study *s = NULL;

    if (name && study_find(name, &s) != OK)
        err_clear();
    return s;
}

static void put_summary(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g = make_group(h, group, "summary");

    for (size_t i = 0; i < cell->n_values; i++) {
        const struct metrics_value *v = &cell->values[i];
        struct record_headline s = {.name = v->name,
                                    .unit = v->unit,
                                    .value = v->value,
                                    .why = v->why,
                                    .evidence =
                                        v->evidence ? v->evidence : cell->evidence,
                                    .has_interval = v->has_interval,
                                    .lo = v->lo,
                                    .hi = v->hi};
        const char *meaning = record_metric_meaning(v->name, study_of(cell), &s.better);

        put_scalar(h, g, &s, meaning);
    }
    H5Gclose(g);
}

static void put_series(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g = make_group(h, group, "series");
    const char *better;

    for (size_t i = 0; i < cell->n_series; i++) {
        const struct metrics_series *s = &cell->series[i];

        put(h, g,
            &(struct data){.name = s->name,
                           .type = H5T_IEEE_F64LE,
                           .data = s->v,
                           .n = s->n,
                           .unit = s->unit,
                           .evidence = s->evidence ? s->evidence : cell->evidence,
                           .meaning =
                               record_metric_meaning(s->name, study_of(cell), &better)});
    }
    H5Gclose(g);
}

/* --- a cell, and the root */

void record_h5_cell(struct record_h5 *h, int64_t attempt, const struct record_cell *cell)
{
    json_t *doc = json_pack("{s:s s:s s:I}", "key", cell->key, "state",
                            record_states[cell->state], "attempt", (json_int_t)attempt);
    char name[24];
    hid_t g;

    json_object_update_missing(doc, (json_t *)cell->attributes);
    snprintf(name, sizeof(name), "%04zu", h->n_cells++);
    g = make_group(h, h->cells, name);
    put_json(h, g, "attributes_json", doc, "/cells/NNNN/attributes_json");
    put_chain(h, g, "attributes_json", "attributes_json");
    if (cell->n_rows > 0) {
        put_requests(h, g, cell);
        put_chain(h, g, "requests", "requests");
        put_tokens(h, g, cell);
        put_chain(h, g, "tokens", "tokens");
    }
    put_summary(h, g, cell);
    put_chain(h, g, "summary", "summary");
    put_series(h, g, cell);
    put_chain(h, g, "series", "series");
    H5Gclose(g);
    json_decref(doc);
}

void record_h5_close(struct record_h5 *h, const json_t *run, const json_t *header,
                     const struct record_headline *headline, size_t n_headline)
{
    hid_t g = make_group(h, h->file, "headline");
    const char *key;
    char path[128];
    json_t *v;

    for (size_t i = 0; i < n_headline; i++)
        put_scalar(h, g, &headline[i], headline[i].name);
    H5Gclose(g);
    put_chain(h, h->file, "headline", "headline");
    json_object_foreach((json_t *)run, key, v) attr_json(h, h->file, key, v);
    json_object_foreach((json_t *)header, key, v)
    {
        const bool is_json = json_is_object(v) || json_is_array(v);

        snprintf(path, sizeof(path), "/%s%s", key, is_json ? "_json" : "");
        if (is_json)
            put_json(h, h->file, path + 1, v, path);
        else if (strcmp(key, "hwloc_xml") == 0)
            put_text(h, h->file, key, json_string_value(v), path);
    }
    put_chain(h, h->file, ".", "/");
    H5Gclose(h->cells);
    need(h, H5Fflush(h->file, H5F_SCOPE_GLOBAL), "the file");
    need(h, H5Fclose(h->file), "the file");
}
