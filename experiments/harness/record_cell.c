#include "experiments/harness/record_cell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/harness/record_fields.h"
#include "experiments/harness/study.h"

#define ATTRIBUTE_TEXT_MAX 4096 /* longer texts stand in attributes_json only */
#define NAME_MAX_BYTES     256

const char *record_state_name(enum record_state s)
{
    static const char *const names[] = {"done", "failed", "skipped"};

    return names[s];
}

/* --- attributes */

static bool is_scalar(const json_t *v)
{
    return json_is_number(v) || json_is_boolean(v) ||
           (json_is_string(v) && json_string_length(v) <= ATTRIBUTE_TEXT_MAX);
}

int record_attributes(struct record_h5 *h, hid_t loc, const char *prefix,
                      const json_t *obj)
{
    const char *key;
    json_t *v;
    int rc = OK;

    json_object_foreach((json_t *)obj, key, v)
    {
        char name[NAME_MAX_BYTES];
        int n = snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "." : "", key);

        /* "key" and the like are ours; a nonsensically long name is in the JSON as well.
         */
        if (n >= (int)sizeof(name) || H5Aexists(loc, name) > 0)
            continue;
        if (json_is_object(v))
            rc = record_attributes(h, loc, name, v);
        else if (is_scalar(v))
            rc = record_h5_attr(h, loc, name, v);
        if (rc != OK)
            break;
    }
    return rc;
}

int record_json(struct record_h5 *h, hid_t loc, const char *name, const json_t *v,
                const char *meaning)
{
    char *text = json_text(v, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_ENCODE_ANY);
    int rc;

    if (!text)
        return ERR_NOMEM;
    rc = record_h5_text(h, loc, name, text, meaning);
    mem_free(text);
    return rc;
}

/* --- requests and tokens */

static const size_t widths[] = {
    [RECORD_COLUMN_I64] = 8,
    [RECORD_COLUMN_F64] = 8,
    [RECORD_COLUMN_BOOL] = 1,
    [RECORD_COLUMN_STATUS] = 1,
    [RECORD_COLUMN_ERROR] = sizeof(((struct metrics_row *)0)->error),
};

static void gather(const struct record_column *c, const struct record_cell *cell,
                   uint8_t *out)
{
    size_t w = widths[c->kind];

    for (size_t i = 0; i < cell->n_rows; i++) {
        const struct metrics_row *row = &cell->rows[i];
        const uint8_t *member = (const uint8_t *)row + c->offset;

        if (c->kind == RECORD_COLUMN_BOOL)
            out[i] = row->warmup;
        else if (c->kind == RECORD_COLUMN_STATUS)
            out[i] = (uint8_t)row->status;
        else if (c->kind == RECORD_COLUMN_ERROR)
            strncpy((char *)out + i * w, row->error, w); /* padding with NULs is meant */
        else
            memcpy(out + i * w, member, w);
    }
}

static int put_column(struct record_h5 *h, hid_t group, const struct record_column *c,
                      const struct record_cell *cell)
{
    static const enum record_h5_type types[] = {
        [RECORD_COLUMN_I64] = RECORD_H5_I64,    [RECORD_COLUMN_F64] = RECORD_H5_F64,
        [RECORD_COLUMN_BOOL] = RECORD_H5_I8,    [RECORD_COLUMN_STATUS] = RECORD_H5_I8,
        [RECORD_COLUMN_ERROR] = RECORD_H5_TEXT,
    };
    uint8_t *data = mem_new(MEM_HARNESS, cell->n_rows, widths[c->kind]);
    struct record_h5_data d = {.name = c->name,
                               .type = types[c->kind],
                               .width = widths[c->kind],
                               .data = data,
                               .n = cell->n_rows,
                               .unit = c->unit,
                               .meaning = c->meaning};
    int rc;

    if (!data)
        return ERR_NOMEM;
    gather(c, cell, data);
    rc = record_h5_dataset(h, group, &d);
    mem_free(data);
    return rc;
}

static int put_requests(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g;
    int rc = record_h5_group(h, group, "requests", &g);

    if (rc != OK)
        return rc;
    for (const struct record_column *c = record_columns; rc == OK && c->name; c++)
        rc = put_column(h, g, c, cell);
    H5Gclose(g);
    return rc;
}

static int put_token_sets(struct record_h5 *h, hid_t g, const struct record_cell *cell,
                          const int64_t *time_ns, const int64_t *offset)
{
    struct record_h5_data d = {
        .name = "offset",
        .type = RECORD_H5_I64,
        .data = offset,
        .n = cell->n_rows + 1,
        .unit = "",
        .meaning = record_field_meaning("/cells/NNNN/tokens/offset"),
    };
    int rc = record_h5_dataset(h, g, &d);

    d.name = "time_ns";
    d.data = time_ns;
    d.n = (size_t)offset[cell->n_rows];
    d.unit = "ns";
    d.meaning = record_field_meaning("/cells/NNNN/tokens/time_ns");
    return rc == OK ? record_h5_dataset(h, g, &d) : rc;
}

