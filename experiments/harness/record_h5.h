/* experiments/harness/record_h5.h - the little of HDF5 that a record needs: groups,
 * attributes, one-dimensional datasets with unit and meaning, and the file as bytes.
 *
 * The file is built in memory (core driver), so that the disk is touched by our own
 * checked writes only. No times of objects, bounds V18..V110: the same content gives the
 * same bytes. Private to record*.c. Threads: one (serial HDF5). */
#ifndef HARNESS_RECORD_H5_H
#define HARNESS_RECORD_H5_H

#include <stddef.h>
#include <stdint.h>
#include <hdf5.h>
#include <jansson.h>

#include "base/err.h"

struct record_h5 {
    hid_t file;
    hid_t groups, datasets; /* creation properties */
    const char *where;      /* begins error lines */
    uint8_t *image;         /* reserved address space; touched as the file grows */
    size_t image_bytes;
    int out_of_memory; /* the image had to grow beyond it and could not */
};

/* `expected_bytes`: at least what the file will need, if it can be told: an HDF5 whose
 * storage fails half-way leaves objects behind that crash at exit, so memory is reserved
 * before. `h` must not move until it is closed. On error nothing is open; else
 * record_h5_close(). */
MUST int record_h5_create(struct record_h5 *h, const char *where, size_t expected_bytes);
void record_h5_close(struct record_h5 *h); /* twice is fine */
/* Finish the file. *bytes: lent until record_h5_close(). */
MUST int record_h5_image(struct record_h5 *h, const uint8_t **bytes, size_t *n);

/* *out: H5Gclose(). */
MUST int record_h5_group(struct record_h5 *h, hid_t parent, const char *name, hid_t *out);

/* Attributes of `loc`; record_h5_attr() takes a JSON string, number or boolean. */
MUST int record_h5_attr_text(struct record_h5 *h, hid_t loc, const char *name,
                             const char *text);
MUST int record_h5_attr(struct record_h5 *h, hid_t loc, const char *name,
                        const json_t *v);

enum record_h5_type {
    RECORD_H5_I64,
    RECORD_H5_F64,
    RECORD_H5_I8,
    RECORD_H5_TEXT, /* fixed length, NUL-padded UTF-8: `width` bytes an element */
};
struct record_h5_data {
    const char *name;
    enum record_h5_type type;
    size_t width;
    const void *data;
    size_t n;
    int scalar; /* one element without a dimension */
    const char *unit, *meaning;
    const char *why, *better; /* further attributes, NULL: none */
    int64_t n_left_out;       /* another one, 0: none */
};
MUST int record_h5_dataset(struct record_h5 *h, hid_t parent,
                           const struct record_h5_data *d);
/* A scalar text of any length. */
MUST int record_h5_text(struct record_h5 *h, hid_t parent, const char *name,
                        const char *text, const char *meaning);

#endif
