/* Which reader a file is for. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/json.h"
#include "base/name.h"
#include "datasets/build.h"
#include "datasets/csv.h"

/* Find the reader by the names that only its format has. */
static const struct dataset_reader *reader_of(const char *name, bool is_json)
{
    for (int i = 0; dataset_readers[i]; i++)
        if (dataset_is_one_of(is_json ? dataset_readers[i]->keys
                                      : dataset_readers[i]->columns,
                              name, true))
            return dataset_readers[i];
    return NULL;
}

static int unknown(const char *path, const char *what, const char *found)
{
    return err_set(ERR_FORMAT,
                   "%s: the format is not recognised by its %s, %s; name it with "
                   "dataset.reader",
                   path, what, found);
}

/* The first record is what recognition sees; it ends the reading. */
struct first {
    struct dataset d; /* first: what the record function gets */
    const struct dataset_reader *reader;
};

static int on_record(struct dataset *d, const struct dataset_opts *o, const char *text,
                     size_t n, const char *where, bool *full)
{
    struct first *f = (struct first *)d;
    char found[160] = "";
    const char *key;
    json_t *record, *v;
    int rc = json_read_text(&record, text, n, where);

    if (rc != OK)
        return rc;
    *full = true;
    json_object_foreach(record, key, v)
    {
        size_t len = strlen(found);

        if (!f->reader)
            f->reader = reader_of(key, true);
        snprintf(found + len, sizeof(found) - len, "%s\"%s\"", len ? ", " : "", key);
    }
    json_decref(record);
    return f->reader ? OK : unknown(o->path, "first record's keys", found);
}

static int by_columns(const struct dataset_reader **out, const char *path)
{
    struct dataset_csv t;
    char found[160] = "";
    int rc = dataset_csv_init(&t, path);

    if (rc != OK)
        return rc;
    for (int i = 0; i < t.n_columns && !*out; i++) {
        size_t len = strlen(found);

        *out = reader_of(t.names[i], false);
        snprintf(found + len, sizeof(found) - len, "%s%s", i ? "," : "", t.names[i]);
    }
    dataset_csv_fini(&t);
    return *out ? OK : unknown(path, "first line", found);
}

static int looks_like_json(bool *out, const char *path)
{
    struct dataset_input *in;
    char *line;
    size_t n;
    int rc = dataset_input_open(&in, path);

    *out = false;
    if (rc != OK)
        return rc;
    *out = dataset_input_is_list(in);
    if (!*out) {
        rc = dataset_input_line(in, &line, &n);
        *out = rc == OK && line && line[0] == '{';
    }
    dataset_input_close(&in);
    return rc;
}

/* The reader whose keys or columns the file has. */
static int recognise(const struct dataset_reader **out, const char *path)
{
    const struct dataset_opts o = {.path = (char *)path};
    struct first f = {.reader = NULL};
    bool is_json;
    int rc = looks_like_json(&is_json, path);

    *out = NULL;
    if (rc != OK)
        return rc;
    if (!is_json)
        return by_columns(out, path);
    rc = dataset_read_records(&f.d, &o, on_record);
    if (rc == OK && !f.reader)
        rc = err_set(ERR_FORMAT, "%s: expected at least one record, found none", path);
    *out = f.reader;
    return rc;
}

static int find_reader(const struct dataset_reader **out, const struct dataset_opts *o)
{
    const char *name = o->reader ? o->reader : "auto";

    if (strcmp(name, "auto") == 0 && o->path)
        return recognise(out, o->path);
    *out = name_find(dataset_readers, strcmp(name, "auto") ? name : "synth", "reader");
    return *out ? OK : err_prefix(ERR_NOTFOUND, "dataset.reader");
}

static int open_by_name(struct dataset **out, const struct dataset_opts *o)
{
    const struct dataset_reader *reader;

    TRY(find_reader(&reader, o));
    return dataset_open_by(out, o, reader);
}

int dataset_absent(const char *file)
{
    return err_set(ERR_NOTFOUND,
                   "%s is neither here nor below $SANDWICH_DATA " DATASET_ABSENT, file);
}

int dataset_open(struct dataset **out, const struct dataset_opts *o)
{
    char path[PATH_MAX], fit[64];
    struct dataset_opts found = *o;
    int rc;

    *out = NULL;
    if (o->path)
        found.path = (char *)home_data(path, sizeof(path), o->path);
    if (!o->path || !o->stand_in || access(found.path, F_OK) == 0)
        return open_by_name(out, &found);
    found.reader = (char *)"synth";
    found.path = NULL;
    found.fit = o->stand_in;
    rc = open_by_name(out, &found);
    if (rc != OK)
        return rc;
    (*out)->stands_in = true;
    snprintf(fit, sizeof(fit), "%s", (*out)->name);
    snprintf((*out)->name, sizeof((*out)->name), "%.50s (stand-in)", fit);
    return OK;
}
