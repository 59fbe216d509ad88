/* experiments/record/h5.h - the part of HDF5 that a record needs: groups,
 * attributes, one-dimensional datasets with unit and meaning.
 *
 * Only in a process of its own (base/child.h): an error ends it, so nothing here returns
 * one and nothing is given back afterwards. No times of objects, bounds V18..V110: the
 * same content gives the same bytes. Private to record*.c. Threads: one (serial HDF5). */
#ifndef RECORD_H5_H
#define RECORD_H5_H

#include <stddef.h>
#include <stdint.h>
#include <hdf5.h>
#include <jansson.h>

struct record_h5 {
    const char *path; /* lent */
    hid_t file;
    hid_t groups, datasets; /* creation properties */
};

void record_h5_create(struct record_h5 *h, const char *path);
/* Everything is written, not yet synced. */
void record_h5_close(struct record_h5 *h);

hid_t record_h5_group(struct record_h5 *h, hid_t parent,
                      const char *name); /* H5Gclose() */

/* A JSON string, number or boolean as an attribute of `loc`. */
void record_h5_attr(struct record_h5 *h, hid_t loc, const char *name, const json_t *v);

struct record_h5_data {
    const char *name;
    hid_t type;        /* H5T_IEEE_F64LE or the like; -1: texts, as UTF-8 padded by NUL */
    size_t text_bytes; /* of one such text */
    const void *data;
    size_t n;
    int scalar; /* one element without a dimension */
    const char *unit, *meaning;
    const char *why, *better, *evidence; /* further attributes, NULL: none */
    int64_t n_left_out;                  /* another one, 0: none */
    bool interval;                       /* two more: lo and hi */
    double lo, hi;
};
void record_h5_dataset(struct record_h5 *h, hid_t parent, const struct record_h5_data *d);

/* The innermost cause of HDF5's last error, on one line; lent until the next call. */
const char *record_h5_cause(void);

#endif
