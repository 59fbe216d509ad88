/* tokenizer/keys.h - which keys of a vocabulary's files change the ids of a text, and what the
 * readers do about each.
 *
 * As format/keys.h for the configuration of a model: a key is followed, is known to change no
 * id, or is refused unless it has the value that changes none. An unknown key is refused where
 * the format has a closed set of them, and where its name says that it adds, removes or divides.
 * Threads: any. */
#ifndef TOKENIZER_KEYS_H
#define TOKENIZER_KEYS_H

#include <jansson.h>

#include "base/err.h"

enum tok_keys {
    TOK_KEYS_GGUF,   /* "tokenizer.ggml.<key>" */
    TOK_KEYS_FILE,   /* of tokenizer.json */
    TOK_KEYS_MODEL,  /* of its model */
    TOK_KEYS_PART,   /* of its normalizer, pre_tokenizer and post_processor */
    TOK_KEYS_ADDED,  /* of an added token */
    TOK_KEYS_CONFIG, /* of tokenizer_config.json */
};

/* Check one key. `value`: its number, 0 or 1 for a bool, NAN for anything else; `where` begins
 * the message. ERR_UNSUPPORTED: the key is refused. */
MUST int tok_key_check(enum tok_keys of, const char *key, double value,
                       const char *where);
/* All keys of a JSON object; one that is null counts as absent. */
MUST int tok_keys_check(enum tok_keys of, const json_t *object, const char *where);

#endif
