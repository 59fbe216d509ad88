/* datasets/input.h - a large text file, one piece at a time.
 *
 * Traces and conversation files reach a gigabyte, so a reader sees one line, or one
 * element of the top-level JSON array, and memory stays bounded by the largest piece. A
 * piece above DATASET_PIECE_MAX_BYTES is refused: no real record comes near it, an
 * endless one would. A gzipped file is unpacked as it is read: all readers read both.
 * Threads: one input, one owner. */
#ifndef DATASETS_INPUT_H
#define DATASETS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DATASET_PIECE_MAX_BYTES ((size_t)64 << 20)

struct dataset_input;

/* *out is the caller's, given back with dataset_input_close(); NULL on error.
 * A UTF-8 byte order mark at the start is skipped.
 * ERR_IO: cannot be read. ERR_FORMAT: damaged gzip data, here or in a later call. */
MUST int dataset_input_open(struct dataset_input **out, const char *path);
void dataset_input_close(struct dataset_input **in);

/* The next line without its end (LF or CRLF); *line is NULL after the last one. The piece
 * is lent until the next call and is followed by a NUL that is not counted in *n.
 * ERR_LIMIT: longer than DATASET_PIECE_MAX_BYTES. */
MUST int dataset_input_line(struct dataset_input *in, char **line, size_t *n);

/* The next object of a top-level JSON array, from '{' to its '}', as text; *text is NULL
 * after the array's end. Only the frame is checked here: the text goes to
 * json_read_text(). ERR_FORMAT: the file is not an array of objects, ends within it, or goes
 * on after it. */
MUST int dataset_input_element(struct dataset_input *in, char **text, size_t *n);

/* After a piece that was refused with the code `refusal`, by the calls above or by its reader:
 * make the next call go on behind it. In a list of which a quote or bracket is missing, that is
 * the next object that begins with the first key of the list's first record; the message of
 * err_msg() then names the line. Whatever begins otherwise is left out up to there.
 * `refusal`: where the next record begins cannot be found, or the file ends within the list,
 * so that nobody knows how many are missing. Other codes: as above. */
MUST int dataset_input_resume(struct dataset_input *in, int refusal);

/* Does the first byte that is not white space begin a list? The file is not read beyond it. */
bool dataset_input_is_list(struct dataset_input *in);

/* "path:line" of the piece last returned, for the start of an error line. Lent. */
const char *dataset_input_where(const struct dataset_input *in);

#endif