static int put_tokens(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    int64_t *offset = mem_new(MEM_HARNESS, cell->n_rows + 1, sizeof(*offset));
    int64_t *time_ns = NULL;
    hid_t g = -1;
    int rc = ERR_NOMEM;

    if (!offset)
        return rc;
    for (size_t i = 0; i < cell->n_rows; i++)
        offset[i + 1] = offset[i] + cell->rows[i].n_tok;
    time_ns = mem_new(MEM_HARNESS, (size_t)offset[cell->n_rows], sizeof(*time_ns));
    if (!time_ns)
        goto out;
    for (size_t i = 0; i < cell->n_rows; i++)
        memcpy(time_ns + offset[i], cell->rows[i].token_ns,
               (size_t)cell->rows[i].n_tok * sizeof(*time_ns));
    rc = record_h5_group(h, group, "tokens", &g);
    if (rc != OK)
        goto out;
    rc = put_token_sets(h, g, cell, time_ns, offset);
    H5Gclose(g);
out:
    mem_free(time_ns);
    mem_free(offset);
    return rc;
}

/* --- summary and series */

int record_scalar(struct record_h5 *h, hid_t group, const struct record_headline *v,
                  const char *meaning)
{
    /* One pattern for every NaN, whatever arithmetic made it: the file is reproducible.
     */
    double value = isnan(v->value) ? (double)NAN : v->value;
    const struct record_h5_data d = {
        .name = v->name,
        .type = RECORD_H5_F64,
        .data = &value,
        .n = 1,
        .scalar = 1,
        .unit = v->unit,
        .meaning = meaning,
        .better = v->better && v->better[0] ? v->better : NULL,
        .why = !isnan(value)         ? NULL
               : v->why && v->why[0] ? v->why
                                     : "no reason given",
        .n_left_out = (int64_t)v->n_left_out,
    };

    return record_h5_dataset(h, group, &d);
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

static int put_summary(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    hid_t g;
    int rc = record_h5_group(h, group, "summary", &g);

    if (rc != OK)
        return rc;
    for (size_t i = 0; rc == OK && i < cell->n_values; i++) {
        const struct metrics_value *v = &cell->values[i];
        struct record_headline s = {
            .name = v->name, .unit = v->unit, .value = v->value, .why = v->why};
        const char *meaning = record_metric_meaning(v->name, study_of(cell), &s.better);
        rc = record_scalar(h, g, &s, meaning);
    }
    H5Gclose(g);
    return rc;
}

static int put_series(struct record_h5 *h, hid_t group, const struct record_cell *cell)
{
    const char *better;
    hid_t g;
    int rc = record_h5_group(h, group, "series", &g);

    if (rc != OK)
        return rc;
    for (size_t i = 0; rc == OK && i < cell->n_series; i++) {
        const struct metrics_series *s = &cell->series[i];
        const struct record_h5_data d = {
            .name = s->name,
            .type = RECORD_H5_F64,
            .data = s->v,
            .n = s->n,
            .unit = s->unit,
            .meaning = record_metric_meaning(s->name, study_of(cell), &better)};
        rc = record_h5_dataset(h, g, &d);
    }
    H5Gclose(g);
    return rc;
}

static int put_cell_attributes(struct record_h5 *h, hid_t g,
                               const struct record_cell *cell, int64_t attempt)
{
    json_t *own =
        json_pack("{s:s s:s s:I}", "key", cell->key, "state",
                  record_state_name(cell->state), "attempt", (json_int_t)attempt);
    int rc = own ? record_attributes(h, g, "", own)
                 : err_set(ERR_NOMEM, "%s: out of memory", h->where);

    json_decref(own);
    if (rc == OK)
        rc = record_attributes(h, g, "", cell->attributes);
    if (rc == OK)
        rc = record_json(h, g, "attributes_json", cell->attributes,
                         record_field_meaning("/cells/NNNN/attributes_json"));
    return rc;
}

int record_cell_put(struct record_h5 *h, hid_t cells, size_t index, int64_t attempt,
                    const struct record_cell *cell)
{
    char name[24];
    hid_t g;
    int rc;

    snprintf(name, sizeof(name), "%04zu", index);
    rc = record_h5_group(h, cells, name, &g);
    if (rc != OK)
        return rc;
    rc = put_cell_attributes(h, g, cell, attempt);
    if (rc == OK && cell->n_rows > 0)
        rc = put_requests(h, g, cell);
    if (rc == OK && cell->n_rows > 0)
        rc = put_tokens(h, g, cell);
    if (rc == OK)
        rc = put_summary(h, g, cell);
    if (rc == OK)
        rc = put_series(h, g, cell);
    H5Gclose(g);
    return rc;
}
