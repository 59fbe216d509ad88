/* format/gguf.h - the GGUF container (version 3, little-endian): metadata and tensor
 * directory, with every length checked before use. Used by the model reader and by the
 * tokenizer, which finds its vocabulary in the metadata. */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "base/err.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf;

struct gguf_tensor {
    const char *name;
    uint32_t ggml_type; /* the file's number of its type, see gguf_ggml_type_name() */
    int n_dims;
    uint64_t dims[4]; /* dims[0] is contiguous (the columns) */
    const void *data;
    uint64_t bytes;
};

/* A model in several files, NAME-00001-of-00003.gguf and so on, is opened by its first one,
 * which has the metadata. ERR_ARG: `path` is another of them. */
MUST int gguf_open(struct gguf **out, const char *path);
void gguf_close(struct gguf **g);

int64_t gguf_file_bytes(const struct gguf *g); /* of all its files */
uint64_t gguf_n_tensors(const struct gguf *g);
/* In the order of their names; NULL after the last. */
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);
const char *gguf_ggml_type_name(uint32_t ggml_type); /* "Q4_K", or "type 99" */

/* Metadata. The getters return ERR_NOTFOUND (no message is set for it by the _opt forms,
 * which then leave *out alone and return OK) or ERR_FORMAT when the type differs.
 * Integers of any width and sign are accepted if the value fits. Strings are not
 * NUL-terminated. */
bool gguf_has(const struct gguf *g, const char *key);
MUST int gguf_get_int(const struct gguf *g, const char *key, int64_t *out);
MUST int gguf_opt_int(const struct gguf *g, const char *key, int64_t *out);
MUST int gguf_get_f64(const struct gguf *g, const char *key, double *out);
MUST int gguf_opt_f64(const struct gguf *g, const char *key, double *out);
MUST int gguf_opt_bool(const struct gguf *g, const char *key, bool *out);
/* A number, or a bool as 0 or 1; NaN: the key is of another type, or not there. No error. */
double gguf_number(const struct gguf *g, const char *key);
MUST int gguf_get_str(const struct gguf *g, const char *key, const char **s, size_t *n);
MUST int gguf_opt_str(const struct gguf *g, const char *key, const char **s, size_t *n);

/* An array: its element type and count; then elements one by one, O(1) each for
 * fixed-size types and for strings (string offsets are indexed once at open). */
MUST int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type *type,
                        uint64_t *n, const void **handle);
MUST int gguf_array_str(const void *handle, uint64_t i, const char **s, size_t *n);
MUST int gguf_array_f32(const void *handle, uint64_t i, float *out);
MUST int gguf_array_int(const void *handle, uint64_t i, int64_t *out);

/* The keys one by one (in byte order of their names) with the record as it stands in the
 * file, for copying metadata from one file to another. i < gguf_n_keys(). */
struct gguf_record {
    const char *key; /* not NUL-terminated */
    uint64_t key_n;
    const void *raw; /* key length, key, type, value */
    uint64_t raw_n;
};
uint64_t gguf_n_keys(const struct gguf *g);
void gguf_key_at(const struct gguf *g, uint64_t i, struct gguf_record *out);

#endif
