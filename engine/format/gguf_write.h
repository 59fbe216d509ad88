/* format/gguf_write.h - the head of a GGUF file: metadata and tensor directory.
 *
 * Metadata and directory grow in buffers of their own, because their counts stand in front:
 * gguf_put_head() joins them.   Threads: one owner. */
#ifndef FORMAT_GGUF_WRITE_H
#define FORMAT_GGUF_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "format/gguf.h"

#define GGUF_ALIGN 32 /* of tensors in the files that this project writes */
/* general.quantization_version: the layout of blocks that kernels/quant.h describes. */
#define GGUF_QUANT_VERSION 2

struct gguf_records {
    struct text text;
    uint64_t n;
};

void gguf_put_str(struct text *b, const char *s);
/* Keys of the metadata. */
void gguf_put_key_str(struct gguf_records *m, const char *key, const char *v);
void gguf_put_key_u32(struct gguf_records *m, const char *key, uint32_t v);
void gguf_put_key_f32(struct gguf_records *m, const char *key, float v);
void gguf_put_key_bool(struct gguf_records *m, const char *key, bool v);
/* The n elements follow. */
void gguf_put_key_array(struct gguf_records *m, const char *key, enum gguf_type type,
                        uint64_t n);
/* A record of another file, as it is there. */
void gguf_put_record(struct gguf_records *m, const struct gguf_record *r);
/* A tensor of the directory: dims[0] are columns. at: from the start of the data. */
void gguf_put_tensor(struct gguf_records *d, const char *name, const uint64_t *dims,
                     int n_dims, uint32_t ggml_type, uint64_t at);
/* The whole head, padded so that the data follow it. */
MUST int gguf_put_head(struct text *out, const struct gguf_records *metadata,
                       const struct gguf_records *directory);

#endif
