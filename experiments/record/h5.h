/* experiments/record/h5.h - a record as an HDF5 file: the root, its documents, the headlines
 * and the cells.
 *
 * Only in a process of its own (base/child.h): an error ends it, so nothing here returns
 * one and nothing is given back afterwards. No times of objects, bounds V18..V110: the
 * same content gives the same bytes. Private to record.c. Threads: one (serial HDF5). */
#ifndef RECORD_H5_H
#define RECORD_H5_H

#include <stddef.h>
#include <stdint.h>
#include <hdf5.h>
#include <jansson.h>

#include "experiments/record/chain.h"
#include "experiments/record/record.h"

struct record_h5 {
    const char *path; /* lent */
    hid_t file, cells;
    hid_t groups, datasets; /* creation properties */
    size_t n_cells;
    char chain[SHA256_TEXT]; /* of what was written so far; of all of it in the end */
};

void record_h5_create(struct record_h5 *h, const char *path);
/* The next /cells/NNNN with all it holds. `attempt`: how often its key was measured, from 1. */
void record_h5_cell(struct record_h5 *h, int64_t attempt, const struct record_cell *cell);
/* The root: the scalars of `run` as attributes, the documents of `header` (journal.h) as
 * datasets, and the headlines. Then everything is written, not yet synced. */
void record_h5_close(struct record_h5 *h, const json_t *run, const json_t *header,
                     const struct record_headline *headline, size_t n_headline);

#endif
