#include "experiments/record/h5.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"

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

const char *record_h5_cause(void)
{
    static char text[120];

    snprintf(text, sizeof(text), "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_cause, text);
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    return text;
}

static hid_t need(const struct record_h5 *h, hid_t result, const char *name)
{
    if (result < 0)
        child_exit(err_set(ERR_IO, "%s: cannot write %s: HDF5: %s", h->path, name,
                           record_h5_cause()));
    return result;
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
}

void record_h5_close(struct record_h5 *h)
{
    need(h, H5Fflush(h->file, H5F_SCOPE_GLOBAL), "the file");
    need(h, H5Fclose(h->file), "the file");
}

hid_t record_h5_group(struct record_h5 *h, hid_t parent, const char *name)
{
    return need(h, H5Gcreate2(parent, name, H5P_DEFAULT, h->groups, H5P_DEFAULT), name);
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

void record_h5_attr(struct record_h5 *h, hid_t loc, const char *name, const json_t *v)
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

/* --- datasets */

static void compress(struct record_h5 *h, hid_t properties, const char *name)
{
    hsize_t chunk = CHUNK_N;

    need(h, H5Pset_chunk(properties, 1, &chunk), name);
    need(h, H5Pset_shuffle(properties), name);
    need(h, H5Pset_deflate(properties, DEFLATE), name);
}

void record_h5_dataset(struct record_h5 *h, hid_t parent, const struct record_h5_data *d)
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
    attr_text(h, set, "meaning", d->meaning);
    if (d->better)
        attr_text(h, set, "better", d->better);
    if (d->why)
        attr_text(h, set, "why", d->why);
    if (d->evidence)
        attr_text(h, set, "evidence", d->evidence);
    if (d->n_left_out)
        attr(h, set, "n_left_out", H5T_STD_I64LE, &d->n_left_out);
    if (d->interval) {
        attr(h, set, "lo", H5T_IEEE_F64LE, &d->lo);
        attr(h, set, "hi", H5T_IEEE_F64LE, &d->hi);
    }
    need(h, H5Dclose(set), d->name);
    H5Pclose(properties);
    H5Sclose(space);
    H5Tclose(type);
}
