#include "experiments/record/cell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/fields.h"
#include "experiments/load/study.h"

#define ATTRIBUTE_TEXT_MAX 4096 /* longer texts stand in attributes_json only */
#define NAME_MAX_BYTES     256

static void *need_new(size_t n, size_t size)
{
    void *p = mem_new(MEM_HARNESS, n, size);

    if (!p)
        child_exit(ERR_NOMEM);
    return p;
}

/* --- attributes */

static bool is_scalar(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v) ||
           (json_is_string(v) && json_string_length(v) <= ATTRIBUTE_TEXT_MAX);
}

void record_attributes(struct record_h5 *h, hid_t loc, const char *prefix,
                       const json_t *obj)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)obj, key, v)
    {
        char name[NAME_MAX_BYTES];
        int n = snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "." : "", key);

        /* "key" and the like are ours; a nonsensically long name is in the JSON as well.
         */
        if (n >= (int)sizeof(name) || H5Aexists(loc, name) > 0)
            continue;
        if (json_is_object(v))
            record_attributes(h, loc, name, v);
        else if (is_scalar(v))
            record_h5_attr(h, loc, name, v);
    }
}

void record_text(struct record_h5 *h, hid_t loc, const char *name, const char *text,
                 const char *meaning)
{
    record_h5_dataset(h, loc,
                      &(struct record_h5_data){.name = name,
                                               .type = -1,
                                               .text_bytes = strlen(text),
                                               .data = text,
                                               .n = 1,
                                               .scalar = 1,
                                               .unit = "",
                                               .meaning = meaning});
}

void record_json(struct record_h5 *h, hid_t loc, const char *name, const json_t *v,
                 const char *meaning)
{
    char *text = json_text(v, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_ENCODE_ANY);

    if (!text)
        child_exit(ERR_NOMEM);
    record_text(h, loc, name, text, meaning);
    mem_free(text);
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
    data = need_new(cell->n_rows, width);
    for (size_t i = 0; i < cell->n_rows; i++)
        memcpy(data + i * width, (const char *)&cell->rows[i] + c->offset, width);
    record_h5_dataset(h, group,
                      &(struct record_h5_data){.name = c->name,
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
    hid_t g = record_h5_group(h, group, "requests");

    for (const struct record_column *c = record_columns; c->name; c++)
        put_column(h, g, c, cell);
    H5Gclose(g);
}

static void put_tokens(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g = record_h5_group(h, group, "tokens");
    int64_t *offset = need_new(cell->n_rows + 1, sizeof(*offset)), *time_ns;
    struct record_h5_data d = {.type = H5T_STD_I64LE};

    for (size_t i = 0; i < cell->n_rows; i++)
        offset[i + 1] = offset[i] + cell->rows[i].n_tok;
    time_ns = need_new((size_t)offset[cell->n_rows], sizeof(*time_ns));
    for (size_t i = 0; i < cell->n_rows; i++)
        if (cell->rows[i].n_tok)
            memcpy(time_ns + offset[i], cell->rows[i].token_ns,
                   (size_t)cell->rows[i].n_tok * sizeof(*time_ns));
    d.name = "offset";
    d.data = offset;
    d.n = cell->n_rows + 1;
    d.unit = "";
    d.meaning = record_field_meaning("/cells/NNNN/tokens/offset");
    record_h5_dataset(h, g, &d);
    d.name = "time_ns";
    d.data = time_ns;
    d.n = (size_t)offset[cell->n_rows];
    d.unit = "ns";
    d.meaning = record_field_meaning("/cells/NNNN/tokens/time_ns");
    record_h5_dataset(h, g, &d);
    mem_free(time_ns);
    mem_free(offset);
    H5Gclose(g);
}

/* --- summary and series */

void record_scalar(struct record_h5 *h, hid_t group, const struct record_headline *v,
                   const char *meaning)
{
    /* One pattern for every NaN, whatever arithmetic made it: the file is reproducible.
     */
    double value = isnan(v->value) ? (double)NAN : v->value;

    record_h5_dataset(
        h, group,
        &(struct record_h5_data){.name = v->name,
                                 .type = H5T_IEEE_F64LE,
                                 .data = &value,
                                 .n = 1,
                                 .scalar = 1,
                                 .unit = v->unit,
                                 .meaning = meaning,
                                 .better = v->better && v->better[0] ? v->better : NULL,
                                 .why = !isnan(value)         ? NULL
                                        : v->why && v->why[0] ? v->why
                                                              : "no reason given",
                                 .evidence = v->evidence,
                                 .n_left_out = (int64_t)v->n_left_out,
                                 .interval = v->has_interval,
                                 .lo = v->lo,
                                 .hi = v->hi});
}

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
    hid_t g = record_h5_group(h, group, "summary");

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

        record_scalar(h, g, &s, meaning);
    }
    H5Gclose(g);
}

static void put_series(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g = record_h5_group(h, group, "series");
    const char *better;

    for (size_t i = 0; i < cell->n_series; i++) {
        const struct metrics_series *s = &cell->series[i];

        record_h5_dataset(
            h, g,
            &(struct record_h5_data){
                .name = s->name,
                .type = H5T_IEEE_F64LE,
                .data = s->v,
                .n = s->n,
                .unit = s->unit,
                .evidence = s->evidence ? s->evidence : cell->evidence,
                .meaning = record_metric_meaning(s->name, study_of(cell), &better)});
    }
    H5Gclose(g);
}

void record_cell_put(struct record_h5 *h, hid_t cells, size_t index, int64_t attempt,
                     const struct record_cell *cell)
{
    json_t *own =
        json_pack("{s:s s:s s:I}", "key", cell->key, "state",
                  record_state_name(cell->state), "attempt", (json_int_t)attempt);
    char name[24];
    hid_t g;

    if (!own)
        child_exit(err_set(ERR_NOMEM, "%s: out of memory", h->path));
    snprintf(name, sizeof(name), "%04zu", index);
    g = record_h5_group(h, cells, name);
    record_attributes(h, g, "", own);
    record_attributes(h, g, "", cell->attributes);
    record_json(h, g, "attributes_json", cell->attributes,
                record_field_meaning("/cells/NNNN/attributes_json"));
    if (cell->n_rows > 0) {
        put_requests(h, g, cell);
        put_tokens(h, g, cell);
    }
    put_summary(h, g, cell);
    put_series(h, g, cell);
    H5Gclose(g);
    json_decref(own);
}
