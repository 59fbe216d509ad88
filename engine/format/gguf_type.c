/* The numbers that name types in a GGUF file. */
#include "format/gguf_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/quant.h"

static const struct {
    const char *name;
    uint8_t bytes;
} kv_type[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

/* Elements and bytes of a block. Types that cannot be computed are known by name so that they
 * can be refused by name, and so that the tokenizer of such a file can still be read. */
static const struct {
    const char *name;
    uint16_t block, bytes;
} tensor_type[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
};
#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

/* The types that are not quantised, and what general.file_type calls a file of mostly this
 * type. Those of quantised types are in their plug-ins (kernels/quant.h). */
static const struct {
    uint8_t ggml, file_type;
} plain[KERN_N_PLAIN_TYPES] = {
    [KERN_F32] = {0, 0}, [KERN_F16] = {1, 1}, [KERN_BF16] = {30, 32}};

/* -1: files have no number for it. */
static int ggml_of(enum kern_type t)
{
    return kern_type_quantised(t) ? kern_quant_of(t)->gguf_type : plain[t].ggml;
}

bool gguf_ggml_computed(uint32_t ggml_type, enum kern_type *out)
{
    for (int t = 0; t < KERN_N_TYPES; t++)
        if (ggml_of((enum kern_type)t) == (int64_t)ggml_type) {
            *out = (enum kern_type)t;
            return true;
        }
    return false;
}

const char *gguf_ggml_computed_names(void)
{
    static _Thread_local char text[160];
    size_t at = 0;
    int n = 0, i = 0;

    for (int t = 0; t < KERN_N_TYPES; t++)
        n += ggml_of((enum kern_type)t) >= 0;
    for (int t = 0; t < KERN_N_TYPES && at < sizeof(text); t++) {
        int ggml = ggml_of((enum kern_type)t);

        if (ggml < 0)
            continue;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s",
                               i == 0       ? ""
                               : i == n - 1 ? " or "
                                            : ", ",
                               tensor_type[ggml].name);
        i++;
    }
    return text;
}

uint32_t gguf_ggml_of(enum kern_type t)
{
    assert(ggml_of(t) >= 0);
    return (uint32_t)ggml_of(t);
}

uint32_t gguf_file_type(enum kern_type t)
{
    int type =
        kern_type_quantised(t) ? kern_quant_of(t)->gguf_file_type : plain[t].file_type;

    assert(type >= 0);
    return (uint32_t)type;
}

uint64_t gguf_type_bytes(uint32_t type)
{
    return type < N_OF(kv_type) ? kv_type[type].bytes : 0;
}

const char *gguf_type_name(uint32_t type)
{
    return type < N_OF(kv_type) ? kv_type[type].name : "an unknown type";
}

bool gguf_ggml_known(uint32_t t)
{
    return t < N_OF(tensor_type) && tensor_type[t].name;
}

const char *gguf_ggml_type_name(uint32_t t)
{
    static _Thread_local char text[32];

    if (gguf_ggml_known(t))
        return tensor_type[t].name;
    snprintf(text, sizeof(text), "type %u", t);
    return text;
}

const char *gguf_ggml_why_not(uint32_t t)
{
    static const char *const grids[] = {"IQ1", "IQ2", "IQ3", "TQ"};

    for (size_t i = 0; i < N_OF(grids); i++)
        if (strncmp(gguf_ggml_type_name(t), grids[i], strlen(grids[i])) == 0)
            return ", whose codes name vectors or thirds of bits: a copy in Q3_K or "
                   "IQ4_XS "
                   "loads";
    return "";
}

bool gguf_ggml_bytes(uint32_t t, uint64_t n, uint64_t row, uint64_t *bytes)
{
    if (!gguf_ggml_known(t) || row % tensor_type[t].block != 0)
        return false;
    return !__builtin_mul_overflow(n / tensor_type[t].block,
                                   (uint64_t)tensor_type[t].bytes, bytes);
}
