#include "experiments/harness/record_h5.h"

#include <string.h>

#include "base/mem.h"

/* Large arrays are chunked and compressed; small ones are not worth the index. */
#define CHUNK_N      8192
#define DEFLATE      1
#define CORE_GROW_BY ((size_t)1 << 20)
/* HDF5 tries to open what it creates, even without a file behind: name what cannot be
 * one. */
#define IMAGE_NAME "/dev/null/record"

static herr_t first_cause(unsigned n, const H5E_error2_t *e, void *ctx)
{
    const char **text = ctx;

    (void)n;
    *text = e->desc;
    return 1; /* upward walk: the first is the innermost */
}

static int fail(const struct record_h5 *h, const char *what, const char *name)
{
    const char *cause = "no reason given";
    int rc;

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_cause, &cause);
    rc = err_set(h->out_of_memory ? ERR_NOMEM : ERR_IO, "%s: HDF5 cannot %s %s: %s",
                 h->where, what, name, cause);
    H5Eclear2(H5E_DEFAULT);
    return rc;
}

/* --- the image. HDF5's own copy of it (H5Fget_file_image, 1.10) has a superblock whose
 * checksum is wrong with these bounds, so the driver's memory is ours and is kept at
 * close. */

static void *image_realloc(void *p, size_t n, H5FD_file_image_op_t op, void *ctx)
{
    struct record_h5 *h = ctx;
    uint8_t *q;

    (void)op;
    if (n <= h->image_bytes)
        return h->image;
    q = mem_map(MEM_HARNESS, 2 * n, MEM_NODE_ANY);
    if (!q) {
        h->out_of_memory = 1;
        return NULL;
    }
    if (p)
        memcpy(q, p, h->image_bytes);
    mem_unmap(MEM_HARNESS, h->image, h->image_bytes);
    h->image = q;
    h->image_bytes = 2 * n;
    return q;
}

static void *image_malloc(size_t n, H5FD_file_image_op_t op, void *ctx)
{
    return image_realloc(NULL, n, op, ctx);
}

static void *image_memcpy(void *to, const void *from, size_t n, H5FD_file_image_op_t op,
                          void *h)
{
    (void)op;
    (void)h;
    return memcpy(to, from, n);
}

/* The memory outlives the file: it is the result. */
static herr_t image_free(void *p, H5FD_file_image_op_t op, void *h)
{
    (void)p;
    (void)op;
    (void)h;
    return 0;
}

static void *context_copy(void *h)
{
    return h;
}

static herr_t context_free(void *h)
{
    (void)h;
    return 0;
}

static int open_image(struct record_h5 *h, hid_t access, hid_t creation)
{
    H5FD_file_image_callbacks_t calls = {image_malloc,
                                         image_memcpy,
                                         image_realloc,
                                         image_free,
                                         context_copy,
                                         context_free,
                                         h};

    return H5Pset_fapl_core(access, CORE_GROW_BY, 0) < 0 ||
           H5Pset_file_image_callbacks(access, &calls) < 0 ||
           H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
           H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110) < 0 ||
           H5Pset_obj_track_times(creation, 0) < 0 ||
           H5Pset_obj_track_times(h->groups, 0) < 0 ||
           H5Pset_obj_track_times(h->datasets, 0) < 0 ||
           (h->file = H5Fcreate(IMAGE_NAME, H5F_ACC_TRUNC, creation, access)) < 0;
}

int record_h5_create(struct record_h5 *h, const char *where, size_t expected_bytes)
{
    hid_t access, creation;
    int rc = OK;

    *h = (struct record_h5){.file = -1, .groups = -1, .datasets = -1, .where = where};
    h->image_bytes = expected_bytes + CORE_GROW_BY; /* the driver rounds up */
    h->image = mem_map(MEM_HARNESS, h->image_bytes, MEM_NODE_ANY);
    if (!h->image)
        return ERR_NOMEM;
    H5Eset_auto2(H5E_DEFAULT, NULL,
                 NULL); /* its stack goes to err_msg(), not to the screen */
    access = H5Pcreate(H5P_FILE_ACCESS);
    creation = H5Pcreate(H5P_FILE_CREATE);
    h->groups = H5Pcreate(H5P_GROUP_CREATE);
    h->datasets = H5Pcreate(H5P_DATASET_CREATE);
    if (access < 0 || creation < 0 || h->groups < 0 || h->datasets < 0 ||
        open_image(h, access, creation))
        rc = fail(h, "create", "the file image");
    H5Pclose(access);
    H5Pclose(creation);
    if (rc != OK)
        record_h5_close(h);
    return rc;
}

void record_h5_close(struct record_h5 *h)
{
    if (h->groups >= 0)
        H5Pclose(h->groups);
    if (h->datasets >= 0)
        H5Pclose(h->datasets);
    if (h->file >= 0)
        H5Fclose(h->file); /* nothing is written anywhere: it has no file behind it */
    h->file = h->groups = h->datasets = -1;
    mem_unmap(MEM_HARNESS, h->image, h->image_bytes);
    h->image = NULL;
}

/* The driver's memory grows by whole steps; where the file really ends stands in its
 * superblock (version 2 by the bounds: 8 bytes at 28, offsets of 8 bytes by byte 9). */
static size_t image_end(const uint8_t *p, size_t n)
{
    uint64_t end;

    if (n < 48 || p[8] < 2 || p[9] != sizeof(end))
        return n;
    memcpy(&end, p + 28, sizeof(end));
    return end >= 48 && end <= n ? (size_t)end : n;
}

