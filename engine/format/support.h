/* format/support.h - the architectures of models that the engine does not load, each with what it
 * lacks of it.
 *
 * The names are those of llama.cpp (src/llama-arch.cpp) that have no row in format/family.h. Who
 * adds a row there removes the one here; a test compares the two tables.
 * Threads: any. */
#ifndef FORMAT_SUPPORT_H
#define FORMAT_SUPPORT_H

#include "base/err.h"

struct format_refused {
    const char *arch;    /* general.architecture of GGUF files */
    const char *hf_type; /* model_type of config.json; NULL: as arch */
    const char *missing; /* what the engine would need */
};
extern const struct format_refused format_refusals[]; /* the last has no arch */

/* ERR_UNSUPPORTED, with what is missing, where `name` is an arch or a model_type of the table;
 * `key` is where the file has it. OK: it is none. */
MUST int format_refuse(const char *where, const char *key, const char *name);

#endif
