/* experiments/study/support/rounded.h - a model with its matrices rounded in memory, and what that
 * did to the weights.   Threads: distinct objects. */
#ifndef STUDY_ROUNDED_H
#define STUDY_ROUNDED_H

#include "format/format.h"

struct study_rounded {
    struct format_file
        file; /* all but its matrices are lent by the file that was rounded */
    double error2, weight2; /* sums over the weights: squared errors, squares */
    double n_weights, n_bits;
    int n_plain; /* matrices kept as f32, because their rows are not whole blocks */
    char *bytes; /* of the matrices */
    float *row, *back;
};

/* `to`: a scheme of kernels/quant.h, "bf16", or "f32": the matrices are kept as they are. Rows
 * that are not whole blocks become the f32 numbers that blocks would give if the last weight were
 * repeated to the end. ERR_ARG: no such scheme, or quantised weights. On error *out is to be
 * closed, too. */
MUST int study_round(struct study_rounded *out, const struct format_file *file,
                     const char *to);
void study_rounded_close(struct study_rounded *r); /* twice is fine */

#endif
