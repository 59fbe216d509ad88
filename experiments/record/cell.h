/* experiments/record/cell.h - a cell, and JSON, as HDF5 objects. Like h5.h, only in a
 * process of its own, which an error ends. Private to record*.c. */
#ifndef RECORD_CELL_H
#define RECORD_CELL_H

#include "experiments/record/record.h"
#include "experiments/record/h5.h"

/* /cells/<index> with all it holds. */
void record_cell_put(struct record_h5 *h, hid_t cells, size_t index, int64_t attempt,
                     const struct record_cell *cell);

/* Every scalar below `obj` as an attribute of `loc`, unless one of that name is there. */
void record_attributes(struct record_h5 *h, hid_t loc, const char *prefix,
                       const json_t *obj);
/* A scalar text of any length; a document as such a text. */
void record_text(struct record_h5 *h, hid_t loc, const char *name, const char *text,
                 const char *meaning);
void record_json(struct record_h5 *h, hid_t loc, const char *name, const json_t *v,
                 const char *meaning);
/* A number with unit, meaning, `better` and, if it is NaN, `why`. */
void record_scalar(struct record_h5 *h, hid_t group, const struct record_headline *v,
                   const char *meaning);

#endif
