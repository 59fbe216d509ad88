/* format/safet_quant.h - quantised matrices of folders: what quantization_config of config.json
 * says, and the tensors that hold a matrix, repacked to blocks of a type that kernels read.
 *
 * w4g128 (kernels/quant/) keeps codes, zeros and scales in f16 and bf16 as they are; a scale in
 * f32 is rounded to 20 bits, so that its products with codes are exact. w8g128 keeps codes and
 * scales. FP8 becomes f32: a product of two numbers of the file, rounded once, with four times
 * the bytes. Scales of activations are not used: activations are not rounded, or as --precision
 * says. Matrices without the scheme's tensors are plain ones.
 * Threads: repack() starts its own and returns when they have ended; the rest from one. */
#ifndef FORMAT_SAFET_QUANT_H
#define FORMAT_SAFET_QUANT_H

#include <stdbool.h>

#include "base/map.h"
#include "format/format.h"
#include "format/safet.h"

/* What loads, for messages and `sandwich model explain-support`. The last has no name. */
struct format_quant_method {
    const char *name, *becomes,
        *loads; /* quant_method; types of weights; which of them */
};
extern const struct format_quant_method format_quant_methods[];

enum format_scheme {
    FORMAT_SCHEME_NONE,
    FORMAT_SCHEME_GPTQ,
    FORMAT_SCHEME_AWQ,
    FORMAT_SCHEME_INT4, /* of compressed-tensors, as the next */
    FORMAT_SCHEME_INT8,
    FORMAT_SCHEME_FP8,
    FORMAT_SCHEME_FP8_BLOCKS
};

#define FORMAT_QUANT_BLOCK                                                               \
    128 /* weights of w4g128 and w8g128, and rows and columns of FP8 */

struct format_safet_quant {
    const char *path; /* begins errors */
    enum format_scheme scheme;
    int64_t group;    /* weights of a row that share a scale; 0: all of it */
    int zeros_less_1; /* 1: zeros are stored so */
    /* Matrices so far, by the name of what their tensors begin with. */
    struct format_safet_matrix *made;
    struct map places; /* of names in it */
    struct format_safet_chunk *chunks;
    int n, max, n_repacked;
    /* The folder's tensor of this name; NULL: none. */
    const struct format_safet_tensor *(*find)(const void *ctx, const char *name);
    const void *ctx;
};

/* Read quantization_config of the config.json at `path`. ERR_UNSUPPORTED: another scheme; the
 * message says which load. */
MUST int format_safet_quant_config(struct format_safet_quant *q, const char *path);
/* The matrix called `name`, ending in .weight; its data live until fini, and are written by
 * repack(). ERR_NOTFOUND without a message: it is not a quantised one. */
MUST int format_safet_quant_find(struct format_safet_quant *q, const char *name,
                                 struct format_tensor *out);
/* Fill the matrices that were found since the last call, by the threads of the CPU budget. */
MUST int format_safet_quant_repack(struct format_safet_quant *q);
/* Is a tensor of this name a part of a matrix that was found? */
bool format_safet_quant_owns(const struct format_safet_quant *q, const char *name);
void format_safet_quant_fini(struct format_safet_quant *q);

#endif
