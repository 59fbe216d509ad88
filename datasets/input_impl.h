/* datasets/input_impl.h - the bytes of an input, for input.c, which reads them and their lines, and
 * input_list.c, which reads the records of a list. */
#ifndef DATASETS_INPUT_IMPL_H
#define DATASETS_INPUT_IMPL_H

#include <stdio.h>
#include <zlib.h>

#include "datasets/input.h"

/* A piece of a file that is read at once; in->chunk has room for at least as much. */
#define READ_BYTES ((size_t)1 << 18)

struct dataset_input {
    FILE *f;
    unsigned char *packed; /* bytes read of a gzipped file; NULL: it is not gzipped */
    z_stream unpack;
    bool inside_part; /* gzip's end mark of a part has not been reached */
    char *path;
    char *where;
    size_t where_size;
    unsigned char *chunk; /* bytes read and not yet consumed: [at, end) */
    size_t at, end;
    int64_t line; /* of the next byte, from 1 */
    char *piece;
    size_t piece_bytes, piece_capacity;
    int64_t piece_line; /* of its first byte */
    enum { ARRAY_BEFORE, ARRAY_INSIDE, ARRAY_AT_RECORD, ARRAY_AFTER } array;
    char key[64]; /* with which the list's first record begins, in quotes; "" unknown */
    bool lost;    /* where the next record of the list begins is not known */
    bool is_cut;  /* the file ended within a record, outside any text */
    int failed;   /* code of a failed read, OK before */
};

/* The next byte without consuming it, or -1 at the end of the file or after a failed read. */
int dataset_input_peek(struct dataset_input *in);
/* Consume the byte that peek() returned. */
void dataset_input_advance(struct dataset_input *in);
/* Let dataset_input_where() name the line of the next byte. */
void dataset_input_mark(struct dataset_input *in);
/* Add p[n] to the piece. ERR_LIMIT: then it is longer than DATASET_PIECE_MAX_BYTES. */
MUST int dataset_input_piece_add(struct dataset_input *in, const void *p, size_t n);

#endif
