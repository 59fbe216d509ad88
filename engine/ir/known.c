/* Types, functions and constants that kernels may use without a declaration. */
#include <string.h>

#include "base/name.h"
#include "ir/tree.h"
#include "kernels/kern.h"
#include "kernels/panel.h"

static const char *const types[] = {"float",    "double",  "void",     "bool",
                                    "char",     "int",     "size_t",   "int64_t",
                                    "int32_t",  "int8_t",  "uint64_t", "uint32_t",
                                    "uint16_t", "uint8_t", NULL};

bool ir_known_type(const char *word)
{
    return name_index(types, word) >= 0;
}

bool ir_known_function(const char *name)
{
    static const char *const words[] = {"expf",
                                        "logf",
                                        "sqrtf",
                                        "tanhf",
                                        "fmaf",
                                        "fabsf",
                                        "isfinite",
                                        "memset",
                                        "memcpy",
                                        "kern_bf16_of",
                                        "kern_bf16_to",
                                        "kern_f16_of",
                                        "kern_f16_to",
                                        "kern_attn_token",
                                        "kern_q8_bytes",
                                        "kern_q8_scale",
                                        "kern_form",
                                        "kern_form_code",
                                        "kern_form_f16",
                                        "kern_form_min",
                                        "kern_form_scale",
                                        "kern_form_subs",
                                        "kern_form_weight",
                                        NULL};

    return name_index(words, name) >= 0;
}

/* Other words that begin with KERN_ are constants whose values no loop needs. */
bool ir_known_constant(const char *name, int64_t *value, bool *has_value)
{
    static const struct {
        const char *name;
        int64_t value;
    } values[] = {{"KERN_PANEL", KERN_PANEL},
                  {"KERN_SUB", KERN_SUB},
                  {"KERN_A_I8_WORDS", KERN_A_I8_WORDS},
                  {"KERN_A_I8_SCALE", KERN_A_I8_SCALE},
                  {"KERN_A_I8_SUM", KERN_A_I8_SUM},
                  {"true", 1},
                  {"false", 0}};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (strcmp(values[i].name, name) == 0) {
            *value = values[i].value;
            *has_value = true;
            return true;
        }
    *has_value = false;
    return strncmp(name, "KERN_", 5) == 0 || strcmp(name, "INFINITY") == 0 ||
           strcmp(name, "NULL") == 0;
}
