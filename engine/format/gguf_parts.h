/* format/gguf_parts.h - shared by the files that parse, look up and write GGUF. Other files
 * include format/gguf.h. */
#ifndef FORMAT_GGUF_PARTS_H
#define FORMAT_GGUF_PARTS_H

#include "format/gguf.h"
#include "base/file_map.h"
#include "kernels/kern.h"

/* Far above any model file (about 50 keys, a few thousand tensors). They bound the memory
 * that a hostile header can make the parser take. A tensor name has at most 64 bytes by the format.
 */
#define GGUF_MAX_KEYS    65536
#define GGUF_MAX_TENSORS 65536
#define GGUF_MAX_NAME    64
#define GGUF_MAX_KEY     65535
#define GGUF_MAX_ALIGN   (1u << 20)

struct gguf_array {
    enum gguf_type type;
    uint64_t n;
    const uint8_t *data; /* first element */
    uint64_t *at;        /* strings: offset of the i-th one's length from data; owned */
};

struct gguf_kv {
    const char *key; /* in the mapping */
    uint64_t key_n;
    enum gguf_type type;
    const uint8_t *value; /* scalars: the bytes; strings: after the length */
    uint64_t str_n;       /* strings */
    struct gguf_array array;
    const uint8_t *raw; /* the whole record, from the key's length on */
    uint64_t raw_n;
};

struct gguf_entry {
    struct gguf_tensor t;
    uint64_t offset; /* from the start of the data */
    char name[GGUF_MAX_NAME + 1];
};

/* The files of one model. The largest published have some 200. */
#define GGUF_MAX_PARTS 1000

struct gguf {
    struct file_map map;
    char path[512];
    uint64_t n_kv, n_tensors, align;
    struct gguf_kv *kv;          /* by key */
    struct gguf_entry *entry;    /* as in the file */
    struct gguf_entry **by_name; /* [n_tensors], of all parts */
    struct gguf **part;          /* [n_parts] the files after the first; owned */
    int n_parts;
};

/* One file, whatever it says about others. */
MUST int gguf_open_file(struct gguf **out, const char *path);
int gguf_name_order(const void *a,
                    const void *b); /* of struct gguf_entry *, for qsort() */

/* Bytes of a scalar of this type; 0 for strings, arrays and numbers that are not a type. */
uint64_t gguf_type_bytes(uint32_t type);
const char *gguf_type_name(uint32_t type);
/* Bytes of n elements; false if the type is unknown, n is not a multiple of its block, or the
 * product too large. */
bool gguf_ggml_bytes(uint32_t ggml_type, uint64_t n, uint64_t row, uint64_t *bytes);
bool gguf_ggml_known(uint32_t ggml_type);
/* The type that kernels know it as; false: none. */
bool gguf_ggml_computed(uint32_t ggml_type, enum kern_type *out);
/* "F32, F16 or Q8_0", this thread's until its next call. */
const char *gguf_ggml_computed_names(void);
/* What an error about a type that is not computed ends in: why, and what loads; "" where there is
 * no more to say. */
const char *gguf_ggml_why_not(uint32_t ggml_type);
uint32_t gguf_ggml_of(enum kern_type t);
/* The value of general.file_type for a file that this project writes with this type. */
uint32_t gguf_file_type(enum kern_type t);

#endif