int record_h5_image(struct record_h5 *h, const uint8_t **bytes, size_t *n)
{
    hsize_t size = 0;
    hid_t file = h->file;

    *bytes = NULL;
    if (H5Fflush(file, H5F_SCOPE_GLOBAL) < 0 || H5Fget_filesize(file, &size) < 0)
        return fail(h, "flush", "the file image");
    h->file = -1;
    if (H5Fclose(file) < 0)
        return fail(h, "close", "the file image");
    *bytes = h->image;
    *n = image_end(h->image, (size_t)size);
    return OK;
}

int record_h5_group(struct record_h5 *h, hid_t parent, const char *name, hid_t *out)
{
    *out = H5Gcreate2(parent, name, H5P_DEFAULT, h->groups, H5P_DEFAULT);
    return *out < 0 ? fail(h, "create group", name) : OK;
}

/* --- types. H5Tcopy'd, so that every one is closed alike. */

static hid_t type_text(size_t width)
{
    hid_t t = H5Tcopy(H5T_C_S1);

    if (t >= 0 &&
        (H5Tset_size(t, width ? width : 1) < 0 || H5Tset_strpad(t, H5T_STR_NULLPAD) < 0 ||
         H5Tset_cset(t, H5T_CSET_UTF8) < 0)) {
        H5Tclose(t);
        return -1;
    }
    return t;
}

static hid_t type_of(enum record_h5_type type, size_t width)
{
    switch (type) {
    case RECORD_H5_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case RECORD_H5_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case RECORD_H5_I8:
        return H5Tcopy(H5T_STD_I8LE);
    default:
        return type_text(width);
    }
}

/* --- attributes */

static int attr(struct record_h5 *h, hid_t loc, const char *name, hid_t type,
                const void *data)
{
    hid_t space = H5Screate(H5S_SCALAR), a = -1;
    int rc = OK;

    if (type < 0 || space < 0 ||
        (a = H5Acreate2(loc, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) < 0 ||
        H5Awrite(a, type, data) < 0)
        rc = fail(h, "write attribute", name);
    if (a >= 0)
        H5Aclose(a);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return rc;
}

int record_h5_attr_text(struct record_h5 *h, hid_t loc, const char *name,
                        const char *text)
{
    return attr(h, loc, name, type_text(strlen(text)), text);
}

int record_h5_attr(struct record_h5 *h, hid_t loc, const char *name, const json_t *v)
{
    int64_t i;
    double d;
    int8_t b;

    switch (json_typeof(v)) {
    case JSON_STRING:
        return record_h5_attr_text(h, loc, name, json_string_value(v));
    case JSON_INTEGER:
        i = json_integer_value(v);
        return attr(h, loc, name, type_of(RECORD_H5_I64, 0), &i);
    case JSON_REAL:
        d = json_real_value(v);
        return attr(h, loc, name, type_of(RECORD_H5_F64, 0), &d);
    default:
        b = json_is_true(v);
        return attr(h, loc, name, type_of(RECORD_H5_I8, 0), &b);
    }
}

/* --- datasets */

static hid_t space_of(const struct record_h5_data *d)
{
    hsize_t n = d->n;

    return d->scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &n, NULL);
}

static hid_t properties_of(const struct record_h5 *h, const struct record_h5_data *d)
{
    hid_t p = H5Pcopy(h->datasets);
    hsize_t chunk = CHUNK_N;

    if (p >= 0 && !d->scalar && d->n >= CHUNK_N &&
        H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0 &&
        (H5Pset_chunk(p, 1, &chunk) < 0 || H5Pset_shuffle(p) < 0 ||
         H5Pset_deflate(p, DEFLATE) < 0)) {
        H5Pclose(p);
        return -1;
    }
    return p;
}

static int describe(struct record_h5 *h, hid_t set, const struct record_h5_data *d)
{
    int rc = record_h5_attr_text(h, set, "unit", d->unit);

    if (rc == OK)
        rc = record_h5_attr_text(h, set, "meaning", d->meaning);
    if (rc == OK && d->better)
        rc = record_h5_attr_text(h, set, "better", d->better);
    if (rc == OK && d->why)
        rc = record_h5_attr_text(h, set, "why", d->why);
    if (rc == OK && d->n_left_out)
        rc = attr(h, set, "n_left_out", type_of(RECORD_H5_I64, 0), &d->n_left_out);
    return rc;
}

int record_h5_dataset(struct record_h5 *h, hid_t parent, const struct record_h5_data *d)
{
    hid_t type = type_of(d->type, d->width), space = space_of(d);
    hid_t properties = properties_of(h, d), set = -1;
    int rc = OK;

    if (type < 0 || space < 0 || properties < 0 ||
        (set = H5Dcreate2(parent, d->name, type, space, H5P_DEFAULT, properties,
                          H5P_DEFAULT)) < 0 ||
        (d->n > 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d->data) < 0))
        rc = fail(h, "write dataset", d->name);
    if (rc == OK)
        rc = describe(h, set, d);
    if (set >= 0)
        H5Dclose(set);
    if (properties >= 0)
        H5Pclose(properties);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    return rc;
}

int record_h5_text(struct record_h5 *h, hid_t parent, const char *name, const char *text,
                   const char *meaning)
{
    const struct record_h5_data d = {.name = name,
                                     .type = RECORD_H5_TEXT,
                                     .width = strlen(text),
                                     .data = text,
                                     .n = 1,
                                     .scalar = 1,
                                     .unit = "",
                                     .meaning = meaning};

    return record_h5_dataset(h, parent, &d);
}
