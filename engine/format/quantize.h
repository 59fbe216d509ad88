/* format/quantize.h - copies a model to a GGUF file whose matrices are quantised.
 *
 * Metadata and tokenizer are copied, vectors and routers keep their type, and every matrix, the
 * embedding included, is rounded by one scheme (kernels/quant.h). The result depends neither on
 * the number of threads nor on the processor.
 * Threads: format_quantize() starts its own. */
#ifndef FORMAT_QUANTIZE_H
#define FORMAT_QUANTIZE_H

#include "kernels/quant.h"

struct format_quantize_opts {
    const char *in;  /* a GGUF file with matrices in F32, F16 or BF16 */
    const char *out; /* written under a temporary name, then renamed */
    const struct kern_quant_scheme *scheme;
    int n_threads;
    void (*progress)(void *ctx, int64_t done_bytes, int64_t all_bytes); /* may be NULL */
    void *progress_ctx;
};

/* ERR_UNSUPPORTED: `in` is not a GGUF file, has quantised matrices already, or matrices whose
 * rows are not whole blocks. ERR_ARG: a weight is NaN, infinite or too large. All name the
 * tensor. */
MUST int format_quantize(const struct format_quantize_opts *o);

#endif
