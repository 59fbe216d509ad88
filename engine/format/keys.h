/* format/keys.h - which keys of a model's configuration change its results, and what the
 * readers do about each.
 *
 * One table has every such key of the families that are read: a key is followed, is known
 * to change nothing, or is refused unless it has the value that changes nothing. A reader
 * checks every key of its file. A key of rotary embeddings or of attention that is not in
 * the table is refused too: without it the model would compute something else.
 * Threads: any. */
#ifndef FORMAT_KEYS_H
#define FORMAT_KEYS_H

#include "format/family.h"

enum format_keys {
    FORMAT_KEYS_GGUF,   /* "<architecture>.<key>" */
    FORMAT_KEYS_CONFIG, /* of config.json */
    FORMAT_KEYS_ROPE,   /* of its rope_scaling and rope_parameters */
};

/* Check one key, as it stands in the file. `value`: its number, 0 or 1 for a bool, NAN
 * for anything else. f: the file's family, or NULL. `where` begins the message.
 * ERR_UNSUPPORTED: the key is refused. */
MUST int format_key_check(enum format_keys of, const struct format_family *f,
                          const char *key, double value, const char *where);

#endif
