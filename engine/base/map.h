/* base/map.h - a map from 64-bit keys to integers.
 *
 * An open-addressing table that grows. base/hash.h chooses the slots, so that no choice of
 * keys makes it slow. A map of all zeros is empty and owns nothing.   Threads: one per map. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct map {
    uint64_t *keys; /* 0: a free slot */
    int64_t *values;
    size_t n, size; /* size: 0 or a power of two */
};

/* Whether the key is there; its value goes to *value. Keys 0 and 1 count as equal. */
bool map_find(const struct map *m, uint64_t key, int64_t *value);
/* Add a key or change its value. ERR_NOMEM leaves the map as it was. */
MUST int map_put(struct map *m, uint64_t key, int64_t value);
void map_fini(struct map *m); /* twice is fine */

#endif
